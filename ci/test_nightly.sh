#!/usr/bin/env bash
# Runs the suite with last night's NumPy, SciPy and scikit-learn. Arguments go to pytest.
# NIGHTLY names another index than that of the Scientific Python project.
# Needs Python 3.11 or newer (PYTHON names another than python3) and a package index.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/environment.sh
rm -rf .venv-nightly # a night old
environment nightly --editable ".[cli,dask,plot]" --group test
python -m pip install --quiet --pre --upgrade --no-deps --only-binary :all: \
    --index-url "${NIGHTLY:-https://pypi.anaconda.org/scientific-python-nightly-wheels/simple}" numpy scipy scikit-learn
python -m pip list | grep -E "^(numpy|scipy|scikit-learn) "
exec python -m pytest --numprocesses 2 --dist worksteal "$@"
