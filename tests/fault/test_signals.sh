#!/usr/bin/env bash
# SIGTERM and SIGINT to embps-run, to a bare mpirun, to one worker, and to a training in one process: the job ends in
# order with status 7, says so once, writes no vectors and leaves no process. Its directories are closed
# clean; a bare mpirun gives its ranks one second, so there they may also be known as not closed clean.
# $1: build folder, $2: temporary folder.
set -euo pipefail
build=$1 dir=$2
# shellcheck source=tests/support/jobs
. "$(dirname "${BASH_SOURCE[0]}")/../support/jobs"
cd "$dir"
make_text text 5000 5000
run_options=(--kill-timeout 1) # what mpirun waits at the end, twice

# A bare mpirun kills its ranks after a second, or as many as it is told; ranks that hardly get to run have said
# nothing by then, and get more of them.
seconds=(1 10 60)
for how in run bare local; do
    for signal in TERM INT; do
        name="SIG$signal to $how"
        for second in "${seconds[@]}"; do
            data=$dir/data-$how-$signal
            rm -rf "$data" json
            export OMPI_MCA_odls_base_sigkill_timeout=$second
            start_training $how log "$data" 16M skipgram --corpus "$dir/text" --out "$dir/out" --dim 50 \
                --min-count 1 --epochs 1000000 --batch-words 500 --log-json json --quiet
            await 60 test -s json || { failed "$name: does not train"; cat log; }
            start=$SECONDS
            kill -$signal $job
            finish_job $((30 + second))
            [ $how = bare ] && [ -z "$(reports log)" ] || break
        done
        unset OMPI_MCA_odls_base_sigkill_timeout
        states=$(states_of "$data")
        echo "$name: status $status after $((SECONDS - start)) s, states $states"
        if [ $how = bare ]; then
            [ $status != 0 ] || failed "$name: ends with 0"
            [[ $states =~ ^(clean|open)\ (clean|open)$ ]] || failed "$name: states are $states"
        else
            [ $status = 7 ] || failed "$name: ends with $status, not 7"
            [[ $states =~ ^clean(\ clean)?$ ]] || failed "$name: states are $states"
        fi
        expect_one_report "$name" log "stopped by a signal; no vectors were written"
        expect_no_output "$name" out
        expect_no_jobs "$name"
        rm -f json
    done
done

# A signal to one worker ends the others too, which would otherwise train to their end for nothing.
for victim in head tail; do
    name="SIGTERM to one worker ($victim)"
    data=$dir/data-one-$victim
    start_training run log "$data" 16M skipgram --corpus "$dir/text" --out "$dir/out" --dim 50 \
        --min-count 1 --epochs 1000000 --batch-words 500 --log-json json --quiet
    await 60 test -s json || { failed "$name: does not train"; cat log; }
    start=$SECONDS
    kill -TERM "$(pgrep -f "^[^ ]*/embps-train .*$dir/out" | $victim -n 1)"
    finish_job 30
    echo "$name: status $status after $((SECONDS - start)) s, states $(states_of "$data")"
    [ $status = 7 ] || failed "$name: ends with $status, not 7"
    [ "$(states_of "$data")" = "clean clean" ] || failed "$name: states are $(states_of "$data")"
    expect_one_report "$name" log "no vectors were written"
    expect_no_output "$name" out
    expect_no_jobs "$name"
    rm -f json
done
expect_refused "after a signal" "$dir/data-run-TERM" "which ended in order"
exit $((failures > 0))
