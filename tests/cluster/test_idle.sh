#!/usr/bin/env bash
# Servers whose workers call nothing for seconds take less than 3% of a core each. The one test that
# lets time pass: over less of it the clock of /proc (10 ms) is too coarse.
# $1: build folder, $2: temporary folder.
set -euo pipefail
build=$1 dir=$2
# shellcheck source=tests/support/jobs
. "$(dirname "${BASH_SOURCE[0]}")/../support/jobs"
cd "$dir"

# Ticks of processor time that a process has taken: of the fields behind its name, 12 and 13.
ticks_of() # PID
{
    local line fields
    read -r line <"/proc/$1/stat"
    read -ra fields <<<"${line##*) }"
    echo $((fields[11] + fields[12]))
}

start_holding bare log "$dir/data" 8M 50000 "$dir/hold" 13
await 60 holding hold || { failed "the job does not come to hold still"; cat log; }
mapfile -t pids < <(ranks_of embps-server "$dir/data")
[ ${#pids[@]} = 2 ] || failed "there are ${#pids[@]} servers"
# What was under way when the workers stopped, compactions say, is no idleness: wait for its end.
for pid in "${pids[@]}"; do
    before=-1
    for ((i = 0; i < 40; i++)); do
        now=$(ticks_of "$pid")
        [ $((now - before)) -gt 1 ] || break
        before=$now
        sleep 0.2
    done
done
before=()
for pid in "${pids[@]}"; do
    before+=("$(ticks_of "$pid")")
done
ticks_per_s=$(getconf CLK_TCK)
start=$(date +%s%N)
sleep 4
for i in "${!pids[@]}"; do
    used=$(($(ticks_of "${pids[i]}") - before[i]))
    hundredths=$((used * 10000 * (1000000000 / ticks_per_s) / ($(date +%s%N) - start)))
    printf 'server %d: %d.%02d%% of a core\n' "$i" $((hundredths / 100)) $((hundredths % 100))
    [ $hundredths -lt 300 ] || failed "server $i is not idle"
done
touch hold/go
finish_job 60
[ $status = 0 ] || { failed "the job ends with $status"; cat log; }
exit $((failures > 0))
