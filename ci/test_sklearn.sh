#!/usr/bin/env bash
# Runs the tests that scikit-learn has for its PCA, KernelPCA and IncrementalPCA on the classes of gpukpca, and its checks
# of estimators on many settings of all estimators. Arguments go to pytest.
# ci/sklearn_tests/deviations.toml lists the tests that must fail, and docs/reference/deviations.md says why. The table is
# for the scikit-learn of ci/test.sh, whose version is printed; its test files are those of the installed package.
# Needs Python 3.11 or newer (PYTHON names another than python3); the first run installs from a package index.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/environment.sh
environment dev --editable ".[cli,dask,plot]" --group dev
folder="$(python -c 'import pathlib, sklearn; print(pathlib.Path(sklearn.__file__).parent)')"
files=("$folder"/decomposition/tests/test_{pca,kernel_pca,incremental_pca}.py)
for file in "${files[@]}"; do
    [ -e "$file" ] || {
        echo "This scikit-learn was installed without its tests: there is no $file. Install its wheel." >&2
        exit 1
    }
done
# With these, tests of other array libraries and of float32 run too. BLAS of one thread, since two processes share the
# cores.
export SCIPY_ARRAY_API=1 SKLEARN_RUN_FLOAT32_TESTS=1 OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1
# The warnings of gpukpca are no errors in the tests of scikit-learn.
exec python -m pytest --override-ini addopts= --override-ini filterwarnings=ignore --rootdir "$folder" \
    -p no:cacheprovider -p ci.sklearn_tests.plugin --numprocesses 2 --dist worksteal "${files[@]}" ci/sklearn_tests "$@"
