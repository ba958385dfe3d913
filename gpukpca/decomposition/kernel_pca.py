"""The estimator KernelPCA: parameters become settings, a fit result becomes fitted attributes."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, overload

import numpy as np

from gpukpca._typing import Array, ArrayLike, Held, NumpyArray, NumpyRows, Real, Stream, UnknownRows, Vector, of_rows
from gpukpca.algorithms.kernel_pca.model import KernelPCAFit
from gpukpca.algorithms.kernel_pca.planning import plan_of
from gpukpca.algorithms.kernel_pca.settings import EigenSolver, GramStorage
from gpukpca.algorithms.kernel_pca.task import FitTask
from gpukpca.algorithms.plan import Plan
from gpukpca.algorithms.preimage.ridge import RidgeRegression
from gpukpca.backend.device import on_its_device
from gpukpca.backend.namespace import dtype_name
from gpukpca.backend.random import Seed
from gpukpca.data.place import Placement, placement_for
from gpukpca.data.slicing import gather_rows
from gpukpca.decomposition._base import publish
from gpukpca.decomposition._batches import rows_and_place, training_rows
from gpukpca.decomposition._dask import check_no_data_frames, cluster_rows, compute_dask
from gpukpca.decomposition._interop import KernelPeer
from gpukpca.decomposition._kernel_fits import check_plan, fit_any, plan_stream, scores_as_given
from gpukpca.decomposition._kernels import is_precomputed, kernel_gamma, matrix_of, warn_of_unused
from gpukpca.decomposition._parameters import (
    CheckpointFolder,
    Devices,
    KernelLike,
    MemoryLimit,
    Power,
    PreimageLike,
    Verbose,
)
from gpukpca.decomposition._plans import WithPlan
from gpukpca.decomposition._row_wise import row_wise
from gpukpca.decomposition._session import FitSession, fit_in_session, kernel_and_settings
from gpukpca.decomposition._streams import WithStreams, reads_batches
from gpukpca.decomposition._validation import checked_out, planned_data
from gpukpca.decomposition.preimage.estimator import PreimageEstimator
from gpukpca.kernels.bandwidth import Gamma

# Fields of a fit that are no attributes, or have another name, form or place there; and properties that are attributes.
NO_ATTRIBUTES = (
    *("spectrum", "scores", "converged", "seconds", "fallbacks", "map", "n_jobs", "axes", "landmarks"),
    *("total_interval", "stream", "preimage", "weight_sum", "measured"),
)
PROPERTIES = ("eigenvalues", "explained_variance", "explained_variance_ratio", "total_variance")


class KernelPCA(KernelPeer, WithStreams, WithPlan, PreimageEstimator[Held]):
    """Kernel principal component analysis, a drop-in for `sklearn.decomposition.KernelPCA`.

    Works on NumPy arrays, SciPy CSR matrices, pandas data frames, and on CuPy, PyTorch, JAX and array-api-strict
    arrays; results live where the input lives.

    Parameters
    ----------
    n_components : None, int >= 1, or float in (0, 1)
        None keeps every component with nonzero eigenvalue. A share of the variance keeps the smallest number of
        components that holds more than it, as in `PCA`. More than n are reduced to n with a `RankWarning`.
    kernel : str, Kernel, or callable
        "linear", "poly", "rbf", "sigmoid", "cosine", "precomputed", "laplacian", "matern", "rational_quadratic"; a
        kernel object of `gpukpca.kernels`; a Gaussian-process kernel of scikit-learn; or a function of two rows.
    gamma : None, float >= 0, "scale" or "median"
        Read by all but "linear", "cosine" and "precomputed". None is 1/d; "scale" is 1 / (d Var(X)); "median" is
        1 / (2 m²), m the median distance of at most 1000 rows, without pairs of equal ones; √(gamma / d) of these for
        "laplacian".
    degree, coef0 : float
        Read by "poly"; coef0 also by "sigmoid".
    kernel_params : dict, optional
        Keyword arguments of a callable kernel; nu of "matern", alpha of "rational_quadratic".
    center : bool
        Center the data in feature space. False: eigenpairs of K itself; scores are k(x, X) A, and `offset_` is 0.
    alpha : float >= 0
        Ridge of the pre-image.
    fit_inverse_transform : bool
        Learn the ridge pre-image as scikit-learn does, with `kernel` and `gamma` between scores. It has no effect
        together with a ridge in `preimage`, whose own options hold; another method there is an error. Cosine and
        sigmoid kernels, and data far from the origin, may give back less than the mean of the data: a warning says so,
        and ``preimage="ridge"`` does not.
    preimage : None, "ridge", "fixed_point", "distance_constraint", or an object with options
        The pre-image for `inverse_transform`, `denoise`, `reconstruction_error` and `score`. Objects with options are
        `RidgePreimage`, `FixedPointPreimage`, `DistanceConstraintPreimage` of `gpukpca.decomposition`. All are exact
        for the linear kernel.
    eigen_solver : "auto", "dense", "randomized", "arpack", "nystrom", a solver object or a `Nystrom` object
        "randomized" is block Krylov iteration that stops by residuals; "arpack": the same to rounding. "auto" is dense
        for n <= 400 or more than n/12 components (1000 and n/40 on a GPU), else block Krylov. For dense X and
        gram="auto" it solves the small eigenproblem of the features of the linear kernel with d < n, and of polynomial
        kernels with at most n/8 monomials, or 200. "nystrom" approximates K from a few of its columns, with a bound;
        "auto" never approximates.
    tol : float in [0, 1)
        Bound on the residuals ``||Kc u - λ u||`` (with Nyström on the certificate), relative to λ₁. Each is also at
        most 1e-3 of its own λ. A `PrecisionWarning` names those that are not, and a tol below what rounding allows (at
        best 100 eps). 0 means 1e-8 in float64 and 1e-5 in float32, raised silently up to 1e4 eps; with "arpack" what
        rounding allows; with Nyström the whole rank.
    max_iter : int, optional
        Largest number of passes over K for block Krylov (default 300).
    iterated_power : "auto" or int >= 0
        An integer fixes the number of passes over K (0 counts as 1), whatever the residuals. "auto": until `tol` holds.
    remove_zero_eig : bool
        Drop components with eigenvalue zero also when n_components is given.
    random_state : None, int, RandomState or Generator
        Source of the random start of block Krylov and of the landmarks.
    copy_X : bool
        Keep a copy of X for `transform`. With False the model keeps a reference: do not change X later. X is never
        written to.
    n_jobs : int, optional
        Threads for the tiles of K (NumPy). None: what BLAS, joblib and the batch system allow; -1: all CPUs.
    device : None, "auto", "cpu", "cuda", "cuda:N", "cuda:all" or a list such as ["cuda:0", "cuda:1"]
        Where to compute. None: where X is. "cuda": data on the host are copied to the GPU in batches, and results
        return to the host. "auto": "cuda" where a GPU works, its memory is enough and it saves time, else the CPU.
        Several GPUs share the tiles of K, or the rows of a factor; the solver and new points are on the first.
    gram : "auto", "dense", "tiled" or a class based on `gpukpca.gram.Storage`
        How exact solvers in this process store K: the square matrix, upper tiles of which as many as fit are cached, or
        the operator that the class builds. "auto" is "tiled" wherever K can be evaluated block by block.
    memory_limit : None, int or str
        Bytes that fit may allocate, such as "4GiB"; None: 85 % of what is free. Of several GPUs, those of each.
    checkpoint : None, path or Checkpoint
        A folder to resume from, or a `gpukpca.Checkpoint` with the seconds between two checkpoints (60).
    verbose : int or callable
        1 prints to the standard error: the plan, a line per pass, and one in 30 s within a pass, with the time left. A
        callable receives `Progress` events.

    Attributes
    ----------
    eigenvalues_ : array (p,)
        Eigenvalues of the centered kernel matrix (of K with ``center=False``), descending, in the units of k(x, x).
    eigenvectors_ : array (n, p)
        Unit columns; the entry of largest absolute value is positive. Absent where rows were read once.
    explained_variance_ : array (p,)
        Eigenvalues / (n - 1): the variances of the scores, or with ``center=False`` Σ z² / (n - 1).
    explained_variance_ratio_ : array (p,)
        Exact shares of the trace of the same matrix, for indefinite kernels of its positive part.
    total_variance_ : float
        The same trace / (n - 1).
    residual_norms_ : array (p,)
        ``||Kc u - λ u||₂`` from products with K, plus ``c eps (λ₁ + ‖K1‖ / n)``, an estimate of the rounding of
        its entries, with c = `Kernel.rounding`. A true eigenvalue lies within this distance. With Nyström a bound.
    converged_ : bool
        True where all residuals are at most tol λ₁, with tol raised to what rounding allows (PrecisionWarning).
    gap_ : float or None
        λ_p - λ_{p+1} >= 0, with Nyström a lower bound. None where it is unknown.
    n_passes_, n_products_ : int
        Passes over K, and columns multiplied by K in all of them (with Nyström: evaluated columns of K).
    solver_seconds_ : float
        Wall time of the eigenpairs, products with K included.
    projection_, offset_ : array (n, p), (p,)
        A and b of ``scores(x) = k(x, X) A - b``; k may stand for the kernel less terms that centering removes.
    kernel_ : Kernel
        The kernel with resolved parameters.
    gamma_ : float
        Gamma of the kernel; 1/d for kernels without one.
    X_fit_ : array (n, d)
        The rows of the fit whose weight is not 0. With Nyström the landmarks, a row for each of `projection_`; for a
        nearly flat kernel (a small gamma) one row more than the rank, the base point, which saves digits. Where a
        cluster or several GPUs added up the features of the linear kernel, points that span them. Absent after a fit to
        a kernel matrix that is known by its products, and in a loaded model of a kernel matrix.
    certificate_ : float
        Only with Nyström: bounds the sum of all true eigenvalues less `eigenvalues_`: the trace that the landmarks
        leave, what is set to 0 or left out as rounding, and ρ for rounding. Each difference is at least -ρ.
    norm_bound_ : float or None
        Only with Nyström: bounds every true eigenvalue less that of `eigenvalues_`, index for index: ‖K - F Fᵀ‖₂ with
        what `certificate_` has for rounding. It is computed when it is read, from `Nystrom(bound_rows=...)` rows, and
        fails with a probability of at most 2⁻³⁰; certain where the fit had no more rows; an estimate in float32.
    norm_bound_info_ : NormBound
        The same with its rows, its failure probability, and the reason where there is none.
    total_variance_interval_ : (float, float)
        Only with Nyström: bounds of the total variance; `total_variance_` is the upper bound.
    landmarks_ : host array of int
        Only with Nyström: row numbers of the landmarks in X; absent where they were given as points.
    n_samples_seen_ : int, or float where weights are fractions
        Only where rows of a Nyström factor were added up: their number.
    X_transformed_fit_, dual_coef_ : array (n, p), (n, d)
        Only with a pre-image; `dual_coef_` only for ridge (a row for each landmark), and not for the linear kernel.
    plan_ : Plan
        The storage, the solver, the reasons and the predicted memory.
    solver_, device_ : str
        The solver and the device that computed.
    fallbacks_ : tuple of str
        Attempts that failed before (a device, its solver, memory), and a setting that lowers precision (TF32).
    n_features_in_, feature_names_in_

    Raises
    ------
    InvalidParameterError, IndefiniteKernelError, MemoryBudgetError, ConvergenceError, ValueError, TypeError
        `fit` fails; the estimator stays unchanged.
    CheckpointError, OSError
        `checkpoint` holds another fit or is damaged; no such folder can be made or written to.
    DeviceUnavailableError, DeviceLostError
        No CUDA device works; a device failed and the process must be restarted.

    Warns
    -----
    ConvergenceWarning, RankWarning, IndefiniteKernelWarning, PrecisionWarning, DeviceFallbackWarning,
    CheckpointWarning, UserWarning

    See Also
    --------
    gpukpca.model_selection.KernelPCACV : Search of kernel parameters.
    gpukpca.eigen.Nystrom : Approximation from a few columns of K.
    gpukpca.algorithms.fit_kernel_pca : The same fit as a function.

    Notes
    -----
    Cost: O(n² d) for K once if it fits in memory, else in every pass; O(n² p) per pass; O(n³) for the dense solver.
    Memory: see `plan_`. Two fits with the same seed on the same machine and thread count agree to the last bit; with
    device="auto" where both compute on one device.

    Schölkopf, Smola & Müller, Neural Computation 10 (1998) 1299. Deviations from scikit-learn are listed in
    docs/reference/deviations.md.

    Examples
    --------
    >>> from sklearn.datasets import make_circles
    >>> from gpukpca import KernelPCA
    >>> X, y = make_circles(200, factor=0.3, noise=0.05, random_state=0)
    >>> z = KernelPCA(n_components=1, kernel="rbf", gamma=2.0).fit_transform(X)[:, 0]
    >>> bool(z[y == 1].min() > z[y == 0].max())  # one component separates the circles
    True
    """

    _result_type = KernelPCAFit
    _origins = "X_fit_", "projection_"

    def __init__(
        self,
        n_components: float | None = None,
        *,
        kernel: KernelLike = "linear",
        gamma: Gamma = None,
        degree: float = 3,
        coef0: float = 1,
        kernel_params: dict[str, Any] | None = None,
        center: bool = True,
        alpha: float = 1.0,
        fit_inverse_transform: bool = False,
        preimage: PreimageLike = None,
        eigen_solver: EigenSolver = "auto",
        tol: float = 0,
        max_iter: int | None = None,
        iterated_power: Power = "auto",
        remove_zero_eig: bool = False,
        random_state: Seed = None,
        copy_X: bool = True,
        n_jobs: int | None = None,
        device: Devices = None,
        gram: GramStorage = "auto",
        memory_limit: MemoryLimit = None,
        checkpoint: CheckpointFolder = None,
        verbose: Verbose = 0,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.center = center
        self.alpha = alpha
        self.fit_inverse_transform = fit_inverse_transform
        self.preimage = preimage
        self.eigen_solver = eigen_solver
        self.tol = tol
        self.max_iter = max_iter
        self.iterated_power = iterated_power
        self.remove_zero_eig = remove_zero_eig
        self.random_state = random_state
        self.copy_X = copy_X
        self.n_jobs = n_jobs
        self.device = device
        self.gram = gram
        self.memory_limit = memory_limit
        self.checkpoint = checkpoint
        self.verbose = verbose

    # -- fitting ---------------------------------------------------------------------------------------------------

    @overload
    def fit(self, X: UnknownRows, y: Any = None, sample_weight: Vector | None = None) -> KernelPCA[Any]: ...
    @overload
    def fit(
        self, X: NumpyRows[Real], y: Any = None, sample_weight: Vector | None = None
    ) -> KernelPCA[NumpyArray[Real]]: ...
    @overload
    def fit(self, X: ArrayLike | Stream, y: Any = None, sample_weight: Vector | None = None) -> KernelPCA[Any]: ...
    def fit(self, X: ArrayLike | Stream, y: Any = None, sample_weight: Vector | None = None) -> KernelPCA:
        """Find the components of X.

        Parameters
        ----------
        X : array, CSR matrix or data frame, shape (n, d); the kernel matrix (n, n) with kernel="precomputed"
            The kernel matrix may be a sparse one, a SciPy LinearOperator, or another object with shape, dtype and
            products ``K @ V`` with blocks, as in `gpukpca.eigen.top_eigh`. Without a method `diagonal` its total
            variance is not known. With ``eigen_solver=Nystrom(...)`` also an iterable of batches (`Batches`), each read
            once, or a set of zarr or HDF5.
        y : ignored
        sample_weight : array, shape (n,), optional
            How often each row counts, as in `PCA.fit`; not on a cluster. Eigenvalues are those of W^½ Kc W^½. Rules for
            gamma count rows alike. A landmark may have weight 0.

        Returns
        -------
        KernelPCA
            The estimator itself.
        """
        fit_in_session(self, X, partial(self._fit_within, X, False, sample_weight))
        return self

    @of_rows
    @on_its_device
    def fit_transform(self, X: ArrayLike | Stream, y: Any = None, sample_weight: Vector | None = None) -> Array:
        """Fit, and return the scores of X, shape (n, p), without extra cost; see `fit` and `transform`.

        Those of a Dask array have its chunks, or one where their lengths are unknown and there is no client.
        """
        check_no_data_frames(self, X)
        return fit_in_session(self, X, partial(self._fit_within, X, True, sample_weight))

    def _fit_within(self, X: Any, wants_scores: bool, sample_weight: Any, session: FitSession) -> Array | None:
        """Make one attempt; return the scores in the library of the data, or None."""
        warn_of_unused(self)
        vars(self).pop("_held", None)
        X, reader = matrix_of(self, X), "fit_transform" if wants_scores else ""
        how: dict[str, Any] = {"in_batches": reads_batches(self, X, sample_weight), "sample_weight": sample_weight}
        check_plan(self, X, **how)
        rows, place = rows_and_place(self, X, reader, counted=False, **how)
        with session.on(place, rows) as resources:
            fit, kept = fit_any(self, rows, X, resources, sample_weight)
            self._publish(fit, place, session.budget.failures, kept)
            return scores_as_given(self, fit.scores, rows, X, place.origin) if wants_scores else None

    def _plan(self, X: Any) -> Plan:
        """Return the plan of `fit` for X, or for a `DataShape`; called on a clone, whose `n_features_in_` it sets."""
        X = matrix_of(self, X)
        if reads_batches(self, X):
            return plan_stream(self, training_rows(self, X, "plan, with the fit after it,", in_batches=True))
        if (rows := cluster_rows(self, X)) is not None:
            sample = rows
        else:
            rows, sample = planned_data(self, compute_dask(self, X))
        resources = self._resources(placement_for(self.device, rows, rows.shape, of_pairs=True))
        saves, resolved = self.checkpoint is not None, kernel_and_settings(self, sample, resources)
        return plan_of(FitTask.of(rows, *resolved, resources, has_checkpoint=saves, sample=sample)).plan

    def _publish(
        self, fit: KernelPCAFit, place: Placement, retries: tuple[str, ...] = (), data: Any | None = None
    ) -> None:
        """Set the fitted attributes in the place of the input; nothing else sets them.

        `data` are the rows of the fit as given, where they are in memory.
        """
        to_origin, landmarks, preimage, rows = place.to_origin, fit.landmarks, fit.preimage, fit.map.basis
        if data is None or not (place.moved or rows is None) or fit.has_other_rows:
            rows = to_origin(rows)
        else:
            rows = data if landmarks is None else gather_rows(data, landmarks)
        others = {
            "projection_": to_origin(fit.map.projection),
            "offset_": to_origin(fit.map.offset),
            "converged_": bool(np.all(fit.converged)),
            "solver_seconds_": fit.seconds,
            "gamma_": kernel_gamma(fit.kernel, int(self.n_features_in_)),
            "device_": place.devices,
            "X_fit_": rows,
            "n_samples_seen_": fit.stream and fit.stream.count,
            "landmarks_": landmarks,
            "total_variance_interval_": None if fit.certificate is None else fit.total_variance_interval,
            "dual_coef_": to_origin(preimage.dual_coef) if isinstance(preimage, RidgeRegression) else None,
            "X_transformed_fit_": None if preimage is None or fit.scores is None else to_origin(fit.scores),
        }
        optional = ("certificate", "eigenvectors")
        publish(self, fit, place, retries, without=NO_ATTRIBUTES, optional=optional, properties=PROPERTIES, **others)
        # New points need neither eigenvectors nor, without a pre-image, scores: a device keeps none.
        vectors, scores = vars(self).get("eigenvectors_"), None if preimage is None else fit.scores
        self._result = replace(fit, eigenvectors=vectors, scores=scores)

    # -- new points ------------------------------------------------------------------------------------------------

    @row_wise("scores", writes=True)
    def transform(self, X: ArrayLike | Stream, out: Array | None = None) -> Array:
        """Return the scores of new points.

        Parameters
        ----------
        X : array, CSR matrix, data frame or Dask array, shape (m, d); K(X, X_fit) (m, n) with kernel="precomputed"
            Or an iterable of batches. Sets are read by slices. The result for a Dask array is lazy.
        out : array, shape (m, p), optional
            The scores are written here, a panel at a time: a NumPy array, or one on the device where the model
            computes. Use a memory map for more scores than memory holds.

        Returns
        -------
        array, shape (m, p), in the library of X and the dtype of fit; `out` where it is given

        Raises
        ------
        NotFittedError, ValueError

        Notes
        -----
        Cost: m n kernel values, computed tile by tile: memory O(m p) and one tile a thread.
        """

        def scores(Y: Array) -> Array:
            room = None if out is None else checked_out(out, (int(Y.shape[0]), self._n_features_out), self._like)
            return self._space.new_scores(Y, room)

        found = self._answer(X, "transform", scores)
        return self._output(found, X) if out is None else out

    # -- scikit-learn ----------------------------------------------------------------------------------------------

    @property
    def _dtype_out(self) -> str:
        return dtype_name(self.projection_.dtype)

    @property
    def _n_features_out(self) -> int:
        return int(self.eigenvalues_.shape[0])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        precomputed = is_precomputed(self.kernel)
        tags.input_tags.pairwise = precomputed
        tags.input_tags.sparse = precomputed or (not self.fit_inverse_transform and self.preimage is None)
        return tags
