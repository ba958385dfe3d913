"""Eigenvalues of kernel PCA: checks, warnings, counts, and shares of the variance."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from gpukpca._typing import SymmetricOperator
from gpukpca.algorithms.fields import field_of, record
from gpukpca.algorithms.solver_warnings import OF_UNITS, warn_of_convergence
from gpukpca.backend.namespace import EPSILON, dtype_name, epsilon, is_sparse, overflow_allowed, to_host
from gpukpca.data.scale import factor_near_one, power_of_two_scale, row_bounds, scaled_rows
from gpukpca.data.slicing import place_of, sampled_panels, take_rows
from gpukpca.data.statistics import half_range
from gpukpca.eigen import EigenResult
from gpukpca.eigen.request import count_of_share
from gpukpca.eigen.residuals import operator_size, spectral_rounding, total_of
from gpukpca.exceptions import (
    GpuKPCAWarning,
    IndefiniteKernelError,
    IndefiniteKernelWarning,
    InvalidParameterError,
    PrecisionWarning,
    RankWarning,
    warn_user,
)
from gpukpca.gram import CenteredGram
from gpukpca.kernels import Kernel, Precomputed

# A leading share of the variance below this many n-ths shows no structure, unless samples are few.
EQUAL_SHARES, FEW_SAMPLES = 5, 50
# Centering takes at least this share of the trace of K from a matrix that is not nearly the identity.
COMMON = 0.005
# A column whose standard deviation is so many times the median one, in a sample of rows, seems to have another unit.
OTHER_UNIT, SAMPLED_ROWS = 10, 200

# scikit-learn's bounds: a negative eigenvalue beyond the first (relative to the largest) is an error; an eigenvalue
# below the second counts as zero when zeros are dropped.
SIGNIFICANT_NEGATIVE = {"float64": 1e-5, "float32": 5e-3}
SMALL_POSITIVE = {"float64": 1e-12, "float32": 2e-7}
# Where rounding reaches this share of the largest eigenvalue, the eigenvalues have too few digits.
UNRESOLVED = 0.01
# Rows that show whether a kernel that is 0 is so by underflow.
SEEN_ROWS = 16
# Eigenvalues that count as rounding are named where together they exceed this share of the variance.
MUCH = 1e-3
OTHER_KERNELS = "another kernel (rbf, laplacian, matern, poly with coef0 >= 0), or for sigmoid a smaller gamma."
EUCLIDEAN = "Euclidean distances if the matrix is made of distances."
OF_DISTANCES = "A matrix of distances is no kernel matrix: pass -D**2 / 2."
OF_UNRESOLVED = (
    "Request fewer components, pass float64 data, or bring the features to similar units (StandardScaler). Where the "
    "kernel is linear, PCA resolves them from the data."
)
# Negative eigenvalues that sum to less than this share of the positive ones hardly change a ratio.
NOTABLE = 0.01


@record()
class Spectrum:
    """Checked eigenvalues of a centered kernel matrix."""

    eigenvalues: np.ndarray = field_of("p", "On the host, descending, none negative.", "nonnegative")
    total_variance: float = field_of(
        "", "In the units of the eigenvalues, the denominator of the ratios; NaN: unknown.", "nonnegative", "or NaN"
    )
    dtype: str = field_of("", '"float64" or "float32": of the computation.', default="float64")

    @property
    def ratios(self) -> np.ndarray:
        """Return the shares of the total variance; zeros where there is none."""
        if self.total_variance <= 0:
            return np.zeros_like(self.eigenvalues)
        return self.eigenvalues / self.total_variance

    def count_of_share(self, share: float) -> int | None:
        """Return the fewest components that hold more than a share of the variance; None where all do not."""
        return count_of_share(self.eigenvalues, self.total_variance, share, EPSILON[self.dtype])

    @property
    def n_nonzero(self) -> int:
        """Return the number of nonzero components: above scikit-learn's bound, 1e-12 (2e-7) of the largest."""
        values = self.eigenvalues
        return int(np.sum(values > SMALL_POSITIVE[self.dtype] * float(values.max(initial=0.0))))


