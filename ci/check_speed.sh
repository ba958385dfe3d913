#!/usr/bin/env bash
# Measures the usual cases in pairs with a revision, REV or the commit before, and fails where this checkout is slower.
#   bash ci/check_speed.sh [REV] [-k PART]
# Needs Python 3.11 or newer (PYTHON names another than python3); the first run installs from a package index.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/environment.sh
environment speed --editable . pytest pytest-benchmark
export PYTHON=python
[ $# -gt 0 ] || set -- HEAD~1
exec bash ci/bench.sh --against "$@"
