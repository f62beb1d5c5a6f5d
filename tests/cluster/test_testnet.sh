#!/usr/bin/env bash
# scripts/testnet by itself: hosts with names, addresses and folders of their own; links that go down; hosts
# that die; exit statuses; two runs at once; nothing is left, whatever ends a run. Skipped where
# the system does not let us make hosts.
# $2: temporary folder.
set -u
dir=$2
testnet=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)/scripts/testnet
failures=0

check() # WHAT EXPECTED ACTUAL
{
    if [ "$2" = "$3" ]; then
        echo "ok    $1"
    else
        echo "FAIL  $1: expected \"$2\", got \"$3\""
        failures=$((failures + 1))
    fi
}

# Whether FROM reaches port 1 of ADDRESS: a closed port answers "refused", and soon. SECONDS: what it may take.
reaches() # FROM ADDRESS [SECONDS]
{
    "$TESTNET" on "$1" "timeout ${3:-60} bash -c ': </dev/tcp/$2/1' 2>&1" | grep -q refused && echo yes || echo no
}

inside()
{
    check "the head has a name" head "$(hostname)"
    check "a host has a name" node2 "$("$TESTNET" on node2 hostname)"
    check "hosts are in the host file" "node1 node2 node3" "$(cut -d ' ' -f 1 "$TESTNET_HOSTS" | xargs)"
    check "names have addresses" 10.77.0.3 "$("$TESTNET" on node1 "getent hosts node3 | cut -d ' ' -f 1")"
    check "a host reaches another" yes "$(reaches node1 10.77.0.2)"
    check "a host reaches the head" yes "$(reaches node3 10.77.0.254)"
    check "commands are one line for the shell" "a  b" "$("$TESTNET" on node1 'echo "a ' 'b"')"
    check "commands begin in the present folder" "$PWD" "$("$TESTNET" on node1 pwd)"
    check "the status is the command's" 7 "$("$TESTNET" on node1 'exit 7'; echo $?)"
    "$TESTNET" on node1 'echo 1 >/dev/shm/one && echo 1 >$TMPDIR/one'
    check "memory files and TMPDIR are a host's own" none "$("$TESTNET" on node2 'ls /dev/shm $TMPDIR | grep one || echo none')"
    check "a host sees its own processes alone" 0 "$("$TESTNET" on node1 "ps -e -o args= | grep -c '[b]e-head'")"
    "$TESTNET" link node2 down
    check "without a link it is not reached" no "$(reaches node1 10.77.0.2 2)"
    check "the others are" yes "$(reaches node1 10.77.0.3)"
    "$TESTNET" link node2 up
    check "with its link again it is" yes "$(reaches node1 10.77.0.2)"
    "$TESTNET" on node3 'sleep 1000' &
    local sleeper=$!
    until pgrep -x sleep -a | grep -q 1000; do sleep 0.02; done
    "$TESTNET" kill node3
    wait $sleeper 2>/dev/null
    check "a killed host takes its processes along" "" "$(pgrep -x sleep -a | grep 1000)"
    check "and answers nobody" no "$(reaches node1 10.77.0.3 2)"
    check "an unknown host is told" "testnet: no host \"node9\"; there are: node1 node2 node3" \
        "$("$TESTNET" on node9 true 2>&1)"
    exit $failures
}

if [ "${3-}" = inside ]; then
    inside
fi
"$testnet" run true || {
    [ $? = 77 ] || exit 1
    echo "skipped: no hosts can be made here"
    exit 77
}
cd "$dir" || exit 1
"$testnet" run bash "${BASH_SOURCE[0]}" "$1" "$dir" inside
failures=$?

check "the status of a run is the command's" 5 "$("$testnet" run --hosts 1 sh -c 'exit 5'; echo $?)"
check "a run reads what it is given" word "$(echo word | "$testnet" run --hosts 1 cat)"
check "an unknown option is refused" 2 "$("$testnet" run --bogus 2>/dev/null; echo $?)"
check "too many hosts are refused" 2 "$("$testnet" run --hosts 201 true 2>/dev/null; echo $?)"
check "hosts outside of a run are refused" 2 "$("$testnet" on node1 true 2>/dev/null; echo $?)"

# Two at once, with the same names and addresses; each waits for the other.
for i in 1 2; do
    "$testnet" run --hosts 2 bash -c "
        echo $i | \$TESTNET on node1 'cat >/dev/shm/run'
        touch $dir/up-$i
        until [ -e $dir/up-$((3 - i)) ]; do sleep 0.02; done
        \$TESTNET on node1 'cat /dev/shm/run'" >"out-$i" &
    pids[i]=$!
done
wait "${pids[@]}"
check "two runs at once do not meet" "1 2" "$(cat out-1 out-2 | xargs)"

# Whatever ends a run, its processes go too. Those are found by a word in their command line.
left()
{
    pgrep -f "[m]ark-$dir"
}
for signal in TERM INT HUP KILL; do
    rm -f started
    env --default-signal=INT "$testnet" run --hosts 2 bash -c "
        : mark-$dir
        \$TESTNET on node2 'bash -c \"exec -a mark-$dir sleep 1000\"' &
        touch started
        wait" &
    run=$!
    until [ -e started ] && left >/dev/null; do sleep 0.02; done
    kill -$signal $run
    wait $run 2>/dev/null
    for _ in $(seq 3000); do
        left >/dev/null || break
        sleep 0.02
    done
    check "nothing is left of a run after SIG$signal" "" "$(left)"
done
check "the network outside knows nothing of it" 0 "$(ip link | grep -cE 'to-node|bridge:')"

# As a user without rights, where the kernel allows it.
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null &&
    setpriv --reuid 65534 --regid 65534 --clear-groups unshare --user --map-root-user --net true 2>/dev/null; then
    # In a folder that everyone may enter: that of the checkout may be ours alone.
    cp "$testnet" "$dir/testnet"
    chmod 755 "$dir" "$dir/testnet"
    check "a user without rights has hosts too" "node1 10.77.0.254" "$(setpriv --reuid 65534 --regid 65534 --clear-groups \
        "$dir/testnet" run --hosts 1 bash -c '$TESTNET on node1 "hostname; getent hosts head" | cut -d " " -f 1 | xargs')"
else
    echo "skipped: as a user without rights"
fi
[ $failures = 0 ]
