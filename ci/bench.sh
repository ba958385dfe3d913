#!/usr/bin/env bash
# Measures gpukpca beside its peers, each in a separate process, with the Python at hand (nothing is installed);
# PYTHON chooses another. Peers, devices and data that are not there are skipped, and the record says so.
#   bash ci/bench.sh                     a few minutes on two cores
#   bash ci/bench.sh --large             also the cases that take minutes each
#   bash ci/bench.sh --large -k PART     a part: test_case, test_growth, or "search or distributed"
#   bash ci/bench.sh --gpu               the cases on a CUDA device, and no others; some ten minutes on a large card
#   bash ci/bench.sh --gpu --quick       the same with small sizes, whose targets are not judged
#   bash ci/bench.sh --record FILE.json  writes the record for `python -m benchmarks.report FILE.json`
# Other arguments go to pytest, e.g. -k mnist, -k "ceilings or gpu-pass", --contestant-timeout 300 (for one
# process) or --seconds 600 (for all: what would begin later fails), --benchmark-compare.
# Without a device --gpu says so and ends with exit status 1.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/environment.sh
find_python || exit
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
"$python" ci/missing.py pytest pytest-benchmark
for argument in "$@"; do
    if [ "$argument" = --gpu ]; then
        "$python" -m benchmarks.machine --card >/dev/null
    fi
done
# Only the plugin that is needed: others could bring options of the same names, or warnings, which are errors here.
export PYTEST_DISABLE_PLUGIN_AUTOLOAD=1
exec "$python" -m pytest benchmarks -p pytest_benchmark.plugin -p no:cacheprovider -s \
    --benchmark-columns=median,rounds "$@"
