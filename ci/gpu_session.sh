#!/usr/bin/env bash
# Runs what needs a CUDA device, in parts of nine minutes at most, with the Python at hand (nothing is installed);
# PYTHON chooses another. A part that fails does not keep the others from running. A part that may take longer than the
# time that is left is left for the next call, and shorter ones take its place.
#   bash ci/gpu_session.sh OUT_FOLDER                  every part that has not ended yet, in this order
#   bash ci/gpu_session.sh OUT_FOLDER suite headline   these parts, in the order given, though they have ended
#   SECONDS_IN_ALL=570 bash ci/gpu_session.sh …        less time, for machines that are lent for minutes; 540 at least
#   QUICK=1 bash ci/gpu_session.sh OUT_FOLDER          small sizes, to try the script itself (see ci/cupy_on_cpu)
# Parts:
#   versions   packages, processor and card
#   contact    small fits: does the card compute what NumPy computes, and how fast
#   shapes     times of the shapes of a fit, and of products by tensor cores
#   ceilings   what the card can do
#   suite      ci/test_gpu.sh
#   headline   the cases with targets, without the next but one
#   solvers    dense or block Krylov
#   million    the whole fit of 10⁶ rows: the last of the cases with targets, alone because it takes longest
#   crossover  sizes from which a card is worth it, tile edges, block widths
# OUT_FOLDER gets at most eight files: status.txt (a line a part), session.log, a record of each part that measures, and
# at the end session.tar.gz (16 MiB at most) with all of them and CuPy's kernel cache. A later
# session unpacks the cache where CUPY_CACHE_DIR is empty. `python -m benchmarks.report OUT_FOLDER/*.json` makes tables.
# The exit status is 0 where every part that ran passed.
set -uo pipefail
if [ $# -eq 0 ]; then
    sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0" >&2
    exit 2
fi
given="$1"
shift
order=(versions contact shapes ceilings suite headline solvers million crossover)
# The most seconds that a part may take. The longest must fit into a call of ten minutes after its start.
declare -A budget=([versions]=30 [contact]=60 [shapes]=120 [ceilings]=120 [suite]=510 [headline]=510 [solvers]=300
    [million]=510 [crossover]=510)
# Parts that write a record, OUT_FOLDER/PART.json.
recorded=" ceilings headline solvers million crossover "
for part in "$@"; do
    if [ -z "${budget[$part]:-}" ]; then
        echo "There is no part «$part»; parts are ${order[*]}." >&2
        exit 2
    fi
done
# Before `cd`, so that a relative path is one folder.
CUPY_CACHE_DIR="$(realpath -m -- "${CUPY_CACHE_DIR:-${HOME:-/tmp}/.cupy/kernel_cache}")" || exit 2
export CUPY_CACHE_DIR
here="$PWD"
cd "$(dirname "$0")/.." || exit 2
. ci/environment.sh
find_python || exit
export PYTHON="$python" PYTHONUNBUFFERED=1 PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
"$python" ci/missing.py pytest pytest-benchmark hypothesis || exit 1
"$python" -m benchmarks.machine --card >/dev/null || exit 1
mkdir -p "$(cd "$here" && realpath -m "$given")" || exit 2
out="$(cd "$here" && cd "$given" && pwd)"
log="$out/session.log"
archive="$out/session.tar.gz"
total="${SECONDS_IN_ALL:-3600}"
quick=()
[ -z "${QUICK:-}" ] || quick=(--quick)
packing=10  # seconds at the end
largest_log=4000000
largest_archive=$((16 * 1024 * 1024))
failed=0

# note PART STATUS SECONDS: a line of status.txt and of the output.
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

# ended PART: its last line says that it ran to its end, and its record, where it has one, is there.
ended() {
    local last
    last="$(grep "^$1: " "$out/status.txt" 2>/dev/null | tail -n 1)"
    case "$last" in
    *": passed "* | *": failed (1) "*) [[ "$recorded" != *" $1 "* ]] || [ -s "$out/$1.json" ] ;;
    *) return 1 ;;
    esac
}

