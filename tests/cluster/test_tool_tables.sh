#!/usr/bin/env bash
# The tool's sub-commands on whole tables of running servers: nearest, export, import; over several servers.
# $1: build folder, $2: temporary folder.
set -euo pipefail
build=$1 dir=$2
# shellcheck source=tests/support/doors
. "$(dirname "${BASH_SOURCE[0]}")/../support/doors"
cd "$dir"
embps=$build/embps

# Starts a job of $1 servers whose door is told in file $2.
start()
{
    "${bare[@]}" -n "$1" "$server" --listen 127.0.0.1:0 --port-file "$dir/$2" --data "$dir/data-$2" --memory 16M \
        >"log-$2" 2>&1 </dev/null &
    await 60 test -s "$2" || { failed "the servers do not listen"; cat "log-$2"; exit 1; }
}
start 3 three
three_job=$!
start 1 one
one_job=$!
three=$(head -n 1 three) one=$(head -n 1 one)

# Words and their vectors, with rows that are no words; five more come from a client that pushes.
seq -f 'w%g' 0 999 | awk '{print $1, 1000 - NR}' >vocab
awk 'BEGIN {srand(5); print 1495, 4; for (i = 0; i < 1495; i++) print i, rand() - .5, rand() - .5, rand() - .5, rand()}' >made.txt
for address in "$three" "$one"; do
    "$build/tests/guest_main" push "$address" "record-$address" 3 5 60000 || failed "no table to work on"
done
"$embps" import "$three" pushes --input made.txt >out || failed "import of text"
grep -qx '1495 rows set, 1495 of them new' out || { failed "import prints"; cat out; }

"$embps" export "$three" pushes --output words.rows >out || failed "export"
grep -qx '1500 rows written to words.rows' out || { failed "export prints"; cat out; }
"$embps" import "$one" copy --input words.rows --json >out || failed "import"
python3 -c 'import json; assert json.load(open("out")) == {"rows": 1500, "created": 1500, "repeated": 0}' || { failed "import prints"; cat out; }
"$embps" export "$one" copy --output copy.rows --json >out || failed "export of the copy"
"$embps" import "$three" pushes --input copy.rows >out || failed "import over rows that are there"
grep -qx '1500 rows set, 0 of them new' out || { failed "import prints"; cat out; }

# The same rows by another way: as text, sorted, since each has its own order.
for table in "$three pushes" "$one copy"; do
    # shellcheck disable=SC2086 # words
    "$embps" export $table --format text --output "${table##* }.txt" >/dev/null || failed "export as text"
    tail -n +2 "${table##* }.txt" | sort >"${table##* }.sorted"
done
cmp pushes.sorted copy.sorted || failed "a table that was exported and imported is another one"
"$embps" export "$three" pushes --format binary --vocab vocab --output words.bin --json >out || failed "export as binary"
python3 -c 'import json; o = json.load(open("out")); assert (o["rows"], o["left_out"]) == (1000, 500), o' ||
    failed "rows without a word are left out"

# Nearest on the live table and in the file: the same words, the same scores.
"$embps" nearest --vectors words.bin --top 7 w3 w500 >of-file || failed "nearest in the file"
"$embps" nearest --server "$three" --table pushes --top 7 3 500 >of-table || failed "nearest in the table"
"$embps" nearest --server "$one" --table copy --top 7 3 500 >of-copy || failed "nearest in the copy"
cmp of-table of-copy || failed "nearest depends on the number of servers"
"$embps" export "$one" copy --format binary --output copy.bin >/dev/null || failed "export with ids"
"$embps" nearest --vectors copy.bin --top 7 3 500 >of-ids || failed "nearest in the file of ids"
cmp of-table of-ids || { failed "nearest of a live table"; diff of-table of-ids; }
"$embps" nearest --server "$one" --table copy --vocab vocab --json --top 1 W3 >out || failed "nearest with words"
python3 -c 'import json; q, = json.load(open("out")); assert q["query"] == "W3" and len(q["hits"]) == 1, q' ||
    { failed "nearest --json"; cat out; }

