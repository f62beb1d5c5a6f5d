#!/usr/bin/env bash
# A worker of a training is killed, or stopped for longer than it may be, at random moments: the others go on
# and come to the end, in both loss modes; what was not trained is counted; the one that comes back is
# refused; exit statuses and words tell what happened, and no process is left.
# $1: build folder, $2: temporary folder. EMBPS_TEST_LOSSES: how many rounds (default 2); EMBPS_TEST_SEED.
set -euo pipefail
build=$1 dir=$2
# shellcheck source=tests/support/jobs
. "$(dirname "${BASH_SOURCE[0]}")/../support/jobs"
cd "$dir"
rounds=${EMBPS_TEST_LOSSES:-2}
seed=${EMBPS_TEST_SEED:-$RANDOM}
echo "seed $seed (EMBPS_TEST_SEED), $rounds rounds (EMBPS_TEST_LOSSES)"
RANDOM=$seed
make_text text 3000 400

nap_ms() # MILLISECONDS
{
    sleep "$(printf '%d.%03d' $(($1 / 1000)) $(($1 % 1000)))"
}

# A training of 2 servers and 3 workers, in the background.
start() # EPOCHS STALENESS RULE
{
    rm -rf data out out.json
    env --default-signal=INT "$root/scripts/embps-run" --bin-dir "$build" -s 2 -w 3 --data "$dir/data" --memory 16M \
        --server-arg "--on-worker-loss=$3" --server-arg --worker-timeout=1 -- skipgram --corpus "$dir/text" \
        --out "$dir/out" --log-json "$dir/out.json" --dim 16 --min-count 1 --batch-words 500 --epochs "$1" \
        --staleness "$2" --quiet >log 2>&1 </dev/null &
    job=$!
}

# shellcheck disable=SC2317 # called by await
trains()
{
    [ -s out.json ]
}

# The pid of a worker, by its rank: mpirun starts them in order.
worker_pid() # RANK
{
    ranks_of embps-train "$dir/text" | sort -n | sed -n "$(($1 + 1))p"
}

stands_still() # PID
{
    [ "$(ps -o state= -p "$1")" = T ]
}

# shellcheck disable=SC2317 # called by await
lost()
{
    grep -q "is lost: its process" log
}

expect_line() # NAME WORDS
{
    grep -q -- "$2" log || { failed "$1: no \"$2\""; cat log; }
}

# How long a whole training takes here: a loss happens within this, and within its first part.
start 6 async auto
await 60 trains || { failed "the training does not come up"; cat log; }
from=$(($(date +%s%N) / 1000000))
finish_job 60
[ $status = 0 ] || { failed "a training without loss ends with $status"; cat log; }
took_ms=$(($(date +%s%N) / 1000000 - from + 200))
epochs=$((36000 / took_ms + 10)) # a few times that
words=$(($(wc -w <text) * epochs))
echo "ok: no loss, $took_ms ms; then $epochs epochs"

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
    await 60 trains || { failed "$name: the training does not come up"; cat log; }
    pid=$(worker_pid $victim) || pid=
    nap_ms $((RANDOM % took_ms))
    if [ -z "$pid" ] || [ -e out ] || ! kill -"$how" "$pid" 2>/dev/null; then
        finish_job 60
        echo "ok: $name: too late"
        continue
    fi
    await 30 lost || { failed "$name: nobody is told to be lost"; cat log; }
    expect_line "$name" "worker $victim (host .*, process $pid) is lost: its process"
    if [ "$how" = STOP ]; then
        stands_still "$pid" || failed "$name: the stopped worker does not stand still"
        kill -CONT "$pid"
    fi
    finish_job 90
    [ $status = 21 ] || { failed "$name: ends with $status"; cat log; }
    [ -s out ] || { failed "$name: no vectors"; cat log; }
    expect_line "$name" "words were not trained: 1 of 3 workers were lost"
    untrained=$(sed -n 's/.*: \([0-9]*\) of \([0-9]*\) words were not trained.*/\1 \2/p' log)
    read -r left all <<<"$untrained"
    # Shares are thirds of the text, to a line or so.
    if [ "${all:-0}" -ne $words ] || [ "${left:-0}" -le 0 ] || [ "$left" -gt $((words * 2 / 5)) ]; then
        failed "$name: untrained are \"$untrained\" of $words"
    fi
    if [ "$how" = STOP ]; then
        expect_line "$name" "worker $victim was taken for lost, since its process stood still"
    else
        expect_line "$name" "came to its end without worker $victim"
    fi
    [ "$(states_of data)" = "clean clean" ] || failed "$name: states are $(states_of data)"
    expect_no_jobs "$name"
    echo "ok: $name: $left of $all words not trained"
done

# Pushes of the unfinished clock have been applied, as a rule: then there is nothing to roll back to, and the job
# ends and says why. If it had just ended its clock, the others go on.
start "$epochs" async rollback
await 60 trains || { failed "the training does not come up"; cat log; }
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
    await 60 ranks_of embps-train "$dir/text" || failed "no worker comes up"
    pid=$(worker_pid 0)
    nap_ms $((RANDOM % 300))
    kill -KILL "$pid" 2>/dev/null || true
    finish_job 60
    [ $status = 1 ] || [ $status = 21 ] || { failed "killed while starting: ends with $status"; cat log; }
    [ $status = 21 ] || expect_no_output "killed while starting" out
    expect_no_jobs "killed while starting"
    echo "ok: killed while starting: status $status, $(tail -n 1 log)"
done
exit $((failures > 0))
