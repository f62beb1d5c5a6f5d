#!/usr/bin/env bash
# embps-train with several workers at staleness 0, bounded and asynchronous: in step the vectors have the
# same bits each time, for any number of servers, over mpirun and in one process; and in every mode workers
# whose shares differ, or are empty, come to the end.
# $1: build folder, $2: temporary folder.
set -euo pipefail
build=$1 dir=$2
# shellcheck source=tests/support/trainings
. "$(dirname "${BASH_SOURCE[0]}")/../support/trainings"
cd "$dir"

grouped_text 11 1200 30 60 14 >text
words=$(wc -w <text)

mpi() # NAME SERVERS WORKERS MEMORY OPTION...
{
    local name=$1 servers=$2 workers=$3 memory=$4
    shift 4
    run_job "$name" "$servers" --memory "$memory" : "$workers" "$train" skipgram "$@" --out "$name" \
        --log-json "$name.json"
    echo "ok: $name"
}

options=(--corpus text --dim 50 --epochs 2 --min-count 3 --batch-words 1500 --staleness)
mpi step-1 1 3 64M "${options[@]}" 0
mpi step-2 2 3 8M "${options[@]}" 0
mpi step-3 3 3 64M "${options[@]}" 0
timeout 800 "$train" skipgram --local --threads 3 --data data-local --memory 64M "${options[@]}" 0 --out local --quiet
for other in step-2 step-3 local; do
    cmp step-1 $other
done
mpi bounded 2 3 16M "${options[@]}" 2
mpi free 2 3 16M "${options[@]}" async
for name in step-1 bounded free; do
    tail -n 1 $name.json | grep -q "\"event\":\"done\".*\"done\":1.0,\"words\":$((2 * words))," ||
        { echo "failed: $name did not train all words"; tail -n 1 $name.json; exit 1; }
done

# One long word fills the shares of the first workers; the last one has all the others.
{
    printf '%04000d\n' 0
    head -n 15 text
} >uneven
for staleness in 0 1 async; do
    mpi uneven-$staleness 2 4 8M --corpus uneven --dim 20 --batch-words 20 --min-count 1 --sample 0 \
        --staleness $staleness
    grep -q "no words of corpus uneven are in its share" uneven-$staleness.log ||
        { echo "failed: no worker was without words"; cat uneven-$staleness.log; exit 1; }
done
