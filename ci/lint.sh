#!/usr/bin/env bash
# Style, format, spelling and types: ruff, codespell, mypy; pyright on a user's calls and on the types of public names.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/environment.sh
environment dev --editable ".[dev]"
ruff check .
ruff format --check .
codespell
mypy
basedpyright
