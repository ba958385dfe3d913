"""What an audit reads: fitted models of any library as vectors, eigenvalues and landmarks, and the rows of the fit."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import sklearn.decomposition
from sklearn.kernel_approximation import Nystroem
from sklearn.metrics.pairwise import PAIRWISE_KERNEL_FUNCTIONS
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from gpukpca._rules import SYNONYMS
from gpukpca.algorithms.audit import Residuals
from gpukpca.algorithms.kernel_pca.audit import KernelPairs
from gpukpca.algorithms.kernel_pca.factor_sums import LandmarkFeatures
from gpukpca.backend.namespace import empty_like, from_host, to_host
from gpukpca.data.frequencies import number_of
from gpukpca.data.gate import as_rows
from gpukpca.data.slicing import dense_rows, gather_rows, place_of
from gpukpca.decomposition._fitted import check_model, samples_of, spectrum_of
from gpukpca.decomposition._interop import kernel_of_peer
from gpukpca.decomposition._kernels import NAMED_KERNELS, SHARED, kernel_from
from gpukpca.decomposition.incremental_pca import IncrementalPCA
from gpukpca.decomposition.kernel_pca import KernelPCA
from gpukpca.decomposition.pca import PCA
from gpukpca.exceptions import InvalidParameterError
from gpukpca.kernels import Kernel, Precomputed

# The kernels of `Nystroem` that have a name here.
SHARED_KERNELS = [name for name in NAMED_KERNELS if name in PAIRWISE_KERNEL_FUNCTIONS and name != "precomputed"]
# Rows that are compared with those of a fit, and the largest difference, in eps of float32: a model may be in float32.
COMPARED, DIFFERENT = 32, 64.0
# Largest difference of eigenvalues, relative to the first, for the same landmarks and rows.
OTHER_ROWS = 1e-3
LINEAR = (PCA, IncrementalPCA, sklearn.decomposition.PCA, sklearn.decomposition.IncrementalPCA)
TAKEN = (
    "a fitted KernelPCA, PCA or IncrementalPCA of gpukpca or of scikit-learn, a fitted Pipeline that ends in one, or a "
    "pair (kernel, scores)"
)


class KernelSource(NamedTuple):
    """Hold what an audit of kernel PCA reads from a model.

    `landmarks` takes the kernel and the placed rows, and returns the map to features, and axes of these where there are
    no vectors.
    """

    kernel: Any  # as `KernelPCA` takes it
    pairs: KernelPairs
    shape: tuple[float, int]
    landmarks: Callable[[Kernel, Any], tuple[LandmarkFeatures, np.ndarray | None]] | None = None
    # Row numbers, and the rows that the model keeps of them.
    kept: tuple[np.ndarray, Any] | None = None
    weighted: bool = False


class NystroemPCA(NamedTuple):
    """A fitted `Nystroem` and the fitted PCA of its features."""

    features: Any
    pca: Any


def fitted_model(model: Any) -> Any:
    """Return a fitted estimator, of a search the best one, or a pair; raise for anything else."""
    if isinstance(model, tuple) and len(model) == 2:
        return model
    check_model(model, f"residuals takes {TAKEN};")
    return getattr(model, "best_estimator_", model)


def last_step(pipeline: Pipeline, X: Any) -> tuple[Any, Any]:
    """Return the model at the end of a pipeline, and its data."""
    *before, model = [step for _, step in pipeline.steps if step is not None and step != "passthrough"]
    if isinstance(model, LINEAR) and before and isinstance(before[-1], Nystroem):
        model = NystroemPCA(before.pop(), model)
    for step in before:
        X = step.transform(X)
    return model, X


# Sums of weights differ by the rounding of their order.
COUNTED = 1e-9


def source_of(model: Any) -> KernelSource:
    """Return what an audit of kernel PCA needs of a model."""
    if isinstance(model, NystroemPCA):
        return _source_of_nystroem(*model)
    if isinstance(model, tuple):
        return _source_of_scores(*model)
    if isinstance(model, KernelPCA):
        return _source_of_own(model)
    if isinstance(model, sklearn.decomposition.KernelPCA):
        return _source_of_peer(model)
    raise InvalidParameterError(f"residuals takes {TAKEN}; got {type(model).__name__}.")


def _source_of_own(model: KernelPCA) -> KernelSource:
    fit: Any = model._result
    shape = fit.n_samples, int(model.n_features_in_)
    is_stream, numbers = fit.eigenvectors is None, fit.landmarks
    rows: Any = getattr(model, "X_fit_", None)  # not of every kernel matrix
    pairs = KernelPairs(None if is_stream else model.eigenvectors_, _host(model.eigenvalues_), fit.map.center)
    source = KernelSource(model.kernel_, pairs, shape, weighted=fit.weight_sum is not None)
    if not fit.has_sampled_basis:
        if fit.solver.startswith(("dense", "low rank")) and fit.gap is not None:
            # It errs by no more than the others.
            beyond = _host(model.eigenvalues_)[-1] - fit.gap + float(np.max(_host(fit.residual_norms)))
            source = source._replace(pairs=pairs._replace(next_eigenvalue=beyond))
        return source._replace(kept=None if rows is None else (np.arange(shape[0]), rows))

    def features(kernel: Kernel, X: Any) -> tuple[LandmarkFeatures, np.ndarray | None]:
        found, like = LandmarkFeatures.of_fit(fit), place_of(X)
        if not fit.map.center:  # products are those of f itself, not of f less a shift
            found = replace(found, start=replace(found.start, shift=0.0 * found.start.shift))
        if isinstance(kernel, Precomputed):
            found = replace(found, like=empty_like(like), columns=numbers)
        else:
            found = found.at(fit.map.basis, like)
        L = found.start.pivot_factor
        return found, L.T @ _host(model.projection_)[: len(L)] if is_stream else None

    source = source._replace(kept=None if rows is None or numbers is None else (numbers, rows))
    if fit.stream is None:  # a model file of an earlier version has no features
        return source
    bound = fit.norm_bound
    norm = math.inf if bound is None or bound.value is None or bound.is_estimate else bound.value
    return source._replace(landmarks=features, pairs=pairs._replace(norm=norm))


def _source_of_peer(peer: Any) -> KernelSource:
    """Return the pairs of scikit-learn's KernelPCA, which centers a precomputed K in place."""
    kernel, n = kernel_of_peer(peer), int(peer.eigenvectors_.shape[0])
    kept = None if isinstance(kernel, Precomputed) else (np.arange(n), peer.X_fit_)
    shape = n, int(peer.n_features_in_)
    return KernelSource(kernel, KernelPairs(peer.eigenvectors_, _host(peer.eigenvalues_)), shape, None, kept)


