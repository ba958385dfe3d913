"""The errors and warnings of the library, each with one meaning.

Only `sklearn.exceptions.NotFittedError` is not here. An error says what is wrong, the value received, what is allowed
and what to do.

Examples
--------
>>> import numpy as np
>>> from gpukpca import KernelPCA
>>> from gpukpca.exceptions import InvalidParameterError
>>> try:
...     KernelPCA(0).fit(np.eye(3))
... except InvalidParameterError as error:
...     print(error)  # doctest: +NORMALIZE_WHITESPACE
n_components=0 is not allowed; give None (all), an integer >= 1, or a fraction of the variance strictly between 0
and 1.

A filter turns a warning into an error, or hides it.

>>> import warnings
>>> from gpukpca.exceptions import RankWarning
>>> with warnings.catch_warnings():
...     warnings.simplefilter("ignore", RankWarning)
...     model = KernelPCA(9).fit(np.eye(3))
>>> model.eigenvalues_.shape
(3,)
"""

import sys
import warnings
from typing import Any

from gpukpca._process import state

__all__ = [
    "CheckpointError",
    "CheckpointWarning",
    "ClusterError",
    "ConvergenceError",
    "ConvergenceWarning",
    "DeviceFallbackWarning",
    "DeviceLostError",
    "DeviceMismatchError",
    "DeviceUnavailableError",
    "IndefiniteKernelError",
    "IndefiniteKernelWarning",
    "InvalidParameterError",
    "MemoryBudgetError",
    "ModelFormatError",
    "PrecisionWarning",
    "RankWarning",
    "VersionWarning",
]


class InvalidParameterError(ValueError, TypeError):
    """A parameter has a value or a type that is not allowed."""


class IndefiniteKernelError(ValueError):
    """A kernel matrix has significant negative eigenvalues where none are allowed."""


class DeviceMismatchError(ValueError):
    """Two arrays that must meet live on different devices or in different libraries."""


class DeviceUnavailableError(RuntimeError):
    """The requested device is missing or cannot compute."""


class DeviceLostError(RuntimeError):
    """A device failed, and no later call in this process can succeed: restart the process."""


class MemoryBudgetError(MemoryError):
    """The work does not fit into the memory that is free or allowed.

    Raised before anything is allocated, or after attempts on a device with less memory than planned.
    """


class ModelFormatError(ValueError):
    """A file is no model file, is damaged, or was written by a newer version."""


class CheckpointError(ValueError):
    """A checkpoint belongs to another fit, or all of its files are damaged."""


class ConvergenceError(RuntimeError):
    """No eigenpair reached a useful accuracy.

    Attributes
    ----------
    partial_result : gpukpca.eigen.EigenResult or None
        The eigenpairs so far with their residuals: of the centered kernel matrix, or of PCA's ZᵀZ with Z the centered
        data. None where there are none, as after an overflow.

    See Also
    --------
    ConvergenceWarning : Some pairs have a residual above the tolerance.

    Examples
    --------
    >>> import numpy as np
    >>> from gpukpca.eigen import BlockKrylov, top_eigh
    >>> from gpukpca.exceptions import ConvergenceError
    >>> from gpukpca.gram import DenseGram
    >>> try:
    ...     top_eigh(DenseGram(np.full((500, 500), np.inf)), 2, BlockKrylov(), rng=0)
    ... except ConvergenceError as error:
    ...     print(error.partial_result)
    None
    """

    def __init__(self, message: str = "", partial_result: Any = None) -> None:
        super().__init__(message)
        self.partial_result = partial_result


class ClusterError(RuntimeError):
    """A Dask cluster has no workers, no scheduler, or lost data that cannot be recomputed."""


class ConvergenceWarning(UserWarning):
    """Some eigenpairs have residuals above the tolerance.

    Estimators warn with a class that is also scikit-learn's `sklearn.exceptions.ConvergenceWarning`.
    """


class CheckpointWarning(UserWarning):
    """A checkpoint could not be written, or a file was damaged or of another fit; the fit continues."""


class RankWarning(UserWarning):
    """Fewer components than requested carry variance."""


class IndefiniteKernelWarning(UserWarning):
    """A kernel matrix is not positive semidefinite, and a reported number depends on it."""


class DeviceFallbackWarning(UserWarning):
    """The work was done on another device or by another method than requested, because a device cannot do it."""


class PrecisionWarning(UserWarning):
    """Digits were lost before the computation, or the result is less accurate than its digits suggest."""


class VersionWarning(UserWarning):
    """A pickle was written by another version of the library, whose attributes may have another meaning."""


# category -> the subclass that is raised in its place.
_subclasses: dict[type[Warning], type[Warning]] = {}


def raise_as(category: type[Warning], subclass: type[Warning]) -> None:
    """Let `warn_user` raise a subclass, so that filters of a library apply that this room cannot import."""
    _subclasses[category] = subclass


def warn_user(message: str, category: type[Warning]) -> None:
    """Warn at the first line outside of this library and of scikit-learn's wrappers: the line of the user."""
    category, level, frame = _subclasses.get(category, category), 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in ("gpukpca", "sklearn"):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def warn_once(message: str, category: type[Warning]) -> None:
    """Warn as `warn_user`, once in a process for every message."""
    if message not in state.warned:
        state.warned.add(message)
        warn_user(message, category)
