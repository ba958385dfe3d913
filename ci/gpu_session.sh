#!/usr/bin/env bash
# Runs what needs a CUDA device, as many parts as fit into one call, with the Python at hand; PYTHON chooses another.
# A part that may take longer than the time that is left waits for the next call, and shorter ones take its place. A
# part that fails or crashes does not keep the others from running.
#   bash ci/gpu_session.sh OUT_FOLDER                  every part that has not ended yet, in this order
#   bash ci/gpu_session.sh OUT_FOLDER suite headline   these parts, in the order given, though they have ended
#   SECONDS_IN_ALL=240 …               the seconds of this call; default 540, which a call of ten minutes has room for
#   DONE="versions contact shapes" …   parts that ended in calls whose OUT_FOLDER is not here; each call prints this line
#   WHEELS=FOLDER …                    uses the wheels in a folder, for a machine without a network; nothing is kept
#   QUICK=1 …                          small sizes, to try the script itself (see ci/cupy_on_cpu)
# Parts, and the most seconds of each:
#   versions   30    packages, processor and card
#   contact    40    rates of the probe, small fits: does the card compute what NumPy computes, and how fast
#   shapes     90    times of the shapes of a fit; products in float64, float32, TF32 and float16
#   headline  150    rates of the card, fits of 100 000 and 250 000 rows
#   suite     210    ci/test_gpu.sh
#   million   165    the whole fit of 10⁶ rows
#   peers     120    the other libraries that are installed: kernel PCA of 20 000 rows, PCA
#   targets   450    the other cases with targets
#   crossover 520    sizes from which a card is worth it, dense or block Krylov, many components, tile edges, block widths
# A call ends with a table: what each part took, its failed assertions (of tolerances, mostly) and apart from them its
# failures by another error, and what waits. OUT_FOLDER gets at most eight files: parts.jsonl (a line a part that ran,
# with the card, its driver and the versions), session.log, a record of each part that measures, and session.tar.gz with
# all of them. CUPY_CACHE_DIR keeps compiled kernels for the next call. `python -m benchmarks.report OUT_FOLDER/*.json`
# makes tables. The exit status is 0 where every part that ran passed.
set -uo pipefail
if [ $# -eq 0 ]; then
    sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0" >&2
    exit 2
fi
# Before `cd`, so that relative paths are those of the caller.
out="$(realpath -m -- "$1")" && shift || exit 2
CUPY_CACHE_DIR="$(realpath -m -- "${CUPY_CACHE_DIR:-${HOME:-/tmp}/.cupy/kernel_cache}")" || exit 2
[ -z "${WHEELS:-}" ] || WHEELS="$(realpath -- "$WHEELS")" || exit 2
export CUPY_CACHE_DIR
cd "$(dirname "$0")/.." || exit 2
. ci/environment.sh
find_python || exit
export PYTHON="$python" PYTHONUNBUFFERED=1 PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
if [ -n "${WHEELS:-}" ]; then
    site="$(mktemp -d)"
    trap 'rm -rf "$site"' EXIT
    "$python" -m pip install --quiet --no-index --no-deps --no-compile --target "$site" "$WHEELS"/*.whl || exit 1
    PYTHONPATH="$PYTHONPATH:$site"
fi
"$python" ci/missing.py pytest pytest-benchmark hypothesis || exit 1
"$python" -m benchmarks.machine --card >/dev/null || exit 1
"$python" ci/gpu_session.py "$out" "$@"
