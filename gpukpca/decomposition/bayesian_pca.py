"""Bayesian PCA: probabilistic PCA that finds its number of components."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpukpca.backend.rows import take_columns
from gpukpca.decomposition.convergence import ConvergenceWarning, warn_caller
from gpukpca.decomposition.em import Outcome, Parameters, Told
from gpukpca.decomposition.latent import LatentModel
from gpukpca.decomposition.latent_estimator import LatentVariableEstimator
from gpukpca.decomposition.relevance import most_probable, relevance_of
from gpukpca.decomposition.saved.layouts import BAYESIAN_PCA_LAYOUT
from gpukpca.exceptions import RankWarning


class BayesianPCA(LatentVariableEstimator):
    """Probabilistic PCA with automatic relevance determination, which prunes components and so finds their number.

    Every column of W has a prior N(0, α_i⁻¹ I), and α_i = d / ‖w_i‖² is estimated with it: directions that the data do
    not speak for lose their length, and are left out. Input and results as in `ProbabilisticPCA`.

    Parameters
    ----------
    n_components : None or int >= 1
        Candidates: the most components there can be, at most min(n, d), and less than d for EM; the d-th is pruned
        always. None: min(n, d) - 1. With missing values set it, as the cost of a step grows with its square.
    solver : "auto", "spectrum" or "em"
        "spectrum": EM on the variances of `PCA`, which is the same for complete data and costs next to nothing. "em":
        on the rows, with missing values or in batches. "auto": "em" where X is an iterable of batches or has missing
        values.
    ddof : 0 or 1
        Variances over n - ddof; see `ProbabilisticPCA`.
    tol : float >= 0
        "em" stops when a step makes the logarithm of likelihood times prior, divided by the number of observed entries,
        larger by no more than this.
    max_iter : int >= 1
        Most steps on the rows.
    batch_size, random_state, device, memory_limit, n_jobs, verbose
        As in `ProbabilisticPCA`.

    Attributes
    ----------
    components_ : array (K, d)
        Unit rows; the entry of largest modulus is positive. K may be 0.
    n_components_ : int
        K, the components that were not pruned.
    precisions_ : array (q,)
        α of all candidates, ascending, in 1 / units of X squared; infinite where pruned.
    explained_variance_, explained_variance_ratio_ : array (K,)
        Variances of the model along the components, σ² included: less than those of the data, as the prior shortens W.
    loadings_, noise_variance_, total_variance_, mean_, n_samples_, n_iter_, converged_, solver_, device_, fallbacks_
        As in `ProbabilisticPCA`.
    log_likelihoods_ : array (n_iter_ + 1,)
        Only with "em": logarithms of likelihood times prior, up to a constant; they never decrease.
    n_features_in_, feature_names_in_

    Raises
    ------
    InvalidParameterError, MemoryBudgetError, DeviceMismatchError, ConvergenceError, ValueError, TypeError
        From `fit`, which then leaves the estimator as it was.

    Warns
    -----
    RankWarning
        No component is left: the model is N(μ, σ² I).
    ConvergenceWarning, PrecisionWarning, DeviceFallbackWarning

    Notes
    -----
    A direction in which complete data have the variance λ (over n) stays only if (λ + σ²)² >= 4 (1 + d/n) λ σ².
    With n <= d and the default candidates no variance is left for the noise, and all directions of the data stay: give
    n_components well below n then.

    Bishop, Bayesian PCA, NIPS 11 (1998) 382.
    """

    _layout = BAYESIAN_PCA_LAYOUT
    direct = "spectrum"

    def __init__(
        self,
        n_components: Any = None,
        *,
        solver: Any = "auto",
        ddof: Any = 1,
        tol: Any = 1e-10,
        max_iter: Any = 1000,
        batch_size: Any = None,
        random_state: Any = None,
        device: Any = None,
        memory_limit: Any = None,
        n_jobs: Any = None,
        verbose: Any = 0,
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

    def _of_spectrum(
        self, spectrum: np.ndarray, rest: float, total: float, n: int, pca: LatentModel
    ) -> tuple[LatentModel, int, bool]:
        d, factor = int(pca.axes.shape[0]), n / self._degrees(n)
        q = min(len(spectrum), d - 1)
        if q == 0 or not spectrum[0] > 0:
            return LatentModel(pca.axes[:, :0], np.zeros(0), factor * total / d, pca.mean), 1, True
        found = relevance_of(spectrum[:q], float(np.sum(spectrum[q:])) + rest, n, d)
        axes = take_columns(pca.axes, np.flatnonzero(found.kept))
        variances = factor * (found.lengths[found.kept] + found.noise)
        if not found.converged:
            warn_caller(f"the precisions still moved after {found.n_steps} steps.", ConvergenceWarning)
        return LatentModel(axes, variances, factor * found.noise, pca.mean), found.n_steps, found.converged

    def _iterated(self, sums_at: Any, start: Parameters, floor: float, tell: Told) -> Outcome:
        return most_probable(sums_at, start, self._stop, floor, tell)

    def _conclude(self, model: LatentModel, candidates: int) -> None:
        lengths = model.roots**2
        precisions = np.append(model.mean.shape[0] / lengths, np.full(candidates - len(lengths), np.inf))
        self.precisions_ = self._in_full(precisions)
        if not model.n_components:
            warn_caller("no component is left: the data look alike in all directions.", RankWarning)
