#!/usr/bin/env bash
# The tool's sub-commands that talk to a running server: what they print, as text and as JSON, and their errors.
# $1: build folder, $2: temporary folder.
set -euo pipefail
build=$1 dir=$2
# shellcheck source=tests/support/doors
. "$(dirname "${BASH_SOURCE[0]}")/../support/doors"
cd "$dir"
embps=$build/embps

start_door data 127.0.0.1:0
"$build/tests/guest_main" push "$address" record 3 5 60000 || failed "no rows to look at"

first=$((3 << 32))
"$embps" tables "$address" >out || failed "tables"
grep -Eq '^pushes +4  zeros +sgd +f32 +5$' out || { failed "tables prints"; cat out; }
"$embps" get "$address" pushes "$first" 7 >out || failed "get"
printf '%s\n' "$first  present  1 1 1 1" "7  initial  0 0 0 0" | cmp - out || { failed "get prints"; cat out; }
"$embps" status "$address" >out || failed "status"
grep -Eq '^servers +1$' out && grep -Eq '^rows created +5$' out || { failed "status prints"; cat out; }
"$embps" stats "$address" >out || failed "stats"
grep -Eq '^rows.pushed +5$' out && ! grep -q '^client' out || { failed "stats prints"; cat out; }
for command in "tables $address" "get $address pushes $first 18446744073709551615" "status $address" "stats $address"; do
    # shellcheck disable=SC2086 # words
    "$embps" $command --json >"json-${command%% *}" || failed "$command --json"
done
python3 - "$first" <<'END' || failed "what JSON says"
import json, sys
table, = json.load(open("json-tables"))
assert (table["name"], table["dim"], table["rows_created"]) == ("pushes", 4, 5), table
assert (table["init"], table["init_params"], table["optimizer"]) == ("zeros", [], "sgd"), table
rows = json.load(open("json-get"))
assert [row["id"] for row in rows] == [sys.argv[1], str(2**64 - 1)], rows
assert [row["state"] for row in rows] == ["present", "initial"], rows
assert [row["row"] for row in rows] == [[1.0] * 4, [0.0] * 4], rows
status, stats = json.load(open("json-status")), json.load(open("json-stats"))
assert status["servers"] == 1 and len(status["run"]) == 16, status
assert status["rows.pushed"] == stats["rows.pushed"] == 5, stats
END
refused 3 'there is no table words' "$embps" get "$address" words 1
refused 2 '"one"' "$embps" get "$address" pushes 1 one
refused 2 '18446744073709551616' "$embps" get "$address" pushes 18446744073709551616
refused 2 'ADDRESS TABLE ID' "$embps" get "$address" pushes
refused 2 'no address' "$embps" status nowhere
refused 2 '"" is no address' "$embps" status ''
refused 2 '"a\x0ab" is no address' "$embps" status $'a\nb'
# What would be ignored is refused: a word too many, an option that goes with others.
for command in status tables stats top; do
    refused 2 'extra: a word too many' "$embps" "$command" "$address" extra
done
refused 2 'extra: a word too many' "$embps" export "$address" pushes extra --output x
refused 2 'extra: a word too many' "$embps" import "$address" pushes extra --input x
refused 2 'wants' "$embps" checkpoint "$address" extra
refused 2 'extra: unexpected word' "$embps" plan extra
refused 2 'extra: unexpected word' "$build/embps-server" extra
refused 2 '--vocab: whole rows' "$embps" export "$address" pushes --output x --vocab v
"$embps" export "$address" pushes --output pushes.rows >out || failed "export"
refused 2 '--vocab: pushes.rows holds whole rows' "$embps" import "$address" pushes --input pushes.rows --vocab v
refused 2 '--vocab: goes with --table' "$embps" nearest --vectors x --vocab v 7
"$embps" top "$address" --table pushes --once --interval 0.1 >out || failed "top"
grep -q ', 1 server, over' out && grep -qx 'no row of pushes was pushed' out || { failed "top prints"; cat out; }
refused 42 'zero, line 1: longer than 16 MiB' "$embps" import "$address" pushes --input /dev/zero
refused 21 '127.0.0.1:1' "$embps" status --wait 0 127.0.0.1:1
# Names are shown, whoever says them: no terminal obeys one, and a message stays a line.
refused 3 'there is no table a\x1b[31m\x0ab' "$embps" get "$address" $'a\033[31m\nb' 1
refused 1 'byte 0x1b at offset 1' "$build/tests/guest_main" overflow "$address" $'a\033[31m' 1
printf 'king 1 0.1\n\033[2Jqueen 1 0.2\n' >shown.txt
"$embps" nearest --vectors shown.txt king | grep -qF ' \x1b[2Jqueen' || failed "a word of a file is obeyed"
"$embps" get --help | grep -q 'ADDRESS TABLE ID' || failed "get --help"

kill -TERM "$job"
ended=0
wait "$job" || ended=$?
[ $ended = 0 ] || { failed "the server ends with $ended"; cat data.log; }
job=
exit $((failures > 0))
