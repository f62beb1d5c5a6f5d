#!/bin/bash
# embps-run alone, mostly with dummy ranks in place of the programs: exit statuses follow the ranks'
# records, signals reach the ranks, wrong command lines are refused, nothing is left behind.
set -u
build=$1
folder=$2
run=$(dirname "$0")/../../scripts/embps-run
failures=0

check() { # what, expected, actual
    if [ "$2" = "$3" ]; then
        echo "ok    $1"
    else
        echo "FAIL  $1: expected \"$2\", got \"$3\""
        failures=$((failures + 1))
    fi
}

# A dummy rank records as its role's scenario says. The scenarios travel in the arguments.
mkdir -p "$folder/bin" "$folder/tmp"
cat >"$folder/bin/dummy" <<'DUMMY'
#!/bin/bash
role=server
rank=$OMPI_COMM_WORLD_RANK
if [ "${0##*/}" = embps-train ]; then
    role=worker
    rank=$((rank - 2))
fi
record() {
    printf '%s\t%s\n' "$1" "dummy" >"$EMBPS_STATUS_DIR/$role-$rank"
}
trap 'record 7; exit 7' USR2
case "$role-$rank $*" in
"worker-1 "*noise*) cat "$EMBPS_TEST_NOISE" >&2 ;; # and then as it would
esac
case "$role-$rank $*" in
"worker-1 "*worker-killed*) kill -9 $$ ;;
"worker-0 "*worker-fails* | "worker-1 "*noise-and-fails*) record 41; exit 41 ;;
"worker-0 "*no-record*) exit 0 ;;
*wait*)
    echo $$ >"$EMBPS_TEST_STARTED/$role-$rank"
    while :; do sleep 0.05; done
    ;;
esac
record 0
DUMMY
chmod +x "$folder/bin/dummy"
ln -s dummy "$folder/bin/embps-server"
ln -s dummy "$folder/bin/embps-train"
unset EMBPS_STATUS_DIR EMBPS_BIN_DIR
export TMPDIR=$folder/tmp

job() { # scenario, options...
    local scenario=$1
    shift
    # The shortest time to be down: dummies have nothing to end in order.
    "$run" --bin-dir "$folder/bin" -s 2 -w 2 --data d --kill-timeout 0 "$@" -- "$scenario" >"$folder/out" 2>"$folder/err"
}

job good
check "a good job ends with 0" 0 $?
check "a good job says nothing" "" "$(cat "$folder/out" "$folder/err")"
job worker-fails
check "the failing rank's code is the job's" 41 $?
job worker-killed
check "a killed rank fails the job" 1 $?
check "the killed rank is named" 1 "$(grep -c 'no record.*worker 1' "$folder/err")"
job no-record
check "a missing record fails the job" 1 $?

# What Open MPI prints when a rank is killed at its very end is no word of a job that ended well; words of ours are, and
# what is like it. One that failed tells all.
export EMBPS_TEST_NOISE=$folder/noise
open_mpi="[vm:07959] PMIX ERROR: UNREACHABLE in file ../../../src/server/pmix_server.c at line 3134"
printf '%s\n' "$open_mpi" "embps: error: $open_mpi" "[vm:1] PMIX ERROR: UNREACHABLE in file ../src/client/pmix_client.c at line 7" \
    "embps-server: PMIX ERROR: UNREACHABLE in file src/server/pmix_server.c at line 1" "$open_mpi, and more" "$open_mpi" \
    "embps: warn: worker 1 is lost" >"$EMBPS_TEST_NOISE"
job noise
check "a job in which Open MPI complains ends with 0" 0 $?
check "a good job does not say what Open MPI says, and all else" "$(grep -vxF "$open_mpi" "$EMBPS_TEST_NOISE")" "$(cat "$folder/err")"
job noise-and-fails
check "a job that fails in spite of that ends with its code" 41 $?
check "a failed job hides no word" "$(sort "$EMBPS_TEST_NOISE")" "$(sort "$folder/err")"

child_of() { # pid
    ps -o pid= --ppid "$1" | head -1 | tr -d ' '
}

# Starts a job whose workers wait; $pid is then a subshell of ours, $run_pid embps-run in it.
waiting_job() { # name, options...
    export EMBPS_TEST_STARTED=$folder/started-$1
    mkdir "$EMBPS_TEST_STARTED"
    shift
    job wait "$@" &
    pid=$!
    until [ "$(find "$EMBPS_TEST_STARTED" -type f -size +0 | wc -l)" -eq 2 ] || ! kill -0 "$pid" 2>/dev/null; do
        sleep 0.05 # until the workers have started
    done
    run_pid=$(child_of "$pid")
}

