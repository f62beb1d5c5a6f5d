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
"$root/scripts/make-certs" --server old_server --client expired ours >/dev/null
certificate_days ours old_server -1
certificate_days ours expired -1
for key in ours/*.key; do
    [ "$(stat -c %a "$key")" = 600 ] || failed "mode of $key"
done

for days in 0 -1 00 3651 99999999999999999999 1.5 ten "1 2"; do
    code=0
    "$root/scripts/make-certs" --days "$days" --server never ours >out 2>err || code=$?
    [ "$code" = 2 ] && [ ! -e ours/never.pem ] && grep -qF -- "--days $days" err || failed "$days days: $code $(cat out err)"
done

# A certificate that is renewed is for the hosts that it was for, in the order that they were given, each once.
hosts_of() # FOLDER NAME
{
    openssl x509 -in "$1/$2.pem" -noout -ext subjectAltName | tail -n 1 | tr ',' '\n' | sed 's/^ *//'
}
make_kept() # OPTION...
{
    "$root/scripts/make-certs" "$@" --server kept ours >out || failed "make-certs $*"
    hosts_of ours kept >names
}
make_kept --host ps.example.org --host 2001:db8::1:0
cp names first
for name in 'DNS:ps.example.org' 'IP Address:2001:DB8:0:0:0:0:1:0' 'IP Address:0:0:0:0:0:0:0:1' 'IP Address:127.0.0.1'; do
    grep -qxF "$name" first || failed "not for $name: $(cat first)"
done
make_kept
cmp first names || failed "a renewed certificate is for others: $(cat names)"
grep -q '^make-certs: ours/kept.pem is for .*ps\.example\.org' out || failed "make-certs prints: $(cat out)"
make_kept --host more.example.org --host 2001:DB8::1:0
{ cat first; echo DNS:more.example.org; } | cmp - names || failed "a host was added: $(cat names)"
rm ours/kept.pem
make_kept
if grep -q example names; then failed "a certificate that was removed counts: $(cat names)"; fi
"$root/scripts/make-certs" --client kept ours >/dev/null # one without hosts
code=0
"$root/scripts/make-certs" --server kept ours >out 2>err || code=$?
[ "$code" = 1 ] && grep -qF "ours/kept.pem names no host" err || failed "no host: $code $(cat out err)"
code=0
"$root/scripts/make-certs" --host 1:2:x::3 --server never ours >out 2>err || code=$?
[ "$code" = 2 ] && grep -qF "1:2:x::3" err && [ ! -e ours/never.pem ] || failed "no address: $code $(cat out err)"

let_in() # CASE OPTION...
{
    local case=$1
    shift
    "$build/embps" status --wait 30 "$address" "$@" >out 2>err || failed "$case: $(cat err)"
}

# The error has these words, and is all that is printed but for whom it waits; it comes long before the wait is over.
wait=600
refused() # CASE CODE WORDS OPTION...
{
    local case=$1 code=$2 words=$3 got=0
    shift 3
    timeout 100 "$build/embps" status --wait "$wait" "$address" "$@" >out 2>err || got=$?
    [ "$got" = "$code" ] || failed "$case: exit status $got"
    grep -qF -- "$words" err || failed "$case: no \"$words\" in: $(cat err)"
    [ "$(grep -vc ': waiting for' err)" = 1 ] || failed "$case: not one line: $(cat err)"
}

guest=(--tls-ca ours/ca.pem --tls-cert ours/guest.pem --tls-key ours/guest.key)
start_door both 127.0.0.1:0 --tls-cert ours/server.pem --tls-key ours/server.key --tls-client-ca ours/ca.pem
let_in "a guest" "${guest[@]}"
grep -Eq '^servers +1$' out || failed "what status prints: $(cat out)"
EMBPS_TLS_CA=ours/ca.pem EMBPS_CLIENT_TLS_CERT=ours/guest.pem EMBPS_CLIENT_TLS_KEY=ours/guest.key let_in "by the environment"
refused "no certificate" 21 "may want a certificate" --tls-ca ours/ca.pem
refused "a strange certificate" 21 "may not take this client's certificate" --tls-ca ours/ca.pem \
    --tls-cert theirs/stranger.pem --tls-key theirs/stranger.key
refused "an expired certificate" 2 "ours/expired.pem has expired on 20" --tls-ca ours/ca.pem \
    --tls-cert ours/expired.pem --tls-key ours/expired.key
refused "a server's certificate" 21 "may not take this client's certificate" --tls-ca ours/ca.pem \
    --tls-cert ours/server.pem --tls-key ours/server.key
