#!/usr/bin/env bash
# embps-train with a cache: at staleness 0 no bit changes; otherwise one worker learns the same as without,
# several learn as well, and in each case far fewer bytes travel.
# $1: build folder, $2: temporary folder.
set -euo pipefail
build=$1 dir=$2
# shellcheck source=tests/support/trainings
. "$(dirname "${BASH_SOURCE[0]}")/../support/trainings"
cd "$dir"

grouped_text 11 4000 40 40 12 >text.txt

train() # NAME SERVERS WORKERS OPTIONS...
{
    local name=$1 servers=$2 workers=$3
    shift 3
    run_job "$name" "$servers" --memory 64M : "$workers" "$train" skipgram --corpus text.txt --dim 40 \
        --min-count 3 --sample 0 --batch-words 500 --epochs 2 --quiet --out "$name" --log-json "$name.json" "$@"
    echo "ok: $name: loss $(field loss "$name"), $(bytes "$name") bytes"
}

field() # FIELD NAME
{
    tail -n 1 "$2.json" | sed -E "s/.*\"$1\":([^,}]*).*/\1/"
}

bytes() # NAME
{
    echo $(($(field bytes_in "$1") + $(field bytes_out "$1")))
}

# The share of a word's ten nearest that are of its group, over the words that are most frequent.
same_group() # NAME
{
    awk 'FNR == 1 { dim = $2; next }
        FNR <= 201 {
            word[FNR] = $1
            norm = 0
            for (i = 1; i <= dim; i++) { v[FNR, i] = $(i + 1); norm += $(i + 1) ^ 2 }
            for (i = 1; i <= dim; i++) v[FNR, i] /= sqrt(norm) + 1e-9
            n = FNR
        }
        END {
            for (a = 2; a <= n; a++) {
                best = -2
                for (b = 2; b <= n; b++) {
                    if (a == b) continue
                    dot = 0
                    for (i = 1; i <= dim; i++) dot += v[a, i] * v[b, i]
                    if (dot > best) { best = dot; nearest = b }
                }
                split(word[a], x, "w"); split(word[nearest], y, "w")
                same += x[1] == y[1]
            }
            printf "%d\n", 100 * same / (n - 1)
        }' "$1"
}

fewer() # NAME THAN PERCENT
{
    if [ $(($(bytes "$1") * 100)) -gt $(($(bytes "$2") * $3)) ]; then
        echo "failed: $1 moved $(bytes "$1") bytes, $2 $(bytes "$2"): more than $3%"
        exit 1
    fi
}

as_good() # NAME AS
{
    local one other
    one=$(same_group "$1") other=$(same_group "$2")
    echo "of $1 $one%, of $2 $other% of words lie beside one of their group"
    if [ "$one" -lt $((other - 5)) ] || [ "$other" -lt 60 ]; then
        echo "failed: $1 has learnt less than $2"
        exit 1
    fi
}

train step 1 2 --staleness 0
train step-cache 2 2 --staleness 0 --cache 8M
cmp step step-cache

train one 1 1
train one-cache 2 1 --cache 8M --flush 16
train one-small 3 1 --cache 200K --flush 8
fewer one-cache one 40
as_good one-cache one
as_good one-small one

train two 2 2
train two-cache 2 2 --cache 8M --flush 16
train two-bounded 1 2 --cache 8M --flush 4 --staleness 2
fewer two-cache two 80
as_good two-cache two
as_good two-bounded two

if "$build/embps-train" skipgram --local --data x --corpus text.txt --out y --flush 3 2>refused; then
    echo "failed: --flush without --cache"
    exit 1
fi
grep -q "no effect without --cache" refused