for signal in TERM INT; do
    waiting_job "$signal"
    kill -"$signal" "$run_pid"
    wait "$pid"
    check "SIG$signal ends the job with 7" 7 $?
done

if setpriv --pdeathsig TERM true 2>/dev/null; then
    waiting_job KILL --kill-timeout 2
    ranks=("$(child_of "$run_pid")" "$(cat "$EMBPS_TEST_STARTED/worker-0")" "$(cat "$EMBPS_TEST_STARTED/worker-1")")
    check "mpirun and the workers run" 3 "$(ps -o pid= -p "${ranks[0]},${ranks[1]},${ranks[2]}" | wc -l)"
    kill -KILL "$run_pid"
    wait "$pid" 2>/dev/null
    for ((i = 0; i < 600; i++)); do
        left=$(ps -o pid=,comm= -p "${ranks[0]},${ranks[1]},${ranks[2]}" | grep -v defunct) || break
        sleep 0.1
    done
    check "mpirun and the workers end when embps-run is killed" "" "$left"
    [ -z "$left" ] || kill -KILL "${ranks[@]}"
    rm -rf "$folder"/tmp/embps-run.* # a killed embps-run cannot
fi

job good <&-
check "a closed standard input does no harm" 0 $?
for _ in $(seq 200); do echo "the cat and the dog sit on the mat"; done >"$folder/text"
"$run" --bin-dir "$build" --data "$folder/tables" -- skipgram --corpus "$folder/text" --out "$folder/vectors" \
    --epochs 1 --dim 8 <&- >&- 2>&-
check "a job of the true programs with closed standard streams ends with 0" 0 $?
check "the version is that of the programs" "embps-run $("$build/embps-server" --version | sed 's/.* //')" \
    "$("$run" --bin-dir "$build" --version)"

"$run" --bin-dir "$folder/bin" -s 0 -w 1 --data d -- x 2>"$folder/err"
check "0 servers are refused" 2 $?
"$run" --bin-dir "$folder/bin" -s 1 -w 0 --data d -- x 2>"$folder/err"
check "0 workers are refused" 2 $?
"$run" --bin-dir "$folder/bin" -s 1 -w x --data d -- x 2>"$folder/err"
check "a number that is none is refused" 2 $?
"$run" --bin-dir "$folder/bin" -- x 2>"$folder/err"
check "a missing --data is refused" 2 $?
"$run" --bin-dir "$folder/bin" --data d 2>"$folder/err"
check "a missing trainer is refused" 2 $?
"$run" --bin-dir "$folder/none" --data d -- x 2>"$folder/err"
check "missing programs are told" 2 $?
"$run" --bin-dir "$folder/bin" --bogus 2>"$folder/err"
check "unknown options are refused" 2 $?
"$run" --bin-dir "$folder/bin" --recovery --data d -- x 2>"$folder/err"
check "--recovery, which there is no more, is refused" 2 $?
check "the command is printed" 1 "$("$run" --bin-dir "$folder/bin" --servers=3 --data "a b" --memory 8M --print -- skipgram |
    grep -c -- '-n 3 .*embps-server --data a\\ b --memory 8M : .*-n 1 .*embps-train skipgram')"
check "ranks of both kinds get the variables, on other machines too" 1 "$("$run" --bin-dir "$folder/bin" --data d --print -- x |
    grep -c -- '-x EMBPS_STATUS_DIR .*embps-server .* : .*-x EMBPS_STATUS_DIR .*embps-train')"
printf 'one slots=2\ntwo slots = 1 # last\n' >"$folder/hosts"
check "a host file with places enough needs no oversubscription" 0 "$("$run" --bin-dir "$folder/bin" -s 2 -w 1 \
    --hosts "$folder/hosts" --data d --print -- x | grep -c oversubscribe)"
check "a host file with too few places needs it" 1 "$("$run" --bin-dir "$folder/bin" -s 2 -w 2 \
    --hosts "$folder/hosts" --data d --print -- x | grep -c oversubscribe)"
# bash 5.2 forgets a SIGINT that comes while it substitutes a command.
check "no command is substituted while a job runs" "" \
    "$(sed -n '/^trap stop INT/,/^trap .. INT/p' "$run" | grep -E '^[^#]*\$\([^(]')"
check "a job is watched between these two" 1 "$(sed -n '/^trap stop INT/,/^trap .. INT/p' "$run" | grep -c '^watch()')"
check "no folder of records is left" "" "$(find "$folder/tmp" -name "embps-run*")"

[ -n "$build" ] && [ "$failures" -eq 0 ]
