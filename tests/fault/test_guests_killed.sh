#!/usr/bin/env bash
# Clients by address of a server without a job: many at a time of which some are killed, and a server that is stopped
# for longer than they wait. Each push counts once, the server's memory and descriptors do not grow.
# $1: build folder, $2: temporary folder.
set -euo pipefail
build=$1 dir=$2
# shellcheck source=tests/support/jobs
. "$(dirname "${BASH_SOURCE[0]}")/../support/jobs"
cd "$dir"
guest=$build/tests/guest_main
clients=${EMBPS_TEST_GUESTS:-24} pushes=${EMBPS_TEST_PUSHES:-1200}
seed=${EMBPS_TEST_SEED:-$RANDOM}
echo "seed $seed"
RANDOM=$seed

"$server" --listen 127.0.0.1:0 --port-file "$dir/port" --data "$dir/data" --memory 32M >log 2>&1 </dev/null &
job=$!
await 60 test -s port || { failed "the server does not listen"; cat log; exit 1; }
address=$(head -n 1 port)

# So many at once, every third one of which is killed somewhere in the middle.
pids=()
for ((g = 0; g < clients; g++)); do
    "$guest" push "$address" "record-$g" "$g" "$pushes" 60000 >"out-$g" 2>&1 </dev/null &
    pids+=($!)
done
half_way() # FILE: some pushes were begun
{
    [ -s "$1" ] && [ "$(tr -d '\000' <"$1" | wc -c)" -ge "$2" ]
}
for ((g = 0; g < clients; g += 3)); do
    await 60 half_way "record-$g" $((RANDOM % pushes)) || failed "client $g does not begin"
    kill -KILL "${pids[g]}" 2>/dev/null || true
done
for ((g = 0; g < clients; g++)); do
    ended=0
    wait "${pids[g]}" 2>/dev/null || ended=$?
    [ $ended = 0 ] || { [ $((g % 3)) = 0 ] && [ $ended = 137 ]; } || { failed "client $g ends with $ended"; cat "out-$g"; }
done
records=()
for ((g = 0; g < clients; g++)); do
    records+=("record-$g")
done
"$guest" check "$address" "${records[@]}" || failed "pushes are lost or doubled"
descriptors() { find "/proc/$job/fd" -mindepth 1 | wc -l; }
few_descriptors() { [ "$(descriptors)" -lt 60 ]; }
await 30 few_descriptors || failed "the server has $(descriptors) descriptors without a client"

# A server that is stopped for longer than a client waits, and goes on.
"$guest" push "$address" record-stopped "$clients" 20000 300 >out-stopped 2>&1 </dev/null &
stopped=$!
await 60 half_way record-stopped 1000 || failed "the client does not begin"
kill -STOP "$job"
await 60 grep -q timeout out-stopped || failed "a client does not notice that its server is stopped"
kill -CONT "$job"
wait "$stopped" || { failed "the client of a stopped server fails"; cat out-stopped; }
"$guest" check "$address" "${records[@]}" record-stopped || failed "a stopped server: pushes are lost or doubled"

kill -TERM "$job"
ended=0
wait "$job" || ended=$?
[ $ended = 0 ] || { failed "the server ends with $ended"; cat log; }
job=
exit $((failures > 0))
