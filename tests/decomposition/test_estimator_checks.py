"""scikit-learn's own estimator checks, but for those of `is_apart`, and the methods that an estimator offers.

`ci/test_sklearn.sh` runs the checks on many more settings, with SciPy's array-API switch on.
"""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from gpukpca import PCA, IncrementalPCA, KernelPCA, LocalPCA, Nystrom
from gpukpca.model_selection import KernelPCACV
from tests.datasets import data
from tests.decomposition.estimator_checks import ESTIMATORS, FEWEST, run_checks

# Estimators without some of the methods of their class.
WITH_LESS = [
    PCA(1, center=False),
    IncrementalPCA(1, center=False),
    KernelPCACV(gammas=0.1, n_components=1, cv=2, refit=False),
    LocalPCA(method="hard"),
    KernelPCA(1, kernel="rbf", eigen_solver=Nystrom(rank=5), preimage="ridge"),
    KernelPCA(1, kernel="rbf", eigen_solver=Nystrom(rank=5), fit_inverse_transform=True),
    KernelPCA(1, kernel="precomputed", eigen_solver="nystrom"),
    KernelPCA(1, kernel=lambda x, y: float(x @ y), eigen_solver="nystrom"),
]
# What every estimator has, what refuses models for the want of another library or of a file format, and what a
# precomputed kernel gives an argument more.
NOT_CALLED = {"as_sklearn", "feature_space_error", "fit", "from_sklearn", "get_metadata_routing", "get_params", "save"}


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)
def test_scikit_learn_estimator_checks(estimator):
    passed = run_checks(estimator)
    assert len(passed) >= FEWEST, passed


def offered(estimator: Any) -> set[str]:
    """Return the names of the public methods that an estimator has."""
    names = {name for name in dir(type(estimator)) if not name.startswith(("_", "set_"))} - NOT_CALLED
    return {name for name in names if hasattr(estimator, name) and callable(getattr(estimator, name))}


def called(model: Any, name: str, X: np.ndarray) -> str:
    """Call a method of a fitted estimator with rows, or scores, and return the error, if any."""
    method = getattr(clone(model) if name.startswith(("fit", "partial_fit")) else model, name)
    needs = any(p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD for p in _parameters(method))
    given = [model.transform(X) if name == "inverse_transform" else X] if needs else []
    try:
        method(*given)
    except Exception as error:
        return f"{model}.{name}: {type(error).__name__}: {error}"
    return ""


def _parameters(method: Any) -> Any:
    return inspect.signature(method).parameters.values()


def test_what_an_estimator_offers_before_and_after_the_fit_does_not_always_raise():
    failed = []
    for estimator in (*ESTIMATORS, *WITH_LESS):
        X = data(20, 4)
        X = X @ X.T if getattr(estimator, "kernel", None) == "precomputed" else X
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = clone(estimator).fit(X)
            names = offered(model)
            assert names == offered(estimator), estimator
            failed += [text for name in sorted(names) if (text := called(model, name, X))]
    assert not failed, "\n".join(failed)


def test_what_a_setting_takes_away_is_absent_and_says_why():
    X = data(20, 4)
    for kind, names in ((PCA, ("score", "score_samples")), (IncrementalPCA, ())):
        new, fitted, changed = kind(1, center=False), kind(1, center=False).fit(X), kind(1, center=False).fit(X)
        for model in (new, fitted, changed.set_params(center=True)):
            for name in (*names, "get_covariance", "get_precision"):
                with pytest.raises(AttributeError, match=r"center=False.*fit with center=True"):
                    getattr(model, name)
                assert hasattr(clone(model).set_params(center=True), name)
    with pytest.raises(TypeError, match="should have a 'score' method"):
        GridSearchCV(PCA(center=False), {"n_components": [1, 2]}).fit(X)
    search = GridSearchCV(PCA(2), {"center": [True, False]}, cv=2)
    with pytest.warns(UserWarning, match="Scoring failed|non-finite"):
        assert search.fit(X).best_params_ == {"center": True}
