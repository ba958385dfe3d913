#!/usr/bin/env bash
# Runs tests of what differs between versions of Python (protocols, types, signatures, pickles, threads) and of one
# estimator, with the newest versions of the dependencies, on every newer Python that is installed. A version that is
# not found is named in one line. PYTHONS="3.13" chooses versions; arguments go to pytest in place of the tests.
# The first run installs from a package index.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/environment.sh
[ $# -gt 0 ] || set -- -q tests/backend tests/test_{protocols,public_api,types}.py tests/decomposition/test_{pca,parameters}.py \
    tests/eigen/test_own_solvers.py tests/gram/test_protocol.py tests/persistence/test_pickles.py tests/cli/test_methods.py
for version in ${PYTHONS:-3.12 3.13 3.14}; do
    PYTHON="$(python_of "$version")" || {
        echo "There is no Python $version: no test ran on it."
        continue
    }
    (
        environment "python-$version" --editable ".[cli,dask,plot]" --group test
        python -m pytest --numprocesses 2 --dist worksteal "$@"
    )
done
