#!/usr/bin/env bash
# Makes an environment with the test extra and runs the tests. Arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/environment.sh
environment test "[test]"
exec python -m pytest "$@"
