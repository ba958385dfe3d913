"""Estimators of latent variable models: probabilistic PCA, and Bayesian PCA that finds its number of components."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from gpukpca._typing import Held, NumpyArray
from gpukpca.algorithms.latent.model import LatentFit
from gpukpca.algorithms.latent.priors import ARDPrior, FlatPrior
from gpukpca.decomposition._latent import FitOfRows, LatentVariableEstimator


class ProbabilisticPCA(LatentVariableEstimator[Literal["closed_form"], Held]):
    """Probabilistic PCA, x | z ~ N(W z + μ, σ² I) with z ~ N(0, I), by maximum likelihood; NaN is a missing entry.

    Works on NumPy arrays, memory maps, SciPy CSR matrices, pandas data frames, on CuPy, PyTorch, JAX and
    array-api-strict arrays, and on iterables of such batches; results live where the input lives, in its dtype.

    Parameters
    ----------
    n_components : None or int >= 1
        Number p, at most min(n, d), and less than d for EM. None: min(n, d) - 1, at least 1, and for EM at most 20,
        because the memory and time of a step grow with its square.
    solver : "auto", "closed_form" or "em"
        "closed_form": the spectrum of `PCA`. "em": expectation maximization, which takes missing values and
        never forms the d x d covariance. "auto": "em" where X has missing values, or where only its memory suffices.
    ddof : 0 or 1
        Variances over n - ddof. 0: maximum likelihood; 1: as scikit-learn's PCA. EM maximizes the likelihood, and
        multiplies its variances by n / (n - ddof) at the end.
    tol : None or float >= 0
        EM stops when a step raises the log-likelihood, divided by the number of observed entries, by no more than this,
        and turns the components out of their subspace by an angle whose sine is at most its square root. None: 1e-5,
        the angle 0.003. Directions that are mostly noise count less. 0: as far as rounding allows.
    max_iter : int >= 1
        Most steps of EM, extrapolations included.
    batch_size : None or int >= 1
        For EM: rows of an array or memory map that are read and moved to the device together. None: all of an array
        that stays where it is, else 2**22 / d.
    random_state : None, int, RandomState or Generator
        For the random start of block Krylov, and for `sample`.
    device, memory_limit, n_jobs, verbose : as in `PCA`

    Attributes
    ----------
    components_ : array (p, d)
        Unit rows; the entry of largest modulus is positive.
    explained_variance_, explained_variance_ratio_ : array (p,)
        Variances of the model along the components, σ² included, descending; their shares of the total.
    loadings_ : array (d, p)
        W = V (Λ - σ²)^½.
    noise_variance_ : float
        σ²: the mean of the d - p variances left out.
    total_variance_ : float
        Of the data where no entry is missing, else of the model.
    mean_ : array (d,)
        μ.
    n_samples_ : int, or float where weights are fractions
    n_components_, n_features_in_ : int
    feature_names_in_ : array of str
    n_iter_ : int
        Steps of EM, extrapolations included, also those that were undone; 1 for the closed form.
    log_likelihoods_ : array, shape (`n_iter_` + 1,)
        Only with EM: of all observed entries before every step and at the end; it never decreases.
    converged_ : bool
    solver_, device_ : str
        The method that ran, and its device.
    fallbacks_ : tuple of str
        Failures and what replaced them. Empty in most fits.

    Raises
    ------
    InvalidParameterError, MemoryBudgetError, DeviceMismatchError, ConvergenceError, ValueError, TypeError
        From `fit`, which then leaves the estimator as it was. ValueError where a feature has no observed entry.

    Warns
    -----
    UserWarning
        Rows without any observed entry are left out, and their scores are 0. Or n_components=None, and EM takes fewer
        components than possible.
    ConvergenceWarning, RankWarning, PrecisionWarning, DeviceFallbackWarning

    See Also
    --------
    BayesianPCA : Also determines the number of components.
    LocalPCA : Mixture of these models.

    Notes
    -----
    Cost: closed form as `PCA`. An EM step O(n d p) for complete rows and O(n (d p² + p³)) for rows with missing
    entries, memory O(d p²) and some panels of rows. The model assumes that entries are missing at random. EM starts
    from the components with means for missing entries, by at most 8 passes of block Krylov. With parameter expansion it
    converges as subspace iteration does on complete data: the ratio of the p-th variance to the next decides. SQUAREM
    extrapolates every second step; an extrapolation that would lower the likelihood is undone. Components beyond those
    that the data have are directions of noise. They take most of the steps, and with many missing entries the
    likelihood has several maxima in them. Statistics are accumulated in float64 also for float32 data.

    The noise variance is the maximum-likelihood one, a mean over d - p directions, where scikit-learn's PCA takes
    min(n, d) - p: the two differ for n < d. In EM it is at least 1e-12 of the largest variance.

    Tipping & Bishop, J. R. Stat. Soc. B 61 (1999) 611; Roweis, NIPS 10 (1998) 626 (EM for PCA); Liu, Rubin & Wu,
    Biometrika 85 (1998) 755 (parameter expansion); Varadhan & Roland, Scand. J. Stat. 35 (2008) 335 (SQUAREM); Ilin &
    Raiko, J. Mach. Learn. Res. 11 (2010) 1957 (missing values).

    Examples
    --------
    >>> import numpy as np
    >>> from gpukpca import ProbabilisticPCA
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((100, 2)) @ rng.standard_normal((2, 5)) + 0.1 * rng.standard_normal((100, 5))
    >>> X[3, 1] = np.nan
    >>> model = ProbabilisticPCA(n_components=2, random_state=0).fit(X)
    >>> model.solver_, bool(0.005 < model.noise_variance_ < 0.02)
    ('em', True)
    >>> bool(np.isnan(model.impute(X)).any())
    False
    """

    _result_type = LatentFit
    _direct = "closed_form"

    if TYPE_CHECKING:
        fit: FitOfRows[
            ProbabilisticPCA[Any], ProbabilisticPCA[NumpyArray[np.float32]], ProbabilisticPCA[NumpyArray[np.float64]]
        ]

    def _prior(self) -> FlatPrior:
        return FlatPrior()


class BayesianPCA(LatentVariableEstimator[Literal["spectrum"], Held]):
    """Probabilistic PCA with automatic relevance determination, which prunes components and so finds their number.

    Every column of W has a prior N(0, α_i⁻¹ I), and α_i = d / ‖w_i‖² is estimated with it. Directions without support
    in the data shrink, and are pruned. The span of the data decides which ones stay, so that constant features, d >= n,
    or a few sums among many noisy features do not change it. Other data of a lower rank have no noise, and all their
    directions stay. Input and results as in `ProbabilisticPCA`.

    Parameters
    ----------
    n_components : None or int >= 1
        Candidates, at most min(n, d), and less than d for EM; one direction of the span of the data is left for the
        noise, if they have any. None: min(n, d) - 1, and for EM at most 20, as in `ProbabilisticPCA`.
    solver : "auto", "spectrum" or "em"
        "spectrum": EM on the variances of `PCA`, which is the same for complete data at little cost. "em": on the rows,
        with missing values. "auto": "em" where X has missing values, or where only its memory suffices.
    ddof : 0 or 1
        Variances over n - ddof; see `ProbabilisticPCA`.
    tol : None or float >= 0
        "em" stops when a step raises the logarithm of likelihood times prior, divided by the number of observed
        entries, by no more than this. None: 1e-10, because candidates without support shrink slowly at first.
    max_iter : int >= 1
        Most steps on the rows.
    batch_size, random_state, device, memory_limit, n_jobs, verbose : as in `ProbabilisticPCA`

    Attributes
    ----------
    components_ : array (K, d)
        Unit rows; the entry of largest modulus is positive. K may be 0.
    n_components_ : int
        K, the components that were not pruned.
    precisions_ : array (q,)
        α of all candidates, ascending, in 1 / units of X squared; infinite where pruned.
    explained_variance_, explained_variance_ratio_ : array (K,)
        Variances of the model along the components, σ² included. They are less than those of the data, because the
        prior shortens W.
    loadings_, noise_variance_, total_variance_, mean_, n_samples_, n_iter_, converged_, solver_, device_, fallbacks_
        As in `ProbabilisticPCA`.
    log_likelihoods_ : array, shape (`n_iter_` + 1,)
        Only with "em": logarithms of likelihood times prior, up to a constant; they never decrease.
    n_features_in_, feature_names_in_

    Raises
    ------
    InvalidParameterError, MemoryBudgetError, DeviceMismatchError, ConvergenceError, ValueError, TypeError
        From `fit`, which then leaves the estimator as it was.

    Warns
    -----
    RankWarning
        No component is left: the model is N(μ, σ² I). Or the number of components is unreliable: with n_components=None
        half of the candidates or more are left although n is less than twice their number, or the noise is 0, or that
        of EM at its floor.
    UserWarning
        Rows without any observed entry are left out, and their scores are 0. Or n_components=None, and EM takes fewer
        candidates than possible.
    ConvergenceWarning, PrecisionWarning, DeviceFallbackWarning

    See Also
    --------
    ProbabilisticPCA : The model with a given number of components.
    gpukpca.model_selection.n_components_for : Other rules for the number of components.

    Notes
    -----
    A direction in which complete data have the variance λ (over n) stays only if (λ + σ²)² >= 4 (1 + r/n) λ σ², where r
    is the rank of the centered data, at most n - 1, by the rule of `PCA`, and σ² the noise in their span. The loadings
    and `noise_variance_` are then those of all d features, as in `ProbabilisticPCA`. Where r is less than min(n - 1,
    d') with the d' features that vary, all r directions stay and the noise is 0, which is the limit of small noise. But
    if more directions than are missing would be pruned, and these clearly look alike, n > 2 d', they are noise: a few
    features are combinations of noisy ones. Where only n_components variances are known, and with missing values, r is
    min(n - 1, d'), so that combinations are not detected. For n <= d a component has to exceed the mean variance of the
    others by a factor of about 6, and the prior takes d/(n + d) of it.

    Bishop, Bayesian PCA, NIPS 11 (1998) 382. The span: Minka, Automatic choice of dimensionality for PCA, NIPS 13
    (2000) 598, whose program drops eigenvalues of 0 and lets the noise be their share of all d - K directions.

    Examples
    --------
    >>> import numpy as np
    >>> from gpukpca import BayesianPCA
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((200, 2)) @ rng.standard_normal((2, 8)) + 0.1 * rng.standard_normal((200, 8))
    >>> model = BayesianPCA().fit(X)
    >>> model.n_components_
    2
    >>> int(np.isinf(model.precisions_).sum())  # pruned candidates
    5
    """

    precisions_: Held
    _result_type = LatentFit
    _direct = "spectrum"

    if TYPE_CHECKING:
        fit: FitOfRows[BayesianPCA[Any], BayesianPCA[NumpyArray[np.float32]], BayesianPCA[NumpyArray[np.float64]]]

    def _prior(self) -> ARDPrior:
        return ARDPrior(by_count=self.n_components is not None)
