#!/usr/bin/env bash
# Runs the suite with the lowest versions that pyproject.toml states, of the dependencies and of every extra that the
# tests use; ci/test.sh takes the newest ones. Arguments go to pytest.
# .ci/run takes Python 3.12 for it where that is installed, so that one step tests both.
# Needs Python 3.11 or newer (PYTHON names another than python3); the first run installs from a package index.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/environment.sh
environment minimum uv
uv pip install --quiet --resolution lowest-direct --editable ".[cli,dask,memory,plot]" --group test
uv pip list --quiet | grep -iE "^(numpy|scipy|scikit-learn|dask|matplotlib|polars) "
exec python -m pytest --numprocesses 2 --dist worksteal "$@"
