#!/usr/bin/env bash
# Everything that needs a CUDA device, in one go and in bounded time, with the Python at hand (nothing is installed);
# PYTHON chooses another. What fails or runs out of time does not keep the rest from running.
#   bash ci/gpu_session.sh OUT_FOLDER                      all parts, 25 minutes at most
#   bash ci/gpu_session.sh OUT_FOLDER ceilings headline    only these parts, in the order given
#   SECONDS_IN_ALL=570 bash ci/gpu_session.sh OUT_FOLDER …   less time: for machines that are lent for minutes
#   QUICK=1 bash ci/gpu_session.sh OUT_FOLDER                small sizes, to try the script itself
# Parts: ceilings (what the card can do), headline (the cases that have targets), suite (ci/test_gpu.sh), crossover
# (sizes from which a card is worth it, dense against iterative, tile edges, block widths).
# OUT_FOLDER gets at most eight files: machine.json, nvidia-smi.txt, status.txt (a line a part), bench.log,
# test_gpu.log, and the records ceilings.json, headline.json, crossover.json, which are written after every case; make
# tables of them with `python -m benchmarks.report FILE …`. The exit status is 0 where every part passed.
set -uo pipefail
if [ $# -eq 0 ]; then
    sed -n '2,14s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
mkdir -p "$1" || exit 2
out="$(cd "$1" && pwd)"
shift
parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=(ceilings headline suite crossover)
cd "$(dirname "$0")/.." || exit 2
python="${PYTHON:-python3}"
export PYTHON="$python" PYTHONUNBUFFERED=1 PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
total="${SECONDS_IN_ALL:-1500}"
# Seconds that a part may take where all of them run: together less than the total.
declare -A budget=([ceilings]=120 [headline]=660 [suite]=420 [crossover]=280)
quick=()
[ -z "${QUICK:-}" ] || quick=(--quick)
largest_log=2000000
failed=0

left() { echo $((total - SECONDS)); }

# note WHAT STATUS SECONDS: a line of status.txt and of the output.
note() {
    local word
    case "$2" in
    0) word=passed ;;
    124 | 137) word="out of time" ;;
    *) word="failed ($2)" ;;
    esac
    echo "$1: $word after $3 s" | tee -a "$out/status.txt"
    [ "$2" -eq 0 ] || failed=1
}

# with_log LOG SECONDS COMMAND…: its output to the log and the end of it to ours; its status.
with_log() {
    local log="$out/$1" seconds="$2" status before
    shift 2
    before="$(wc -c 2>/dev/null <"$log" || echo 0)"
    echo "== $* (at most $seconds s)" >>"$log"
    timeout --kill-after=20 "$seconds" "$@" >>"$log" 2>&1 </dev/null
    status=$?
    tail -c "+$((before + 1))" "$log" | tail -n 60
    if [ "$(wc -c <"$log")" -gt "$largest_log" ]; then
        tail -c "$largest_log" "$log" >"$log.end" && mv "$log.end" "$log"
    fi
    return "$status"
}

# bench SECONDS RECORD WHICH: cases of the benchmarks; pytest ends a little before it would be stopped.
bench() {
    local seconds="$1" record="$out/$2" which="$3" known=()
    [ ! -s "$out/ceilings.json" ] || [ "$2" = ceilings.json ] || known=(--ceilings "$out/ceilings.json")
    with_log bench.log "$seconds" bash ci/bench.sh --gpu "${quick[@]}" "${known[@]}" --record "$record" \
        --seconds "$((seconds - 15))" -k "$which" --tb=line
}

run_part() {
    case "$1" in
    ceilings) bench "$2" ceilings.json "test_ceilings" ;;
    headline) bench "$2" headline.json "test_trial" ;;
    crossover) bench "$2" crossover.json "test_sweep_on_card" ;;
    suite) with_log test_gpu.log "$2" bash ci/test_gpu.sh -q --tb=short ;;
    *)
        echo "There is no part «$1»; parts are ceilings, headline, suite and crossover." >&2
        return 2
        ;;
    esac
}

SECONDS=0
if ! "$python" -m benchmarks.card >/dev/null; then
    exit 1
fi
"$python" -m benchmarks.machine >"$out/machine.json" || note machine $? "$SECONDS"
{ nvidia-smi && nvidia-smi -q -d CLOCK,POWER,TEMPERATURE,MEMORY; } >"$out/nvidia-smi.txt" 2>&1 || true

for part in "${parts[@]}"; do
    share="${budget[$part]:-60}"
    # The last part may have what the others left.
    [ "$part" != "${parts[-1]}" ] || share="$total"
    rest="$(($(left) - 10))"
    [ "$share" -le "$rest" ] || share="$rest"
    start="$SECONDS"
    if [ "$share" -lt 30 ]; then
        note "$part" 124 0
        continue
    fi
    run_part "$part" "$share"
    note "$part" $? "$((SECONDS - start))"
done
rm -f "$out"/.*.part
exit "$failed"