refused "another authority" 21 "the server at $address cannot be trusted: its certificate was signed by no authority in theirs/ca.pem" --tls-ca theirs/ca.pem \
    --tls-cert ours/guest.pem --tls-key ours/guest.key
wait=0
refused "no certificate, at once" 21 "may want a certificate" --tls-ca ours/ca.pem
wait=600
refused "plain text" 21 "the server at $address speaks TLS: give the authority that signs its certificate (--tls-ca)"
refused "another key" 2 "the key in ours/other.key is not that of the first certificate in ours/guest.pem" --tls-ca ours/ca.pem --tls-cert ours/guest.pem \
    --tls-key ours/other.key
refused "a key for an authority" 2 "no certificate in PEM" --tls-ca ours/guest.key
refused "a certificate for a key" 2 "no private key in PEM" --tls-ca ours/ca.pem --tls-cert ours/guest.pem \
    --tls-key ours/guest.pem
openssl pkey -in ours/guest.key -aes128 -passout pass:secret -out locked.key
refused "a key with a pass phrase" 2 "the private key in locked.key has a pass phrase" --tls-ca ours/ca.pem \
    --tls-cert ours/guest.pem --tls-key locked.key </dev/null
{ sed '3s/./*/' ours/ca.pem; } >damaged.pem
refused "a damaged authority" 2 "damaged.pem has no certificate in PEM, or one that is damaged" --tls-ca damaged.pem
refused "a certificate alone" 2 "--tls-cert and --tls-key come together, and with --tls-ca" --tls-ca ours/ca.pem \
    --tls-cert ours/guest.pem
refused "no such file" 3 "--tls-ca nowhere.pem: cannot " --tls-ca nowhere.pem
EMBPS_TLS_CA=nowhere.pem refused "no such file of the environment" 3 "EMBPS_TLS_CA=nowhere.pem: cannot "
EMBPS_CLIENT_TLS_KEY=damaged.pem refused "a key of the environment" 2 "EMBPS_CLIENT_TLS_KEY=damaged.pem: damaged.pem has no private key" \
    --tls-ca ours/ca.pem --tls-cert ours/guest.pem
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
    stop_door

    # A client that goes on while the server gets another authority, and its own file too.
    start_door moving 127.0.0.1:0 --tls-cert ours/server.pem --tls-key ours/server.key --checkpoints moving.saved
    cp ours/ca.pem trusted.pem
    mkfifo orders
    EMBPS_LIBRARY=$build/libembps.so PYTHONPATH=$root/worker/python PYTHONDONTWRITEBYTECODE=1 \
        /usr/bin/python3 - "$address" 2>python.log >python.out <<'END' &
import sys
import embps
with embps.connect(sys.argv[1], tls_ca="trusted.pem", timeout=300) as client:
    table = client.table("t", 1)
    table.push_delta([1], [[1]])
    print("pushed", flush=True)
    with open("orders") as orders:
        orders.read()
    table.push_delta([1], [[1]])
    assert table.pull([1]).tolist() == [[2]]
END
    python_job=$!
    await 60 grep -q pushed python.out || failed "Python does not push: $(cat python.log)"
    stop_door
    cp theirs/ca.pem trusted.pem
    start_door moving "$address" --tls-cert theirs/server.pem --tls-key theirs/server.key --checkpoints moving.saved
    : >orders
    wait "$python_job" || failed "Python with another authority: $(cat python.log)"
else
    echo "not run: Python (no numpy, or sanitizers)"
fi
stop_door

# A name that is not the certificate's: it is for 127.0.0.1.
start_door elsewhere 127.0.0.2:0 --tls-cert ours/server.pem --tls-key ours/server.key
refused "another host" 21 "its certificate is not for 127.0.0.2 but for localhost, 127.0.0.1" --tls-ca ours/ca.pem
stop_door
"$root/scripts/make-certs" --host 127.0.0.2 --server server ours >/dev/null
start_door there 127.0.0.2:0 --tls-cert ours/server.pem --tls-key ours/server.key
let_in "the host that was given" --tls-ca ours/ca.pem
stop_door
start_door late 127.0.0.1:0 --tls-cert ours/old_server.pem --tls-key ours/old_server.key
refused "a server whose certificate has expired" 21 "its certificate has expired on 20" --tls-ca ours/ca.pem
stop_door
start_door plain 127.0.0.1:0
refused "TLS where there is none" 21 "speaks plain text and no TLS" --tls-ca ours/ca.pem
stop_door
wait=0
refused "nobody" 21 "not there: ipv4:$address: Failed to connect to remote host: Connection refused" --tls-ca ours/ca.pem
exit $((failures > 0))
