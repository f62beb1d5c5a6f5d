#!/usr/bin/env bash
# Clients by address of one server, and of a job of three: many at a time of which some are killed, and a server that
# is stopped for longer than they wait. Each push counts once, and no descriptors are left in the servers.
# $1: build folder, $2: temporary folder.
set -euo pipefail
build=$1 dir=$2
# shellcheck source=tests/support/jobs
. "$(dirname "${BASH_SOURCE[0]}")/../support/jobs"
cd "$dir"
guest=$build/tests/guest_main
clients=${EMBPS_TEST_GUESTS:-24} pushes=${EMBPS_TEST_PUSHES:-600}
seed=${EMBPS_TEST_SEED:-$RANDOM}
echo "seed $seed"
RANDOM=$seed

half_way() # FILE N: so many pushes were begun
{
    [ -s "$1" ] && [ "$(tr -d '\000' <"$1" | wc -c)" -ge "$2" ]
}
few_descriptors() # PID
{
    [ "$(find "/proc/$1/fd" -mindepth 1 | wc -l)" -lt 70 ]
}

# So many at once, every third one of which is killed somewhere in the middle.
crowd()
{
    local g ended pids=()
    for ((g = 0; g < clients; g++)); do
        "$guest" push "$address" "record-$g" "$g" "$pushes" 60000 >"out-$g" 2>&1 </dev/null &
        pids+=($!)
    done
    for ((g = 0; g < clients; g += 3)); do
        await 60 half_way "record-$g" $((RANDOM % pushes)) || failed "client $g does not begin"
        kill -KILL "${pids[g]}" 2>/dev/null || true
    done
    for ((g = 0; g < clients; g++)); do
        ended=0
        wait "${pids[g]}" 2>/dev/null || ended=$?
        [ $ended = 0 ] || { [ $((g % 3)) = 0 ] && [ $ended = 137 ]; } || { failed "client $g ends with $ended"; cat "out-$g"; }
    done
}

trial() # SERVERS
{
    local g pid records=() stopped ended=0 end=TERM start=("$server")
    if [ "$1" != 1 ]; then
        start=(env --default-signal=INT "${bare[@]}" -n "$1" "$server")
        end=USR1
    fi
    "${start[@]}" --listen 127.0.0.1:0 --port-file "$dir/port" --data "$dir/data" --memory 32M >log 2>&1 </dev/null &
    job=$!
    await 60 test -s port || { failed "the server does not listen"; cat log; exit 1; }
    address=$(tail -n 1 port)
    crowd
    for ((g = 0; g < clients; g++)); do
        records+=("record-$g")
    done
    "$guest" check "$address" "${records[@]}" || failed "$1 servers: pushes are lost or doubled"
    for pid in $(ranks_of embps-server "$dir/data"); do
        await 30 few_descriptors "$pid" || failed "a server has descriptors that belong to no client"
    done

    # A server that is stopped for longer than a client waits, and goes on.
    "$guest" push "$address" record-stopped "$clients" 20000 300 >out-stopped 2>&1 </dev/null &
    stopped=$!
    await 60 half_way record-stopped 1000 || failed "the client does not begin"
    kill -STOP "$pid"
    await 60 grep -q timeout out-stopped || failed "a client does not notice that its server is stopped"
    kill -CONT "$pid"
    wait "$stopped" || { failed "the client of a stopped server fails"; cat out-stopped; }
    "$guest" check "$address" "${records[@]}" record-stopped || failed "$1 servers, stopped: pushes are lost or doubled"

    kill -"$end" "$job"
    wait "$job" || ended=$?
    [ $ended = 0 ] || { failed "the server ends with $ended"; cat log; }
    job=
    rm -rf data port record-*
}

trial 1
clients=$((clients / 2))
trial 3
exit $((failures > 0))
