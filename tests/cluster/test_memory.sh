#!/usr/bin/env bash
# A server's promise: RssAnon + RssShmem are at most --memory + 64 MiB at any time, here with tables of
# which most rows lie in RocksDB, 2 servers and 2 workers, from the first moment to the end of the close.
# $1: build folder, $2: temporary folder.
set -euo pipefail
build=$1 dir=$2
if grep -qaE '__(asan|tsan|msan)_init' "$build/embps-server"; then
    echo "skipped: a build with sanitizers has memory of its own"
    exit 77
fi
# shellcheck source=tests/support/jobs
. "$(dirname "${BASH_SOURCE[0]}")/../support/jobs"
cd "$dir"

# Ends the job and holds what was seen against the promise.
check() # NAME MEMORY_MIB MULTIPLE_ON_DISK
{
    local i limit=$((($2 + 64) * 1024)) disk
    finish_job 60
    [ "$status" = 0 ] || { failed "$1: the job ends with $status"; cat log; }
    for i in 0 1; do
        disk=$(du -sk "data/server-$i" | cut -f 1)
        echo "$1, --memory ${2}M: server $i at most $((peak[i] / 1024)) MiB in $samples looks," \
            "$((disk / 1024)) MiB on disk"
        [ "${peak[i]}" -le $limit ] || failed "$1: server $i had ${peak[i]} KiB, promised are $limit"
        # Else this would have shown nothing.
        if [ "${peak[i]}" = 0 ] || [ "$disk" -lt $(($2 * $3 * 1024)) ]; then
            failed "$1: too few rows to tell"
        fi
    done
    rm -rf data
}

# A training: long rows, in random order, read and written; the servers' rows are in shared memory, which
# workers read.
make_text text 4000 30000
start_training bare log "$dir/data" 8M skipgram --corpus "$dir/text" --out "$dir/out" --dim 200 \
    --min-count 1 --sample 0 --window 2 --epochs 1 --quiet --direct auto
watch_servers "$dir/data"
check "training" 8 2

# All rows written, then all read, as in use and as a scan: many short ones, ten times the memory, and long ones.
for size in "8 170000 13 2" "8 46000 500 10" "64 70000 500 2"; do
    read -r memory ids dim multiple <<<"$size"
    start_holding bare log "$dir/data" "${memory}M" "$ids" "$dir/hold" "$dim"
    touch hold/go
    watch_servers "$dir/data"
    check "dim $dim" "$memory" "$multiple"
done
exit $((failures > 0))
