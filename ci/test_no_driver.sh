#!/usr/bin/env bash
# «CuPy is installed, and there is no driver»: the real CuPy wheel in a separate environment, all devices hidden.
# CuPy alone: the CUDA libraries of the extra are large, and nothing loads them without a driver.
# Arguments go to pytest.
# Needs Python 3.11 or newer (PYTHON names another than python3); the first run installs from a package index.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/environment.sh
environment no-driver --editable ".[cli,dask,plot]" --group test "cupy-cuda12x>=14"
export CUDA_VISIBLE_DEVICES=""
python - <<'CHECK'
import sys

import cupy

sys.exit("A CUDA device is visible: this state cannot be tested here." if cupy.is_available() else 0)
CHECK
exec python -m pytest tests/cuda/test_no_driver.py "$@"
