#!/usr/bin/env bash
# Measures gpukpca beside its peers, in pairs of fits by processes that live on, with the Python at hand, or with PYTHON. Where the one
# at hand lacks what is needed, the first run installs it into .venv-bench; PYTHON and --gpu install nothing.
# Peers, devices and data that are not there are skipped, and the record says so.
#   bash ci/bench.sh --quick             small sizes, at most three minutes
#   bash ci/bench.sh                     the usual cases, one to two hours on two cores
#   bash ci/bench.sh --large             the whole: also the cases and sweeps that take minutes each
#   bash ci/bench.sh --large -k PART     a part: test_case, test_growth, or search
#   bash ci/bench.sh --against REV       this checkout beside a revision, also with --quick, --large and -k PART:
#                                        exit status 1 where a settled interval lies below 0.97
#   bash ci/bench.sh --publish           the whole, then README.md, pages of docs and benchmarks/results from it
#   bash ci/bench.sh --publish --seconds 1500   the same from what fits, on one thread: README's cases first
#   bash ci/bench.sh --gpu               the cases on a CUDA device, and no others; some ten minutes on a large card
#   bash ci/bench.sh --gpu --quick       the same with small sizes, whose targets are not judged
# Tables (terminal, Markdown, CSV, LaTeX), figures and the record, a file of pytest-benchmark, are in a folder of the run,
# .benchmarks/DATE-TIME-MACHINE; its path is the last line. --record FILE.json writes the record alone, into that file.
# Other arguments go to pytest, e.g. -k mnist, -k gpu-pass, --contestant-timeout 300 (for one
# answer) or --seconds 600 (for all: what would begin later is left out, on a card fails), --benchmark-compare.
# Without a device --gpu says so and ends with exit status 1.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/environment.sh
find_python || exit
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
folder="$PWD/.benchmarks/$(date +%Y-%m-%d-%H%M%S)-$(uname -n)"
publish="" gpu="" against="" quiet=(--benchmark-quiet) options=() needed=(pytest pytest-benchmark matplotlib)
for argument in "$@"; do
    case "$argument" in
    --publish) publish=yes argument=--large ;;
    --gpu) gpu=yes ;;
    --against) against=yes && continue ;;
    --record | --record=*) folder="" needed=(pytest pytest-benchmark) ;;
    --benchmark-*) quiet=() ;;
    esac
    options+=("$argument")
done
if [ -n "$publish" ] && [ -z "$folder" ]; then
    echo "--publish keeps its own record: leave out --record." >&2
    exit 2
fi
if [ -z "${PYTHON:-}$gpu" ] && ! "$python" ci/missing.py "${needed[@]}" >/dev/null 2>&1; then
    environment bench --editable ".[plot]" pytest "pytest-benchmark[histogram]"
    python=python
fi
"$python" ci/missing.py "${needed[@]}"
[ -z "$gpu" ] || "$python" -m benchmarks.machine --card >/dev/null
if [ -n "$against" ]; then
    exec "$python" -m benchmarks.against ${options[@]+"${options[@]}"}
fi
if [ -n "$publish" ] && [ -n "$(git status --porcelain)" ]; then
    echo "--publish: commit all changes first, so that the record names the version that it measured." >&2
    exit 1
fi
if [ -n "$folder" ]; then
    mkdir -p "$folder"
    options+=(--record "$folder/record.json" ${quiet[@]+"${quiet[@]}"})
fi
status=0
# Only the plugin that is needed: others could bring options of the same names, or warnings, which are errors here.
PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 "$python" -m pytest benchmarks -p pytest_benchmark.plugin -p no:cacheprovider -s \
    --benchmark-columns=median,rounds ${options[@]+"${options[@]}"} || status=$?
if [ -n "$folder" ] && [ -s "$folder/record.json" ]; then
    "$python" -m benchmarks.report "$folder/record.json" --folder "$folder" || status=$?
    if [ -n "$publish" ] && [ "$status" = 0 ]; then
        { "$python" -m benchmarks.publish "$folder/record.json" && "$python" -m benchmarks.plan_tables; } || status=$?
    fi
    echo "$folder"
fi
exit "$status"
