#!/usr/bin/env bash
# The folder of one server of two cannot be written, from its start on or later; and the disk of an export gets full.
# Each is said by name, with the server; what came before stays good; servers and a training go on where only a
# checkpoint failed, and end with a status other than 0 otherwise. Root may write everywhere, so the calls themselves
# fail (tests/power). Needs a small file system of its own; skipped where none can be mounted.
# $1: build folder, $2: temporary folder.
set -euo pipefail
# shellcheck source=tests/support/small_disk
. "$(dirname "${BASH_SOURCE[0]}")/../support/small_disk"
build=$1 dir=$2
# shellcheck source=tests/support/jobs
. "$(dirname "${BASH_SOURCE[0]}")/../support/jobs"
cd "$dir"
# shellcheck source=tests/power/watched
. "$root/tests/power/watched"
guest=$build/tests/guest_main
embps=$build/embps

begin() # SERVERS VARIABLE=VALUE...
{
    local n=$1
    shift
    rm -f port
    python3 "$power" begin disk power
    env --default-signal=INT "${bare[@]}" -n "$n" env "$@" "${watched[@]}" "$server" --listen 127.0.0.1:0 \
        --port-file "$dir/port" --data "$dir/disk/data" --checkpoints "$dir/disk/saved" --memory 16M \
        --log-level info >log 2>&1 </dev/null &
    job=$!
}
listens()
{
    await 60 test -s port || { failed "the servers do not listen"; cat log; exit 1; }
    address=$(head -n 1 port)
}
# Told to, they end; their status in ended.
end_servers()
{
    ended=0
    kill -USR2 "$job" 2>/dev/null || true
    wait "$job" || ended=$?
    job=
}
says() # CODE WORDS COMMAND...
{
    local code=$1 words=$2 got=0
    shift 2
    "$@" >out 2>&1 || got=$?
    [ $got = "$code" ] || failed "$*: ends with $got, not $code: $(cat out)"
    grep -q -- "$words" out || failed "$*: no \"$words\": $(cat out)"
}

# An export onto a disk that gets full: nothing of it stays, and the servers go on.
begin 2
listens
"$guest" push "$address" record-1 1 20000 60000 >out || failed "no pushes: $(cat out)"
mkdir small
mount -t tmpfs -o size=256K embps-test small
for format in rows text; do
    says 41 "cannot write small/table.*No space left" "$embps" export "$address" pushes --format $format --output small/table
    [ -z "$(ls -A small)" ] || failed "an export leaves $(ls -A small)"
done
"$embps" export "$address" pushes --output whole >out 2>&1 || failed "an export after one that failed: $(cat out)"
umount small
says 0 checkpoint-0000000001 "$embps" checkpoint "$address"

# Servers 0 and 1, of which one cannot write its part of a checkpoint: the one before stays good, and they go on.
end_servers
[ $ended = 0 ] || { failed "the servers end with $ended"; cat log; }
for s in 0 1; do
    begin 2 "EMBPS_POWER_FAIL=EROFS:1:1000000:.partial/server-$s"
    listens
    says 40 "disk/saved/checkpoint-[0-9]*.partial/server-$s.*Read-only file system" "$embps" checkpoint "$address"
    kill -USR1 "$job"
    await 60 grep -q "warn.*asked for by a signal) was not made: .*\.partial/server-$s.*Read-only" log ||
        failed "a signal: $(tail -n 5 log)"
    "$guest" push "$address" "record-$((s + 2))" $((s + 2)) 500 60000 >out || failed "the servers do not go on: $(cat out)"
    says 0 "checkpoint-0000000002: whole" "$embps" checkpoint verify disk/saved
    [ -z "$(find disk/saved -name '*.partial')" ] || failed "leftovers stay"
    end_servers # the last checkpoint fails as well
    [ $ended != 0 ] || failed "without their last checkpoint they end with 0"
    grep -q "error: .*\.partial/server-$s.*Read-only" log || { failed "the last checkpoint"; cat log; }
    mv disk/data "data-$s" # which alone has these rows: another run leaves it alone
done

# The data folder of one of them cannot be written: the start is refused, and leaves nothing.
for s in 0 1; do
    begin 2 "EMBPS_POWER_FAIL=EROFS:1:1000000:/data/server-$s"
    ended=0
    wait "$job" || ended=$?
    job=
    [ $ended != 0 ] || failed "data of server $s: ends with 0"
    expect_one_report "data of server $s" log "disk/data/server-$s" "Read-only file system"
    [ ! -e "disk/data/server-$((1 - s))" ] || failed "the other server leaves files"
    rm -rf disk/data
done

# A training. A checkpoint that one server cannot write is left out; data that one cannot write ends it.
make_text text 6000 20000
train_on() # PART MEMORY OPTION...: calls on PART fail
{
    local part=$1 memory=$2
    shift 2
    rm -rf out out.* disk/*
    python3 "$power" begin disk power
    status=0
    timeout 300 "${bare[@]}" -n 2 env "EMBPS_POWER_FAIL=$part" "${watched[@]}" "$server" --data "$dir/disk/data" \
        --checkpoints "$dir/disk/saved" --memory "$memory" --log-level info : -n 2 "$train" skipgram --corpus "$dir/text" \
        --out "$dir/out" --min-count 1 --sample 0 --quiet "$@" >log 2>&1 </dev/null || status=$?
}
train_on "EROFS:1:1000000:.partial/server-1" 64M --dim 16 --epochs 1 --batch-words 2000 --checkpoint-batches 5
[ $status = 0 ] || { failed "a training whose checkpoints fail ends with $status"; cat log; }
grep -q "warn: .*the training goes on: server 1: .*\.partial/server-1: Read-only file system" log || { failed "a training is not told"; cat log; }
[ -s out ] || failed "a training whose checkpoints fail writes no vectors"
train_on "EROFS:200:1000000:/data/server-1/rocksdb" 8M --dim 100 --epochs 1000
[ $status != 0 ] || failed "a training without its data ends with 0"
expect_one_report "a training without its data" log "disk/data/server-1" "Read-only file system"
expect_no_output "a training without its data" out
expect_no_jobs "a training without its data"
exit $((failures > 0))
