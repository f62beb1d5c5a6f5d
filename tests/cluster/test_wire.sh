#!/usr/bin/env bash
# Trainings with every format on the wire: with one worker the vectors have the same bits for 1, 2 and 3
# servers and in one process, and so with two at staleness 0; the loss is that of float32 within 1%, and
# as many bytes fewer go over the wire as the format says.
# $1: build folder, $2: temporary folder.
set -euo pipefail
build=$1 dir=$2
# shellcheck source=tests/support/trainings
. "$(dirname "${BASH_SOURCE[0]}")/../support/trainings"
cd "$dir"

grouped_text 11 1500 40 60 14 >text
options=(--corpus text --dim 60 --sample 0 --min-count 2 --batch-words 2000 --epochs 3 --alpha 0.1 --quiet)

mpi() # NAME SERVERS WIRE [WORKERS OPTION...]
{
    local name=$1 servers=$2 wire=$3 workers=${4:-1}
    shift $(($# > 4 ? 4 : $#))
    run_job "$name" "$servers" --memory 64M : "$workers" "$train" skipgram "${options[@]}" --wire "$wire" \
        --out "$name" --log-json "$name.json" "$@"
}

field() # NAME FIELD
{
    tail -n 1 "$1.json" | grep -o "\"$2\":[0-9.]*" | cut -d : -f 2
}

within() # A B LOW HIGH: A / B
{
    awk -v a="$1" -v b="$2" -v low="$3" -v high="$4" 'BEGIN { exit !(a >= low * b && a <= high * b) }' ||
        { echo "failed: $1 beside $2, not $3 to $4 of it"; exit 1; }
}

mpi f32 1 f32
for wire in bf16 f16 int8 pull=bf16,push=int8; do
    for servers in 1 2 3; do
        [ "$wire $servers" != "pull=bf16,push=int8 2" ] || continue
        mpi "$wire-$servers" $servers $wire
        cmp "$wire-1" "$wire-$servers"
    done
    within "$(field $wire-1 loss)" "$(field f32 loss)" 0.99 1.01
    ! cmp -s f32 "$wire-1"
    echo "ok: $wire, loss $(field $wire-1 loss) beside $(field f32 loss)"
done
# Beside its numbers a row of 60 has an id, and a message its header.
for way in in out; do
    within "$(field bf16-1 bytes_$way)" "$(field f32 bytes_$way)" 0.45 0.6
    within "$(field int8-1 bytes_$way)" "$(field f32 bytes_$way)" 0.2 0.36
done
within "$(field pull=bf16,push=int8-1 bytes_in)" "$(field bf16-1 bytes_in)" 0.999 1.001
within "$(field pull=bf16,push=int8-1 bytes_out)" "$(field int8-1 bytes_out)" 0.999 1.001

# With checksums nothing else is another, and each message is 24 bytes longer.
EMBPS_CHECKSUMS=1 mpi checked 1 f32
cmp f32 checked
for way in in out; do
    within "$(field checked bytes_$way)" "$(field f32 bytes_$way)" 1.00005 1.01
done
echo "ok: checksums, $(field checked bytes_in) bytes in beside $(field f32 bytes_in)"

# Rows of several workers are decoded before they are summed, wherever they are.
for servers in 1 3; do
    mpi "sums-$servers" $servers pull=f16,push=int8 2 --staleness 0
done
cmp sums-1 sums-3
echo "ok: two workers at staleness 0"

timeout 800 "$train" skipgram --local --threads 1 --data data-local --memory 64M "${options[@]}" \
    --wire int8 --out local
cmp local int8-1
echo "ok: bytes, and the same in one process"
