#!/usr/bin/env bash
# Checkpoints that servers make by themselves while a client pushes: on SIGUSR1 to mpirun, to one server, to embps-run,
# and every so often. Each has what was answered before it was asked for; a signal to all makes one; one that fails
# leaves nothing, and servers and workers go on.
# $1: build folder, $2: temporary folder.
set -euo pipefail
build=$1 dir=$2
# shellcheck source=tests/support/jobs
. "$(dirname "${BASH_SOURCE[0]}")/../support/jobs"
cd "$dir"
embps=$build/embps guest=$build/tests/guest_main

# Servers of one job without workers, and their address; the log goes on in FOLDER.log.
serve() # SERVERS FOLDER OPTION...
{
    local n=$1 folder=$2
    shift 2
    rm -f port
    "${bare[@]}" -n "$n" "$server" --listen 127.0.0.1:0 --port-file "$dir/port" --data "$dir/$folder" \
        --checkpoints "$dir/$folder.saved" --memory 32M --keep 9 --log-level info "$@" >>"$folder.log" 2>&1 </dev/null &
    job=$!
    await 60 test -s port || { failed "servers do not listen"; cat "$folder.log"; exit 1; }
    address=$(head -n 1 port)
}

# How many checkpoints are there, and are in the log for this reason.
made() # FOLDER
{
    find "$1.saved" -maxdepth 1 -name 'checkpoint-??????????' | wc -l
}
logged() # FOLDER REASON
{
    grep -c "checkpoint checkpoint-[0-9]* ($2) is made: [0-9.]* s, [0-9]* bytes" "$1.log" || true
}
at_least() # N COMMAND...
{
    local n=$1
    shift
    [ "$("$@")" -ge "$n" ]
}
no_leftovers() # FOLDER
{
    [ -z "$(find "$1.saved" -name '*.partial')" ]
}
in_log() # FOLDER PATTERN
{
    grep -q -- "$2" "$1.log"
}

# A client that pushes until it is killed; how many pushes were answered; what had been answered by now, for a check
# after which anything else may have been begun.
start_pushing() # NUMBER
{
    "$guest" push "$address" "record-$1" "$1" 4000000 60000 >"push-$1" 2>&1 </dev/null &
    pusher=$!
    await 60 test -s "record-$1" || { failed "no client: $(cat "push-$1")"; exit 1; }
}
answered() # NUMBER
{
    head -c 20000 "record-$1" | tr -d '\0\1' | wc -c
}
keep_record() # NUMBER NAME
{
    head -c 20000 "record-$1" | tr '\0' '\1' >"$2"
}
expect_answered() # NUMBER RECORD
{
    "$guest" check "$address" "$1" "$2" >out 2>&1 || failed "what was answered is not in the checkpoint: $(cat out)"
}
# It goes on: more is answered than is now.
expect_pushes() # NUMBER
{
    local before
    before=$(tr -d '\0\1' <"record-$1" | wc -c)
    await 60 more_than "$before" "$1" || failed "the client cannot push any more: $(cat "push-$1")"
}
more_than() # N NUMBER
{
    [ "$(tr -d '\0\1' <"record-$2" | wc -c)" -gt "$1" ]
}
stop_pushing()
{
    kill -9 "$pusher" 2>/dev/null || true
    wait "$pusher" 2>/dev/null || true
}
kill_servers()
{
    end_jobs
    wait "$job" || true
    job=
    await 60 no_jobs_left || failed "servers stay"
}
end_servers()
{
    local code=0
    kill -USR2 "$job"
    wait "$job" || code=$?
    job=
    [ $code = 0 ] || failed "servers end with $code: $(cat two.log)"
}

# To mpirun, which passes it on to both; then to the second server alone.
serve 2 two
start_pushing 3
await 60 at_least 2000 answered 3 || failed "nothing is answered"
keep_record 3 first
kill -USR1 "$job"
await 60 at_least 1 made two || failed "a signal to mpirun makes no checkpoint: $(cat two.log)"
keep_record 3 second
kill -USR1 "$(ranks_of embps-server "$dir/two" | tail -n 1)"
await 60 at_least 2 made two || failed "a signal to one server makes no checkpoint: $(cat two.log)"
expect_pushes 3
stop_pushing
kill_servers
"$embps" checkpoint verify two.saved >out 2>&1 || failed "verify: $(cat out)"

# Each is gone on from. The newest first: what was answered before the second signal; then the one before.
serve 2 two
expect_answered 3 second

# A part that fails on one server alone: no checkpoint, and its name is told; the next one is made.
start_pushing 4
echo "in the way" >two/server-1/cut
kill -USR1 "$job"
await 60 in_log two 'checkpoint checkpoint-[0-9]* (asked for by a signal) was not made: server 1: ' ||
    failed "one that cannot be made is not told: $(cat two.log)"
