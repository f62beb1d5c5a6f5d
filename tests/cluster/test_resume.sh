#!/usr/bin/env bash
# A training that is killed and started again with the same command line has the same bits at its end as one that
# was not: in step, with several workers, and with one; on other numbers of servers too. Another training is refused.
# Where each kill strikes, and whom, comes from a seed; EMBPS_TEST_KILLS=N and EMBPS_TEST_SEED=N say how many, and
# which; EMBPS_TEST_CORPUS=FILE is a text to train on. Every other kill waits until a checkpoint is being made.
# $1: build folder, $2: temporary folder.
set -euo pipefail
build=$1 dir=$2
# shellcheck source=tests/support/jobs
. "$(dirname "${BASH_SOURCE[0]}")/../support/jobs"
# shellcheck source=tests/support/trainings
. "$(dirname "${BASH_SOURCE[0]}")/../support/trainings"
cd "$dir"

kills=${EMBPS_TEST_KILLS:-3}
[ -z "${EMBPS_TEST_SANITIZER:-}" ] || kills=${EMBPS_TEST_KILLS:-1} # where all is slow
seed=${EMBPS_TEST_SEED:-$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}
echo "seed $seed: EMBPS_TEST_SEED=$seed repeats it"
RANDOM=$((seed % 32768))
if [ -n "${EMBPS_TEST_CORPUS-}" ]; then
    cp -- "$EMBPS_TEST_CORPUS" text
else
    grouped_text 11 6000 40 40 12 >text
fi
common=(--corpus "$dir/text" --dim 24 --min-count 3 --quiet --binary)

# Starts a job in the background: its pid in job; vectors in NAME.in and NAME.out, tables in NAME.
start() # NAME SERVERS WORKERS OPTION...
{
    local name=$1 servers=$2 workers=$3
    shift 3
    "${bare[@]}" -n "$servers" "$server" --data "$dir/$name.data" --checkpoints "$dir/$name.saved" --memory 16M : \
        -n "$workers" "$train" skipgram "${common[@]}" --out "$dir/$name.in" --out-context "$dir/$name.out" "$@" \
        >>"$name.log" 2>&1 </dev/null &
    job=$!
}

finish() # NAME
{
    finish_job 120
    [ "$status" = 0 ] || { failed "$1 ends with $status"; cat "$1.log"; exit 1; }
}

expect_same() # NAME AS WORDS...
{
    cmp "$1.in" "$2.in" && cmp "$1.out" "$2.out" || failed "${*:3}: other bits"
}

made() # NAME: checkpoints so far, by the number of the last
{
    local last
    last=$(find "$1.saved" -maxdepth 1 -name 'checkpoint-*' 2>/dev/null | sed 's/.*checkpoint-0*//; s/\..*//' | sort -n | tail -n 1)
    echo "${last:-0}"
}
has_made() # NAME N: a checkpoint N is there or begins; or the job is over
{
    [ "$(made "$1")" -ge "$2" ] || ! kill -0 "$job" 2>/dev/null
}

# Returns within a millisecond or so of the moment at which a checkpoint begins, none being made before; false: the
# job is over.
await_begun() # NAME
{
    local never seen=yes
    exec {never}<> <(:)
    until [ $seen = no ] && compgen -G "$1.saved/checkpoint-*.partial" >/dev/null; do
        compgen -G "$1.saved/checkpoint-*.partial" >/dev/null || seen=no
        kill -0 "$job" 2>/dev/null || break
        read -r -t 0.001 -u "$never" || true
    done
    exec {never}>&-
    [ -n "$job" ] && kill -0 "$job" 2>/dev/null
}

