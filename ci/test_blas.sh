#!/usr/bin/env bash
# Runs the suite with the kernels that OpenBLAS has for four processors, each with PyTorch and JAX and with both hidden
# from the tests (GPUKPCA_TESTS_WITHOUT), with the Python at hand (nothing is installed); PYTHON chooses another.
# Arguments go to pytest, e.g. tests/test_golden.py or -k golden.
#   bash ci/test_blas.sh                        eight runs, a line for each; the exit status is 0 where every one passed
#   CORES="Haswell Zen" bash ci/test_blas.sh    these kernels alone; the processor must have their instructions
# The names of failed tests follow the line of their run.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/environment.sh
find_python || exit
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
for name in pytest xdist torch jax; do
    "$python" -c "import $name" 2>/dev/null || {
        echo "$("$python" --version) has no $name, which these runs need. Set PYTHON to one that has it." >&2
        exit 2
    }
done
log="$(mktemp)"
trap 'rm -f "$log"' EXIT
failed=0

# suite CORE HIDDEN WORDS ARGUMENT…: one run and its line.
suite() {
    local core="$1" hidden="$2" words="$3" start="$SECONDS" status=0
    shift 3
    OPENBLAS_CORETYPE="$core" GPUKPCA_TESTS_WITHOUT="$hidden" \
        "$python" -m pytest --numprocesses 2 --dist worksteal -p no:cacheprovider "$@" >"$log" 2>&1 || status=$?
    echo "$core, $words: exit status $status after $((SECONDS - start)) s: $(tail -n 1 "$log")"
    [ "$status" -eq 0 ] && return
    failed=1
    grep -E "^(FAILED|ERROR)" "$log" || tail -n 20 "$log"
}

for core in ${CORES:-Haswell SkylakeX Zen Nehalem}; do
    suite "$core" "" "with PyTorch and JAX" "$@"
    suite "$core" "torch jax" "without PyTorch and JAX" "$@"
done
exit "$failed"
