"""Right and wrong calls for mypy (`ci/lint.sh`): an ignored line must be an error, and no other line may be one."""

from typing import Any, assert_type

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, csr_matrix

import gpukpca
from gpukpca import (
    PCA,
    Batches,
    BayesianPCA,
    IncrementalPCA,
    KernelPCA,
    KernelPCACV,
    LocalPCA,
    Plan,
    ProbabilisticPCA,
    Progress,
    double_center,
    gram_matrix,
    kernel_matmat,
    kernels,
    load,
    loadings,
    residuals,
    variable_correlations,
)
from gpukpca.algorithms import fit_kernel_pca, fit_pca
from gpukpca.algorithms.preimage.result import PreimageInfo
from gpukpca.decomposition import RidgePreimage, reconstruction, reconstruction_error, squared_cosines
from gpukpca.eigen import BlockKrylov, Nystrom, top_eigh
from gpukpca.gram import DenseGram
from gpukpca.model_selection import n_components_for
from gpukpca.plotting import ScoresDisplay

X = np.eye(5)
KernelPCA(2, kernel="rbf", gamma="median", random_state=0, device="cuda:1", memory_limit="4GiB").fit(X).transform(X)
KernelPCA(0.9, kernel=kernels.RBF(0.1), eigen_solver=BlockKrylov(tol=1e-6), preimage=RidgePreimage(alpha=0.1))
KernelPCA(kernel=lambda x, y: float(x @ y), eigen_solver=Nystrom(rank=100), verbose=print).fit([[1.0, 2.0], [2.0, 1.0]])
PCA("mle", svd_solver="full", scale=[1.0, 2.0], random_state=np.random.default_rng(0)).fit(X).score_samples(X)
LocalPCA("bic", [1, 2], method="hard")
IncrementalPCA(3).fit(Batches([X, X]))
IncrementalPCA(3).fit(batch for batch in (X, X))
KernelPCACV("rbf", gammas=[0.1, "scale"], n_components=[1, 2], param_grid={"degree": [1]})
KernelPCA(n_components="many")  # type: ignore[arg-type]
KernelPCA(kernel="rbff")  # type: ignore[arg-type]
KernelPCA(gamma="wide")  # type: ignore[arg-type]
KernelPCA(gram="tile")  # type: ignore[arg-type]
KernelPCA(gram=DenseGram)  # type: ignore[arg-type]
KernelPCA(eigen_solver="lapack")  # type: ignore[arg-type]
KernelPCA(preimage="foo")  # type: ignore[arg-type]
KernelPCA(tol="small")  # type: ignore[arg-type]
PCA(svd_solver="svd")  # type: ignore[arg-type]
PCA(iterated_power="many")  # type: ignore[arg-type]
LocalPCA("bick")  # type: ignore[arg-type]
ProbabilisticPCA(solver="spectrum")  # type: ignore[arg-type]
ProbabilisticPCA(ddof=2)  # type: ignore[arg-type]
PCA().fit(3)  # type: ignore[call-overload]
PCA().fit("data.npy")  # type: ignore[arg-type]
PCA().fit(X).transform(3)  # type: ignore[call-overload]
PCA(2).fit(Batches([X, X]))
PCA(2).fit(Batches(lambda: iter([X, X])))
Batches(3)  # type: ignore[arg-type]
assert_type(PCA(2).transform(Batches([X, X])), Any)
assert_type(IncrementalPCA(2).partial_fit(Batches([X, X])).mean_, Any)
assert_type(IncrementalPCA(2).fit_transform(Batches([X, X])), Any)
KernelPCA(2, eigen_solver=Nystrom(rank=2)).partial_fit(batch for batch in (X, X)).transform(Batches([X, X]))
KernelPCA(2, eigen_solver="nystrom").fit(batch for batch in (X, X))
KernelPCA(2).plan(Batches([X, X]))
KernelPCA(n_component=2)  # type: ignore[call-arg]
KernelPCA(kernel=3)  # type: ignore[arg-type]
KernelPCA(device=0)  # type: ignore[arg-type]
PCA(whiten="yes")  # type: ignore[arg-type]
IncrementalPCA(0.9)  # type: ignore[arg-type]
ProbabilisticPCA(2).fit(X, sample_weight=[1, 1, 1, 1, 2])
BayesianPCA(solver="closed_form")  # type: ignore[arg-type]
fit_pca(X, "mle")
fit_pca(X, "many")  # type: ignore[arg-type]
fit_kernel_pca(X, "rbf", 2)  # type: ignore[arg-type]
kernels.RBF() + 2.0  # type: ignore[operator]
KernelPCA(kernel=2.0 * kernels.RBF() ** 2)
variable_correlations(PCA(2).fit(X))  # type: ignore[call-overload]
gram_matrix("rbf", X)  # type: ignore[call-overload]
KernelPCACV(refit="yes")  # type: ignore[arg-type]
RidgePreimage(kernel="rbff")  # type: ignore[arg-type]
kernels.RBF("wide")  # type: ignore[arg-type]
kernels.RBF() + 2.0  # type: ignore[operator]
kernels.RBF() ** "two"  # type: ignore[operator]
n_components_for(X, "variance", 0.9)
n_components_for(X, "varience")  # type: ignore[arg-type]
Nystrom(rank=100, landmarks="evenly")  # type: ignore[arg-type]
Nystrom(landmarks=[3, 5])
residuals((kernels.RBF(0.1), X), X, passes=2, memory_limit="4GiB", verbose=print)
residuals(PCA(2).fit(X), X, passes=3)  # type: ignore[arg-type]
top_eigh(DenseGram(X), 2, solver="dense")
top_eigh(DenseGram(X), 2, solver="lapack")  # type: ignore[arg-type]
ScoresDisplay(X, labels=["a", "b"])
ScoresDisplay(3)  # type: ignore[arg-type]


