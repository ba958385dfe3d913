"""The audit of a fitted model of any library against its data: the residuals of its eigenpairs, by one product."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from sklearn.pipeline import Pipeline

from gpukpca._rules import Rule, is_integer
from gpukpca._typing import ArrayLike, Stream, Vector
from gpukpca.algorithms.audit import Residuals
from gpukpca.algorithms.inputs import counted_for
from gpukpca.algorithms.kernel_pca.audit import audit_rows
from gpukpca.algorithms.kernel_pca.settings import resolved_within
from gpukpca.algorithms.pca.audit import audit_axes
from gpukpca.backend.random import Randomness, Seed
from gpukpca.data.batches import is_sliced, is_stream
from gpukpca.data.frequencies import checked_frequencies
from gpukpca.data.place import comes_in_batches
from gpukpca.decomposition._audit_sources import (
    LINEAR,
    KernelSource,
    check_has_weights,
    check_rows_of_fit,
    check_shape,
    check_stated,
    fitted_model,
    last_step,
    source_of,
)
from gpukpca.decomposition._batches import rows_and_place
from gpukpca.decomposition._callbacks import listener_of
from gpukpca.decomposition._fitted import is_centered, samples_of, spectrum_of
from gpukpca.decomposition._kernels import kernel_from, matrix_of
from gpukpca.decomposition._parameters import MemoryLimit, Verbose
from gpukpca.decomposition._session import FitSession, fit_in_session
from gpukpca.decomposition.kernel_pca import KernelPCA
from gpukpca.decomposition.pca import PCA

PASSES = Rule("1 or 2", lambda value: is_integer(value) and value in (1, 2))


def residuals(
    model: Any,
    X: ArrayLike | Stream,
    *,
    sample_weight: Vector | None = None,
    passes: Literal[1, 2] = 1,
    random_state: Seed = None,
    device: str | None = None,
    memory_limit: MemoryLimit = None,
    n_jobs: int | None = None,
    verbose: Verbose = 0,
) -> Residuals:
    """Audit eigenpairs against the data: one product with the matrix, which is never stored, for every vector.

    Parameters
    ----------
    model : estimator, or (kernel, scores)
        A fitted `KernelPCA`, `PCA` or `IncrementalPCA` of this library or of scikit-learn; a search with such a
        `best_estimator_`; a fitted `Pipeline` that ends in one, of which `Nystroem` and a PCA are taken together as
        an approximation of kernel PCA. Or the scores (n, p) of the rows from anywhere, with what `KernelPCA` takes as
        `kernel`. Columns of scores are divided by their lengths, and not made orthogonal.
    X : array, CSR matrix, data frame, Dask array, set or iterable of batches, shape (n, d)
        The rows of the fit, in their order; the kernel matrix (n, n) with kernel="precomputed". A memory map, a set of
        zarr, HDF5 or the like, and an iterable that starts again are read in parts, and never held whole.
    sample_weight : array, shape (n,), optional
        The weights of the fit: pairs are those of W^½ K W^½.
    passes : 1 or 2
        Passes over K for an approximation by landmarks. A second one tightens `norm_bound`. Others take one.
    random_state : None, int, RandomState or Generator
        Source of the 30 Gaussian vectors of `norm_bound`.
    device : None, "auto", "cpu", "cuda" or "cuda:N"
        Where to compute; see `KernelPCA`.
    memory_limit : None, int or str
        Bytes that may be allocated, such as "4GiB"; None: 85 % of what is free.
    n_jobs : int, optional
        Threads (NumPy); see `KernelPCA`.
    verbose : int or callable
        1 prints a line per pass to the standard error. A callable receives `Progress` events.

    Returns
    -------
    Residuals
        ``print(audit)`` shows a table. Of kernel PCA the eigenvalues are those of the centered kernel matrix, as
        `KernelPCA.eigenvalues_`; of PCA variances, as `PCA.explained_variance_`. Of fits with ``center=False`` nothing
        is centered.

    Raises
    ------
    NotFittedError
    InvalidParameterError
        Another kind of model; X has not the rows of the fit, or not its features; batches that come only once; a
        parameter out of range.
    MemoryBudgetError
        The products do not fit into the memory.
    ValueError, TypeError
        As `KernelPCA.fit`.

    See Also
    --------
    gpukpca.decomposition.Residuals : Its residuals and bounds, and what they mean.
    gpukpca.KernelPCA : Its `residual_norms_` come from products of the fit.
    gpukpca.eigen.BlockKrylov : With ``start=model.eigenvectors_`` it makes better pairs of these.

    Notes
    -----
    Cost of kernel PCA: n²/2 kernel values and 2 n² (p + 31) operations per pass; O(n d p) for the linear kernel.
    Landmarks add three sweeps with n kernel values a landmark, and two with a second pass. Memory: a few blocks of
    n (p + 31) items, one for each thread, and a panel of rows. Of PCA: one sweep for the mean and one product, 4 n d p
    operations.

    A vector, or the span of a group, with residual r, whose quotients have the distance δ from the eigenvalues of all
    others, has sin∠ <= r / δ: Davis & Kahan, SIAM J. Numer. Anal. 7 (1970) 1. Index for index eigenvalues lie between
    Ritz values and upper bounds. These need a bound on what is orthogonal to all vectors: `bound`; or the trace that
    the Ritz values leave, where the kernel is known to be positive semidefinite; or eigenvalue p + 1, as a fit of this
    library states it that computed all. Else no angle is known: residuals do not show that no eigenvalue was missed.
    Scores of the rows are √λ times the vectors, so their angles are the same, of weighted rows in the inner product of
    the weights. Scores of new points have no bound.

    ‖E‖₂, E = K - F Fᵀ, centered as the fit, is at most α √(2/π) max ‖Eω‖ over r Gaussian vectors ω but for a
    probability of α^-r; here α = 2, r = 30. Halko, Martinsson & Tropp, SIAM Review 53 (2011) 217, lemma 4.1.

    Examples
    --------
    >>> import numpy as np
    >>> from gpukpca import KernelPCA, Nystrom, residuals
    >>> X = np.random.default_rng(0).standard_normal((300, 3))
    >>> solver = Nystrom(rank=20)
    >>> model = KernelPCA(2, kernel="rbf", gamma=0.1, eigen_solver=solver, random_state=0).fit(X)
    >>> audit = residuals(model, X, passes=2, random_state=0)
    >>> audit.norm_bound < audit.trace_bound
    True
    >>> exact = KernelPCA(2, kernel="rbf", gamma=0.1).fit(X)
    >>> bool(np.all((audit.bounds[:, 0] <= exact.eigenvalues_) & (exact.eigenvalues_ <= audit.bounds[:, 1])))
    True
    """
    PASSES.check_argument("passes", passes)
    model = fitted_model(model)
    settings: dict[str, Any] = {
        "random_state": random_state,
        "device": device,
        "memory_limit": memory_limit,
        "n_jobs": n_jobs,
        "verbose": verbose,
    }
    if isinstance(model, Pipeline):
        model, X = last_step(model, X)
    source: Any = None if isinstance(model, LINEAR) else source_of(model)
    reader: Any = PCA(**settings) if source is None else KernelPCA(kernel=source.kernel, **settings)
    reader._audited = getattr(model, "features", model)  # whose names of features those of X are to be
    if source is None:
        return fit_in_session(reader, X, lambda session: _audit_of_axes(model, X, sample_weight, reader, session))
    return fit_in_session(reader, X, lambda session: _audit_of_pairs(source, X, sample_weight, reader, session, passes))


def _audit_of_axes(model: Any, container: Any, sample_weight: Any, reader: Any, session: FitSession) -> Residuals:
    """Return the audit of a fitted PCA; the `reader` holds the parameters."""
    data, place = reader._rows_and_place(container, "residuals", sample_weight)
    check_has_weights(getattr(vars(model).get("_result"), "weighted", False), sample_weight)
    weights = checked_frequencies(sample_weight, int(data.shape[0]))
    check_shape(data, (samples_of(model), int(model.components_.shape[1])), weights)
    scale = getattr(model, "scale_", None)
    axes = model.components_.T
    with session.on(place, data) as resources:
        X = place.to_work(data)
        options: dict[str, Any] = {
            "center": is_centered(model),
            "scale": False if scale is None else scale,
            "weights": weights,
        }
        return audit_axes(X, axes, spectrum_of(model), resources, **options, progress=listener_of(reader))


def _audit_of_pairs(
    source: KernelSource, container: Any, sample_weight: Any, reader: Any, session: FitSession, passes: int
) -> Residuals:
    """Return the audit of vectors of kernel PCA; the `reader` holds the parameters."""
    X = matrix_of(reader, container)
    in_batches = (is_stream(X) or is_sliced(X) or comes_in_batches(X)) and not kernel_from(reader).stored_only
    how: dict[str, Any] = {"in_batches": in_batches, "counted": True, "sample_weight": sample_weight}
    data, place = rows_and_place(reader, X, "residuals", **how)
    check_has_weights(source.weighted, sample_weight)
    every, (data, weights, _) = data, counted_for(kernel_from(reader), data, sample_weight)
    check_shape(data, source.shape, weights if source.pairs.vectors is None else None)
    if source.kept is not None:  # landmarks may have weight 0
        check_rows_of_fit(data if source.landmarks is None else every, *source.kept)
    with session.on(place, data) as resources:
        X = place.to_work(data)
        kernel = resolved_within(kernel_from(reader), X, resources, weights=weights)
        pairs = source.pairs
        if source.landmarks is not None:
            landmarks, axes = source.landmarks(kernel, X)
            pairs = pairs._replace(landmarks=landmarks, axes=axes)
        random = Randomness(reader.random_state)
        found = audit_rows(X, kernel, pairs, resources, weights, passes, random, listener_of(reader))
        count = found.n_samples if weights is None else float(np.sum(weights))
        check_stated(found, 0.0 if pairs.landmarks is None else pairs.landmarks.start.noise * count)
        return found
