#!/usr/bin/env bash
# Ways to go on from a checkpoint other than as it was: with another optimizer, which only an option allows; with the
# weights alone; for reading only.
# $1: build folder, $2: temporary folder.
set -euo pipefail
build=$1 dir=$2
# shellcheck source=tests/support/jobs
. "$(dirname "${BASH_SOURCE[0]}")/../support/jobs"
cd "$dir"
embps=$build/embps guest=$build/tests/guest_main

# A server alone, on the folders data and saved; sets job and address.
serve()
{
    rm -f port
    "$server" --listen 127.0.0.1:0 --port-file "$dir/port" --memory 32M --log-level info "$@" >log 2>&1 </dev/null &
    job=$!
    await 60 test -s port || { failed "the server does not listen"; cat log; exit 1; }
    address=$(head -n 1 port)
}
saved=(--data "$dir/data" --checkpoints "$dir/saved")

stop() # SIGNAL
{
    kill "-$1" "$job"
    wait "$job" 2>/dev/null || [ "$1" = KILL ] || failed "the server does not end well: $(cat log)"
    job=
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

logs() # WORDS
{
    grep -qF -- "$1" log || { failed "\"$1\" is not logged"; cat log; }
}

# ---- another optimizer ----

first=$((3 << 32))
refused=("$server" --listen 127.0.0.1:0 --memory 32M "${saved[@]}")
says 2 "there is no checkpoint to go on from" "${refused[@]}" --reset-optimizer pushes=adam
says 2 "with --checkpoints or --weights alone" "$server" --listen 127.0.0.1:0 --data "$dir/data" --reset-optimizer pushes=adam
serve "${saved[@]}" --durability push
"$guest" push "$address" record 3 5 60000 || failed "no rows to keep"
says 0 'checkpoint-' "$embps" checkpoint "$address"
"$guest" push "$address" record 4 5 60000 || failed "no more rows"
stop KILL
says 3 "has no table of this name" "${refused[@]}" --reset-optimizer other=adam
says 2 "start with --durability checkpoint" "${refused[@]}" --durability push --reset-optimizer pushes=adam
says 4 "start once without --reset-optimizer" "${refused[@]}" --reset-optimizer pushes=adam
serve "${saved[@]}" --durability push
logs "replayed 5 pushes"
stop TERM
serve "${saved[@]}" --reset-optimizer pushes=adam,beta1=0.5
logs "warn: server: table pushes of checkpoint-"
logs "had optimizer sgd and goes on with adam: the weights stay, the state of sgd is dropped"
says 0 "$first  present  1 1 1 1" "$embps" get "$address" pushes "$first"
says 0 "$((4 << 32))  present  1 1 1 1" "$embps" get "$address" pushes "$((4 << 32))"
says 0 '"optimizer": "adam"' "$embps" tables "$address" --json
says 1 "exists with optimizer adam, but sgd was asked for" "$guest" push "$address" record 5 1 60000
stop TERM
serve "${saved[@]}" --durability push --reset-optimizer pushes=adam,beta1=0.5 # the same again
logs "has optimizer adam, as --reset-optimizer says: its state stays"
stop TERM
two=("${bare[@]}" -n 1 "${refused[@]}" --reset-optimizer pushes=sgd : -n 1 "${refused[@]}")
says 2 "give the same --resume, --reset-optimizer, --weights and --read-only to all of them" "${two[@]}"

# ---- the weights alone ----

# shellcheck source=tests/support/trainings
. "$(dirname "${BASH_SOURCE[0]}")/../support/trainings"
grouped_text 11 6000 40 40 12 >text
job_of() # NAME SERVER-OPTION...
{
    local name=$1
    shift
    "${bare[@]}" -n 2 "$server" --data "$dir/$name.data" --checkpoints "$dir/$name.saved" --memory 16M \
        --log-level info "$@" : -n 1 "$train" skipgram --corpus "$dir/text" --dim 24 --min-count 1 --epochs 3 \
        --batch-words 400 --checkpoint-batches 60 --out "$dir/$name.in" >"$name.log" 2>&1 </dev/null ||
        { failed "$name ends with $?"; cat "$name.log"; }
}
job_of first
newest=$(cd first.saved && ls -d checkpoint-* | tail -n 1)
says 2 "wants DIR/NAME" "$server" --listen 127.0.0.1:0 --data "$dir/other" --weights first.saved/
says 3 "first.saved/no-such/manifest" "$server" --listen 127.0.0.1:0 --data "$dir/other" --weights first.saved/no-such
says 2 "start with --durability checkpoint" "$server" --listen 127.0.0.1:0 --data "$dir/other" \
    --weights "first.saved/$newest" --checkpoints "$dir/other.saved" --durability push
[ ! -e other ] || failed "a start that was refused left data"
find first.saved -type f -printf '%P %s %T@\n' | sort >before
job_of second --weights "$dir/first.saved/$newest"
grep -qF "begins with the weights of $newest in $dir/first.saved" second.log ||
    { failed "nothing is said of weights"; cat second.log; }
! grep -qF 'goes on from checkpoint' second.log || { failed "it goes on from a position"; cat second.log; }
rm -r second.data
job_of second --weights "$dir/first.saved/$newest" # the same line: from its own checkpoint
grep -qF 'goes on from checkpoint' second.log || { failed "it does not go on"; cat second.log; }
find first.saved -type f -printf '%P %s %T@\n' | sort | cmp - before || failed "the folder of weights has changed"

# The vocabulary is a part of each checkpoint of a training, one file for all of them; another one is refused.
vocabulary_of() # NAME CHECKPOINT: path, as far as the part is what the manifest says
{
    "$embps" checkpoint inspect "$1.saved" "$2" --json | python3 -c '
import json, sys
found = json.load(sys.stdin)
print(found["vocabulary_bytes"], found["vocabulary_checksum"])'
}
"$train" skipgram --local --data "$dir/local" --corpus text --dim 2 --min-count 1 --epochs 1 --save-vocab words --out none \
    --quiet 2>local.log || { failed "no vocabulary"; cat local.log; }
mapfile -t made < <(cd first.saved && ls -d checkpoint-*)
[ ${#made[@]} -ge 2 ] || failed "checkpoints: ${made[*]}"
for one in "${made[@]}"; do
    cmp words "first.saved/$one/vocabulary" || failed "the vocabulary of $one is another"
    [ "first.saved/$one/vocabulary" -ef "first.saved/$newest/vocabulary" ] || failed "$one does not share its vocabulary"
done
[[ $(vocabulary_of first "$newest") =~ ^$(stat -c %s words)\ [0-9a-f]{16}$ ]] ||
    failed "inspect says $(vocabulary_of first "$newest")"
"$embps" checkpoint diff first.saved "${made[0]}" "$newest" --rows --top 1 --json >told.json || failed "no diff of rows"
python3 -c '
import json
words = [line.split()[0] for line in open("words")]
rows = [row for table in json.load(open("told.json"))["tables"] for row in table["rows"]["largest"]]
assert len(rows) == 2 and all(row["word"] == words[int(row["id"])] for row in rows), rows' || failed "$(cat told.json)"
cp -r first.saved damaged.saved
printf X | dd of="damaged.saved/$newest/vocabulary" bs=1 seek=3 conv=notrunc status=none
says 42 "$newest/vocabulary is damaged: its checksum is another" "$embps" checkpoint verify damaged.saved "$newest"
says 42 "$newest/vocabulary is damaged" "$embps" checkpoint diff damaged.saved "${made[0]}" "$newest" --rows
rm "damaged.saved/$newest/vocabulary"
says 3 "$newest/vocabulary is missing" "$embps" checkpoint verify damaged.saved "$newest"
# A start that would go on from a checkpoint without its words, or without its state, is refused, with a way out. The
# weights alone need neither.
for part in vocabulary state; do
    for how in damaged missing; do
        rm -rf first.data damaged.saved
        cp -r first.saved damaged.saved
        printf X | dd of="damaged.saved/$newest/$part" bs=1 seek=3 conv=notrunc status=none
        status=42
        [ $how = damaged ] || { rm "damaged.saved/$newest/$part"; status=3; }
        says $status "$newest/$part is $how" "${bare[@]}" -n 2 "$server" --data "$dir/first.data" --checkpoints \
            "$dir/damaged.saved" --memory 16M : -n 1 "$train" skipgram --corpus "$dir/text" --dim 24 --min-count 1 \
            --epochs 3 --batch-words 400 --checkpoint-batches 60 --out "$dir/none.in"
        grep -qE "There is an earlier one: --resume checkpoint-[0-9]{10}" out || failed "$part, $how: $(cat out)"
        [ ! -e none.in ] || failed "$part, $how: it has trained"
    done
done
rm -rf second.data second.saved
job_of second --weights "$dir/damaged.saved/$newest"
sed '1s/ [0-9]*$/ 100000/' words >other-words
rm -rf first.data
says 4 "is of a training with the vocabulary with hash" "${bare[@]}" -n 2 "$server" --data "$dir/first.data" \
    --checkpoints "$dir/first.saved" --memory 16M : -n 1 "$train" skipgram --corpus "$dir/text" --dim 24 --min-count 1 \
    --epochs 3 --batch-words 400 --checkpoint-batches 60 --out "$dir/first.in" --read-vocab "$dir/other-words"
grep -qE "vocabulary with hash [0-9a-f]{16}, and this one has the vocabulary with hash [0-9a-f]{16}" out ||
    failed "not both are named: $(cat out)"

# ---- for reading only ----

content() # FOLDER: all that is in it
{
    (cd "$1" && find . -printf '%P %s %T@ %m\n' | sort && find . -type f -print0 | sort -z | xargs -0 sha256sum)
}
shows=("$server" --listen 127.0.0.1:0 --data "$dir/shown" --checkpoints "$dir/writes" --read-only)
says 2 "--read-only serves a checkpoint to guests" "$server" --data d --checkpoints c --read-only
says 2 "leave --checkpoint-every out" "${shows[@]}" --checkpoint-every 5
says 2 "leave --durability out" "${shows[@]}" --durability sync
says 2 "leave --resume none out" "${shows[@]}" --resume none
says 3 "writes/lineage" "${shows[@]}"
[ ! -e writes ] || failed "a folder of checkpoints was made"
serve --data "$dir/writes.data" --checkpoints "$dir/writes"
says 3 "there is no checkpoint to serve in $dir/writes" "${shows[@]}"
"$guest" push "$address" record 3 400 60000 || failed "no rows"
says 0 'checkpoint-0000000001' "$embps" checkpoint "$address"
says 0 '"rows": 400' "$embps" export "$address" pushes --output rows-file --json
writer=$job writer_address=$address
content writes >before
for ends in KILL TERM; do # the second one finds what the first has left
    serve --data "$dir/shown" --checkpoints "$dir/writes" --read-only
    says 0 "$first  present  1 1 1 1" "$embps" get "$address" pushes "$first"
    says 0 '"rows": 400' "$embps" export "$address" pushes --output shown-file --json
    cmp rows-file shown-file || failed "the export is another"
    says 0 "$((first + 1))" "$embps" nearest --server "$address" --table pushes "$first" --top 400
    says 1 "push is refused: this server only shows checkpoint checkpoint-0000000001 (--read-only)" \
        "$guest" push "$address" record-new 3 1 60000
    says 8 "import is refused" "$embps" import "$address" pushes --input rows-file
    says 8 "a new table is refused" "$embps" import "$address" other --input rows-file
    says 8 "checkpoint is refused" "$embps" checkpoint "$address"
    says 0 "$first  present  1 1 1 1" "$embps" get "$address" pushes "$first"
    kill -USR1 "$job"
    await 60 grep -q "and without --read-only" log || failed "a signal for a checkpoint is not answered"
    stop $ends
done
[ ! -e shown/server-0/rocksdb ] || failed "the copy stays: $(ls -R shown)"
content writes | cmp - before || { failed "the folder of checkpoints has changed"; content writes | diff - before; }
job=$writer
says 0 'checkpoint-0000000002' "$embps" checkpoint "$writer_address"
stop TERM
says 43 "writes.data/server-0" "$server" --listen 127.0.0.1:0 --data "$dir/writes.data" --checkpoints "$dir/writes" --read-only
says 2 "start the servers without any" "${bare[@]}" -n 1 "${shows[@]}" : -n 1 "$train" skipgram --corpus "$dir/text" \
    --out "$dir/none"
exit $((failures > 0))
