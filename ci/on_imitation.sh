#!/usr/bin/env bash
# Runs a command in whose Python processes the imitation of CuPy (tests/fake_cupy) takes the place of the real one: it
# tries the scripts for a card without one. Its card is imaginary, and so is every figure.
#   QUICK=1 bash ci/on_imitation.sh bash ci/gpu_session.sh OUT_FOLDER
# PYTHON chooses another Python.
set -euo pipefail
if [ $# -eq 0 ]; then
    sed -n '2,5s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
root="$(cd "$(dirname "$0")/.." && pwd)"
. "$root/ci/environment.sh"
find_python || exit
"$python" "$root/ci/missing.py" pytest || exit 1
export PYTHONPATH="$root/tests/fake_device:$root${PYTHONPATH:+:$PYTHONPATH}"
"$python" -c "import sys; sys.exit('tests.fake_cupy' not in sys.modules)" || {
    echo "The imitation of CuPy is not in place: the real CuPy is installed." >&2
    exit 1
}
exec "$@"
