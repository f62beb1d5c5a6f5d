#!/usr/bin/env bash
# Tables that 3 servers saved go on with 1, 2, 5 and 8, are pushed to and saved there, and go on with 3 again: each time
# all rows, their optimizer's state and their counts are to the last bit those of servers that nothing happened to.
# $1: build folder, $2: temporary folder.
set -euo pipefail
build=$1 dir=$2
# shellcheck source=tests/support/jobs
. "$(dirname "${BASH_SOURCE[0]}")/../support/jobs"
cd "$dir"
embps=$build/embps
tables=(adam ftrl momentum adagrad)
numbers=(1 2 5 8)
[ -z "${EMBPS_TEST_SANITIZER:-}" ] || numbers=(5) # where all is slow

# Servers without workers, and their address.
serve() # N NAME MEMORY OPTION...
{
    local n=$1 name=$2 memory=$3
    shift 3
    rm -f port
    "${bare[@]}" -n "$n" "$server" --listen 127.0.0.1:0 --port-file "$dir/port" --data "$dir/$name" --memory "$memory" \
        "$@" >"$name.log" 2>&1 </dev/null &
    job=$!
    await 120 test -s port || { failed "$n servers do not listen"; cat "$name.log"; exit 1; }
    address=$(head -n 1 port)
}
steps() # FROM TO
{
    "$build/tests/steps_main" "$address" "$1" "$2" || { failed "steps $1 to $2"; exit 1; }
}

# The rows of all tables, by their ids, with all that a checkpoint has of them.
look() # NAME
{
    local table
    for table in "${tables[@]}"; do
        "$embps" export "$address" "$table" --output "$1.$table" >/dev/null || { failed "export of $table"; exit 1; }
    done
    python3 - "$1" "${tables[@]}" <<'END'
import struct, sys
for table in sys.argv[2:]:
    file = open(f"{sys.argv[1]}.{table}", "rb")
    assert file.read(8) == b"embpsrow"
    version, dim, state, flags, n_options = struct.unpack("<5I", file.read(20))
    assert version == 1 and flags == 1 and state > 0, (version, flags, state)
    file.read(n_options + 8)
    rows = {}
    while n := struct.unpack("<I", file.read(4))[0]:
        ids = struct.unpack(f"<{n}Q", file.read(8 * n))
        parts = [(size, file.read(size * n)) for size in (8, 4 * state, 4 * dim)]
        file.read(8)
        for i, row in enumerate(ids):
            assert row not in rows, row
            rows[row] = b"".join(bytes[i * size:(i + 1) * size] for size, bytes in parts)
    assert len(rows) == struct.unpack("<Q", file.read(8))[0] > 1000, len(rows)
    with open(f"{sys.argv[1]}.{table}.sorted", "wb") as out:
        for row in sorted(rows):
            out.write(struct.pack("<Q", row) + rows[row])
END
}
expect_same() # NAME AS
{
    local table
    look "$1"
    for table in "${tables[@]}"; do
        cmp "$1.$table.sorted" "$2.$table.sorted" || failed "$1: other rows of $table than $2"
    done
    rm -f "$1".*.sorted
}
save_and_kill()
{
    "$embps" checkpoint "$address" >out || { failed "no checkpoint: $(cat out)"; exit 1; }
    end_jobs
    kill -KILL "$job" 2>/dev/null || true
    { wait "$job" || true; } 2>/dev/null
    job=
    await 60 no_jobs_left || failed "servers stay"
}

serve 3 undisturbed 16M
steps 0 60
look first
steps 60 100
look second
! cmp -s first.adam.sorted second.adam.sorted || failed "more steps change nothing"
end_jobs
{ wait "$job" || true; } 2>/dev/null
job=

saved=(--checkpoints "$dir/saved" --keep 20)
serve 3 data 8M "${saved[@]}"
steps 0 60
save_and_kill
for n in "${numbers[@]}"; do
    # All of a table that grows is one server's then, which needs more.
    serve "$n" "data-$n" 16M "${saved[@]}" --resume checkpoint-0000000001
    expect_same "on-$n" first
    steps 60 100
    expect_same "on-$n-later" second
    save_and_kill
    serve 3 "data-$n-3" 8M "${saved[@]}"
    expect_same "on-3-after-$n" second
    steps 100 101
    save_and_kill
    rm -rf "data-$n" "data-$n-3"
    echo "ok: 3 servers, $n, 3"
done
exit $((failures > 0))
