#!/usr/bin/env bash
# embps-run --restart: a job of which a server, a worker or mpirun is killed goes on from its newest checkpoint by
# itself and ends with the bits of one that was not; who was lost is said, nobody is left, and there is a limit. What
# is an error, and what was told to stop, is not started again.
# $1: build folder, $2: temporary folder.
set -euo pipefail
build=$1 dir=$2
# shellcheck source=tests/support/jobs
. "$(dirname "${BASH_SOURCE[0]}")/../support/jobs"
# shellcheck source=tests/support/trainings
. "$(dirname "${BASH_SOURCE[0]}")/../support/trainings"
cd "$dir"
grouped_text 11 6000 40 40 12 >text

# Its pid in job, its words in NAME.log.
start() # NAME RESTARTS EPOCHS OPTION...
{
    local name=$1 restarts=$2 epochs=$3
    shift 3
    env --default-signal=INT "$root/scripts/embps-run" --bin-dir "$build" -s 2 -w 2 --data "$dir/$name.data" -m 16M \
        --kill-timeout 1 --restart "$restarts" --server-arg --checkpoints="$dir/$name.saved" -- skipgram \
        --corpus "$dir/text" --dim 24 --min-count 3 --epochs "$epochs" --staleness 0 --batch-words 400 \
        --checkpoint-batches 40 --out "$dir/$name.in" --out-context "$dir/$name.out" "$@" \
        >"$name.log" 2>&1 </dev/null &
    job=$!
}

made() # NAME: the number of the last checkpoint that is there
{
    local last
    last=$(find "$1.saved" -maxdepth 1 -name 'checkpoint-??????????' 2>/dev/null | sed 's/.*checkpoint-0*//' | sort -n | tail -n 1)
    echo "${last:-0}"
}
has_made() # NAME N
{
    [ "$(made "$1")" -ge "$2" ]
}
said() # NAME WORDS
{
    grep -qF -- "$2" "$1.log"
}

# Kills one rank, or mpirun, once there is a checkpoint more; it is said to be restart N.
kill_one() # NAME PATTERN N WORDS
{
    local pid
    await 120 has_made "$1" $(($(made "$1") + 1)) || failed "no checkpoint before kill $3: $(cat "$1.log")"
    pid=$(pgrep -f "$2 .*$dir/$1" | tail -n 1)
    kill -KILL "$pid" || failed "nobody to kill: $2"
    await 120 said "$1" "restart $3 of" || failed "no restart $3: $(cat "$1.log")"
    grep -qE -- "$4.*: restart $3 of" "$1.log" || failed "it is not said that $4: $(cat "$1.log")"
}

start plain 0 4
finish_job 120
[ "$status" = 0 ] || { failed "an undisturbed job ends with $status"; cat plain.log; exit 1; }

start again 2 4
kill_one again '^[^ ]*/embps-train' 1 'worker [01] \(signal 9\) was lost'
kill_one again '^mpirun' 2 'ended by signal 9'
finish_job 120
[ "$status" = 0 ] || failed "a job that was started again ends with $status: $(cat again.log)"
cmp plain.in again.in && cmp plain.out again.out || failed "other bits after restarts"
[ "$(grep -c 'goes on from checkpoint-' again.log)" = 2 ] || failed "from where it goes on is not said: $(cat again.log)"
expect_no_jobs "after restarts"

# A server, and the limit; then told to stop; and an error.
start limit 1 600
kill_one limit '^[^ ]*/embps-server' 1 'server [01] \(signal 9\) was lost'
await 120 has_made limit $(($(made limit) + 1)) || failed "no checkpoint after a restart: $(cat limit.log)"
kill -KILL "$(ranks_of embps-server "$dir/limit" | tail -n 1)"
finish_job 60
[ "$status" = 1 ] || failed "at the limit it ends with $status: $(cat limit.log)"
said limit "given up after 1 restarts: server" || failed "the limit is not told: $(cat limit.log)"
expect_no_jobs "at the limit"
start limit 5 600
await 120 has_made limit $(($(made limit) + 1)) || failed "no checkpoint: $(cat limit.log)"
kill -TERM "$job"
finish_job 60
[ "$status" = 7 ] || failed "told to stop, it ends with $status: $(cat limit.log)"
! said limit "restart 1 of" || failed "it was started again after it was told to stop: $(cat limit.log)"
expect_no_jobs "told to stop"
start limit 5 600 --seed 2
finish_job 60
[ "$status" = 4 ] || failed "another training ends with $status: $(cat limit.log)"
! said limit "restart 1 of" || failed "an error was tried again: $(cat limit.log)"

code=0
"$root/scripts/embps-run" --bin-dir "$build" --data x --restart 2 -- skipgram >out 2>&1 || code=$?
[ $code = 2 ] && grep -q -- '--checkpoints' out || failed "--restart without checkpoints: $code, $(cat out)"
code=0
"$root/scripts/embps-run" --bin-dir "$build" --data x --restart 2 --server-arg --checkpoints=y --server-arg --resume \
    --server-arg none -- skipgram >out 2>&1 || code=$?
[ $code = 2 ] && grep -q -- '--resume' out || failed "--restart with --resume none: $code, $(cat out)"
exit $((failures > 0))
