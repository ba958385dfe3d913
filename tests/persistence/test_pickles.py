"""Pickles record the version that wrote them, and a mix of versions is reported."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from sklearn.base import clone

from gpukpca import PCA, BayesianPCA, IncrementalPCA, KernelPCA, LocalPCA, Nystrom, ProbabilisticPCA, __version__
from gpukpca.decomposition import TRUSTED_TYPES, FixedPointPreimage, _base
from gpukpca.exceptions import VersionWarning
from gpukpca.kernels import RBF, Matern, Polynomial
from gpukpca.model_selection import KernelPCACV

ESTIMATORS = [
    PCA(2),
    IncrementalPCA(2),
    KernelPCA(2, kernel="rbf"),
    ProbabilisticPCA(2),
    BayesianPCA(2),
    LocalPCA(2, 2, random_state=0),
    KernelPCACV("rbf", n_components=[2], gammas=[0.3], cv=2),
]


def data() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((40, 4)) * [4.0, 2.0, 1.0, 0.5]


def fitted(model: Any) -> Any:
    return clone(model).fit(data())


@pytest.mark.parametrize("model", ESTIMATORS, ids=lambda model: type(model).__name__)
def test_a_pickle_of_this_version_is_read_in_silence_and_leaves_nothing_behind(model):
    for one in (model, fitted(model)):
        again = pickle.loads(pickle.dumps(one))
        assert set(vars(again)) == set(vars(one))
        assert set(vars(copy.deepcopy(one))) == set(vars(one))


@pytest.mark.parametrize("model", ESTIMATORS, ids=lambda model: type(model).__name__)
def test_a_pickle_of_another_version_is_reported(model, monkeypatch):
    one = fitted(model)
    monkeypatch.setattr(_base, "__version__", "0.0.1")
    written = pickle.dumps(one)
    monkeypatch.undo()
    with pytest.warns(VersionWarning, match=rf"written by gpukpca 0\.0\.1, and this is gpukpca {__version__}"):
        again = pickle.loads(written)
    np.testing.assert_array_equal(again.transform(data()), one.transform(data()))


def test_a_pickle_without_a_version_is_reported():
    one = fitted(PCA(2))
    state = one.__getstate__()
    del state[_base.VERSION]
    again = PCA()
    with pytest.warns(VersionWarning, match=r"written by gpukpca 0\.7\.0 or older"):
        again.__setstate__(state)
    np.testing.assert_array_equal(again.components_, one.components_)


# With what else a fitted model may hold: preparations of rows, kernels of kernels, pre-images, factors.
CONTENTS = [
    *ESTIMATORS[:-1],
    PCA(2, scale=True),
    KernelPCA(2, kernel="laplacian", preimage="ridge"),
    KernelPCA(2, kernel=RBF(0.1) + 2.0 * Polynomial(2) * Matern(1.0)),
    KernelPCA(2, kernel="rbf", preimage=FixedPointPreimage()),
    KernelPCA(2, kernel="rbf", preimage="distance_constraint"),
    KernelPCA(2, kernel="cosine", eigen_solver=Nystrom(rank=20), random_state=0),
]


class Names(pickle.Unpickler):
    """Reads a pickle and keeps the names of its classes and functions."""

    def __init__(self, content: bytes) -> None:
        super().__init__(io.BytesIO(content))
        self.names: set[str] = set()

    def find_class(self, module: str, name: str) -> Any:
        self.names.add(f"{module}.{name}")
        return super().find_class(module, name)


def test_the_trusted_types_name_every_class_of_a_fitted_model():
    for model in CONTENTS:
        reader = Names(pickle.dumps(fitted(model)))
        reader.load()
        assert {name for name in reader.names if name.startswith("gpukpca.")} <= {*TRUSTED_TYPES}, model
    assert list(TRUSTED_TYPES) == sorted(set(TRUSTED_TYPES))


def test_skops_reads_what_it_wrote_with_the_trusted_types():
    skops = pytest.importorskip("skops.io")
    sparse = scipy.sparse.csr_array(data())
    models = [fitted(model) for model in CONTENTS if not isinstance(model, LocalPCA)]  # its BIC has tuples as keys
    for model in [*models, KernelPCA(2).fit(sparse), PCA(2).fit(sparse)]:
        again = skops.loads(skops.dumps(model), trusted=TRUSTED_TYPES)
        np.testing.assert_array_equal(again.transform(data()), model.transform(data()))
