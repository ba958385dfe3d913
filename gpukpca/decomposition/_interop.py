"""Conversion of fitted estimators to those of scikit-learn and back."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Self

import numpy as np
import sklearn.decomposition
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import KernelCenterer, StandardScaler
from sklearn.utils.validation import check_is_fitted

from gpukpca.algorithms.kernel_pca.feature_space import AffineProjection
from gpukpca.algorithms.kernel_pca.model import KernelPCAFit
from gpukpca.algorithms.kernel_pca.spectrum import Spectrum
from gpukpca.algorithms.pca.model import LinearProjection, PCAFit
from gpukpca.algorithms.preimage.ridge import RidgeRegression, RidgeRule
from gpukpca.backend.device import device_context
from gpukpca.backend.linalg import reciprocals
from gpukpca.backend.namespace import cast, overflow_allowed, to_host
from gpukpca.data.frequencies import number_of
from gpukpca.data.place import Placement, rows_on_host
from gpukpca.data.slicing import gather_rows
from gpukpca.decomposition._fitted import is_centered, total_variance_of
from gpukpca.decomposition._kernels import NAMED_KERNELS, kernel_from
from gpukpca.eigen.residuals import default_tolerance
from gpukpca.exceptions import InvalidParameterError, PrecisionWarning, warn_user
from gpukpca.gram import kernel_matmat
from gpukpca.kernels import Kernel, Laplacian, Matern, PairwiseCallable, Precomputed, RationalQuadratic

# The kernels and the solvers that scikit-learn has too.
NAMES = {kind: name for name, kind in NAMED_KERNELS.items() if kind not in (Laplacian, Matern, RationalQuadratic)}
SOLVERS = ("auto", "dense", "full", "covariance_eigh", "arpack", "randomized")
# Rows on which a peer is compared with the model, and kernel values that it may store for that.
COMPARED_ROWS, COMPARED_ENTRIES = 1000, 2**24
# Differences beyond this share of the largest score are an error; those beyond the root of eps are a warning.
ANOTHER_MODEL = 1e-2


class KernelPeer:
    """Convert between `KernelPCA` and scikit-learn's."""

    def as_sklearn(self) -> Any:
        """Return the fitted model as a `sklearn.decomposition.KernelPCA` with the same scores to rounding.

        Returns
        -------
        sklearn.decomposition.KernelPCA
            With NumPy arrays. A share for `n_components` becomes the number of components, a rule for gamma the number,
            and a solver that scikit-learn lacks "auto". Other parameters that it lacks (device, gram, memory_limit,
            verbose) are dropped. It has `inverse_transform` for the ridge regression of ``fit_inverse_transform=True``.
            Other pre-images are dropped (a ridge with a separate kernel, centered, or on landmarks; fixed point;
            distance constraint), and so is that of the linear kernel, where scikit-learn's would lose the mean.

        Raises
        ------
        NotFittedError
        InvalidParameterError
            A kernel that scikit-learn lacks; a Nyström model; a fit with ``center=False``; scores that differ by more
            than 1 % of the largest one.

        Warns
        -----
        PrecisionWarning
            Scores differ by more than the square root of eps, relative to the largest one.

        Notes
        -----
        Cost: one pass over K, for the means of its columns. Scores are compared on at most 1000 training rows, fewer
        from 16 777 on, so that scikit-learn stores 2²⁴ kernel values. scikit-learn's formulas lose digits on data with
        a large offset, and with nearly flat kernels.

        Examples
        --------
        >>> import numpy as np
        >>> from gpukpca import KernelPCA
        >>> X = np.random.default_rng(0).standard_normal((50, 3))
        >>> model = KernelPCA(2, kernel="rbf", gamma=0.1).fit(X)
        >>> peer = model.as_sklearn()
        >>> type(peer).__module__, bool(np.allclose(peer.transform(X), model.transform(X)))
        ('sklearn.decomposition._kernel_pca', True)
        """
        return _to_sklearn(self, sklearn.decomposition.KernelPCA, _kernel_peer)

    @classmethod
    def from_sklearn(cls, peer: Any) -> Self:
        """Return the `KernelPCA` with the scores of a fitted `sklearn.decomposition.KernelPCA` to rounding.

        Parameters
        ----------
        peer : sklearn.decomposition.KernelPCA
            Fitted; not changed.

        Returns
        -------
        KernelPCA
            With NumPy arrays. The residuals are recomputed: they show how accurate the peer's solver was. `plan_` is
            None.

        Raises
        ------
        NotFittedError
        InvalidParameterError
            Not a KernelPCA of scikit-learn.

        Notes
        -----
        Cost: one pass over K, for the residuals. The trace that `total_variance_` comes from is that of the whole
        matrix, negative eigenvalues included.

        Examples
        --------
        >>> import numpy as np
        >>> from gpukpca import KernelPCA
        >>> from sklearn.decomposition import KernelPCA as Peer
        >>> X = np.random.default_rng(0).standard_normal((50, 3))
        >>> model = KernelPCA.from_sklearn(Peer(2, kernel="rbf", gamma=0.1).fit(X))
        >>> bool(model.residual_norms_.max() < 1e-8)
        True
        """
        return _from_sklearn(cls, peer, sklearn.decomposition.KernelPCA, _kernel_fit)


