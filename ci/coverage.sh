#!/usr/bin/env bash
# Runs the suite and fails where the tests reach fewer lines of a room than its floor in ci/coverage_floors.py.
# Needs Python 3.11 or newer (PYTHON names another than python3); the first run installs from a package index.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/environment.sh
environment coverage --editable ".[cli,dask,plot]" --group test "pytest-cov>=6"
export COVERAGE_FILE=.coverage/data
python -m pytest --numprocesses 2 --dist worksteal --cov=gpukpca --cov-report= --cov-report=json:.coverage/report.json
python ci/coverage_floors.py .coverage/report.json
