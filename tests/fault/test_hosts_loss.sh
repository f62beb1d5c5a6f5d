#!/usr/bin/env bash
# Jobs over three hosts (scripts/testnet) that lose a worker: killed on a host without a server, or stopped there, and
# killed beside a server. The others go on as the mode says, though no server can see the process; its host tells the
# signal, and silence tells what stands still. A server that is killed ends the job. Skipped where the system does
# not let us make hosts.
# $1: build folder, $2: temporary folder.
set -euo pipefail
build=$1 dir=$2
# shellcheck source=tests/support/losses
. "$(dirname "${BASH_SOURCE[0]}")/../support/losses"
cd "$dir"
if [ "${3-}" != inside ]; then
    status=0
    "$root/scripts/testnet" run true || status=$?
    if [ $status = 77 ]; then
        echo "skipped: no hosts can be made here"
        exit 77
    fi
    [ $status = 0 ] || exit 1
    exec "$root/scripts/testnet" run bash "${BASH_SOURCE[0]}" "$build" "$dir" inside
fi
# A server each on node1 and node2, worker 0 beside the latter, and two workers on node3.
printf 'node1 slots=1\nnode2 slots=2\nnode3 slots=2\n' >hosts
run_options=(--hosts hosts)
worker_timeout=5 # without a sign of life; a busy machine may keep a worker from its thread for some time
calibrate
words=$((words / epochs * (epochs / 2))) epochs=$((epochs / 2)) # the loss is at the beginning

killed() # WORKER STALENESS RULE HOST
{
    local name="worker $1 killed, staleness $2, $3"
    start "$epochs" "$2" "$3"
    await_training "$name"
    kill -KILL "$(worker_pid "$1")" || failed "$name: it is not there"
    await_loss "$name"
    expect_line "$name" "worker $1 (host node$4, .*is gone, ended by signal 9 (Killed)"
    finish_job 90
    expect_line "$name" "came to its end without worker $1"
    expect_loss "$name"
}
killed 1 0 rollback 3
killed 0 async continue 2

# At staleness 0 the others stand too, so that they are still there when it goes on.
name="worker 2 stopped"
start "$epochs" 0 auto
await_training "$name"
pid=$(worker_pid 2) || failed "$name: it is not there"
kill -STOP "$pid"
await_loss "$name"
expect_line "$name" "worker 2 (host node3, .*gave no sign of life for too long"
stands_still "$pid" || failed "$name: it does not stand still"
kill -CONT "$pid"
finish_job 90
expect_line "$name" "worker 2 was taken for lost, since its process gave no sign of life"
expect_loss "$name"

name="server 1 killed"
start "$epochs" async auto
await_training "$name"
kill -KILL "$(rank_pid embps-server 1 data)" || failed "$name: it is not there"
finish_job 60
[ $status = 1 ] || { failed "$name: ends with $status"; cat log; }
expect_line "$name" "the job failed: a server was lost"
[ ! -e out ] || failed "$name: there are vectors"
expect_no_jobs "$name"
echo "ok: $name"
exit $((failures > 0))
