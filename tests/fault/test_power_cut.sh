#!/usr/bin/env bash
# The power is cut while servers run, RocksDB among them: of what they had not synced anything may be lost
# (tests/power). With --durability sync each push that was answered counts once afterwards, each other one once at the
# most; with --durability checkpoint the tables are those of a checkpoint, none older than the newest that was said to be
# made, all pushes of each client up to some one of them. Every checkpoint that is there is whole. A server alone, and a
# job of two.
#
# EMBPS_TEST_KILLS cuts of a server with sync, half as many with checkpoint, a quarter of two servers; by hand 100.
# $1: build folder, $2: temporary folder.
set -euo pipefail
build=$1 dir=$2
# shellcheck source=tests/support/jobs
. "$(dirname "${BASH_SOURCE[0]}")/../support/jobs"
cd "$dir"
# shellcheck source=tests/power/watched
. "$root/tests/power/watched"
guest=$build/tests/guest_main
embps=$build/embps
kills=${EMBPS_TEST_KILLS:-3}
seed=${EMBPS_TEST_SEED:-$RANDOM}
echo "seed $seed"
RANDOM=$seed

begin() # LEVEL SERVERS: starts them, and waits for nothing
{
    local every=() start=("${watched[@]}" "$server")
    [ "$2" = 1 ] || start=(env --default-signal=INT "${bare[@]}" -n "$2" "${watched[@]}" "$server")
    rm -f port
    : >log
    [ $((RANDOM % 3)) = 0 ] || every=(--checkpoint-every 0.1) # now and then a cut comes in the middle of one
    "${start[@]}" --listen "127.0.0.1:$ports" --port-file "$dir/port" --data "$dir/disk/data" \
        --checkpoints "$dir/disk/saved" --durability "$1" --memory 16M --keep 2 --log-level info "${every[@]}" \
        >>log 2>&1 </dev/null &
    job=$!
}
listen() # LEVEL SERVERS: starts them, until they serve
{
    begin "$1" "$2"
    await 60 test -s port || { failed "$1, $2 servers do not start after a cut"; cat log history; exit 1; }
    [ "$2" != 1 ] || await 60 grep -q "goes on from" log || failed "it is not said where it goes on from"
}
hold_ports() # SERVERS
{
    rm -f held
    "$guest" hold "$1" held >out-hold 2>&1 </dev/null &
    holder=$!
    await 30 test -s held || { failed "no ports: $(cat out-hold)"; exit 1; }
    ports=$(cat held)
}
# shellcheck disable=SC2317 # called by await
is_gone()
{
    ! kill -0 "$job" 2>/dev/null
}
# The power is cut at some change from now on, or at some time.
cut_somewhen()
{
    local k=$((1 + RANDOM % 300))
    if [ $((RANDOM % 3)) != 0 ]; then
        python3 "$power" arm power $k
        echo "cut at change $k" >>history
        await 1 is_gone || true # it may have nothing more to change
    else
        sleep "0.$(printf %03d $((RANDOM % 250)))"
    fi
    cut_power "$seed-$((cuts++))"
    # Also while they start.
    for ((n = RANDOM % 3; n > 0; n--)); do
        begin "$1" "$2"
        k=$((1 + RANDOM % 150))
        python3 "$power" arm power $k
        echo "cut at change $k of a start" >>history
        await 1 is_gone || true
        cut_power "$seed-$((cuts++))"
    done
}
whole() # what is there under its plain name
{
    ! compgen -G "disk/saved/checkpoint-??????????" >/dev/null ||
        "$embps" checkpoint verify disk/saved >verified 2>&1 || { failed "a checkpoint is not whole"; cat verified history; }
}

synced() # SERVERS CUTS
{
    local k stays passing records=(1 record-stays) pushes=1000000 before # more than it gets to
    hold_ports "$1"
    listen sync "$1"
    "$guest" push "127.0.0.1:$ports" record-stays 1 "$pushes" 120000 >out-stays 2>&1 </dev/null &
    stays=$!
    for ((k = 0; k < $2; k++)); do
        echo "sync, $1 servers, round $k" >>history
        passing=()
        for n in 0 1 2; do
            "$guest" push "127.0.0.1:$ports" "record-$k-$n" $((3 * k + n + 2)) 100000 120000 >"out-$k-$n" 2>&1 </dev/null &
            passing+=($!)
            records+=($((3 * k + n + 2)) "record-$k-$n")
        done
        before=$(answered record-stays)
        await 60 has_answered $((before + 1 + RANDOM % 100)) record-stays || failed "the client that stays does not go on: $(tail -n 3 out-stays log)"
        for n in 0 1 2; do
            await 60 has_answered 1 "record-$k-$n" || failed "a new client does not begin: $(tail -n 3 "out-$k-$n" log)"
        done
        cut_somewhen sync "$1"
        kill -KILL "${passing[@]}" 2>/dev/null || true
        wait "${passing[@]}" 2>/dev/null || true
        whole
        listen sync "$1"
        "$guest" check "127.0.0.1:$ports" "${records[@]:2}" >out-check 2>&1 || { failed "sync, $1 servers: pushes are lost or doubled"; cat out-check history; exit 1; }
    done
    before=$(answered record-stays)
    await 60 has_answered $((before + 100)) record-stays || failed "the client that stays does not go on: $(cat out-stays; tail -n 3 log)"
    kill -KILL "$stays" 2>/dev/null || failed "the client that stays ended: $(cat out-stays)"
    wait "$stays" 2>/dev/null || true
    "$guest" check "127.0.0.1:$ports" "${records[@]}" || failed "sync, $1 servers: pushes are lost or doubled"
    end_trial "sync, $1 servers" "$1"
}

