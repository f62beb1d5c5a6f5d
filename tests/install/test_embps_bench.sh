#!/bin/bash
# embps-bench measures something, and refuses what it does not know.
set -u
bench=$1/embps-bench
folder=$2

"$bench" kernel --seconds 0.01 --words 100 --dim 7 --json | grep -qE \
    '^\{"dim": 7, "words": 100, "cache": \{"windows_per_s": [1-9][0-9]*, .*"tables": \{"windows_per_s": [1-9]' || {
    echo "no measurement in JSON"
    exit 1
}
"$bench" kernel --seconds 0.01 --words 16 | grep -q 'rows in the cache .* windows/s' || {
    echo "no measurement in words"
    exit 1
}
if "$bench" kernel --dim 0 2>/dev/null || "$bench" kernel --bogus 2>/dev/null; then
    echo "a wrong option was accepted"
    exit 1
fi
"$bench" pages --most 1024 --seconds 0.001 --repeats 1 --json | grep -cE \
    '^\{"pages": [0-9]+, "lines_kib": [0-9]+, "ns": [0-9.]*[1-9][0-9.]*\}$' | grep -qx 3 || {
    echo "not one line for each number of pages"
    exit 1
}
"$bench" door --rows 300 --dim 7 --seconds 0.01 --repeats 1 --json --dir "$folder" | grep -cE \
    '^\{"bench": "door\.(pull|push)", "dim": 7, "batch": 300, .*"rows_per_s": [1-9].*"ratio": [0-9.]*[1-9]' | grep -qx 2 || {
    echo "not one line for pulls and one for pushes by address"
    exit 1
}
"$bench" watch --rows 300 --dim 7 --seconds 0.01 --repeats 1 --json --dir "$folder" | grep -cE \
    '^\{"bench": "watch\.(one|four|slow|unread)", "dim": 7, "batch": 300, .*"rows_per_s": [1-9].*"ratio": [0-9.]*[1-9]' | grep -qx 4 || {
    echo "not one line for each kind of watcher"
    exit 1
}
"$1/embps-server" --data "$folder/pulls" --memory 16M --listen 127.0.0.1:0 --port-file "$folder/port" 2>"$folder/log" &
server=$!
trap 'kill "$server" 2>/dev/null' EXIT
until [ -s "$folder/port" ] || ! kill -0 "$server" 2>/dev/null; do
    sleep 0.05
done
if ! "$bench" pulls --address "$(cat "$folder/port")" --rows 100 --dim 3 --pulls 2 || "$bench" pulls --rows 0 2>/dev/null; then
    echo "no pulls from a server that runs: $(cat "$folder/log")"
    exit 1
fi
kill "$server"
wait "$server" || {
    echo "the server ends badly: $(cat "$folder/log")"
    exit 1
}
if "$bench" bogus 2>/dev/null || "$bench" 2>/dev/null; then
    echo "a wrong command was accepted"
    exit 1
fi
"$bench" --help | grep -q '^  store ' || {
    echo "no list of commands"
    exit 1
}

# The store: one object a line with these keys, for every bench, beside all it is compared with.
"$bench" store --json --rows 6000 --seconds 0.002 --repeats 1 --dim 12 --batch 64 \
    --cold-share 0.5 --dir "$folder" >"$folder/lines" || {
    echo "embps-bench store failed"
    exit 1
}
python3 - "$folder/lines" <<'END' || exit 1
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1], encoding="ascii")]
keys = {"bench", "dim", "batch", "dist", "rows_per_s", "against", "ratio"}
assert all(keys <= set(line) for line in lines), lines
assert all(line["rows_per_s"] > 0 and line["ratio"] > 0 for line in lines), lines
seen = {(line["bench"], line["dist"], line["against"], line["dim"]) for line in lines}
wanted = {(f"store.{name}", dist, against, 12) for name, against in
          (("pull.hot", "plain"), ("push.sgd", "plain"), ("push.adagrad", "plain"),
           ("pull.cold", "rocksdb"), ("push.cold", "rocksdb")) for dist in ("uniform", "zipf")}
wanted |= {("store.pull.tenth", "zipf", against, 12) for against in ("rocksdb", "bound")}
assert seen == wanted, seen ^ wanted
END
if [ -n "$(find "$folder" -name 'embps-bench-*')" ]; then
    echo "data was left behind"
    exit 1
