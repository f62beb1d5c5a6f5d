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
refused 2 '"-1" is no id: a whole number from 0 to 2^64 - 1' "$embps" get "$address" pushes -1
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
# Words that come again, and ids by another spelling: the first of each counts, and it is said.
printf '%s\n' '7 1 1 1 1' '8 2 2 2 2' '7 3 3 3 3' '07 4 4 4 4' '9 5 5 5 5' >again.txt
"$embps" import "$address" pushes --input again.txt >out || failed "import with words that come again"
printf '%s\n' '3 rows set, 3 of them new' '2 vectors of words or ids that were there before are left out' | cmp - out ||
    { failed "import prints"; cat out; }
"$embps" import "$address" pushes --input again.txt --json >out || failed "import --json"
python3 -c 'import json; assert json.load(open("out")) == {"rows": 3, "created": 0, "repeated": 2}' ||
    { failed "import --json prints"; cat out; }
"$embps" get "$address" pushes 7 8 9 >out || failed "get"
printf '%s  present  %s\n' 7 '1 1 1 1' 8 '2 2 2 2' 9 '5 5 5 5' | cmp - out || { failed "which vectors count"; cat out; }
printf '%s\n' 'The 1 1 1 1' 'a 2 2 2 2' 'the 3 3 3 3' >again.txt
printf '%s\n' 'a 2' 'the 1' >again.vocab
"$embps" import "$address" pushes --input again.txt --vocab again.vocab >out || failed "import of words"
grep -qx '1 vectors of words or ids that were there before are left out' out || { failed "import prints"; cat out; }
"$embps" get "$address" pushes 0 1 >out || failed "get"
printf '%s  present  %s\n' 0 '2 2 2 2' 1 '1 1 1 1' | cmp - out || { failed "which words count"; cat out; }
refused 5 "/dev/stdin is what embps export wrote as whole rows: embps import reads these twice, so give it the file's name" \
    "$embps" import "$address" pushes --input /dev/stdin < <(cat pushes.rows)
refused 42 'zero, line 1: longer than 16 MiB' "$embps" import "$address" pushes --input /dev/zero
refused 21 '127.0.0.1:1' "$embps" status --wait 0 127.0.0.1:1
# Names are shown, whoever says them: no terminal obeys one, and a message stays a line.
refused 3 'there is no table a\x1b[31m\x0ab' "$embps" get "$address" $'a\033[31m\nb' 1
refused 1 'byte 0x1b at offset 1' "$build/tests/guest_main" overflow "$address" $'a\033[31m' 1
printf 'king 1 0.1\n\033[2Jqueen 1 0.2\n' >shown.txt
"$embps" nearest --vectors shown.txt king | grep -qF ' \x1b[2Jqueen' || failed "a word of a file is obeyed"
"$embps" get --help | grep -q 'ADDRESS TABLE ID' || failed "get --help"

stop_door

# A server that ends in order and is started again: top goes on, and counts from there.
start_door again 127.0.0.1:0 --checkpoints saved
"$build/tests/guest_main" push "$address" record-again 3 5 60000 || failed "no rows to look at"
"$embps" top "$address" --table pushes --interval 0.2 --json >top.json 2>top.err &
top=$!
has_shown() # LINES
{
    [ "$(wc -l <top.json)" -ge "$1" ] || ! kill -0 "$top"
}
await 60 has_shown 1 || failed "top shows nothing: $(cat top.err)"
for _ in {1..20}; do # until it was waiting for news when the server ended
    stop_door
    start_door again "$address" --checkpoints saved
    shown=$(wc -l <top.json)
    await 60 has_shown $((shown + 3)) || failed "top shows nothing any more: $(cat top.err)"
    if grep -q 'the server ends: watching pushes begins anew' top.err || ! kill -0 "$top"; then break; fi
done
grep -q 'the server ends: watching pushes begins anew' top.err || failed "top does not begin anew: $(cat top.err)"
has_seen()
{
    "$embps" import "$address" pushes --input pushes.rows >/dev/null && grep -q '"hot":\[{' top.json
}
await 60 has_seen || failed "top shows no rows any more: $(cat top.err)"
kill -0 "$top" || failed "top has ended: $(cat top.err)"
kill "$top"
wait "$top" || true
python3 - <<'END' || { failed "top prints"; cat top.json; }
import json
lines = [json.loads(line) for line in open("top.json").read().split("\n")[:-1]]
assert any(line["lost"] for line in lines), "what was pushed in between was not told"
assert all(0 <= line["bytes.in"] < 1e9 for line in lines), [line["bytes.in"] for line in lines]
END
stop_door
exit $((failures > 0))
