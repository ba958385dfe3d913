"""LocalPCA's parameters: checked, and turned into pairs (clusters, components) to be tried."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gpukpca.algorithms.mixture.fit import ASSIGNMENTS
from gpukpca.backend.device import parsed_device
from gpukpca.decomposition.choices import check_parameter, is_integer, is_real, is_switch, is_word
from gpukpca.exceptions import InvalidParameterError

# What "bic" tries, as far as the data have so many rows and features.
MOST_CLUSTERS, MOST_COMPONENTS = 8, 10


def check_local_parameters(estimator: Any) -> None:
    """Raise `InvalidParameterError` for every constructor argument that no data could make right."""
    e = estimator
    for name in ("n_clusters", "n_components"):
        value = getattr(e, name)
        allowed = is_word(value, "bic") or _is_count(value) or (_is_list(value) and all(map(_is_count, value)))
        check_parameter(e, name, allowed, 'an integer >= 1, a sequence of such integers, or "bic"')
    check_parameter(e, "method", is_word(e.method, *ASSIGNMENTS), '"mixture" or "hard"')
    for name in ("n_init", "max_iter"):
        check_parameter(e, name, _is_count(getattr(e, name)), "an integer >= 1")
    check_parameter(e, "tol", is_real(e.tol) and e.tol >= 0, "a number >= 0")
    check_parameter(e, "reg", is_real(e.reg) and 0 < e.reg < 1, "a number in (0, 1)")
    jobs_ok = e.n_jobs is None or (is_integer(e.n_jobs) and e.n_jobs != 0)
    check_parameter(e, "n_jobs", jobs_ok, "None or an integer other than 0")
    check_parameter(e, "verbose", callable(e.verbose) or is_switch(e.verbose), "an integer >= 0 or a callable")
    parsed_device(e.device)


def candidates(estimator: Any, n: int, d: int) -> list[tuple[int, int]]:
    """The pairs (k, p) that are fitted to n rows of d features, each once, smallest first.

    Raises
    ------
    InvalidParameterError
        More clusters than rows, or components than rows, or as many as features.
    """
    clusters = _counts(estimator.n_clusters, min(MOST_CLUSTERS, n))
    # One at least: where that is too many, the message below says so.
    components = _counts(estimator.n_components, max(1, min(MOST_COMPONENTS, n, d - 1)))
    if clusters[-1] > n:
        raise InvalidParameterError(
            f"n_clusters={clusters[-1]} must be at most n_samples={n}: a cluster needs a row. Ask for fewer, or give "
            "more rows."
        )
    if components[-1] >= d:
        raise InvalidParameterError(
            f"n_components={components[-1]} must be less than n_features={d}: planes of all dimensions leave nothing "
            "to tell clusters apart. Ask for fewer components; data of one feature (n_features = 1) have no local PCA."
        )
    if components[-1] > n:
        raise InvalidParameterError(
            f"n_components={components[-1]} must be at most min(n_samples, n_features - 1) = {min(n, d - 1)} with "
            f"n_samples={n}, n_features={d}."
        )
    return [(k, p) for k in clusters for p in components]


def _counts(value: Any, most: int) -> list[int]:
    """Different numbers, ascending."""
    if isinstance(value, str):
        return list(range(1, most + 1))
    return sorted({int(count) for count in value}) if _is_list(value) else [int(value)]


def _is_count(value: Any) -> bool:
    return is_integer(value) and value >= 1


def _is_list(value: Any) -> bool:
    return isinstance(value, (Sequence, np.ndarray)) and not isinstance(value, str) and len(value) > 0
