"""Kernel PCA: orchestration only. Data -> kernel -> Gram operator -> centred operator -> eigenpairs -> scores."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from gpukpca._typing import Array
from gpukpca.backend.device import synchronize
from gpukpca.backend.namespace import (
    accumulation_dtype,
    cast,
    dtype_name,
    from_host,
    is_foreign,
    is_numpy,
    is_sparse,
    move,
    namespace_of,
    overflow_allowed,
    to_host,
)
from gpukpca.backend.random import generator
from gpukpca.decomposition.choices import check_parameters, kernel_from, kernel_gamma
from gpukpca.decomposition.fitting import TrainingRows, WhenEnabled, unchanged_on_error
from gpukpca.decomposition.plan import Plan, make_plan
from gpukpca.decomposition.preimage import LinearPreimage, RidgePreimage
from gpukpca.decomposition.progress import Progress, listener_from, pass_report, tile_report
from gpukpca.decomposition.spectrum import (
    Spectrum,
    carrying_variance,
    checked_spectrum,
    warn_of_convergence,
    warn_of_gap,
    warn_of_rank,
)
from gpukpca.decomposition.validation import (
    check_finite,
    checked_scores,
    has_negative_diagonal,
    new_data,
    square_kernel_matrix,
    training_data,
)
from gpukpca.eigen import BlockKrylov, EigenResult, top_eigh
from gpukpca.exceptions import IndefiniteKernelWarning, InvalidParameterError, RankWarning
from gpukpca.gram import CenteredGram, DenseGram, TiledGram, gram_matrix, kernel_matmat
from gpukpca.kernels import Kernel, Linear, Precomputed
from gpukpca.kernels.base import Rows

FIRST_GUESS = 16


class KernelPCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Kernel principal component analysis, a drop-in for `sklearn.decomposition.KernelPCA`.

    Works on NumPy arrays, SciPy CSR matrices, pandas data frames, and on CuPy, PyTorch and array-api-strict arrays;
    results live where the input lives.

    Parameters
    ----------
    n_components : None, int >= 1, or float in (0, 1)
        None keeps every component with non-zero eigenvalue. A fraction keeps the smallest number of components whose
        share of the exact variance reaches it. More than n are clamped to n with a `RankWarning`.
    kernel : str, Kernel, or callable
        "linear", "poly", "rbf", "sigmoid", "cosine", "precomputed", "laplacian", "matern", "rational_quadratic"; a
        kernel object of `gpukpca.kernels`; a Gaussian-process kernel of scikit-learn; or a function of two rows.
    gamma : None, float >= 0, "scale" or "median"
        None is 1/d; "scale" is 1 / (d Var(X)); "median" is 1 / (2 m²), m the median distance of at most 1000 rows.
    degree, coef0 : float
        Of "poly" and "sigmoid".
    kernel_params : dict, optional
        Keyword arguments of a callable kernel; nu of "matern", alpha of "rational_quadratic".
    alpha : float >= 0
        Ridge of the pre-image.
    fit_inverse_transform : bool
        Learn the pre-image, so that `inverse_transform` works.
    eigen_solver : "auto", "dense", "randomized", "arpack" or a solver object
        "randomized" is block Krylov iteration, stopped by residuals; "arpack" is another name for it. "auto" is dense
        for n <= 400 (4000 on a GPU) or more than n/5 components, else block Krylov.
    tol : float >= 0
        Residuals ``||Kc u - λ u||`` are at most tol λ₁. 0 is 1e-8 in float64 and 1e-5 in float32; 100 eps (2.2e-14,
        1.2e-5) can be reached; a tol below what rounding allows is raised to that.
    max_iter : int, optional
        Most passes over K for block Krylov (default 300).
    iterated_power : "auto" or int >= 0
        An integer fixes the passes over K (0 counts as 1), whatever the residuals.
    remove_zero_eig : bool
        Drop components with eigenvalue zero also when n_components is given.
    random_state : None, int, RandomState or Generator
        For the random start of block Krylov.
    copy_X : bool
        Keep a copy of X for `transform`; with False a reference, which must not be changed later. X itself is never
        written to.
    n_jobs : int, optional
        Threads for the tiles of K (NumPy). None: what BLAS may use now; -1: all CPUs.
    gram : "auto", "dense" or "tiled"
        How K is held: the square matrix, or upper tiles of which as many as fit are kept ("auto" is "tiled" wherever
        K can be evaluated block by block).
    memory_limit : None, int or str
        Bytes that fit may allocate, such as "4GiB"; None: 85 % of what is free.
    verbose : int or callable
        1 prints the plan and a line a pass to the standard error; a callable gets `Progress` events.

    Attributes
    ----------
    eigenvalues_ : array (p,)
        Of the centred kernel matrix, descending, in the units of k(x, x).
    eigenvectors_ : array (n, p)
        Unit columns; the entry of largest modulus is positive.
    explained_variance_ : array (p,)
        Eigenvalues / (n - 1): the variances of the scores.
    explained_variance_ratio_ : array (p,)
        Exact shares of the total variance, which is the trace of the centred kernel matrix.
    total_variance_ : float
        That trace / (n - 1).
    residual_norms_ : array (p,)
        ``||Kc u - λ u||₂``, recomputed from the operator; each eigenvalue is that near to a true one.
    converged_ : bool
    gap_ : float or None
        λ_p - λ_{p+1} where it is known.
    n_passes_ : int
        Passes over K.
    projection_, offset_ : array (n, p), (p,)
        A and b of ``scores(x) = k(x, X) A - b``. For translation-invariant and linear kernels k stands for the kernel
        less terms that centring removes.
    kernel_ : Kernel
        With numbers in place of None and names.
    gamma_ : float
    X_fit_ : array (n, d)
    X_transformed_fit_, dual_coef_ : array (n, p), (n, d)
        Only with ``fit_inverse_transform=True``; `dual_coef_` not for the linear kernel, whose inverse is exact.
    plan_ : Plan
        What was decided and why, with predicted memory.
    solver_, device_ : str
        What ran, and where.
    n_features_in_, feature_names_in_

    Raises
    ------
    InvalidParameterError, IndefiniteKernelError, MemoryBudgetError, ConvergenceError, ValueError, TypeError
        From `fit`, which then leaves the estimator as it was.

    Warns
    -----
    ConvergenceWarning, RankWarning, IndefiniteKernelWarning, PrecisionWarning

    Notes
    -----
    Cost: O(n² d) for K once if it fits in memory, else in every pass; O(n² p) a pass; O(n³) for the dense solver.
    Memory: `plan_` says. Two fits with the same seed on the same machine and thread count agree to the last bit.

    Schölkopf, Smola & Müller, Neural Computation 10 (1998) 1299. Bakır, Weston & Schölkopf, NIPS 16 (2004) (the ridge
    pre-image). Deviations from scikit-learn are listed in the README.
    """

    def __init__(
        self,
        n_components: Any = None,
        *,
        kernel: Any = "linear",
        gamma: Any = None,
        degree: Any = 3,
        coef0: Any = 1,
        kernel_params: Any = None,
        alpha: Any = 1.0,
        fit_inverse_transform: Any = False,
        eigen_solver: Any = "auto",
        tol: Any = 0,
        max_iter: Any = None,
        iterated_power: Any = "auto",
        remove_zero_eig: Any = False,
        random_state: Any = None,
        copy_X: Any = True,
        n_jobs: Any = None,
        gram: Any = "auto",
        memory_limit: Any = None,
        verbose: Any = 0,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.alpha = alpha
        self.fit_inverse_transform = fit_inverse_transform
        self.eigen_solver = eigen_solver
        self.tol = tol
        self.max_iter = max_iter
        self.iterated_power = iterated_power
        self.remove_zero_eig = remove_zero_eig
        self.random_state = random_state
        self.copy_X = copy_X
        self.n_jobs = n_jobs
        self.gram = gram
        self.memory_limit = memory_limit
        self.verbose = verbose

    # -- fitting ---------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None) -> KernelPCA:
        """Find the components of X.

        Parameters
        ----------
        X : array, CSR matrix or data frame, shape (n, d); the kernel matrix (n, n) with kernel="precomputed"
        y : ignored

        Returns
        -------
        KernelPCA
            The estimator itself.
        """
        self._fit(X)
        return self

    def fit_transform(self, X: Any, y: Any = None) -> Array:
        """Fit, and return the scores of X, shape (n, p): the same as ``fit(X).transform(X)`` to rounding, for free."""
        return self._delivered(self._fit(X), X)

    def _fit(self, X: Any) -> Array:
        """Fit and return the scores; on any exception the estimator is as it was."""
        with unchanged_on_error(self), overflow_allowed():
            check_parameters(self)
            given, X = X, training_data(self, X)
            kernel = self._resolved_kernel(X)
            X = self._own(X, given, kernel)
            plan, op, rows, eigen, spectrum = self._decompose(X, kernel)
            scores = self._commit(X, kernel, plan, op, rows, eigen, spectrum)
            synchronize(scores)
            return scores

    def _resolved_kernel(self, X: Array) -> Kernel:
        kernel = kernel_from(self)
        if isinstance(kernel, Precomputed) and self.fit_inverse_transform:
            raise InvalidParameterError("Cannot fit_inverse_transform with a precomputed kernel.")
        if is_sparse(X) and self.fit_inverse_transform:
            raise InvalidParameterError("Inverse transform not implemented for sparse matrices!")
        return kernel.resolve(X)

    def _decompose(self, X: Array, kernel: Kernel) -> tuple[Plan, CenteredGram, Rows | None, EigenResult, Spectrum]:
        """Eigenpairs for the components asked for; a fraction is reached by growing p."""
        n = int(X.shape[0])
        rng = generator(self.random_state)
        if _is_fraction(self.n_components):
            return self._decompose_fraction(X, kernel, float(self.n_components), rng)
        p = n if self.n_components is None else min(int(self.n_components), n)
        if self.n_components is not None and self.n_components > n:
            warnings.warn(
                f"n_components={self.n_components} is more than the {n} sample(s); {n} components are computed.",
                RankWarning,
                stacklevel=5,
            )
        plan = make_plan(self, X, kernel, p)
        op, rows = self._operator(X, kernel, plan)
        eigen = self._solve(op, plan, rng)
        return plan, op, rows, eigen, checked_spectrum(eigen, op, kernel.positive_definite, None)

    def _decompose_fraction(
        self, X: Array, kernel: Kernel, fraction: float, rng: np.random.Generator
    ) -> tuple[Plan, CenteredGram, Rows | None, EigenResult, Spectrum]:
        n = int(X.shape[0])
        first = make_plan(self, X, kernel, min(n, FIRST_GUESS))
        # The dense solver's work hardly depends on p: it is asked for everything, once.
        p = min(n, FIRST_GUESS) if isinstance(first.solver, BlockKrylov) else n
        op, rows = self._operator(X, kernel, first)
        start: Array | None = None
        while True:
            # The operator stays what it is, whatever the solver needs beside it.
            plan = replace(make_plan(self, X, kernel, p, first.available_bytes), residence=first.residence)
            eigen = self._solve(op, plan, rng, start)
            spectrum = checked_spectrum(eigen, op, kernel.positive_definite, fraction)
            enough = spectrum.components_for(fraction)
            if enough is None and p < n:
                start, p = eigen.eigenvectors, 2 * p if isinstance(plan.solver, BlockKrylov) and 10 * p <= n else n
                continue
            # No variance at all: one component of eigenvalue zero.
            keep = enough or max(1, int(np.sum(spectrum.eigenvalues > 0)))
            plan = replace(plan, n_components=keep)
            return (
                plan,
                op,
                rows,
                eigen.truncated(keep),
                Spectrum(spectrum.eigenvalues[:keep], spectrum.total_variance),
            )

    def _operator(self, X: Array, kernel: Kernel, plan: Plan) -> tuple[CenteredGram, Rows | None]:
        """The centred Gram operator, and the prepared rows where there are any."""
        listener = listener_from(self.verbose)
        if isinstance(kernel, Precomputed):
            K = square_kernel_matrix(X)
            if has_negative_diagonal(K):
                warnings.warn(
                    "the precomputed kernel matrix has a negative entry on its diagonal, so it is not positive "
                    "semidefinite.",
                    IndefiniteKernelWarning,
                    stacklevel=6,
                )
            return CenteredGram(DenseGram(K, n_jobs=self.n_jobs)), None
        if kernel.stored_only:
            return CenteredGram(DenseGram(gram_matrix(kernel, X, n_jobs=self.n_jobs), n_jobs=self.n_jobs)), None
        tiled = TiledGram(
            kernel,
            X,
            cached_tiles=plan.residence.cached_tiles if plan.residence.kind == "tiled" else 0,
            tile_edge=plan.residence.tile_edge if plan.residence.kind == "tiled" else None,
            n_jobs=self.n_jobs,
            centered=True,
            report=tile_report(listener),
        )
        if plan.residence.kind == "tiled":
            return CenteredGram(tiled), tiled.rows
        return CenteredGram(DenseGram(tiled.to_dense(), n_jobs=self.n_jobs)), tiled.rows

    def _solve(self, op: CenteredGram, plan: Plan, rng: np.random.Generator, start: Array | None = None) -> EigenResult:
        listener = listener_from(self.verbose)
        if listener is not None:
            listener(Progress("plan", str(plan)))
        solver = plan.solver
        if start is not None and isinstance(solver, BlockKrylov):
            solver = replace(solver, start=start)
        eigen = top_eigh(op, plan.n_components, solver=solver, rng=rng, report=pass_report(listener))
        check_finite(eigen.eigenvectors, "The eigensolver failed on this matrix.", "The matrix of eigenvectors")
        return eigen

    def _commit(
        self,
        X: Array,
        kernel: Kernel,
        plan: Plan,
        op: CenteredGram,
        rows: Rows | None,
        eigen: EigenResult,
        spectrum: Spectrum,
    ) -> Array:
        """Set the fitted attributes (the only place that does) and return the scores."""
        n = op.shape[0]
        warn_of_convergence(eigen)
        drop = self.n_components is None or bool(self.remove_zero_eig)
        if drop:
            keep = int(np.sum(carrying_variance(spectrum.eigenvalues, dtype_name(op.dtype))))
        else:
            keep = len(spectrum.eigenvalues)
            warn_of_rank(spectrum.eigenvalues, eigen, op)
            warn_of_gap(eigen, keep)
        eigen = eigen.truncated(keep)
        values = spectrum.eigenvalues[:keep]
        like = op.like
        inverse_roots = np.zeros(keep)
        np.divide(1.0, np.sqrt(values), out=inverse_roots, where=values > 0)
        scale = from_host(inverse_roots, like)[None, :]
        projection = eigen.eigenvectors * scale
        scores = eigen.products * scale
        wide = accumulation_dtype(like)
        offset = (op.column_means[None, :] @ cast(projection, wide))[0, :]
        self._set_preimage(X, kernel, projection, scores)
        degrees = max(n - 1, 1)
        self.eigenvalues_ = from_host(values, like)
        self.eigenvectors_ = eigen.eigenvectors
        self.explained_variance_ = from_host(values / degrees, like)
        self.explained_variance_ratio_ = from_host(spectrum.ratios[:keep], like)
        self.total_variance_ = spectrum.total_variance / degrees
        self.residual_norms_ = eigen.residual_norms
        self.converged_ = bool(np.all(eigen.converged))
        self.gap_ = eigen.gap
        self.n_passes_ = eigen.n_passes
        self.projection_ = projection
        self.offset_ = cast(offset, like.dtype)
        self.kernel_ = kernel
        self.gamma_ = kernel_gamma(kernel, X)
        self.plan_ = plan
        self.solver_ = eigen.solver
        self.device_ = plan.device
        self.X_fit_ = X
        self._training_rows = TrainingRows(rows)
        return scores

    def _set_preimage(self, X: Array, kernel: Kernel, projection: Array, scores: Array) -> None:
        for name in ("dual_coef_", "X_transformed_fit_", "_preimage"):
            self.__dict__.pop(name, None)
        if not self.fit_inverse_transform:
            return
        if isinstance(kernel, Linear):
            self._preimage: Any = LinearPreimage.fitted(X, projection)
        else:
            self._preimage = RidgePreimage.fitted(X, scores, kernel, float(self.alpha), self.n_jobs)
            self.dual_coef_ = self._preimage.dual_coef
        self.X_transformed_fit_ = scores

    def _own(self, X: Array, given: Any, kernel: Kernel) -> Array:
        """X for this fit and later transforms: a copy if one was asked for and none was made on the way."""
        if not self.copy_X or isinstance(kernel, Precomputed):
            return X
        if is_numpy(X):
            return X.copy() if not isinstance(given, np.ndarray) or np.may_share_memory(X, given) else X
        if is_sparse(X):
            return X.copy()
        return namespace_of(X).asarray(X, copy=True) if X is given else X

    # -- new points ------------------------------------------------------------------------------------------------

    def transform(self, X: Any) -> Array:
        """Scores of new points.

        Parameters
        ----------
        X : array, CSR matrix or data frame, shape (m, d); K(X, X_fit) of shape (m, n) with kernel="precomputed"

        Returns
        -------
        array, shape (m, p), in the library of X and the dtype of fit

        Raises
        ------
        NotFittedError, ValueError

        Notes
        -----
        Cost: m n kernel values, made tile by tile and never held together: memory O(m p) and one tile a thread.
        """
        check_is_fitted(self)
        with overflow_allowed():
            scores = self._scores(new_data(self, X, self.X_fit_, "transform"))
            check_finite(scores, "The kernel overflows on the new points.", "The array of scores")
        synchronize(scores)
        return self._delivered(scores, X)

    def _scores(self, Y: Array) -> Array:
        """k(y, X) A - b for every row y."""
        if isinstance(self.kernel_, Precomputed):
            return cast(Y, self.projection_.dtype) @ self.projection_ - self.offset_[None, :]
        rows = self._training_rows.get(self.kernel_, self.X_fit_)
        products = kernel_matmat(self.kernel_, Y, self.X_fit_, self.projection_, prepared=rows, n_jobs=self.n_jobs)
        return products - self.offset_[None, :]

    @WhenEnabled
    def inverse_transform(self, X: Any) -> Array:
        """Points of data space for given scores.

        Exact for the linear kernel (the mean is restored). For the others a kernel ridge regression learned in fit,
        with the kernel and gamma of the estimator between scores (Bakır, Weston & Schölkopf 2004).

        Parameters
        ----------
        X : array, shape (m, p)
            Scores, such as `transform` returns.

        Returns
        -------
        array, shape (m, d)

        Raises
        ------
        NotFittedError
            Not fitted, or fitted without ``fit_inverse_transform=True``.
        ValueError
            Wrong width, NaN or infinity.
        """
        check_is_fitted(self)
        if not hasattr(self, "X_transformed_fit_"):
            raise NotFittedError(
                "this KernelPCA was fitted without fit_inverse_transform=True, so it has no inverse; fit it again."
            )
        with overflow_allowed():
            points = self._preimage(checked_scores(X, self.X_transformed_fit_))
            check_finite(points, "The kernel overflows on these scores.", "The array of points")
        return self._delivered(points, X)

    def _delivered(self, scores: Array, X: Any) -> Array:
        """Results in the library of the input; on the host where a data frame will be made of them."""
        wanted = getattr(self, "_sklearn_output_config", {}).get("transform") or get_config()["transform_output"]
        if wanted != "default" or not is_foreign(X):
            return to_host(scores)
        return move(scores, X)

    # -- scikit-learn ----------------------------------------------------------------------------------------------

    @property
    def _n_features_out(self) -> int:
        return int(self.eigenvalues_.shape[0])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        precomputed = isinstance(self.kernel, Precomputed) or (
            isinstance(self.kernel, str) and self.kernel == "precomputed"
        )
        tags.input_tags.pairwise = precomputed
        tags.input_tags.sparse = not precomputed and not self.fit_inverse_transform
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        tags.array_api_support = True
        return tags


def _is_fraction(n_components: Any) -> bool:
    return isinstance(n_components, (float, np.floating))
