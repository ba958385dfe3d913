#!/usr/bin/env bash
# Checks workflows for faults of security, and files of the project against the advice of the Scientific Python project.
# Needs Python 3.11 or newer (PYTHON names another than python3); the first run installs from a package index.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/environment.sh
environment repository "sp-repo-review[cli]>=2025" "zizmor>=1.9"
zizmor --offline --quiet .github
repo-review --show errskip .
