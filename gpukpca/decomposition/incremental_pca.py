"""The estimator IncrementalPCA, updated batch by batch."""

from __future__ import annotations

from functools import partial
from typing import Any, Self, overload

from gpukpca._typing import Array, ArrayLike, Held, NumpyArray, NumpyRows, Real, Stream, UnknownRows, Vector, of_rows
from gpukpca.algorithms.inputs import check_no_weights, weights_of_batches
from gpukpca.algorithms.pca.incremental import (
    IncrementalFit,
    state_after,
    warn_of_equal_rows,
)
from gpukpca.algorithms.pca.model import points_of, scores_of
from gpukpca.backend import blocking
from gpukpca.backend.parallel import single_threaded_blas
from gpukpca.data.batches import is_set
from gpukpca.data.place import Placement
from gpukpca.decomposition._base import IncrementalPCAAttributes, publish
from gpukpca.decomposition._batches import batches_of, repeated
from gpukpca.decomposition._callbacks import listener_of
from gpukpca.decomposition._gaussian import GaussianEstimator
from gpukpca.decomposition._parameters import MemoryLimit, Verbose
from gpukpca.decomposition._row_wise import row_wise
from gpukpca.decomposition._session import FitSession, fit_in_session, restore_on_error
from gpukpca.decomposition._validation import check_dense

# scikit-learn's rule for the rows of a batch; and the batches from which on they are longer, up to a size in bytes.
ROWS_A_FEATURE, BATCHES = 5, 100
# Why `partial_fit` takes no sparse rows.
DENSE_BATCHES = (
    "IncrementalPCA.partial_fit does not support sparse input. Either convert data to dense or use "
    "IncrementalPCA.fit to do so in batches."
)


