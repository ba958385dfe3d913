#!/usr/bin/env bash
# «CuPy is installed, and there is no driver»: the real CuPy wheel in an environment of its own, all devices hidden.
# Arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/environment.sh
environment no-driver "[test,cuda12]"
export CUDA_VISIBLE_DEVICES=""
python - <<'CHECK'
import sys

import cupy

sys.exit("A CUDA device is visible: this state cannot be tested here." if cupy.is_available() else 0)
CHECK
exec python -m pytest tests/test_no_driver.py "$@"
