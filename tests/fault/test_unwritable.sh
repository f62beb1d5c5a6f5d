#!/usr/bin/env bash
# Places that cannot be written, and what a server refuses of all workers at once: over embps-run, a bare
# mpirun and in one process the job ends with a status other than 0, one rank says why, nothing is left.
# A read-only file system stops root too; it needs a mount, without which this is skipped.
# $1: build folder, $2: temporary folder.
set -euo pipefail
# shellcheck source=tests/support/small_disk
. "$(dirname "${BASH_SOURCE[0]}")/../support/small_disk"
build=$1 dir=$2
# shellcheck source=tests/support/jobs
. "$(dirname "${BASH_SOURCE[0]}")/../support/jobs"
cd "$dir"
make_text text 20 20
mkdir fixed
mount -t tmpfs -o ro,size=1M embps-test fixed
run_options=(--kill-timeout 0)

refused() # NAME run|bare|local CODE DATA MEMORY WORDS OPTION...
{
    local name="$1, $2" how=$2 code=$3 data=$4 memory=$5 words=$6
    shift 6
    start_training "$how" log "$data" "$memory" skipgram --corpus "$dir/text" --min-count 1 --quiet "$@"
    finish_job 20
    if [ "$how" = bare ]; then
        [ "$status" != 0 ] || failed "$name: ends with 0"
    else
        [ "$status" = "$code" ] || failed "$name: ends with $status, not $code"
    fi
    expect_one_report "$name" log "$words"
    expect_no_output "$name" "$dir/out"
    expect_no_jobs "$name"
    echo "ok: $name"
}

for how in run bare local; do
    refused "unwritable output" $how 40 "$dir/data" 8M "$dir/fixed/out" --out "$dir/fixed/out"
    expect_no_output "unwritable output" "$dir/data"
    refused "unwritable data" $how 40 "$dir/fixed/data" 8M "$dir/fixed/data" --out "$dir/out"
    refused "memory below the minimum" $how 2 "$dir/data" 7M "memory" --out "$dir/out"
    expect_no_output "memory below the minimum" "$dir/data"
done
# All workers hear this from the same server at the same time.
for how in run bare local; do
    refused "rows that memory cannot hold" $how 2 "$dir/data-$how" 8M "do not fit into a memory" --out "$dir/out" --dim 65536
done
exit $((failures > 0))
