"""Parameters that a kernel does not read: named where they were given, silent where a search combines them."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from gpukpca import KernelPCA, KernelPCACV, Nystrom
from gpukpca.backend.parameters import parameter_names
from gpukpca.decomposition._kernels import NAMED_KERNELS, SHARED
from gpukpca.exceptions import GpuKPCAWarning
from gpukpca.kernels import RBF
from tests.datasets import data

X = data(40, 3)
OTHER: dict[str, Any] = {"gamma": 0.5, "degree": 2, "coef0": 0.5}


def caught(work: Callable[[], Any]) -> list[warnings.WarningMessage]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        work()
    return [one for one in found if " is not used by " in str(one.message)]


def rows_of(kernel: str) -> np.ndarray:
    return X @ X.T if kernel == "precomputed" else X


@pytest.mark.parametrize("kernel", NAMED_KERNELS)
def test_what_a_kernel_does_not_read_is_named_once(kernel: str) -> None:
    read = parameter_names(NAMED_KERNELS[kernel])
    for fit in ("fit", "fit_transform"):
        model = KernelPCA(2, kernel=kernel, **OTHER)
        found = caught(lambda fit=fit, model=model: getattr(model, fit)(rows_of(kernel)))
        named = [str(one.message).split(" is not ")[0].removeprefix("KernelPCA: ") for one in found]
        assert named == [name for name in OTHER if name not in read]
        assert all(issubclass(one.category, GpuKPCAWarning) for one in found)
        assert {one.filename for one in found} <= {__file__}
        assert all(f"kernel={kernel!r}" in str(one.message) for one in found)


def test_a_forgotten_kernel_is_named_with_those_that_read_gamma() -> None:
    for gamma in (3.0, "scale"):
        (found,) = caught(lambda gamma=gamma: KernelPCA(2, gamma=gamma).fit(X))
        message = str(found.message)
        assert message.startswith("KernelPCA: gamma is not used by kernel='linear'; leave it out, or choose a kernel")
        has = [name for name, kernel in NAMED_KERNELS.items() if "gamma" in parameter_names(kernel)]
        assert message.endswith(f"{', '.join(map(repr, has))}.")
        assert "3.0" not in message  # so that the messages of a grid are one
    (found,) = caught(lambda: KernelPCA(2, kernel=RBF(0.1), degree=2).fit(X))
    assert "degree is not used by a kernel object or function" in str(found.message)
    assert len(caught(lambda: KernelPCA(2, kernel=lambda x, y: float(x @ y), gamma=0.1).fit(X))) == 1


def test_the_shared_parameters_have_the_defaults_of_the_estimator() -> None:
    defaults = KernelPCA().get_params()
    assert {name: defaults[name] for name in SHARED} == SHARED


@pytest.mark.parametrize("kernel", NAMED_KERNELS)
def test_defaults_clones_and_copies_are_silent(kernel: str) -> None:
    read = {name: value for name, value in OTHER.items() if name in parameter_names(NAMED_KERNELS[kernel])}
    for model in (KernelPCA(2, kernel=kernel), KernelPCA(2, kernel=kernel, **read)):
        for twin in (model, clone(model), pickle.loads(pickle.dumps(model))):
            assert not caught(lambda twin=twin: twin.fit(rows_of(kernel)))
    assert not caught(lambda: KernelPCA(2, eigen_solver=Nystrom(rank=20), kernel="linear", random_state=0).fit(X))


def test_an_error_of_the_parameters_comes_without_the_warning() -> None:
    def work() -> None:
        with pytest.raises(ValueError, match="tol=-1"):
            KernelPCA(2, gamma=3.0, tol=-1).fit(X)

    assert not caught(work)


def test_a_search_over_kernels_and_gammas_is_silent_and_one_over_gammas_alone_is_not() -> None:
    y = X[:, 0] > 0
    pipeline = make_pipeline(KernelPCA(2), LogisticRegression())
    gammas = {"kernelpca__gamma": [0.1, 1.0]}
    both = gammas | {"kernelpca__kernel": ["linear", "rbf", "cosine"]}
    assert not caught(lambda: GridSearchCV(pipeline, both, cv=2).fit(X, y))
    assert len({str(one.message) for one in caught(lambda: GridSearchCV(pipeline, gammas, cv=2).fit(X, y))}) == 1
    options = {"n_components": [2], "preimage": "ridge", "cv": 2}
    grid = {"kernel": ["linear", "rbf"]}
    assert not caught(lambda: KernelPCACV("rbf", gammas=[0.1, 1.0], param_grid=grid, **options).fit(X))
    assert not caught(lambda: KernelPCACV("linear", **options).fit(X))
    model = KernelPCA(2, gamma=0.1).set_params(n_components=1)
    assert len(caught(lambda: model.fit(X))) == 1
    assert not caught(lambda: clone(model.set_params(kernel="linear", gamma=0.2)).fit(X))
