#!/usr/bin/env bash
# --durability push: clients push numbered deltas and note what was answered; all servers are killed (-9) at random
# moments, and with them one client or none, and start again. Each push that was answered counts once, each other one
# once at the most. One client stays all the time and goes on by itself. A server alone, and a job of two.
#
# EMBPS_TEST_KILLS kills of a server alone, and a quarter as many of the job; by hand 100.
# $1: build folder, $2: temporary folder.
set -euo pipefail
build=$1 dir=$2
# shellcheck source=tests/support/jobs
. "$(dirname "${BASH_SOURCE[0]}")/../support/jobs"
cd "$dir"
guest=$build/tests/guest_main
kills=${EMBPS_TEST_KILLS:-4}
[ -z "${EMBPS_TEST_SANITIZER:-}" ] || kills=${EMBPS_TEST_KILLS:-2} # where all is slow
pushes=$((kills * 20000 + 20000)) # of the client that stays: more than it gets to
seed=${EMBPS_TEST_SEED:-$RANDOM}
echo "seed $seed"
RANDOM=$seed

# Clients and the holder of ports, too.
# shellcheck disable=SC2317 # called by the trap
end_all()
{
    end_jobs
    local pid
    for pid in $(jobs -p); do
        kill -KILL "$pid" 2>/dev/null || true
    done
}
trap end_all EXIT

begin() # SERVERS: starts them, and waits for nothing
{
    local every=() start=("$server")
    [ "$1" = 1 ] || start=(env --default-signal=INT "${bare[@]}" -n "$1" "$server")
    rm -f port
    [ $((RANDOM % 3)) != 0 ] || every=(--checkpoint-every 0.1) # now and then a kill comes in the middle of one
    "${start[@]}" --listen "127.0.0.1:$ports" --port-file "$dir/port" --data "$dir/data" --checkpoints "$dir/saved" \
        --durability push --memory 16M --log-level info "${every[@]}" >>log 2>&1 </dev/null &
    job=$!
}
kill_all()
{
    local pids
    pids=$(ranks_of embps-server "$dir/data") || true
    # shellcheck disable=SC2086 # a list
    kill -KILL "$job" $pids 2>/dev/null || true
    wait "$job" 2>/dev/null || true
    job=
    await 30 no_jobs_left || failed "a server outlives kill -9"
}
answered() # RECORD
{
    if [ -e "$1" ]; then tr -dc '\002' <"$1" | wc -c; else echo 0; fi
}
has_answered() # N RECORD
{
    [ -s "$2" ] && [ "$(answered "$2")" -ge "$1" ]
}
# A random moment, up to a quarter of a second.
some_time()
{
    sleep "0.$(printf %03d $((RANDOM % 250)))"
}

trial() # SERVERS KILLS
{
    local k n stays holder killed passing=() records=(1 record-stays) ended=0 before
    "$guest" hold "$1" held >out-hold 2>&1 </dev/null &
    holder=$!
    await 30 test -s held || { failed "no ports: $(cat out-hold)"; exit 1; }
    ports=$(cat held)
    : >log
    begin "$1"
    await 60 test -s port || { failed "the servers do not listen"; cat log; exit 1; }
    "$guest" push "127.0.0.1:$ports" record-stays 1 "$pushes" 120000 >out-stays 2>&1 </dev/null &
    stays=$!
    for ((k = 0; k < $2; k++)); do
        "$guest" push "127.0.0.1:$ports" "record-$k" $((k + 2)) 100000 120000 >"out-$k" 2>&1 </dev/null &
        passing+=($!)
        records+=($((k + 2)) "record-$k")
        before=$(answered record-stays)
        await 60 has_answered $((before + 1 + RANDOM % 500)) record-stays || failed "the client that stays does not go on: $(tail -n 3 out-stays log)"
        await 60 has_answered $((1 + RANDOM % 100)) "record-$k" || failed "a new client does not begin: $(tail -n 3 "out-$k" log)"
        some_time
        kill_all
        killed=no
        [ $((RANDOM % 2)) = 0 ] || { kill -KILL "${passing[k]}" 2>/dev/null && killed=yes; }
        for ((n = RANDOM % 3; n > 0; n--)); do # also while they start
            begin "$1"
            some_time
            kill_all
        done
        begin "$1"
        await 60 test -s port || { failed "the servers do not start again"; cat log; exit 1; }
        # One that was not killed goes on, and is through with that soon enough.
        [ $killed = yes ] || kill -KILL "${passing[k]}" 2>/dev/null || has_answered 100000 "record-$k" ||
            failed "a client ended: $(cat "out-$k")"
        wait "${passing[k]}" 2>/dev/null || true
    done
    before=$(answered record-stays)
    await 60 has_answered $((before + 100)) record-stays || failed "the client that stays does not go on: $(cat out-stays; tail -n 3 log)"
    kill -KILL "$stays" 2>/dev/null || has_answered "$pushes" record-stays || failed "the client that stays ended: $(cat out-stays)"
    wait "$stays" 2>/dev/null || true
    "$guest" check "127.0.0.1:$ports" "${records[@]}" || failed "$1 servers: pushes are lost or doubled"

    # In order, and once more: what counts is in a checkpoint then.
    if [ "$1" = 1 ]; then kill -TERM "$job"; else kill -USR2 "$job"; fi
    wait "$job" || ended=$?
    [ $ended = 0 ] || { failed "the servers end with $ended"; cat log; }
    begin "$1"
    await 60 test -s port || { failed "the servers do not start again"; cat log; exit 1; }
    "$guest" check "127.0.0.1:$ports" "${records[@]}" >out-check || { failed "$1 servers: pushes are lost at the end"; cat out-check; }
    kill_all
    echo "$1 servers: $(grep -c replayed log) logs were replayed, $(grep -c 'is made' log) checkpoints made"
    grep -q "replayed" log || failed "no log was ever replayed"
    kill -KILL "$holder"
    wait "$holder" 2>/dev/null || true
    rm -rf data saved held port record-* out-*
}

trial 1 "$kills"
trial 2 $(((kills + 3) / 4))
exit $((failures > 0))
