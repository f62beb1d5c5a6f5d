#!/usr/bin/env bash
# Calls fail at any moment of a server's life (EIO, once or from then on; a full disk), in its log, its checkpoints and
# RocksDB (tests/power): the server names the file and ends with a status other than 0, or a checkpoint fails by name and
# the server goes on; and the next start has each push that was answered, once. Checkpoints that are there are whole.
# $1: build folder, $2: temporary folder.
#
# EMBPS_TEST_KILLS faults; by hand 200.
set -euo pipefail
build=$1 dir=$2
# shellcheck source=tests/support/jobs
. "$(dirname "${BASH_SOURCE[0]}")/../support/jobs"
cd "$dir"
# shellcheck source=tests/power/watched
. "$root/tests/power/watched"
guest=$build/tests/guest_main
embps=$build/embps
faults=${EMBPS_TEST_KILLS:-12}
seed=${EMBPS_TEST_SEED:-$RANDOM}
echo "seed $seed"
RANDOM=$seed
records=()

begin() # VARIABLE=VALUE...
{
    rm -f port
    env "$@" "${watched[@]}" "$server" --listen 127.0.0.1:0 --port-file "$dir/port" --data "$dir/disk/data" \
        --checkpoints "$dir/disk/saved" --durability sync --memory 8M --keep 2 --log-level info >log 2>&1 </dev/null &
    job=$!
}
# shellcheck disable=SC2317 # called by await
listens_or_ends()
{
    [ -s port ] || ! kill -0 "$job" 2>/dev/null
}
# The server has ended, or is told to; its status in ended.
end_server()
{
    ended=0
    kill -TERM "$job" 2>/dev/null || true
    wait "$job" || ended=$?
    job=
}
tell() # WORDS...
{
    failed "$fault: $*"
    cat log
}

ends=0 given_up=0 unseen=0
for ((k = 0; k < faults; k++)); do
    # Half of them while it starts, restores and replays.
    code=EIO count=1 from=$((1 + RANDOM % (RANDOM % 2 ? 150 : 500)))
    [ $((RANDOM % 2)) = 0 ] || count=1000000
    [ $((RANDOM % 2)) = 0 ] || code=ENOSPC
    parts=("" /log/ /checkpoint- /rocksdb/)
    part=${parts[RANDOM % 4]}
    [ "$part" != /checkpoint- ] || from=$((1 + RANDOM % 60))
    fault=$code:$from:$count:$part
    # The last checkpoint fails too: the log has what it would have had.
    [ $k != 0 ] || fault=ENOSPC:1:1000000:.partial
    python3 "$power" begin disk power
    begin "EMBPS_POWER_FAIL=$fault"
    await 60 listens_or_ends || tell "it neither listens nor ends"
    if [ -s port ]; then
        address=$(cat port)
        records+=($((k + 1)) "record-$k")
        "$guest" push "$address" "record-$k" $((k + 1)) 400 60000 >out 2>&1 || true
        [ -s "record-$k" ] || unset "records[-1]" "records[-1]"
        for _ in 1 2; do
            made=0
            "$embps" checkpoint "$address" >out 2>&1 || made=$?
            [ $made = 0 ] || ! kill -0 "$job" 2>/dev/null || grep -q 'disk/\|checkpoint-' out || tell "a checkpoint fails without a name: $(cat out)"
            [ $made = 0 ] || given_up=$((given_up + 1))
        done
    fi
    end_server
    read -r _ failures_made <<<"$(python3 "$power" counts power)"
    [ "$failures_made" != 0 ] || unseen=$((unseen + 1))
    if [ $ended != 0 ]; then
        ends=$((ends + 1))
        [ $ended -lt 64 ] || tell "it ends with $ended"
        [ "$failures_made" != 0 ] || tell "it ends with $ended, and nothing has failed"
        [ "$(reports log | grep -c "disk/")" = 1 ] || tell "no file is named"
    fi

    # Once more, with a disk that is well.
    begin
    await 60 test -s port || { tell "the next start"; exit 1; }
    [ ${#records[@]} = 0 ] || "$guest" check "$(cat port)" "${records[@]}" >out 2>&1 || { tell "pushes are lost or doubled: $(cat out)"; exit 1; }
    end_server
    [ $ended = 0 ] || tell "a server whose disk is well ends with $ended"
    "$embps" checkpoint verify disk/saved >out 2>&1 || tell "a checkpoint is not whole: $(cat out)"
done
echo "$faults faults: $ends ended the server, $given_up checkpoints were given up, $unseen were not met"
exit $((failures > 0))
