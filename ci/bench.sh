#!/usr/bin/env bash
# Measures gpukpca beside its peers, each in a process of its own, with the Python at hand (nothing is installed);
# PYTHON chooses another. Peers, devices and data that are not there are skipped, and the record says so.
#   bash ci/bench.sh                     a few minutes on two cores
#   bash ci/bench.sh --large             also the cases that take minutes each
#   bash ci/bench.sh --record FILE.json  writes the figures for `python -m benchmarks.report FILE.json`
# Other arguments go to pytest, e.g. -k mnist or --timeout 300.
set -euo pipefail
cd "$(dirname "$0")/.."
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
exec "${PYTHON:-python3}" -m pytest benchmarks -p no:cacheprovider -s --benchmark-columns=median,rounds "$@"