# The servers end in order; the shim has seen all that they changed.
end_trial() # NAME SERVERS
{
    local ended=0
    if [ "$2" = 1 ]; then kill -TERM "$job"; else kill -USR2 "$job"; fi
    wait "$job" || ended=$?
    job=
    [ $ended = 0 ] || { failed "$1: the servers end with $ended"; cat log; }
    python3 "$power" check disk power || failed "$1: changes were not seen"
    kill -KILL "$holder"
    wait "$holder" 2>/dev/null || true
    rm -rf disk power record-* out-* history
    mkdir disk
    python3 "$power" begin disk power
}

number() # of a checkpoint, by its name
{
    local digits=${1#checkpoint-}
    echo $((10#${digits:-0}))
}

# Sets name. That of a client has one moment for its own calls alone, where there are several servers.
made_line='checkpoint \(checkpoint-[0-9]*\) (asked for by a signal) is made'
make_checkpoint() # SERVERS
{
    if [ "$1" = 1 ]; then
        name=$("$embps" checkpoint "127.0.0.1:$ports" 2>out-made)
    else
        kill -USR1 "$job"
        await 60 grep -q "$made_line" log
        name=$(sed -n "s/.*$made_line.*/\1/p" log | tail -n 1)
    fi
}
saved() # SERVERS CUTS
{
    local k name least resumed pid triples=() sets=()
    for ((k = 0; k < $2; k++)); do
        echo "checkpoint, $1 servers, round $k" >>history
        hold_ports "$1" # a guest of before that still tries must not meet these
        listen checkpoint "$1"
        "$guest" push "127.0.0.1:$ports" "record-$k" $((k + 1)) 100000 120000 >"out-$k" 2>&1 </dev/null &
        pid=$!
        await 60 has_answered $((1 + RANDOM % 300)) "record-$k" || failed "a client does not begin: $(tail -n 3 "out-$k" log)"
        least=$(answered "record-$k")
        name=checkpoint-0
        if [ $((RANDOM % 4)) != 0 ]; then
            make_checkpoint "$1" || { failed "no checkpoint: $(cat out-made)"; cat log; }
        else
            least=0
        fi
        cut_somewhen checkpoint "$1"
        kill -KILL "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
        kill -KILL "$holder"
        wait "$holder" 2>/dev/null || true
        whole
        hold_ports "$1"
        listen checkpoint "$1"
        resumed=$(sed -n 's/.*goes on from \(checkpoint-[0-9]*\).*/\1/p' log | head -n 1)
        [ "$(number "${resumed:-checkpoint-0}")" -ge "$(number "$name")" ] || { failed "goes on from ${resumed:-nothing}, but $name was made"; cat log history; }
        triples+=($((k + 1)) "$least" "record-$k")
        "$guest" prefix "127.0.0.1:$ports" "${triples[@]}" >out-prefix 2>&1 || { failed "checkpoint, $1 servers: $(cat out-prefix)"; cat log history; exit 1; }
        mapfile -t sets <out-prefix
        cut_power "$seed-$((cuts++))" # nobody pushed: the same once more, and from now on at least that
        kill -KILL "$holder"
        wait "$holder" 2>/dev/null || true
        for ((n = 0; n <= k; n++)); do triples[3 * n + 1]=0; done
    done
    hold_ports "$1"
    listen checkpoint "$1"
    echo "checkpoint, $1 servers: of $2 clients ${sets[*]} pushes are in checkpoints"
    end_trial "checkpoint, $1 servers" "$1"
}

cuts=0
synced 1 "$kills"
synced 2 $(((kills + 3) / 4))
saved 1 $(((kills + 1) / 2))
saved 2 $(((kills + 3) / 4))
echo "$cuts cuts"
exit $((failures > 0))
