"""Read axes, variances and the number of rows from a fitted model of any library.

A PCA is any model with `components_` (unit rows), `mean_` and `explained_variance_`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from gpukpca._typing import Array
from gpukpca.backend.namespace import to_host
from gpukpca.data.frequencies import number_of
from gpukpca.exceptions import InvalidParameterError


def spectrum_of(model: Any) -> np.ndarray:
    """Return the variances of the kept components, shape (p,), in float64 on the host."""
    check_model(model)
    if (variances := fitted_value(model, "explained_variance_")) is None:
        raise InvalidParameterError(f"{type(model).__name__} has no explained_variance_; pass a fitted PCA.")
    return np.array(to_host(variances), dtype=np.float64)


def check_model(model: Any, expected: str = "expected a fitted estimator,") -> None:
    """Raise where a model is no estimator, or not fitted."""
    if not hasattr(model, "fit") or isinstance(model, type):
        what = f"the class {model.__name__}" if isinstance(model, type) else f"an object of type {type(model).__name__}"
        raise InvalidParameterError(f"{expected} got {what}.")
    check_is_fitted(model)


def axes_of(model: Any) -> Array:
    """Return the unit axes (p, d) of a fitted PCA of any library; raise for a model of another kind."""
    check_model(model)
    V = fitted_value(model, "components_")
    if V is None or V.ndim != 2 or any(fitted_value(model, name) is None for name in ("mean_", "explained_variance_")):
        raise InvalidParameterError(
            f"{type(model).__name__} has no axes of a PCA (mean_, components_ and explained_variance_); pass a fitted "
            "PCA, of a pipeline the last step, model[-1], or take variable_correlations(model, X)."
        )
    return V


def fitted_value(model: Any, *names: str) -> Any:
    """Return the first of these attributes that a model of any library has; None where it has none of them."""
    return next((value for name in names if (value := getattr(model, name, None)) is not None), None)


def total_variance_of(model: Any) -> float:
    """Return the sum of all variances, over n - 1, those not kept included."""
    if (total := fitted_value(model, "total_variance_")) is not None:
        return float(total)
    # Σ λ of the kept ones over Σ of their shares is the total.
    shares = float(np.sum(to_host(model.explained_variance_ratio_).astype(np.float64)))
    return float(np.sum(spectrum_of(model))) / shares if shares > 0 else 0.0


def rows_of(model: Any) -> int:
    """Return how many rows a PCA was fitted to, or their weights where these are more."""
    return round(max(samples_of(model), getattr(fitted_value(model, "plan_"), "n_samples", 0)))


def samples_of(model: Any) -> float:
    """Return how many rows a model was fitted to, each counted by its weight."""
    result, vectors = getattr(model, "_result", None), fitted_value(model, "eigenvectors_")
    n = fitted_value(model, "n_samples_", "n_samples_seen_")
    n = fitted_value(result, "weight_sum") if n is None else n
    if n is None and vectors is None:
        raise InvalidParameterError(
            f"{type(model).__name__} does not say how many samples it was fitted to (n_samples_ or n_samples_seen_)."
        )
    return number_of(float(vectors.shape[0] if n is None else n))


def is_centered(model: Any) -> bool:
    """Return whether a fit subtracted the mean, as those of other libraries do."""
    result = getattr(model, "_result", None)
    return bool(getattr(fitted_value(result, "projection", "map"), "center", True))
