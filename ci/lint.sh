#!/usr/bin/env bash
# Style, format and types: ruff, ruff format --check, mypy.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/environment.sh
environment dev --editable ".[dev]"
ruff check .
ruff format --check .
mypy
