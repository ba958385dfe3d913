"""Pre-images of scores and new points, and distances from the components, a panel of rows at a time.

Results live in the library and on the device of the data of the caller, `like`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, TypeVar

import numpy as np

from gpukpca._typing import Array
from gpukpca.algorithms.fields import field_of, record
from gpukpca.algorithms.kernel_pca.feature_space import FeatureSpace
from gpukpca.backend import blocking
from gpukpca.backend.device import is_on_gpu
from gpukpca.backend.namespace import cast, concat, dtype_name
from gpukpca.backend.parallel import map_in_order, row_slices, worker_count
from gpukpca.data.finite import check_finite
from gpukpca.data.place import panels_of, rows_at, to_caller
from gpukpca.data.slicing import dense_rows, take_rows
from gpukpca.data.statistics import square_sums
from gpukpca.exceptions import ConvergenceWarning, warn_user


@record()
class PreimageInfo:
    """Information about every pre-image; arrays on the host."""

    converged: np.ndarray = field_of("m", "always True for methods that do not iterate")
    n_iter: np.ndarray = field_of("m", "iterations; 0 for methods that do not iterate")
    restarted: np.ndarray = field_of("m", "whether the nearest training point replaced a start without weights")

    @classmethod
    def direct(cls, count: int) -> PreimageInfo:
        """Return the information about points computed without iterations."""
        return cls(np.ones(count, dtype=bool), np.zeros(count, dtype=np.int64), np.zeros(count, dtype=bool))

    @classmethod
    def concatenate(cls, parts: Sequence[PreimageInfo]) -> PreimageInfo:
        """Return the information about all points, in order."""
        return cls(*map(np.concatenate, zip(*(vars(part).values() for part in parts), strict=True)))


Result = TypeVar("Result")
# Points (m, d) of data space, with information about each.
Preimages = tuple[Array, PreimageInfo]


class Preimage(ABC):
    """A learned map from scores back to data space: the base class of all pre-images, which are dataclasses."""

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields alone: prepared rows are computed again."""
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]

    @abstractmethod
    def __call__(self, Z: Array, start: Array | None = None) -> Preimages:
        """Return the pre-images of scores (m, q); an iteration begins at the points `start` (m, d), where given."""

    def of_first(self, count: int) -> Preimage:
        """Return the pre-image of scores of the first `count` components; most methods take fewer scores directly."""
        return self


def in_panels(function: Callable[[slice], Result], Z: Array, entries: int, n_jobs: int | None) -> list[Result]:
    """Return ``function(cut)`` of panels of Z; a point takes so many `entries`."""
    bounds = row_slices(int(Z.shape[0]), max(1, blocking.PREIMAGE_ENTRIES.on(is_on_gpu(Z)) // entries))
    return map_in_order(function, [slice(*cut) for cut in bounds], worker_count(Z, n_jobs))


def points_of_scores(preimage: Preimage, Z: Array, like: Any) -> Preimages:
    """Return the pre-images (m, d) of scores (m, q), q at most the number of components; warn where some fail."""
    part = preimage.of_first(int(Z.shape[1]))
    panels = panels_of(Z, blocking.PREIMAGE_PANEL)
    return _concatenated([_points(part, Z[start:stop, :], None, like) for start, stop in panels])


def denoised_points(space: FeatureSpace, preimage: Preimage, Y: Any, q: int, like: Any) -> Preimages:
    """Return the pre-images (m, d) of the projections of the rows of Y onto the first q components."""
    part, parts = preimage.of_first(q), []
    for bounds in panels_of(Y, blocking.PREIMAGE_PANEL):
        rows = _rows_of_panel(space, Y, *bounds)
        parts.append(_points(part, space.checked_scores(rows)[:, :q], dense_rows(rows), like))
    return _concatenated(parts)


def reconstruction_errors(
    space: FeatureSpace, preimage: Preimage, Y: Any, q: int, like: Any, *, wide: bool = False
) -> Array:
    """Return ‖y - ŷ‖² of every row of Y and its pre-image ŷ in the dtype of the fit, or the widest, shape (m,)."""
    part, parts, widest = preimage.of_first(q), [], space.map.mean_weights.dtype
    for bounds in panels_of(Y, blocking.PREIMAGE_PANEL):
        rows = dense_rows(_rows_of_panel(space, Y, *bounds))
        points, info = _points(part, space.checked_scores(rows)[:, :q], rows, rows)
        squares = square_sums(cast(rows, widest) - cast(points, widest))
        errors = squares if wide else cast(squares, space.map.projection.dtype)
        advice = f"Squares of these data are beyond {dtype_name(errors.dtype)}: scale them, or take float64."
        check_finite(errors[:, None], advice, "The array of errors")
        parts.append((to_caller(errors, like), info))
    return _concatenated(parts)[0]


def feature_space_errors(space: FeatureSpace, Y: Any, q: int, like: Any, diagonal: np.ndarray | None = None) -> Array:
    """Return the squared distances in feature space of the rows of Y from the first q components, shape (m,).

    `diagonal` is k(y, y) on the host, which the rows of a precomputed kernel do not hold.
    """
    parts = []
    for start, stop in panels_of(Y, blocking.PREIMAGE_PANEL):
        own = None if diagonal is None else diagonal[start:stop]
        errors = cast(space.errors(_rows_of_panel(space, Y, start, stop), q, own), space.map.projection.dtype)
        check_finite(errors[:, None], "The kernel overflows on the new points.", "The array of errors")
        parts.append(to_caller(errors, like))
    return concat(parts)


def _rows_of_panel(space: FeatureSpace, Y: Any, start: int, stop: int) -> Any:
    """Return some rows of Y where the map is computed, in the dtype of the fit."""
    rows = rows_at(take_rows(Y, start, stop), space.map.like)
    return cast(rows, space.map.projection.dtype)


def _points(preimage: Preimage, Z: Array, start: Array | None, like: Any) -> Preimages:
    """Return the pre-images of scores, finite."""
    points, info = preimage(Z, start)
    check_finite(points, "The kernel overflows on these scores.", "The array of points")
    return to_caller(points, like), info


def _concatenated(parts: Sequence[Preimages]) -> Preimages:
    """Return the results of all panels as one; warn where some points have not converged."""
    points = concat([points for points, _ in parts])
    info = PreimageInfo.concatenate([info for _, info in parts])
    missing = int(np.sum(~info.converged))
    if missing:
        warn_user(
            "some pre-images did not converge. Allow more iterations (max_iter) or a larger tol of FixedPointPreimage; "
            "return_info=True says which.",
            ConvergenceWarning,
            unconverged=missing,
            n_points=len(info.converged),
            n_iter=int(info.n_iter.max()),
        )
    return points, info