def _to_sklearn(model: Any, kind: Any, fill: Callable[[Any, Any], Any]) -> Any:
    """Return a model as scikit-learn's, which ``fill(model, peer)`` gives the fit."""
    check_is_fitted(model)
    _check_centered(model)
    peer = fill(model, kind(**_shared_parameters(model, kind)))
    _copy_features(model, peer[0] if isinstance(peer, Pipeline) else peer)
    return peer


def _from_sklearn(cls: Any, peer: Any, kind: type, fit_of: Callable[[Any, Any], Any]) -> Any:
    """Return a model on the host with the fit ``fit_of(model, peer)``."""
    if not isinstance(peer, kind):
        raise InvalidParameterError(
            f"from_sklearn takes a fitted sklearn.decomposition.{kind.__name__}; got {type(peer).__name__}."
        )
    check_is_fitted(peer)
    model = cls(**_shared_parameters(peer, cls))
    _copy_features(peer, model)
    host = np.empty(0)
    with overflow_allowed():
        model._publish(fit_of(model, peer), Placement(host, host))
    return model


def _shared_parameters(source: Any, target: Any) -> dict[str, Any]:
    """Return the parameters that both have, with values that the target accepts."""
    known = target().get_params(deep=False)
    shared = {name: value for name, value in source.get_params(deep=False).items() if name in known}
    if isinstance(shared["random_state"], np.random.Generator):
        shared["random_state"] = None
    name = "svd_solver" if "svd_solver" in shared else "eigen_solver"
    # A solver object, and one that scikit-learn lacks, has no name there.
    shared[name] = shared[name] if isinstance(shared[name], str) and shared[name] in SOLVERS else "auto"
    return shared


def _check_centered(model: Any) -> None:
    if not is_centered(model):
        raise InvalidParameterError(
            f"scikit-learn's {type(model).__name__} always centers, and this model was fitted with center=False; use "
            "save for a file that keeps it."
        )
    if getattr(model._result, "weight_sum", None) is not None:
        raise InvalidParameterError(
            "scikit-learn's KernelPCA centers by means without weights, and this model was fitted with sample_weight; "
            "use save for a file that keeps it."
        )


def _check_scores(peer: Any, theirs: Any, scores: np.ndarray) -> None:
    """Compare the scores of a peer with those of the model; warn of small differences, raise for large ones."""
    if not np.any(scores):
        return
    differences = np.abs(np.asarray(theirs, dtype=np.float64) - scores)
    difference = float(np.max(differences)) / float(np.max(np.abs(scores)))  # NaN where the peer overflows
    if difference <= np.sqrt(np.finfo(scores.dtype).eps):
        return
    differ = f"the scores of scikit-learn's {type(peer).__name__} differ from those of the model"
    why = (
        "on training rows: its formulas lose digits that this library keeps. Fit centered data, or float64 data, with "
        "a kernel that varies more on them; or keep the model itself, with save."
    )
    if not difference <= ANOTHER_MODEL:
        raise InvalidParameterError(f"{differ} by {difference:.1e} of the largest one, {why}")
    warn_user(f"{differ} {why}", PrecisionWarning, relative_difference=difference)


def _copy_features(source: Any, target: Any) -> None:
    for name in ("n_features_in_", "feature_names_in_"):
        if hasattr(source, name):
            setattr(target, name, getattr(source, name))


# -- kernel PCA to scikit-learn ----------------------------------------------------------------------------------------


