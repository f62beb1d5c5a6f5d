#!/usr/bin/env bash
# TLS of embps-server --listen against real clients: who is let in, who is not, certificates that are
# replaced, and nothing of a key in a log. Skipped where openssl or what test_door_python needs is not.
# $1: build folder, $2: temporary folder.
set -euo pipefail
build=$1 dir=$2
# shellcheck source=tests/support/jobs
. "$(dirname "${BASH_SOURCE[0]}")/../support/jobs"
cd "$dir"
python=/usr/bin/python3
plugin=$(command -v grpc_python_plugin) || plugin=
if ! command -v protoc openssl >/dev/null || [ -z "$plugin" ] || ! $python -c 'import grpc, google.protobuf' 2>/dev/null; then
    echo "skipped: openssl, protobuf-compiler, protobuf-compiler-grpc, python3-protobuf or python3-grpcio is not there"
    exit 77
fi
mkdir stubs
protoc "-I$root" --python_out=stubs --grpc_python_out=stubs "--plugin=protoc-gen-grpc_python=$plugin" \
    proto/embps.proto

authority() # NAME
{
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 30 -subj "/CN=$1" \
        -keyout "$1.key" -out "$1.pem" 2>/dev/null
}

# A certificate for 127.0.0.1 and the key that NAME has; a negative number of days: it has expired.
issue() # NAME AUTHORITY DAYS
{
    openssl x509 -req -in "$1.csr" -CA "$2.pem" -CAkey "$2.key" -CAcreateserial -days "$3" \
        -extfile <(echo "subjectAltName=IP:127.0.0.1") -out "$1.pem" 2>/dev/null
}

# The same with a new key.
certificate() # NAME AUTHORITY DAYS
{
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj "/CN=$1" \
        -keyout "$1.key" -out "$1.csr" 2>/dev/null
    issue "$@"
}

authority ours
authority theirs
certificate server ours 30
certificate guest ours 30
certificate stranger theirs 30
certificate expired ours -1
certificate old_server ours -1

start() # NAME LISTEN OPTION...
{
    local name=$1 listen=$2
    shift 2
    "$server" --data "$name" --memory 16M --listen "$listen" --port-file "$name.port" --log-level debug \
        "$@" >"$name.log" 2>&1 </dev/null &
    job=$!
    await 30 test -s "$name.port" || { cat "$name.log"; exit 1; }
    address=$(cat "$name.port")
}

stop()
{
    local code=0
    kill -TERM "$job"
    wait "$job" || code=$?
    job=
    [ "$code" = 0 ] || failed "exit status $code"
}

expect() # WHAT CASE CA [CERT KEY [NAME]]
{
    local what=$1 case=$2 got
    shift 2
    got=$($python "$root/tests/cluster/door_tls_client.py" stubs "$address" "$@" 2>/dev/null) || got="a traceback"
    [ "$got" = "$what" ] || failed "$case: $got instead of $what"
}

start both 127.0.0.1:0 --tls-cert server.pem --tls-key server.key --tls-client-ca ours.pem
expect hello "a guest" ours.pem guest.pem guest.key
expect UNAVAILABLE "no certificate" ours.pem
expect UNAVAILABLE "another authority's guest" ours.pem stranger.pem stranger.key
expect UNAVAILABLE "an expired guest" ours.pem expired.pem expired.key
expect UNAVAILABLE "a server that the guest does not trust" theirs.pem guest.pem guest.key
expect UNAVAILABLE "a server of another name" ours.pem guest.pem guest.key elsewhere.example
expect UNAVAILABLE "plain text" -
for version in -tls1 -tls1_1; do
    openssl s_client "$version" -cipher 'ALL:@SECLEVEL=0' -connect "$address" -CAfile ours.pem -cert guest.pem \
        -key guest.key </dev/null >s_client.log 2>&1 && failed "openssl s_client $version was let in"
done
openssl s_client -tls1_2 -connect "$address" -CAfile ours.pem -cert guest.pem -key guest.key -alpn h2 \
    </dev/null >s_client.log 2>&1 || failed "openssl s_client -tls1_2 was not let in: $(cat s_client.log)"

# The files are replaced: who comes from now on meets the new ones. Half of a change changes nothing.
certificate renewed theirs 30
mv server.key away
expect hello "while a file is away" ours.pem guest.pem guest.key
cp renewed.key server.key
cp renewed.pem server.pem
cp theirs.pem ours-now.pem
expect UNAVAILABLE "the old certificate" ours.pem guest.pem guest.key
expect hello "the new certificate" theirs.pem guest.pem guest.key
mv server.key elsewhere
issue renewed ours 30
cp renewed.pem server.pem
expect hello "a newer certificate while its key is away" theirs.pem guest.pem guest.key
mv elsewhere server.key
expect hello "the same key is back" ours.pem guest.pem guest.key
stop
for key in server.key away guest.key; do
    if grep -qF "$(sed -n 2p "$key")" both.log; then
        failed "a key is in the log"
    fi
done

# Encrypted only: on loopback anybody is let in who trusts the server.
certificate server ours 30
start one 127.0.0.1:0 --tls-cert server.pem --tls-key server.key
expect hello "without a certificate" ours.pem
expect UNAVAILABLE "plain text" -
stop
start late 127.0.0.1:0 --tls-cert old_server.pem --tls-key old_server.key
expect UNAVAILABLE "a server whose certificate has expired" ours.pem
stop

refused() # CODE WORDS OPTION...
{
    local want=$1 words=$2 code=0
    shift 2
    "$server" --data refused "$@" >refused.log 2>&1 || code=$?
    [ "$code" = "$want" ] || failed "$*: exit status $code"
    grep -qF -- "$words" refused.log || failed "$*: $(cat refused.log)"
    [ ! -e refused ] || failed "$*: left files"
}
refused 2 "the key is not the certificate's" --listen 127.0.0.1:0 --tls-cert server.pem --tls-key guest.key
refused 3 "nowhere.pem" --listen 127.0.0.1:0 --tls-cert nowhere.pem --tls-key guest.key
refused 2 "--tls-client-ca" --listen 0.0.0.0:0 --tls-cert server.pem --tls-key server.key
start open 0.0.0.0:0 --tls-cert server.pem --tls-key server.key --tls-client-ca ours.pem
if grep -q warn open.log; then
    failed "a warning with certificates of both sides: $(cat open.log)"
fi
stop

[ "$failures" = 0 ]