def report(event: Progress) -> None:
    print(event.done, event.text)


KernelPCA(verbose=report)

# The results of NumPy rows are NumPy arrays of the same type, float64 for integers and lists. Those of arrays with a
# device have their class; those of other rows, and of unknown ones, are arrays of any library.
Floats = NDArray[np.float64]
Singles = NDArray[np.float32]


class Frame:
    """Rows of another library."""

    shape = (5, 5)


class Tensor(Frame):
    """Rows of a library whose arrays have a device."""

    device = "cpu"


unknown: Any = X
fit = KernelPCA(2).fit(X)
assert_type(fit.eigenvalues_, Floats)
assert_type(fit.plan_, Plan)
assert_type(fit.gap_, float | None)
assert_type(fit.transform(X), Floats)
assert_type(fit.transform(X, out=X), Floats)
assert_type(fit.transform([[1.0, 2.0]]), Floats)
assert_type(fit.transform(Frame()), Any)
assert_type(fit.inverse_transform(X), Floats)
assert_type(fit.transform(unknown), Any)
assert_type(fit.X_fit_, Floats)
assert_type(fit.inverse_transform(X, return_info=True), tuple[Any, PreimageInfo])
assert_type(fit.denoise(unknown), Any)
assert_type(fit.score(X), float)
assert_type(fit.set_params(gamma=1.0).eigenvalues_, Floats)
assert_type(KernelPCA(2).eigenvalues_, Any)
assert_type(KernelPCA(2).fit(Frame()).eigenvalues_, Any)
assert_type(KernelPCA(2).fit_transform(X), Floats)
assert_type(KernelPCA(2).set_output(transform="pandas").fit_transform(X), Any)
assert_type(PCA(2).fit(X).components_, Floats)
assert_type(PCA(2).fit(X).get_covariance(), Floats)
assert_type(PCA(2).fit(X).scale_, Floats | None)
assert_type(PCA(2).fit(unknown).components_, Any)
assert_type(PCA(2).fit(Batches([X, X])).components_, Any)
assert_type(PCA(2).fit_transform(Frame()), Any)
assert_type(PCA(2).fit_transform(unknown), Any)
assert_type(IncrementalPCA(2).fit(X).mean_, Floats)
assert_type(IncrementalPCA(2).fit(Batches([X, X])).mean_, Any)
assert_type(IncrementalPCA(2).partial_fit(X).mean_, Floats)
assert_type(IncrementalPCA(2).partial_fit(Frame()).mean_, Any)
assert_type(IncrementalPCA(2).fit_transform(X, sample_weight=[1, 1, 1, 1, 2]), Floats)
assert_type(KernelPCA(2).fit(X, sample_weight=[1, 1, 1, 1, 2]).eigenvalues_, Floats)
assert_type(ProbabilisticPCA(2).fit(X).noise_variance_, float)
assert_type(ProbabilisticPCA(2).fit(X).loadings_, Floats)
assert_type(ProbabilisticPCA(2).fit(Batches([X, X])).loadings_, Any)
assert_type(ProbabilisticPCA(2).fit(X).impute(X), Floats)
assert_type(BayesianPCA().fit(X).precisions_, Floats)
assert_type(BayesianPCA().fit(X).sample(3), Floats)
assert_type(LocalPCA().fit(X).means_, Floats)
assert_type(LocalPCA().fit_transform(X), Floats)
assert_type(LocalPCA().fit(X).sample(3), tuple[Floats, Any])
assert_type(KernelPCACV().fit(X).best_estimator_, KernelPCA[Any])
assert_type(KernelPCACV().fit(X).transform(X), Floats)
assert_type(KernelPCACV().fit(X).score(X), float)
assert_type(loadings(PCA(2).fit(X)), Floats)
assert_type(loadings(PCA(2).fit(Frame())), Any)
assert_type(variable_correlations(fit, X), Floats)
assert_type(variable_correlations(fit, X, Frame()), Any)
assert_type(squared_cosines(PCA(2).fit(X), X), Floats)
assert_type(reconstruction(PCA(2).fit(X), unknown), Any)
assert_type(reconstruction_error(PCA(2).fit(X), X), float)
assert_type(gram_matrix(kernels.RBF(), X), Floats)
assert_type(kernels.RBF.from_sigma(2.0), kernels.RBF)
assert_type(kernels.RBF()(X, X), Floats)
assert_type(kernels.RBF()(Frame()), Any)
assert_type(double_center(X), Floats)
LocalPCA().fit_transform(X, sample_weight=[1, 1, 1, 1, 2])  # type: ignore[call-overload]
assert_type(load("model.safetensors").transform(X), Floats)
assert_type(load("model.safetensors").n_features_in_, int)
if isinstance(model := load("model.safetensors"), KernelPCA):
    assert_type(model.plan(X), Plan)


