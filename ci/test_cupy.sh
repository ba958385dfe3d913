#!/usr/bin/env bash
# Runs the tests of a device without one: CuPy itself, on the stand-in of ci/cupy_on_cpu. Arguments go to pytest.
# The first run installs from a package index, compiles for a minute, and is slow where kernels are new; both are kept.
#   CUDA=12 bash ci/test_cupy.sh    the wheel for CUDA 12 in place of that for 13
#   CUPY_ON_CPU=FOLDER              where the build is kept; default .cupy-on-cpu-13 here
# Fails where a test failed, and where fewer than 700 passed on CuPy (where arguments choose: none).
#   CUPY_REQUIRED=1                 fails where the wheels or a compiler are not available; default: one line, status 0
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/environment.sh
export PIP_RETRIES=1
find_python
base="$(command -v "$python")"  # not that of the environment, which may be made anew
environment dev --editable ".[cli,dask,plot]" --group dev
folder="${CUPY_ON_CPU:-.cupy-on-cpu-${CUDA:-13}}"
status=0
bash ci/cupy_on_cpu/build.sh "$folder" "$base" >&2 || status=$?
if [ "$status" -eq 3 ] && [ -z "${CUPY_REQUIRED:-}" ]; then
    echo "CuPy could not be installed, or there is no compiler: no test ran on CuPy."
    exit 0
fi
[ "$status" -eq 0 ] || exit "$status"
run() { bash ci/cupy_on_cpu/run.sh "$folder" "$@"; }
fewest=1
if [ $# -eq 0 ]; then
    fewest=700
    # The stand-in itself: CuPy beside NumPy, and single instructions of kernels beside exact references.
    for script in smoke instructions; do
        run python "ci/cupy_on_cpu/$script.py" >"$folder/$script.log" 2>&1 || {
            grep -v '^ok' "$folder/$script.log" >&2
            exit 1
        }
    done
fi
log="$(mktemp)"
trap 'rm -f "$log"' EXIT
# Devices too small for what is run on a card alone: eight, of which most tests see two. BLAS of one thread, since two
# processes share the cores.
export CUPY_ON_CPU_DEVICES=8 CUPY_ON_CPU_MEMORY=$((16 * 1024 * 1024 * 1024)) OPENBLAS_NUM_THREADS=1
run "$(command -v python)" -m pytest -m "cupy and not alone" --numprocesses 2 --dist worksteal "$@" |
    tee "$log" || status=$?
ran="$(sed -n 's/^tests passed on CuPy: //p' "$log")"
if [ "$status" -eq 0 ] && [ "${ran:-0}" -lt "$fewest" ]; then
    echo "Only ${ran:-0} tests passed on CuPy; $fewest or more were expected." >&2
    exit 1
fi
if [ "$status" -eq 5 ]; then
    echo "No test on CuPy was found: such a test lies under tests/ and takes a fixture of tests/conftest.py." >&2
fi
exit "$status"
