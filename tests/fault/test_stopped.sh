#!/usr/bin/env bash
# A stopped server (SIGSTOP) and workers that take no replies cost bounded memory on both sides: what servers may
# have is --memory + 64 MiB, a client its window and a queue. A stopped server is named, and the client goes on;
# a training ends.
# $1: build folder, $2: temporary folder.
set -euo pipefail
build=$1 dir=$2
# shellcheck source=tests/support/jobs
. "$(dirname "${BASH_SOURCE[0]}")/../support/jobs"
cd "$dir"
sanitized=no
grep -qaE '__(asan|tsan|msan)_init' "$build/embps-server" && sanitized=yes

# The server on DATA that is number N.
server_pid() # DATA N
{
    local pid file
    for pid in $(ranks_of embps-server "$1"); do
        for file in "/proc/$pid/fd/"*; do
            if [[ $(readlink "$file" 2>/dev/null) == *"$1/server-$2/"* ]]; then
                echo "$pid"
                return
            fi
        done
    done
    return 1
}

# A client and a server that stops.
mkdir hold
"${bare[@]}" -n 2 "$server" --data "$dir/data" --memory 16M : -n 1 "$client" stopped 2000 "$dir/hold" \
    >log 2>&1 </dev/null &
job=$!
await 60 test -e hold/ready || { failed "stopped: the job does not start"; cat log; }
pid=$(server_pid "$dir/data" 1)
kill -STOP "$pid"
touch hold/go
await 60 test -e hold/told || { failed "stopped: the client does not say so"; cat log; }
kill -CONT "$pid"
finish_job 60
grep -E "ms took|has not answered|pushes answered in time" log || true
sed -n 's/^a pull within \([0-9]*\) ms took \([0-9]*\) ms$/\1 \2/p' log | awk '$2 > $1 + 2000 { exit 1 } END { exit NR == 0 }' ||
    failed "stopped: a deadline was not kept"
[ "$status" = 0 ] || { failed "stopped: ends with $status"; cat log; }
rm -rf data hold

# A training whose server stops ends and names it, after --timeout.
make_text text 2000 200
run_options=(--kill-timeout 0)
start_training run log "$dir/data" 16M skipgram --corpus "$dir/text" --out "$dir/out" --min-count 1 --dim 20 \
    --epochs 100000 --batch-words 1000 --quiet --log-json "$dir/log.json" --timeout 5
await 60 grep -q words_per_s log.json || { failed "trainer: does not start"; cat log; }
kill -STOP "$(server_pid "$dir/data" 1)"
finish_job 60
[ "$status" != 0 ] || failed "trainer: ends with 0 though a server stands still"
grep -q "has not answered" log || { failed "trainer: does not name the server"; cat log; }
grep "has not answered" log | head -n 1
expect_no_output "trainer" out
rm -rf data

# Workers that take no replies while all that they may ask for is under way.
mkdir hold
"${bare[@]}" -n 2 "$server" --data "$dir/data" --memory 16M : -n 4 "$client" reader 2000 "$dir/hold" \
    >log 2>&1 </dev/null &
job=$!
all_ready() { [ -e hold/ready-0 ] && [ -e hold/ready-1 ] && [ -e hold/ready-2 ] && [ -e hold/ready-3 ]; }
await 60 all_ready || { failed "reader: the job does not start"; cat log; }
# What servers can do for such workers they have done when their memory stays the same for a while.
mapfile -t pids < <(ranks_of embps-server "$dir/data")
before='' same=0
settled()
{
    local now
    now=$(cut -d ' ' -f 2 "/proc/${pids[0]}/statm" "/proc/${pids[1]}/statm" | xargs)
    [ "$now" = "$before" ] && same=$((same + 1)) || same=0
    before=$now
    [ $same -ge 20 ]
}
(
    await 60 settled || true
    touch hold/go
) &
watch_servers "$dir/data"
finish_job 60
[ "$status" = 0 ] || { failed "reader: ends with $status"; cat log; }
for i in 0 1; do
    echo "workers that take no replies: server $i at most $((peak[i] / 1024)) MiB in $samples looks, --memory 16M"
    if [ $sanitized = no ] && [ "${peak[i]}" -gt $(((16 + 64) * 1024)) ]; then
        failed "reader: server $i had ${peak[i]} KiB"
    fi
done
expect_no_jobs "reader"
exit $((failures > 0))