# Kills a server, a worker or mpirun at some moment after checkpoint AT was begun, and all that is left then. What
# nobody finished any more was under way.
n_kills=0 n_during=0
kill_one() # NAME AT
{
    local pids=() victim during=''
    await 60 has_made "$1" "$2" || failed "no checkpoint $2 of $1"
    if [ $((RANDOM % 2)) = 0 ]; then
        await_begun "$1" || true
        sleep "0.00$((RANDOM % 8))"
    else
        sleep "0.0$((RANDOM % 10))"
    fi
    case $((RANDOM % 3)) in
    0) victim=server; mapfile -t pids < <(ranks_of embps-server "$dir/$1" || true) ;;
    1) victim=worker; mapfile -t pids < <(ranks_of embps-train "$dir/$1" || true) ;;
    2) victim=mpirun pids=("$job") ;;
    esac
    [ ${#pids[@]} -ne 0 ] && kill -KILL "${pids[RANDOM % ${#pids[@]}]}" 2>/dev/null || victim=
    end_jobs
    kill -KILL "$job" 2>/dev/null || true
    { wait "$job" || true; } 2>/dev/null
    job=
    await 60 no_jobs_left || failed "ranks stay"
    if [ -z "$victim" ]; then
        echo "the job had ended before anybody could be killed"
        return
    fi
    n_kills=$((n_kills + 1))
    if compgen -G "$1.saved/checkpoint-*.partial" >/dev/null; then
        n_during=$((n_during + 1)) during=", which was being made"
    fi
    echo "killed a $victim at checkpoint $(made "$1")$during"
}
# The kinds of training: one in step with two workers, and one worker that overlaps its batches; in 16 bits too.
kinds=(step one half)
workers_of() { case $1 in step) echo 2 ;; *) echo 1 ;; esac; }
options_of()
{
    case $1 in
    step) echo "--epochs ${2-3} --staleness 0 --batch-words 400 --checkpoint-batches 40" ;;
    one) echo "--epochs 3 --batch-words 400 --checkpoint-batches 80" ;;
    half) echo "--epochs 3 --batch-words 400 --checkpoint-batches 70 --precision bf16 --wire pull=f16,push=int8 --prefetch 2" ;;
    esac
}
for kind in "${kinds[@]}"; do
    # shellcheck disable=SC2046 # words
    start "$kind" 2 "$(workers_of "$kind")" $(options_of "$kind")
    finish "$kind"
    [ "$(made "$kind")" -ge 2 ] || failed "$kind: only $(made "$kind") checkpoints"
done

for ((i = 0; i < kills; i++)); do
    kind=${kinds[i % 3]} servers=$((RANDOM % 3 + 1)) before=0
    echo "kill $((i + 1)): $kind, first on $servers servers"
    for ((times = kills > 3 ? RANDOM % 2 : 0; times >= 0; times--)); do
        # shellcheck disable=SC2046 # words
        start again "$servers" "$(workers_of "$kind")" $(options_of "$kind")
        kill_one again $((before + RANDOM % 3 + 1))
        before=$(made again)
        servers=$((RANDOM % 3 + 1))
    done
    # shellcheck disable=SC2046 # words
    [ -e again.in ] || start again "$servers" "$(workers_of "$kind")" $(options_of "$kind")
    [ -z "$job" ] || finish again
    expect_same again "$kind" "$kind after being killed, on $servers servers"
    [ $failures = 0 ] || { cat again.log; exit 1; }
    rm -rf again.data again.saved again.log again.in again.out
done

echo "$n_kills kills, $n_during of them during a checkpoint"
[ "$kills" -lt 20 ] || [ $n_during -ge $((n_kills / 10)) ] || failed "too few kills during checkpoints"

# Told to stop: goes on too. Then another training on its checkpoints is refused, and says what differs.
read -ra long < <(options_of step 300)
start again 2 2 "${long[@]}"
await 60 has_made again 2 || failed "no checkpoint"
kill -USR2 "$job"
finish_job 60
[ "$status" = 7 ] || failed "told to stop, it ends with $status: $(cat again.log)"
refused() # WORDS WORKERS OPTION...
{
    local words=$1
    shift
    : >again.log
    start again 2 "$@"
    finish_job 60
    [ "$status" = 4 ] || failed "another training ends with $status"
    grep -qF -- "$words" again.log || failed "no \"$words\" in: $(cat again.log)"
}
refused "with --seed 1, and this one has --seed 2" 2 "${long[@]}" --seed 2
: >again.log
sed -i 's/"batches"/"cars"/' again.saved/checkpoint-*/state
start again 2 2 "${long[@]}"
finish_job 60
[ "$status" = 42 ] || failed "a damaged position: $status, $(cat again.log)"
grep -q 'state is damaged' again.log || failed "a damaged position is not named: $(cat again.log)"

# Several that are not in step go on as well.
start apart 2 2 --batch-words 400 --checkpoint-batches 40 --epochs 3 --cache 400K
await 60 has_made apart 2 || failed "no checkpoint"
end_jobs
wait "$job" 2>/dev/null || true
await 60 no_jobs_left || failed "ranks stay"
start apart 1 2 --batch-words 400 --checkpoint-batches 40 --epochs 3 --cache 400K
finish apart
exit $((failures > 0))
