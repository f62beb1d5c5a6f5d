#!/usr/bin/env bash
# A worker whose program never connects: the servers say which one it is, again and again, and with a limit the job
# ends with that; without the script that starts jobs they cannot name it, and say so all the same.
# $1: build folder, $2: temporary folder.
set -euo pipefail
build=$1 dir=$2
# shellcheck source=tests/support/jobs
. "$(dirname "${BASH_SOURCE[0]}")/../support/jobs"
cd "$dir"

# Worker 1, the last rank, never connects.
cat >workers <<END
#!/bin/sh
mode=many
[ "\$OMPI_COMM_WORLD_RANK" != 2 ] || mode=absent
exec "$client" \$mode 10 "$dir"
END
chmod +x workers

# shellcheck disable=SC2317 # called by await
said()
{
    grep -q "connected after [0-9]* s: the job waits" log
}

run() # LIMIT
{
    rm -rf data-run
    exec "$root/scripts/embps-run" --bin-dir "$build" -s 1 -w 2 --data data-run --memory 16M \
        --server-arg "--start-timeout=$1" --worker "$dir/workers"
}

bare() # LIMIT
{
    exec "${bare[@]}" -n 1 "$server" --data "$dir/data-bare" --memory 16M --start-timeout "$1" : -n 2 "$dir/workers"
}

# On a busy machine worker 0 may come too late itself, or nobody look in time: then with more of it.
check() # run|bare STATUS WORDS
{
    local limit told
    for limit in 4 20 100; do
        "$1" $limit >log 2>&1 </dev/null &
        job=$!
        told=yes
        await 120 said || told=no
        finish_job 120
        [ $told = no ] || ! grep -qE "error: .*$3 after [0-9]+ s \(--start-timeout\)" log || break
    done
    [ $told = yes ] || { failed "$1: nothing is said of who is missing"; cat log; }
    [ "$2" = any ] && [ $status != 0 ] || [ $status = "$2" ] || { failed "$1: ends with $status"; cat log; }
    grep -qE "error: .*$3 after [0-9]+ s \(--start-timeout\)" log || { failed "$1: no \"$3\""; cat log; }
    expect_no_jobs "$1"
    echo "ok: $1, $limit s"
}

check run 22 "of 2 workers 1 has not connected"
[ ! -e data-run ] || failed "run: data-run is left"
check bare any "not all of the 3 ranks have connected"
exit $((failures > 0))
