"""JAX arrays: results are JAX arrays of the same type, with 64 bits and without, and products keep their digits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpukpca import PCA, BayesianPCA, IncrementalPCA, KernelPCA, LocalPCA, Nystrom, ProbabilisticPCA
from gpukpca.exceptions import PrecisionWarning
from gpukpca.kernels import BlockCallable

jax = pytest.importorskip("jax")

MODELS = {
    "KernelPCA": KernelPCA(2, kernel="rbf", gamma=0.1),
    "KernelPCA by iteration": KernelPCA(2, kernel="rbf", gamma=0.1, eigen_solver="randomized", random_state=0),
    "KernelPCA from landmarks": KernelPCA(2, kernel="rbf", gamma=0.1, eigen_solver=Nystrom(rank=10), random_state=0),
    "PCA": PCA(2),
    "IncrementalPCA": IncrementalPCA(2),
    "ProbabilisticPCA": ProbabilisticPCA(2),
    "BayesianPCA": BayesianPCA(2, random_state=0),
    "LocalPCA": LocalPCA(2, 2, random_state=0),
}
# Scores move by the error of an eigenvector, which is eps over the relative gap of its eigenvalue; the gaps are 0.1.
ATOL = {"float64": 1e-9, "float32": 2e-3}


def data() -> np.ndarray:
    X = np.random.default_rng(0).standard_normal((40, 4)) * [3.0, 1.5, 0.4, 0.2]
    X[20:, 3] += 20.0  # two clusters
    return X


def fitted_arrays(model: Any) -> dict[str, Any]:
    """Fitted attributes with a dtype, other than plans and what lives on the host."""
    return {name: value for name, value in vars(model).items() if isinstance(value, jax.Array)}


# JAX compiles every operation for every shape, which takes seconds a model: with 64 bits one model of each kind.
WITH_64_BITS = ("KernelPCA by iteration", "PCA", "BayesianPCA", "LocalPCA")


@pytest.mark.parametrize(
    ("dtype", "name"), [*(("float32", name) for name in MODELS), *(("float64", name) for name in WITH_64_BITS)]
)
def test_results_are_jax_arrays_with_the_numbers_of_numpy(dtype: str, name: str) -> None:
    X = data().astype(dtype)
    expected = MODELS[name].fit(X).transform(X)
    with jax.enable_x64(dtype == "float64"):  # without it JAX has no float64 and no int64
        model = MODELS[name].fit(jax.numpy.asarray(X))
        scores = model.transform(jax.numpy.asarray(X))
        back = model.inverse_transform(scores) if name == "PCA" else scores
    for array in (scores, back):
        assert isinstance(array, jax.Array)
        assert array.dtype == dtype
    arrays = fitted_arrays(model)
    assert arrays
    assert {array.dtype for array in arrays.values() if array.dtype.kind == "f"} == {np.dtype(dtype)}
    np.testing.assert_allclose(np.asarray(scores), expected, rtol=0, atol=ATOL[dtype] * np.abs(expected).max())


@pytest.mark.parametrize("dtype", ["int32", "float16", "bfloat16"])
def test_without_64_bits_other_numbers_are_computed_in_float32_with_a_warning(dtype: str) -> None:
    with jax.enable_x64(False):
        X = jax.numpy.asarray(np.round(data())).astype(dtype)
        with pytest.warns(PrecisionWarning, match=r"no float64; computing in float32\. .*jax_enable_x64"):
            scores = PCA(2).fit_transform(X)
    assert scores.dtype == np.float32


def test_labels_are_integers_of_the_width_that_jax_has() -> None:
    for wide in (True, False):
        with jax.enable_x64(wide):
            labels = LocalPCA(2, 2, random_state=0).fit(jax.numpy.asarray(data(), dtype="float32")).labels_
        assert labels.dtype == (np.int64 if wide else np.int32)


def test_products_are_computed_in_the_full_precision_of_their_type() -> None:
    """On an accelerator JAX rounds the factors of float32 products by default; the setting is seen inside a fit."""
    found = set()

    def product(A: Any, B: Any) -> Any:
        found.add(jax.config.jax_default_matmul_precision)
        return A @ B.T

    X = jax.numpy.asarray(data(), dtype="float32")
    before = jax.config.jax_default_matmul_precision
    KernelPCA(2, kernel=BlockCallable(product)).fit(X).transform(X[:3])
    BlockCallable(product)(X)
    assert found == {"highest"}
    assert jax.config.jax_default_matmul_precision == before
