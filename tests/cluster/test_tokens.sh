#!/usr/bin/env bash
# embps-server --tokens against real clients: who is let in, what a token may do and what it may not, a file that is
# replaced, and no token in logs, messages, help or lists of processes. $1: build folder, $2: temporary folder.
set -euo pipefail
build=$1 dir=$2
# shellcheck source=tests/support/doors
. "$(dirname "${BASH_SOURCE[0]}")/../support/doors"
cd "$dir"
umask 077
admin=admin-token-7391 reader=reader-token-2846 writer=writer-token-1905 second=second-token-0624 other=other-token-5520 gone=stale-token-3317
for name in admin reader writer second other gone; do
    printf '%s\n' "${!name}" >"$name.token"
done

write_tokens() # the file, but for $gone's line
{
    cat <<END
# token                    rights       tables
sha256:$(printf %s "$admin" | sha256sum | cut -d ' ' -f 1)  admin  *
$reader  read         pushes  w*
$writer  write,read   pushes  # and its own
$second  read         pushes
$second  read         w*
$other   read,write   elsewhere
END
}
{ write_tokens; echo "$gone read *"; } >tokens

as() # TOKEN COMMAND ARGUMENT...: of the tool
{
    local token=$1 command=$2
    shift 2
    "$build/embps" "$command" --wait 30 --token-file "$token.token" "$address" "$@" >out 2>err
}

# Exit status 8 (denied) and these words, once.
denied() # CASE WORDS TOKEN COMMAND ARGUMENT...
{
    local case=$1 words=$2 got=0
    shift 2
    as "$@" || got=$?
    [ "$got" = 8 ] || failed "$case: exit status $got"
    grep -qF -- "$words" err || failed "$case: no \"$words\" in: $(cat err)"
    [ "$(wc -l <err)" = 1 ] || failed "$case: not one line: $(cat err)"
    cat err >>said
}

start_door server 127.0.0.1:0 --tokens tokens --checkpoints checkpoints
EMBPS_TOKEN_FILE=admin.token "$build/tests/guest_main" push "$address" record 3 5 60000 || failed "no rows to look at"
first=$((3 << 32))
as reader get pushes "$first" || failed "reading: $(cat err)"
grep -q "present" out || failed "what a reader reads: $(cat out)"
as admin tables || failed "tables: $(cat err)"
grep -q pushes out || failed "what is there: $(cat out)"
as reader tables || failed "tables of a reader: $(cat err)"
grep -q pushes out || failed "what a reader sees: $(cat out)"
as other tables || failed "tables of others: $(cat err)"
if grep -q pushes out; then failed "a table is seen without a right: $(cat out)"; fi
as other status || failed "status: $(cat err)"
as gone status || failed "a token that will go: $(cat err)"
as admin checkpoint || failed "a checkpoint: $(cat err)"
denied "a checkpoint of a reader" "all tables, admin" reader checkpoint
as reader export pushes --output rows || failed "an export: $(cat err)"
denied "an import of a reader" "table pushes, write" reader import pushes --input rows
denied "an export of another table" "table pushes" other export pushes --output none
denied "a token of another table" "table pushes, any right" other get pushes 7
denied "a table that is not there" "table nothing, any right" other get nothing 7
printf '%s\n' not-a-known-token >unknown.token
denied "a wrong token" "no token that this server knows" unknown status
got=0
"$build/embps" status --wait 30 "$address" >out 2>err || got=$?
if ! { [ "$got" = 8 ] && grep -qF "wants a token" err; }; then
    failed "no token: $got $(cat err)"
fi

# The files of the tool.
printf 'short\n' >bad.token
for case in "2|holds no token|bad" "3|nowhere.token|nowhere"; do
    IFS='|' read -r code words token <<<"$case"
    got=0
    as "$token" status || got=$?
    if ! { [ "$got" = "$code" ] && grep -qF -- "$words" err; }; then
        failed "$token: $got $(cat err)"
    fi
done
cp admin.token open.token
chmod 644 open.token
got=0
as open status || got=$?
if ! { [ "$got" = 2 ] && grep -qF "chmod 600" err; }; then
    failed "a token that others can read: $got $(cat err)"
fi
got=0
"$build/embps" status --wait 0 --token-file admin.token 192.0.2.1:1 >out 2>err || got=$?
if ! { [ "$got" = 2 ] && grep -qF "in plain text, for all to read on the way: give --tls-ca as well, or ask for --plain-text" err; }; then
    failed "a token in plain text elsewhere: $got $(cat err)"
fi

# What a library's client may do, and that a refusal ends nothing.
if /usr/bin/python3 -c 'import numpy' 2>/dev/null && [ -z "${EMBPS_TEST_SANITIZER-}" ]; then
    EMBPS_LIBRARY=$build/libembps.so PYTHONPATH=$root/worker/python PYTHONDONTWRITEBYTECODE=1 \
        /usr/bin/python3 - "$address" 2>python.log <<'END' || failed "Python: $(cat python.log)"
import sys
import embps

address = sys.argv[1]


def denied(words, function, *arguments, **options):
    try:
        function(*arguments, **options)
    except embps.Denied as error:
        assert isinstance(error, PermissionError) and words in str(error), error
    else:
        raise AssertionError(f"allowed: {words}")