[ "$(made two)" = 2 ] || failed "$(made two) checkpoints instead of 2"
await 60 no_leftovers two || failed "what is left of it stays: $(ls two.saved)"
expect_pushes 4
mkdir -p two.saved/checkpoint-0000000003.partial/server-{0,1} # as one leaves that could not be removed
kill -USR1 "$job"
await 60 at_least 3 made two || failed "no checkpoint after one that failed: $(cat two.log)"
stop_pushing
end_servers
# All in all, over both runs: three passed on, one of which failed, one to a server alone; and the last one.
[ "$(logged two 'asked for by a signal')" = 3 ] || failed "signals made $(logged two 'asked for by a signal'), not 3: $(cat two.log)"
[ "$(logged two 'the last one')" = 1 ] || failed "the last one is not logged: $(cat two.log)"
in_log two 'servers cut within [0-9.]* s' || failed "what lies between the cuts is not logged"

rm -rf two
serve 2 two --resume checkpoint-0000000001
expect_answered 3 first
kill_servers

# Every so often, of three servers and of one without mpirun, which has the checkpoints of the three.
serve 3 three --checkpoint-every 0.2
start_pushing 5
await 60 at_least 2 logged three --checkpoint-every || failed "no checkpoints by time: $(cat three.log)"
keep_record 5 third
n=$(logged three --checkpoint-every)
await 60 at_least $((n + 2)) logged three --checkpoint-every || failed "no more checkpoints by time: $(cat three.log)"
expect_pushes 5
stop_pushing
kill_servers
rm -f port
"$server" --listen 127.0.0.1:0 --port-file "$dir/port" --data "$dir/three" --checkpoints "$dir/three.saved" \
    --memory 32M --checkpoint-every 0.2 --log-level info >alone.log 2>&1 </dev/null &
job=$!
await 60 test -s port || { failed "the server does not listen"; cat alone.log; exit 1; }
address=$(head -n 1 port)
expect_answered 5 third
await 60 at_least 1 logged alone --checkpoint-every || failed "none by time of a server alone: $(cat alone.log)"
mv three.saved elsewhere
await 60 in_log alone '(--checkpoint-every) was not made: .*three.saved' || failed "a folder that is gone: $(cat alone.log)"
mv elsewhere three.saved
n=$(logged alone --checkpoint-every)
await 60 at_least $((n + 1)) logged alone --checkpoint-every || failed "none once the folder is back: $(cat alone.log)"
kill -TERM "$job"
wait "$job" || failed "the server does not end well: $(cat alone.log)"
job=

# Without a folder it says so, and goes on.
rm -f port
"$server" --listen 127.0.0.1:0 --port-file "$dir/port" --data "$dir/none" --memory 16M >none.log 2>&1 </dev/null &
job=$!
await 60 test -s port || { failed "the server does not listen"; cat none.log; exit 1; }
kill -USR1 "$job"
await 60 in_log none 'start the server with --checkpoints' || failed "a signal without --checkpoints: $(cat none.log)"
kill -TERM "$job"
wait "$job" || failed "the server does not end well: $(cat none.log)"
job=

# All servers have a folder, or none of them.
code=0
"${bare[@]}" -n 1 "$server" --listen 127.0.0.1:0 --data "$dir/some" --checkpoints "$dir/some.saved" : \
    -n 1 "$server" --listen 127.0.0.1:0 --data "$dir/some" >some.log 2>&1 </dev/null || code=$?
[ $code != 0 ] && grep -q '1 of 2 servers have --checkpoints' some.log || failed "one of two with checkpoints: $code, $(cat some.log)"

# Jobs that train: the signal reaches all ranks, makes one checkpoint, and the workers go on.
make_text text 3000 500
run_options=(--kill-timeout 1 --server-arg --checkpoints --server-arg "$dir/run.saved" --server-arg --log-level
    --server-arg info)
start_training run run.log "$dir/run" 16M skipgram --corpus "$dir/text" --out "$dir/out" --dim 20 --min-count 1 \
    --epochs 1000000 --batch-words 500 --log-json "$dir/json" --quiet
await 60 test -s json || { failed "does not train"; cat run.log; }
kill -USR1 "$job"
await 60 at_least 1 logged run 'asked for by a signal' || failed "a signal to embps-run makes no checkpoint: $(cat run.log)"
lines=$(wc -l <json)
grew() { [ "$(wc -l <json)" -gt "$lines" ]; }
await 60 grew || failed "the workers do not go on: $(cat run.log)"
kill -TERM "$job"
finish_job 60
[ "$status" = 7 ] || failed "the job ends with $status: $(cat run.log)"
[ "$(logged run 'asked for by a signal')" = 1 ] || failed "one signal made several: $(cat run.log)"
"$embps" checkpoint verify run.saved >out 2>&1 || failed "verify: $(cat out)"
expect_no_jobs "a job that was asked for a checkpoint"
exit $((failures > 0))
