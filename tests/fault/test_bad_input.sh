#!/usr/bin/env bash
# What a person gives wrong at the start of a training: the job ends within 10 s with a status other
# than 0, says why once, and leaves no output and no data directory behind.
# $1: build folder, $2: temporary folder.
set -euo pipefail
build=$1 dir=$2
# shellcheck source=tests/support/jobs
. "$(dirname "${BASH_SOURCE[0]}")/../support/jobs"
cd "$dir"
seq 400 | sed 's/.*/one two three four five/' >text
cp text kept
: >empty
printf 'each word comes once\n' >rare
printf 'one 5\ntwo x\n' >vocab
mkdir folder

# Runs a command and looks at its end. The message must stand there once, whoever could have said it.
refused() # NAME MESSAGE COMMAND...
{
    local name=$1 message=$2 times
    shift 2
    rm -rf out data
    "$@" >log 2>&1 </dev/null &
    job=$!
    finish_job 10
    times=$(grep -c -- "$message" log || true)
    if [ $status = 0 ] || [ $status -ge 124 ] || [ "$times" != 1 ] || [ -e out ] || [ -e data ] ||
        compgen -G 'out.*' >/dev/null; then
        failed "$name: status $status, message $times times"
        ls
        cat log
    else
        echo "ok: $name"
    fi
}

alone() # OPTION...
{
    echo "$train" skipgram --local --threads 2 "$@"
}
job() # SERVERS WORKERS OPTION...
{
    local servers=$1 workers=$2
    shift 2
    echo mpirun --oversubscribe --bind-to none -n "$servers" "$server" --data data --memory 8M : \
        -n "$workers" "$train" skipgram "$@"
}

both() # NAME MESSAGE OPTION...: in one process, and as a job of 2 servers and 3 workers
{
    local name=$1 message=$2
    shift 2
    # shellcheck disable=SC2046
    refused "$name, alone" "$message" $(alone --data data "$@")
    # shellcheck disable=SC2046
    refused "$name, job" "$message" $(job 2 3 "$@")
}

both "missing corpus" "nowhere.txt" --corpus text nowhere.txt --out out
both "empty corpus" "empty is empty" --corpus empty --out out
both "a folder as corpus" "folder is no regular file" --corpus folder --out out
both "everything below min count" "4 words read, 4 different ones, 0 kept" --corpus rare --out out
both "output in no folder" "no-folder/out" --corpus text --out no-folder/out
both "output that is a folder" "no regular file" --corpus text --out folder
both "output over the corpus" "a file of the corpus" --corpus text --out ./text
both "context output in no folder" "no-folder/c" --corpus text --out out --out-context no-folder/c
both "damaged vocabulary" "vocab:2:" --corpus text --out out --read-vocab vocab
both "misspelt option" "--epoch" --corpus text --out out --epoch 3
both "option out of bounds" "--negative" --corpus text --out out --negative 0
cmp text kept

# shellcheck disable=SC2046
{
    refused "memory below the minimum, alone" "--memory" \
        $(alone --data data --memory 1M --corpus text --out out)
    refused "memory below the minimum, job" "--memory" \
        mpirun --oversubscribe --bind-to none -n 2 "$server" --data data --memory 1M : \
        -n 2 "$train" skipgram --corpus text --out out
    refused "data below a file, alone" "text/data" $(alone --data text/data --corpus text --out out)
    refused "data below a file, job" "text/data" \
        mpirun --oversubscribe --bind-to none -n 2 "$server" --data text/data : \
        -n 2 "$train" skipgram --corpus text --out out
    refused "no servers" "no server" \
        mpirun --oversubscribe --bind-to none -n 3 "$train" skipgram --corpus text --out out
    refused "no workers" "no worker" \
        mpirun --oversubscribe --bind-to none -n 3 "$server" --data data
    refused "no workers and no door" "no worker: .*, or let clients come by address: give the servers --listen" \
        "$server" --data data
    refused "no mpirun" "no server" "$train" skipgram --corpus text --out out
}