ones = [[1, 1, 1, 1]]
with (embps.connect(address, token_file="reader.token") as reader,
      embps.connect(address, token_file="writer.token") as writer,
      embps.connect(address, token_file="other.token") as other,
      embps.connect(address, token_file="admin.token") as admin):
    read, write = reader.table("pushes", 4), writer.table("pushes", 4)
    denied("table pushes, write", read.push_delta, [1], ones)
    future = read.push_delta_async([2], ones)
    denied("table pushes, write", future.result)
    assert read.pull([1, 2]).tolist() == [[0] * 4] * 2, "the same client goes on, and nothing was pushed"
    write.push_delta([1], ones)
    assert read.pull([1]).tolist() == ones
    read.prefetch([1], 0)
    denied("table words, admin", reader.table, "words", 4)
    denied("table words, admin", writer.table, "words", 4)
    denied("table pushes, any right", other.table, "pushes", 4)
    words = admin.table("words", 4)
    words.push_delta([3], ones)
    assert reader.table("words", 4).pull([3]).tolist() == ones
    denied("table words, any right", writer.table, "words", 4)
denied("wants a token", embps.connect, address, wait=60)
END
else
    echo "not run: Python (no numpy, or sanitizers)"
fi

# A client from the schema alone sees gRPC's own statuses; a session is of the token that said hello.
if have_stubs; then
    $python "$root/tests/cluster/token_client.py" stubs "$address" >python.log 2>&1 || failed "stubs: $(cat python.log)"
else
    echo "not run: a client from the schema (protobuf-compiler-grpc, python3-grpcio)"
fi

# The file is replaced: from the next call on that is what counts. One that is wrong changes nothing.
echo "$reader reed words" >wrong
mv wrong tokens
as gone status || failed "while the file is wrong: $(cat err)"
grep -qF "tokens:1: the second word" server.log || failed "no word of what is wrong"
mv tokens away
as gone status || failed "while the file is away: $(cat err)"
as reader status || failed "while the file is away: $(cat err)"
[ "$(grep -c "warn: .*tokens stay as they were: cannot .*No such file" server.log)" = 1 ] ||
    failed "no word of a file that is away, or more than one"
write_tokens >new
mv new tokens
denied "a token that was taken out" "no token that this server knows" gone status
as reader get pushes "$first" || failed "after the change: $(cat err)"
chmod 644 tokens
as reader status || failed "while others can read the file: $(cat err)"
grep -qF "chmod 600" server.log || failed "no word of who can read the file"
ps -ww -o args= -p "$job" >processes
"$build/embps" status --help >help
"$server" --help >>help
stop_door
for token in "$admin" "$reader" "$writer" "$second" "$other" "$gone" not-a-known-token; do
    if grep -qF -e "$token" -e "$(printf %s "$token" | sha256sum | cut -d ' ' -f 1)" server.log said processes help; then
        failed "a token is where others can read it: $(grep -lF -- "$token" server.log said processes help)"
    fi
done

refused_quietly() # CODE WORDS OPTION...: and no token is told
{
    refused_start "$@"
    if grep -qF -- "$reader" refused.log; then failed "$*: tells a token"; fi
}
refused_quietly 2 "chmod 600" --listen 127.0.0.1:0 --tokens tokens
chmod 600 tokens
printf '%s\n%s\n' "# none" "$reader $writer *" >wrong
refused_quietly 2 "wrong:2: the second word" --listen 127.0.0.1:0 --tokens wrong
refused_quietly 3 nowhere --listen 127.0.0.1:0 --tokens nowhere
refused_quietly 2 "with --listen alone" --tokens tokens
refused_quietly 2 "tokens would come to it in plain text" --listen 0.0.0.0:0 --tokens tokens
start_door plain 0.0.0.0:0 --tokens tokens --plain-text
grep -qF "can read tokens" plain.log || failed "no warning: $(cat plain.log)"
stop_door
if command -v openssl >/dev/null; then
    "$root/scripts/make-certs" --server server certs >/dev/null
    start_door tls 0.0.0.0:0 --tokens tokens --tls-cert certs/server.pem --tls-key certs/server.key
    if grep -q "warn" tls.log; then failed "a warning with tokens over TLS: $(cat tls.log)"; fi
    address=127.0.0.1:${address##*:}
    "$build/embps" status --tls-ca certs/ca.pem --token-file reader.token "$address" >out 2>err ||
        failed "over TLS: $(cat err)"
    got=0
    "$build/embps" status --tls-ca certs/ca.pem "$address" >out 2>err || got=$?
    [ "$got" = 8 ] || failed "over TLS without a token: $got $(cat err)"
    stop_door

    # The first steps of README.md's section on security, with this machine for their host: a table is made and filled.
    mkdir first-steps
    sed -n '/^## Security/,/^## /p' "$root/README.md" | sed -n '/^    scripts\/make-certs/,/>>tokens)$/s/^    //p' >first-steps.sh
    sed -i "s,^scripts/,$root/scripts/,; s/ps\.example\.org/localhost/" first-steps.sh
    (cd first-steps && bash -e ../first-steps.sh >../first-steps.log 2>&1) ||
        failed "the first steps: $(cat first-steps.log)"
    start_door steps 127.0.0.1:0 --tokens first-steps/tokens --tls-cert first-steps/certs/server.pem \
        --tls-key first-steps/certs/server.key
    "$build/embps" import "$address" words --input rows --tls-ca first-steps/certs/ca.pem \
        --token-file first-steps/token >out 2>err || failed "a table by the first steps' token: $(cat err)"
    stop_door
else
    echo "not run: over TLS (no openssl)"
fi
exit $((failures > 0))
