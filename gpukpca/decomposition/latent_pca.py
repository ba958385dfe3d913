"""Estimators of latent variable models: probabilistic PCA, and Bayesian PCA that finds its number of components."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Generic, Literal, Self, TypeVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from gpukpca._rules import COUNT
from gpukpca._typing import Array, ArrayLike
from gpukpca.algorithms.latent.fit import LatentTask, fit_em, fit_spectrum, is_direct
from gpukpca.algorithms.latent.memory import check_em_memory
from gpukpca.algorithms.latent.model import LatentFit, denoise, impute, points_of, scores_of
from gpukpca.algorithms.latent.priors import ARDPrior, FlatPrior, LatentPrior
from gpukpca.algorithms.latent.settings import LatentSettings
from gpukpca.algorithms.resources import Resources
from gpukpca.backend import blocking
from gpukpca.backend.device import device_context
from gpukpca.backend.namespace import from_host, is_sparse, item_size, move, overflow_allowed
from gpukpca.backend.random import Seed, generator
from gpukpca.data.batches import is_set, is_sliced, is_stream
from gpukpca.data.place import Placement, to_caller
from gpukpca.decomposition._base import ArrayTransformer, LatentAttributes, publish
from gpukpca.decomposition._batches import PlacedBatches, batches_of, repeated
from gpukpca.decomposition._callbacks import listener_of
from gpukpca.decomposition._gaussian import WithLikelihood
from gpukpca.decomposition._model_files import Saved
from gpukpca.decomposition._parameters import MemoryLimit, Verbose
from gpukpca.decomposition._row_wise import row_wise
from gpukpca.decomposition._session import FitSession, fit_session
from gpukpca.decomposition._validation import checked_scores, new_data, training_data

# The name of the solver for complete data in one array.
Direct = TypeVar("Direct", bound=str)


class LatentVariableEstimator(LatentAttributes, Saved, WithLikelihood, ArrayTransformer, Generic[Direct]):
    """x | z ~ N(W z + μ, σ² I); a subclass sets the prior of W and names its `direct` solver."""

    direct: str
    _result: LatentFit

    def __init__(
        self,
        n_components: int | None = None,
        *,
        solver: Literal["auto", "em"] | Direct = "auto",
        ddof: Literal[0, 1] = 1,
        tol: float | None = None,
        max_iter: int = 1000,
        batch_size: int | None = None,
        random_state: Seed = None,
        device: str | None = None,
        memory_limit: MemoryLimit = None,
        n_jobs: int | None = None,
        verbose: Verbose = 0,
    ) -> None:
        self.n_components = n_components
        self.solver = solver
        self.ddof = ddof
        self.tol = tol
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.random_state = random_state
        self.device = device
        self.memory_limit = memory_limit
        self.n_jobs = n_jobs
        self.verbose = verbose

    # -- fitting ---------------------------------------------------------------------------------------------------

    def fit(self, X: ArrayLike | Iterable[ArrayLike], y: Any = None) -> Self:
        """Fit the model to X.

        Parameters
        ----------
        X : array, CSR matrix or data frame, shape (n, d); or an iterable of such batches
            NaN, masked entries and pandas' missing values are entries that were not observed. A memory map, or a set of
            zarr or HDF5, is read a batch at a time. An iterable must give the same batches in every pass: a list, or an
            object with ``__iter__``, but not a generator.
        y : ignored

        Returns
        -------
        self
        """
        with fit_session(self, X) as session:
            data = None if is_stream(X) else self._rows(X)
            direct = is_direct(data, self.solver, self.direct)
            attempt = partial(self._fit_direct, data) if direct else partial(self._fit_em, X)
            session.retry(attempt)
        return self

    def _rows(self, X: Any) -> Any:
        """Return the checked rows of one data set; those of a set of zarr or HDF5 are read by slices."""
        if is_set(X):
            return batches_of(self, X, lambda _, d: self._rows_of_a_batch(X, d), 1, missing=True)
        return training_data(self, X, missing=True)

    def _prior(self) -> LatentPrior:
        """Return the prior of the loadings."""
        raise NotImplementedError

    def _fit_direct(self, data: Any, session: FitSession) -> None:
        place = data.place if isinstance(data, PlacedBatches) else session.place(data)
        with session.on(place, data) as resources:
            fit = fit_spectrum(data, self._task(resources))
        self._publish(fit, place, session.budget.failures)

    def _fit_em(self, X: Any, session: FitSession) -> None:
        batches = repeated(batches_of(self, X, lambda _, d: self._rows_of_a_batch(X, d), 1, missing=True), "EM")
        with device_context(batches.like):
            resources = session.resources(batches.place)
            task, d = self._task(resources), int(self.n_features_in_)
            copied = batches.place.moved or is_sparse(X) or is_sliced(X)
            batch_bytes = batches.largest * d * item_size(batches.dtype) if copied else 0
            check_em_memory(resources, batches.n_rows, d, task.max_count, batch_bytes)
            fit = fit_em(_held(batches, resources), task)
        self._publish(fit, batches.place, session.budget.failures)

    def _task(self, resources: Resources) -> LatentTask:
        tol = None if self.tol is None else float(self.tol)
        settings = LatentSettings(ddof=int(self.ddof), tol=tol, max_iter=int(self.max_iter))
        rng, listener = generator(self.random_state), listener_of(self)
        return LatentTask(self.n_components, self._prior(), settings, resources, rng, listener)

    def _publish(self, fit: LatentFit, place: Placement, retries: tuple[str, ...] = ()) -> None:
        """Set the fitted attributes, where the data came from; the only place that does."""
        publish(
            self,
            fit,
            place.to_origin,
            without=("model",),
            optional=("log_likelihoods", "precisions"),
            properties=("n_components", "device"),
        )
        self.fallbacks_: tuple[str, ...] = (*place.notes, *retries, *fit.fallbacks)
        self._result = fit

    def _rows_of_a_batch(self, X: Any, d: int) -> int:
        """Return the rows of a batch: all of those in memory that need no conversion."""
        if self.batch_size is not None:
            return int(self.batch_size)
        in_place = self.device is None and not is_sparse(X) and not is_sliced(X)
        return max(int(X.shape[0]), 1) if in_place and hasattr(X, "shape") else max(1, blocking.EM_BATCH_ENTRIES // d)

    # -- the latent variables --------------------------------------------------------------------------------------

    @row_wise("scores")
    def transform(self, X: ArrayLike, out: np.ndarray | None = None) -> Array:
        """Return the posterior means of z: ``M⁻¹ Wᵀ (x - μ)``, of the observed part where entries are missing.

        Parameters
        ----------
        X : array, CSR matrix or data frame, shape (m, d)
            A memory map, or a set of zarr or HDF5, is read by slices. A row without any observed entry gets the mean of
            z, 0.
        out : NumPy array, shape (m, p), optional
            The scores are written here, slice by slice. Use a memory map for more scores than memory holds.

        Returns
        -------
        array, shape (m, p), in the library of X and the dtype of fit; `out` where it is given

        Raises
        ------
        NotFittedError, ValueError

        Notes
        -----
        Cost O(m d p) for complete rows, O(m (d p² + p³)) for the others.
        """
        return self._output(self._answer(X, "transform", scores_of), X)

    def posterior_covariance(self, X: Any = None) -> Array:
        """Return the covariance σ² M⁻¹ of z given x, the same for all complete rows.

        Parameters
        ----------
        X : array, CSR matrix or data frame, shape (m, d), optional
            Every row with missing entries has a larger covariance.

        Returns
        -------
        array
            Shape (p, p) without X, (m, p, p) with it.

        Raises
        ------
        NotFittedError, ValueError
        """
        check_is_fitted(self)
        if X is None:
            return from_host(np.diag(self._result.model.posterior_variances), self.components_)
        covariances = self._answer(
            X, "posterior_covariance", lambda fit, Y: fit.in_dtype(fit.model.posterior_covariances(Y))
        )
        return to_caller(covariances, X)

    @row_wise("points", of="scores")
    def inverse_transform(self, X: ArrayLike) -> Array:
        """Return the mean of x for given z: ``W z + μ``.

        Parameters
        ----------
        X : array, shape (m, p)
            Values of z, such as `transform` returns.

        Returns
        -------
        array, shape (m, d), in the library of X and the dtype of fit

        Raises
        ------
        NotFittedError, ValueError
        """
        check_is_fitted(self)
        with device_context(self._result.components), overflow_allowed():
            Z = checked_scores(X, self.components_, self._result.n_components)
            return self._output(points_of(self._result, Z), X)

    @row_wise("points")
    def denoise(self, X: ArrayLike) -> Array:
        """Return the mean of x without its noise, given its observed entries: ``W ⟨z⟩ + μ``, missing entries included.

        Parameters
        ----------
        X : array, CSR matrix or data frame, shape (m, d)

        Returns
        -------
        array, shape (m, d), in the library of X and the dtype of fit

        Raises
        ------
        NotFittedError, ValueError
        """
        return self._output(self._answer(X, "denoise", denoise), X)

    def impute(self, X: ArrayLike) -> Array:
        """Return X with the means of missing entries given the others in their place.

        Parameters
        ----------
        X : array, CSR matrix or data frame, shape (m, d)

        Returns
        -------
        array, shape (m, d), in the library and dtype of X

        Raises
        ------
        NotFittedError, ValueError

        Examples
        --------
        >>> import numpy as np
        >>> from gpukpca import ProbabilisticPCA
        >>> t = np.linspace(-1.0, 1.0, 50)
        >>> X = np.stack([t, 2.0 * t, 3.0 * t], axis=1) + 0.01 * np.random.default_rng(0).standard_normal((50, 3))
        >>> model = ProbabilisticPCA(1).fit(X)
        >>> model.impute(np.array([[0.5, np.nan, 1.5]])).round(1)
        array([[0.5, 1. , 1.5]])
        """
        return self._output(self._answer(X, "impute", impute), X)

    def _log_densities(self, X: Any) -> Array:
        densities = self._answer(X, "score_samples", lambda fit, Y: fit.in_dtype(fit.model.log_likelihood(Y)))
        return to_caller(densities, X)

    def sample(self, n_samples: int = 1, *, random_state: Seed = None) -> Array:
        """Draw rows from the model; the random numbers are drawn on the host.

        Parameters
        ----------
        n_samples : int >= 1
        random_state : None, int, RandomState or Generator
            None: that of the estimator.

        Returns
        -------
        array, shape (n_samples, d), in the library and dtype of fit

        Raises
        ------
        NotFittedError, InvalidParameterError

        Examples
        --------
        >>> import numpy as np
        >>> from gpukpca import ProbabilisticPCA
        >>> X = np.random.default_rng(0).standard_normal((200, 3)) * [3.0, 1.0, 1.0]
        >>> drawn = ProbabilisticPCA(1).fit(X).sample(2000, random_state=0)
        >>> bool(np.allclose(drawn.std(axis=0), X.std(axis=0), rtol=0.1))
        True
        """
        check_is_fitted(self)
        COUNT.check_argument("n_samples", n_samples)
        rng = generator(self.random_state if random_state is None else random_state)
        with device_context(self._result.components), overflow_allowed():
            rows = self._result.in_dtype(self._result.model.sample(int(n_samples), rng))
            return move(rows, self.components_)

    def _answer(self, X: Any, method: str, work: Callable[[LatentFit, Array], Array]) -> Array:
        """Return ``work(fit, rows)`` of checked rows, where the fit is."""
        check_is_fitted(self)
        Y = new_data(self, X, self.components_, method, missing=True)
        with device_context(self._result.components), overflow_allowed():
            return work(self._result, Y)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        return tags


def _held(batches: PlacedBatches, resources: Resources) -> Iterable[Array]:
    """Return the batches, kept on the device of the fit if they are moved in every step and fill at most half of it."""
    if not batches.place.moved or batches.n_rows is None:
        return batches
    first = next(iter(batches))
    needed = batches.n_rows * int(first.shape[1]) * item_size(first.dtype)
    return list(batches) if 2 * needed <= resources.allowed() else batches


class ProbabilisticPCA(LatentVariableEstimator[Literal["closed_form"]]):
    """Probabilistic PCA, x | z ~ N(W z + μ, σ² I) with z ~ N(0, I), by maximum likelihood; NaN is a missing entry.

    Works on NumPy arrays, memory maps, SciPy CSR matrices, pandas data frames, on CuPy, PyTorch, JAX and
    array-api-strict arrays, and on iterables of such batches; results live where the input lives, in its dtype.

    Parameters
    ----------
    n_components : None or int >= 1
        Number p, at most min(n, d), and less than d for EM. None: min(n, d) - 1, at least 1, and for EM at most 20,
        because the memory and time of a step grow with its square.
    solver : "auto", "closed_form" or "em"
        "closed_form": the spectrum of `PCA`. "em": expectation maximization, which takes missing values and batches and
        never forms the d x d covariance. "auto": "em" where X is an iterable of batches or has missing values.
    ddof : 0 or 1
        Variances over n - ddof. 0: maximum likelihood; 1: as scikit-learn's PCA. EM maximizes the likelihood, and
        multiplies its variances by n / (n - ddof) at the end.
    tol : None or float >= 0
        EM stops when a step raises the log-likelihood, divided by the number of observed entries, by no more than this,
        and turns the components out of their subspace by an angle whose sine is at most its square root. None: 1e-5,
        the angle 0.003. Directions that are mostly noise count less. 0: as far as rounding allows.
    max_iter : int >= 1
        Most steps of EM, extrapolations included.
    batch_size : None or int >= 1
        For EM: rows of an array or memory map that are read and moved to the device together. None: all of an array
        that stays where it is, else 2**22 / d.
    random_state : None, int, RandomState or Generator
        For the random start of block Krylov, and for `sample`.
    device, memory_limit, n_jobs, verbose : as in `PCA`

    Attributes
    ----------
    components_ : array (p, d)
        Unit rows; the entry of largest modulus is positive.
    explained_variance_, explained_variance_ratio_ : array (p,)
        Variances of the model along the components, σ² included, descending; their shares of the total.
    loadings_ : array (d, p)
        W = V (Λ - σ²)^½.
    noise_variance_ : float
        σ²: the mean of the d - p variances left out.
    total_variance_ : float
        Of the data where no entry is missing, else of the model.
    mean_ : array (d,)
        μ.
    n_components_, n_samples_, n_features_in_ : int
    feature_names_in_ : array of str
    n_iter_ : int
        Steps of EM, extrapolations included, also those that were undone; 1 for the closed form.
    log_likelihoods_ : array, shape (`n_iter_` + 1,)
        Only with EM: of all observed entries before every step and at the end; it never decreases.
    converged_ : bool
    solver_, device_ : str
        The method that ran, and its device.
    fallbacks_ : tuple of str
        Failures and what replaced them. Empty in most fits.

    Raises
    ------
    InvalidParameterError, MemoryBudgetError, DeviceMismatchError, ConvergenceError, ValueError, TypeError
        From `fit`, which then leaves the estimator as it was. ValueError where a row or a feature has no observed
        entry.

    Warns
    -----
    UserWarning
        n_components=None, and EM takes fewer components than possible.
    ConvergenceWarning, RankWarning, PrecisionWarning, DeviceFallbackWarning

    See Also
    --------
    BayesianPCA : Also determines the number of components.
    LocalPCA : Mixture of these models.

    Notes
    -----
    Cost: closed form as `PCA`. An EM step O(n d p) for complete rows and O(n (d p² + p³)) for rows with missing
    entries, memory O(d p²) and some panels of rows. The model assumes that entries are missing at random. EM starts
    from the components with means for missing entries, by at most 8 passes of block Krylov. With parameter expansion it
    converges as subspace iteration does on complete data: the ratio of the p-th variance to the next decides. SQUAREM
    extrapolates every second step; an extrapolation that would lower the likelihood is undone. Components beyond those
    that the data have are directions of noise. They take most of the steps, and with many missing entries the
    likelihood has several maxima in them. Statistics are accumulated in float64 also for float32 data.

    The noise variance is the maximum-likelihood one, a mean over d - p directions, where scikit-learn's PCA takes
    min(n, d) - p: the two differ for n < d. In EM it is at least 1e-12 of the largest variance.

    Tipping & Bishop, J. R. Stat. Soc. B 61 (1999) 611; Roweis, NIPS 10 (1998) 626 (EM for PCA); Liu, Rubin & Wu,
    Biometrika 85 (1998) 755 (parameter expansion); Varadhan & Roland, Scand. J. Stat. 35 (2008) 335 (SQUAREM); Ilin &
    Raiko, J. Mach. Learn. Res. 11 (2010) 1957 (missing values).

    Examples
    --------
    >>> import numpy as np
    >>> from gpukpca import ProbabilisticPCA
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((100, 2)) @ rng.standard_normal((2, 5)) + 0.1 * rng.standard_normal((100, 5))
    >>> X[3, 1] = np.nan
    >>> model = ProbabilisticPCA(n_components=2, random_state=0).fit(X)
    >>> model.solver_, bool(0.005 < model.noise_variance_ < 0.02)
    ('em', True)
    >>> bool(np.isnan(model.impute(X)).any())
    False
    """

    _result_type = LatentFit
    direct = "closed_form"

    def _prior(self) -> FlatPrior:
        return FlatPrior()


class BayesianPCA(LatentVariableEstimator[Literal["spectrum"]]):
    """Probabilistic PCA with automatic relevance determination, which prunes components and so finds their number.

    Every column of W has a prior N(0, α_i⁻¹ I), and α_i = d / ‖w_i‖² is estimated with it. Directions without support
    in the data shrink, and are pruned. The span of the data decides which ones stay, so that constant features, sums of
    others, or d >= n do not change it. Input and results as in `ProbabilisticPCA`.

    Parameters
    ----------
    n_components : None or int >= 1
        Candidates, at most min(n, d), and less than d for EM; one direction of the span of the data is always left for
        the noise. None: min(n, d) - 1, and for EM at most 20, as in `ProbabilisticPCA`.
    solver : "auto", "spectrum" or "em"
        "spectrum": EM on the variances of `PCA`, which is the same for complete data at little cost. "em": on the rows,
        with missing values or in batches. "auto": "em" where X is an iterable of batches or has missing values.
    ddof : 0 or 1
        Variances over n - ddof; see `ProbabilisticPCA`.
    tol : None or float >= 0
        "em" stops when a step raises the logarithm of likelihood times prior, divided by the number of observed
        entries, by no more than this. None: 1e-10, because candidates without support shrink slowly at first.
    max_iter : int >= 1
        Most steps on the rows.
    batch_size, random_state, device, memory_limit, n_jobs, verbose : as in `ProbabilisticPCA`

    Attributes
    ----------
    components_ : array (K, d)
        Unit rows; the entry of largest modulus is positive. K may be 0.
    n_components_ : int
        K, the components that were not pruned.
    precisions_ : array (q,)
        α of all candidates, ascending, in 1 / units of X squared; infinite where pruned.
    explained_variance_, explained_variance_ratio_ : array (K,)
        Variances of the model along the components, σ² included. They are less than those of the data, because the
        prior shortens W.
    loadings_, noise_variance_, total_variance_, mean_, n_samples_, n_iter_, converged_, solver_, device_, fallbacks_
        As in `ProbabilisticPCA`.
    log_likelihoods_ : array, shape (`n_iter_` + 1,)
        Only with "em": logarithms of likelihood times prior, up to a constant; they never decrease.
    n_features_in_, feature_names_in_

    Raises
    ------
    InvalidParameterError, MemoryBudgetError, DeviceMismatchError, ConvergenceError, ValueError, TypeError
        From `fit`, which then leaves the estimator as it was.

    Warns
    -----
    RankWarning
        No component is left: the model is N(μ, σ² I). Or the number of components is unreliable: with n_components=None
        half of the candidates or more are left although n is less than twice their number, or the noise of EM is at its
        floor.
    UserWarning
        n_components=None, and EM takes fewer candidates than possible.
    ConvergenceWarning, PrecisionWarning, DeviceFallbackWarning

    See Also
    --------
    ProbabilisticPCA : The model with a given number of components.
    gpukpca.model_selection.n_components_for : Other rules for the number of components.

    Notes
    -----
    A direction in which complete data have the variance λ (over n) stays only if (λ + σ²)² >= 4 (1 + r/n) λ σ², where r
    is the rank of the centered data, at most n - 1, by the rule of `PCA`, and σ² the noise in their span. The loadings
    and `noise_variance_` are then those of all d features, as in `ProbabilisticPCA`. Where only n_components variances
    are known, and with missing values, r is min(n - 1, d') with the d' features that vary, so that combinations of
    features are not detected. For n <= d a component has to exceed the mean variance of the others by a factor of about
    6, and the prior takes d/(n + d) of it.

    Bishop, Bayesian PCA, NIPS 11 (1998) 382. The span: Minka, Automatic choice of dimensionality for PCA, NIPS 13
    (2000) 598, whose program drops eigenvalues of 0 and lets the noise be their share of all d - K directions.

    Examples
    --------
    >>> import numpy as np
    >>> from gpukpca import BayesianPCA
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((200, 2)) @ rng.standard_normal((2, 8)) + 0.1 * rng.standard_normal((200, 8))
    >>> model = BayesianPCA().fit(X)
    >>> model.n_components_
    2
    >>> int(np.isinf(model.precisions_).sum())  # pruned candidates
    5
    """

    precisions_: Array
    _result_type = LatentFit
    direct = "spectrum"

    def _prior(self) -> ARDPrior:
        return ARDPrior(by_count=self.n_components is not None)
