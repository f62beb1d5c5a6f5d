#!/usr/bin/env bash
# The disk of the checkpoints gets full in the middle of one, and is not that of the data: the checkpoint
# fails and names the disk, the one before it stays good, the server goes on, and the next one, on a disk
# with room again, is whole. Needs a small file system of its own: root, or a user that may have
# namespaces; skipped otherwise.
# $1: build folder, $2: temporary folder.
set -euo pipefail
# shellcheck source=tests/support/small_disk
. "$(dirname "${BASH_SOURCE[0]}")/../support/small_disk"
build=$1 dir=$2
# shellcheck source=tests/support/doors
. "$(dirname "${BASH_SOURCE[0]}")/../support/doors"
cd "$dir"
embps=$build/embps
mkdir disk
mount -t tmpfs -o size=4M embps-test disk

start_door data 127.0.0.1:0 --checkpoints "$dir/disk/saved"
"$build/tests/guest_main" push "$address" record 3 200 60000 || failed "no rows to keep"
"$embps" checkpoint "$address" >out 2>&1 || failed "the first checkpoint: $(cat out)"

dd if=/dev/zero of=disk/filler bs=64K 2>/dev/null || true
dd if=/dev/zero of=disk/filler.rest bs=4K 2>/dev/null || true
code=0
"$embps" checkpoint "$address" >out 2>&1 || code=$?
[ $code = 41 ] || failed "a checkpoint on a full disk ends with $code: $(cat out)"
grep -q 'disk/saved.*No space left' out || failed "the disk is not named: $(cat out)"
kill -USR1 "$job"
await 60 grep -q 'warn.*checkpoint-0000000002 (asked for by a signal) was not made: .*disk/saved.*No space left' data.log ||
    failed "a signal on a full disk: $(tail -n 3 data.log)"
"$embps" checkpoint verify disk/saved >out 2>&1 || failed "the one before: $(cat out)"
grep -q '^checkpoint-0000000001: whole$' out || failed "verify says: $(cat out)"
"$build/tests/guest_main" push "$address" record 4 200 60000 || failed "the server does not go on"

rm disk/filler disk/filler.rest
"$embps" checkpoint "$address" >out 2>&1 || failed "with room again: $(cat out)"
[ "$(cat out)" = checkpoint-0000000002 ] || failed "its name is $(cat out)"
"$embps" checkpoint verify disk/saved >out 2>&1 || failed "the last one: $(cat out)"
[ "$(grep -c whole out)" = 2 ] || failed "verify says: $(cat out)"
[ -z "$(find disk/saved -name '*.partial')" ] || failed "leftovers stay"
stop_door
exit $((failures > 0))
