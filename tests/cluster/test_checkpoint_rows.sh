#!/usr/bin/env bash
# embps checkpoint diff --rows against exports of the same moments, compared by Python: tables with state, of 16 bits,
# with rows that come late; checkpoints that rest on others, with most rows out of memory; 3 servers and 4.
# $1: build folder, $2: temporary folder.
set -euo pipefail
build=$1 dir=$2
# shellcheck source=tests/support/jobs
. "$(dirname "${BASH_SOURCE[0]}")/../support/jobs"
cd "$dir"
embps=$build/embps
tables=(adam ftrl momentum adagrad)
n_made=0

# Servers without workers, and their address.
serve() # N NAME
{
    rm -f port
    "${bare[@]}" -n "$1" "$server" --listen 127.0.0.1:0 --port-file "$dir/port" --data "$dir/$2" --memory 8M \
        --checkpoints "$dir/saved" --keep 20 >"$2.log" 2>&1 </dev/null &
    job=$!
    await 120 test -s port || { failed "$1 servers do not listen"; cat "$2.log"; exit 1; }
    address=$(head -n 1 port)
}
stop()
{
    end_jobs
    { wait "$job" || true; } 2>/dev/null
    job=
    await 60 no_jobs_left || failed "servers stay"
}
# Steps, a checkpoint, and an export of the same rows.
save() # FROM TO
{
    local table
    "$build/tests/steps_main" "$address" "$1" "$2" || { failed "steps $1 to $2"; exit 1; }
    "$embps" checkpoint "$address" >name || { failed "no checkpoint: $(cat name)"; exit 1; }
    n_made=$((n_made + 1))
    [ "$(cat name)" = "$(name_of $n_made)" ] || failed "checkpoint $(cat name), not $(name_of $n_made)"
    for table in "${tables[@]}"; do
        "$embps" export "$address" "$table" --output "$n_made.$table" >/dev/null || { failed "no export"; exit 1; }
    done
}
name_of() # N
{
    printf 'checkpoint-%010d' "$1"
}
diff_rows() # FIRST SECOND OPTION...
{
    local first=$1 second=$2
    shift 2
    "$embps" checkpoint diff saved "$(name_of "$first")" "$(name_of "$second")" --rows "$@"
}

# What the tool says of FIRST and SECOND is what the exports say.
check() # FIRST SECOND OPTION...
{
    diff_rows "$@" --json --top 40 >told.json || { failed "no diff of $1 and $2"; return; }
    python3 - "$1" "$2" "${tables[@]}" <<'END' || failed "another diff of $1 and $2"
import array, json, math, struct, sys

def rows_of(path):
    file = open(path, "rb")
    assert file.read(8) == b"embpsrow"
    version, dim, state, flags, n_options = struct.unpack("<5I", file.read(20))
    file.read(n_options + 8)
    rows = {}
    while n := struct.unpack("<I", file.read(4))[0]:
        ids = struct.unpack(f"<{n}Q", file.read(8 * n))
        file.read(8 * n)
        states, weights = file.read(4 * state * n), file.read(4 * dim * n)
        file.read(8)
        for i, row in enumerate(ids):
            assert row not in rows, row
            rows[row] = (weights[4 * dim * i:4 * dim * (i + 1)], states[4 * state * i:4 * state * (i + 1)])
    return rows

tables = json.load(open("told.json"))["tables"]
told = {table["name"]: table["rows"] for table in tables}
assert all((table["change"] == "none") == (table["rows"]["same"] == max(table["rows"]["rows"])) for table in tables), tables
assert set(told) == set(sys.argv[3:]), set(told)
for table in sys.argv[3:]:
    first, second = (rows_of(f"{n}.{table}") for n in sys.argv[1:3])
    both = [row for row in first if row in second]
    changed = [row for row in both if first[row][0] != second[row][0]]
    state = [row for row in both if first[row][0] == second[row][0] and first[row][1] != second[row][1]]
    def norm(row):
        a, b = (array.array("f", side[row][0]) for side in (first, second))
        return math.sqrt(sum((x - y) ** 2 for x, y in zip(a, b)))
    found = told[table]
    wanted = {"rows": [len(first), len(second)], "added": len(second) - len(both), "removed": len(first) - len(both),
              "changed": len(changed), "state_changed": len(state), "same": len(both) - len(changed) - len(state)}
    assert {key: found[key] for key in wanted} == wanted, (table, wanted, found)
    norms = sorted(((norm(row), -row) for row in changed), reverse=True)
    assert len(found["largest"]) == min(40, len(norms))
    for (wanted_norm, row), line in zip(norms, found["largest"]):
        assert math.isclose(line["norm"], wanted_norm, rel_tol=1e-8), (table, row, line, wanted_norm)
        assert line["id"] == str(-row) and line["word"] is None, (table, row, line)
    print(f"{sys.argv[1]} -> {sys.argv[2]}, {table}: {wanted}")
END
}

serve 3 data
save 0 60
save 60 61
save 61 62
stop
serve 4 data-4
save 62 64
save 64 64
stop
check 1 3
check 2 3 --memory 8M
check 1 4
check 4 1
check 3 5
check 4 5
[ -n "$(find "saved/$(name_of 3)" -name 'rows-*')" ] || failed "no checkpoint rests on another"

diff_rows 1 4 --top 2 >told || failed "no text"
grep -q '^  rows: [0-9]* -> [0-9]*; [1-9][0-9]* added, 0 removed, [1-9][0-9]* changed, ' told || failed "$(cat told)"
[ "$(grep -c 'L2 of change' told)" = 4 ] || failed "not four tables: $(cat told)"
grep -A3 'L2 of change' told | grep -c '^  [0-9]' >count || true
[ "$(cat count)" = 8 ] || failed "not two rows of each table: $(cat told)"

# What is damaged is named, and nothing is said of it.
victim=$(find "saved/$(name_of 3)/server-1" -name rows)
python3 - "$victim" <<'END'
import os, sys
bytes = bytearray(open(sys.argv[1], "rb").read())
bytes[len(bytes) // 2] ^= 1
os.unlink(sys.argv[1])
open(sys.argv[1], "wb").write(bytes)
END
if diff_rows 3 4 >told 2>said; then failed "a damaged file is compared"; fi
grep -q "$victim is damaged" said || failed "the damaged file is not named: $(cat said)"
[ ! -s told ] || failed "something is said of half a checkpoint: $(cat told)"
if "$embps" checkpoint list saved --rows >/dev/null 2>said; then failed "list takes --rows"; fi
grep -q -- '--rows is for diff' said || failed "$(cat said)"
exit $((failures > 0))
