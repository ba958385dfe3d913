"""The resources of a fit, and attempts that run out of device memory: repeated, then with half of it, then an error.

Errors about host memory are not caught: the system promised it, or a function of the user raised them.
"""

from __future__ import annotations

import math
import re
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from numbers import Integral
from typing import Any, TypeVar

from gpukpca._formatting import format_allowance, format_need
from gpukpca._rules import FLAG, NONE, NOT_ZERO, check_attributes, integer, one_of
from gpukpca._typing import Array
from gpukpca.algorithms.fields import field_of, record, unchecked
from gpukpca.algorithms.inputs import check_type
from gpukpca.backend import blocking
from gpukpca.backend.device import (
    describe_device,
    free_bytes,
    is_on_gpu,
    is_out_of_device_memory,
    release_unused,
)
from gpukpca.backend.limits import SHARE_OF_FREE
from gpukpca.backend.namespace import item_size, library_of, same_place
from gpukpca.data.batches import is_set
from gpukpca.data.gate import as_rows
from gpukpca.data.place import Placement, placement_for
from gpukpca.data.reading import rows_of_set
from gpukpca.data.rows import Rows
from gpukpca.data.slicing import place_of
from gpukpca.exceptions import DeviceLostError, DeviceMismatchError, InvalidParameterError, MemoryBudgetError

# Bytes by the names of their units, in lower case.
UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
UNITS |= {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}

RULES = {"limit": one_of(NONE, integer(at_least=0)), "n_jobs": one_of(NONE, NOT_ZERO), "is_limited": FLAG}

Result = TypeVar("Result")
# What a user may change: series of advice with the bytes needed then, the smallest change first.
Changes = Iterable[Iterable[tuple[str, int]]]

# Of the bytes allowed: as planned; once more, as another program may have interfered; a smaller route.
SHARES = (1.0, 1.0, 0.5)
# After these errors the variables of the failed frames are of no use, and may hold most of the memory.
ENDS_WITHOUT_LOCALS = (MemoryError, KeyboardInterrupt, DeviceLostError)


