"""Base of the estimators of latent variable models."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Generic, Literal, Protocol, Self, TypeVar, overload

import numpy as np
from sklearn.utils.validation import check_is_fitted

from gpukpca._rules import COUNT
from gpukpca._typing import Array, ArrayLike, Held, NumpyArray, NumpyRows, Stream, UnknownRows, Vector
from gpukpca.algorithms.latent.fit import LatentTask, fit_em
from gpukpca.algorithms.latent.memory import EMMemory
from gpukpca.algorithms.latent.model import LatentFit, denoise, impute, points_of, scores_of
from gpukpca.algorithms.latent.priors import LatentPrior
from gpukpca.algorithms.latent.spectrum import fit_spectrum, is_direct, plan_of_spectrum
from gpukpca.backend import blocking
from gpukpca.backend.device import device_context
from gpukpca.backend.namespace import from_host, is_sparse, move, overflow_allowed
from gpukpca.backend.random import Seed, generator
from gpukpca.data.batches import BatchedRows, is_sliced
from gpukpca.data.place import Placement, to_caller
from gpukpca.decomposition._base import LatentAttributes, publish
from gpukpca.decomposition._batches import cut_rows, held_batches, slice_within, training_rows, without_weight_0
from gpukpca.decomposition._callbacks import listener_of
from gpukpca.decomposition._gaussian import LikelihoodEstimator
from gpukpca.decomposition._parameters import MemoryLimit, Verbose
from gpukpca.decomposition._row_wise import row_wise
from gpukpca.decomposition._session import FitSession, fit_in_session

# The name of the solver for complete data in one array.
Direct = TypeVar("Direct", bound=str)
# A fitted estimator with arrays of any library, and with those of NumPy in both precisions.
OfAny = TypeVar("OfAny", covariant=True)
OfSingle = TypeVar("OfSingle", covariant=True)
OfDouble = TypeVar("OfDouble", covariant=True)


class FitOfRows(Protocol[OfAny, OfSingle, OfDouble]):
    """The method `fit`, for type checkers: the attributes of NumPy rows are NumPy arrays."""

    @overload
    def __call__(self, X: UnknownRows, y: Any = None, sample_weight: Vector | None = None) -> OfAny: ...
    @overload
    def __call__(self, X: NumpyArray[np.float32], y: Any = None, sample_weight: Vector | None = None) -> OfSingle: ...
    @overload
    def __call__(self, X: NumpyRows[np.float64], y: Any = None, sample_weight: Vector | None = None) -> OfDouble: ...
    @overload
    def __call__(self, X: ArrayLike | Stream, y: Any = None, sample_weight: Vector | None = None) -> OfAny: ...


class LatentVariableEstimator(LatentAttributes[Held], LikelihoodEstimator[Held], Generic[Direct, Held]):
    """x | z ~ N(W z + μ, σ² I); a subclass sets the prior of W and names its `_direct` solver."""

    _direct: str
    _result: LatentFit
    _on_cluster = False

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

    def fit(self, X: ArrayLike | Stream, y: Any = None, sample_weight: Vector | None = None) -> Self:
        """Fit the model to X.

        Parameters
        ----------
        X : array, CSR matrix or data frame, shape (n, d); or an iterable of such batches
            NaN, masked entries and pandas' missing values are entries that were not observed. A memory map, or a set of
            zarr or HDF5, is read a batch at a time. An iterable must give the same batches in every pass: `Batches`, or
            an object with ``__iter__``, but not a generator.
        y : ignored
        sample_weight : array, shape (n,), optional
            How often each row counts, as in `gpukpca.PCA.fit`: the likelihood is Π p(x)^w, and variances have
            Σ w - ddof degrees of freedom. The prior of `BayesianPCA` weighs less beside larger weights.

        Returns
        -------
        self
        """
        fit_in_session(self, X, partial(self._fit, X, sample_weight))
        return self

    def _prior(self) -> LatentPrior:
        """Return the prior of the loadings."""
        raise NotImplementedError

    def _fit(self, X: Any, sample_weight: Any, session: FitSession) -> None:
        """Fit once: complete rows by their spectrum, all others by EM."""
        size = partial(self._rows_of_a_batch, X)
        rows = training_rows(self, X, type(self).__name__, size, missing=True, sample_weight=sample_weight)
        rows, weights = without_weight_0(self, rows, sample_weight, size)
        batches: Any = rows if isinstance(rows, BatchedRows) else cut_rows(self, rows, size)
        place = session.place(batches)
        resources, tol = session.resources(place), None if self.tol is None else float(self.tol)
        how, rng = (int(self.ddof), tol, int(self.max_iter)), generator(self.random_state)
        task = LatentTask(self.n_components, self._prior(), *how, resources, rng, listener_of(self), weights)
        em, chosen = EMMemory(resources, batches, place.moved or _is_copied(X)), None
        if self.solver != "em":  # the plan comes before the entries are read
            chosen = plan_of_spectrum(rows, task, em, or_em=self.solver == "auto")
        if chosen is not None and not is_direct(rows, self.solver, self._direct):
            chosen = None
        with session.on(place, batches if chosen is None else rows):
            if chosen is None:
                em.check(task.max_count)
            fit = fit_spectrum(rows, task, chosen) if chosen else fit_em(held_batches(batches, resources), task)
        self._publish(fit, place, session.budget.failures)

    def _publish(self, fit: LatentFit, place: Placement, retries: tuple[str, ...] = ()) -> None:
        """Set the fitted attributes, where the data came from; the only place that does."""
        optional, properties = ("log_likelihoods", "precisions"), ("n_components", "device")
        publish(self, fit, place, retries, without=("model",), optional=optional, properties=properties)

    def _rows_of_a_batch(self, X: Any, n: int, d: int) -> int:
        """Return the rows of a batch of X (n, d): all of those in memory that need no conversion."""
        if self.batch_size is not None:
            return int(self.batch_size)
        stays = self.device is None and hasattr(X, "shape") and not _is_copied(X)
        # Of batches that are copied, one at a time is in memory.
        return n if stays else max(1, min(blocking.EM_BATCH_ENTRIES // d, slice_within(self, d)))

    # -- the latent variables --------------------------------------------------------------------------------------

    @row_wise("scores")
    def transform(self, X: ArrayLike | Stream, out: Array | None = None) -> Array:
        """Return the posterior means of z: ``M⁻¹ Wᵀ (x - μ)``, of the observed part where entries are missing.

        Parameters
        ----------
        X : array, CSR matrix or data frame, shape (m, d); or an iterable of such batches
            A memory map, or a set of zarr or HDF5, is read by slices. A row without any observed entry gets the mean of
            z, 0.
        out : array, shape (m, p), optional
            The scores are written here, slice by slice: a NumPy array, or one on the device where the model computes.
            Use a memory map for more scores than memory holds.

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
        return self._output(self._of_rows(X, "transform", scores_of), X)

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
        return self._posterior_covariances(X)

    @row_wise()
    def _posterior_covariances(self, X: Any) -> Array:
        """Return `posterior_covariance` of every row."""
        covariances = self._of_rows(
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
        return self._output(self._of_scores(X, lambda Z: points_of(self._result, Z)), X)

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
        return self._output(self._of_rows(X, "denoise", denoise), X)

    @row_wise("rows")
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
        return self._output(self._of_rows(X, "impute", impute), X)

    def _log_densities(self, X: Any) -> Array:
        return self._of_rows(X, "score_samples", lambda fit, Y: fit.in_dtype(fit.model.log_likelihood(Y)))

    def sample(self, n_samples: int = 1, *, random_state: Seed = None) -> Held:
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

    def _of_rows(self, X: Any, method: str, work: Callable[[LatentFit, Array], Array]) -> Array:
        """Return ``work(fit, rows)`` of rows that may have missing entries; see `_answer`."""
        return self._answer(X, method, lambda Y: work(self._result, Y), missing=True)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        return tags


def _is_copied(X: Any) -> bool:
    """Return whether batches of X are new arrays: those of sparse rows, and those of a file."""
    return is_sparse(X) or is_sliced(X)
