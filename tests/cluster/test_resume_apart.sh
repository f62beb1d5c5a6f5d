#!/usr/bin/env bash
# Several workers that are not in step, on several servers, killed at random moments and gone on with by embps-run
# --restart: what the servers have applied in the end is what the workers have pushed in the lives that count, to the
# last row, which is what those of an undisturbed run push; and the vectors are as good.
#
# Where each kill strikes, and whom, comes from a seed; every other one waits until a checkpoint is being made.
# EMBPS_TEST_KILLS=N and EMBPS_TEST_SEED=N say how many, and which. By hand, on a text and with word pairs of one's own:
# EMBPS_TEST_CORPUS=FILE EMBPS_TEST_PAIRS="FILE..." (embps eval --similarity).
# $1: build folder, $2: temporary folder.
set -euo pipefail
build=$1 dir=$2
# shellcheck source=tests/support/jobs
. "$(dirname "${BASH_SOURCE[0]}")/../support/jobs"
# shellcheck source=tests/support/trainings
. "$(dirname "${BASH_SOURCE[0]}")/../support/trainings"
cd "$dir"

kills=${EMBPS_TEST_KILLS:-2}
[ -z "${EMBPS_TEST_SANITIZER:-}" ] || kills=${EMBPS_TEST_KILLS:-1} # where all is slow
seed=${EMBPS_TEST_SEED:-$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}
echo "seed $seed: EMBPS_TEST_SEED=$seed repeats it"
RANDOM=$((seed % 32768))
undisturbed=2
if [ -n "${EMBPS_TEST_CORPUS-}" ]; then
    corpus=$EMBPS_TEST_CORPUS undisturbed=8 # scores of such runs differ by 0.01 and more
    read -r -a pairs <<<"$EMBPS_TEST_PAIRS"
    options=(--dim 48 --epochs 4 --batch-words 1500 --checkpoint-batches 40)
else
    corpus=$dir/text pairs=("$dir/pairs")
    grouped_text 11 12000 40 40 12 >text
    # Words of one group are alike, those of two are not.
    awk 'BEGIN {
        srand(5)
        for (i = 0; i < 4000; i++) {
            group = int(rand() * 25)
            other = i % 2 ? group : (group + 1 + int(rand() * 24)) % 25
            print "g" group "w" int(rand() * 40), "g" other "w" int(rand() * 40), i % 2
        }
    }' >pairs
    options=(--dim 24 --epochs 8 --batch-words 600 --sample 0 --checkpoint-batches 40)
fi

start() # NAME RESTARTS SERVER-OPTION...
{
    local name=$1 restarts=$2
    shift 2
    env --default-signal=INT "$root/scripts/embps-run" --bin-dir "$build" -s 3 -w 3 --data "$dir/$name.data" -m 32M \
        --kill-timeout 1 --restart "$restarts" --server-arg --checkpoints="$dir/$name.saved" \
        "${@/#/--server-arg=}" -- skipgram --corpus "$corpus" \
        --min-count 5 --staleness 2 "${options[@]}" --binary --out "$dir/$name.out" --log-json "$dir/$name.json" \
        >"$name.log" 2>&1 </dev/null &
    job=$!
}