def _source_of_nystroem(peer: Nystroem, pca: Any) -> KernelSource:
    """Return scikit-learn's features f(x) = k(x, components) M, and the axes of their PCA."""
    check_is_fitted(peer)
    check_is_fitted(pca)
    n, d = samples_of(pca), int(peer.components_.shape[1])

    def features(kernel: Kernel, X: Any) -> tuple[LandmarkFeatures, np.ndarray]:
        basis = from_host(to_host(dense_rows(peer.components_)), place_of(X))
        weights = np.asarray(peer.normalization_).T.astype(np.float64)
        found, rotation = LandmarkFeatures.of_weights(kernel, basis, weights)
        return found, rotation @ _host(pca.components_).T

    kept = peer.component_indices_, peer.components_
    pairs = KernelPairs(None, spectrum_of(pca) * max(n - 1, 1))
    return KernelSource(_kernel_of_nystroem(peer), pairs, (n, d), features, kept)


def _kernel_of_nystroem(peer: Nystroem) -> Kernel:
    """Return the kernel of scikit-learn's features; raise for one that this library lacks."""
    given = {name: getattr(peer, name) for name in ("gamma", "degree", "coef0") if getattr(peer, name) is not None}
    options = SHARED | given | {"kernel_params": peer.kernel_params if callable(peer.kernel) else None}
    name = SYNONYMS.get(peer.kernel, peer.kernel) if isinstance(peer.kernel, str) else None
    if name is not None and name not in SHARED_KERNELS:
        raise InvalidParameterError(
            f"Nystroem(kernel={peer.kernel!r}) cannot be audited: its kernel must be one of "
            f"{', '.join(SHARED_KERNELS)}, or a function of two rows."
        )
    return kernel_from(SimpleNamespace(**options | {"kernel": name or peer.kernel}))


