#!/usr/bin/env bash
# TLS of embps-server --listen against real clients: who is let in, who is not, certificates that are
# replaced, and nothing of a key in a log. Skipped where openssl or what test_door_python needs is not.
# $1: build folder, $2: temporary folder.
set -euo pipefail
build=$1 dir=$2
# shellcheck source=tests/support/doors
. "$(dirname "${BASH_SOURCE[0]}")/../support/doors"
cd "$dir"
commands_or_skip openssl
stubs_or_skip

make_certs() # OPTION... FOLDER
{
    "$root/scripts/make-certs" "$@" >/dev/null
}
make_certs --server server --client guest ours
make_certs --client stranger --server renewed theirs
make_certs --server old_server --server last_day --client expired ours
certificate_days ours old_server -1
certificate_days ours expired -1
certificate_days ours last_day 1
cp ours/server.pem ours/server.key .

expect() # WHAT CASE CA [CERT KEY [NAME]]
{
    local what=$1 case=$2 got
    shift 2
    got=$($python "$root/tests/cluster/door_tls_client.py" stubs "$address" "$@" 2>/dev/null) || got="a traceback"
    [ "$got" = "$what" ] || failed "$case: $got instead of $what"
}

start_door both 127.0.0.1:0 --tls-cert server.pem --tls-key server.key --tls-client-ca ours/ca.pem
expect hello "a guest" ours/ca.pem ours/guest.pem ours/guest.key
expect UNAVAILABLE "no certificate" ours/ca.pem
expect UNAVAILABLE "another authority's guest" ours/ca.pem theirs/stranger.pem theirs/stranger.key
expect UNAVAILABLE "an expired guest" ours/ca.pem ours/expired.pem ours/expired.key
expect UNAVAILABLE "a server that the guest does not trust" theirs/ca.pem ours/guest.pem ours/guest.key
expect UNAVAILABLE "a server of another name" ours/ca.pem ours/guest.pem ours/guest.key elsewhere.example
expect UNAVAILABLE "plain text" -
for version in -tls1 -tls1_1; do
    openssl s_client "$version" -cipher 'ALL:@SECLEVEL=0' -connect "$address" -CAfile ours/ca.pem -cert ours/guest.pem \
        -key ours/guest.key </dev/null >s_client.log 2>&1 && failed "openssl s_client $version was let in"
done
openssl s_client -tls1_2 -connect "$address" -CAfile ours/ca.pem -cert ours/guest.pem -key ours/guest.key -alpn h2 \
    </dev/null >s_client.log 2>&1 || failed "openssl s_client -tls1_2 was not let in: $(cat s_client.log)"

# The files are replaced: who comes from now on meets the new ones. Half of a change changes nothing.
mv server.key away
expect hello "while a file is away" ours/ca.pem ours/guest.pem ours/guest.key
cp theirs/renewed.key server.key
cp theirs/renewed.pem server.pem
expect UNAVAILABLE "the old certificate" ours/ca.pem ours/guest.pem ours/guest.key
expect hello "the new certificate" theirs/ca.pem ours/guest.pem ours/guest.key
mv server.key elsewhere
cp theirs/renewed.key ours
make_certs --server renewed ours
cp ours/renewed.pem server.pem
expect hello "a newer certificate while its key is away" theirs/ca.pem ours/guest.pem ours/guest.key
mv elsewhere server.key
expect hello "the same key is back" ours/ca.pem ours/guest.pem ours/guest.key
stop_door
for key in server.key away ours/guest.key; do
    if grep -qF "$(sed -n 2p "$key")" both.log; then
        failed "a key is in the log"
    fi
done

# Encrypted only: on loopback anybody is let in who trusts the server.
cp ours/server.pem ours/server.key .
start_door one 127.0.0.1:0 --tls-cert server.pem --tls-key server.key
expect hello "without a certificate" ours/ca.pem
expect UNAVAILABLE "plain text" -
stop_door
start_door late 127.0.0.1:0 --tls-cert ours/old_server.pem --tls-key ours/old_server.key
expect UNAVAILABLE "a server whose certificate has expired" ours/ca.pem
grep -Eq 'warn: .* ours/old_server.pem has expired on 20[0-9-]+ [0-9:]+ UTC' late.log ||
    failed "no warning of a certificate that has expired: $(cat late.log)"
stop_door

# Certificates that are about to expire, at the start and when they are replaced; and what gRPC would print.
cp ours/server.pem ours/server.key .
start_door aging 127.0.0.1:0 --tls-cert server.pem --tls-key server.key
if grep -q warn aging.log; then
    failed "a warning of nothing: $(cat aging.log)"
fi
printf 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n' >plain_text
for _ in 1 2 3; do # at once: bash itself writes line by line, and the server may close behind the first
    cat plain_text >"/dev/tcp/127.0.0.1/${address##*:}"
done
await 60 grep -q "warn: .*a guest's TLS handshake failed: wrong version number" aging.log ||
    failed "no word of a handshake that failed: $(cat aging.log)"
[ "$(grep -c 'handshake failed' aging.log)" = 1 ] || failed "more than one line a minute: $(cat aging.log)"
if grep -q '^[EI][0-9]' aging.log; then
    failed "gRPC's own lines: $(cat aging.log)"
fi
cp ours/last_day.key server.key
cp ours/last_day.pem server.pem
expect hello "a certificate on its last day" ours/ca.pem
grep -Eq 'warn: .* server.pem expires on 20[0-9-]+ [0-9:]+ UTC' aging.log ||
    failed "no warning of a certificate that expires: $(cat aging.log)"
stop_door

refused_start 2 "certificate and key do not belong together" --listen 127.0.0.1:0 --tls-cert server.pem --tls-key ours/guest.key
refused_start 3 "nowhere.pem" --listen 127.0.0.1:0 --tls-cert nowhere.pem --tls-key ours/guest.key
refused_start 2 "--tls-client-ca" --listen 0.0.0.0:0 --tls-cert server.pem --tls-key server.key
cp ours/server.pem ours/server.key .
start_door open 0.0.0.0:0 --tls-cert server.pem --tls-key server.key --tls-client-ca ours/ca.pem
if grep -q warn open.log; then
    failed "a warning with certificates of both sides: $(cat open.log)"
fi
stop_door

[ "$failures" = 0 ]
