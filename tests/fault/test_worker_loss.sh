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
        echo "ok: $name: too late"
        continue
    fi
    await_loss "$name"
    expect_line "$name" "worker $victim (host .*, process $pid) is lost: its process"
    if [ "$how" = STOP ]; then
        stands_still "$pid" || failed "$name: the stopped worker does not stand still"
        kill -CONT "$pid"
    fi
    finish_job 90
    if [ "$how" = STOP ]; then
        expect_line "$name" "worker $victim was taken for lost, since its process stood still"
    else
        expect_line "$name" "worker $victim .*is gone, ended by signal 9 (Killed)"
        expect_line "$name" "came to its end without worker $victim"
    fi
    expect_loss "$name"
done

# Pushes of the unfinished clock have been applied, as a rule: then there is nothing to roll back to, and the job
# ends and says why. If it had just ended its clock, the others go on.
start "$epochs" async rollback
await_training "rollback of what was applied"
kill -KILL "$(worker_pid 1)"
finish_job 60
name="rollback of what was applied"
[ $status = 21 ] || { failed "$name: ends with $status"; cat log; }
if [ -e out ]; then
    expect_line "$name" "words were not trained: 1 of 3 workers were lost"
else
    expect_line "$name" "worker 1 has left with status 21"
fi
expect_no_jobs "$name"
echo "ok: $name"

# A worker that is killed before all have started ends the job.
for ((i = 0; i < (rounds + 1) / 2; i++)); do
    start 6 async auto
    await 60 worker_pid 0 || failed "worker 0 does not come up"
    pid=$(worker_pid 0) || pid=
    nap_ms $((RANDOM % 300))
    [ -z "$pid" ] || kill -KILL "$pid" 2>/dev/null || true
    finish_job 60
    [ $status = 1 ] || [ $status = 21 ] || { failed "killed while starting: ends with $status"; cat log; }
    [ $status = 21 ] || expect_no_output "killed while starting" out
    expect_no_jobs "killed while starting"
    echo "ok: killed while starting: status $status, $(tail -n 1 log)"
done
exit $((failures > 0))
