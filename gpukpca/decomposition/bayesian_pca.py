"""Bayesian PCA: probabilistic PCA that finds its number of components."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from gpukpca.algorithms.latent.ard import most_probable, relevance_in_span, span_rank
from gpukpca.algorithms.latent.e_step import Parameters, SufficientStatistics
from gpukpca.algorithms.latent.em import EMResult, StepReport
from gpukpca.algorithms.latent.initialization import ObservedMoments
from gpukpca.algorithms.latent.model import LatentModel
from gpukpca.backend.namespace import dtype_name, to_host
from gpukpca.backend.rows import take_columns
from gpukpca.decomposition.latent_estimator import LatentVariableEstimator
from gpukpca.decomposition.saved.layouts import BAYESIAN_PCA_LAYOUT
from gpukpca.exceptions import ConvergenceWarning, RankWarning, warn_user

# The noise of EM up to so many times its floor has been held up by it.
AT_THE_FLOOR = 2.0


class BayesianPCA(LatentVariableEstimator):
    """Probabilistic PCA with automatic relevance determination, which prunes components and so finds their number.

    Every column of W has a prior N(0, α_i⁻¹ I), and α_i = d / ‖w_i‖² is estimated with it: directions that the data do
    not speak for lose their length, and are left out. Which ones stay is asked in the span of the data, so that
    constant features, sums of others, or d >= n do not change it. Input and results as in `ProbabilisticPCA`.

    Parameters
    ----------
    n_components : None or int >= 1
        Candidates: the most components there can be, at most min(n, d), and less than d for EM; one direction of the
        span of the data is left for the noise always. None: min(n, d) - 1, and for EM at most 20, as in
        `ProbabilisticPCA`.
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
        No component is left: the model is N(μ, σ² I). Or with n_components=None half of the candidates or more are left
        although n is less than twice their number, or the noise of EM is at its floor: their number is no finding.
    UserWarning
        n_components=None, and EM takes fewer candidates than there could be.
    ConvergenceWarning, PrecisionWarning, DeviceFallbackWarning

    Notes
    -----
    A direction in which complete data have the variance λ (over n) stays only if (λ + σ²)² >= 4 (1 + r/n) λ σ², where r
    is the rank of the centered data, at most n - 1, by the rule of `PCA`, and σ² the noise in their span: the other
    d - r directions say nothing of it. The loadings and `noise_variance_` are then those of all d features, as in
    `ProbabilisticPCA`. Where only n_components variances are known, and with missing values, r is min(n - 1, d') with
    the d' features that vary: combinations of features are not seen then. For n <= d a component has to exceed
    the mean variance of the others by a factor of about 6, and the prior takes d/(n + d) of it.

    Bishop, Bayesian PCA, NIPS 11 (1998) 382. The span: Minka, Automatic choice of dimensionality for PCA, NIPS 13
    (2000) 598, whose program drops eigenvalues of 0 and lets the noise be their share of all d - K directions.
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
        self, spectrum: np.ndarray, rest: float, rounding: float, n: int, pca: LatentModel
    ) -> tuple[LatentModel, int, bool]:
        d, factor = int(pca.axes.shape[0]), n / self._degrees(n)
        rank = span_rank(spectrum, rest, n, d, rounding)
        found = relevance_in_span(spectrum, rest, rank, n, d)
        self._warn_if_most_stay(int(np.sum(found.kept)), min(len(spectrum), rank - 1), n)
        axes = take_columns(pca.axes, np.flatnonzero(found.kept))
        variances = factor * (found.lengths[found.kept] + found.noise)
        if not found.converged:
            warn_user(f"the precisions still moved after {found.n_steps} steps.", ConvergenceWarning)
        return LatentModel(axes, variances, factor * found.noise, pca.mean), found.n_steps, found.converged

    def _iterated(
        self, sums_at: Any, start: Parameters, floor: float, tell: StepReport, moments: ObservedMoments
    ) -> EMResult:
        d, varying = int(start.loadings.shape[0]), moments.varying
        rank, candidates = min(moments.rows - 1, int(np.sum(varying))), int(start.loadings.shape[1])
        if 1 < rank < d:
            start = self._chosen_in_span(sums_at, start, floor, tell, moments, rank)
        outcome = most_probable(sums_at, start, self._stop, floor, tell, d)
        self._warn_if_most_stay(int(outcome.parameters.loadings.shape[1]), min(candidates, rank - 1), moments.rows)
        if outcome.parameters.noise <= AT_THE_FLOOR * floor:
            warn_user(
                "the noise variance fell to its floor: features are combinations of others, or there are too few rows "
                "for so many components, and how many are kept is no finding. Set n_components to less, or leave such "
                "features out.",
                RankWarning,
            )
        return outcome

    def _chosen_in_span(
        self, sums_at: Any, start: Parameters, floor: float, tell: StepReport, moments: ObservedMoments, rank: int
    ) -> Parameters:
        """A start with the columns that stay where observed entries count as those of `rank` features."""
        d, varying = int(start.loadings.shape[0]), moments.varying
        counted = float(np.sum(to_host(moments.counts)[varying])) * rank / int(np.sum(varying))

        def sums_in_span(parameters: Parameters) -> SufficientStatistics:
            return replace(sums_at(parameters), observed=round(counted))

        loadings = take_columns(start.loadings, np.arange(min(int(start.loadings.shape[1]), rank - 1)))
        start = replace(start, loadings=loadings, noise=start.noise * d / rank)
        found = most_probable(sums_in_span, start, self._stop, floor, tell, rank).parameters
        kept = int(found.loadings.shape[1])
        return replace(found, noise=max(found.noise * (rank - kept) / (d - kept), floor))

    def _warn_if_most_stay(self, kept: int, candidates: int, n: int) -> None:
        if self.n_components is None and 2 * kept >= candidates > 1 and n < 2 * candidates:
            warn_user(
                f"{kept} of {candidates} candidates stay, with {n} samples: too few to tell noise from the rest, and "
                "their number is no finding. Set n_components, or see gpukpca.model_selection.compare_rules.",
                RankWarning,
            )

    def _conclude(self, model: LatentModel, candidates: int) -> None:
        lengths = model.roots**2
        largest = np.finfo(dtype_name(model.mean.dtype)).max  # infinite where pruned only
        precisions = np.minimum(model.mean.shape[0] / lengths * model.scale * model.scale, largest)
        precisions = np.append(precisions, np.full(candidates - len(lengths), np.inf))
        self.precisions_ = self._in_full(precisions)
        if not model.n_components:
            warn_user("no component is left: the data look alike in all directions.", RankWarning)
