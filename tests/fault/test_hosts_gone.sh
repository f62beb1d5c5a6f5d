#!/usr/bin/env bash
# Jobs over five hosts (scripts/testnet) in which a rank falls silent: a worker is stopped, or its host is gone, and the
# others go on without it; the host of a server is gone, and the workers name it and the job ends, or nobody is left who
# could, and it ends all the same. Skipped where the system does not let us make hosts.
# $1: build folder, $2: temporary folder.
set -euo pipefail
build=$1 dir=$2
# shellcheck source=tests/support/losses
. "$(dirname "${BASH_SOURCE[0]}")/../support/losses"
cd "$dir"
enter_hosts 5 "${BASH_SOURCE[0]}" "${3-}"
# A server each on node1 and node2, worker 0 beside the latter, and the other workers each on a host of its own.
printf 'node1 slots=1\nnode2 slots=2\nnode3 slots=1\nnode4 slots=1\n' >hosts
run_options=(--hosts hosts)
worker_timeout=10 # without a sign of life; a busy machine may keep a worker from giving one for some time
calibrate
words=$((words / epochs * (epochs / 3))) epochs=$((epochs / 3)) # the loss is at the beginning

# At staleness 0 the others stand too, so that they are still there when it goes on.
name="worker 2 stopped"
stop_in_time "$name" 2 0 auto
expect_line "$name" "worker 2 (host node4, .*gave no sign of life for too long"
go_on "$name" "$pid"
finish_job 90
expect_refusal "$name" 2 "gave no sign of life"
expect_loss "$name"

# Hosts do not come back: that the training goes on is made sure of while the worker stands still, and the others with it.
name="the host of worker 2"
for ((i = 0; i < 5; i++)); do
    start "$epochs" 0 continue
    await_training "$name"
    pid=$(worker_pid 2) || pid=
    ! { [ -n "$pid" ] && kill -STOP "$pid" 2>/dev/null && await 10 stands_still "$pid" && [ ! -e out ]; } || break
    [ -z "$pid" ] || kill -CONT "$pid" 2>/dev/null || true
    finish_job 90
    expect_too_late "$name"
    lengthen
done
[ $i -lt 5 ] || failed "$name: always too late"
"$TESTNET" kill node4
await_loss "$name"
expect_line "$name" "worker 2 (host node4, .*gave no sign of life for too long"
finish_job 90
expect_loss "$name"

name="the host of server 1"
printf 'node1 slots=1\nnode2 slots=1\nnode3 slots=3\n' >hosts
train_options=(--timeout 10)
start 1000000 async auto # never whole: a training that is over has no worker that could name the server
await_training "$name"
"$TESTNET" kill node2
finish_job 60
[ $status = 22 ] || { failed "$name: ends with $status"; cat log; }
expect_line "$name" "error: worker [0-9]: server 1 (host node2) has not answered for 10 s"
[ ! -e out ] || failed "$name: there are vectors"
expect_no_jobs "$name"
echo "ok: $name"

# The other server waits for it to have written its rows, which are many, so that this takes a while.
name="the host of server 1 when the workers have left"
printf 'node1 slots=1\nnode5 slots=1\nnode3 slots=2\n' >hosts
export OMPI_MCA_oob_tcp_keepalive_time=2 OMPI_MCA_oob_tcp_keepalive_intvl=1 OMPI_MCA_oob_tcp_keepalive_probes=3
# shellcheck disable=SC2317 # called by await
workers_told()
{
    [ -e "$(echo embps-run.*/worker-0)" ] && [ -e "$(echo embps-run.*/worker-1)" ]
}
# It stands still when its host goes, so that it is known to be there; if it had ended by then, with twice the rows.
for words in 50000 100000 200000; do
    rm -rf data out embps-run.*
    make_text text-large $((words / 10)) $words
    start_training run log "$dir/data" 800M skipgram --corpus "$dir/text-large" --out "$dir/out" --min-count 1 --dim 400 \
        --negative 1 --epochs 1 --quiet
    await 90 workers_told || { failed "$name: the workers do not end"; cat log; }
    pid=$(rank_pid embps-server 1 data) || pid=
    ! { [ -n "$pid" ] && kill -STOP "$pid" 2>/dev/null && await 10 stands_still "$pid"; } || break
    finish_job 90
    [ $status = 0 ] || { failed "$name: ends with $status, though nobody was lost"; cat log; }
done
"$TESTNET" kill node5
finish_job 60
[ $status = 1 ] || { failed "$name: ends with $status"; cat log; }
expect_line "$name" "the job failed: the machine of a server gives no sign of life"
[ "$(states_of data | cut -d ' ' -f 1)" = clean ] || failed "$name: states are $(states_of data)"
expect_no_jobs "$name"
echo "ok: $name"
exit $((failures > 0))
