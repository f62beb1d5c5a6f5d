#!/bin/bash
# embps-bench measures something, and refuses what it does not know.
set -u
bench=$1/embps-bench

"$bench" --seconds 0.01 --words 100 --dim 7 --json | grep -qE \
    '^\{"dim": 7, "words": 100, "cache": \{"windows_per_s": [1-9][0-9]*, .*"tables": \{"windows_per_s": [1-9]' || {
    echo "no measurement in JSON"
    exit 1
}
"$bench" --seconds 0.01 --words 16 | grep -q 'rows in the cache .* windows/s' || {
    echo "no measurement in words"
    exit 1
}
if "$bench" --dim 0 2>/dev/null || "$bench" --bogus 2>/dev/null; then
    echo "a wrong option was accepted"
    exit 1
fi
