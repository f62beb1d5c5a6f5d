#!/usr/bin/env bash
# TLS of libembps, by way of the tool and of the Python package, against a real server: who gets in, and what
# is said where somebody does not. Skipped where openssl is not.
# $1: build folder, $2: temporary folder.
set -euo pipefail
build=$1 dir=$2
# shellcheck source=tests/support/doors
. "$(dirname "${BASH_SOURCE[0]}")/../support/doors"
cd "$dir"
commands_or_skip openssl
"$root/scripts/make-certs" --server server --client guest --client other ours >/dev/null
"$root/scripts/make-certs" --server server --client stranger theirs >/dev/null
"$root/scripts/make-certs" --days -1 --server old_server --client expired ours >/dev/null
for key in ours/*.key; do
    [ "$(stat -c %a "$key")" = 600 ] || failed "mode of $key"
done

let_in() # CASE OPTION...
{
    local case=$1
    shift
    "$build/embps" status --wait 30 "$address" "$@" >out 2>err || failed "$case: $(cat err)"
}

# The error has these words, and is all that is printed.
refused() # CASE CODE WORDS OPTION...
{
    local case=$1 code=$2 words=$3 got=0
    shift 3
    "$build/embps" status --wait 0 "$address" "$@" >out 2>err || got=$?
    [ "$got" = "$code" ] || failed "$case: exit status $got"
    grep -qF -- "$words" err || failed "$case: no \"$words\" in: $(cat err)"
    [ "$(wc -l <err)" = 1 ] || failed "$case: not one line: $(cat err)"
}

guest=(--tls-ca ours/ca.pem --tls-cert ours/guest.pem --tls-key ours/guest.key)
start_door both 127.0.0.1:0 --tls-cert ours/server.pem --tls-key ours/server.key --tls-client-ca ours/ca.pem
let_in "a guest" "${guest[@]}"
grep -Eq '^servers +1$' out || failed "what status prints: $(cat out)"
EMBPS_TLS_CA=ours/ca.pem EMBPS_CLIENT_TLS_CERT=ours/guest.pem EMBPS_CLIENT_TLS_KEY=ours/guest.key let_in "by the environment"
refused "no certificate" 21 "may want a certificate" --tls-ca ours/ca.pem
refused "a strange certificate" 21 "may not take this client's certificate" --tls-ca ours/ca.pem \
    --tls-cert theirs/stranger.pem --tls-key theirs/stranger.key
refused "an expired certificate" 21 "may not take this client's certificate" --tls-ca ours/ca.pem \
    --tls-cert ours/expired.pem --tls-key ours/expired.key
refused "a server's certificate" 21 "may not take this client's certificate" --tls-ca ours/ca.pem \
    --tls-cert ours/server.pem --tls-key ours/server.key
refused "another authority" 21 "certificate verify failed" --tls-ca theirs/ca.pem \
    --tls-cert ours/guest.pem --tls-key ours/guest.key
refused "plain text" 21 "it speaks TLS: give the authority"
refused "another key" 21 "the key is not the certificate's" --tls-ca ours/ca.pem --tls-cert ours/guest.pem \
    --tls-key ours/other.key
refused "a key for an authority" 2 "no certificate in PEM" --tls-ca ours/guest.key
refused "a certificate for a key" 2 "no private key in PEM" --tls-ca ours/ca.pem --tls-cert ours/guest.pem \
    --tls-key ours/guest.pem
refused "a certificate alone" 2 "come together" --tls-ca ours/ca.pem --tls-cert ours/guest.pem
refused "no such file" 3 "nowhere.pem" --tls-ca nowhere.pem
if /usr/bin/python3 -c 'import numpy' 2>/dev/null && [ -z "${EMBPS_TEST_SANITIZER-}" ]; then
    EMBPS_LIBRARY=$build/libembps.so PYTHONPATH=$root/worker/python PYTHONDONTWRITEBYTECODE=1 \
        EMBPS_CLIENT_TLS_KEY=ours/guest.key /usr/bin/python3 - "$address" 2>python.log <<'END' || failed "Python: $(cat python.log)"
import pathlib, sys
import embps
address, ours = sys.argv[1], pathlib.Path("ours")
with embps.connect(address, tls_ca=ours / "ca.pem", tls_cert=ours / "guest.pem") as client:
    table = client.table("t", 3)
    table.push_delta([1, 2], [[1, 2, 3]] * 2)
    assert table.pull([2]).tolist() == [[1, 2, 3]]
try:
    embps.connect(address, tls_ca="ours/ca.pem", tls_cert="", tls_key="", wait=0)
except embps.PeerGone as error:
    assert "certificate" in str(error), error
else:
    raise AssertionError("without a certificate")
END
else
    echo "not run: Python (no numpy, or sanitizers)"
fi
stop_door

# A name that is not the certificate's: it is for 127.0.0.1.
start_door elsewhere 127.0.0.2:0 --tls-cert ours/server.pem --tls-key ours/server.key
refused "another host" 21 "127.0.0.2 is not in peer certificate" --tls-ca ours/ca.pem
stop_door
"$root/scripts/make-certs" --host 127.0.0.2 --server server ours >/dev/null
start_door there 127.0.0.2:0 --tls-cert ours/server.pem --tls-key ours/server.key
let_in "the host that was given" --tls-ca ours/ca.pem
stop_door
start_door late 127.0.0.1:0 --tls-cert ours/old_server.pem --tls-key ours/old_server.key
refused "a server whose certificate has expired" 21 "certificate verify failed" --tls-ca ours/ca.pem
stop_door
start_door plain 127.0.0.1:0
refused "TLS where there is none" 21 "it speaks plain text and no TLS" --tls-ca ours/ca.pem
stop_door
refused "nobody" 21 "not there" --tls-ca ours/ca.pem
exit $((failures > 0))
