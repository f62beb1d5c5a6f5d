#!/usr/bin/env bash
# Jobs over four hosts (scripts/testnet) in which a rank falls silent: a worker is stopped, or its host is gone, and the
# others go on without it; the host of a server is gone, and the workers name it and the job ends. Skipped where the
# system does not let us make hosts.
# $1: build folder, $2: temporary folder.
set -euo pipefail
build=$1 dir=$2
# shellcheck source=tests/support/losses
. "$(dirname "${BASH_SOURCE[0]}")/../support/losses"
cd "$dir"
enter_hosts 4 "${BASH_SOURCE[0]}" "${3-}"
# A server each on node1 and node2, worker 0 beside the latter, and the other workers each on a host of its own.
printf 'node1 slots=1\nnode2 slots=2\nnode3 slots=1\nnode4 slots=1\n' >hosts
run_options=(--hosts hosts)
worker_timeout=5 # without a sign of life; a busy machine may keep a worker from giving one for some time
calibrate
words=$((words / epochs * (epochs / 3))) epochs=$((epochs / 3)) # the loss is at the beginning

# At staleness 0 the others stand too, so that they are still there when it goes on.
name="worker 2 stopped"
start "$epochs" 0 auto
await_training "$name"
pid=$(worker_pid 2) || failed "$name: it is not there"
kill -STOP "$pid"
await_loss "$name"
expect_line "$name" "worker 2 (host node4, .*gave no sign of life for too long"
stands_still "$pid" || failed "$name: it does not stand still"
kill -CONT "$pid"
finish_job 90
expect_line "$name" "worker 2 was taken for lost, since its process gave no sign of life"
expect_loss "$name"

name="the host of worker 2"
start "$epochs" 0 continue
await_training "$name"
"$TESTNET" kill node4
await_loss "$name"
expect_line "$name" "worker 2 (host node4, .*gave no sign of life for too long"
finish_job 90
expect_loss "$name"

name="the host of server 1"
printf 'node1 slots=1\nnode2 slots=1\nnode3 slots=3\n' >hosts
train_options=(--timeout 5)
start 1000 async auto # never whole: a training that is over has no worker that could name the server
await_training "$name"
"$TESTNET" kill node2
finish_job 60
[ $status = 22 ] || { failed "$name: ends with $status"; cat log; }
expect_line "$name" "error: worker [0-9]: server 1 (host node2) has not answered for 5 s"
[ ! -e out ] || failed "$name: there are vectors"
expect_no_jobs "$name"
echo "ok: $name"
exit $((failures > 0))
