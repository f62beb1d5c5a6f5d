#!/usr/bin/env bash
# The log of --durability push meets a full disk, damage, another number of servers, a named checkpoint and levels that
# do not fit: each is said by name, nothing that was acknowledged is lost, and nothing wrong is read.
# $1: build folder, $2: temporary folder.
set -euo pipefail
# shellcheck source=tests/support/small_disk
. "$(dirname "${BASH_SOURCE[0]}")/../support/small_disk"
build=$1 dir=$2
# shellcheck source=tests/support/jobs
. "$(dirname "${BASH_SOURCE[0]}")/../support/jobs"
cd "$dir"
guest=$build/tests/guest_main
mkdir small
mount -t tmpfs -o size=1M embps-test small

level=push
begin() # SAVED OPTION...
{
    local saved=$1
    shift
    rm -rf port data
    "$server" --listen 127.0.0.1:0 --port-file "$dir/port" --data "$dir/data" --checkpoints "$saved" \
        --durability "$level" --memory 16M --log-level info "$@" >log 2>&1 </dev/null &
    job=$!
    await 60 test -s port || { failed "the server does not listen"; cat log; exit 1; }
}
killed()
{
    kill -KILL "$job"
    wait "$job" 2>/dev/null || true
    job=
}
counts() # NAME RECORD
{
    "$guest" check "$(cat port)" 1 "$2" >out || { failed "$1: pushes are lost or doubled"; cat out; }
}
says() # STATUS WORDS COMMAND...
{
    local wanted=$1 words=$2 got=0
    shift 2
    timeout 60 "$@" >says.log 2>&1 </dev/null || got=$?
    [ $got = "$wanted" ] || failed "$words: ends with $got, not $wanted"
    grep -q -- "$words" says.log || { failed "no \"$words\""; cat says.log; }
}
start=("$server" --listen 127.0.0.1:0 --data "$dir/other" --memory 16M)

# A full disk.
begin "$dir/small/saved"
code=0
"$guest" push "$(cat port)" record-full 1 100000 60000 >out 2>&1 || code=$?
[ $code = 1 ] || { failed "a client is not told of a full disk ($code)"; cat out; }
grep -q "small/saved/log/server-0/segment-0000000001" out || { failed "a client is not told which file"; cat out; }
code=0
wait "$job" || code=$?
job=
[ $code = 41 ] || failed "a server with a full disk ends with $code"
grep -q "error: .*segment-0000000001.*No space left" log || { failed "the full disk is not logged"; cat log; }
cp -a small/saved large
begin "$dir/large"
counts "a full disk" record-full

# Damage: in the middle, and a segment that is missing.
killed
cp -a large damaged
printf '\377' | dd of=damaged/log/server-0/segment-0000000001 bs=1 seek=5000 conv=notrunc status=none
says 42 "damaged/log/server-0/segment-0000000001 is damaged at offset" "${start[@]}" --checkpoints "$dir/damaged"
rm damaged/log/server-0/segment-0000000001
says 3 "damaged/log/server-0/segment-0000000001" "${start[@]}" --checkpoints "$dir/damaged"
[ ! -e other ] || failed "a start that was refused left files"

# Another number of servers, until a checkpoint has it all.
bare_two=("${bare[@]}" -n 2 "$server" --listen 127.0.0.1:0 --memory 16M --checkpoints "$dir/large")
says 4 "start 1 once more" "${bare_two[@]}" --data "$dir/other"
begin "$dir/large" --checkpoint-every 0.1
counts "after refusals" record-full
"$guest" push "$(cat port)" record-more 1 3000 60000 >out 2>&1 || { failed "no pushes"; cat out; }
await 60 grep -q "is made" log || failed "no checkpoint"
killed
begin "$dir/large"
"$guest" check "$(cat port)" 1 record-full 1 record-more >out || { failed "a checkpoint and its log"; cat out; }
kill -TERM "$job"
wait "$job" || failed "the server does not end in order"
job=
grep -q "log: [0-9]* records, [0-9]* bytes in [0-9]* writes; [0-9]* answers waited" log || { failed "no summary"; cat log; }
[ "$(find large/log/server-0 -name 'segment-*' -size +1k)" = "" ] || failed "logs stay that a checkpoint has"
"${bare_two[@]}" --data "$dir/data" --port-file "$dir/port2" --durability push --log-level info >log 2>&1 </dev/null &
job=$!
await 60 test -s port2 || { failed "two servers do not go on"; cat log; exit 1; }
"$guest" check "$(head -n 1 port2)" 1 record-full 1 record-more >out || { failed "two servers"; cat out; }
"$guest" push "$(head -n 1 port2)" record-two 1 100 60000 >out 2>&1 || { failed "no pushes to two"; cat out; }
for pid in "$job" $(ranks_of embps-server "$dir/data"); do
    kill -KILL "$pid" 2>/dev/null || true
done
wait "$job" 2>/dev/null || true
job=
await 30 no_jobs_left || failed "a server stays"

# A checkpoint that is named is meant alone; from then on the log follows that one.
newest=$(cd large && echo checkpoint-* | xargs -n 1 | tail -n 1)
says 4 "start 2 once more" "${start[@]}" --checkpoints "$dir/large"
begin "$dir/large" --resume "$newest"
grep -q "warn: .*left out, since --resume" log || { failed "it is not said that a log is left out"; cat log; }
killed

# Levels.
says 2 "give --checkpoints" "${start[@]}" --durability sync
says 2 "makes no checkpoints" "${start[@]}" --durability none --checkpoints "$dir/new"
says 2 "another --durability" "${bare[@]}" -n 1 "${start[@]}" --checkpoints "$dir/new" --durability push : \
    -n 1 "${start[@]}" --checkpoints "$dir/new"

# The disk is waited for; the rest is the same.
level=sync
begin "$dir/synced"
"$guest" push "$(cat port)" record-sync 1 200 60000 >out 2>&1 || { failed "no pushes with sync"; cat out; }
killed
level=checkpoint
begin "$dir/synced" # which replays too, and logs nothing itself
counts "sync" record-sync
grep -q "replayed 200 pushes" log || { failed "no replay is logged"; cat log; }
killed
exit $((failures > 0))
