#!/usr/bin/env bash
# Runs the suite on CuPy with the Python at hand (nothing is installed); PYTHON chooses another. Arguments go to pytest.
# Fails where there is no CUDA device or no test ran on CuPy.
set -euo pipefail
cd "$(dirname "$0")/.."
python="${PYTHON:-python3}"
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
# Other plugins could bring warnings, which are errors here.
export PYTEST_DISABLE_PLUGIN_AUTOLOAD=1
"$python" - <<'PROBE'
import sys

from gpukpca.cuda.device import probe

works, what = probe()
print(what)
sys.exit(0 if works else "No CUDA device that CuPy can use: the GPU tests cannot run here.")
PROBE
log="$(mktemp)"
trap 'rm -f "$log"' EXIT
"$python" -m pytest -k cupy -p no:cacheprovider "$@" | tee "$log"
ran="$(sed -n 's/^tests passed on CuPy: //p' "$log" | tail -n 1)"
if [ "${ran:-0}" -eq 0 ]; then
    echo "No test ran on CuPy." >&2
    exit 1
fi
