#!/usr/bin/env bash
# The tool on real vectors: GloVe's first 20,000 words answer 67.6% of the 12,363 analogies that they
# know, neighbours are sensible, errors have words and codes. Skipped where the shared data are not.
# $1: build folder, $2: temporary folder.
set -euo pipefail
build=$1 dir=$2
embps=$build/embps
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
data=${EMBPS_SHARED_DATA:-$source/../shared/data}

fail()
{
    echo "failed: $*"
    exit 1
}

# Expects exit code $1 and $2 in the error of the rest.
refused()
{
    local code=$1 words=$2 got=0
    shift 2
    "$@" >"$dir/out" 2>"$dir/err" || got=$?
    [ "$got" = "$code" ] || fail "exit code $got instead of $code: $*"
    grep -qF -- "$words" "$dir/err" || fail "no \"$words\" in: $(cat "$dir/err")"
    [ "$(wc -l <"$dir/err")" = 1 ] || fail "more than one line: $(cat "$dir/err")"
}

printf 'king 1 0.1\nqueen 1 0.2\ncar -1 0\n' >"$dir/small.txt"
printf 'king queen 9\nking car 1\n' >"$dir/pairs"
printf ': broken\nking queen car\n' >"$dir/questions"
"$embps" nearest --vectors "$dir/small.txt" --top 1 king | grep -q queen || fail "nearest"
"$embps" nearest --vectors "$dir/small.txt" --json king >"$dir/json"
grep -q '"cosine"' "$dir/json" || fail "nearest --json"
refused 3 'close to it: queen' "$embps" nearest --vectors "$dir/small.txt" quen
refused 3 'quen' "$embps" analogy --vectors "$dir/small.txt" king quen car
refused 2 'three words' "$embps" analogy --vectors "$dir/small.txt" king queen
refused 2 'vectors' "$embps" nearest king
refused 2 'no command "shout"' "$embps" shout
refused 3 'nowhere.txt' "$embps" nearest --vectors "$dir/nowhere.txt" king
refused 5 'gzip' "$embps" nearest --vectors <(printf '\037\213\010') king
refused 42 'line 2' "$embps" eval --vectors "$dir/small.txt" --similarity "$dir/pairs" --analogy "$dir/questions"
[ -s "$dir/out" ] && fail "half a report"
refused 41 'output' bash -c "'$embps' nearest --vectors '$dir/small.txt' king >/dev/full"
for program in embps embps-server embps-train embps-bench embps-bench-policy; do
    [ $program != embps-bench-policy ] || program=tests/$program
    for page in --help --version; do
        refused 41 'cannot write the output' bash -c "'$build/$program' $page >/dev/full"
    done
done
for command in "embps plan --rows 9 --dim 9" "embps plan --help" "embps checkpoint list --help" "embps-train cbow --help" "embps-bench store --help"; do
    refused 41 'cannot write the output' bash -c "'$build'/$command >/dev/full"
done
for page in --help --version; do
    if "$source/scripts/embps-run" --bin-dir "$build" $page >/dev/full 2>"$dir/err" || [ ! -s "$dir/err" ]; then
        fail "embps-run $page"
    fi
done
"$embps" eval --vectors "$dir/small.txt" --similarity "$dir/pairs" | grep -q 'spearman  1.000' || fail "eval"
echo "ok: small files and errors"

if [ ! -r "$data/vectors/glove.6B.100d.top20000.txt.xz" ]; then
    echo "skipped: no $data/vectors (set EMBPS_SHARED_DATA)"
    exit 77
fi
xz -dc "$data/vectors/glove.6B.100d.top20000.txt.xz" >"$dir/glove.txt"
"$embps" eval --vectors "$dir/glove.txt" --similarity "$data"/eval/EN-*.txt \
    --analogy "$data/eval/questions-words.txt" | tee "$dir/report"
grep -q 'accuracy 67.6%  12363 of 19544 questions known' "$dir/report" || fail "analogies of GloVe"
grep -q 'EN-WS-353-ALL.txt .*324 of 353 pairs known' "$dir/report" || fail "pairs of GloVe"
"$embps" analogy --vectors "$dir/glove.txt" --top 1 man king woman | grep -q queen || fail "king"
# A pipe, and only a part of the words.
xz -dc "$data/vectors/glove.6B.100d.top20000.txt.xz" >"$dir/pipe.txt"
"$embps" eval --vectors <(cat "$dir/pipe.txt") --restrict 1000 --json \
    --analogy "$data/eval/questions-words.txt" | grep -q '"used": 1000' || fail "--restrict"
echo "ok: GloVe"
