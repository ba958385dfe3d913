#!/usr/bin/env bash
# Measures the usual cases, and fails where gpukpca is slower beside its peers than in the published record.
# Arguments go to ci/bench.sh, e.g. -k pca.
# Needs Python 3.11 or newer (PYTHON names another than python3); the first run installs from a package index.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/environment.sh
environment speed --editable . pytest pytest-benchmark scikit-learn-intelex
mkdir -p .benchmarks
export PYTHON=python
bash ci/bench.sh --record .benchmarks/speed.json "$@"
exec python -m benchmarks.report .benchmarks/speed.json --against
