#!/usr/bin/env bash
# A Python client made from proto/embps.proto alone (door_client.py) against embps-server --listen, and one that
# asks what services there are and how the server is (door_services.py).
# Skipped where Debian's python3-grpcio and protoc with its plugin are not.
# $1: build folder, $2: temporary folder.
set -euo pipefail
build=$1 dir=$2
# shellcheck source=tests/support/doors
. "$(dirname "${BASH_SOURCE[0]}")/../support/doors"
cd "$dir"
stubs_or_skip
known=$build/generated/known # the standard services
make_stubs "$known" grpc/health/v1/health.proto grpc/reflection/v1/reflection.proto grpc/reflection/v1alpha/reflection.proto
ask() # ADDRESS CHECK...
{
    $python "$root/tests/cluster/door_client.py" stubs "$@"
}

start_door alone 127.0.0.1:0
ask "$address" rows >rows.log 2>&1 && grep -q 'rows on 1 servers are right' rows.log || failed "rows on one server: $(cat rows.log)"
$python "$root/tests/cluster/door_services.py" stubs "$address" reflection >reflection.log 2>&1 || failed "reflection: $(cat reflection.log)"
ask "$address" malformed 3000 >malformed.log 2>&1 || failed "malformed messages: $(cat malformed.log)"

# A guest that is there when the servers end: they go at once, with this exit status, and the guest is told.
mkfifo line
end_with_guest() # NAME ADDRESS SIGNAL CODE
{
    ask "$2" hold <line >"hold-$1.log" 2>&1 &
    local guest=$! code=0
    exec 4>line
    await 60 grep -q held "hold-$1.log" || failed "$1: no guest: $(cat "hold-$1.log")"
    kill "-$3" "$job"
    wait "$job" || code=$?
    job=
    [ "$code" = "$4" ] || failed "$1: with a guest: exit status $code: $(cat "$1.log")"
    echo >&4 || true # it may be gone
    wait "$guest" || failed "$1: the guest: $(cat "hold-$1.log")"
}
$python "$root/tests/cluster/door_services.py" stubs "$address" watch >watch.log 2>&1 &
watch=$!
await 60 grep -q watching watch.log || failed "nobody watches: $(cat watch.log)"
end_with_guest alone "$address" TERM 0
wait "$watch" || failed "who watches is not told of the end: $(cat watch.log)"

# Three servers of a job without workers: a client is told one address and learns the others.
env --default-signal=INT "${bare[@]}" -n 3 "$server" --data three --memory 16M --listen 127.0.0.1:0 \
    --port-file three.port >three.log 2>&1 </dev/null &
job=$!
await 60 test -s three.port || { cat three.log; exit 1; }
[ "$(sort -u three.port | wc -l)" = 3 ] || failed "three addresses: $(cat three.port)"
ask "$(sed -n 2p three.port)" rows >rows.log 2>&1 && grep -q 'rows on 3 servers are right' rows.log || failed "rows on three servers: $(cat rows.log)"
kill -USR2 "$job"
code=0
wait "$job" || code=$?
job=
[ "$code" = 0 ] || failed "three servers: exit status $code: $(cat three.log)"
[ "$(grep -l '"state": "clean"' three/server-?/identity.json | wc -l)" = 3 ] || failed "three servers: not closed clean"
[ ! -e three.port ] || failed "three servers left their port file"

# Guests of a job that trains. It ends when its workers have left, as they did, whoever else is there.
make_text text 3000 500
"${bare[@]}" -n 2 "$server" --data job --memory 16M --listen 127.0.0.1:0 --port-file job.port : \
    -n 1 "$train" skipgram --corpus text --out vectors --epochs 1000000 --quiet >job.log 2>&1 </dev/null &
job=$!
await 60 test -s job.port || { cat job.log; exit 1; }
ask "$(sed -n 1p job.port)" rows >rows.log 2>&1 && grep -q 'rows on 2 servers are right' rows.log || failed "guests of a job: $(cat rows.log)"
end_with_guest job "$(sed -n 2p job.port)" USR2 7

[ "$failures" = 0 ]
