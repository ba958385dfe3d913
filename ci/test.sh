#!/usr/bin/env bash
# Makes the environment of development, which ci/lint.sh uses too, and runs the tests. Arguments go to pytest.
# GPUKPCA_MUTATIONS=100000 tries so many damaged files in place of 1000; before a release and after changes of a format.
# Needs Python 3.11 or newer (PYTHON names another than python3); the first run installs from a package index.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/environment.sh
environment dev --editable ".[cli,dask,plot]" --group dev
# Two processes: most tests use one core. Arguments after it win, as in `bash ci/test.sh -n 0`.
exec python -m pytest --numprocesses 2 --dist worksteal "$@"
