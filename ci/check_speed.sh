#!/usr/bin/env bash
# Measures the usual cases in pairs with a revision, REV or that of the published record, and fails where this checkout is
# slower.
#   bash ci/check_speed.sh [REV] [-k PART]
# Needs Python 3.11 or newer (PYTHON names another than python3); the first run installs from a package index.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/environment.sh
environment speed --editable . pytest pytest-benchmark
export PYTHON=python
if [ $# -eq 0 ]; then
    set -- "$(python -c '
import json, re
about = json.load(open("benchmarks/results/host.json", encoding="utf-8"))["machine"]
print(re.search(r"\((\w+)", about["gpukpca"])[1])')"
fi
exec bash ci/bench.sh --against "$@"
