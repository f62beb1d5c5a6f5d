#!/usr/bin/env bash
# embps-train over mpirun and in one process: every number of servers and workers trains to the end,
# and with one worker the vectors have the same bits whatever the servers, the memory and the way to run.
# $1: build folder, $2: temporary folder.
set -euo pipefail
build=$1 dir=$2
# shellcheck source=tests/support/trainings
. "$(dirname "${BASH_SOURCE[0]}")/../support/trainings"
cd "$dir"

# A text with something to learn, and enough of it that 8 MiB do not hold both tables: 60 groups of
# words that stand together, and words of every length; two files, one of them a single line.
grouped_text 7 4500 60 130 14 >all.txt
head -n 3000 all.txt >lines.txt
tail -n +3001 all.txt | tr '\n' ' ' >line.txt
words=$(cat lines.txt line.txt | wc -w)
options=(--corpus lines.txt line.txt --dim 100 --sample 1e-3 --min-count 3 --batch-words 3000 --quiet)
epochs=(--epochs 2)

mpi() # NAME SERVERS WORKERS MEMORY
{
    run_job "$1" "$2" --memory "$4" : "$3" "$train" "$model" "${options[@]}" "${epochs[@]}" --out "$1" \
        --out-context "$1.context" --save-vocab "$1.vocab" --log-json "$1.json"
    tail -n 1 "$1.json" | grep -q "\"event\":\"done\".*\"done\":1.0,\"words\":$((2 * words))," ||
        { echo "failed: $1 did not train all words"; tail -n 1 "$1.json"; exit 1; }
    echo "ok: $model $1"
}

alone() # NAME THREADS MEMORY
{
    timeout 800 "$train" "$model" --local --threads "$2" --data "data-$1" --memory "$3" \
        "${options[@]}" "${epochs[@]}" --out "$1" --out-context "$1.context" --save-vocab "$1.vocab"
    rm -rf "data-$1"
    echo "ok: $model $1"
}

for model in skipgram cbow; do
    mpi mpi-1-1 1 1 256M
    mpi mpi-2-1 2 1 8M
    mpi mpi-3-1 3 1 256M
    alone local-1 1 256M
    alone local-1-small 1 8M
    for other in mpi-2-1 mpi-3-1 local-1 local-1-small; do
        cmp mpi-1-1 $other
        cmp mpi-1-1.context $other.context
        cmp mpi-1-1.vocab $other.vocab
    done
done

# Tables of 16 bits are rounded by numbers that depend on the row alone, not on who keeps it where.
model=skipgram
plain=("${options[@]}")
options+=(--precision bf16)
mpi half-1-1 1 1 256M
mpi half-2-1 2 1 8M
alone half-local 1 8M
for other in half-2-1 half-local; do
    cmp half-1-1 $other
    cmp half-1-1.context $other.context
done
options=("${plain[@]}")

# Several workers: other bits each time, the same words, and vectors that have learnt the same groups.
model=skipgram
mpi mpi-2-2 2 2 64M
mpi mpi-3-2 3 2 64M
alone local-3 3 64M
for other in mpi-2-2 mpi-3-2 local-3; do
    cmp mpi-1-1.vocab $other.vocab
    test "$(cut -d ' ' -f 1 $other | tail -n +2 | sort | cksum)" = \
        "$(cut -d ' ' -f 1 mpi-1-1 | tail -n +2 | sort | cksum)"
    test "$(head -n 1 $other)" = "$(head -n 1 mpi-1-1)"
done

# A vocabulary that was saved gives what counting gives; binary files hold the same numbers.
options+=(--read-vocab mpi-1-1.vocab)
alone read 1 64M
model=cbow
alone read-cbow 1 64M
cmp read-cbow mpi-1-1
cmp read.vocab mpi-1-1.vocab
options+=(--binary)
alone binary 1 64M
test "$(head -n 1 binary)" = "$(head -n 1 mpi-1-1)"
echo "ok: vocabulary read, binary"

# A signal ends a job in order: no vectors, a status of its own, a clean data directory.
model=skipgram
timeout 800 "$train" skipgram --local --threads 2 --data data-signal --memory 64M "${options[@]}" \
    --epochs 1000000 --out stopped --log-json stopped.json 2>stopped.log &
pid=$!
until [ -s stopped.json ]; do kill -0 $pid && sleep 0.02; done
kill -TERM $pid
status=0
wait $pid || status=$?
test $status = 7
grep -q "stopped by a signal" stopped.log
test ! -e stopped
echo "ok: stopped by a signal"
