#!/usr/bin/env bash
# A Python client made from proto/embps.proto alone (door_client.py) against embps-server --listen.
# Skipped where Debian's python3-grpcio and protoc with its plugin are not.
# $1: build folder, $2: temporary folder.
set -euo pipefail
build=$1 dir=$2
# shellcheck source=tests/support/jobs
. "$(dirname "${BASH_SOURCE[0]}")/../support/jobs"
cd "$dir"
python=/usr/bin/python3
plugin=$(command -v grpc_python_plugin) || plugin=
if ! command -v protoc >/dev/null || [ -z "$plugin" ] || ! $python -c 'import grpc, google.protobuf' 2>/dev/null; then
    echo "skipped: protobuf-compiler, protobuf-compiler-grpc, python3-protobuf or python3-grpcio is not there"
    exit 77
fi
mkdir stubs
protoc "-I$root" --python_out=stubs --grpc_python_out=stubs "--plugin=protoc-gen-grpc_python=$plugin" \
    proto/embps.proto
ask() # ADDRESS CHECK...
{
    $python "$root/tests/cluster/door_client.py" stubs "$@"
}

"$server" --data alone --memory 16M --listen 127.0.0.1:0 --port-file alone.port >alone.log 2>&1 &
job=$!
await 30 test -s alone.port || { cat alone.log; exit 1; }
address=$(cat alone.port)
ask "$address" rows | grep -q 'rows on 1 servers are right' || failed "rows on one server"
ask "$address" malformed 3000 >malformed.log 2>&1 || failed "malformed messages: $(cat malformed.log)"

# A guest that is there when the server ends: the server goes at once, and the guest is told.
mkfifo line
ask "$address" hold <line >hold.log 2>&1 &
guest=$!
exec 4>line
await 30 grep -q held hold.log || failed "no guest: $(cat hold.log)"
kill -TERM "$job"
code=0
wait "$job" || code=$?
job=
[ "$code" = 0 ] || failed "with a guest: exit status $code: $(cat alone.log)"
echo >&4
wait "$guest" || failed "the guest: $(cat hold.log)"

[ "$failures" = 0 ]