# Vectors into a table that is there: weights alone.
"$embps" import "$one" copy --input words.bin --vocab vocab >out || failed "import of vectors"
grep -qx '1000 rows set, 0 of them new' out || { failed "import of vectors prints"; cat out; }

# What is hot, and how fast it goes: imports meanwhile are what there is to see. Where none of them is as fast as
# that, over a longer time.
for interval in 3 15 60; do
    "$embps" top "$one" --table copy --once --interval $interval --rows 3 --json >top.json &
    top=$!
    until "$embps" import "$one" copy --input words.rows >/dev/null && "$embps" stats "$one" | grep -Eq '^rows.watched +[1-9]'; do
        kill -0 "$top" 2>/dev/null || break
    done
    wait "$top" || failed "top"
    python3 -c 'import json; assert json.load(open("top.json"))["hot"]' 2>/dev/null && break
done
python3 - <<'END' || { failed "top prints"; cat top.json; }
import json
said = json.load(open("top.json"))
assert said["store.rows_hot"] > 0 and said["bytes.in"] > 0 and not said["lost"], said
assert len(said["hot"]) == 3 and all(row["told"] > row["excess"] for row in said["hot"]), said
END
"$embps" top "$one" --once --interval 0.1 >out || failed "top without a table"
grep -Eq '^rows in memory +[1-9]' out || { failed "top prints"; cat out; }

# Rows that finite pushes made infinite: whole exports carry them, nothing else takes them for numbers.
"$build/tests/guest_main" overflow "$one" huge 7 || failed "no infinite row"
"$embps" import "$one" huge --input made.txt >/dev/null || failed "import over an infinite row"
for id in 7 9; do
    "$build/tests/guest_main" overflow "$one" huge "$id" || failed "no infinite row"
done
"$embps" export "$one" huge --output huge.rows >out || failed "export of infinite rows"
grep -qx '2 of them have values that are not finite' out || { failed "export prints"; cat out; }
"$embps" import "$three" huge --input huge.rows >out || failed "import of infinite rows"
grep -qx '1495 rows set, 1495 of them new' out || { failed "import prints"; cat out; }
for address in "$one" "$three"; do
    "$embps" get "$address" huge 7 8 9 >"get-$address" || failed "get of infinite rows"
    "$embps" export "$address" huge --format text --output huge.txt --json >out || failed "export without infinite rows"
    python3 -c 'import json; o = json.load(open("out")); assert (o["rows"], o["not_finite"]) == (1493, 2), o' ||
        { failed "export as text prints"; cat out; }
    "$embps" nearest --server "$address" --table huge --top 1000 3 500 >of-table 2>err || failed "nearest beside infinite rows"
    grep -q 'table huge: 2 rows with a value that is not finite are left out' err || { failed "nearest says"; cat err; }
    "$embps" nearest --vectors huge.txt --top 1000 3 500 | cmp - of-table || failed "nearest is disturbed by infinite rows"
done
cmp "get-$one" "get-$three" || failed "infinite rows are others after an import"
grep -q '^7  present  inf inf -inf ' "get-$one" || { failed "get prints"; cat "get-$one"; }
"$embps" import "$one" huge --input huge.txt >/dev/null || failed "import of what was exported as text"
"$embps" nearest --server "$one" --table huge --json 3 >json-nearest 2>/dev/null || failed "nearest --json"
"$embps" get "$one" huge 7 --json >json-get || failed "get --json"
python3 - <<'END' || failed "JSON has numbers that are none"
import json
def none(text):
    raise ValueError(text)
row, = json.load(open("json-get"), parse_constant=none)
assert row["row"][:3] == [None] * 3, row
query, = json.load(open("json-nearest"), parse_constant=none)
assert len(query["hits"]) == 10, query
END
refused 2 'the row of "9" in table huge has a value that is not finite' "$embps" nearest --server "$one" --table huge 8 9

