#!/usr/bin/env bash
# Clients by address of one server, and of a job of three: many at a time of which some are killed, and a server that
# is stopped for longer than they wait. Each push counts once, no descriptors are left in the servers, and once they
# have seen such a crowd, further ones cost them no more memory.
#
# EMBPS_TEST_GUESTS clients with EMBPS_TEST_PUSHES calls each, EMBPS_TEST_ROUNDS times over; by hand, a larger crowd:
# EMBPS_TEST_GUESTS=64 EMBPS_TEST_PUSHES=320 EMBPS_TEST_ROUNDS=4. EMBPS_TEST_STOPS=N: so many stops of a server.
# $1: build folder, $2: temporary folder.
set -euo pipefail
build=$1 dir=$2
# shellcheck source=tests/support/jobs
. "$(dirname "${BASH_SOURCE[0]}")/../support/jobs"
cd "$dir"
guest=$build/tests/guest_main
clients=${EMBPS_TEST_GUESTS:-24} pushes=${EMBPS_TEST_PUSHES:-300} rounds=${EMBPS_TEST_ROUNDS:-2}
# What a server may grow by in the rounds after the first, whatever their number: the sessions of killed clients, which
# stay for a lease, and what malloc leaves between. A call that leaked its message would be more.
growth_max_kib=2048
stops=${EMBPS_TEST_STOPS:-2}
seed=${EMBPS_TEST_SEED:-$RANDOM}
echo "seed $seed"
RANDOM=$seed

half_way() # FILE N: so many pushes were begun
{
    [ -s "$1" ] && [ "$(tr -d '\000' <"$1" | wc -c)" -ge "$2" ]
}
descriptors() # PID
{
    find "/proc/$1/fd" -mindepth 1 | wc -l
}
no_more_descriptors() # PID N
{
    [ "$(descriptors "$1")" -le "$2" ]
}
noticed_or_over() # PID OF A CLIENT
{
    grep -qx timeout out-stopped || ! kill -0 "$1"
}
anonymous_kib() # PID
{
    awk '/^RssAnon/ { print $2 }' "/proc/$1/status"
}

# So many at once, every third one of which is killed somewhere in the middle.
crowd() # ROUND
{
    local g ended pids=()
    for ((g = 0; g < clients; g++)); do
        "$guest" push "$address" "record-$1-$g" "$g" "$pushes" 60000 >"out-$g" 2>&1 </dev/null &
        pids+=($!)
    done
    for ((g = 0; g < clients; g += 3)); do
        await 60 half_way "record-$1-$g" $((RANDOM % pushes)) || failed "client $g does not begin"
        kill -KILL "${pids[g]}" 2>/dev/null || true
    done
    for ((g = 0; g < clients; g++)); do
        ended=0
        wait "${pids[g]}" 2>/dev/null || ended=$?
        [ $ended = 0 ] || { [ $((g % 3)) = 0 ] && [ $ended = 137 ]; } || { failed "client $g ends with $ended"; cat "out-$g"; }
    done
}

# One of the servers is stopped for longer than a client waits, at a random moment, and goes on. A client that was
# through by then is followed by one with more to do.
stop_one() # NUMBER PID...
{
    local number=$1 n pid stopped ended
    shift
    for ((n = 20000; n <= 1280000; n *= 4)); do
        pid=${*:RANDOM % $# + 1:1}
        rm -f record-stopped
        "$guest" push "$address" record-stopped "$((clients + 2 + number * 10000000 + n))" $n 300 >out-stopped 2>&1 </dev/null &
        stopped=$!
        await 60 half_way record-stopped $((RANDOM % 2000 + 1)) || failed "the client does not begin"
        kill -STOP "$pid"
        await 60 noticed_or_over "$stopped" || failed "a client hangs while its server is stopped"
        kill -CONT "$pid"
        ended=0
        wait "$stopped" || ended=$?
        ! grep -qx timeout out-stopped || break
        [ $ended = 0 ] || grep -q "^guest_main: close " out-stopped || break # stopped when all was answered
    done
    [ $ended = 0 ] || { failed "the client of a stopped server fails"; cat out-stopped; }
    grep -qx timeout out-stopped || failed "a client does not notice that its server is stopped"
    "$guest" check "$address" "$((clients + 2 + number * 10000000 + n))" record-stopped || failed "stopped: pushes are lost or doubled"
}

trial() # SERVERS ROUNDS
{
    local g n pid round records=() ended=0 end=TERM start=("$server") before=() warm=() now
    if [ "$1" != 1 ]; then
        start=(env --default-signal=INT "${bare[@]}" -n "$1" "$server")
        end=USR2
    fi
    "${start[@]}" --listen 127.0.0.1:0 --port-file "$dir/port" --data "$dir/data" --memory 32M >log 2>&1 </dev/null &
    job=$!
    await 60 test -s port || { failed "the server does not listen"; cat log; exit 1; }
    address=$(tail -n 1 port)
    "$guest" push "$address" record-first "$((clients + 1))" 20 60000 >out-first 2>&1 </dev/null || { failed "no client"; cat out-first; }
    for pid in $(ranks_of embps-server "$dir/data"); do
        before[pid]=$(descriptors "$pid")
    done
    for ((round = 0; round < $2; round++)); do
        crowd $round
        for ((g = 0; g < clients; g++)); do
            records+=("$g" "record-$round-$g")
        done
        "$guest" check "$address" "${records[@]}" || failed "$1 servers, round $round: pushes are lost or doubled"
        for pid in "${!before[@]}"; do
            await 30 no_more_descriptors "$pid" $((before[pid] + 2)) || failed "a server has $(descriptors "$pid") descriptors, and had ${before[pid]}"
            now=$(anonymous_kib "$pid")
            echo "$1 servers, round $round, server $pid: $(descriptors "$pid") descriptors of ${before[pid]}, $now KiB"
            [ $round != 0 ] || warm[pid]=$now
            # A sanitizer keeps what was freed.
            [ -n "${EMBPS_TEST_SANITIZER:-}" ] || [ $((now - warm[pid])) -le $growth_max_kib ] ||
                failed "a server has grown from ${warm[pid]} to $now KiB"
        done
    done

    for ((n = 0; n < stops; n++)); do
        stop_one "$n" "${!before[@]}"
    done
    "$guest" check "$address" "${records[@]}" || failed "$1 servers, stopped: others' pushes are lost or doubled"

    kill -"$end" "$job"
    ended=0
    wait "$job" || ended=$?
    [ $ended = 0 ] || { failed "the server ends with $ended"; cat log; }
    job=
    rm -rf data port record-*
}

trial 1 "$rounds"
clients=$((clients / 2))
trial 3 1
exit $((failures > 0))
