#!/usr/bin/env bash
# Each file of the newest checkpoint, and of a data directory that was closed in order, is a byte shorter, has a bit
# flipped, or is missing: embps checkpoint verify and embps verify name it, and a server that would go on from that
# checkpoint does not start, names it, and says which one is before it. That one is still good.
# $1: build folder, $2: temporary folder.
set -euo pipefail
build=$1 dir=$2
# shellcheck source=tests/support/doors
. "$(dirname "${BASH_SOURCE[0]}")/../support/doors"
cd "$dir"
embps=$build/embps
guest=$build/tests/guest_main

start_door data 127.0.0.1:0 --checkpoints saved
"$guest" push "$address" record-1 1 3000 60000 >out 2>&1 || failed "no pushes: $(cat out)"
"$embps" checkpoint "$address" >out 2>&1 || failed "the first checkpoint: $(cat out)"
"$guest" push "$address" record-2 2 3000 60000 >out 2>&1 || failed "no pushes: $(cat out)"
stop_door # which makes the second one
cp -a saved good
cp -a data good-data

# Damages a file, which is not linked to another then.
damage() # FILE HOW
{
    local size byte
    size=$(stat -c %s "$1")
    cp "$1" "$1.copy"
    mv "$1.copy" "$1"
    case $2 in
    shorter) truncate -s $((size - 1)) "$1" ;;
    flipped)
        byte=$(od -An -tu1 -j $((size / 2)) -N 1 "$1")
        # shellcheck disable=SC2059 # an octal number
        printf "\\$(printf %03o $((byte ^ 16)))" | dd of="$1" bs=1 seek=$((size / 2)) conv=notrunc status=none ;;
    missing) rm "$1" ;;
    esac
}
names() # FILE COMMAND...: which ends with a status other than 0, and names the file
{
    local file=$1 got=0
    shift
    timeout 60 "$@" >out 2>&1 </dev/null || got=$?
    [ $got != 0 ] && [ $got -lt 64 ] || failed "$what: $1 $2 ends with $got: $(cat out)"
    grep -qF -- "$file" out || failed "$what: $1 $2 does not name it: $(cat out)"
}

n=0
mapfile -t files < <(cd saved && find checkpoint-0000000002 -type f ! -empty | sort)
for file in "${files[@]}"; do
    for how in shorter flipped missing; do
        what="$file, $how"
        rm -rf saved
        cp -a good saved
        damage "saved/$file" $how
        name=${file##*/}
        case $file-$how in
        */server-0/part-missing) name="server" ;; # and its host
        esac
        names "$name" "$embps" checkpoint verify saved
        grep -q '^checkpoint-0000000001: whole$' out || failed "$what: the one before: $(cat out)"
        names "$name" "$server" --data again --memory 16M --listen 127.0.0.1:0 --checkpoints saved
        grep -qF -- "--resume checkpoint-0000000001" out || failed "$what: the one before is not named: $(cat out)"
        [ ! -e again ] || { failed "$what: a start that is refused leaves files"; rm -rf again; }
        n=$((n + 1))
    done
done
start_door before 127.0.0.1:0 --checkpoints saved --resume checkpoint-0000000001
"$guest" check "$address" 1 record-1 >out 2>&1 || failed "the one before does not have its rows: $(cat out)"
stop_door
m=0
mapfile -t files < <(cd data && find server-0 -type f ! -empty ! -name 'LOG*' | sort)
for file in "${files[@]}"; do
    for how in shorter flipped missing; do
        what="data/$file, $how"
        rm -rf data
        cp -a good-data data
        damage "data/$file" $how
        names "server-0" "$embps" verify data
        m=$((m + 1))
    done
done
echo "$n damages of checkpoints, $m of data"
exit $((failures > 0))