def checked_spectrum(eigen: EigenResult, op: CenteredGram, kernel: Kernel, fraction: float | None) -> Spectrum:
    """Return the eigenvalues, negative ones within rounding set to zero, and the total variance.

    Warn of an indefinite operator. Raise `IndefiniteKernelError` for a significant negative eigenvalue among the
    components, or a fraction of the variance of an indefinite operator whose spectrum is not known.
    """
    n, dtype = op.shape[0], dtype_name(op.dtype)
    values = to_host(eigen.eigenvalues).astype(np.float64)
    largest = float(values.max(initial=0.0))
    smallest = min(eigen.smallest_seen, float(values.min(initial=0.0)))
    rounding = spectral_rounding(op, np.append(values, smallest))
    _refuse_negative(values, smallest, rounding, kernel, dtype)
    values = np.maximum(values, 0.0)
    indefinite = kernel.positive_definite is not True and smallest < -rounding
    total = trace = _total(op, eigen, fraction)
    if abs(total) <= n * epsilon(op.like) * operator_size(op, np.zeros(0)) and largest == 0.0:
        total = 0.0
    if not indefinite:
        # The trace carries the rounding of what was cancelled; it is at least the sum of the eigenvalues.
        return Spectrum(values, max(total, float(values.sum())), dtype)
    if eigen.spectrum is not None:
        total, meaning = total_of(op, eigen.spectrum), "is relative to the sum of the positive ones"
        if total - trace <= NOTABLE * total:  # the sum of the negative ones
            return Spectrum(values, total, dtype)
    elif fraction is not None:
        raise IndefiniteKernelError(
            f"n_components={fraction} needs the positive part of the variance, but the kernel matrix has negative "
            f"eigenvalues (at most {smallest:.4g}; the largest is {largest:.4g}) and is too large to compute them all. "
            "Give a number of components."
        )
    else:
        # The positive ones sum to at least the trace, and to at least those computed.
        total = max(total, float(values.sum()))
        meaning = "holds upper bounds, as the sum of the positive ones is not known"
        meaning = "holds NaN" if math.isnan(total) else meaning
    hint = f" {OF_DISTANCES}" if -smallest > largest else ""
    warn_user(
        f"the kernel matrix has negative eigenvalues: explained_variance_ratio_ {meaning}.{hint}",
        IndefiniteKernelWarning,
        smallest=smallest,
        largest=largest,
    )
    return Spectrum(values, total, dtype)


def _total(op: CenteredGram, eigen: EigenResult, fraction: float | None) -> float:
    """Return the trace; NaN, with a warning, where nothing but products is known of the matrix."""
    if op.base.has_diagonal or fraction is not None:
        return op.trace
    if eigen.spectrum is not None:
        return float(eigen.spectrum.sum())
    warn_user(
        f"{op.base.name} has no diagonal, so the total variance is not known: explained_variance_ratio_ holds NaN. "
        "Give the operator a method diagonal() to have it.",
        GpuKPCAWarning,
    )
    return math.nan


def _refuse_negative(values: np.ndarray, smallest: float, rounding: float, kernel: Kernel, dtype: str) -> None:
    largest, lowest = float(values.max(initial=0.0)), float(values.min(initial=0.0))
    is_matrix = isinstance(kernel, Precomputed)
    if largest <= 0 and smallest < -rounding:
        raise IndefiniteKernelError(
            f"All eigenvalues are negative: the largest is {values.max():.4g}, the smallest computed {smallest:.4g}. "
            + (OF_DISTANCES if is_matrix else f"Use {OTHER_KERNELS}")
        )
    if lowest < -max(SIGNIFICANT_NEGATIVE[dtype] * largest, rounding):
        raise IndefiniteKernelError(
            f"There are significant negative eigenvalues among the components: {lowest:.4g}, the smallest computed is "
            f"{smallest:.4g}, the largest {largest:.4g}. Request at most {int(np.sum(values > rounding))} components, "
            f"the number of positive ones, or use {EUCLIDEAN if is_matrix else OTHER_KERNELS}"
        )
    if lowest < -rounding:
        warn_user(
            "negative eigenvalues of K among the components are set to 0.",
            IndefiniteKernelWarning,
            smallest=lowest,
            largest=largest,
        )


