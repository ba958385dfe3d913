#!/usr/bin/env bash
# Measures gpukpca beside scikit-learn in one run, with the Python at hand (nothing is installed); PYTHON chooses
# another. Arguments go to pytest, e.g. --benchmark-json=FILE or -k digits.
set -euo pipefail
cd "$(dirname "$0")/.."
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
exec "${PYTHON:-python3}" -m pytest benchmarks -p no:cacheprovider -s "$@"
