"""Estimator of local PCA."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, overload

from sklearn.base import ClusterMixin
from sklearn.utils.validation import check_is_fitted

from gpukpca._rules import COUNT
from gpukpca._typing import Array, ArrayLike, Held, NumpyArray, NumpyRows, Real, Stream, UnknownRows, Vector
from gpukpca.algorithms.mixture.fit import fit_clusters
from gpukpca.algorithms.mixture.model import LocalModel, MixtureFit
from gpukpca.algorithms.mixture.settings import Counts, MixtureMethod, MixtureSettings
from gpukpca.backend.device import device_context
from gpukpca.backend.namespace import move
from gpukpca.backend.random import Seed, generator
from gpukpca.data.place import Placement, to_caller
from gpukpca.decomposition._base import LocalPCAAttributes, OnlyWhere, publish
from gpukpca.decomposition._batches import rows_and_place
from gpukpca.decomposition._callbacks import listener_of
from gpukpca.decomposition._model_files import Saved
from gpukpca.decomposition._parameters import MemoryLimit, Verbose
from gpukpca.decomposition._row_wise import mean_score, row_wise
from gpukpca.decomposition._session import FitSession, fit_in_session
from gpukpca.decomposition._validation import check_dense
from gpukpca.exceptions import PrecisionWarning, warn_user

# Why it takes no sparse rows.
DENSE_ROWS = (
    "LocalPCA does not support sparse input. Pass {call}, or reduce the rows first: make_pipeline(PCA(50), LocalPCA())."
)


def _without_density(estimator: Any) -> str:
    if estimator.method == "mixture":
        return ""
    return f'LocalPCA with method={estimator.method!r} has no density to draw from; fit with method="mixture".'


class LocalPCA(LocalPCAAttributes[Held], ClusterMixin, Saved):
    """Several PCAs, each of one cluster of the data: a mixture of probabilistic PCAs, or quantization by planes.

    Works on NumPy arrays, memory maps, pandas data frames, and on CuPy, PyTorch, JAX and array-api-strict arrays;
    results live where the input lives. `fit` reads a set of zarr or HDF5 whole. Sparse rows are not supported: less the
    mean of their cluster, they are dense.

    Parameters
    ----------
    n_clusters : int >= 1, sequence of int, or "bic"
        Number k. With a sequence, or "bic" (1 … 8), the pair of k and p with the smallest BIC is fitted.
    n_components : int >= 1, sequence of int, or "bic"
        Dimension p < d of every cluster's plane. "bic": 1 … min(d - 1, 10).
    method : "mixture" or "hard"
        "mixture": maximum likelihood of a mixture of probabilistic PCAs by EM. "hard": every row belongs to the
        cluster with the nearest plane, and planes are PCAs of their rows, in turn; this minimizes the reconstruction
        error.
    n_init : int >= 1
        Starts, each by k-means++ and some rounds of Lloyd's algorithm. Every start gets 10 iterations, and the best one
        continues. A mixture has one more: the clusters of "hard" from the same starts.
    tol : float >= 0
        An iteration is the last that raises the mean log-likelihood of a row by no more than this, or with "hard"
        lowers the mean squared error by no more than this share of the data's total variance.
    max_iter : int >= 1
    reg : float in (0, 1)
        The noise variance of a cluster is at least this share of the mean variance of a feature, and at least this
        number where that is 0. So planes that contain their rows exactly have a density.
    random_state : None, int, RandomState or Generator
        For the starts, and for `sample`. The fit of a pair (k, p) does not depend on which others are tried.
    device, memory_limit, n_jobs, verbose : as in `PCA`

    Attributes
    ----------
    weights_ : array (k,)
        Shares of the rows, descending: the clusters are in this order everywhere.
    means_ : array (k, d)
        In float64 where the device has it.
    components_ : array (k, p, d)
        Orthonormal rows; the entry of largest modulus is positive.
    explained_variance_ : array (k, p)
        Along the components, over the weight of the cluster (not less 1); none below the noise.
    noise_variance_ : array (k,)
        In each direction off the plane.
    labels_ : array (n,) of int64 (int32 where the library has no int64)
        `predict` of the rows whose weight is not 0.
    n_clusters_, n_components_ : int
        Fewer clusters than requested where some were lost.
    n_iter_ : int
        Of the best start.
    converged_ : bool
    log_likelihoods_ : array, shape (`n_iter_` + 1,)
        Only of a mixture: the mean log-likelihood of a row, start included. Never falls. It starts again, and is
        shorter, after a cluster was moved or dropped.
    errors_ : array, shape (`n_iter_` + 1,)
        Only with "hard": mean squared distance of a row from its plane. Never rises; else as `log_likelihoods_`.
    bic_ : dict
        {(k, p): BIC} of all pairs that were tried.
    device_ : str
        The device of the computation.
    fallbacks_ : tuple of str
        Failures and what replaced them. Empty in most fits.
    n_features_in_, feature_names_in_

    Raises
    ------
    InvalidParameterError, ConvergenceError, ValueError, TypeError
        From `fit`, which then leaves the estimator as it was. k > n, p >= d and p > n are among them.

    Warns
    -----
    ConvergenceWarning
        The fit stopped after max_iter iterations.
    RankWarning
        All rows are equal, or clusters were dropped: with fewer different rows than clusters, or where a cluster has no
        more rows than its plane has dimensions, also after it was moved to the worst explained row once.
    PrecisionWarning, DeviceFallbackWarning

    See Also
    --------
    ProbabilisticPCA : The model of one cluster.
    gpukpca.plotting.AxesDisplay : Draw clusters and their axes.

    Notes
    -----
    Cost of an iteration: O(n d k p) for the assignment, O(n d²) for the covariances, where a row counts once for every
    cluster in which it has weight (at most k times), and O(k d³) for the planes. For d > n the rows are first rotated
    into their span, without loss, and n takes the place of d. Memory O(n k + d²) and panels of rows; O(n d) for d > n.
    A mixture costs a fit with "hard" and n_init + 1 starts of EM.
    Sums are accumulated in float64 about the mean, and data are scaled by a power of two.

    The M-step maximizes exactly among noises above the floor, which `reg` fixes before the first iteration: EM is
    monotone with the floor too. BIC is -2 log L + q log n with q = k (d p - p (p - 1)/2 + 1 + d) + k - 1. With "hard",
    L is the classification likelihood, the product over rows of weight times density of the own cluster.

    Tipping & Bishop, Neural Computation 11 (1999) 443 (mixture); Kambhatla & Leen, Neural Computation 9 (1997) 1493
    (hard); Arthur & Vassilvitskii, Proc. SODA (2007) 1027 (k-means++).

    Examples
    --------
    >>> import numpy as np
    >>> from gpukpca import PCA, LocalPCA
    >>> t = np.linspace(0.0, 6.0, 300)
    >>> X = np.stack([t * np.cos(t), t * np.sin(t)], axis=1)
    >>> model = LocalPCA(n_clusters=6, n_components=1, random_state=0).fit(X)
    >>> model.components_.shape
    (6, 1, 2)
    >>> local_error = np.mean((X - model.denoise(X)) ** 2)
    >>> plane = PCA(n_components=1).fit(X)
    >>> bool(local_error < 0.1 * np.mean((X - plane.inverse_transform(plane.transform(X))) ** 2))
    True
    """

    _result: MixtureFit
    _result_type = MixtureFit
    _on_cluster = False

    def __init__(
        self,
        n_clusters: Counts = 2,
        n_components: Counts = 1,
        *,
        method: MixtureMethod = "mixture",
        n_init: int = 4,
        tol: float = 1e-4,
        max_iter: int = 300,
        reg: float = 1e-6,
        random_state: Seed = None,
        device: str | None = None,
        memory_limit: MemoryLimit = None,
        n_jobs: int | None = None,
        verbose: Verbose = 0,
    ) -> None:
        self.n_clusters = n_clusters
        self.n_components = n_components
        self.method = method
        self.n_init = n_init
        self.tol = tol
        self.max_iter = max_iter
        self.reg = reg
        self.random_state = random_state
        self.device = device
        self.memory_limit = memory_limit
        self.n_jobs = n_jobs
        self.verbose = verbose

    # -- fitting ---------------------------------------------------------------------------------------------------

    @overload
    def fit(self, X: UnknownRows, y: Any = None, sample_weight: Vector | None = None) -> LocalPCA[Any]: ...
    @overload
    def fit(
        self, X: NumpyRows[Real], y: Any = None, sample_weight: Vector | None = None
    ) -> LocalPCA[NumpyArray[Real]]: ...
    @overload
    def fit(self, X: ArrayLike, y: Any = None, sample_weight: Vector | None = None) -> LocalPCA[Any]: ...
    def fit(self, X: ArrayLike, y: Any = None, sample_weight: Vector | None = None) -> LocalPCA:
        """Find the clusters of X and their planes.

        Parameters
        ----------
        X : array or data frame, shape (n, d)
            A memory map is read by panels. A set of zarr or HDF5 is read whole, and refused where it does not fit.
        y : ignored
        sample_weight : array, shape (n,), optional
            How often each row counts, as in `gpukpca.PCA.fit`. Weights of a sum below the number of rows are multiplied
            to that sum. `labels_` has the rows whose weight is not 0.

        Returns
        -------
        LocalPCA
            The estimator itself.
        """
        fit_in_session(self, X, partial(self._fit, X, sample_weight))
        return self

    def _fit(self, X: Any, sample_weight: Any, session: FitSession) -> None:
        check_dense(X, DENSE_ROWS)
        data, place = rows_and_place(self, X, counted=False, in_batches=False, sample_weight=sample_weight)
        settings = MixtureSettings(self.method, self.n_init, self.max_iter, self.tol, self.reg)
        with session.on(place, data) as resources:
            tools = settings, resources, generator(self.random_state), listener_of(self)
            fit = fit_clusters(data, self.n_clusters, self.n_components, *tools, sample_weight)
        self._publish(fit, place, session.budget.failures)

    def _publish(self, fit: MixtureFit, place: Placement, retries: tuple[str, ...] = ()) -> None:
        """Set the fitted attributes, where the data came from; the only place that does."""
        without, optional = ("labels", "model"), ("log_likelihoods", "errors")
        properties = ("n_clusters", "n_components", "device")
        publish(self, fit, place, retries, without=without, optional=optional, properties=properties)
        self.labels_: Array = to_caller(fit.labels, place.origin)

    # -- rows and clusters -----------------------------------------------------------------------------------------

    @row_wise("labels")
    def predict(self, X: ArrayLike | Stream) -> Array:
        """Return the cluster of every row: the most probable one, or with "hard" the one with the nearest plane.

        Parameters
        ----------
        X : array, data frame or Dask array, shape (m, d); or an iterable of batches
            A memory map, or a set of zarr or HDF5, is read by slices, as by the other methods of new rows.

        Returns
        -------
        array of int64, shape (m,), in the library of X

        Raises
        ------
        NotFittedError, ValueError

        Notes
        -----
        Cost O(m d k p).

        Examples
        --------
        >>> import numpy as np
        >>> from gpukpca import LocalPCA
        >>> X = np.random.default_rng(0).standard_normal((200, 2)) * [2.5, 0.3]
        >>> X[:80, 1] += 3.0  # two long clusters, side by side
        >>> labels = LocalPCA(n_clusters=2, random_state=0).fit(X).predict(X)
        >>> np.bincount(labels).tolist(), len(set(labels[:80].tolist()))
        ([120, 80], 1)
        """
        return to_caller(self._of_rows(X, "predict", LocalModel.labels), X)

    @row_wise("shares")
    def predict_proba(self, X: ArrayLike) -> Array:
        """Return the probability of every cluster given the row; with "hard" 1 for its own cluster, else 0.

        Parameters
        ----------
        X : array or data frame, shape (m, d)

        Returns
        -------
        array, shape (m, k), in the library of X and the dtype of fit; rows sum to 1

        Raises
        ------
        NotFittedError, ValueError
        """
        return to_caller(self._numbers(X, "predict_proba", LocalModel.memberships), X)

    @row_wise("scores")
    def transform(self, X: ArrayLike) -> Array:
        """Return the coordinates of every row in the plane of its cluster, which `predict` gives.

        They are projections on the components of that cluster, so that `inverse_transform` gives the nearest point of
        the plane; not posterior means, which shrink towards the mean.

        Parameters
        ----------
        X : array or data frame, shape (m, d)

        Returns
        -------
        array, shape (m, p), in the library of X and the dtype of fit

        Raises
        ------
        NotFittedError, ValueError
        """
        return self._output(self._numbers(X, "transform", LocalModel.coordinates), X)

    @row_wise("points", of="scores")
    def inverse_transform(self, X: ArrayLike, labels: Any = None) -> Array:
        """Return points of data space for local coordinates.

        Parameters
        ----------
        X : array, shape (m, p)
            Coordinates, such as `transform` returns.
        labels : array of int, shape (m,), optional
            The clusters in whose planes they are, such as `predict` returns. Without them a row is in the plane in
            which its coordinates are the most probable, which is a guess; `denoise` needs no labels.

        Returns
        -------
        array, shape (m, d), in the library of X and the dtype of fit

        Raises
        ------
        NotFittedError, ValueError, InvalidParameterError

        Warns
        -----
        PrecisionWarning
            Labels are missing, and there is more than one cluster.
        """

        def points(Z: Array) -> Array:
            fit = self._result
            scores = move(Z, fit.model.frame.shift)
            if labels is None and fit.n_clusters > 1:
                warn_user(
                    "coordinates do not determine their cluster, and the likeliest one is a guess. Pass the labels, "
                    "inverse_transform(Z, model.predict(X)), or call denoise(X).",
                    PrecisionWarning,
                )
            if labels is None:
                which = fit.model.likeliest_labels(scores)
            else:
                which = fit.model.check_labels(labels, int(scores.shape[0]))
            return fit.in_dtype(fit.model.points(scores, which), "The coordinates are too large.")

        return self._output(self._of_scores(X, points), X)

    @row_wise("points")
    def denoise(self, X: ArrayLike) -> Array:
        """Return the nearest point to every row in the plane of its cluster: `inverse_transform` with labels.

        Parameters
        ----------
        X : array or data frame, shape (m, d)

        Returns
        -------
        array, shape (m, d), in the library of X and the dtype of fit

        Raises
        ------
        NotFittedError, ValueError
        """
        return to_caller(self._numbers(X, "denoise", LocalModel.project), X)

    @row_wise("numbers")
    def score_samples(self, X: ArrayLike) -> Array:
        """Return the log-likelihood of every row; with "hard" minus its squared distance from the nearest plane.

        Parameters
        ----------
        X : array or data frame, shape (m, d)

        Returns
        -------
        array, shape (m,), in the library of X and the dtype of fit

        Raises
        ------
        NotFittedError, ValueError
        """
        return to_caller(self._numbers(X, "score_samples", LocalModel.values), X)

    def score(self, X: ArrayLike | Stream, y: Any = None, sample_weight: Vector | None = None) -> float:
        """Return the mean of `score_samples`, Σ w s / Σ w with weights (m,)."""
        return mean_score(self.score_samples, X, sample_weight)

    def _of_rows(self, X: Any, method: str, work: Callable[[LocalModel, Array, int | None], Array]) -> Array:
        """Return ``work(model, rows, n_jobs)`` of dense rows; see `_answer`."""
        check_is_fitted(self)
        check_dense(X, DENSE_ROWS)
        return self._answer(X, method, lambda Y: work(self._result.model, Y, self.n_jobs))

    def _numbers(self, X: Any, method: str, work: Callable[[LocalModel, Array, int | None], Array]) -> Array:
        """Return `_of_rows` in the dtype of fit; ValueError where it overflows."""
        return self._of_rows(X, method, lambda *arguments: self._result.in_dtype(work(*arguments)))

    @OnlyWhere(_without_density, AttributeError)
    def sample(self, n_samples: int = 1, *, random_state: Seed = None) -> tuple[Held, Array]:
        """Draw rows from the mixture; "hard" has no density.

        Parameters
        ----------
        n_samples : int >= 1
        random_state : None, int, RandomState or Generator
            None: that of the estimator.

        Returns
        -------
        X : array, shape (n_samples, d), in the library and dtype of fit
        labels : array of int64, shape (n_samples,)

        Raises
        ------
        NotFittedError, InvalidParameterError
        """
        check_is_fitted(self)
        COUNT.check_argument("n_samples", n_samples)
        rng = generator(self.random_state if random_state is None else random_state)
        with device_context(self._result.components):
            rows, labels = self._result.model.sample(int(n_samples), rng)
            return move(self._result.in_dtype(rows), self.components_), to_caller(labels, self.components_)