def _kernel_peer(model: Any, peer: Any) -> Any:
    """Fill a peer with the kernel, eigenpairs and ridge pre-image of a model; return it."""
    if not model._space.holds_all:
        raise InvalidParameterError(
            "a Nyström model has scores from landmarks, and scikit-learn's KernelPCA needs the eigenvectors of a "
            "kernel matrix; use save for a file that keeps the model, or fit without Nyström."
        )
    if not hasattr(model, "X_fit_"):
        raise InvalidParameterError(
            "the model holds no kernel matrix, and scikit-learn's KernelPCA keeps it; fit on an array, and convert "
            "the model before it is saved."
        )
    ridge, count = _shared_inverse(model), int(model.eigenvalues_.shape[0]) or None
    peer.set_params(n_components=count, fit_inverse_transform=ridge is not None, **_kernel_parameters(model))
    peer.gamma_, peer.X_fit_ = model.gamma_, rows_on_host(model.X_fit_).copy()
    peer.eigenvalues_, peer.eigenvectors_ = to_host(model.eigenvalues_).copy(), to_host(model.eigenvectors_).copy()
    means = _column_means(model.kernel_, peer.X_fit_, model.n_jobs)
    peer._centerer = centerer = KernelCenterer().set_output(transform="default")
    centerer.K_fit_rows_, centerer.K_fit_all_ = cast(means, peer.eigenvectors_.dtype), float(np.mean(means))
    centerer.n_features_in_ = len(means)
    if ridge is not None:
        peer.set_params(alpha=ridge.rule.alpha)
        peer.dual_coef_, peer.X_transformed_fit_ = to_host(ridge.dual_coef).copy(), to_host(ridge.scores).copy()
    n = int(model.X_fit_.shape[0])
    chosen = np.linspace(0, n - 1, max(1, min(n, COMPARED_ROWS, COMPARED_ENTRIES // n))).astype(np.int64)
    rows = rows_on_host(gather_rows(model.X_fit_, chosen))
    with device_context(model._result.map.like), overflow_allowed():
        _check_scores(peer, peer.transform(rows), to_host(model._space.checked_scores(rows)))
    return peer


def _kernel_parameters(model: Any) -> dict[str, Any]:
    """Return the parameters of scikit-learn's KernelPCA for the kernel of the model."""
    kernel = model.kernel_
    if isinstance(kernel, PairwiseCallable):
        return {"kernel": kernel.function, "kernel_params": kernel.parameters, "gamma": None}
    if type(kernel) not in NAMES:
        raise InvalidParameterError(
            f"scikit-learn's KernelPCA has no kernel for {kernel!r}; it has {', '.join(NAMES.values())}, and takes "
            "others only as functions that it calls for every pair of rows. Use model.save for a file that keeps it."
        )
    numbers = {name: value for name, value in kernel.get_params().items() if name in ("gamma", "degree", "coef0")}
    return {"kernel": NAMES[type(kernel)], "kernel_params": None, "gamma": None, **numbers}


def _shared_inverse(model: Any) -> RidgeRegression | None:
    """Return the pre-image if scikit-learn has it: a ridge towards 0 on all scores, with the kernel of the model."""
    ridge = model._result.preimage
    if not isinstance(ridge, RidgeRegression) or ridge.kernel != model.kernel_:
        return None
    return ridge if ridge.mean is None and not ridge.rule.landmarks else None


def _column_means(kernel: Kernel, basis: Any, n_jobs: int | None) -> np.ndarray:
    """Return the means of the columns of K, shape (n,), in float64."""
    wide = cast(basis, np.float64)
    if isinstance(kernel, Precomputed):  # of its symmetric part, which was fitted
        return 0.5 * (wide.mean(axis=0) + wide.mean(axis=1))
    n = int(basis.shape[0])
    return kernel_matmat(kernel, wide, wide, np.full((n, 1), 1.0 / n), n_jobs=n_jobs)[:, 0]


# -- kernel PCA from scikit-learn --------------------------------------------------------------------------------------


def _kernel_fit(model: Any, peer: Any) -> KernelPCAFit:
    """Return the fit of a peer. The kernel is used unchanged, with the terms that centering would remove."""
    if isinstance(peer.kernel, str):
        model.set_params(kernel_params=None)  # which the peer then ignores
    U, values = np.array(to_host(peer.eigenvectors_)), to_host(peer.eigenvalues_).astype(np.float64)
    # scores(x) = (k - r + (mean - k̄) 1)ᵀ a with k = k(X, x), k̄ its mean and a = u / √λ: kᵀ A - b with A = a - ā,
    # b = rᵀ a - mean Σ a.
    rows, mean = to_host(peer._centerer.K_fit_rows_).astype(np.float64), float(peer._centerer.K_fit_all_)
    X = rows_on_host(peer.X_fit_).copy()
    if isinstance(peer.kernel, str) and peer.kernel == "precomputed":
        # K, which the peer has centered in place: Kc + r 1ᵀ + 1 rᵀ - mean
        X += peer._centerer.K_fit_rows_[:, None] + (peer._centerer.K_fit_rows_[None, :] - peer._centerer.K_fit_all_)
    kernel = kernel_of_peer(peer).resolve(X)
    alphas = U * reciprocals(np.sqrt(values))[None, :]
    projection = (alphas - np.mean(alphas, axis=0, keepdims=True)).astype(U.dtype)
    offset = (rows @ alphas - mean * np.sum(alphas, axis=0)).astype(U.dtype)
    template = None if kernel.stored_only else kernel.template(X, centered=False).slice(0, 0)
    # tr(H K H) = Σ k(x, x) - n mean(K)
    trace = float(np.sum(to_host(kernel.diagonal(X)).astype(np.float64))) - len(rows) * mean
    residuals = _residual_norms(X, U, values, kernel, model.n_jobs)
    tolerance = float(model.tol) or default_tolerance(U.dtype)
    scores, ridge = U * np.sqrt(values)[None, :], None
    if peer.fit_inverse_transform:
        scores = np.array(peer.X_transformed_fit_)
        rule = RidgeRule(kernel, float(model.alpha), centered=False, landmarks=0, n_jobs=model.n_jobs)
        ridge = RidgeRegression(rule, X, scores, kernel, scores, np.array(peer.dual_coef_), None)
    return KernelPCAFit(
        kernel=kernel,
        plan=None,  # type: ignore[arg-type]  # the peer has no plan
        spectrum=Spectrum(values, max(trace, float(np.sum(values))), U.dtype.name),
        eigenvectors=U,
        scores=scores,
        residual_norms=residuals,
        converged=residuals <= tolerance * float(np.max(values, initial=0.0)),
        gap=None,
        n_passes=0,
        n_products=0,
        seconds=0.0,
        solver=f"scikit-learn ({peer.eigen_solver})",
        fallbacks=(),
        map=AffineProjection(X, projection, offset, np.full(len(rows), 1.0 / len(rows)), mean, template),
        preimage=ridge,
    )


def kernel_of_peer(peer: Any) -> Kernel:
    """Return the kernel of a fitted `sklearn.decomposition.KernelPCA`, which has a number for gamma."""
    options = None if isinstance(peer.kernel, str) else peer.kernel_params  # which it ignores with a name
    kernel = kernel_from(SimpleNamespace(**vars(peer) | {"kernel_params": options}))
    if "gamma" in kernel.get_params():
        kernel.set_params(gamma=float(peer.gamma_))
    return kernel


def _residual_norms(X: Any, U: np.ndarray, values: np.ndarray, kernel: Kernel, n_jobs: int | None) -> np.ndarray:
    """Return ‖Kc u - λ u‖ of every pair, from one product."""
    products = X @ U if isinstance(kernel, Precomputed) else kernel_matmat(kernel, X, X, U, n_jobs=n_jobs)
    centered = products - np.mean(products, axis=0, keepdims=True)
    return np.linalg.norm(centered - U * values[None, :], axis=0).astype(U.dtype)


# -- PCA ---------------------------------------------------------------------------------------------------------------


class PCAPeer:
    """Convert between `PCA` and scikit-learn's."""

    def as_sklearn(self) -> Any:
        """Return the fitted model as a `sklearn.decomposition.PCA` with the same scores to rounding.

        Returns
        -------
        sklearn.decomposition.PCA, or sklearn.pipeline.Pipeline
            With NumPy arrays. A model with `scale` is a pipeline of a StandardScaler and a PCA. A solver that
            scikit-learn lacks becomes "auto"; other parameters that it lacks (scale, device, memory_limit, n_jobs,
            verbose) are dropped. Whitened scores without variance, which are 0 here, are rounding noise there.

        Raises
        ------
        NotFittedError
        InvalidParameterError
            A fit with ``center=False``; scores that differ by more than 1 % of the largest one.

        Warns
        -----
        PrecisionWarning
            Scores differ by more than the square root of eps, relative to the largest one.

        Notes
        -----
        scikit-learn projects data and mean separately, and loses digits where the mean is large. Scores are compared
        one standard deviation from the mean along at most 1000 components with variance.

        Examples
        --------
        >>> import numpy as np
        >>> from gpukpca import PCA
        >>> X = np.random.default_rng(0).standard_normal((50, 3))
        >>> model = PCA(2).fit(X)
        >>> bool(np.allclose(model.as_sklearn().transform(X), model.transform(X)))
        True
        """
        return _to_sklearn(self, sklearn.decomposition.PCA, _linear_peer)

    @classmethod
    def from_sklearn(cls, peer: Any) -> Self:
        """Return the `PCA` with the scores of a fitted `sklearn.decomposition.PCA` to rounding.

        Parameters
        ----------
        peer : sklearn.decomposition.PCA
            Fitted; not changed.

        Returns
        -------
        PCA
            With NumPy arrays. `residual_norms_`, `converged_` and `plan_`, which need the data, are None.

        Raises
        ------
        NotFittedError
        InvalidParameterError
            Not a PCA of scikit-learn.

        Examples
        --------
        >>> import numpy as np
        >>> from gpukpca import PCA
        >>> from sklearn.decomposition import PCA as Peer
        >>> X = np.random.default_rng(0).standard_normal((50, 3))
        >>> PCA.from_sklearn(Peer(2).fit(X)).transform(X).shape
        (50, 2)
        """
        return _from_sklearn(cls, peer, sklearn.decomposition.PCA, _linear_fit)


def _linear_peer(model: Any, peer: Any) -> Any:
    """Return a PCA of scikit-learn with the fit of a model; with scales a pipeline of a scaler and the PCA."""
    # Copies: a change of one model must not change the other.
    for name in ("components_", "explained_variance_", "explained_variance_ratio_", "singular_values_", "mean_"):
        setattr(peer, name, to_host(getattr(model, name)).copy())
    for name in ("n_components_", "n_samples_", "noise_variance_", "n_features_in_"):
        setattr(peer, name, getattr(model, name))
    if model.scale_ is not None:
        scaler = StandardScaler()
        scaler.mean_, scaler.scale_ = peer.mean_, to_host(model.scale_).copy()
        scaler.var_, scaler.n_samples_seen_ = scaler.scale_**2, model.n_samples_
        peer.mean_ = np.zeros_like(peer.mean_)
        scaler.n_features_in_ = model.n_features_in_
        peer = make_pipeline(scaler, peer)
    _check_linear_scores(model, peer)
    return peer


def _linear_fit(model: Any, peer: Any) -> PCAFit:
    """Return the fit of a peer."""
    names = ("components", "explained_variance", "explained_variance_ratio", "singular_values", "mean")
    numbers: dict[str, Any] = {name: np.array(to_host(getattr(peer, f"{name}_"))) for name in names}
    axes = np.array(numbers["components"].T, order="C")
    roots = reciprocals(np.sqrt(numbers["explained_variance"].astype(np.float64)))
    return PCAFit(
        **numbers,
        total_variance=total_variance_of(peer),
        noise_variance=max(float(peer.noise_variance_), 0.0),
        scale=None,
        residual_norms=None,
        converged=None,
        n_samples=number_of(float(peer.n_samples_)),
        device="cpu",
        plan=None,
        solver=f"scikit-learn ({peer.svd_solver})",
        fallbacks=(),
        projection=LinearProjection(numbers["mean"], axes, np.zeros(axes.shape[1]), None, roots),
    )


def _check_linear_scores(model: Any, peer: Any) -> None:
    """Compare scores one standard deviation from the mean, along every component with variance."""
    variances = to_host(model.explained_variance_)
    kept = np.flatnonzero(variances > 0)[:COMPARED_ROWS]
    if not kept.size:
        return
    with device_context(model._result.projection.axes), overflow_allowed():
        steps = np.sqrt(variances[kept])[:, None] * to_host(model.components_)[kept]
        rows = to_host(model.mean_) + (steps if model.scale_ is None else steps * to_host(model.scale_))
        scores = model._result.projection.transform(rows, model.n_jobs)
        scores = to_host(model._result.projection.whitened(scores) if model.whiten else scores)
        _check_scores(peer, np.asarray(peer.transform(rows))[:, kept], scores[:, kept])
