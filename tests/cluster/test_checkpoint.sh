#!/usr/bin/env bash
# Checkpoints as a user meets them: made and looked at with the tool, of one server and of a job of two, and gone on
# with by the other number; kill -9 in the middle of one; a full disk; a second run in the same folder.
# $1: build folder, $2: temporary folder.
set -euo pipefail
build=$1 dir=$2
# shellcheck source=tests/support/jobs
. "$(dirname "${BASH_SOURCE[0]}")/../support/jobs"
cd "$dir"
embps=$build/embps

# Starts a server alone on the folders data and saved, each with $of behind it; sets job and address.
of=
serve()
{
    rm -f port
    "$server" --listen 127.0.0.1:0 --port-file "$dir/port" --data "$dir/data$of" --checkpoints "$dir/saved$of" \
        --memory 32M "$@" >log 2>&1 </dev/null &
    job=$!
    await 60 test -s port || { failed "the server does not listen"; cat log; exit 1; }
    address=$(head -n 1 port)
}

# Expects exit code $1 and $2 in what the rest says.
says()
{
    local code=$1 words=$2 got=0
    shift 2
    "$@" >out 2>&1 || got=$?
    [ "$got" = "$code" ] || failed "exit code $got instead of $code: $*: $(cat out)"
    grep -qF -- "$words" out || failed "no \"$words\" in: $(cat out)"
}

first=$((3 << 32))
serve
"$build/tests/guest_main" push "$address" record 3 5 60000 || failed "no rows to keep"
says 0 checkpoint-0000000001 "$embps" checkpoint "$address"
says 0 '"name": "checkpoint-0000000002"' "$embps" checkpoint "$address" --json
says 0 'checkpoint-0000000002' "$embps" checkpoint list saved
says 0 'table pushes' "$embps" checkpoint inspect saved checkpoint-0000000001
says 0 'servers           bytes         state' "$embps" checkpoint inspect saved checkpoint-0000000001
says 0 'checkpoint-0000000001: whole' "$embps" checkpoint verify saved
for command in "list saved" "inspect saved checkpoint-0000000002" "verify saved"; do
    # shellcheck disable=SC2086 # words
    "$embps" checkpoint $command --json >"json-${command%% *}" || failed "checkpoint $command --json"
done
python3 - <<'END' || failed "what JSON says"
import json
names = ["checkpoint-0000000001", "checkpoint-0000000002"]
assert [one["name"] for one in json.load(open("json-list"))] == names
one = json.load(open("json-inspect"))
part, = one["parts"]
table, = part["tables"]
assert (one["servers"], table["name"], table["dim"], table["rows_created"]) == (1, "pushes", 4, 5), one
assert [(one["name"], one["whole"], one["faults"]) for one in json.load(open("json-verify"))] == [
    (name, True, []) for name in names]
END
says 2 'is no name' "$embps" checkpoint inspect saved ../data
says 3 'other' "$embps" checkpoint verify saved other
[ "$(grep -c other out)" = 1 ] || failed "what is not there is told more than once: $(cat out)"
says 2 'embps checkpoint --help' "$embps" checkpoint list
says 3 'missing: No such file' "$embps" checkpoint list missing
says 3 'missing: No such file' "$embps" checkpoint verify missing
mkdir empty
says 3 'no checkpoint in empty' "$embps" checkpoint verify empty
says 0 'bytes shared' "$embps" checkpoint diff saved checkpoint-0000000001 checkpoint-0000000002
says 44 'saved' "$embps" checkpoint prune saved --keep 1
says 44 'data/server-0 is in use' "$embps" verify data
grep -q 'of 1 servers in data 1 are running: not checked$' out || failed "a running server is a fault: $(cat out)"
says 2 'See --checkpoints' "$server" --data other --listen 127.0.0.1:0 --resume checkpoint-0000000001

# Another run in the same folder; then kill -9, in the middle of a checkpoint where that can be hit.
says 44 'saved' "$server" --listen 127.0.0.1:0 --data "$dir/other" --checkpoints "$dir/saved"
"$embps" checkpoint "$address" >out 2>&1 &
asker=$!
# shellcheck disable=SC2015 # either will do
await 60 bash -c 'ls saved | grep -q -e partial -e 0003' || failed "no third checkpoint begins"
kill -9 "$job"
kill -9 "$asker" 2>/dev/null || true
wait "$job" "$asker" || true
says 43 'data/server-0 was not closed in order' "$embps" verify data
cp -r data copied
says 43 'copied/server-0 is a copy that was made while a server ran' "$embps" verify copied
says 0 'checkpoint-0000000002: whole' "$embps" checkpoint verify saved
serve
[ -z "$(find saved -name '*.partial')" ] || failed "leftovers stay: $(ls saved)"
says 0 "$first  present  1 1 1 1" "$embps" get "$address" pushes "$first"

# SIGTERM makes one more; all that there is is in it, and the newest three stay.
"$build/tests/guest_main" push "$address" record 4 5 60000 || failed "no more rows"
kill -TERM "$job"
wait "$job" || failed "the server does not end well: $(cat log)"
says 0 'whole' "$embps" checkpoint verify saved
says 0 'server-0 of 1, run ' "$embps" verify data
says 0 ', 10 rows, all of it in checkpoint-' "$embps" verify data
says 0 '"whole": true' "$embps" verify data --json
says 3 'no such' "$embps" verify 'no such'
[ "$(find saved -maxdepth 1 -name 'checkpoint-*' | wc -l)" -le 3 ] || failed "too many stay: $(ls saved)"
serve
says 0 "$((4 << 32))  present  1 1 1 1" "$embps" get "$address" pushes "$((4 << 32))"
kill -9 "$job"
wait "$job" || true

