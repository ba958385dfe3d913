#!/usr/bin/env bash
# Runs a command in whose Python processes the imitation of CuPy (tests/fake_cupy) takes the place of the real one: it
# tries the scripts for a card without one. Its card is imaginary, and so is every figure.
#   QUICK=1 bash ci/on_imitation.sh bash ci/gpu_session.sh OUT_FOLDER
# PYTHON chooses another Python.
set -euo pipefail
root="$(cd "$(dirname "$0")/.." && pwd)"
export PYTHONPATH="$root/tests/fake_device:$root${PYTHONPATH:+:$PYTHONPATH}"
"${PYTHON:-python3}" -c "import sys; sys.exit('fake_cupy' not in sys.modules)" || {
    echo "The imitation of CuPy is not in place: the real CuPy is installed, or NumPy is missing." >&2
    exit 1
}
exec "$@"
