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

The text of a warning states the cause, and is the same for every fit. The numbers are in `values`.

>>> with warnings.catch_warnings(record=True) as caught:
...     warnings.simplefilter("always")
...     model = KernelPCA(9).fit(np.eye(3))
>>> print(caught[0].message)
n_components is more than the number of samples; one component for each sample is computed.
>>> caught[0].message.values
{'n_components': 9, 'n_samples': 3}
"""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from types import FrameType
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
    "GpuKPCAWarning",
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
    raises it for data whose numbers leave the range of their dtype: divide them by a constant, or pass float64. So does
    every function for rows of a set of zarr, HDF5 or the like that cannot be read: the message names the rows, and the
    error of the other library is the cause (`__cause__`).

    Attributes
    ----------
    argument : str or None
        The name of the parameter, such as "n_components". None where the error is not of one parameter.

    See Also
    --------
    MemoryBudgetError : The parameters are allowed, and the work does not fit into the memory.

    Examples
    --------
    >>> from gpukpca import PCA
    >>> from gpukpca.exceptions import InvalidParameterError
    >>> try:
    ...     PCA(tol=-1.0).fit([[1.0, 2.0], [3.0, 5.0]])
    ... except InvalidParameterError as error:
    ...     print(error.argument)
    tol
    """

    def __init__(self, *args: object, argument: str | None = None) -> None:
        # The value of an array, a frame or a search fills several lines, and a message is one.
        super().__init__(*(" ".join(one.split()) if isinstance(one, str) and "\n" in one else one for one in args))
        self.argument = argument


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


class GpuKPCAWarning(UserWarning):
    """The base class of the warnings of this library: a cause in words, and the numbers of one fit apart from them.

    The text depends on the cause alone. The fits of a search thus share one text, which Python shows once for a line
    of code, and the library once for a line that starts them through joblib. The numbers are attributes: of the
    warning, for handlers and for `warnings.catch_warnings`, and of the fitted estimator, where the text names one.

    Attributes
    ----------
    values : dict of str to Any
        The numbers, by name: integers, floats, texts and lists of them. `details` writes them in a line. They are a
        note of the exception (`__notes__`) where a filter turns the warning into an error.

    Examples
    --------
    >>> import warnings
    >>> import numpy as np
    >>> from gpukpca import PCA
    >>> from gpukpca.exceptions import GpuKPCAWarning
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always", GpuKPCAWarning)
    ...     model = PCA(3).fit(np.outer(np.arange(5.0), [1.0, 2.0, 3.0]))
    >>> caught[0].message.values["nonzero"]
    1
    """

    values: dict[str, Any]

    def __init__(self, message: str = "", **values: Any) -> None:
        super().__init__(message)
        self.values = values

    @property
    def details(self) -> str:
        """Return the values in one line, as "components=[3, 4], tol=1e-05"."""
        return ", ".join(f"{name}={_written(value)}" for name, value in self.values.items())


MOST_WRITTEN = 10


