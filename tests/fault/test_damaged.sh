#!/usr/bin/env bash
# Files of a running server are overwritten: what is read of them is never taken for rows. The job ends
# with a status other than 0, one rank says what is damaged, no vectors are written.
# $1: build folder, $2: temporary folder.
set -euo pipefail
build=$1 dir=$2
# shellcheck source=tests/support/jobs
. "$(dirname "${BASH_SOURCE[0]}")/../support/jobs"
cd "$dir"
make_text text 6000 40000
run_options=(--kill-timeout 0)

# shellcheck disable=SC2317 # called by await
tables_there() # DATA
{
    compgen -G "$1/server-*/rocksdb/*.sst"
}

# shellcheck disable=SC2317 # called by await
damaged()
{
    local file
    for file in data/server-*/rocksdb/*.sst; do
        dd if=/dev/urandom of="$file" bs=4096 count=64 conv=notrunc,nocreat 2>/dev/null || true
    done
    [ -n "$(reports log)" ]
}

for how in run bare local; do
    start_training $how log "$dir/data" 8M skipgram --corpus "$dir/text" --out "$dir/out" --dim 100 \
        --min-count 1 --sample 0 --epochs 1000 --log-json json --quiet
    await 60 test -s json || { failed "$how: does not train"; cat log; }
    await 60 tables_there data || failed "$how: no files"
    # Whichever server, whichever file: over and over, since compactions make new ones.
    await 60 damaged || failed "$how: nobody notices"
    finish_job 20
    echo "$how: status $status, $(reports log)"
    [ $status != 0 ] || failed "$how: ends with 0"
    [ $how = bare ] || [ $status = 42 ] || failed "$how: ends with $status, not 42"
    expect_one_report $how log "$dir/data/server-"
    expect_no_output $how out
    expect_no_jobs $how
    expect_refused $how "$dir/data" "not closed clean"
    rm -rf data json
done
exit $((failures > 0))
