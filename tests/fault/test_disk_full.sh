#!/usr/bin/env bash
# The disk of the data directory gets full while a training runs, over embps-run, a bare mpirun and in one
# process: down within 10 s, not with 0, one rank says it and names the directory, no vectors, and
# the directory is known as not closed clean. Then the disk of the output. Needs a small file system of
# its own: root, or a user that may have namespaces; skipped otherwise.
# $1: build folder, $2: temporary folder.
set -euo pipefail
# shellcheck source=tests/support/small_disk
. "$(dirname "${BASH_SOURCE[0]}")/../support/small_disk"
build=$1 dir=$2
# shellcheck source=tests/support/jobs
. "$(dirname "${BASH_SOURCE[0]}")/../support/jobs"
cd "$dir"
make_text text 20000 50000 # two tables of 20 MB each: most of it is on disk
mkdir disk records

fill_disk()
{
    dd if=/dev/zero of=disk/filler bs=1M 2>/dev/null || true
    dd if=/dev/zero of=disk/filler.rest bs=4K 2>/dev/null || true
}

# Some rank has written how it ended.
# shellcheck disable=SC2317 # called by await
recorded()
{
    [ -n "$(find records -type f ! -empty)" ]
}

run_options=(--status-dir "$dir/records")
export EMBPS_STATUS_DIR=$dir/records # of a bare mpirun, and of a process alone
for how in run bare local; do
    mount -t tmpfs -o size=400M embps-test disk # holds several times what RocksDB writes by itself
    start_training $how log "$dir/disk/data" 8M skipgram --corpus "$dir/text" --out "$dir/out" --dim 100 \
        --min-count 1 --sample 0 --epochs 1000 --log-json json --quiet
    await 60 test -s json || { failed "$how: does not train"; cat log; }
    fill_disk
    await 60 recorded || failed "$how: no rank records the failure"
    start=$SECONDS
    finish_job 10
    echo "$how: status $status, down after $((SECONDS - start)) s"
    if [ $how = bare ]; then
        [ $status != 0 ] || failed "$how: ends with 0"
    else
        [ $status = 41 ] || failed "$how: ends with $status, not 41"
    fi
    expect_one_report $how log "$dir/disk/data/server-" "No space left on device"
    expect_no_output $how out
    expect_no_jobs $how
    [[ $(states_of disk/data) =~ ^open(\ open)?$ ]] || failed "$how: states are $(states_of disk/data)"
    expect_refused $how "$dir/disk/data" "not closed clean"
    umount disk
    rm -rf records/* json
done
unset EMBPS_STATUS_DIR

# The output's disk: known at the end of the training alone. The servers end in order.
make_text small 4000 30000
run_options=(--kill-timeout 1) # above it was the default that had to do
mount -t tmpfs -o size=1M embps-test disk
for how in run bare local; do
    start_training $how log "$dir/data-$how" 64M skipgram --corpus "$dir/small" --out "$dir/disk/out" --dim 20 \
        --min-count 1 --window 1 --epochs 1 --quiet
    finish_job 60
    echo "$how: status $status"
    [ $status != 0 ] || failed "$how: ends with 0 on a full disk"
    [ $how = bare ] || [ $status = 41 ] || failed "$how: ends with $status, not 41"
    expect_one_report "$how, output" log "$dir/disk/out" "No space left on device"
    expect_no_output "$how, output" disk/out
    expect_no_jobs "$how, output"
done
umount disk
exit $((failures > 0))