class IncrementalPCA(IncrementalPCAAttributes[Held], GaussianEstimator[Held]):
    """PCA in batches, a drop-in for `sklearn.decomposition.IncrementalPCA`.

    Works on NumPy arrays, memory maps, SciPy sparse matrices, pandas data frames, on CuPy, PyTorch, JAX and
    array-api-strict arrays, and on iterables of such batches; results live where the input lives.

    Parameters
    ----------
    n_components : None or int >= 1
        None: min(n, d), n the rows of the first batch.
    whiten : bool
        Divide the scores by their standard deviations; those of a component without variance are 0.
    copy : bool
        Ignored, as in scikit-learn's signature; X is never written to.
    batch_size : None or int >= 1
        Rows of a batch in `fit`. None: 5 d, as in scikit-learn, and for more than 500 d rows a hundredth of them, up to
        8 MiB in float64. The batches of an iterable and the chunks of a Dask array keep their sizes.
    center : bool
        False: components are right singular vectors of X itself, as in `PCA`: `mean_` is 0, `var_` is Σ x²/n, the total
        ``||X||_F² / (n - 1)``, and there is no covariance. All batches have the same `center`.
    device : None, "auto", "cpu", "cuda" or "cuda:N"
        Where to compute. None: where the batches are. "cuda": batches on the host are copied one at a time.
    memory_limit : None, int or str
        Bytes that fit may allocate, one batch included, such as "4GiB"; None: 85 % of what is free. Checked before the
        work on a batch. The result does not depend on it.
    verbose : int or callable
        1 prints a line a batch to the standard error. A callable receives `Progress` events.

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
    n_samples_seen_ : int, or float where weights are fractions
    n_components_ : int
    batch_size_ : int
        Rows of a batch in a `fit` of as many rows as were seen.
    device_ : str
        The device that computed.
    n_features_in_, feature_names_in_

    Raises
    ------
    InvalidParameterError, DeviceMismatchError, MemoryBudgetError, ConvergenceError, ValueError, TypeError
        `fit` or `partial_fit` fails; the estimator stays unchanged.

    Warns
    -----
    RankWarning
        All rows are equal.
    PrecisionWarning
        The variances of tiny data underflow in their dtype; all other results are right.

    See Also
    --------
    PCA : Exact PCA, of an iterable of batches too.

    Notes
    -----
    Cost of a batch of b rows: O(b d min(b, d)), memory O((b + p) d). What a batch drops is lost, so the result depends
    on the batches and their order; `PCA` of the same batches is exact. Statistics are accumulated in float64 also for
    float32 data. Means of batches are rounded: data at c standard deviations from 0 have variances with a relative
    error of about 1e-16 c.

    Ross, Lim, Lin & Yang, Int. J. Computer Vision 77 (2008) 125; Chan, Golub & LeVeque, The American Statistician 37
    (1983) 242 (moments by batches). Unlike scikit-learn's, `get_covariance` is the same with and without whitening, and
    one row alone has variance 0, not NaN.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from gpukpca import IncrementalPCA
    >>> X = load_digits().data
    >>> IncrementalPCA(n_components=5, batch_size=200).fit(X).n_samples_seen_
    1797
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
        center: bool = True,
        device: str | None = None,
        memory_limit: MemoryLimit = None,
        verbose: Verbose = 0,
    ) -> None:
        self.n_components = n_components
        self.whiten = whiten
        self.copy = copy
        self.batch_size = batch_size
        self.center = center
        self.device = device
        self.memory_limit = memory_limit
        self.verbose = verbose

    # -- fitting ---------------------------------------------------------------------------------------------------

    @overload
    def fit(self, X: UnknownRows, y: Any = None, sample_weight: Vector | None = None) -> IncrementalPCA[Any]: ...
    @overload
    def fit(
        self, X: NumpyRows[Real], y: Any = None, sample_weight: Vector | None = None
    ) -> IncrementalPCA[NumpyArray[Real]]: ...
    @overload
    def fit(self, X: ArrayLike | Stream, y: Any = None, sample_weight: Vector | None = None) -> IncrementalPCA[Any]: ...
    def fit(self, X: ArrayLike | Stream, y: Any = None, sample_weight: Vector | None = None) -> IncrementalPCA:
        """Fit the model to all batches of X, from the beginning.

        Parameters
        ----------
        X : array, sparse matrix, data frame or Dask array, shape (n, d); or an iterable of batches, such as `Batches`
            A memory map, or a set of zarr or HDF5, is read a batch at a time. The chunks of a Dask array are its
            batches, of which this process holds one at a time. The first batches are joined until they have as many
            rows as n_components.
        y : ignored
        sample_weight : array, shape (n,), optional
            How often each row counts, as in `PCA.fit`. With an iterable of batches call `partial_fit` for each.

        Returns
        -------
        IncrementalPCA
            The estimator itself.
        """
        return fit_in_session(self, X, partial(self._update, X, sample_weight, False))

    @of_rows
    def fit_transform(self, X: ArrayLike | Stream, y: Any = None, sample_weight: Vector | None = None) -> Array:
        """Fit, and return the scores of X, shape (n, p); see `fit` and `transform`."""
        with restore_on_error(self):  # an object whose __iter__ gives one iterator has no batches left after the fit
            return self.fit(repeated(X, "fit_transform"), y, sample_weight).transform(X)

    def _update(self, X: Any, sample_weight: Any, adds: bool, session: FitSession) -> Self:
        """Fit the batches of X; where it `adds`, continue the fit before, for which an array is one batch."""
        check_no_weights(X, sample_weight)
        before = self._result if adds else None
        after, state = (None, None) if before is None else (self.components_, before.state)
        # `partial_fit` of an array adds it at once, as scikit-learn's does; `fit` cuts it.
        size = (lambda n, d: n) if adds and not is_set(X) else self._rows_of_a_batch
        least = int(self.n_components or 1) if before is None else 1
        batches = batches_of(self, X, size, least=least, after=after, sample_weight=sample_weight)
        weights = weights_of_batches(X, sample_weight, batches, is_batch=adds)
        few_threads = single_threaded_blas(self.n_features_in_ <= blocking.BATCH_ONE_THREAD_UP_TO)
        with session.on(batches.place, batches), few_threads:
            settings = self.n_components, bool(self.center), self.memory_limit
            call = " for the first partial_fit call" if adds else ""
            state = state_after(state, batches, *settings, weights, listener_of(self), call)
            dtype = batches.dtype if after is None else after.dtype
            self._publish(IncrementalFit.of(state, dtype), batches.place)
            if not adds:
                warn_of_equal_rows(state)
        return self

    @overload
    def partial_fit(
        self, X: UnknownRows, y: Any = None, check_input: bool = True, sample_weight: Vector | None = None
    ) -> IncrementalPCA[Any]: ...
    @overload
    def partial_fit(
        self, X: NumpyRows[Real], y: Any = None, check_input: bool = True, sample_weight: Vector | None = None
    ) -> IncrementalPCA[NumpyArray[Real]]: ...
    @overload
    def partial_fit(
        self, X: ArrayLike | Stream, y: Any = None, check_input: bool = True, sample_weight: Vector | None = None
    ) -> IncrementalPCA[Any]: ...
    def partial_fit(
        self, X: ArrayLike | Stream, y: Any = None, check_input: bool = True, sample_weight: Vector | None = None
    ) -> IncrementalPCA:
        """Update the model with one batch, or with several.

        Parameters
        ----------
        X : array or data frame, shape (m, d); or an iterable of such batches
            An array is one batch; the first one has at least n_components rows. The batches of an iterable, such as
            `Batches`, are added in turn: all, or none on an error. A set of zarr or HDF5, and a Dask array, are read as
            by `fit`.
        y : ignored
        check_input : bool
            Ignored, as in scikit-learn's signature; X is always checked.
        sample_weight : array, shape (m,), optional
            How often each row of one batch counts; see `fit`. `n_samples_seen_` is their sum.

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
        check_dense(X, DENSE_BATCHES)
        return fit_in_session(self, X, partial(self._update, X, sample_weight, True))

    def _rows_of_a_batch(self, n: int, d: int) -> int:
        """Return the rows of a batch. Free memory, which differs between runs, must not change the last digits."""
        if self.batch_size is not None:
            return int(self.batch_size)
        return max(ROWS_A_FEATURE * d, min(n // BATCHES, blocking.UPDATE_ENTRIES // d))

    def _publish(self, fit: IncrementalFit, place: Placement) -> None:
        """Set the fitted attributes in the place of the input; nothing else sets them."""
        publish(self, fit, place, without=("state",), properties=("n_components", "device"))
        self.batch_size_: int = self._rows_of_a_batch(round(fit.n_samples_seen), int(self.n_features_in_))

    # -- new points ------------------------------------------------------------------------------------------------

    @row_wise("scores")
    def transform(self, X: ArrayLike | Stream, out: Array | None = None) -> Array:
        """Return the scores of new points.

        Parameters
        ----------
        X : array, sparse matrix or data frame, shape (m, d); or an iterable of such batches
            A memory map, or a set of zarr or HDF5, is read by slices.
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
        Cost O(m d p).
        """
        return self._output(self._answer(X, "transform", lambda Y: scores_of(self._result, Y, self.whiten)), X)

    @row_wise("points", of="scores")
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
        return self._output(self._of_scores(X, lambda Z: points_of(self._result, Z, self.whiten)), X)

    # -- scikit-learn ----------------------------------------------------------------------------------------------

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True  # fit and transform; partial_fit does not
        return tags
