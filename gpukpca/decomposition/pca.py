"""PCA as an estimator of scikit-learn over `gpukpca.algorithms.pca`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, overload

from gpukpca._typing import (
    Array,
    ArrayLike,
    HasShape,
    Held,
    NumpyArray,
    NumpyRows,
    Real,
    Stream,
    UnknownRows,
    Vector,
    of_rows,
)
from gpukpca.algorithms.pca.fit import fit_rows
from gpukpca.algorithms.pca.gaussian import GaussianModel
from gpukpca.algorithms.pca.model import PCAFit, log_densities_of, points_of, scores_of
from gpukpca.algorithms.pca.planning import PCATask, plan_of
from gpukpca.algorithms.pca.settings import RankRequest, SVDSolver
from gpukpca.algorithms.plan import Plan
from gpukpca.backend.device import on_its_device
from gpukpca.backend.random import Seed
from gpukpca.data.place import Placement, comes_in_batches
from gpukpca.decomposition._base import PCAAttributes, publish
from gpukpca.decomposition._batches import rows_and_place
from gpukpca.decomposition._dask import check_no_data_frames
from gpukpca.decomposition._gaussian import LikelihoodEstimator
from gpukpca.decomposition._interop import PCAPeer
from gpukpca.decomposition._parameters import (
    CheckpointFolder,
    Devices,
    MemoryLimit,
    Normalizer,
    Power,
    Verbose,
)
from gpukpca.decomposition._plans import WithPlan
from gpukpca.decomposition._row_wise import row_wise
from gpukpca.decomposition._session import FitSession, fit_in_session, pca_settings, pca_tools
from gpukpca.distributed.rows import is_dask_array


class PCA(PCAAttributes[Held], PCAPeer, WithPlan, LikelihoodEstimator[Held]):
    """Principal component analysis, a drop-in for `sklearn.decomposition.PCA`.

    Works on NumPy arrays, memory maps, SciPy CSR matrices, pandas data frames, and on CuPy, PyTorch, JAX and
    array-api-strict arrays; results live where the input lives, in its dtype. `fit` reads iterables of such batches,
    and sets of zarr or HDF5, batch by batch in every pass; "dual" alone needs all of them in memory. The rows of a Dask
    array stay on the workers of its cluster; fitted attributes are then NumPy arrays, and results for new rows are Dask
    arrays.

    Parameters
    ----------
    n_components : None, int, float in (0, 1) or "mle"
        None: min(n, d), less 1 with "arpack". A share: the smallest number that holds more than this share of the
        variance; "randomized" and "arpack" add components until their sum exceeds it, which is exact as the total is
        known. "mle": Minka's choice, for n >= d.
    copy : bool
        Ignored, as in scikit-learn's signature; X is never written to.
    whiten : bool
        Scale the scores to variance 1; those of a component without variance are 0.
    svd_solver : "auto", "covariance_eigh", "dual", "full", "tsqr", "randomized" or "arpack"
        "covariance_eigh": eigenproblem of the features, d x d. "dual": of the samples, n x n. "full": LAPACK's SVD of
        the centered data, on a cluster of their triangular factor; "tsqr" is dask-ml's name for it. "randomized": block
        Krylov on the smaller side, matrix-free, which stops by residuals; "arpack": the same to rounding. "auto":
        "full" up to 500 x 500; "dual" where n < d; "covariance_eigh" otherwise, and "randomized" where d > 2000 and few
        components are requested, for large sparse data, and where memory is short.
    tol : float in [0, 1)
        For "randomized" and "arpack": bound on the residuals ``||ZᵀZ v - σ² v||``, relative to σ₁². 0 means 1e-8 in
        float64 and 1e-5 in float32 for "randomized", and what rounding allows for "arpack". Residuals are also at most
        1e-3 of their own σ², or a warning names the components.
    iterated_power : "auto" or int >= 0
        For "randomized": an integer q fixes the number of passes to q + 1, whatever the residuals. "auto": until `tol`
        holds.
    n_oversamples : int >= 1
        For "randomized": columns of a block beyond n_components. 10, scikit-learn's default, leaves them to the solver.
    power_iteration_normalizer : "auto", "QR", "LU" or "none"
        Ignored, as in scikit-learn's signature; blocks are always orthonormalized.
    random_state : None, int, RandomState or Generator
        Source of the random start of block Krylov.
    center : bool
        Center the features. False: components are right singular vectors of X itself, as in `TruncatedSVD`, and
        `mean_` is 0; there is no Gaussian model then (`score`, `get_covariance`, "mle"). Sparse rows stay sparse either
        way.
    scale : bool or array (d,)
        True: divide features by their standard deviations (n - 1 degrees of freedom), which gives the components of
        the correlation matrix; constant features are not divided. An array: divide by it. `transform` does the same.
        Without centering the deviations are those about 0, (Σ x² / (n - 1))^½.
    device : None, "auto", "cpu", "cuda", "cuda:N", "cuda:all" or a list such as ["cuda:0", "cuda:1"]
        Where to compute. None: where X is; see `KernelPCA`. Several GPUs share the rows.
    memory_limit : None, int or str
        Bytes that fit may allocate, such as "4GiB", a batch included; None: 85 % of what is free. Slices of a set are
        shorter under a small limit.
    n_jobs : int, optional
        Threads (NumPy). None: what BLAS, joblib and the batch system allow; -1: all CPUs.
    checkpoint : None, path or Checkpoint
        A folder to resume from, or a `gpukpca.Checkpoint` with the seconds between two checkpoints (60).
    verbose : int or callable
        1 prints the plan and a line per pass or iteration to the standard error. A callable receives `Progress` events.

    Attributes
    ----------
    components_ : array (p, d)
        Unit rows; the entry of largest absolute value is positive, the first of those equal to rounding.
    explained_variance_, explained_variance_ratio_, singular_values_ : array (p,)
        Variances with n - 1 degrees of freedom, σ² / (n - 1) of the singular values σ; their exact shares of the total.
        With ``center=False`` that is the mean square of the scores, and not their variance, as `TruncatedSVD` gives.
    total_variance_ : float
        ``||Z||_F² / (n - 1)`` of the centered, scaled rows Z; of X itself with ``center=False``.
    noise_variance_ : float
        Mean of the variances that are not kept.
    mean_ : array (d,)
    scale_ : array (d,) or None
        Divisors of the centered features.
    residual_norms_ : array (p,)
        ``||C v - λ v||₂`` with the covariance matrix C, from products: a true variance lies within this distance. Parts
        along other axes count by their squares over the gaps.
    converged_ : bool
    n_samples_ : int, or float where weights are fractions
    n_components_, n_features_in_ : int
    feature_names_in_ : array of str
    plan_ : Plan
        The solver, the reasons and the predicted memory.
    solver_, device_ : str
        The solver and the device that computed.
    fallbacks_ : tuple of str
        Attempts that failed before. Empty in most fits.

    Raises
    ------
    InvalidParameterError, MemoryBudgetError, ConvergenceError, ValueError, TypeError
        `fit` fails; the estimator stays unchanged.
    CheckpointError, OSError
        `checkpoint` holds another fit or is damaged; no such folder can be made or written to.

    Warns
    -----
    ConvergenceWarning, RankWarning, PrecisionWarning, DeviceFallbackWarning, CheckpointWarning
    GpuKPCAWarning
        One of several columns, none of which is scaled, holds more than 0.999 of the variance.

    See Also
    --------
    IncrementalPCA : PCA of batches that come once.
    KernelPCA : PCA in the feature space of a kernel.
    ProbabilisticPCA : The Gaussian model, with missing values.
    loadings, variable_correlations : What the components consist of.
    gpukpca.algorithms.fit_pca : The same fit as a function.

    Notes
    -----
    Cost: "covariance_eigh" O(n d² + d³), "dual" O(n² d + n³), "full" O(n d min(n, d)), "randomized" O(n d p) per pass.
    Data are centered before they are multiplied, with a mean accumulated in float64, and float32 products are summed
    in float64. Small variances that squares of the data lose are computed again from the data without the large ones.
    On a cluster the workers compute and sum products of their rows, and the eigenproblem is solved in this process:
    "covariance_eigh" moves at most d² items per panel of rows, never more than the data; "dual" n² to this process,
    "randomized" a block per pass to every worker and back; "full" min(n, d) d, a triangular factor for an SVD.
    The Gaussian model (`score`, `get_covariance`) describes the data, also with `whiten`, where scikit-learn's squares
    every variance.

    Jolliffe, Principal Component Analysis (2002). Musco & Musco, arXiv 1504.05477 (block Krylov).

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from gpukpca import PCA
    >>> X = load_iris().data
    >>> model = PCA(n_components=2).fit(X)
    >>> model.explained_variance_ratio_.round(3)
    array([0.925, 0.053])
    >>> model.transform(X[:3]).round(2)
    array([[-2.68,  0.32],
           [-2.71, -0.18],
           [-2.89, -0.14]])
    >>> PCA(n_components=0.99).fit(X).n_components_
    3
    """

    _result: PCAFit
    _result_type = PCAFit

    def __init__(
        self,
        n_components: float | Literal["mle"] | None = None,
        *,
        copy: bool = True,
        whiten: bool = False,
        svd_solver: SVDSolver = "auto",
        tol: float = 0.0,
        iterated_power: Power = "auto",
        n_oversamples: int = 10,
        power_iteration_normalizer: Normalizer = "auto",
        random_state: Seed = None,
        center: bool = True,
        scale: bool | HasShape | Sequence[float] = False,
        device: Devices = None,
        memory_limit: MemoryLimit = None,
        n_jobs: int | None = None,
        checkpoint: CheckpointFolder = None,
        verbose: Verbose = 0,
    ) -> None:
        self.n_components = n_components
        self.copy = copy
        self.whiten = whiten
        self.svd_solver = svd_solver
        self.tol = tol
        self.iterated_power = iterated_power
        self.n_oversamples = n_oversamples
        self.power_iteration_normalizer = power_iteration_normalizer
        self.random_state = random_state
        self.center = center
        self.scale = scale
        self.device = device
        self.memory_limit = memory_limit
        self.n_jobs = n_jobs
        self.checkpoint = checkpoint
        self.verbose = verbose

    # -- fitting ---------------------------------------------------------------------------------------------------

    @overload
    def fit(self, X: UnknownRows, y: Any = None, sample_weight: Vector | None = None) -> PCA[Any]: ...
    @overload
    def fit(self, X: NumpyRows[Real], y: Any = None, sample_weight: Vector | None = None) -> PCA[NumpyArray[Real]]: ...
    @overload
    def fit(self, X: ArrayLike | Stream, y: Any = None, sample_weight: Vector | None = None) -> PCA[Any]: ...
    def fit(self, X: ArrayLike | Stream, y: Any = None, sample_weight: Vector | None = None) -> PCA:
        """Find the components of X.

        Parameters
        ----------
        X : array, CSR matrix, data frame or Dask array, shape (n, d); or an iterable of batches in memory
            Chunks of a Dask array may cut the columns, be empty, or be of unknown length. An iterable gives the same
            batches in every pass: `Batches`, or an object with ``__iter__``, but not a generator. Batches, and sets of
            zarr, HDF5 and the like, are read one after another, and made dense.
        y : ignored
        sample_weight : array, shape (n,), optional
            How often each row counts, a number >= 0: whole numbers give the fit of repeated rows, 0 that without the
            row. The mean is Σ w x / Σ w, and variances have Σ w - 1 degrees of freedom (where Σ w < 2, Σ w, with a
            warning). A factor common to all changes no axis. `n_samples_` is Σ w. Rows of weight 0 may hold anything,
            NaN too, but then have no scores in `fit_transform`.

        Returns
        -------
        PCA
            The estimator itself.

        Raises
        ------
        InvalidParameterError
            Weights are negative, NaN, infinite, all 0, or not as many as rows.
        """
        fit_in_session(self, X, partial(self._fit_within, X, False, sample_weight))
        return self

    @of_rows
    @on_its_device
    def fit_transform(self, X: ArrayLike | Stream, y: Any = None, sample_weight: Vector | None = None) -> Array:
        """Fit, and return the scores of X, shape (n, p), without extra cost; see `fit` and `transform`.

        The scores of a Dask array are a lazy Dask array with the same chunks.
        """
        check_no_data_frames(self, X)
        return fit_in_session(self, X, partial(self._fit_within, X, True, sample_weight))

    def _plan(self, X: Any) -> Plan:
        """Return the plan of `fit` for X, or for a `DataShape`; called on a clone, whose `n_features_in_` it sets."""
        data, place = self._rows_and_place(X)
        rank = RankRequest.of(self.n_components, self.svd_solver, *data.shape)
        return plan_of(PCATask(data, self._resources(place), rank, pca_settings(self))).plan

    def _fit_within(self, X: Any, with_scores: bool, sample_weight: Any, session: FitSession) -> Array | None:
        """Fit once; return the scores in the library of the data."""
        # A row that counts for nothing may hold anything, but its scores may not.
        data, place = self._rows_and_place(X, sample_weight=None if with_scores else sample_weight)
        is_lazy = with_scores and (is_dask_array(X) or comes_in_batches(X))  # scores are not held with the rows
        with session.on(place, data) as resources:
            how = pca_tools(self, data, sample_weight) | {"with_scores": with_scores and not is_lazy}
            fit = fit_rows(data, self.n_components, pca_settings(self), resources, sample_weight=sample_weight, **how)
            self._publish(fit, place, session.budget.failures)
            if fit.scores is None:
                return self.transform(X) if is_lazy else None
            scores = fit.projection.whitened(fit.scores) if self.whiten else fit.scores
            return self._output(scores, place.origin)

    def _rows_and_place(self, X: Any, reader: str = "PCA", sample_weight: Any = None) -> tuple[Any, Placement]:
        """Return the rows of a fit, which looks for NaN itself, and their place; see `training_rows` for the reader."""
        rows, place = rows_and_place(self, X, reader, counted=True, finite=False, sample_weight=sample_weight)
        return place.device_rows(rows), place

    def _publish(self, fit: PCAFit, place: Placement, retries: tuple[str, ...] = ()) -> None:
        """Set the fitted attributes in the place of the input; nothing else sets them."""
        fit, hidden = fit if fit.scores is None else replace(fit, scores=None), ("projection", "scores", "weighted")
        publish(self, fit, place, retries, without=hidden, properties=("n_components",))

    # -- new points ------------------------------------------------------------------------------------------------

    @row_wise("scores")
    def transform(self, X: ArrayLike | Stream, out: Array | None = None) -> Array:
        """Return the scores of new points.

        Parameters
        ----------
        X : array, CSR matrix, data frame or Dask array, shape (m, d); or an iterable of batches
            A memory map, or a set of zarr or HDF5, is read by slices. The result for a Dask array is lazy.
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
        Cost 2 m d p operations; memory O(m p) and a panel a thread.
        """
        scores = self._answer(X, "transform", lambda Y: scores_of(self._result, Y, self.whiten, self.n_jobs))
        return self._output(scores, X)

    @row_wise("points", of="scores")
    def inverse_transform(self, X: ArrayLike) -> Array:
        """Return the points of given scores: exact where all components were kept, else the projections onto them.

        Parameters
        ----------
        X : array, shape (m, p)
            Scores, such as `transform` returns.

        Returns
        -------
        array, shape (m, d)

        Raises
        ------
        NotFittedError, ValueError
        """
        return self._output(self._of_scores(X, lambda Z: points_of(self._result, Z, self.whiten)), X)

    @property
    def _model(self) -> GaussianModel:
        return replace(self._result.gaussian, components=self.components_, scale=self.scale_)

    def _log_densities(self, X: Any) -> Array:
        return self._answer(X, "score_samples", lambda Y: log_densities_of(self._result, Y, self.n_jobs))

    # -- scikit-learn ----------------------------------------------------------------------------------------------

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self.svd_solver not in ("full", "tsqr")
        return tags
