#!/usr/bin/env bash
# The public calls over mpirun with embps-server: numbers of servers and workers, few rows, errors.
# With one worker the rows must have the same bits for 1, 2 and 3 servers, in local mode, and with so
# little memory that most of them lie on disk: rows of 32 and of 16 bits, that are admitted late, that
# expire.
# $1: build folder, $2: temporary folder.
set -euo pipefail
build=$1 dir=$2
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
client=$build/tests/client_main
job=0
memory=16M

run() # SERVERS WORKERS ARGUMENT...
{
    local servers=$1 workers=$2
    shift 2
    job=$((job + 1))
    if ! timeout 800 mpirun --oversubscribe --bind-to none \
        -n "$servers" "$build/embps-server" --data "$dir/data-$job" --memory "$memory" : \
        -n "$workers" "$client" "$@" >"$dir/log-$job" 2>&1; then
        echo "failed: $servers servers, $workers workers, $*"
        cat "$dir/log-$job"
        exit 1
    fi
    echo "ok: $servers servers, $workers workers, $1"
}

run 1 1 one 3000 "$dir/rows-1"
run 2 1 one 3000 "$dir/rows-2"
run 3 1 one 3000 "$dir/rows-3"
timeout 800 "$client" one 3000 "$dir/rows-local" "$dir/data-local"
for other in 2 3 local; do
    cmp "$dir/rows-1" "$dir/rows-$other"
done
memory=64M
run 1 1 one 30000 "$dir/many-in-memory"
memory=8M
run 1 1 one 30000 "$dir/many-on-disk"
memory=16M
cmp "$dir/many-in-memory" "$dir/many-on-disk"
run 5 1 one 2 "$dir/few"
run 1 3 many 50
run 2 2 many 200
run 3 2 many 200
run 5 2 many 1
run 2 1 refused

if ! timeout 800 mpirun --oversubscribe --bind-to none -n 2 "$client" alone >"$dir/log-alone" 2>&1; then
    cat "$dir/log-alone"
    exit 1
fi
