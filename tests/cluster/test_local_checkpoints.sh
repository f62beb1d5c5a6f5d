#!/usr/bin/env bash
# embps-train --local makes checkpoints and goes on from them: killed and started again it has the bits of one that was
# not, in step with two threads and with one thread; a job of servers goes on from them too, and the other way round.
# Another text is refused, and so are options that make no sense together.
# $1: build folder, $2: temporary folder.
set -euo pipefail
build=$1 dir=$2
# shellcheck source=tests/support/jobs
. "$(dirname "${BASH_SOURCE[0]}")/../support/jobs"
# shellcheck source=tests/support/trainings
. "$(dirname "${BASH_SOURCE[0]}")/../support/trainings"
cd "$dir"
grouped_text 11 3000 40 40 12 >text
common=(--corpus "$dir/text" --dim 24 --min-count 3 --quiet --binary --batch-words 400)

# In the background, its pid in job; vectors in NAME.in and NAME.out, tables in NAME.data.
start_local() # NAME THREADS OPTION...
{
    local name=$1 threads=$2
    shift 2
    "$train" skipgram --local --threads "$threads" --data "$dir/$name.data" --checkpoints "$dir/$name.saved" \
        --memory 16M "${common[@]}" --out "$dir/$name.in" --out-context "$dir/$name.out" "$@" \
        >>"$name.log" 2>&1 </dev/null &
    job=$!
}
start_servers() # NAME SERVERS WORKERS OPTION...
{
    local name=$1 servers=$2 workers=$3
    shift 3
    rm -rf "$name.data"
    "${bare[@]}" -n "$servers" "$server" --data "$dir/$name.data" --checkpoints "$dir/$name.saved" --memory 16M : \
        -n "$workers" "$train" skipgram "${common[@]}" --out "$dir/$name.in" --out-context "$dir/$name.out" "$@" \
        >>"$name.log" 2>&1 </dev/null &
    job=$!
}
finish() # NAME
{
    finish_job 120
    [ "$status" = 0 ] || { failed "$1 ends with $status"; cat "$1.log"; exit 1; }
    ! grep "the workers have sent" "$1.log" || failed "$1: the account of pushes is wrong"
}
# shellcheck disable=SC2317 # called by await
has_made() # NAME N
{
    [ -n "$(find "$1.saved" -maxdepth 1 -name 'checkpoint-??????????' 2>/dev/null | sort | sed -n "$2p")" ]
}
# Kills it once it has made a checkpoint. One that was over by then is compared all the same.
n_killed=0
kill_it() # NAME
{
    await 60 has_made "$1" 1 || { failed "$1: no checkpoint"; cat "$1.log"; exit 1; }
    if kill -KILL "$job" 2>/dev/null && [ ! -e "$1.in" ]; then n_killed=$((n_killed + 1)); fi
    end_jobs
    { wait "$job" || true; } 2>/dev/null
    job=
    await 60 no_jobs_left || failed "ranks stay"
}
expect_same() # NAME AS
{
    cmp "$1.in" "$2.in" && cmp "$1.out" "$2.out" || failed "$1: other bits than $2"
}

step=(--epochs 8 --staleness 0 --checkpoint-batches 30) one=(--epochs 8 --checkpoint-batches 60)
start_local step 2 "${step[@]}"
finish step
start_local one 1 "${one[@]}"
finish one
[ -n "$(find step.saved -name vocabulary)" ] || failed "no words in a checkpoint"
"$build/embps" checkpoint verify step.saved >verified || { failed "a checkpoint is damaged"; cat verified; }

start_local step-killed 2 "${step[@]}"
kill_it step-killed
cp text text.before
printf 'one more line\n' >>text
start_local step-killed 2 "${step[@]}"
finish_job 60
[ "$status" = 4 ] && grep -q "checkpoint-.* is of a training with" step-killed.log || { failed "another text: $status"; cat step-killed.log; }
mv text.before text
start_local step-killed 2 "${step[@]}"
finish step-killed
expect_same step-killed step

start_local one-killed 1 "${one[@]}"
kill_it one-killed
start_local one-killed 1 "${one[@]}"
finish one-killed
expect_same one-killed one

# From one process to a job of servers, and back.
start_local moved 2 "${step[@]}"
kill_it moved
start_servers moved 2 2 "${step[@]}"
finish moved
expect_same moved step
start_servers back 3 2 "${step[@]}"
kill_it back
rm -rf back.data
start_local back 2 "${step[@]}"
finish back
expect_same back step

refused() # WORDS OPTION...
{
    local words=$1 code=0
    shift
    "$train" skipgram --corpus text --out refused "$@" >err 2>&1 || code=$?
    [ $code = 2 ] && grep -q -- "$words" err || failed "\"$*\" ends with $code: $(cat err)"
}
refused "with --local needs --checkpoints DIR" --local --data d --checkpoint-batches 5
refused "needs --checkpoint-batches N" --local --data d --checkpoints c
refused "no effect without --checkpoints DIR" --local --data d --keep 2
refused "no effect without --local" --checkpoints c --checkpoint-batches 5
refused "DIR is empty" --local --data d --checkpoints "" --checkpoint-batches 5
[ ! -e d ] && [ ! -e c ] || failed "a refused training has made folders"
echo "$n_killed of 4 were killed in time"
[ $n_killed -ne 0 ] || failed "nobody was killed in time"
exit $((failures > 0))
