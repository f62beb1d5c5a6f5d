#!/usr/bin/env bash
# embps-train with several workers at staleness 0, bounded and asynchronous: in step the vectors have the
# same bits each time, for any number of servers, over mpirun and in one process; and in every mode workers
# whose shares differ, or are empty, come to the end.
# $1: build folder, $2: temporary folder.
set -euo pipefail
build=$1 dir=$2
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
train=$build/embps-train
cd "$dir"

awk 'BEGIN {
    srand(11)
    for (line = 0; line < 1200; line++) {
        group = int(rand() * rand() * 30)
        text = ""
        for (i = 0; i < 14; i++)
            text = text sprintf("g%dw%d ", group, int(rand() * 60))
        print text
    }
}' >text
words=$(wc -w <text)

mpi() # NAME SERVERS WORKERS MEMORY OPTION...
{
    local name=$1 servers=$2 workers=$3 memory=$4
    shift 4
    if ! timeout 60 mpirun --oversubscribe --bind-to none \
        -n "$servers" "$build/embps-server" --data "data-$name" --memory "$memory" : \
        -n "$workers" "$train" skipgram "$@" --out "$name" --log-json "$name.json" >"$name.log" 2>&1; then
        echo "failed: $name"
        cat "$name.log"
        exit 1
    fi
    rm -rf "data-$name"
    echo "ok: $name"
}

options=(--corpus text --dim 50 --epochs 2 --min-count 3 --batch-words 1500 --staleness)
mpi step-1 1 3 64M "${options[@]}" 0
mpi step-2 2 3 8M "${options[@]}" 0
mpi step-3 3 3 64M "${options[@]}" 0
timeout 60 "$train" skipgram --local --threads 3 --data data-local --memory 64M "${options[@]}" 0 --out local --quiet
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
