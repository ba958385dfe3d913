"""Type checkers catch wrong parameters: mypy reads a file of right and wrong calls."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from gpukpca.algorithms.kernel_pca.settings import EIGEN_SOLVERS
from gpukpca.decomposition._kernels import NAMED_KERNELS, KernelName
from gpukpca.decomposition.preimage.methods import METHODS, PreimageName
from gpukpca.eigen.landmarks import LANDMARKS, LandmarkRule
from gpukpca.eigen.solve import SOLVER_NAMES
from gpukpca.model_selection.dimension import RULES, RuleName

# Every line that ends with «# wrong» must be an error, and no other.
CALLS = """
import numpy as np

from gpukpca import PCA, IncrementalPCA, KernelPCA, KernelPCACV, LocalPCA, ProbabilisticPCA, kernels
from gpukpca.decomposition import RidgePreimage
from gpukpca.eigen import BlockKrylov, Nystrom, top_eigh
from gpukpca.gram import DenseGram
from gpukpca.model_selection import n_components_for
from gpukpca.plotting import plot_scores

X = np.eye(5)
KernelPCA(2, kernel="rbf", gamma="median", random_state=0, device="cuda:1", memory_limit="4GiB").fit(X).transform(X)
KernelPCA(0.9, kernel=kernels.RBF(0.1), eigen_solver=BlockKrylov(tol=1e-6), preimage=RidgePreimage(alpha=0.1))
KernelPCA(kernel=lambda x, y: float(x @ y), eigen_solver=Nystrom(100), verbose=print).fit([[1.0, 2.0], [2.0, 1.0]])
PCA("mle", svd_solver="full", scale=[1.0, 2.0], random_state=np.random.default_rng(0)).fit(X).score_samples(X)
LocalPCA("bic", [1, 2], method="hard")
IncrementalPCA(3).fit([X, X])
IncrementalPCA(3).fit(batch for batch in (X, X))
KernelPCACV("rbf", gammas=[0.1, "scale"], n_components=[1, 2], param_grid={"degree": [1]})
KernelPCA(n_components="many")  # wrong
KernelPCA(kernel="rbff")  # wrong
KernelPCA(gamma="wide")  # wrong
KernelPCA(gram="tile")  # wrong
KernelPCA(eigen_solver="lapack")  # wrong
KernelPCA(preimage="foo")  # wrong
KernelPCA(tol="small")  # wrong
KernelPCA(client="tcp://somewhere:1")  # wrong
PCA(svd_solver="svd")  # wrong
PCA(iterated_power="many")  # wrong
LocalPCA("bick")  # wrong
ProbabilisticPCA(solver="spectrum")  # wrong
ProbabilisticPCA(ddof=2)  # wrong
PCA().fit(3)  # wrong
PCA().fit("data.npy")  # wrong
PCA().fit(X).transform(3)  # wrong
KernelPCACV(refit="yes")  # wrong
RidgePreimage(kernel="rbff")  # wrong
kernels.RBF("wide")  # wrong
n_components_for(X, "variance", 0.9)
n_components_for(X, "varience")  # wrong
Nystrom(100, "evenly")  # wrong
top_eigh(DenseGram(X), 2, solver="dense")
top_eigh(DenseGram(X), 2, solver="lapack")  # wrong
plot_scores(X, labels=["a", "b"])
plot_scores(3)  # wrong
"""


def test_names_of_types_are_those_of_the_tables() -> None:
    assert set(get_args(KernelName)) == set(NAMED_KERNELS)
    assert set(get_args(PreimageName)) == set(METHODS)
    assert set(get_args(LandmarkRule)) == set(LANDMARKS)
    assert set(get_args(RuleName)) == set(RULES)
    assert (*SOLVER_NAMES, "nystrom") == EIGEN_SOLVERS


@pytest.mark.slow
def test_mypy_reports_wrong_calls_and_no_others(tmp_path: Path) -> None:
    mypy = pytest.importorskip("mypy.api")
    path = tmp_path / "calls.py"
    path.write_text(CALLS, encoding="utf-8")
    options = ["--config-file=", "--ignore-missing-imports", "--follow-imports=silent", f"--cache-dir={tmp_path}"]
    report = mypy.run([*options, str(path)])[0]
    reported = {int(line.split(":")[1]) for line in report.splitlines() if line.startswith(str(path))}
    wrong = {number for number, line in enumerate(CALLS.splitlines(), 1) if line.endswith("# wrong")}
    assert reported == wrong, report
