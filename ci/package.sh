#!/usr/bin/env bash
# Builds the packages by ci/build.sh and checks both; with --built those of SHA256SUMS that are in dist/ already. The
# unpacked sdist runs tests and the linter.
# Needs Python 3.11 or newer (PYTHON names another than python3); the first run installs from a package index.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/environment.sh
[ "${1:-}" = --built ] || bash ci/build.sh
environment package check-wheel-contents twine==7.0.0 "validate-pyproject[all]"
validate-pyproject pyproject.toml
twine check --strict dist/*
check-wheel-contents dist/*.whl

folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
tar -xzf dist/*.tar.gz -C "$folder" --strip-components=1
if [ -d .git ] || [ -f .git ]; then
    git ls-files | while read -r file; do
        [ -e "$folder/$file" ] || { echo "The sdist lacks $file." >&2 && exit 1; }
    done
fi
environment dev --editable ".[cli,dask,plot]" --group dev
cd "$folder"
ruff check .
# From here `gpukpca` is the one in the folder.
PYTHONPATH="$folder" python -m pytest -q -p no:cacheprovider tests/test_architecture.py tests/test_public_api.py
cd - >/dev/null
shasum --algorithm 256 --check --strict SHA256SUMS # no tool has changed them
