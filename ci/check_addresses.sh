#!/usr/bin/env bash
# Asks every address in the documentation whether it is still there; ci/docs.sh checks the links between its pages.
# Needs Python 3.11 or newer (PYTHON names another than python3) and a network.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/environment.sh
environment docs --editable ".[cli,dask,plot]" --group docs
exec sphinx-build --quiet --jobs 2 -b linkcheck -D plot_gallery=0 -D linkcheck_retries=3 docs docs/_build/linkcheck
