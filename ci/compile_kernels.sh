#!/usr/bin/env bash
# Compiles every CUDA kernel for sm_80, sm_90 and sm_100 as CuPy assembles it, with NVRTC: without a card or a driver.
# Prints the registers of each kernel. Fails where one does not compile or uses local memory (spills, a stack).
# Where the wheels of CuPy and NVRTC cannot be installed it says so in one line, with exit status 0.
# Needs Python 3.11 or newer (PYTHON names another than python3); the first run installs from a package index.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/environment.sh
export PIP_RETRIES=1

# compile_with CUDA ARCHITECTURE…: the versions of the libraries are those of CuPy's own extra «ctk».
compile_with() {
    local cuda="$1"
    shift
    find_python || exit
    if ! environment "kernels-$cuda" "cupy-cuda${cuda}x==14.*" "cuda-toolkit[cudart,nvrtc]==$cuda.*" 2>/dev/null; then
        echo "CuPy and NVRTC for CUDA $cuda could not be installed: no kernel was compiled with them."
        exit 0
    fi
    PYTHONPATH="$PWD" python ci/compile_kernels.py "$@"
}

compile_with 12 80 90 100
compile_with 13 90 # another compiler; one architecture, since each takes seconds
