"""Checks of the arguments of functions and fit results that users call without an estimator."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpukpca._rules import is_integer
from gpukpca._typing import Array
from gpukpca.algorithms.progress import Listener, listener_from
from gpukpca.backend.device import describe_device
from gpukpca.backend.namespace import cast, imported, is_sparse, library_of, move, same_place
from gpukpca.data.batches import is_stream
from gpukpca.data.finite import check_finite
from gpukpca.data.frequencies import CountedRows, checked_frequencies, counted_rows
from gpukpca.data.gate import as_rows
from gpukpca.data.rows import Rows
from gpukpca.exceptions import DeviceMismatchError, InvalidParameterError
from gpukpca.kernels import Precomputed


class ComponentsResult:
    """A result with as many components as its rows of `components` (…, p, d), computed where these are."""

    components: Array

    @property
    def n_components(self) -> int:
        """Return the number p of components."""
        return int(self.components.shape[-2])

    @property
    def device(self) -> str:
        """Return the name of the device of the computation."""
        return describe_device(self.components)


def check_place(name: str, place: Array, other: str, expected: Array) -> None:
    """Raise `DeviceMismatchError` where a batch is of another library or device than a reference array."""
    place, expected = imported(place), imported(expected)
    if not same_place(place, expected):
        raise DeviceMismatchError(
            f"{name} is of {library_of(place)} on {describe_device(place)}, and {other} is of {library_of(expected)} "
            f"on {describe_device(expected)}. Move all batches to one library and device."
        )


def counted_for(kernel: Any, X: Any, sample_weight: Any, is_batch: bool = False) -> CountedRows:
    """Return the rows of a fit that count; raise for a kernel matrix, whose columns belong to all rows."""
    counted = counted_rows(X, sample_weight, is_batch)
    if counted.numbers is not None and isinstance(kernel, Precomputed):
        raise InvalidParameterError(
            "sample_weight has entries that are 0, whose rows a fit of kernel PCA cannot leave out of a kernel matrix: "
            "pass K[keep][:, keep], a NumPy array, and sample_weight[keep].",
            argument="sample_weight",
        )
    return counted


def weights_of_batches(X: Any, sample_weight: Any, batches: Rows, is_batch: bool = False) -> np.ndarray | None:
    """Return the weights (n,) of rows that are read batch by batch, checked; raise for an iterable of batches."""
    check_no_weights(X, sample_weight)
    return None if sample_weight is None else checked_frequencies(sample_weight, sum(batches.counted()), is_batch)


def check_no_weights(X: Any, sample_weight: Any) -> None:
    """Raise `InvalidParameterError` where weights come with an iterable of batches, none of which is read."""
    if sample_weight is not None and is_stream(X):
        raise InvalidParameterError(
            "sample_weight is not taken with batches; call partial_fit(batch, sample_weight=w) for each.",
            argument="sample_weight",
        )


def new_rows(X_new: Any, d: int) -> Array:
    """Return new rows (m, d), checked, where they are; see `as_rows`."""
    rows = as_rows(X_new, name="X_new", finite=True)
    if int(rows.shape[1]) != d:
        raise InvalidParameterError(f"X_new has {int(rows.shape[1])} feature(s), and the fit has {d}.")
    return rows


def new_scores(Z: Any, p: int, like: Array, least: int = 0) -> Array:
    """Return scores (m, p) in the library, dtype and device of `like`.

    Raise where they are not dense, finite and p, or fewer than `least` rows.
    """
    if is_sparse(Z):
        raise TypeError("sparse scores are not supported; pass Z.toarray().")
    scores = as_rows(Z, shape=f"(m, {p})")
    if int(scores.shape[1]) != p or int(scores.shape[0]) < least:
        raise InvalidParameterError(
            f"expected scores of shape (m, n_components) with m >= {least} and n_components = {p}; got shape "
            f"{tuple(scores.shape)}. Pass all {p} columns, as transform returns them."
        )
    scores = cast(move(scores, like), like.dtype)
    check_finite(scores, "Every score must be finite.", "The array of scores")
    return scores


def check_type(name: str, value: Any, cls: type) -> None:
    """Raise `InvalidParameterError` where an argument is no object of a class."""
    if not isinstance(value, cls):
        called = f"; {cls.__name__}() makes one" if value is cls else ""
        raise InvalidParameterError(f"{name}={value!r} is not allowed; give an object of {cls.__name__}{called}.")


def checked_listener(progress: Any) -> Listener | None:
    """Return the listener of a fit; raise `InvalidParameterError` where `progress` is neither None nor callable."""
    if progress is not None and not callable(progress):
        raise InvalidParameterError(f"progress={progress!r} is not allowed; give None or a callable.")
    return listener_from(progress)


def check_keep(name: str, keep: Any, limit: int) -> None:
    """Raise `InvalidParameterError` where a fit of `limit` components cannot keep so many."""
    if not is_integer(keep) or not 1 <= keep <= limit:
        raise InvalidParameterError(
            f"{name}={keep!r} is not allowed; it must be an integer from 1 to {limit}, the components of the fit."
        )
