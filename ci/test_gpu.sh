#!/usr/bin/env bash
# Runs the suite on CuPy with the Python at hand (nothing is installed); PYTHON chooses another. Arguments go to pytest.
# Fails where a test or a file failed, where there is no CUDA device, and where no test ran on CuPy.
#   JOBS=4            processes that share the card, where pytest-xdist is installed; default half of the cores, 8 at most
#   CUPY_CACHE_DIR=…  keeps the compiled kernels; default ~/.cupy/kernel_cache
# Tests with the mark `alone` need much of a card's memory: they run afterwards, in one process.
set -uo pipefail
# Before `cd`, so that a relative path is one folder.
CUPY_CACHE_DIR="$(realpath -m -- "${CUPY_CACHE_DIR:-${HOME:-/tmp}/.cupy/kernel_cache}")" || exit 2
export CUPY_CACHE_DIR
cd "$(dirname "$0")/.." || exit 2
. ci/environment.sh
find_python || exit
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
# JAX must not take most of the card's memory when it looks for devices.
export XLA_PYTHON_CLIENT_PREALLOCATE=false
# Other plugins could bring warnings, which are errors here.
export PYTEST_DISABLE_PLUGIN_AUTOLOAD=1
"$python" ci/missing.py pytest hypothesis || exit 1
"$python" - <<'PROBE' || exit 1
import sys

from gpukpca.cuda.device import probe

works, what = probe()
print(what)
sys.exit(0 if works else "No CUDA device that CuPy can use: the GPU tests cannot run here.")
PROBE

processes=()
if "$python" -c "import xdist" 2>/dev/null; then
    half="$((($("$python" -c "import os; print(os.cpu_count())") + 1) / 2))"
    export OPENBLAS_NUM_THREADS="${OPENBLAS_NUM_THREADS:-2}"  # processes share the cores
    processes=(-p xdist.plugin --numprocesses "${JOBS:-$((half < 8 ? half : 8))}" --dist worksteal)
else
    echo "pytest-xdist is not installed: the tests run in one process."
fi
log="$(mktemp)"
trap 'rm -f "$log"' EXIT
failed=0

# suite ARGUMENT…: one run of pytest. Status 5 says that it selected no test.
suite() {
    local status
    "$python" -m pytest -p no:cacheprovider --continue-on-collection-errors "$@" | tee -i -a "$log"
    status="${PIPESTATUS[0]}"
    [ "$status" -eq 0 ] || [ "$status" -eq 5 ] || failed=1
}

# An interrupt ends what runs, which still reports its failures, and nothing begins after it.
interrupted=""
trap 'interrupted=yes' INT
suite "${processes[@]}" -m "cupy and not alone" "$@"
[ -n "$interrupted" ] || suite -m "cupy and alone" "$@"

# in_all TEXT: the sum of the numbers after a text in the summaries of both runs.
in_all() {
    sed -n "s/^$1: //p" "$log" | awk '{ sum += $1 } END { print sum + 0 }'
}

ran="$(in_all "tests passed on CuPy")"
echo "$(in_all "failed assertions, tolerances among them") assertions failed, tolerances among them;" \
    "$(in_all "failures of code") failures by another error."
echo "$ran tests passed on CuPy in all."
if [ "$ran" -eq 0 ]; then
    echo "No test ran on CuPy." >&2
    exit 1
fi
exit "$failed"
