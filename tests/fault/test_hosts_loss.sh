#!/usr/bin/env bash
# Jobs over three hosts (scripts/testnet) that lose a worker: killed on a host without a server, or beside one. The
# others go on as the mode says, though not every server can see the process; its host tells the signal. A server that
# is killed ends the job. Skipped where the system does not let us make hosts.
# $1: build folder, $2: temporary folder.
set -euo pipefail
build=$1 dir=$2
# shellcheck source=tests/support/losses
. "$(dirname "${BASH_SOURCE[0]}")/../support/losses"
cd "$dir"
enter_hosts 3 "${BASH_SOURCE[0]}" "${3-}"
# A server each on node1 and node2, worker 0 beside the latter, and two workers on node3.
printf 'node1 slots=1\nnode2 slots=2\nnode3 slots=2\n' >hosts
run_options=(--hosts hosts)
worker_timeout=30 # without a sign of life: more than a busy machine keeps a worker from giving one
calibrate
words=$((words / epochs * (epochs / 2))) epochs=$((epochs / 2)) # the loss is at the beginning

killed() # WORKER STALENESS RULE HOST
{
    local name="worker $1 killed, staleness $2, $3"
    kill_in_time "$name" "$1" "$2" "$3"
    expect_line "$name" "worker $1 (host node$4, .*is gone, ended by signal 9 (Killed)"
    expect_line "$name" "came to its end without worker $1"
    expect_loss "$name"
}
killed 1 0 rollback 3
killed 0 async continue 2

name="server 1 killed"
start 1000000 async auto # never whole
await_training "$name"
kill -KILL "$(rank_pid embps-server 1 data)" || failed "$name: it is not there"
finish_job 60
[ $status = 1 ] || { failed "$name: ends with $status"; cat log; }
expect_line "$name" "the job failed: a server was lost"
[ ! -e out ] || failed "$name: there are vectors"
expect_no_jobs "$name"
echo "ok: $name"
exit $((failures > 0))
