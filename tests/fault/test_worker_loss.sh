#!/usr/bin/env bash
# A worker of a training is killed, or stopped for longer than it may be, at random moments: the others go on
# and come to the end, in both loss modes; what was not trained is counted; the one that comes back is
# refused; exit statuses and words tell what happened, and no process is left.
# $1: build folder, $2: temporary folder. EMBPS_TEST_LOSSES: how many rounds (default 2); EMBPS_TEST_SEED.
set -euo pipefail
build=$1 dir=$2
# shellcheck source=tests/support/losses
. "$(dirname "${BASH_SOURCE[0]}")/../support/losses"
cd "$dir"
rounds=${EMBPS_TEST_LOSSES:-2}
seed=${EMBPS_TEST_SEED:-$RANDOM}
echo "seed $seed (EMBPS_TEST_SEED), $rounds rounds (EMBPS_TEST_LOSSES)"
RANDOM=$seed
calibrate

for ((i = 0; i < rounds; i++)); do
    modes=(0 async 0 3)
    staleness=${modes[i % 4]}
    rules=(auto continue rollback)
    rule=${rules[RANDOM % (i % 2 == 0 ? 3 : 2)]}
    victim=$((RANDOM % 3))
    hows=(KILL STOP STOP KILL)
    how=${hows[i % 4]}
    name="round $i: worker $victim, $how, staleness $staleness, $rule"
    start $epochs "$staleness" "$rule"
    await_training "$name"
    pid=$(worker_pid $victim) || pid=
    nap_ms $((RANDOM % took_ms))
    if [ -z "$pid" ] || [ -e out ] || ! kill -"$how" "$pid" 2>/dev/null; then
        finish_job 60
        expect_too_late "$name"
        lengthen
        continue
    fi
    # Who has said goodbye is expected no more, so that its process may do what it likes.
    if ! await 30 lost && [ -s out ]; then
        [ "$how" = KILL ] || kill -CONT "$pid"
        finish_job 60
        expect_too_late "$name"
        lengthen
        continue
    fi
    expect_line "$name" "worker $victim (host .*, process $pid) is lost: its process"
    if [ "$how" = STOP ]; then
        go_on "$name" "$pid"
        finish_job 90
        expect_refusal "$name" $victim "stood still"
    else
        finish_job 90
        expect_line "$name" "worker $victim .*is gone, ended by signal 9 (Killed)"
        expect_line "$name" "came to its end without worker $victim"
    fi
    expect_loss "$name"
done

# The one that writes the vectors is killed before they are whole: the next one writes them.
# shellcheck disable=SC2317 # called by await
writes()
{
    compgen -G ".out.*.tmp"
}
name="killed at the export"
make_text text 12000 200000
for ((i = 0; i < 5; i++)); do
    start 1 0 auto
    await_training "$name"
    pid=$(worker_pid 0) || failed "$name: worker 0 is not there"
    await 60 writes || failed "$name: nothing is written"
    kill -STOP "$pid"
    await 10 stands_still "$pid" || failed "$name: worker 0 does not stand still"
    part=$(compgen -G ".out.*.tmp") && break
    kill -CONT "$pid" # it was as fast as that
    finish_job 60
    expect_too_late "$name"
done
[ -n "$part" ] || failed "$name: the vectors were whole"
kill -KILL "$pid"
finish_job 60
expect_line "$name" "worker 0 .*is gone, ended by signal 9 (Killed)"
expect_line "$name" "worker 0: its last clock had ended"
expect_line "$name" "worker 1: 0 of 144000 words were not trained: 1 of 3 workers were lost"
expect_line "$name" "came to its end without worker 0"
[ "$(sed -n '1s/ 16$//p' out)" = "$(($(wc -l <out) - 1))" ] || failed "$name: not all vectors: $(head -n 1 out)"
words=144000 expect_loss "$name"
rm -f "$part"
make_text text 3000 400

# Pushes of the unfinished clock have been applied, as a rule: then there is nothing to roll back to, and the job
# ends and says why. If it had just ended its clock, the others go on.
name="rollback of what was applied"
kill_in_time "$name" 1 async rollback
if [ -e out ]; then
    expect_loss "$name"
else
    [ $status = 21 ] || { failed "$name: ends with $status"; cat log; }
    expect_line "$name" "worker 1 has left with status 21"
    expect_no_jobs "$name"
    echo "ok: $name"
fi

# A worker that is killed before all have started ends the job; later, the others go on.
name="killed while starting"
for ((i = 0; i < (rounds + 1) / 2; i++)); do
    start "$epochs" async auto
    await 60 worker_pid 0 || true
    pid=$(worker_pid 0) || pid=
    nap_ms $((RANDOM % 300))
    if [ -z "$pid" ] || ! kill -KILL "$pid" 2>/dev/null; then
        finish_job 60
        expect_too_late "$name"
        continue
    fi
    finish_job 60
    [ $status = 1 ] || [ $status = 21 ] || { failed "$name: ends with $status"; cat log; }
    [ $status = 21 ] || expect_no_output "$name" out
    expect_no_jobs "$name"
    echo "ok: $name: status $status, $(tail -n 1 log)"
done
exit $((failures > 0))
