"""From the parameters of PCA to checked numbers: components, scale."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpukpca.algorithms.pca.settings import PCASettings
from gpukpca.backend.device import parsed_device
from gpukpca.decomposition.choices import check_checkpoint, check_parameter, is_integer, is_real, is_switch, is_word
from gpukpca.distributed import client_for
from gpukpca.exceptions import InvalidParameterError
from gpukpca.kernels.validation import closest

SVD_SOLVERS = ("auto", "covariance_eigh", "dual", "full", "randomized", "arpack")
NORMALIZERS = ("auto", "QR", "LU", "none")
# scikit-learn's default, which stands for the solver's own.
DEFAULT_OVERSAMPLES = 10


def settings_of(estimator: Any) -> PCASettings:
    """Return the checked parameters of a PCA that the algorithm needs."""
    e = estimator
    return PCASettings(
        svd_solver=e.svd_solver,
        passes=None if e.iterated_power == "auto" else int(e.iterated_power) + 1,
        oversampling=None if e.n_oversamples == DEFAULT_OVERSAMPLES else int(e.n_oversamples),
        tol=float(e.tol),
        scale=e.scale,
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
