#!/usr/bin/env bash
# Rows of 4,096 columns, as language models have them, trained by row-wise adagrad: 16 bits in the server and
# more of them than fit into its memory; messages of 32-bit floats. The promise of --memory holds.
# By hand at full size, 200 million parameters: tests/bench/wide-table.
# $1: build folder, $2: temporary folder.
set -euo pipefail
build=$1 dir=$2
# shellcheck source=tests/support/jobs
. "$(dirname "${BASH_SOURCE[0]}")/../support/jobs"
cd "$dir"

for size in "bf16 1000" "f16 900" "f32 500"; do
    read -r precision ids <<<"$size"
    "${bare[@]}" -n 1 "$server" --data "$dir/$precision" --memory 8M : \
        -n 1 "$client" train "$ids" 4096 3 $precision "$dir" >log 2>&1 </dev/null &
    job=$!
    watch_servers "$dir/$precision"
    finish_job 120
    [ "$status" = 0 ] || { failed "$precision: the job ends with $status"; cat log; }
    echo "$precision: $(grep -o 'pass 2.*' log), at most $((peak[0] / 1024)) MiB"
    if ! grep -qaE '__(asan|tsan|msan)_init' "$server" && [ "${peak[0]}" -gt $(((8 + 64) * 1024)) ]; then
        failed "$precision: the server had ${peak[0]} KiB"
    fi
    rm -rf "${dir:?}/$precision"
done
exit $((failures > 0))
