#!/usr/bin/env bash
# Builds the sdist, and from it the wheel, into dist/, with the tools of ci/build_tools.txt alone, and writes the SHA-256
# sums of both to SHA256SUMS, before any other tool can change them.
# Needs Python 3.11 or newer (PYTHON names another than python3); the first run installs from a package index.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/environment.sh
environment build --require-hashes --only-binary :all: --requirement ci/build_tools.txt
rm -rf dist
python -m build --no-isolation --outdir dist .
shasum --algorithm 256 dist/* | tee SHA256SUMS