# with_log SECONDS COMMAND…: its output to the log, the end of it to ours too; its status.
with_log() {
    local seconds="$1" status before
    shift
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

# bench SECONDS PART WHICH: cases of the benchmarks; pytest ends a little before it would be stopped.
bench() {
    local seconds="$1" record="$out/$2.json" which="$3" known=() status
    [ ! -s "$out/ceilings.json" ] || [ "$2" = ceilings ] || known=(--ceilings "$out/ceilings.json")
    with_log "$seconds" bash ci/bench.sh --gpu "${quick[@]}" "${known[@]}" --record "$record" \
        --seconds "$((seconds - 15))" -k "$which" --tb=line
    status=$?
    ! grep -qs '"outcome": "not run: no time left"' "$record" || status=124
    return "$status"
}

# versions SECONDS: of packages and BLAS libraries by the command line, where its packages are; the machine in any case.
versions() {
    local half="$(($1 / 2))" status
    with_log "$half" "$python" -m benchmarks.machine
    status=$?
    if "$python" ci/missing.py click polars rich >/dev/null 2>&1; then
        with_log "$half" "$python" -m gpukpca info || status=$?
    else
        echo "The command line lacks packages: no \`gpukpca info\`." | tee -a "$log"
    fi
    return "$status"
}

run_part() {
    case "$1" in
    ceilings) bench "$2" ceilings test_ceilings ;;
    versions) versions "$2" ;;
    contact) with_log "$2" "$python" -m benchmarks.first_contact "${quick[@]}" ;;
    shapes) with_log "$2" "$python" -m benchmarks.shapes "${quick[@]}" ;;
    suite) with_log "$2" bash ci/test_gpu.sh -q --tb=short ;;
    headline) bench "$2" headline "test_trial and not gpu-fit-1000000" ;;
    solvers) bench "$2" solvers gpu-dense-or-krylov ;;
    million) bench "$2" million gpu-fit-1000000 ;;
    crossover) bench "$2" crossover "test_sweep_on_card and not gpu-dense-or-krylov" ;;
    esac
}

# pack ARGUMENT…: an archive of logs and records, and of what the arguments of tar add.
pack() {
    (cd "$out" && shopt -s nullglob && tar -czf session.tar.gz.part status.txt session.log [a-z]*.json "$@")
    [ $? -le 1 ] && mv "$archive.part" "$archive"  # 1: a file changed while it was read
}

# pack_all: with the kernel cache where there is one and the archive stays small enough.
pack_all() {
    if [ -d "$CUPY_CACHE_DIR" ]; then
        pack --transform 's,^\.,kernel_cache,' -C "$CUPY_CACHE_DIR" . &&
            [ "$(wc -c <"$archive")" -le "$largest_archive" ] && return
        echo "The archive has no kernel cache: tar failed, or it would be larger than 16 MiB."
    fi
    pack
}

SECONDS=0
if [ -s "$archive" ] && [ -z "$(ls -A "$CUPY_CACHE_DIR" 2>/dev/null)" ]; then
    mkdir -p "$CUPY_CACHE_DIR"
    tar -xzf "$archive" -C "$CUPY_CACHE_DIR" --strip-components=1 kernel_cache 2>/dev/null ||
        echo "The archive holds no kernel cache: kernels are compiled again."
fi
{
    "$python" -m benchmarks.machine
    nvidia-smi && nvidia-smi -q -d CLOCK,POWER,TEMPERATURE,MEMORY || echo "nvidia-smi does not run here."
} >>"$log" 2>&1

parts=("$@")
if [ ${#parts[@]} -eq 0 ]; then
    for part in "${order[@]}"; do
        if ended "$part"; then
            echo "$part: ended before; name it to run it again"
        else
            parts+=("$part")
        fi
    done
fi
for part in ${parts[@]+"${parts[@]}"}; do
    rest="$((total - SECONDS - packing))"
    if [ "${budget[$part]}" -gt "$rest" ]; then
        echo "$part: left for the next call: it may take ${budget[$part]} s, and $((rest > 0 ? rest : 0)) s are left"
        continue
    fi
    start="$SECONDS"
    run_part "$part" "${budget[$part]}"
    note "$part" $? "$((SECONDS - start))"
done
pack_all
rm -f "$out"/.*.part "$archive.part"
exit "$failed"
