#!/usr/bin/env bash
# Jobs over three hosts (scripts/testnet): with servers and worker on hosts of their own the rows and the
# vectors have the bits of a job on one host; two servers and two workers, placed by the host file and
# dealt out; a signal stops all ranks in order; a host that loses its link is named and the job ends.
# Skipped where the system does not let us make hosts.
# $1: build folder, $2: temporary folder.
set -euo pipefail
build=$1 dir=$2
# shellcheck source=tests/support/jobs
. "$(dirname "${BASH_SOURCE[0]}")/../support/jobs"
cd "$dir"
enter_hosts 3 "${BASH_SOURCE[0]}" "${3-}"

# A job by embps-run must end well. HOSTS: ranks on each, servers first; "": on the head alone.
hosts_job() # NAME HOSTS SERVERS WORKERS OPTION... -- ARGUMENT...
{
    local name=$1 options=(--bin-dir "$build" -s "$3" -w "$4" --memory 16M --data "$dir/data-$1") i=0 n
    if [ -n "$2" ]; then
        for n in $2; do
            i=$((i + 1))
            [ "$n" = 0 ] || echo "node$i slots=$n"
        done >"hosts-$name"
        options+=(--hosts "hosts-$name")
    fi
    shift 4
    if ! timeout 800 "$root/scripts/embps-run" "${options[@]}" "$@" >"log-$name" 2>&1 </dev/null; then
        failed "$name"
        cat "log-$name"
    fi
    echo "ok: $name"
}

# Who runs where.
hosts_job one "" 1 1 --worker "$client" -- one 400 "$dir/rows-one"
hosts_job apart "1 1 1" 2 1 --worker "$client" -- one 400 "$dir/rows-apart"
hosts_job together "0 2 0" 1 1 --worker "$client" -- one 400 "$dir/rows-together"
for other in apart together; do
    cmp rows-one "rows-$other" || failed "rows of one host and of $other differ"
done
hosts_job crossed "1 1 2" 2 2 --worker "$client" -- many 100
hosts_job dealt "2 2 2" 3 3 --mpirun-option --map-by --mpirun-option node --worker "$client" -- many 100

# Training: text and vectors on the disk that all hosts share.
make_text text 300 200
words=$(wc -w <text)
training=(skipgram --corpus "$dir/text" --dim 40 --min-count 1 --batch-words 500 --quiet)
hosts_job train-one "" 1 1 -- "${training[@]}" --epochs 2 --out "$dir/vectors-one"
hosts_job train-apart "1 1 1" 2 1 -- "${training[@]}" --epochs 2 --out "$dir/vectors-apart"
cmp vectors-one vectors-apart || failed "vectors of one host and of three differ"
hosts_job train-crossed "1 1 2" 2 2 -- "${training[@]}" --epochs 2 --out "$dir/vectors-crossed" --log-json "$dir/json"
tail -n 1 json | grep -q "\"event\":\"done\".*\"words\":$((2 * words))," || failed "not all words were trained"
[ -z "$(find "$dir" -maxdepth 1 -name 'embps-run.*')" ] || failed "records of ranks are left"

# Told to stop, all ranks on all hosts end in order.
run_options=(--hosts hosts-crossed)
start_training run log "$dir/data" 16M "${training[@]}" --epochs 1000000 --out "$dir/stopped" --log-json "$dir/progress"
await 60 test -s progress || { failed "the training does not begin"; cat log; }
kill -TERM "$job"
finish_job 30
[ $status = 7 ] || { failed "a stopped job ends with $status"; cat log; }
[ "$(states_of data)" = "clean clean" ] || failed "the stopped job's directories are: $(states_of data)"
expect_no_output "stopped" stopped
echo "ok: a signal"

# A host with a server loses its link, and every lost rank is to end the job at once. mpirun probes its machines; the times of embps-run are for real networks.
export OMPI_MCA_oob_tcp_keepalive_time=2 OMPI_MCA_oob_tcp_keepalive_intvl=1 OMPI_MCA_oob_tcp_keepalive_probes=3
run_options+=(--end-on-loss)
start_holding run log "$dir/data-link" 16M 1000 "$dir/hold" 13
await 60 holding hold || { failed "the job does not come up"; cat log; }
"$TESTNET" link node2 down
touch hold/go
finish_job 30
[ $status != 0 ] || failed "a job that lost a host ends with 0"
grep -q "Remote daemon.*node2" log || { failed "the host is not named"; cat log; }
await 30 no_jobs_left || failed "ranks are left: $(jobs_left | xargs -r ps -o args -p)"
echo "ok: a host without its link, status $status"
exit $((failures > 0))
