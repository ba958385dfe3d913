"""From the parameters of PCA to checked numbers: components, scale."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpukpca.algorithms.pca.settings import PCASettings, RankRequest
from gpukpca.backend.device import parsed_device
from gpukpca.backend.namespace import epsilon, to_host
from gpukpca.decomposition.choices import check_checkpoint, check_parameter, is_integer, is_real, is_switch, is_word
from gpukpca.distributed import client_for
from gpukpca.exceptions import InvalidParameterError
from gpukpca.kernels.validation import closest

SVD_SOLVERS = ("auto", "covariance_eigh", "dual", "full", "randomized", "arpack")
NORMALIZERS = ("auto", "QR", "LU", "none")
ITERATIVE = ("randomized", "arpack")
# scikit-learn's default, which stands for the solver's own.
DEFAULT_OVERSAMPLES = 10
# Standard deviations up to this many eps of the mean are rounding of a constant.
ROUNDING = 2.0


def rank_request(estimator: Any, n: int, d: int) -> RankRequest:
    """What n_components means for n samples with d features.

    Raises
    ------
    ValueError
        More than min(n, d), in scikit-learn's words.
    """
    value, solver, most = estimator.n_components, estimator.svd_solver, min(n, d)
    if value is None:
        return RankRequest(max(most - 1, 1) if solver == "arpack" else most)
    if isinstance(value, str):
        if solver in ITERATIVE:
            raise ValueError(f"n_components={value!r} cannot be a string with svd_solver={solver!r}")
        if n < d:
            raise ValueError("n_components='mle' is only supported if n_samples >= n_features")
        return RankRequest(most, minka=True)
    least = 1 if solver in ITERATIVE else 0
    is_share = not is_integer(value)
    if (is_share and solver in ITERATIVE) or not least <= value <= most:
        raise ValueError(
            f"n_components={value!r} must be between {least} and min(n_samples, n_features)={most} with "
            f"svd_solver={solver!r}"
        )
    return RankRequest(most, share=float(value)) if is_share else RankRequest(int(value), given=True)


def settings_of(estimator: Any) -> PCASettings:
    """Return the checked parameters of a PCA that the algorithm needs."""
    e = estimator
    return PCASettings(
        svd_solver=e.svd_solver,
        passes=None if e.iterated_power == "auto" else int(e.iterated_power) + 1,
        oversampling=None if e.n_oversamples == DEFAULT_OVERSAMPLES else int(e.n_oversamples),
        tol=float(e.tol),
        n_jobs=e.n_jobs,
        has_checkpoint=e.checkpoint is not None,
    )


def check_pca_parameters(estimator: Any) -> None:
    """Raise `InvalidParameterError` for every constructor argument that is out of range."""
    e = estimator
    value = e.n_components
    share = is_real(value) and not is_integer(value) and 0.0 < value < 1.0
    allowed = value is None or is_word(value, "mle") or share or (is_integer(value) and value >= 0)
    check_parameter(e, "n_components", allowed, 'None, an integer >= 0, a number strictly between 0 and 1, or "mle"')
    parsed_device(e.device)
    client_for(e.client)
    if not is_word(e.svd_solver, *SVD_SOLVERS):
        near = closest(e.svd_solver, SVD_SOLVERS) if isinstance(e.svd_solver, str) else ""
        raise InvalidParameterError(
            f"svd_solver={e.svd_solver!r} is not known; give one of {', '.join(map(repr, SVD_SOLVERS))}.{near}"
        )
    for name in ("copy", "whiten"):
        check_parameter(e, name, isinstance(getattr(e, name), (bool, np.bool_)), "True or False")
    check_parameter(e, "tol", is_real(e.tol) and 0 <= e.tol < 1, "a number in [0, 1) (0: the default of the dtype)")
    power = is_word(e.iterated_power, "auto") or (is_integer(e.iterated_power) and e.iterated_power >= 0)
    check_parameter(e, "iterated_power", power, '"auto" or an integer >= 0')
    check_parameter(e, "n_oversamples", is_integer(e.n_oversamples) and e.n_oversamples >= 1, "an integer >= 1")
    normalizer = is_word(e.power_iteration_normalizer, *NORMALIZERS)
    check_parameter(e, "power_iteration_normalizer", normalizer, f"one of {', '.join(map(repr, NORMALIZERS))}")
    jobs = e.n_jobs is None or (is_integer(e.n_jobs) and e.n_jobs != 0)
    check_parameter(e, "n_jobs", jobs, "None or an integer other than 0")
    check_checkpoint(e)
    check_parameter(e, "verbose", callable(e.verbose) or is_switch(e.verbose), "an integer >= 0 or a callable")


def scale_from(scale: Any, Z: Any) -> np.ndarray | None:
    """What the features are divided by, on the host, shape (d,); None for nothing.

    Raises
    ------
    InvalidParameterError
        Not True, False or positive numbers, one a feature.
    """
    if isinstance(scale, (bool, np.bool_)):
        return _deviations(Z) if scale else None
    d = Z.shape[1]
    try:
        given = to_host(scale) if hasattr(scale, "shape") else np.asarray(scale, dtype=np.float64)
        given = given.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidParameterError(f"scale={scale!r} is not allowed; give True, False or {d} numbers > 0.") from error
    if given.shape != (d,):
        raise InvalidParameterError(f"scale has shape {given.shape}; the data have {d} features, so it must be ({d},).")
    bad = np.flatnonzero(~(np.isfinite(given) & (given > 0)))
    if bad.size:
        raise InvalidParameterError(f"scale must be positive and finite; scale[{bad[0]}] is {given[bad[0]]!r}.")
    return given


def _deviations(Z: Any) -> np.ndarray:
    """Return standard deviations with n - 1 degrees of freedom; 1 for columns that are constant but for rounding."""
    Z.measure()
    deviations = np.sqrt(Z.squares / max(Z.shape[0] - 1, 1)) / Z.unit
    rounding = ROUNDING * epsilon(Z.like) * np.abs(to_host(Z.mean).astype(np.float64))
    return np.where(deviations <= rounding, 1.0, deviations)