# Its account must be even; its scores go to scores-$2, a line a run.
accounted='' # rows
finish() # NAME UNDISTURBED|KILLED
{
    local counts scores
    finish_job 600
    [ "$status" = 0 ] || { failed "$1 ends with $status: $(cat "$1.log")"; exit 1; }
    counts=$(tail -n 1 "$1.json" | sed -nE 's/.*"pushes":([0-9]+),"pushes_applied":([0-9]+),"rows_pushed":([0-9]+),"rows_applied":([0-9]+).*/\1 \2 \3 \4/p')
    read -r -a counts <<<"$counts"
    [ ${#counts[@]} = 4 ] || { failed "$1 gives no account: $(tail -n 1 "$1.json")"; exit 1; }
    [ "${counts[0]}" = "${counts[1]}" ] && [ "${counts[2]}" = "${counts[3]}" ] ||
        failed "$1: ${counts[0]} pushes of ${counts[2]} rows, but ${counts[1]} of ${counts[3]} applied"
    : "${accounted:=${counts[2]}}"
    [ "${counts[2]}" = "$accounted" ] || failed "$1: ${counts[2]} rows pushed, and $accounted in another run"
    grep -q "${counts[0]} pushes of ${counts[2]} rows, each applied once" "$1.log" || failed "$1 does not say it: $(cat "$1.log")"
    scores=$("$build/embps" eval --vectors "$1.out" --similarity "${pairs[@]}" --json | sed -nE 's/.*"spearman": ?(-?[0-9.e-]+).*/\1/p' | xargs)
    echo "$scores" >>"scores-$2"
    echo "$1: ${counts[1]} of ${counts[0]} pushes and ${counts[3]} of ${counts[2]} rows applied, scores $scores"
    rm -rf "$1.data" "$1.out" "$1.json"
}

begun() # NAME: a checkpoint is being made
{
    compgen -G "$1.saved/checkpoint-*.partial" >/dev/null
}
made() # NAME: the number of the last one
{
    local last
    last=$(find "$1.saved" -maxdepth 1 -name 'checkpoint-??????????' 2>/dev/null | sed 's/.*checkpoint-0*//' | sort -n | tail -n 1)
    echo "${last:-0}"
}
has_made() # NAME N
{
    [ "$(made "$1")" -ge "$2" ]
}
all_there() # NAME: the ranks of the try that is under way
{
    [ "$(ranks_of embps-server "$dir/$1" | wc -l)" = 3 ] && [ "$(ranks_of embps-train "$dir/$1" | wc -l)" = 3 ]
}
said() # NAME N: that restart N comes
{
    grep -q "restart $2 of" "$1.log"
}

# Kills a server, a worker or mpirun at a random moment: while the job starts, between checkpoints, during one.
n_kills=0 n_during=0
kill_one() # NAME N
{
    local pids=() victim during='' at never
    at=$(($(made "$1") + RANDOM % 3))
    await 120 all_there "$1" || return 0
    await 120 has_made "$1" $at || return 0
    if [ $((RANDOM % 2)) = 0 ]; then
        exec {never}<> <(:)
        until begun "$1" || ! kill -0 "$job" 2>/dev/null; do
            read -r -t 0.001 -u "$never" || true
        done
        exec {never}>&-
        sleep "0.00$((RANDOM % 10))"
    else
        sleep "0.$((RANDOM % 10))$((RANDOM % 10))"
    fi
    case $((RANDOM % 3)) in
    0) victim=server; mapfile -t pids < <(ranks_of embps-server "$dir/$1" || true) ;;
    1) victim=worker; mapfile -t pids < <(ranks_of embps-train "$dir/$1" || true) ;;
    2) victim=mpirun; mapfile -t pids < <(pgrep -f "^mpirun .*$dir/$1" || true) ;;
    esac
    [ ${#pids[@]} -ne 0 ] && kill -KILL "${pids[RANDOM % ${#pids[@]}]}" 2>/dev/null || return 0
    await 120 said "$1" "$2" || true
    said "$1" "$2" || return 0 # it had ended
    n_kills=$((n_kills + 1))
    # Nobody takes away what was not finished, before the next try does.
    begun "$1" && n_during=$((n_during + 1)) during=", which was being made"
    echo "killed a $victim behind checkpoint $(made "$1")$during"
}

for ((i = 1; i <= undisturbed; i++)); do
    rm -rf alone*.saved
    start "alone$i" 0
    finish "alone$i" undisturbed
done
# Another training that begins with the weights of one has an account of its own.
start weights 0 --weights="$(find "$dir/alone$undisturbed.saved" -maxdepth 1 -name 'checkpoint-*' | sort | tail -n 1)"
finish weights other
for ((i = 1; n_kills < kills; i++)); do
    start "killed$i" 4
    for k in 1 2 3 4; do
        [ $n_kills -ge "$kills" ] || kill_one "killed$i" $k
        kill -0 "$job" 2>/dev/null || break
    done
    finish "killed$i" killed
    rm -rf "killed$i.saved"
    [ $failures = 0 ] || exit 1
done
expect_no_jobs "at the end"
echo "$n_kills kills, $n_during of them during a checkpoint"
[ "$kills" -lt 20 ] || [ $n_during -ge $((n_kills / 10)) ] || failed "too few kills during checkpoints"

spread() # FILE COLUMN
{
    awk -v c="$2" '{ print $c }' "$1" | sort -g |
        awk '{ v[NR] = $1; sum += $1 } END { printf "%.4f (%d runs, %.4f to %.4f)", sum / NR, NR, v[1], v[NR] }'
}
for ((c = 1; c <= ${#pairs[@]}; c++)); do
    echo "${pairs[c - 1]##*/}: undisturbed $(spread scores-undisturbed $c), killed $(spread scores-killed $c)"
    awk -v c=$c 'FNR == 1 { f++ } { sum[f] += $c; n[f]++ }
        END { off = sum[2] / n[2] - sum[1] / n[1]; exit !(n[1] && n[2] && off <= 0.01 && off >= -0.01) }' \
        scores-undisturbed scores-killed || failed "vectors of killed runs are not as good"
done
exit $((failures > 0))
