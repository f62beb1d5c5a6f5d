#!/usr/bin/env bash
# embps-server --listen: alone without mpirun, its port file, a port in use, its end by signals.
# $1: build folder, $2: temporary folder.
set -euo pipefail
build=$1 dir=$2
# shellcheck source=tests/support/jobs
. "$(dirname "${BASH_SOURCE[0]}")/../support/jobs"
cd "$dir"

start() # NAME OPTION...
{
    local name=$1
    shift
    env --default-signal=INT "$server" --data "$name" --memory 16M --port-file "$name.port" "$@" \
        >"$name.log" 2>&1 </dev/null &
    job=$!
    await 60 test -s "$name.port" || { cat "$name.log"; exit 1; }
    port=$(sed 's/.*://' "$name.port")
}

stop() # SIGNAL NAME
{
    local code=0
    kill "-$1" "$job"
    wait "$job" || code=$?
    job=
    [ "$code" = 0 ] || failed "$2 after SIG$1: exit status $code: $(cat "$2.log")"
    grep -q '"state": "clean"' "$2/server-0/identity.json" || failed "$2 was not closed clean"
    [ ! -e "$2.port" ] || failed "$2 left its port file"
}

# Each signal, and IPv6 where there is some.
for signal in TERM INT HUP USR2; do
    start "by$signal" --listen 127.0.0.1:0
    stop "$signal" "by$signal"
done
if grep -q ' lo$' /proc/net/if_inet6 2>/dev/null; then
    start six --listen '[::1]:0'
    grep -qx '\[::1\]:[0-9]*' six.port || failed "port file of IPv6: $(cat six.port)"
    stop TERM six
fi

# Under nohup a hangup ends nothing.
trap '' HUP
start nohup --listen 127.0.0.1:0
trap - HUP
kill -HUP "$job"
"$build/embps" status "127.0.0.1:$port" >/dev/null || failed "a hangup under nohup: $(cat nohup.log)"
stop TERM nohup

# A port in use is an error at once, and the data directory is left alone.
start first --listen 127.0.0.1:0
code=0
"$server" --data second --listen "127.0.0.1:$port" --port-file second.port >second.log 2>&1 || code=$?
[ "$code" = 44 ] || failed "a port in use: exit status $code"
grep -q "127.0.0.1:$port is in use" second.log || failed "a port in use: $(cat second.log)"
[ "$(wc -l <second.log)" = 1 ] || failed "more than one line: $(cat second.log)"
[ ! -e second ] && [ ! -e second.port ] || failed "a server that could not listen left files"

# Foreign bytes leave it alive.
for bytes in 'GET / HTTP/1.0\r\n\r\n' 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\377\377\377\377\377' '\0\0\0' ''; do
    # shellcheck disable=SC2059
    { printf "$bytes" >&3; head -c 100 <&3 >/dev/null || true; } 3<>"/dev/tcp/127.0.0.1/$port" &
    sender=$!
    await 1 false || true
    kill "$sender" 2>/dev/null || true
    wait "$sender" 2>/dev/null || true
done
kill -0 "$job" || failed "foreign bytes ended the server"
stop TERM first

code=0
"$server" --data open --listen 0.0.0.0:0 >open.log 2>&1 || code=$?
[ "$code" = 2 ] || failed "all addresses in plain text: exit status $code"
grep -q -- --plain-text open.log || failed "all addresses in plain text: $(cat open.log)"

# A job that does not start, since a worker cannot, leaves none either.
code=0
"${bare[@]}" -n 1 "$server" --data job --listen 127.0.0.1:0 --port-file job.port : -n 1 "$train" skipgram \
    --corpus absent --out vectors --quiet >job.log 2>&1 || code=$?
[ "$code" != 0 ] && grep -q "absent cannot be read" job.log || failed "a job without text: $code, $(cat job.log)"
[ ! -e job.port ] || failed "a job that did not start left its port file"

[ "$failures" = 0 ]