def single(x: Singles, counts: NDArray[np.int64]) -> None:
    model = KernelPCA(2).fit(x)
    assert_type(model.eigenvectors_, Singles)
    assert_type(model.transform(x), Singles)
    assert_type(model.inverse_transform(x), Singles)
    assert_type(model.denoise(x), Singles)
    assert_type(model.score_samples(x), Singles)
    for estimator in (PCA(2), IncrementalPCA(2), ProbabilisticPCA(2), BayesianPCA(), LocalPCA()):
        assert_type(estimator.fit(x).components_, Singles)
        assert_type(estimator.fit(counts).components_, Floats)
        assert_type(estimator.fit_transform(x), Singles)
        assert_type(estimator.fit_transform(counts), Floats)
    assert_type(loadings(PCA(2).fit(x)), Singles)
    assert_type(variable_correlations(model, x), Singles)
    assert_type(squared_cosines(PCA(2).fit(x), x), Singles)
    assert_type(reconstruction(PCA(2).fit(x), x), Singles)
    assert_type(gram_matrix(kernels.RBF(), x), Singles)
    assert_type(kernels.RBF()(x), Singles)
    assert_type(double_center(x), Singles)
    assert_type(kernel_matmat(kernels.RBF(), X, x, x), Singles)


def sparse(S: csr_matrix, A: csr_array) -> None:
    for estimator in (PCA(2), KernelPCA(2), IncrementalPCA(2), ProbabilisticPCA(2), BayesianPCA(), KernelPCACV()):
        estimator.fit(S).transform(A)
        estimator.fit(A).transform(S)
        assert_type(estimator.fit_transform(S), Any)
    assert_type(KernelPCA(2).denoise(S), Any)


assert_type(PCA(2).transform(Tensor()), Tensor)
assert_type(KernelPCA(2).fit_transform(Tensor()), Tensor)
# Rooms that only the package was imported for.
gpukpca.plotting.ScoresDisplay(gpukpca.decomposition.PCA(2).fit_transform(gpukpca.datasets.uk_foods().X))
assert_type(gpukpca.model_selection.KernelPCACV().best_score_, float)
