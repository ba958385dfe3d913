#!/usr/bin/env bash
# Style, format, spelling and types: ruff, codespell, shellcheck, mypy; pyright on a user's calls and on the types of
# public names.
# Needs Python 3.11 or newer (PYTHON names another than python3); the first run installs from a package index.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/environment.sh
environment dev --editable ".[cli,dask,plot]" --group dev
ruff check .
ruff format --check .
codespell
shellcheck --external-sources ci/*.sh ci/*/*.sh .ci/run
mypy
basedpyright
# Its exit status is 1 where one name has no type.
{ basedpyright --verifytypes gpukpca --ignoreexternal --outputjson || true; } | python -c "
import json, sys
share = json.load(sys.stdin)['typeCompleteness']['completenessScore']
print(f'{share:.1%} of the names have types.')
sys.exit(share < 0.99)"
