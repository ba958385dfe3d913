"""The errors and warnings of the library, each with one meaning.

An error says what is wrong, the value received, what is allowed and what to do:

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
    """A parameter has a value or a type that is not allowed.

    It is a ValueError and a TypeError. The message names the parameter, the value and what is allowed. A fit also
    raises it for data whose numbers leave the range of their dtype: divide them by a constant, or pass float64.
    """


class IndefiniteKernelError(ValueError):
    """A kernel matrix has significant negative eigenvalues where none are allowed.

    Raised where they are among the components, where a share of the variance needs all eigenvalues, and by Nyström for
    kernels that are not known to be semidefinite. Request fewer components or use another kernel. A matrix of distances
    D is no kernel matrix: pass -D²/2. A class of your own that is semidefinite sets `positive_definite`.
    """


class DeviceMismatchError(ValueError):
    """Two arrays that must meet live on different devices or in different libraries.

    Raised by functions and by batches of one fit; `transform` of a fitted model moves its input. Move the arrays to one
    place with `gpukpca.backend.to_device` or `to_host`.
    """


class DeviceUnavailableError(RuntimeError):
    """The requested device is missing or cannot compute.

    Raised for ``device="cuda"`` without CuPy, a driver or a working card, and after a fork. The message gives the
    reason, and ``gpukpca info`` lists what works. ``device="auto"`` computes on the CPU instead.
    """


class DeviceLostError(RuntimeError):
    """A device failed, and no later call in this process can succeed: restart the process.

    Raised after an illegal address, a launch failure or an error of the memory (ECC), and then by every call that needs
    the device. A fit with a `checkpoint` resumes in the new process.
    """


class MemoryBudgetError(MemoryError):
    """The work does not fit into the memory that is free or allowed.

    Raised before anything is allocated, or after attempts on a device with less memory than planned. The message gives
    the bytes and what takes fewer, such as float32 data, fewer components or Nyström.
    """


class ModelFormatError(ValueError):
    """A file is no model file, is damaged, or has a format that this version does not read.

    Raised by `gpukpca.load`. The message says what does not fit. Copy the file again, or install the version that it
    names.
    """


class CheckpointError(ValueError):
    """A checkpoint belongs to another fit, or all of its files are damaged.

    Raised at the start of a fit. The message names the first difference: data, kernel, number of the version. Choose
    another folder, or delete its files ``state-*.safetensors`` to start again.
    """


class ConvergenceError(RuntimeError):
    """No eigenpair reached a useful accuracy.

    Raised after all passes, by a solver that fails, and where products with the matrix overflow. Allow more passes or a
    larger `tol`, or take the dense solver; scale data that overflow.

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
    """A Dask cluster has no workers, no scheduler, or lost data that cannot be recomputed.

    Raised after a wait of a minute by default (``gpukpca.timeout`` of Dask's configuration), for workers of another
    version, and where workers ended in turn, mostly for lack of memory. The message says what to start or to change.
    """


class ConvergenceWarning(UserWarning):
    """Some eigenpairs have residuals above the tolerance.

    Given where passes, steps of EM or iterations of pre-images ended early, and where Nyström's certificate exceeds
    `tol`. The numbers are usable, to the accuracy that the message gives. Allow more passes or iterations, a larger
    rank or a larger `tol`. Estimators warn with a class that is also scikit-learn's
    `sklearn.exceptions.ConvergenceWarning`.
    """


class CheckpointWarning(UserWarning):
    """A checkpoint could not be written, or a file was damaged or of another fit; the fit continues.

    After a failed write the checkpoint before it is intact, and the next pass tries again: free some space. Where two
    fits write to one folder, give one of them another folder.
    """


class RankWarning(UserWarning):
    """Fewer components than requested carry variance.

    Given where samples, features or clusters are too few or alike for the number of components. The others have
    eigenvalue 0 and zero scores. Request fewer components, or look for constant and repeated rows and columns.
    """


class IndefiniteKernelWarning(UserWarning):
    """A kernel matrix is not positive semidefinite, and a reported number depends on it.

    Shares of the variance are relative to a trace that negative eigenvalues reduce, or negative values were set to 0.
    The positive eigenvalues are right. Use a kernel that is semidefinite, or read the eigenvalues in place of the
    shares.
    """


class DeviceFallbackWarning(UserWarning):
    """The work was done on another device or by another method than requested, because a device cannot do it.

    The result is right; it took longer. The message gives the reason, once for each cause, and `fallbacks_` lists what
    failed. Repair the installation, or request what works.
    """


class PrecisionWarning(UserWarning):
    """Digits were lost before the computation, or the result is less accurate than its digits suggest.

    Causes: float32 that cannot resolve the components, a tolerance below rounding, equal eigenvalues at the last
    component, a gamma so large that K is nearly the identity, new rows far from all training rows, input types that
    float64 cannot hold. The message names one and its remedy: pass float64, subtract the feature means, change gamma or
    the number of components.
    """


class VersionWarning(UserWarning):
    """A pickle was written by another version of the library, whose attributes may have another meaning.

    Fit again, or keep models as files: `gpukpca.load` checks what it reads.
    """


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
