#!/usr/bin/env bash
# Data directories in jobs that are killed, and in two jobs at once: the second is refused and the first
# unharmed; a server that is killed takes its job down, not with 0; whenever a server is killed, while it
# starts, runs or closes, its directory is then refused as one of a run that ended in order, or as not closed clean.
# $1: build folder, $2: temporary folder.
set -euo pipefail
build=$1 dir=$2
# shellcheck source=tests/support/jobs
. "$(dirname "${BASH_SOURCE[0]}")/../support/jobs"
cd "$dir"
make_text text 10 10
run_options=(--kill-timeout 0)

# Two at once.
start_holding run log "$dir/data" 16M 5000 "$dir/hold" 13
await 60 holding hold || { failed "the first job does not come up"; cat log; }
first=$job
job=
got=0
timeout 800 "${bare[@]}" -n 2 "$server" --data "$dir/data" : -n 1 "$train" skipgram --corpus "$dir/text" \
    --out "$dir/out" --min-count 1 --quiet >second.log 2>&1 || got=$?
[ $got != 0 ] || failed "the second job on a data directory ends with 0"
expect_one_report "second job" second.log "$dir/data/server-" "in use by another run"
expect_no_output "second job" out
job=$first
kill -0 "$job" || failed "the first job is gone"
touch hold/go
finish_job 60
[ $status = 0 ] || { failed "the first job ends with $status"; cat log; }
[ "$(states_of data)" = "clean clean" ] || failed "the first job's directories are: $(states_of data)"
expect_refused "ended in order" "$dir/data" "which ended in order"
echo "ok: two jobs on one data directory"

# Killed while it runs.
for how in run bare; do
    start_holding $how log "$dir/killed-$how" 16M 5000 "$dir/hold" 13
    await 60 holding hold || { failed "$how: the job does not come up"; cat log; }
    kill -KILL "$(ranks_of embps-server "$dir/killed-$how" | tail -n 1)"
    finish_job 10
    [ $status != 0 ] || failed "$how: ends with 0 though a server was killed"
    [ $how = bare ] || grep -q "embps-run: the job failed: a server was lost" log || { failed "$how: does not say it"; cat log; }
    expect_no_jobs "$how, killed server"
    [ "$(states_of "killed-$how")" = "open open" ] || failed "$how: states are $(states_of "killed-$how")"
    expect_refused "$how, killed server" "$dir/killed-$how" "not closed clean"
    echo "ok: $how, a killed server: status $status"
done

# Killed while it starts or closes, at any moment: random delays within what that takes.
seed=${EMBPS_TEST_SEED:-$RANDOM}
echo "seed $seed (EMBPS_TEST_SEED)"
RANDOM=$seed

nap_ms() # MILLISECONDS
{
    sleep "$(printf '%d.%03d' $(($1 / 1000)) $(($1 % 1000)))"
}

now_ms()
{
    echo $(($(date +%s%N) / 1000000))
}

# Every directory below DATA that a server made must be known. Before there is an identity nothing but
# the lock is in it, and a next job may have it.
expect_known() # NAME DATA
{
    local folder state
    for folder in "$2"/server-*; do
        [ -d "$folder" ] || continue
        state=$(sed -n 's/^{"format": 1, .*"state": "\(open\|clean\)"}$/\1/p' "$folder/identity.json" 2>/dev/null || true)
        if [ -z "$state" ] && find "$folder" -mindepth 1 ! -name lock ! -name 'identity.json.*' | grep -q .; then
            failed "$1: $folder is neither clean nor open"
            ls -l "$folder"
        fi
        states="$states ${state:-none}"
    done
    if [ -e "$2/server-0/identity.json" ]; then
        expect_refused "$1" "$2" "holds tables of another run"
    fi
}

# How long closing takes when nobody is killed: from the word to the workers to the end of the servers.
no_server()
{
    ! ranks_of embps-server "$dir/data"
}
rm -rf data
start_holding bare log "$dir/data" 16M 4000 "$dir/hold" 100
await 60 holding hold || failed "the job does not come up"
from=$(now_ms)
touch hold/go
until no_server >/dev/null; do sleep 0.01; done
close_ms=$(($(now_ms) - from))
finish_job 60
rm -rf data

states=
for i in 1 2 3 4 5; do
    start_holding bare log "$dir/data" 16M 4000 "$dir/hold" 100
    await 60 holding hold || failed "the job does not come up"
    victim=$(ranks_of embps-server "$dir/data" | sed -n "$((i % 2 + 1))p")
    touch hold/go
    nap_ms $((RANDOM % (close_ms + 1)))
    killed=yes
    kill -KILL "$victim" 2>/dev/null || killed=no
    finish_job 20
    expect_no_jobs "closing" # mpirun ends before all that it has killed
    [ $killed = no ] || [ $status != 0 ] || [ "$(states_of data)" = "clean clean" ] ||
        failed "closing: ends with 0, states $(states_of data)"
    states="$states |"
    expect_known "closing" "$dir/data"
    rm -rf data
done
echo "ok: killed while closing, which takes $close_ms ms: $states"

states=
for i in 1 2 3; do
    start_holding bare log "$dir/data" 16M 100 "$dir/hold" 13
    await 60 ranks_of embps-server "$dir/data" || failed "no server comes up"
    nap_ms $((RANDOM % 500))
    victim=$(ranks_of embps-server "$dir/data" | tail -n 1)
    kill -KILL "$victim" 2>/dev/null || true
    finish_job 20
    expect_no_jobs "starting"
    [ $status != 0 ] || failed "starting: ends with 0 though a server was killed"
    states="$states |"
    expect_known "starting" "$dir/data"
    rm -rf data
done
echo "ok: killed while starting: $states"
exit $((failures > 0))
