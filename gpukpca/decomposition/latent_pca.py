"""Probabilistic PCA, and Bayesian PCA that finds its number of components."""

from __future__ import annotations

from typing import Literal

from gpukpca.algorithms.latent.model import LatentFit
from gpukpca.algorithms.latent.priors import ARDPrior, FlatPrior
from gpukpca.backend.random import Seed
from gpukpca.decomposition._latent import LatentVariableEstimator
from gpukpca.decomposition._parameters import MemoryLimit, Verbose


class ProbabilisticPCA(LatentVariableEstimator):
    """Probabilistic PCA, x | z ~ N(W z + μ, σ² I) with z ~ N(0, I), by maximum likelihood; NaN is a missing entry.

    Works on NumPy arrays, memory maps, SciPy CSR matrices, pandas data frames, on CuPy, PyTorch, JAX and
    array-api-strict arrays, and on iterables of such batches; results live where the input lives, in its dtype.

    Parameters
    ----------
    n_components : None or int >= 1
        p, at most min(n, d), and less than d for EM. None: min(n, d) - 1, at least 1, and for EM at most 20, as the
        memory and time of a step grow with its square: set it.
    solver : "auto", "closed_form" or "em"
        "closed_form": the spectrum of `PCA`. "em": expectation maximization, which takes missing values and batches and
        never forms the d x d covariance. "auto": "em" where X is an iterable of batches or has missing values.
    ddof : 0 or 1
        Variances over n - ddof. 0: maximum likelihood; 1: as scikit-learn's PCA. EM maximizes the likelihood, and what
        it finds is multiplied by n / (n - ddof) at the end.
    tol : float >= 0
        EM stops when a step makes the log-likelihood, divided by the number of observed entries, larger by no more than
        this.
    max_iter : int >= 1
        Most steps of EM.
    batch_size : None or int >= 1
        For EM: rows of an array or memory map that are read, and brought to the device, together. None: all of an array
        that stays where it is, else 2**22 / d.
    random_state : None, int, RandomState or Generator
        For the random start of block Krylov, and for `sample`.
    device : None, "auto", "cpu", "cuda" or "cuda:N"
        Where to compute. None: where X is; see `KernelPCA`.
    memory_limit : None, int or str
        Bytes that fit may allocate, such as "4GiB"; None: 85 % of what is free.
    n_jobs : int, optional
        Threads (NumPy). None: what BLAS, joblib and Slurm allow; -1: all CPUs.
    verbose : int or callable
        1 prints a line a step to the standard error; a callable gets `Progress` events.

    Attributes
    ----------
    components_ : array (p, d)
        Unit rows; the entry of largest modulus is positive.
    explained_variance_, explained_variance_ratio_ : array (p,)
        Variances of the model along the components, σ² included, descending; their shares of the total.
    loadings_ : array (d, p)
        W = V (Λ - σ²)^½: components as columns, times the root of what their variances exceed the noise by.
    noise_variance_ : float
        σ²: the mean of the d - p variances left out.
    total_variance_ : float
        Of the data where no entry is missing, else of the model.
    mean_ : array (d,)
        μ.
    n_components_, n_samples_, n_features_in_ : int
    feature_names_in_ : array of str
    n_iter_ : int
        Steps of EM; 1 for the closed form.
    log_likelihoods_ : array (n_iter_ + 1,)
        Only with EM: of all observed entries before every step and at the end; it never decreases.
    converged_ : bool
    solver_, device_ : str
        What ran, and where.
    fallbacks_ : tuple of str
        What was tried first and did not work. Empty in most fits.

    Raises
    ------
    InvalidParameterError, MemoryBudgetError, DeviceMismatchError, ConvergenceError, ValueError, TypeError
        From `fit`, which then leaves the estimator as it was. ValueError where a row or a feature has no observed
        entry.

    Warns
    -----
    UserWarning
        n_components=None, and EM takes fewer than there could be.
    ConvergenceWarning, RankWarning, PrecisionWarning, DeviceFallbackWarning

    Notes
    -----
    Cost: closed form as `PCA`. An EM step O(n d p) for complete rows and O(n (d p² + p³)) for rows with missing
    entries, memory O(d p²) and some panels of rows. Missing entries are taken to be missing at random. EM with
    parameter expansion goes as fast as subspace iteration on complete data: the ratio of the p-th variance to the next
    decides. Statistics are accumulated in float64 also for float32 data.

    The noise variance is the maximum-likelihood one, a mean over d - p directions, where scikit-learn's PCA takes
    min(n, d) - p: the two differ for n < d. In EM it is at least 1e-12 of the largest variance.

    Tipping & Bishop, J. R. Stat. Soc. B 61 (1999) 611; Roweis, NIPS 10 (1998) 626 (EM for PCA); Liu, Rubin & Wu,
    Biometrika 85 (1998) 755 (parameter expansion); Ilin & Raiko, J. Mach. Learn. Res. 11 (2010) 1957 (missing values).
    """

    _result_type = LatentFit

    def __init__(
        self,
        n_components: int | None = None,
        *,
        solver: Literal["auto", "closed_form", "em"] = "auto",
        ddof: Literal[0, 1] = 1,
        tol: float = 1e-10,
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

    def _prior(self) -> FlatPrior:
        return FlatPrior()


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

    _result_type = LatentFit
    direct = "spectrum"

    def __init__(
        self,
        n_components: int | None = None,
        *,
        solver: Literal["auto", "spectrum", "em"] = "auto",
        ddof: Literal[0, 1] = 1,
        tol: float = 1e-10,
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

    def _prior(self) -> ARDPrior:
        return ARDPrior(by_count=self.n_components is not None)
