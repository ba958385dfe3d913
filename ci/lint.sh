#!/usr/bin/env bash
# Style, format and types: ruff, ruff format --check, mypy.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/environment.sh
environment dev "[dev]"
ruff check .
ruff format --check .
mypy
