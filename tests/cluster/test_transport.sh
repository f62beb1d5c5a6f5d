#!/usr/bin/env bash
# The MPI transport and the job's collectives at several numbers of ranks.
set -eu
program=$1/tests/transport_main
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
run=(timeout 800 mpirun --oversubscribe --bind-to none)

expect() { # expect LINE COMMAND...
    local line=$1 output
    shift
    output=$("$@" 2>&1) || { echo "failed: $*"; echo "$output"; exit 1; }
    grep -qx "$line" <<<"$output" || { echo "no \"$line\" from: $*"; echo "$output"; exit 1; }
}

for ranks in "1 1" "2 2" "3 1"; do
    read -r servers workers <<<"$ranks"
    for mode in jobs traffic flood; do
        expect "$mode is well" "${run[@]}" -n "$servers" "$program" server "$mode" : \
            -n "$workers" "$program" worker "$mode"
    done
done
expect "report is well" "${run[@]}" -n 2 "$program" server report : -n 3 "$program" worker report
expect "alone is well" "${run[@]}" -n 1 "$program" server alone
expect "alone is well" "${run[@]}" -n 2 "$program" worker alone
expect "abandon is well" "${run[@]}" -n 2 "$program" server abandon : -n 2 "$program" worker abandon
expect "idle is well" "${run[@]}" -n 1 "$program" server idle : -n 1 "$program" worker idle
echo "all is well"