@record(kw_only=True, eq=False)
class Resources:
    """The place, the memory and the threads of a fit; `Resources.for_data` makes them.

    See Also
    --------
    fit_kernel_pca, fit_pca : Take it as `resources`.

    Examples
    --------
    >>> import numpy as np
    >>> from gpukpca.algorithms import Resources, fit_pca
    >>> X = np.random.default_rng(0).standard_normal((100, 5))
    >>> resources = Resources.for_data(X, memory_limit="100MiB", n_jobs=1)
    >>> resources.limit
    104857600
    >>> fit_pca(X, 2, resources=resources).plan.available_bytes <= resources.limit
    True
    """

    place: Placement = field_of("", "of the computation and of the data")
    limit: int | None = field_of("", "bytes that may be allocated; None: 85 % of what is free, read for large fits")
    n_jobs: int | None = field_of(
        "", "threads on the host (NumPy); None: as BLAS, joblib and the batch system allow, -1: all CPUs", default=None
    )
    is_limited: bool = field_of(
        "", "whether the user set the limit; a fit may then use all of it, else it leaves more to others", default=False
    )

    @property
    def limit_set(self) -> int | None:
        """Return the limit that the user set; None without one."""
        return self.limit if self.is_limited else None

    def __post_init__(self) -> None:
        check_type("place", self.place, Placement)
        check_attributes(self, RULES.items())

    @classmethod
    def for_data(
        cls,
        X: Any,
        *,
        device: str | Sequence[str] | None = None,
        memory_limit: int | str | None = None,
        n_jobs: int | None = None,
    ) -> Resources:
        """Return the resources of a fit of X.

        Parameters
        ----------
        X : array or CSR matrix, shape (n, d)
        device, memory_limit, n_jobs : as in `gpukpca.KernelPCA`

        Returns
        -------
        Resources

        Raises
        ------
        InvalidParameterError
            A parameter out of range, or X is no array.
        DeviceUnavailableError
            The device does not work.
        """
        RULES["n_jobs"].check_argument("n_jobs", n_jobs)
        if not isinstance(X, Rows):
            X = as_rows(rows_of_set(X, 0, 1) if is_set(X) else X, missing=True)
        return cls.at(placement_for(device, X), memory_limit, n_jobs)

    @classmethod
    def at(cls, place: Placement, memory_limit: int | str | None, n_jobs: int | None) -> Resources:
        """Return the resources of a fit at a place; the other arguments are those of the estimators."""
        return cls.within(MemoryBudget(memory_limit, place.work), place, n_jobs)

    @classmethod
    def within(cls, budget: MemoryBudget, place: Placement, n_jobs: int | None) -> Resources:
        """Return the resources of an attempt at a place."""
        limit = min(map(budget.limit, (*place.others, place.work)), key=lambda size: size or 0)
        return unchecked(cls, place=place, limit=limit, n_jobs=n_jobs, is_limited=budget.memory_limit is not None)

    @classmethod
    def for_fit(cls, resources: Resources | None, X: Any) -> Resources:
        """Return the resources of a fit of checked rows X: the given ones in the dtype of X, or the default."""
        if resources is None:
            return cls.for_data(X)
        check_type("resources", resources, cls)
        origin, like = resources.place.origin, place_of(X)
        if not same_place(origin, like):
            raise DeviceMismatchError(
                f"resources are for data of {library_of(origin)} on {describe_device(origin)}, and X is of "
                f"{library_of(like)} on {describe_device(like)}. Make them with Resources.for_data(X)."
            )
        return replace(resources, place=resources.place.in_dtype(X.dtype))

    @cached_property
    def _most(self) -> int:
        return allowed_bytes(None, self.place.work)

    def allowed(self, predicted: float = math.inf) -> int:
        """Return the bytes that may be allocated where so many are predicted: few where free memory is not checked."""
        if self.limit is not None:
            return self.limit
        return blocking.UNREAD_BYTES if predicted <= blocking.UNREAD_BYTES else self._most

    def check(self, needed: int, what: str, changes: Changes = (), parts: str = "") -> None:
        """Raise `MemoryBudgetError` where more bytes are needed than are allowed, with the changes that fit."""
        if needed > (limit := self.allowed(needed)):
            fitting = (next((text for text, less in series if less <= limit), "") for series in changes)
            advice = "".join(f"{text}, " for text in fitting if text)
            raise MemoryBudgetError(
                f"{what} {format_need(needed)}{parts}, and {format_allowance(limit)} are allowed or free. "
                f"Try {advice}{'or ' * bool(advice)}a larger memory_limit."
            )

    def check_copy(self, X: Any) -> None:
        """Raise `MemoryBudgetError` where X is copied to the place of the computation and does not fit there."""
        if self.place.moved and not isinstance(X, Rows):
            needed, what = math.prod(X.shape) * 4, f"the copy of the data on {describe_device(self.place.work)} takes"
            self.check(needed * item_size(X.dtype) // 4, what, [[("device=None", 0)], [("float32 data", needed)]])


class MemoryBudget:
    """The bytes that an attempt may allocate, and the failures of earlier attempts.

    Attributes
    ----------
    memory_limit : None, int or str
        The parameter of the estimator.
    failures : tuple of str
    like : array
        Where the fit computes, once that is known; the data before.
    share : float
        Of the bytes allowed, after a failure.
    """

    def __init__(self, memory_limit: Any, like: Any) -> None:
        self.failures: tuple[str, ...] = ()
        self.memory_limit: int | str | None = memory_limit
        self.like: Array = like
        self.share: float = SHARES[0]
        self._allowed = 0

    def limit(self, like: Array) -> int | None:
        """Return the bytes where `like` lives, None for what is free on the host; see `Resources.allowed`."""
        self.like = like
        if self.memory_limit is None and not is_on_gpu(like):
            return None
        self._allowed = int(self.share * allowed_bytes(self.memory_limit, like))
        return self._allowed

    def add_failure(self, error: BaseException) -> None:
        """Note a failure, and release all that it holds."""
        within = f" within {format_allowance(self._allowed)}" if self._allowed else ""
        cause = (str(error).splitlines() or ["no reason given"])[0]
        self.failures = (*self.failures, f"memory ran out{within} ({cause})")
        clear_traceback_frames(error)
        release_unused(self.like)

    def error(self) -> MemoryBudgetError:
        """Return the error after the last attempt."""
        return MemoryBudgetError(
            f"{'; then '.join(self.failures)}. {format_allowance(free_bytes(self.like))} are free now. Something else "
            "takes the memory, or it is in pieces: end other programs, or set a smaller memory_limit."
        )


def retry_on_oom(attempt: Callable[[], Result], budget: MemoryBudget, once: bool = False) -> Result:
    """Return the result of the first attempt that does not run out of device memory; else raise `MemoryBudgetError`.

    An attempt that is made `once` uses up what it reads.
    """
    for share in SHARES:
        budget.share = share
        try:
            return attempt()
        except MemoryBudgetError:
            if not budget.failures:
                raise
            break
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_device_memory(error, budget.like):
                raise
            budget.add_failure(error)
            if once:
                break
    raise budget.error()


def memory_text(predicted: int, allowed: int) -> str:
    """Return what a plan says about its memory."""
    unread = " (free memory not checked)" if allowed == blocking.UNREAD_BYTES else ""
    need, limit = format_need(predicted), format_allowance(allowed)
    if predicted <= allowed and format_allowance(predicted) == limit:  # rounded apart, they would read as a breach
        limit = need
    return f"{need} predicted, {limit} allowed{unread}"


def clear_traceback_frames(error: BaseException) -> None:
    """Drop the variables in the tracebacks of an error, which keep their arrays alive."""
    cause: BaseException | None = error
    while cause is not None:
        traceback.clear_frames(cause.__traceback__)
        cause = cause.__cause__ or cause.__context__


def allowed_bytes(memory_limit: Any, like: Array) -> int:
    """Return the bytes that a fit may allocate: those of a number or a string, or most of what is free for None."""
    return int(SHARE_OF_FREE * free_bytes(like)) if memory_limit is None else parsed_bytes(memory_limit)


def parsed_bytes(size: Any) -> int:
    """Return the bytes of an integer or of a string such as "4GiB", "500 MB" or "2g"."""
    if isinstance(size, str):
        match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([a-zA-Z]*)\s*", size)
        if match and match.group(2).lower() in UNITS:
            number = float(match.group(1)) * UNITS[match.group(2).lower()]
            size = int(number) if math.isfinite(number) else size
    if isinstance(size, float) and size.is_integer():
        size = int(size)
    if isinstance(size, bool) or not isinstance(size, Integral) or size <= 0:
        raise InvalidParameterError(
            f"memory_limit={size!r} is not allowed; give None, a number of bytes, or a string such as '4GiB'.",
            argument="memory_limit",
        )
    return int(size)
