#!/usr/bin/env bash
# A few of the combinations of consistency, cache, format on the wire and numbers of ranks: the same loss within 1%,
# the same bits where these are promised. All of them, by hand: tests/bench/matrix.
# $1: build folder, $2: temporary folder.
set -euo pipefail
matrix=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)/tests/bench/matrix
sample=6
[ -z "${EMBPS_TEST_SANITIZER-}" ] || sample=2
cd "$2"
TMPDIR=$2 timeout 800 "$matrix" --build "$1" --sample $sample ${EMBPS_TEST_SEED:+--seed "$EMBPS_TEST_SEED"}