# A data directory of another run is refused and left as it is.
"$train" skipgram --local --threads 1 --data taken --corpus text --out first --quiet
before=$(find taken -type f -exec cksum {} + | sort | cksum)
# shellcheck disable=SC2046
refused "data of another run, alone" "taken" $(alone --data taken --corpus text --out out)
refused "data of another run, job" "taken" \
    mpirun --oversubscribe --bind-to none -n 1 "$server" --data taken : \
    -n 2 "$train" skipgram --corpus text --out out
test "$before" = "$(find taken -type f -exec cksum {} + | sort | cksum)" || {
    echo "failed: a refused data directory was changed"
    failures=$((failures + 1))
}

# Two jobs on one data directory: the second is refused, the first goes on.
"$train" skipgram --local --threads 1 --data shared --corpus text --out busy --epochs 1000000 \
    --log-json busy.json --quiet 2>busy.log &
pid=$!
until [ -s busy.json ]; do kill -0 $pid && sleep 0.02; done
# shellcheck disable=SC2046
refused "two jobs on one data directory" "shared" $(alone --data shared --corpus text --out out)
kill -TERM $pid
status=0
wait $pid || status=$?
if [ $status != 7 ] || [ -e busy ]; then
    echo "failed: the first of two jobs ended with $status"
    failures=$((failures + 1))
fi

# --local under mpirun is refused once, whatever else is wrong, and no server is left waiting.
refused "--local among ranks" "runs alone: start it without mpirun" \
    mpirun --oversubscribe --bind-to none -n 1 "$server" --data data : \
    -n 2 "$train" skipgram --local --data data2 --corpus text --out out
refused "--local in a job without servers" "runs alone: start it without mpirun" \
    mpirun --oversubscribe --bind-to none -n 2 "$train" skipgram --local --corpus text --out out

# Runs a command and looks at its status, at a text in what it said, and at how often.
ends() # NAME STATUS TIMES MESSAGE COMMAND...
{
    local name=$1 expected=$2 times=$3 message=$4 status=0
    shift 4
    rm -rf out data
    timeout 800 "$@" >log 2>&1 || status=$?
    if [ $status != "$expected" ] || [ "$(grep -c -- "$message" log)" != "$times" ] ||
        { [ $status != 0 ] && [ -e out ]; } || { [ $status = 0 ] && [ ! -e out ]; }; then
        echo "failed: $name: status $status"
        cat log
        failures=$((failures + 1))
    else
        echo "ok: $name"
    fi
}
printf 'alpha 9223372036854775808\nbeta 9223372036854775808\n' >foreign
# shellcheck disable=SC2046
{
    ends "no word is known, alone" 2 1 "nothing was trained: of 2000 words" \
        $(alone --data data --corpus text --out out --read-vocab foreign --quiet)
    ends "no word is known, job" 2 1 "nothing was trained: of 2000 words" \
        $(job 2 1 --corpus text --out out --read-vocab foreign --quiet)
    ends "no word is known, job of two workers" 0 2 "of 2 trained nothing: of [0-9]* words" \
        $(job 1 2 --corpus text --out out --read-vocab foreign --quiet)
    ends "every word is dropped" 2 1 "nothing was trained: .*--sample 1e-12" \
        $(alone --data data --corpus text --out out --sample 1e-12)
    ends "a vocabulary of a file" 2 1 "text: 2000 words; vocabulary of 2 words from foreign" \
        $(alone --data data --corpus text --out out --read-vocab foreign)
    ends "divergence" 2 1 "the training diverged (rate .*): lower --alpha; .*push to table" \
        $(alone --data data --corpus text --out out --alpha 10 --epochs 50)
}

# Who reads the progress leaves: the training goes on.
exec 3> >(:)
wait $!
rm -rf out data
status=0
"$train" skipgram --local --threads 2 --data data --corpus text --out out 2>&3 || status=$?
exec 3>&-
if [ $status != 0 ] || [ ! -s out ]; then
    echo "failed: a reader of the progress that leaves: status $status"
    failures=$((failures + 1))
else
    echo "ok: a reader of the progress that leaves"
fi
exit $((failures > 0))
