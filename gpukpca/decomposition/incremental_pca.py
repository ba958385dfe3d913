"""The estimator IncrementalPCA: updated batch by batch, or exact in two or more passes."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import numpy as np
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from gpukpca._typing import Array, ArrayLike
from gpukpca.algorithms.inputs import check_place
from gpukpca.algorithms.pca.incremental import (
    BatchProjection,
    IncrementalFit,
    IncrementalState,
    add_batch,
    check_update,
    checked_count,
    warn_of_equal_rows,
)
from gpukpca.algorithms.pca.streaming import fit_exact, rows_within
from gpukpca.algorithms.placement import Placement, placement_for
from gpukpca.algorithms.progress import Progress
from gpukpca.algorithms.resources import MemoryBudget, Resources, parsed_bytes, retry_on_oom
from gpukpca.backend import blocking
from gpukpca.backend.device import device_context
from gpukpca.backend.finite import check_finite
from gpukpca.backend.namespace import is_foreign, is_sparse, item_size, overflow_allowed
from gpukpca.backend.parallel import single_threaded_blas
from gpukpca.decomposition._base import ArrayTransformer, publish
from gpukpca.decomposition._batches import PlacedBatches, batches_of, new_rows
from gpukpca.decomposition._callbacks import listener_of
from gpukpca.decomposition._dask import supports_dask
from gpukpca.decomposition._gaussian import WithGaussianModel
from gpukpca.decomposition._model_files import Saved
from gpukpca.decomposition._parameters import MemoryLimit, Verbose
from gpukpca.decomposition._session import FitSession, fit_session
from gpukpca.decomposition._validation import checked_scores, new_data, training_data
from gpukpca.exceptions import InvalidParameterError

# scikit-learn's rule for the rows of a batch.
ROWS_A_FEATURE = 5
# Attributes that only an exact fit has.
CERTIFICATE = ("residual_norms", "converged", "n_passes", "solver")


class IncrementalPCA(Saved, WithGaussianModel, ArrayTransformer):
    """PCA in batches, a drop-in for `sklearn.decomposition.IncrementalPCA`, with an exact mode.

    Works on NumPy arrays, memory maps, SciPy sparse matrices, pandas data frames, on CuPy, PyTorch, JAX and
    array-api-strict arrays, and on iterables of such batches; results live where the input lives.

    Parameters
    ----------
    n_components : None or int >= 1
        None: min(n, d), n the rows of the first batch (with ``exact=True`` of all).
    whiten : bool
        Divide the scores by their standard deviations; those of a component without variance are 0.
    copy : bool
        Ignored, as in scikit-learn's signature; X is never written to.
    batch_size : None or int >= 1
        Rows of a batch in `fit`. None: 5 d; in the exact mode at least 2**22 / d, and fewer where `memory_limit`
        requires it. The batches of an iterable keep their sizes.
    exact : bool
        False: one pass that keeps n_components after every batch. What a batch drops is lost, so the result depends on
        the batches and their order. True: the mean in a first pass, the components in one more (in about a dozen for
        d > 4096); the result is PCA of all rows.
    device : None, "auto", "cpu", "cuda" or "cuda:N"
        Where to compute. None: where the batches are. "cuda": batches on the host are copied one at a time.
    memory_limit : None, int or str
        Bytes that fit may allocate, one batch included, such as "4GiB"; None: 85 % of what is free. Checked before the
        work on a batch, in the exact mode before the first pass. The result does not depend on it.
    verbose : int or callable
        1 prints a line a batch (exact: a pass) to the standard error. A callable receives `Progress` events.

    Attributes
    ----------
    components_ : array (p, d)
        Unit rows; the entry of largest absolute value is positive.
    explained_variance_ : array (p,)
        Variances of the scores, over n - 1.
    explained_variance_ratio_ : array (p,)
        Shares of the exact total variance.
    singular_values_ : array (p,)
        Norms of the columns of scores.
    mean_, var_ : array (d,)
        Means and variances (over n) of the features, in float64 where the device has it.
    noise_variance_ : float
        Mean of the variances that are not kept (probabilistic PCA).
    total_variance_ : float
        Sum of the variances of the features, over n - 1; exact.
    n_components_, n_samples_seen_, batch_size_ : int
    device_ : str
        The device that computed.
    residual_norms_, converged_ : array (p,), bool
        Only with ``exact=True``: ``||S v - λ v||₂`` with S the covariance matrix (over n - 1), and True where all are
        within the tolerance.
    n_passes_, solver_ : int, str
        Only with ``exact=True``: passes over the data, and the solver.
    n_features_in_, feature_names_in_

    Raises
    ------
    InvalidParameterError, DeviceMismatchError, MemoryBudgetError, ConvergenceError, ValueError, TypeError
        `fit` or `partial_fit` fails; the estimator stays unchanged.

    Warns
    -----
    RankWarning
        All rows are equal.
    ConvergenceWarning
        Exact mode: residuals above the tolerance.
    PrecisionWarning
        The variances of tiny data underflow in their dtype; all other results are right.

    See Also
    --------
    PCA : PCA of data in memory or on a cluster.
    gpukpca.algorithms.fit_pca_batches : The exact fit as a function.
    gpukpca.algorithms.update_pca : One batch as a function.

    Notes
    -----
    Cost of a batch of b rows: O(b d min(b, d)), memory O((b + p) d). Exact: O(n d²), memory O(d²) and one batch, for
    d <= 4096 or p > d/5; else, and where d² does not fit, O(n d p) in each pass, memory O(d p) and one batch.
    Statistics are accumulated in float64 also for float32 data. Means of batches are rounded: data at c standard
    deviations from 0 have variances with a relative error of about 1e-16 c.

    Ross, Lim, Lin & Yang, Int. J. Computer Vision 77 (2008) 125; Chan, Golub & LeVeque, The American Statistician 37
    (1983) 242 (moments by batches). Unlike scikit-learn's, `get_covariance` is the same with and without whitening, and
    one row alone has variance 0, not NaN.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_digits
    >>> from gpukpca import PCA, IncrementalPCA
    >>> X = load_digits().data
    >>> IncrementalPCA(n_components=5, batch_size=200).fit(X).n_samples_seen_
    1797
    >>> exact = IncrementalPCA(n_components=5, exact=True).fit([X[:1000], X[1000:]])
    >>> bool(np.allclose(exact.components_, PCA(n_components=5).fit(X).components_))
    True
    """

    _result: Any = None  # an IncrementalFit after the first batch
    _result_type = IncrementalFit

    def __init__(
        self,
        n_components: int | None = None,
        *,
        whiten: bool = False,
        copy: bool = True,
        batch_size: int | None = None,
        exact: bool = False,
        device: str | None = None,
        memory_limit: MemoryLimit = None,
        verbose: Verbose = 0,
    ) -> None:
        self.n_components = n_components
        self.whiten = whiten
        self.copy = copy
        self.batch_size = batch_size
        self.exact = exact
        self.device = device
        self.memory_limit = memory_limit
        self.verbose = verbose

    # -- fitting ---------------------------------------------------------------------------------------------------

    def fit(self, X: ArrayLike | Iterable[ArrayLike], y: Any = None) -> IncrementalPCA:
        """Fit the model to all batches of X, from the beginning.

        Parameters
        ----------
        X : array, sparse matrix or data frame, shape (n, d); or an iterable of such batches
            A memory map is read a batch at a time. With ``exact=True`` an iterable must give the same batches in every
            pass: a list, or an object with ``__iter__``, but not a generator.
        y : ignored

        Returns
        -------
        IncrementalPCA
            The estimator itself.
        """
        with fit_session(self, X) as session:
            batches = batches_of(self, X, self._rows_of_a_batch, 0 if self.exact else self.n_components or 0)
            with device_context(batches.like), self._few_threads():
                attempt = partial(self._exact, batches)
                fit = session.retry(attempt) if self.exact else self._updated_by_all(batches)
                self._publish(fit, batches.place)
                warn_of_equal_rows(fit.state)
        return self

    def _updated_by_all(self, batches: PlacedBatches) -> IncrementalFit:
        listener, state = listener_of(self), None
        for number, batch in enumerate(batches):
            state = self._next_state(state, batch)
            if listener is not None:
                count = state.moments.count
                listener(Progress("batch", f"batch {number}: {count} rows", count, batches.n_rows or 0))
        if state is None:
            raise InvalidParameterError("the iterable of batches gave no batch in this pass.")
        return IncrementalFit.of(state, batches.like.dtype)

    def _exact(self, batches: PlacedBatches, session: FitSession) -> IncrementalFit:
        if batches.once:
            raise InvalidParameterError(
                "exact=True reads the batches more than once, and an iterator or generator gives them only once. Pass "
                "an array, a memory map, a list of arrays, or an object whose __iter__ starts again; or use "
                "exact=False."
            )
        d, limit = int(self.n_features_in_), session.resources(batches.place).allowed()
        return fit_exact(batches, d, self.n_components, limit, listener_of(self))

    def _can_go_on(self) -> bool:
        if self.exact:
            raise AttributeError(
                "partial_fit is not available with exact=True, which reads all rows more than once. Give all batches "
                "to fit, or use exact=False."
            )
        return True

    @available_if(_can_go_on)
    def partial_fit(self, X: ArrayLike, y: Any = None, check_input: bool = True) -> IncrementalPCA:
        """Update the model with one batch; not with ``exact=True``.

        Parameters
        ----------
        X : array or data frame, shape (m, d)
            All of it is one batch; the first one has at least n_components rows.
        y : ignored
        check_input : bool
            Ignored, as in scikit-learn's signature; X is always checked.

        Returns
        -------
        IncrementalPCA
            The estimator itself.

        Examples
        --------
        >>> from sklearn.datasets import load_digits
        >>> from gpukpca import IncrementalPCA
        >>> X = load_digits().data
        >>> model = IncrementalPCA(n_components=3)
        >>> for start in range(0, 1500, 500):
        ...     model = model.partial_fit(X[start : start + 500])
        >>> model.n_samples_seen_
        1500
        """
        with fit_session(self, X):
            if is_sparse(X):
                raise TypeError(
                    "IncrementalPCA.partial_fit does not support sparse input. Either convert data to dense or use "
                    "IncrementalPCA.fit to do so in batches."
                )
            state = None if self._result is None else self._result.state
            batch = training_data(self, X) if state is None else self._following(X)
            place = placement_for(self.device, batch)
            with device_context(place.work), self._few_threads():
                home = place.home if state is None else self.components_[:0, 0]
                state = self._next_state(state, place.to_work(batch))
                self._publish(IncrementalFit.of(state, home.dtype), Placement(place.work, home))
        return self

    def _following(self, X: Any) -> Array:
        """Return a checked batch in the library of the ones before."""
        check_place("the batch", X if is_foreign(X) else np.empty(0), "the first one", self.components_)
        return new_data(self, X, self.components_, "partial_fit")

    def _next_state(self, state: IncrementalState | None, batch: Array) -> IncrementalState:
        """Return the state after one more batch, within the memory allowed."""
        rows, d = map(int, batch.shape)
        p, item = checked_count(self.n_components, state, rows, d), item_size(batch.dtype)
        fewest = p if state is None and self.n_components is not None else 1

        budget = MemoryBudget(self.memory_limit, batch)

        def attempt() -> IncrementalState:
            check_update(rows, d, p, fewest, item, Resources.within(budget, Placement(batch, batch), None))
            return add_batch(state, batch, p)

        return retry_on_oom(attempt, budget)

    def _few_threads(self) -> AbstractContextManager[None]:
        most = blocking.EXACT_ONE_THREAD_UP_TO if self.exact else blocking.BATCH_ONE_THREAD_UP_TO
        return single_threaded_blas(self.n_features_in_ <= most)

    def _rows_of_a_batch(self, n: int, d: int) -> int:
        """Return the rows of a batch. Free memory, which differs between runs, must not change the last digits."""
        if self.batch_size is not None:
            return int(self.batch_size)
        if not self.exact:
            return ROWS_A_FEATURE * d
        usual = max(ROWS_A_FEATURE * d, blocking.EXACT_BATCH_ENTRIES // d)
        if self.memory_limit is None:
            return usual
        return min(usual, rows_within(parsed_bytes(self.memory_limit), d, min(d, self.n_components or n)))

    def _publish(self, fit: IncrementalFit, place: Placement) -> None:
        """Set the fitted attributes in the place of the input; nothing else sets them."""
        publish(self, fit, place.to_home, without=("state",), optional=CERTIFICATE)
        self.n_components_: int = fit.n_components
        self.device_: str = fit.device
        self.batch_size_: int = self._rows_of_a_batch(fit.n_samples_seen, int(self.n_features_in_))
        self._result = fit

    @property
    def _projection(self) -> BatchProjection:
        return self._result.state.projection(self.components_, self.mean_)

    # -- new points ------------------------------------------------------------------------------------------------

    @supports_dask("scores")
    def transform(self, X: ArrayLike) -> Array:
        """Return the scores of new points.

        Parameters
        ----------
        X : array, sparse matrix or data frame, shape (m, d)
            A memory map is read by panels of rows.

        Returns
        -------
        array, shape (m, p), in the library of X and the dtype of fit

        Raises
        ------
        NotFittedError, ValueError

        Notes
        -----
        Cost O(m d p).
        """
        Y = new_rows(self, X, "transform")
        with device_context(self.components_), overflow_allowed():
            scores = self._projection.transform(Y, whiten=self.whiten)
            check_finite(scores, "The new points are too large.", "The array of scores")
            return self._delivered(scores, X)

    @supports_dask("points", of="scores")
    def inverse_transform(self, X: ArrayLike) -> Array:
        """Return the points of given scores.

        Parameters
        ----------
        X : array, shape (m, p)

        Returns
        -------
        array, shape (m, d), in the library of X and the dtype of fit

        Raises
        ------
        NotFittedError, ValueError
        """
        check_is_fitted(self)
        with device_context(self.components_), overflow_allowed():
            Z = checked_scores(X, self.components_, self.n_components_)
            points = self._projection.inverse_transform(Z, whiten=self.whiten)
            check_finite(points, "The scores are too large.", "The array of points")
            return self._delivered(points, X)

    # -- scikit-learn ----------------------------------------------------------------------------------------------

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True  # fit and transform; partial_fit does not
        return tags