# One bit, and both the start and verify name the file.
newest=$(find saved -maxdepth 1 -name 'checkpoint-*' | sort | tail -n 1)
python3 - "$newest/server-0/part" <<'END'
import sys
with open(sys.argv[1], "r+b") as file:
    file.seek(100)
    byte = file.read(1)[0]
    file.seek(100)
    file.write(bytes([byte ^ 1]))
END
says 42 'server-0/part' "$embps" checkpoint verify saved
[ "$(grep -c server-0/part out)" = 1 ] || failed "a fault is told more than once: $(cat out)"
says 42 'server-0/part' "$server" --listen 127.0.0.1:0 --data "$dir/data" --checkpoints "$dir/saved"
rm -r "$newest"
says 0 ' removed, ' "$embps" checkpoint prune saved --keep 1
[ "$(find saved -maxdepth 1 -name 'checkpoint-*' | wc -l)" = 1 ] || failed "prune leaves $(ls saved)"
serve --resume auto --keep 1 --log-level info
kill -TERM "$job"
wait "$job" || failed "the server does not end well: $(cat log)"
grep -q 'checkpoint-[0-9]* .*was removed' log || failed "which ones are removed is not logged: $(cat log)"

# A job of two servers without workers: the same line each time; sets job and address.
serve_two()
{
    rm -f port2
    "${bare[@]}" -n 2 "$server" --listen 127.0.0.1:0 --port-file "$dir/port2" --data "$dir/data2" \
        --checkpoints "$dir/saved2" --memory 32M >log 2>&1 </dev/null &
    job=$!
    await 60 test -s port2 || { failed "two servers do not listen"; cat log; exit 1; }
    address=$(head -n 1 port2)
}

# Ends it by a signal to mpirun, in order.
end_two() # SIGNAL
{
    kill "-$1" "$job"
    wait "$job" || true
    job=
    await 60 no_jobs_left || failed "servers stay"
}

# The newest checkpoint there; and an expression of Python over what is found in it.
newest()
{
    (cd saved2 && ls -d checkpoint-* | tail -n 1)
}
of_newest() # EXPRESSION
{
    "$embps" checkpoint inspect saved2 "$(newest)" --json |
        python3 -c "import json, sys; found = json.load(sys.stdin); print($1)"
}

serve_two
"$build/tests/guest_main" push "$address" record 3 20 60000 || failed "no rows to keep"
says 0 checkpoint-0000000001 "$embps" checkpoint "$address"
says 0 'server 1 on' "$embps" checkpoint inspect saved2 checkpoint-0000000001
run=$(of_newest 'found["run"]')
end_jobs
wait "$job" || true
job=
await 60 no_jobs_left || failed "servers stay"
rows=$(of_newest 'sum(table["rows_created"] for part in found["parts"] for table in part["tables"])')
slots=$(of_newest '[part["slots"] for part in found["parts"]]')
[ "$slots" = '[[[0, 8191]], [[8192, 16383]]]' ] || failed "slots $slots"

# The same data and checkpoints, but one server: rows of both are there, and what it adds is there for two again.
of=2 serve
for i in {0..19}; do
    says 0 "$((first + i))  present  1 1 1 1" "$embps" get "$address" pushes "$((first + i))"
done
"$build/tests/guest_main" push "$address" record 5 20 60000 || failed "no rows at one server"
kill -TERM "$job"
wait "$job" || failed "one server does not end well: $(cat log)"
job=
says 0 'slots 0-16383,' "$embps" checkpoint inspect saved2 "$(newest)"
[ "$(of_newest 'sum(table["rows_created"] for part in found["parts"] for table in part["tables"])')" = \
    $((rows + 20)) ] || failed "rows that came into being are miscounted"
[ "$(of_newest 'found["run"]')" = "$run" ] || failed "one server is another run"

# After kill -9, after SIGTERM with nothing new, and after a signal that mpirun passes on without a limit of time:
# then with rows that came behind the last checkpoint that a client made. The run stays the same one.
serve_two
says 0 "$first  present  1 1 1 1" "$embps" get "$address" pushes "$first"
for i in {0..19}; do
    says 0 "$(((5 << 32) + i))  present  1 1 1 1" "$embps" get "$address" pushes "$(((5 << 32) + i))"
done
says 0 'checkpoint-' "$embps" checkpoint "$address"
end_two TERM
serve_two
says 0 "$first  present  1 1 1 1" "$embps" get "$address" pushes "$first"
"$build/tests/guest_main" push "$address" record 4 20 60000 || failed "no more rows"
end_two USR2
says 0 'whole' "$embps" checkpoint verify saved2
[ "$(of_newest 'found["run"]')" = "$run" ] || failed "another run than $run"
serve_two
for i in {0..19}; do # of both servers
    id=$(((4 << 32) + i))
    says 0 "$id  present  1 1 1 1" "$embps" get "$address" pushes "$id"
done
says 0 'checkpoint-' "$embps" checkpoint "$address"
[ "$(of_newest 'found["run"]')" = "$run" ] || failed "another run than $run"
end_two TERM
exit $((failures > 0))