def warn_of_passes(eigen: EigenResult) -> None:
    """Warn of residuals above the tolerance; raise where nothing was found in passes that the user did not fix."""
    names = ("iterated_power", "passes") if eigen.has_fixed_passes else ("max_iter", "max_passes")
    advice = (
        f'Allow more passes ({names[0]}, or {names[1]} of the settings), a larger tol, or use eigen_solver="dense".'
    )
    warn_of_convergence(eigen, advice, may_fail=eigen.has_fixed_passes)


def warn_of_lost_components(
    eigenvalues: np.ndarray, eigen: EigenResult, op: CenteredGram, is_constant: Callable[[], bool]
) -> None:
    """Warn of components that the dtype cannot resolve; `is_constant` is called where K does not show it."""
    # A constant kernel leaves no variance but the rounding of its sums, and has nothing to resolve.
    varies = op.base.has_diagonal and op.trace > 4.0 * epsilon(op.like) * op.noise_scale
    column = None if varies else to_host(op.base.columns([0]))
    if column is None or not (np.all(column == column[0]) or is_constant()):
        warn_of_rounding(eigenvalues, eigen, op)


def warn_of_rounding(eigenvalues: np.ndarray, eigen: EigenResult, op: SymmetricOperator) -> None:
    """Warn that the eigenvalues are lost in the rounding of what centering cancels."""
    dtype = dtype_name(op.dtype)
    warn_user(
        f"{dtype} cannot resolve these components: the eigenvalues are lost in the rounding of what centering cancels. "
        f"{'Pass float64, or subtract' if dtype == 'float32' else 'Subtract'} the feature means first, or a large "
        "constant of the kernel.",
        PrecisionWarning,
        largest=float(eigenvalues.max(initial=0.0)),
        lost_below=eigen.null_threshold,
        cancelled=operator_size(op, np.zeros(0)),
    )


def warn_of_dropped(eigen: EigenResult, spectrum: Spectrum) -> None:
    """Warn where eigenvalues that count as rounding hold more than a little of the variance."""
    if eigen.dropped > MUCH * spectrum.total_variance > 0.0:
        warn_user(
            f"eigenvalues below the rounding of {spectrum.dtype} are set to 0, and hold a share of the variance "
            f"together.{' Pass float64.' if spectrum.dtype == 'float32' else ''}",
            PrecisionWarning,
            share=eigen.dropped / spectrum.total_variance,
            each_below=eigen.null_threshold,
        )


def warn_of_rank(spectrum: Spectrum, keep: int, n: float, matrix: str) -> None:
    """Warn where fewer components of a matrix carry variance than are kept, or where none is kept."""
    rank = int(np.sum(spectrum.eigenvalues > 0))
    if keep == 0:
        warn_user(
            f"no component carries variance, and none is kept: {matrix} is 0 to the rounding of {spectrum.dtype}, and "
            "transform returns no columns.",
            RankWarning,
            n_samples=n,
        )
    elif rank < keep:
        warn_user(
            f"fewer components carry variance than were requested: {matrix} has a smaller rank to the rounding of "
            f"{spectrum.dtype}. The others have eigenvalue 0 and zero scores.",
            RankWarning,
            nonzero=rank,
            n_components=keep,
            n_samples=n,
        )


def is_unresolved(eigenvalues: np.ndarray, eigen: EigenResult, op: SymmetricOperator) -> bool:
    """Return whether the largest eigenvalue lacks digits because of rounding."""
    noise = epsilon(op.like) * op.noise_scale
    return eigen.null_threshold > UNRESOLVED * max(float(eigenvalues.max(initial=0.0)), noise)


def warn_of_gap(eigen: EigenResult, p: int, missed: float = 0.0) -> None:
    """Warn where the last component kept and the first one left out are not separately determined.

    The pairs are those of the kernel matrix, or of an approximation that missed so much of its trace.
    """
    gap, is_last = eigen.gap, p == eigen.eigenvalues.shape[0]
    if is_last and gap is not None and is_cluster(gap, float(eigen.eigenvalues[-1]), eigen.null_threshold, missed):
        equal, remedy = "rounding (gap_)", ""
        if missed:
            equal, remedy = "the accuracy of the approximation (certificate_)", ", or allow a larger rank"
        warn_user(
            "the last component and the next one are not separately determined: their eigenvalues are equal to "
            f"{equal}. Only the space that they span is determined. Request one component more or less{remedy}.",
            PrecisionWarning,
            components=[p, p + 1],
            difference=gap,
        )


