#!/usr/bin/env bash
# Streams of the door (export, import, watch) by a Python client made from proto/embps.proto alone
# (door_frames_client.py), with one server and with several; ends at any point.
# Skipped where Debian's python3-grpcio and protoc with its plugin are not.
# $1: build folder, $2: temporary folder.
set -euo pipefail
build=$1 dir=$2
# shellcheck source=tests/support/doors
. "$(dirname "${BASH_SOURCE[0]}")/../support/doors"
cd "$dir"
stubs_or_skip
ask() # ADDRESS CHECK
{
    PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$root/tests/cluster $python "$root/tests/cluster/door_frames_client.py" \
        stubs "$@"
}

start_door alone 127.0.0.1:0
ask "$address" streams >streams.log 2>&1 && grep -q 'streams are right' streams.log ||
    failed "streams of one server: $(cat streams.log)"
ask "$address" watched >watched.log 2>&1 && grep -q watched watched.log || failed "a watch: $(cat watched.log)"
ask "$address" cancelled >cancelled.log 2>&1 && grep -q cancelled cancelled.log ||
    failed "cancelled streams: $(cat cancelled.log)"

# The server ends while a stream is under way.
mkfifo line
ask "$address" cut <line >cut.log 2>&1 &
reader=$!
exec 4>line
await 60 grep -q reading cut.log || failed "nobody reads: $(cat cut.log)"
kill -TERM "$job"
code=0
wait "$job" || code=$?
job=
[ "$code" = 0 ] || failed "exit status $code with a stream under way: $(cat alone.log)"
echo >&4 || true # it may be gone
wait "$reader" || failed "a stream that the server's end cuts: $(cat cut.log)"

env --default-signal=INT "${bare[@]}" -n 3 "$server" --data three --memory 16M --listen 127.0.0.1:0 \
    --port-file three.port >three.log 2>&1 </dev/null &
job=$!
await 60 test -s three.port || { cat three.log; exit 1; }
ask "$(sed -n 2p three.port)" streams >streams.log 2>&1 && grep -q 'streams are right' streams.log ||
    failed "streams of three servers: $(cat streams.log)"
ask "$(sed -n 3p three.port)" watched >watched.log 2>&1 && grep -q watched watched.log ||
    failed "a watch of three servers: $(cat watched.log)"
kill -USR2 "$job"
code=0
wait "$job" || code=$?
job=
[ "$code" = 0 ] || failed "three servers: exit status $code: $(cat three.log)"
exit $((failures > 0))
