#!/usr/bin/env bash
# Exact arithmetic: 8 workers push 10,000 gradients of 1 each to the same rows of zeros, with sgd at rate 1;
# every component ends at exactly -80,000, and no reader sees a half-made change on the way.
# $1: build folder, $2: temporary folder.
set -euo pipefail
build=$1 dir=$2
# shellcheck source=tests/support/jobs
. "$(dirname "${BASH_SOURCE[0]}")/../support/jobs"
cd "$dir"

pushes=10000
[ -z "${EMBPS_TEST_SANITIZER-}" ] || pushes=1000 # the same, slower
if ! timeout 800 "${bare[@]}" -n 2 "$server" --data "$dir/data" --memory 16M : \
    -n 8 "$build/tests/exact_main" $pushes >log 2>&1 </dev/null; then
    failed "the job"
fi
grep -qx "each component is -${pushes/1/8}.0" log || failed "not exact"
cat log
exit $((failures > 0))
