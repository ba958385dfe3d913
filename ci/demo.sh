#!/usr/bin/env bash
# Installs the package into a separate environment and runs the main job on scikit-learn's digits, with a picture.
# Needs Python 3.11 or newer (PYTHON names another than python3); the first run installs from a package index.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/environment.sh
environment demo --editable ".[cli,plot]"
mkdir -p .demo
gpukpca info
gpukpca fit digits --n-components 10 --kernel rbf --gamma scale \
    --output .demo/digits.npz --plot .demo/digits.png --force "$@"
echo "scores:  .demo/digits.npz"
echo "picture: .demo/digits.png"