def is_cluster(gap: float, last: float, rounding: float, missed: float = 0.0) -> bool:
    """Return whether the gap after the `last` eigenvalue is that of rounding, 20 eps times the size of the matrix.

    The trace that an approximation missed bounds the error of the gap. It counts where it is small beside the last
    eigenvalue; a larger one is a loose bound, which shows no cluster.
    """
    if not last > 0:
        return False
    known = missed if missed <= UNRESOLVED * last else 0.0
    return gap < max(5.0 * rounding, known)


def warn_of_identity(kernel: Kernel, n: float, trace: Callable[[], float], spectrum: Spectrum, X: Any) -> bool:
    """Warn where K of n rows, X or more, is nearly the identity, and return whether it is; `trace` gives that of K.

    The components then have nearly equal shares, and centering takes hardly anything from the trace. No gamma helps
    where one column decides all distances.
    """
    if not has_equal_shares(kernel, n, spectrum):
        return False
    total = trace()
    if spectrum.total_variance < (1.0 - COMMON) * (1.0 - 1.0 / n) * total or total <= 0.0:
        return False
    reason = 'gamma is large for these units. Try a smaller one; gamma="scale" follows the units.'
    if (column := column_of_another_unit(X)) is not None:
        reason = f"one column varies more than {OTHER_UNIT} times as much as most others. "
        reason += OF_UNITS.format("StandardScaler")
    warn_user(
        f"K is nearly the identity, so the components are not informative: {reason}",
        PrecisionWarning,
        largest_share=float(spectrum.ratios.max()),
        n_samples=n,
        column=column,
    )
    return True


def has_equal_shares(kernel: Kernel, n: float, spectrum: Spectrum) -> bool:
    """Return whether components of many rows have shares as small as those of a matrix near the identity."""
    largest = float(spectrum.ratios.max(initial=0.0))
    return n >= FEW_SAMPLES and kernel.depends_on_distance and 0.0 < largest < EQUAL_SHARES / n


def column_of_another_unit(X: Any) -> int | None:
    """Return the column that varies most where the units of dense columns seem to differ, else None."""
    if is_sparse(X):
        return None
    with overflow_allowed():
        spreads = np.concatenate([rows.std(axis=0) for rows in sampled_panels(X, SAMPLED_ROWS)])
    varying = np.sort(spreads[spreads > 0.0])
    # The lower one of two middle values, so that one of two columns may differ from most.
    if not len(varying) or not varying[-1] > OTHER_UNIT * varying[(len(varying) - 1) // 2]:
        return None
    return int(np.argmax(spreads))


def check_underflow(X: Any, kernel: Kernel, largest: float | None = None) -> None:
    """Raise `InvalidParameterError` where kernel values underflow that do not for the same rows times a constant.

    `largest` is an eigenvalue; nothing is evaluated where it is a normal number. None: the fit failed.
    """
    if isinstance(kernel, Precomputed):
        return
    n = int(X.shape[0])
    limits = np.finfo(dtype_name(place_of(X).dtype))
    least = float(limits.tiny) / (float(limits.eps) if largest is None else 1.0)
    if largest is not None and largest >= n * least:
        return
    size = half_range(*row_bounds([X]))
    rows = take_rows(X, 0, min(n, SEEN_ROWS))
    with overflow_allowed():
        known, scaled = (
            float(np.max(np.abs(to_host(kernel.diagonal(Y)))))
            for Y in (rows, scaled_rows(rows, power_of_two_scale(size, np.float64)))
        )
    if size > 0.0 and known < least <= scaled:
        raise InvalidParameterError(
            f"the kernel matrix underflows: features range over at most {2.0 * size:.0e}, and {limits.dtype} does "
            f"not hold values of {kernel!r} so small. Multiply the data by {factor_near_one(size, limits.dtype)}."
        )
