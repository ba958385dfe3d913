"""PCA of batches that are read again in every pass: the mean in the first, the components in one or a few more.

Between batches only d numbers, a d × d matrix or a block of d-vectors are kept.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from gpukpca._formatting import format_allowance, format_need
from gpukpca._typing import Array
from gpukpca.algorithms.batches import Batches
from gpukpca.algorithms.inputs import checked_listener, training_batches
from gpukpca.algorithms.magnitude import are_safe, row_bounds, safe_scale, scaled_batches
from gpukpca.algorithms.pca.components import SolverTools, of_operator, of_scatter, without_noise
from gpukpca.algorithms.pca.incremental import COUNT, WIDE, IncrementalFit, IncrementalState, warn_of_equal_rows
from gpukpca.algorithms.pca.settings import RankRequest
from gpukpca.algorithms.progress import Listener, Progress
from gpukpca.algorithms.resources import Resources
from gpukpca.algorithms.solver_warnings import warn_of_convergence, warn_of_fallbacks, warn_of_unresolved
from gpukpca.backend import blocking
from gpukpca.backend.device import device_context, is_on_gpu
from gpukpca.backend.linalg import inner_panel
from gpukpca.backend.namespace import empty_like, item_size, namespace_of, overflow_allowed
from gpukpca.backend.parallel import single_threaded_blas
from gpukpca.backend.random import Randomness, generator
from gpukpca.backend.rows import dense_rows
from gpukpca.covariance.moments import Moments, moments_of
from gpukpca.covariance.streamed import StreamedCenteredMatrix
from gpukpca.eigen import BlockKrylov, Dense
from gpukpca.exceptions import InvalidParameterError, MemoryBudgetError

# Features up to which the covariance matrix is formed where it fits: 128 MiB in float64.
COVARIANCE_UP_TO = 4096
# Relative residual of the iterative solver: rounding, after some dozen passes over the data.
TOLERANCE = 1e-13


def fit_pca_batches(
    batches: Iterable[Array],
    n_components: int | None = None,
    *,
    resources: Resources | None = None,
    progress: Listener | None = None,
) -> IncrementalFit:
    """Compute the exact PCA of all rows of some batches without joining them.

    Parameters
    ----------
    batches : iterable of arrays, each (m, d)
        In memory; memory maps are read when they are used. Of one library of the Array API standard; not written to.
        The result is in float64 where one of them is.
    n_components : int, optional
        Number p, at most min(n, d) of all n rows. None: min(n, d).
    resources, progress : as in `fit_pca`

    Returns
    -------
    IncrementalFit
        With the residuals of all components.

    Raises
    ------
    ValueError
        There is no batch; a batch is not two-dimensional, is empty, contains NaN or infinity, or has other features
        than the first; n_components is not an integer from 1 to min(n, d).
    DeviceMismatchError
        The batches are of different libraries or on different devices.
    MemoryBudgetError
        The passes do not fit into the memory.
    ConvergenceError
        No component was found.

    Warns
    -----
    ConvergenceWarning, RankWarning, PrecisionWarning, DeviceFallbackWarning

    See Also
    --------
    gpukpca.IncrementalPCA : The same with ``exact=True`` as an estimator of scikit-learn.

    Notes
    -----
    O(n d²) in two passes and memory O(d²) for d <= 4096 or p > d/5; else O(n d p) in each of about a dozen passes.
    Components beside much larger ones take some passes more.

    Chan, Golub & LeVeque, The American Statistician 37 (1983) 242 (moments by batches).

    Examples
    --------
    >>> import numpy as np
    >>> from gpukpca.algorithms import fit_pca, fit_pca_batches
    >>> X = np.random.default_rng(0).standard_normal((300, 5)) * [3.0, 2.0, 1.0, 0.1, 0.1]
    >>> fit = fit_pca_batches([X[:100], X[100:]], n_components=2)
    >>> bool(np.allclose(fit.components, fit_pca(X, 2).components))
    True
    """
    COUNT.check_argument("n_components", n_components)
    progress = checked_listener(progress)
    shape = tuple(getattr(batches, "shape", ()))
    if len(shape) == 2:
        raise InvalidParameterError(f"batches is one array of shape {shape}; pass [X] for one batch.")
    if not isinstance(batches, Iterable) or isinstance(batches, (str, bytes, dict)):
        raise InvalidParameterError(
            f"batches must be an iterable of arrays of shape (m, d), such as a list; got {type(batches).__name__}."
        )
    given = list(batches)
    with device_context(given[0] if given else None), overflow_allowed():
        checked = training_batches(given, "PCA", "batches")
        n, d = sum(int(batch.shape[0]) for batch in checked), int(checked[0].shape[1])
        if n_components is not None and n_components > min(n, d):
            raise InvalidParameterError(
                f"n_components={n_components} is not allowed; {n} rows of {d} features have at most {min(n, d)} "
                "components."
            )
        resources = Resources.for_fit(resources, checked[0])
        place = resources.place
        with device_context(place.work), single_threaded_blas(d <= blocking.EXACT_ONE_THREAD_UP_TO):
            dense = [place.to_work(dense_rows(batch)) for batch in checked]
            like = empty_like(dense[0], namespace_of(dense[0]).result_type(*(batch.dtype for batch in dense)))
            source = Batches(lambda: iter(dense), like, n, max(int(batch.shape[0]) for batch in dense))
            fit = fit_exact(source, d, n_components, resources.allowed(), progress)
    warn_of_equal_rows(fit.state)
    return fit


def fit_exact(
    batches: Batches, d: int, n_components: int | None, limit: int, progress: Listener | None = None
) -> IncrementalFit:
    """Return the exact PCA of checked batches of d features; `limit` bytes are checked before the first pass."""

    def report(done: int, purpose: str) -> None:
        if progress is not None:
            progress(Progress("pass", f"pass {done}: {purpose}", done, 0))

    exact_solver(d, min(d, n_components or batches.n_rows or 1), batches.largest, limit, batches.like)
    moments, scale = safe_moments(batches)
    report(1, f"mean of {moments.count} rows")
    most = min(moments.count, d)
    p = most if n_components is None else int(n_components)
    if p > most:
        raise InvalidParameterError(
            f"n_components={p} must be at most min(n_samples, n_features) = {most} with exact=True."
        )
    solver = exact_solver(d, p, batches.largest, limit, batches.like)
    Z = StreamedCenteredMatrix(scaled_batches(batches, scale), moments)
    # A fixed start gives the same last digits in every run.
    tools = SolverTools(Randomness(generator(0), "rng"), lambda done, *_: report(done + 1, "product"))
    if solver.forms_matrix:
        report(2, "covariance")
        found = of_scatter(Z, solver, RankRequest(p), tools)
    else:
        found = of_operator(Z, solver, RankRequest(p), tools, by_samples=False)
    found = without_noise(Z, found)
    eigen, values = found.as_eigen(), found.squares
    warn_of_convergence(eigen, "Request fewer components.")
    warn_of_fallbacks(eigen)
    if n_components is not None:
        warn_of_unresolved(values, found.residual_norms, 0.0, "Request fewer components, or scale the features.")
    axes = namespace_of(found.vectors).matrix_transpose(found.vectors)
    left = (moments.total - float(np.sum(values))) / max(moments.count - 1, 1)
    noise = max(left, 0.0) / (most - p) if p < most else 0.0
    return IncrementalFit.of(IncrementalState(moments, axes, np.sqrt(values), noise, scale), batches.like.dtype, eigen)


def safe_moments(batches: Iterable[Array]) -> tuple[Moments, float]:
    """Return the moments of all rows times a power of two, and that number: 1, in one pass, at ordinary sizes."""
    moments = moments_of(batches)
    if are_safe(moments.squares):
        return moments, 1.0
    low, high = row_bounds(batches)
    scale = safe_scale(low, high, moments.mean.dtype)
    return moments_of(scaled_batches(batches, scale)), scale


def exact_solver(d: int, p: int, rows: int, limit: int, like: Array) -> Dense | BlockKrylov:
    """Return the solver for p of d features, of batches with so many rows; raise where none fits into `limit` bytes."""
    iterative = BlockKrylov(tol=TOLERANCE)
    few = iterative.iterates(d, p)
    ways: list[Dense | BlockKrylov] = [Dense()] if d <= COVARIANCE_UP_TO or not few else []
    ways += [iterative] if few else []
    sizes = [exact_bytes(solver, d, p, rows, like) for solver in ways]
    for solver, size in zip(ways, sizes, strict=True):
        if size <= limit:
            return solver
    single = min(exact_bytes(solver, d, p, 1, like) for solver in ways)
    if single <= limit:
        advice = "batches of fewer rows"
    elif not few and d >= 5:
        advice = f"n_components <= {d // 5}, which need no {d} x {d} matrix"
    else:
        advice = "fewer components"
    raise MemoryBudgetError(
        f"PCA of batches with {p} components of {d} features takes {format_need(min(sizes))}, and "
        f"{format_allowance(limit)} are allowed or free. Try {advice}, or a larger memory_limit."
    )


def exact_bytes(solver: Dense | BlockKrylov, d: int, p: int, rows: int, like: Array) -> int:
    """Return the peak of all passes over batches of so many rows, one batch included."""
    panel = min(rows, inner_panel(like, is_wide=True))
    passing, solving = _matrices(solver, d, p, is_on_gpu(like))
    return rows * d * item_size(like.dtype) + WIDE * max(2 * rows * d, 2 * panel * d + passing, solving)


def rows_within(limit: int, d: int, p: int) -> int:
    """Return the rows of a batch with which the exact mode keeps to `limit` bytes, where that is possible."""
    host = np.empty(0)
    try:
        solver = exact_solver(d, p, blocking.FEWEST_BATCH_ROWS, limit, host)
    except MemoryBudgetError:
        solver = exact_solver(d, p, 1, limit, host)
    left = limit - WIDE * max(_matrices(solver, d, p, False))
    return max(1, left // (3 * WIDE * d))


def _matrices(solver: Dense | BlockKrylov, d: int, p: int, on_gpu: bool) -> tuple[int, int]:
    """Return the items held in addition to the rows while a pass runs, and afterwards."""
    work = solver.workspace_items(d, p, on_gpu)
    return (3 * d * d, 2 * d * d + work + p * d) if solver.forms_matrix else (work, work)