def _written(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    if not isinstance(value, (list, tuple)):
        return str(value)
    return f"[{', '.join(map(_written, value[:MOST_WRITTEN]))}{', ...' if len(value) > MOST_WRITTEN else ''}]"


class ConvergenceWarning(GpuKPCAWarning):
    """Some eigenpairs have residuals above the tolerance.

    Given where passes, steps of EM or iterations of pre-images ended early, and where Nyström's certificate exceeds
    `tol`. The numbers are usable, to the accuracy that `values` gives. Allow more passes or iterations, a larger
    rank or a larger `tol`. Estimators warn with a class that is also scikit-learn's
    `sklearn.exceptions.ConvergenceWarning`.
    """


class CheckpointWarning(GpuKPCAWarning):
    """A checkpoint could not be written, or a file was damaged or of another fit; the fit continues.

    After a failed write the checkpoint before it is intact, and the next pass tries again: free some space. Where two
    fits write to one folder, give one of them another folder.
    """


class RankWarning(GpuKPCAWarning):
    """Fewer components than requested carry variance.

    Given where samples, features or clusters are too few or alike for the number of components. The others have
    eigenvalue 0 and zero scores. Request fewer components, or look for constant and repeated rows and columns.
    """


class IndefiniteKernelWarning(GpuKPCAWarning):
    """A kernel matrix is not positive semidefinite, and a reported number depends on it.

    Shares of the variance are relative to a trace that negative eigenvalues reduce, or negative values were set to 0.
    The positive eigenvalues are right. Use a kernel that is semidefinite, or read the eigenvalues in place of the
    shares.
    """


class DeviceFallbackWarning(GpuKPCAWarning):
    """The work was done on another device or by another method than requested, because a device cannot do it.

    The result is right; it took longer. `fallbacks_` lists what failed and why. Repair the installation, or request
    what works.
    """


class PrecisionWarning(GpuKPCAWarning):
    """Digits were lost before the computation, or the result is less accurate than its digits suggest.

    Causes: float32 that cannot resolve the components, rounding above the `tol` of the fit, equal eigenvalues at the
    last component, a gamma so large that K is nearly the identity, new rows far from all training rows, a stream that
    leaves its landmarks, input types that float64 cannot hold. The message names one and its remedy: pass float64,
    subtract the feature means, change gamma or the number of components.
    """


class VersionWarning(GpuKPCAWarning):
    """A pickle was written by another version of the library, whose attributes may have another meaning.

    Fit again, or keep models as files: `gpukpca.load` checks what it reads.
    """


# category -> the subclass that is raised in its place.
_subclasses: dict[type[GpuKPCAWarning], type[GpuKPCAWarning]] = {}
# The category that this thread holds back, and the list that takes its warnings: `warnings.catch_warnings` acts on all
# threads of a process, and makes Python forget at which lines it has warned.
_held: ContextVar[tuple[type[GpuKPCAWarning], list[GpuKPCAWarning]] | None] = ContextVar("_held", default=None)
# The warnings of earlier batches, by class and text, which this thread does not give again.
_given: ContextVar[set[Any] | None] = ContextVar("_given", default=None)
# What scikit-learn warns of for every batch.
NAMES = r"X (has|does not have valid) feature names"
# A warning comes at the first line outside of these: the line of the user.
LIBRARIES = ("gpukpca", "sklearn", "joblib")
# Actions of filters that show a text once for a line, module or process.
ONCE = ("default", "module", "once")


def raise_as(category: type[GpuKPCAWarning], subclass: type[GpuKPCAWarning]) -> None:
    """Let `warn_user` raise a subclass, so that filters of a library apply that this room cannot import."""
    _subclasses[category] = subclass


def warn_user(message: str, category: type[GpuKPCAWarning], **values: Any) -> None:
    """Warn at the line of the user. The message depends on the cause alone; numbers are `values` of the warning."""
    warning = _subclasses.get(category, category)(message, **values)
    if values:
        warning.add_note(warning.details)
    warn_again(warning)


def warn_again(warning: Warning) -> None:
    """Warn at the line of the user, also of what `held_warnings` kept."""
    if (holding := _held.get()) is not None and isinstance(warning, holding[0]):
        holding[1].append(warning)
        return
    if (given := _given.get()) is not None:
        if (key := (type(warning), str(warning))) in given:
            return
        given.add(key)
    level, frame, repeats = 1, sys._getframe(), False
    while frame.f_back is not None and (package := _module(frame).partition(".")[0]) in LIBRARIES:
        level, frame, repeats = level + 1, frame.f_back, repeats or package == "joblib"
    # scikit-learn changes the filters for every task of joblib, and Python then forgets at which lines it has warned.
    if repeats and _action(warning) in ONCE:
        shown = (str(warning), type(warning), frame.f_code.co_filename, frame.f_lineno)
        if shown in state.warned:
            return
        state.warned.add(shown)
    warnings.warn(warning, stacklevel=level)


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _action(warning: Warning) -> str:
    """Return what the filters of Python do with a warning in all modules: "default", "always", "error", ..."""
    for action, text, category, where, line in warnings.filters:
        is_everywhere = where is None and not line
        if is_everywhere and isinstance(warning, category) and (text is None or text.match(str(warning))):
            return action
    return "default"


def warn_once(message: str, category: type[GpuKPCAWarning]) -> None:
    """Warn as `warn_user`, once in a process for every message."""
    if message not in state.warned:
        state.warned.add(message)
        warn_user(message, category)


@contextmanager
def held_warnings(category: type[GpuKPCAWarning] = GpuKPCAWarning) -> Iterator[list[GpuKPCAWarning]]:
    """Keep the warnings of a category that this thread gives in a list, in place of warning."""
    held: list[GpuKPCAWarning] = []
    token = _held.set((category, held))
    try:
        yield held
    finally:
        _held.reset(token)


@contextmanager
def warned_once(given: set[Any]) -> Iterator[None]:
    """Give no warning of a batch that one before gave; `given` is a set for all batches, empty before the first."""
    token = _given.set(given)
    try:
        with warnings.catch_warnings() if given else nullcontext():
            if given:
                warnings.filterwarnings("ignore", NAMES, UserWarning)
            given.add(None)
            yield
    finally:
        _given.reset(token)
