#!/usr/bin/env bash
# The worker that has checkpoints made is killed, and then the next one: the first that is still there has them made
# from then on, whole ones, with the words, how far all are and how many were lost; in step and not. The same command
# line goes on from the last of them, and says that what the lost had not trained stays so.
# $1: build folder, $2: temporary folder.
set -euo pipefail
build=$1 dir=$2
# shellcheck source=tests/support/losses
. "$(dirname "${BASH_SOURCE[0]}")/../support/losses"
cd "$dir"
make_text text 3000 400
epochs=60 words=$((36000 * 60))
run_options=(--server-arg "--checkpoints=$dir/saved")
train_options=(--checkpoint-batches 40)

made() # the number of the last checkpoint that is there
{
    local last
    last=$(find saved -maxdepth 1 -name 'checkpoint-??????????' 2>/dev/null | sed 's/.*checkpoint-0*//' | sort -n | tail -n 1)
    echo "${last:-0}"
}
# shellcheck disable=SC2317 # called by await
has_made() # N
{
    [ "$(made)" -ge "$1" ]
}
newest() { printf 'saved/checkpoint-%010d' "$(made)"; }
# shellcheck disable=SC2317 # called by await
told_lost() # N
{
    [ "$(grep -c "is lost: its process" log)" -ge "$1" ]
}
# shellcheck disable=SC2317 # called by await
knows_lost() # N: so says the newest checkpoint
{
    grep -qs "\"lost\": $1," "$(newest)/state"
}

for staleness in 0 async; do
    name="staleness $staleness"
    for ((try = 0; try < 5; try++)); do
        rm -rf saved
        start "$epochs" "$staleness" continue
        gone=0
        while [ $gone -lt 2 ]; do
            await 60 has_made $(($(made) + 1)) || { [ -e out ] || failed "$name: no checkpoint, $gone are lost"; break; }
            ! pid=$(worker_pid $gone) || kill -KILL "$pid" 2>/dev/null || break
            gone=$((gone + 1))
            await 30 told_lost $gone || break
            await 60 knows_lost $gone || { [ -e out ] || failed "$name: no checkpoint without worker $((gone - 1))"; break; }
        done
        finish_job 90
        [ $gone != 2 ] || ! knows_lost 2 || break
        [ $failures = 0 ] || { cat log; exit 1; }
        echo "$name: too late"
        epochs=$((epochs * 2)) words=$((words * 2))
    done
    [ $status = 21 ] && [ -s out ] && knows_lost 2 || { failed "$name: ends with $status"; cat log; exit 1; }
    [ "$(wc -l <"$(newest)/vocabulary")" = 400 ] || failed "$name: a checkpoint of another worker has not all words"
    "$build/embps" checkpoint verify saved >verified || { failed "$name: damaged"; cat verified; }
    last=$(made)
    start "$epochs" "$staleness" continue
    finish_job 90
    [ $status = 0 ] && [ -s out ] || { failed "$name: started again it ends with $status"; cat log; }
    expect_line "$name, started again" "2 workers had been lost before checkpoint checkpoint-0*$last: what these had not"
    echo "ok: $name, from checkpoint $last"
done
exit $((failures > 0))