def _source_of_scores(kernel: Any, scores: Any) -> KernelSource:
    """Return the directions of scores (n, p) of the rows."""
    Z = dense_rows(as_rows(scores, name="scores", shape="(n_samples, n_components)", finite=True))
    if not int(Z.shape[1]):
        raise InvalidParameterError(f"scores has shape {tuple(Z.shape)}; give at least one column.")
    return KernelSource(kernel, KernelPairs(Z, None), (int(Z.shape[0]), 0))


def _host(values: Any) -> np.ndarray:
    return to_host(values).astype(np.float64)


def check_stated(found: Residuals, noise: float) -> None:
    """Raise where landmarks have other eigenvalues for the audited rows than the model states.

    The features of all landmarks err by `noise` together.
    """
    again = found.landmark_eigenvalues
    if again is None:
        return
    off, largest = float(np.max(np.abs(found.eigenvalues - again), initial=0.0)), float(np.max(again, initial=0.0))
    if off > max(OTHER_ROWS * largest, 10.0 * found.rounding, noise):
        raise InvalidParameterError(
            f"X are not the rows of the fit: its eigenvalues, up to {float(np.max(found.eigenvalues)):.6g}, differ by "
            f"up to {off:.3g} from those that the landmarks have for X, up to {largest:.6g}."
        )


def check_has_weights(weighted: bool, sample_weight: Any) -> None:
    """Raise `InvalidParameterError` where a model of weighted rows is audited without weights."""
    if weighted and sample_weight is None:
        raise InvalidParameterError(
            "the model was fitted with sample_weight; pass the same weights to residuals.", argument="sample_weight"
        )


def check_shape(X: Any, shape: tuple[float, int], weights: np.ndarray | None = None) -> None:
    """Raise where rows have another number or width than those of the fit; 0 is any width."""
    n, d = (int(size) for size in X.shape)
    count = n if weights is None else number_of(float(np.sum(weights)))
    if not math.isclose(count, shape[0], rel_tol=COUNTED):
        raise InvalidParameterError(
            f"X has {count} rows, and the model or the scores come from {shape[0]}; pass the same rows, in their "
            "order, and the sample_weight of the fit where it had one."
        )
    if shape[1] not in (0, d):
        raise InvalidParameterError(f"X has {d} features, and the model was fitted to {shape[1]}.")


def check_rows_of_fit(X: Any, numbers: np.ndarray, rows: Any) -> None:
    """Raise where some rows of X differ from those that a model keeps."""
    some = np.unique(np.linspace(0, len(numbers) - 1, min(COMPARED, len(numbers))).astype(np.int64))
    given, kept = (_host(gather_rows(*pair)) for pair in ((X, numbers[some]), (rows, some)))
    allowed = DIFFERENT * np.finfo(np.float32).eps * np.max(np.abs(kept), axis=1)
    bad = np.flatnonzero(~np.all(np.abs(given - kept) <= allowed[:, None], axis=1))
    if bad.size:
        raise InvalidParameterError(
            f"row {numbers[some][bad[0]]} of X is not that of the fit; pass the rows of the fit, in their order."
        )
