#!/usr/bin/env bash
# Workers that read rows straight from the memory of servers on their host: the same bits as by
# messages, for any number of servers, with little memory, and in a training, with a cache too; where it is not allowed, all
# goes by messages.
# $1: build folder, $2: temporary folder.
set -euo pipefail
build=$1 dir=$2
# shellcheck source=tests/support/trainings
. "$(dirname "${BASH_SOURCE[0]}")/../support/trainings"
client=$build/tests/client_main
cd "$dir"

job() # NAME SERVERS WORKERS MEMORY DIRECT PROGRAM ARGUMENT...
{
    local name=$1 servers=$2 workers=$3 memory=$4 direct=$5
    shift 5
    run_job "$name" "$servers" --memory "$memory" --direct "$direct" : "$workers" "$@"
    echo "ok: $name"
}

job messages 1 1 64M off "$client" one 5000 rows-messages
export EMBPS_TEST_DIRECT=1
job direct-1 1 1 64M auto "$client" one 5000 rows-direct-1
job direct-3 3 1 64M on "$client" one 5000 rows-direct-3
job many 2 2 16M auto "$client" many 200
unset EMBPS_TEST_DIRECT
for other in direct-1 direct-3; do
    cmp rows-messages rows-$other
done
unset EMBPS_TEST_DIRECT
job refused 1 1 64M off "$client" one 5000 rows-refused
cmp rows-messages rows-refused

# A training whose tables do not fit into 8 MiB.
grouped_text 7 3000 60 130 14 >text
train=("$build/embps-train" skipgram --corpus text --dim 100 --min-count 2 --batch-words 3000 --epochs 2 --quiet)
job train-messages 1 1 256M auto "${train[@]}" --out vectors-messages
job train-direct 1 1 256M auto "${train[@]}" --direct auto --out vectors-direct
job train-direct-2 2 1 8M auto "${train[@]}" --direct auto --out vectors-direct-2
job train-direct-2-2 2 2 64M auto "${train[@]}" --direct auto --staleness 0 --out vectors-direct-2-2
job train-cached-2-2 2 2 64M auto "${train[@]}" --direct auto --cache 8M --staleness 0 --out vectors-cached-2-2
job train-messages-2-2 2 2 64M off "${train[@]}" --staleness 0 --out vectors-messages-2-2
"${train[@]}" --local --threads 1 --data data-local --direct auto --out vectors-local
for other in direct direct-2 local; do
    cmp vectors-messages vectors-$other
done
for other in direct cached; do
    cmp vectors-messages-2-2 vectors-$other-2-2
done
