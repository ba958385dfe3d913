"""Search for the kernel and the number of components of kernel PCA by held-out reconstruction error."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.model_selection import check_cv
from sklearn.utils.validation import check_is_fitted

from gpukpca._former import former_parameters
from gpukpca._typing import Array, ArrayLike, Stream, Vector, of_rows
from gpukpca.algorithms.kernel_pca.settings import EigenSolver
from gpukpca.algorithms.progress import Progress
from gpukpca.backend.namespace import is_foreign, to_host
from gpukpca.backend.random import Seed, generator
from gpukpca.data.slicing import gather_rows
from gpukpca.decomposition._base import ArrayTransformer, OnlyWhere
from gpukpca.decomposition._callbacks import listener_of
from gpukpca.decomposition._parameters import KernelLike, MemoryLimit, PreimageLike, Verbose
from gpukpca.decomposition._session import FitSession, fit_in_session
from gpukpca.decomposition._validation import check_dense, check_same_place, training_data
from gpukpca.decomposition.kernel_pca import KernelPCA
from gpukpca.decomposition.preimage.methods import METHODS
from gpukpca.exceptions import InvalidParameterError
from gpukpca.kernels.bandwidth import Gamma
from gpukpca.model_selection.folds import CVFold, left_for_candidates, score_fold
from gpukpca.model_selection.grid import GridPoint, candidates_of, grid_of, grouped
from gpukpca.model_selection.results import SearchResult, results_table, warn_of_edge, warn_of_scores


def _without_model(search: Any) -> str:
    if search.refit:
        return ""
    return (
        "KernelPCACV keeps no model with refit=False; make one with "
        "KernelPCA(...).set_params(**search.best_params_), or use refit=True."
    )


@former_parameters(eigen_solver="solver")
class KernelPCACV(ArrayTransformer):
    """Kernel PCA whose kernel parameters and number of components minimize the held-out pre-image error.

    Every candidate is fitted to the training rows of each fold. Its score is `KernelPCA.score` of the held-out rows:
    minus the mean of ‖x - x̂‖², x̂ the pre-image of the projection of x. `GridSearchCV` over `KernelPCA(preimage=...)`
    computes the same with the same folds. Here candidates of one kernel share K of a fold, its eigenpairs at the
    largest number of components, and the scores of the held-out rows.

    Parameters
    ----------
    kernel : str, Kernel or callable
        As in `KernelPCA`; "precomputed" has no pre-image.
    gammas : None, float, or sequence of float >= 0, None, "scale" and "median"
        None, for kernels with a gamma given by name: from 1/16 of the smaller to 16 times the larger of the values of
        "scale" and "median" for all rows, about a factor of 4 apart (of "scale" alone for "poly" and "sigmoid"). For
        kernel objects None searches no gamma.
    n_components : None, int, float in (0, 1), or sequence of these
        None: the powers of two from 2 to 64 that are smaller than the training part. Shares of the variance are fitted
        one by one.
    param_grid : dict of lists, list of dicts, optional
        Other parameters of `KernelPCA`: "degree", "coef0", "kernel_params", "alpha", "kernel", "preimage",
        "preimage__alpha", "kernel__k1__gamma" ...
    preimage : str or object
        See `KernelPCA`. "ridge" suits every kernel; "fixed_point" is that of the source below.
    cv : int, splitter, or iterable of (training rows, held-out rows)
        As in scikit-learn. An int is a number of folds without shuffling: shuffle sorted data with
        ``KFold(5, shuffle=True)``.
    refit : bool
        Fit the best candidate to all rows, for `best_estimator_`, `transform` and the other methods.
    solver : as `eigen_solver` of `KernelPCA`
    random_state, device, memory_limit, n_jobs : as in `KernelPCA`
        Candidates are computed one after another, each with all threads.
    verbose : int or callable
        1 prints a line a fold; a callable gets `Progress` events of stage "fold", counted in fits.

    Attributes
    ----------
    cv_results_ : dict of arrays
        As of `GridSearchCV`. Times are those of a candidate, with an equal part of what it shared.
    best_params_ : dict
    best_score_ : float
        The mean score of the best candidate: minus a squared distance.
    best_index_ : int
        The first in the order of the grid where two means are equal.
    best_estimator_ : KernelPCA
        Fitted to all rows; only with `refit`.
    refit_time_ : float
        Seconds; only with `refit`.
    n_splits_ : int
    n_features_in_, feature_names_in_

    Raises
    ------
    InvalidParameterError
        From `fit`: parameters out of range, those of every candidate included.
    ValueError
        From `fit`: no candidate could be scored on every fold, with the first error; data with NaN or infinity.
    MemoryBudgetError
        From `fit`: the data do not fit into memory, or no fit of a candidate does.

    Warns
    -----
    GpuKPCAWarning
        The best gamma is the largest of those tried, or the smallest of `gammas`: a better one may lie beyond.
    FitFailedWarning
        A candidate failed on a fold, with the reason, such as an indefinite kernel or more components than rows. Its
        score is NaN.
    ConvergenceWarning
        Pre-images of held-out rows did not converge.
    PrecisionWarning
        The last component of a candidate and the next one have equal eigenvalues, so that rounding decides on the
        score.

    See Also
    --------
    gpukpca.KernelPCA : The estimator that is searched.
    gpukpca.plotting.SearchDisplay : Draw the errors of a search.

    Notes
    -----
    Memory: that of a fit of `KernelPCA` to the training rows of a fold, and a copy of the fold. Time: a decomposition
    for each kernel on every fold, and a pre-image for each candidate.

    The error is in data space, where kernels can be compared. Data without noise are reconstructed the better the more
    is kept: the best is then the largest `n_components`, and for Gaussian kernels often the smallest gamma, where
    kernel PCA is nearly linear. To choose for denoising, compare denoised noisy rows with clean ones.

    Alam & Fukumizu, J. Computer Science 10 (2014) 1139.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from gpukpca import KernelPCACV
    >>> X = load_digits().data[:120] / 16.0
    >>> search = KernelPCACV(gammas=[0.001, 0.1], n_components=[4, 16], cv=3, random_state=0).fit(X)
    >>> search.best_params_
    {'gamma': 0.001, 'n_components': 16}
    >>> len(search.cv_results_["params"])
    4
    >>> search.transform(X).shape
    (120, 16)
    """

    cv_results_: dict[str, Any]
    best_params_: dict[str, Any]
    best_score_: float
    best_index_: int
    best_estimator_: KernelPCA
    refit_time_: float
    n_splits_: int

    def __init__(
        self,
        kernel: KernelLike = "rbf",
        *,
        gammas: Gamma | Sequence[Gamma] = None,
        n_components: float | Sequence[float] | None = None,
        param_grid: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Sequence[Any]]] | None = None,
        preimage: PreimageLike = "ridge",
        cv: Any = 5,
        refit: bool = True,
        solver: EigenSolver = "auto",
        random_state: Seed = None,
        device: str | None = None,
        memory_limit: MemoryLimit = None,
        n_jobs: int | None = None,
        verbose: Verbose = 0,
    ) -> None:
        self.kernel = kernel
        self.gammas = gammas
        self.n_components = n_components
        self.param_grid = param_grid
        self.preimage = preimage
        self.cv = cv
        self.refit = refit
        self.solver = solver
        self.random_state = random_state
        self.device = device
        self.memory_limit = memory_limit
        self.n_jobs = n_jobs
        self.verbose = verbose

    def fit(self, X: ArrayLike, y: Any = None, *, groups: Any = None, **params: Any) -> KernelPCACV:
        """Score every candidate on every fold, and fit the best to all rows.

        Parameters
        ----------
        X : array or data frame, shape (n, d)
            A set of zarr or HDF5 is read whole, and refused where it does not fit into memory.
        y : array, shape (n,), optional
            Only for splitters that look at labels.
        groups : array, shape (n,), optional
            Only for splitters that look at groups.
        **params
            Refused, `sample_weight` too: the copies of a row lie in several folds, and a counted row in one.

        Returns
        -------
        KernelPCACV
            The estimator itself.
        """
        for name in params:
            raise InvalidParameterError(
                f"{name} is not taken by KernelPCACV, whose folds have each row once. Search without weights, and fit "
                "KernelPCA(**search.best_params_) with them.",
                argument=name,
            )
        if isinstance(self.kernel, str) and self.kernel == "precomputed":
            raise InvalidParameterError(
                "Cannot find pre-images with a precomputed kernel, and KernelPCACV scores by them. Pass the data and a "
                "kernel, or choose n_components by n_components_for(model, ...)."
            )
        fit_in_session(self, X, lambda session: self._search(X, y, groups, session))
        return self

    def _search(self, X: Any, y: Any, groups: Any, session: FitSession) -> None:
        """Score every candidate on every fold, and fit the best once; see `fit_in_session`."""
        check_dense(X, "KernelPCACV: sparse rows have no pre-image to be scored by; pass {call}.")
        data = training_data(self, X)
        splits = self._splits(data, y, groups)
        place = session.place(data, data.shape, of_pairs=True)
        with session.on(place, data) as resources:
            rows = place.to_work(data)
            grid = grid_of(self, rows, min(len(train) for train, _ in splits), resources)
            template = self._template()
            candidates = candidates_of(template, grid)
            limit = left_for_candidates(rows, splits, candidates, resources)
            folds = self._score_folds(rows, splits, candidates, limit)
        warn_of_scores(grid, folds)
        self._publish(grid, folds)
        warn_of_edge(grid, self.best_params_, self.gammas is None)
        if self.refit:
            started = time.perf_counter()
            best = candidates_of(template, [self.best_params_])[0].estimator
            self.best_estimator_ = best.fit(X if hasattr(X, "columns") else data)
            self.refit_time_ = time.perf_counter() - started

    def _splits(self, data: Array, y: Any, groups: Any) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return training rows and held-out rows of every fold, as integers."""
        y, groups = (to_host(one) if is_foreign(one) else one for one in (y, groups))
        splits = list(check_cv(self.cv, y, classifier=False).split(data, y, groups))
        n = int(data.shape[0])
        pairs = [(_as_integers(train, n), _as_integers(test, n)) for train, test in splits]
        if not pairs or any(not len(train) or not len(test) for train, test in pairs):
            raise InvalidParameterError(f"KernelPCACV: cv={self.cv!r} gives no fold, or one without rows.")
        return pairs

    def _template(self) -> KernelPCA:
        """Return the estimator from which all candidates are cloned."""
        seed = self.random_state
        if seed is not None and not isinstance(seed, (int, np.integer)):
            seed = int(generator(seed).integers(2**31))
        method = METHODS.get(self.preimage) if isinstance(self.preimage, str) else None
        return KernelPCA(
            kernel=self.kernel,
            # An object has options, so that "preimage__alpha" can be searched.
            preimage=self.preimage if method is None else method(),
            eigen_solver=self.solver,
            random_state=seed,
            device=self.device,
            memory_limit=self.memory_limit,
            n_jobs=self.n_jobs,
        )

    def _score_folds(self, X: Array, splits: list[Any], candidates: list[GridPoint], limit: int | None) -> SearchResult:
        """Return the scores of every fold, and report the fits to the listener."""
        groups, listener = grouped(candidates), listener_of(self)
        total = len(splits) * len(candidates)
        folds: SearchResult = []

        def report(done: int) -> None:
            if listener is not None:
                done += len(folds) * len(candidates)
                text = f"fold {len(folds) + 1} of {len(splits)}: {done} of {total} fits"
                listener(Progress("fold", text, done, total))

        for train, test in splits:
            fold = CVFold(gather_rows(X, train), gather_rows(X, test), limit, self.n_jobs)
            folds.append(score_fold(fold, groups, report))
        return folds

    def _publish(self, grid: list[dict[str, Any]], folds: SearchResult) -> None:
        """Set the fitted attributes but those of the refitted model, which are deleted."""
        for name in ("best_estimator_", "refit_time_"):
            self.__dict__.pop(name, None)
        self.cv_results_ = results_table(grid, folds)
        self.best_index_ = int(self.cv_results_["rank_test_score"].argmin())
        self.best_params_ = grid[self.best_index_]
        self.best_score_ = float(self.cv_results_["mean_test_score"][self.best_index_])
        self.n_splits_ = len(folds)

    # -- the best model --------------------------------------------------------------------------------------------

    def _best(self, X: Any = None, method: str = "") -> KernelPCA:
        """Return the best model, which reads new rows; their library is checked for a method of the search."""
        check_is_fitted(self)
        if X is not None:
            check_same_place(self, X, self.best_estimator_.projection_, method)
        return self.best_estimator_

    @of_rows
    def transform(self, X: ArrayLike) -> Array:
        """Return the scores (m, p) of new points by the best model; see `KernelPCA.transform`."""
        return self._best(X, "transform").transform(X)

    @OnlyWhere(_without_model, AttributeError)
    @of_rows
    def inverse_transform(self, X: ArrayLike, n_components: int | None = None) -> Array:
        """Return points of data space (m, d) for scores by the best model; see `KernelPCA.inverse_transform`."""
        return self._best().inverse_transform(X, n_components)

    @OnlyWhere(_without_model, AttributeError)
    @of_rows
    def denoise(self, X: ArrayLike, n_components: int | None = None) -> Array:
        """Return the pre-images of projected points by the best model; see `KernelPCA.denoise`."""
        return self._best(X, "denoise").denoise(X, n_components)

    @OnlyWhere(_without_model, AttributeError)
    def score(self, X: ArrayLike | Stream, y: Any = None, sample_weight: Vector | None = None) -> float:
        """Return minus the mean squared reconstruction error by the best model; see `KernelPCA.score`."""
        return self._best(X, "score").score(X, sample_weight=sample_weight)

    @OnlyWhere(_without_model, AttributeError)
    @of_rows
    def score_samples(self, X: ArrayLike) -> Array:
        """Return minus the squared error in feature space by the best model; see `KernelPCA.score_samples`."""
        return self._best().score_samples(X)

    @OnlyWhere(_without_model, AttributeError)
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the best model to a file, without the table of the search; see `KernelPCA.save`."""
        self._best().save(path)

    @property
    def _n_features_out(self) -> int:
        return int(self.best_estimator_.eigenvalues_.shape[0])


# scikit-learn wraps `transform` for `set_output` when it defines the class, and drops the condition. It has the others.
for _name in ("transform", "fit_transform", "get_feature_names_out"):
    setattr(KernelPCACV, _name, OnlyWhere(_without_model, AttributeError)(getattr(KernelPCACV, _name)))


def _as_integers(rows: Any, n: int) -> np.ndarray:
    """Return row numbers for row numbers or a mask."""
    rows = np.asarray(rows)
    return np.flatnonzero(rows) if rows.dtype == bool and len(rows) == n else rows.astype(np.int64).reshape(-1)