# A file that is not whole makes no table and sets no row, wherever it ends.
size=$(stat -c %s words.rows)
for bytes in 20 200 20000 $((size - 1)); do
    head -c "$bytes" words.rows >cut.rows
    refused 42 'cut off' "$embps" import "$one" fresh --input cut.rows
done
{ cat words.rows && echo; } >longer.rows
refused 42 "longer.rows: something follows the end of its rows, at offset $size" \
    "$embps" import "$one" fresh --input longer.rows
"$embps" tables "$one" | grep -q fresh && failed "a file that was refused has made a table"
refused 5 "whole rows" "$embps" import "$one" copy --input <(cat words.rows)
refused 5 "whole rows" "$embps" nearest --vectors words.rows 3
"$embps" import "$one" copy --input <(cat made.txt) >out || failed "import of a pipe"
grep -qx '1495 rows set, 0 of them new' out || { failed "import of a pipe prints"; cat out; }
refused 3 'make it first, of dim 4,' "$embps" import "$one" other --input made.txt

# Standard output, and what is no file; a name that is none, in the words of who gave it.
"$embps" export "$one" copy --output copy.rows >/dev/null || failed "export"
"$embps" export "$one" copy --output /dev/stdout --json | cmp - copy.rows || failed "export to standard output"
refused 2 'cannot write -' "$embps" export "$one" copy --output -
[ ! -e ./- ] || failed "a file named -"
"$embps" export "$one" copy --format text --output /dev/stdout 2>err | cat >out && failed "vectors to a pipe"
grep -q 'cannot be written to a pipe' err || failed "vectors to a pipe: $(cat err)"
refused 2 'table name: 0 bytes' "$embps" get "$one" '' 7
refused 2 'table name: 0 bytes' "$embps" export "$one" '' --output x
refused 2 'table name: 0 bytes' "$embps" import "$one" '' --input copy.rows
refused 2 'table name: 0 bytes' "$embps" import "$one" '' --input made.txt
refused 2 'TABLE is empty' "$embps" nearest --server "$one" --table '' 7
refused 2 'TABLE is empty' "$embps" top "$one" --table '' --once

# A signal ends an export while it waits for words: nothing is left beside the file, which is as it was.
mkfifo words.pipe
echo before >kept.txt
for signal in INT TERM HUP; do
    env --default-signal="$signal" "$embps" export "$one" copy --format text --vocab words.pipe --output kept.txt &
    exporter=$! code=0
    await 60 compgen -G '.kept.txt.*.tmp' >/dev/null || failed "SIG$signal: no temporary file"
    kill "-$signal" "$exporter"
    wait "$exporter" || code=$?
    [ "$code" = $((128 + $(kill -l "$signal"))) ] || failed "SIG$signal: exit status $code"
    [ -z "$(compgen -G '.kept.txt.*')" ] || failed "SIG$signal leaves $(compgen -G '.kept.txt.*')"
done
[ "$(cat kept.txt)" = before ] || failed "an export that was ended changed the file"

# Columns stand below each other whatever characters a name has.
"$embps" import "$one" wörter-mit-öäü --input words.rows >/dev/null || failed "import into a table with an umlaut"
"$embps" tables "$one" >out
$python -c 'lines = open("out", encoding="utf-8").read().splitlines()[1:]
assert len(lines) > 1 and len({line.index("zeros") for line in lines}) == 1, lines' || failed "columns of tables: $(cat out)"

refused 3 'there is no table' "$embps" export "$one" other --output other.rows
[ ! -e other.rows ] || failed "a file of a table that is not there"
refused 2 '--vocab' "$embps" import "$one" copy --input words.bin
refused 2 'wants --vectors FILE' "$embps" nearest --server "$one" 3
refused 3 'w3x' "$embps" nearest --server "$one" --table copy --vocab vocab w3x
refused 3 'gone.rows' "$embps" import "$one" copy --input gone.rows

kill -TERM "$three_job" "$one_job" # mpirun ends them, and with a code of its own
wait "$three_job" "$one_job" || true
exit $((failures > 0))
