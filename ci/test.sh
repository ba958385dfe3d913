#!/usr/bin/env bash
# Makes an environment with the test extra and runs the tests. Arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/environment.sh
environment test "[test]"
# Two processes: most tests use one core. Arguments after it win, as in `bash ci/test.sh -n 0`.
exec python -m pytest --numprocesses 2 --dist worksteal "$@"
