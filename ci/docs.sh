#!/usr/bin/env bash
# Builds the documentation into docs/_build/html without a network: warnings are errors; examples run; links resolve.
# Needs Python 3.11 or newer (PYTHON names another than python3); the first run installs from a package index.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/environment.sh
environment docs --editable ".[cli,dask,plot]" --group docs
build() { sphinx-build --quiet --fail-on-warning --keep-going --nitpicky --jobs 2 -b "$1" docs "docs/_build/$1"; }
build html
build doctest
python ci/check_links.py docs/_build/html
echo "The site: $PWD/docs/_build/html/index.html"