fi
# One bench alone, in steps, with ids of one's own; and as a table.
python3 -c 'import struct, sys; sys.stdout.buffer.write(struct.pack("<100Q", *range(100)))' >"$folder/ids"
if [ "$(printf '\n\n\n' | "$bench" store --bench store.push.adagrad --rows 100 --dim 8 --batch 50 \
    --ids "$folder/ids" --stepwise --json --seconds 0.001 --dir "$folder" |
    grep -c '"dist": "given".*"against": "none"')" != 3 ]; then
    echo "not one line for each step"
    exit 1
fi
"$bench" store --bench store.pull.hot --rows 1000 --dim 8 --batch 50 --dist zipf --seconds 0.001 \
    --repeats 1 --dir "$folder" | grep -q '^store.pull.hot .* 8 .* 50 zipf .* plain ' || {
    echo "no table"
    exit 1
}
if "$bench" store --bench store.bogus 2>/dev/null || "$bench" store --batch 0 2>/dev/null; then
    echo "a wrong option of store was accepted"
    exit 1
fi

# The wire: one object a line for each bench beside the exchange, and beside redis where that is.
if timeout 800 "$bench" wire --json --rows 2000 --seconds 0.002 --repeats 1 --dim 12 --batch 64 700 --in-flight 1 3 \
    --dir "$folder" >"$folder/lines" 2>"$folder/said"; then
    python3 - "$folder/lines" "$folder/said" <<'END' || exit 1
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1], encoding="ascii")]
keys = {"bench", "dim", "batch", "dist", "in_flight", "rows_per_s", "against", "ratio"}
assert all(keys <= set(line) for line in lines), lines
assert all(line["rows_per_s"] > 0 and line["ratio"] > 0 for line in lines), lines
seen = {(line["bench"], line["batch"], line["in_flight"]) for line in lines if line["against"] == "exchange"}
wanted = {(f"wire.mpi.{name}", batch, n) for name in ("pull", "push") for batch in (64, 700) for n in (1, 3)}
assert seen == wanted, seen ^ wanted
direct = {(line["against"], line["batch"], line["in_flight"]) for line in lines
          if line["bench"] == "wire.direct.pull" and line["against"] != "redis"}
wanted = {(against, batch, n) for against in ("gather", "wire.mpi.pull") for batch in (64, 700) for n in (1, 3)}
said = open(sys.argv[2], encoding="utf-8").read()
assert direct == (set() if "no wire.direct.pull" in said else wanted), direct ^ wanted
END
else
    echo "embps-bench wire failed"
    cat "$folder/said"
    exit 1
fi
if [ -n "$(find "$folder" -name 'embps-bench-*')" ]; then
    echo "data of wire was left behind"
    exit 1
fi
if "$bench" wire --bench wire.bogus 2>/dev/null || "$bench" wire --in-flight 65 2>/dev/null; then
    echo "a wrong option of wire was accepted"
    exit 1
fi

# What a client does to a batch: no allocation, and one object a line for each bench.
"$bench" batch --json --rows 5000 --seconds 0.001 --repeats 1 --dim 12 --batch 64 900 >"$folder/lines" || {
    echo "embps-bench batch failed"
    exit 1
}
for name in split merge restore; do
    if [ "$(grep -c "^{\"bench\": \"batch.$name\", \"dim\": 12, .*\"against\": \"copy\", \"ratio\": [0-9]" "$folder/lines")" != 4 ]; then
        echo "not all of batch.$name"
        exit 1
    fi
done
if "$bench" batch --bench batch.bogus 2>/dev/null || "$bench" batch --dist bogus 2>/dev/null; then
    echo "a wrong option of batch was accepted"
    exit 1
fi

# A table that outgrows its memory: a heading and one line of ten numbers for each size.
"$bench" grow --rows 5000 --first 1000 --dim 8 --memory 8M --batch 64 --seconds 0.001 --dir "$folder" >"$folder/csv" || {
    echo "embps-bench grow failed"
    exit 1
}
if [ "$(cut -d, -f1 "$folder/csv" | tr '\n' ' ')" != "rows 1000 2000 5000 " ] ||
    grep -vqE '^([^,]+,){9}[^,]+$' "$folder/csv"; then
    echo "wrong CSV:"
    cat "$folder/csv"
    exit 1
fi
