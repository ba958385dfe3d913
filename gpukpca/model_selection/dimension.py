"""Rules for the number of components from the literature, each with its source."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from sklearn.base import BaseEstimator

from gpukpca._rules import COUNT, NONE, SHARE, Rule, is_integer, is_real, one_of, word
from gpukpca._typing import Array, ArrayLike
from gpukpca.algorithms.latent.ard import relevance_in_span, rounding_of, span_rank
from gpukpca.algorithms.pca.evidence import log_evidence, most_evident
from gpukpca.algorithms.pca.fit import fit_pca
from gpukpca.algorithms.pca.settings import PCASettings
from gpukpca.backend.device import device_context
from gpukpca.backend.finite import FINITE, check_finite
from gpukpca.backend.linalg import inner_products
from gpukpca.backend.namespace import (
    accumulation_dtype,
    cast,
    from_host,
    namespace_of,
    overflow_allowed,
    to_host,
)
from gpukpca.backend.random import Seed, generator, standard_normal
from gpukpca.backend.rows import as_rows, dense_rows, feature_means
from gpukpca.decomposition.diagnostics import samples_of, spectrum_of, total_variance_of, whole_rank
from gpukpca.exceptions import InvalidParameterError
from gpukpca.model_selection.gap import certain_gaps, kernel_samples_of, largest_certain_gap, residuals_of

SOURCES = {
    "fixed": "given",
    "variance": "Jolliffe, Principal Component Analysis (2002), section 6.1.1",
    "error": "Eckart & Young, Psychometrika 1 (1936) 211",
    "mle": "Minka, NIPS 13 (2000) 598",
    "bayesian": "Bishop, NIPS 11 (1998) 382",
    "parallel": "Horn, Psychometrika 30 (1965) 179",
    "broken_stick": "Frontier, J. Exp. Mar. Biol. Ecol. 25 (1976) 67; Jackson, Ecology 74 (1993) 2204",
    "gap": "Weyl, Math. Ann. 71 (1912) 441; von Luxburg, Stat. Comput. 17 (2007) 395, section 8.3",
}


def _share(rule: str) -> Rule:
    """Return the values of a rule that takes a share of the variance."""
    return Rule(f'a share in (0, 1] with rule "{rule}"', lambda value: is_real(value) and 0 < value <= 1)


# The values that a rule takes; the others take none.
ALLOWED = {
    "fixed": Rule('an integer with rule "fixed"', is_integer),
    "variance": _share("variance"),
    "error": Rule('an error >= 0 with rule "error"', lambda value: is_real(value) and value >= 0),
    "gap": one_of(NONE, _share("gap"), text=_share("gap").text),
}
# Rules that ask of a spectrum nothing but itself, so that it may be that of a kernel.
OF_ANY_SPECTRUM = ("fixed", "variance", "error", "gap")
USUAL_SHARE = 0.95
# Of the total: what a cumulative sum of shares may lack of a share asked for.
ROUNDING = 1e-12


RuleName = Literal["fixed", "variance", "error", "mle", "bayesian", "parallel", "broken_stick", "gap"]


@dataclass(frozen=True)
class RankSelection:
    """The choice of a rule, with the numbers it compared.

    Attributes
    ----------
    rule : str
    n_components : int
        Of the first components, those to keep; may be 0.
    source : str
    compared : str
        What `values` and `thresholds` are.
    values : host array, shape (q,)
        One number a component.
    thresholds : host array of shape (q,), or None
        What each of them was held against.
    """

    rule: str
    n_components: int
    source: str
    compared: str
    values: np.ndarray
    thresholds: np.ndarray | None = None


@dataclass(frozen=True)
class RuleResult:
    """One line of the table of `compare_rules`.

    Attributes
    ----------
    rule : str
    n_components : int or None
        None where the rule cannot be applied.
    source : str
    note : str
        The setting; or why the rule cannot be applied.
    """

    rule: str
    n_components: int | None
    source: str
    note: str = ""


@dataclass(frozen=True)
class _Spectrum:
    """What the rules know: variances (over n - 1), descending, with bounds on their errors; their exact total; n, d;
    the rows or the model, as given; whether they are variances in the feature space of a kernel."""

    variances: np.ndarray
    total: float
    n: int
    d: int
    rank: int
    rows: Array | None = None
    errors: np.ndarray | None = None
    model: Any = None
    of_kernel: bool = False

    @property
    def is_whole(self) -> bool:
        return len(self.variances) >= self.rank

    @property
    def shares(self) -> np.ndarray:
        return self.variances / self.total if self.total > 0 else np.zeros_like(self.variances)


@dataclass(frozen=True)
class _Settings:
    """The keyword arguments of `n_components_for`, checked."""

    value: Any
    per: str
    quantile: float
    n_draws: int
    null: str
    random_state: Any


def n_components_for(
    model_or_X: ArrayLike | BaseEstimator,
    rule: RuleName = "variance",
    value: float | None = None,
    *,
    per: Literal["sample", "total"] = "sample",
    quantile: float = 0.95,
    n_draws: int = 100,
    null: Literal["permutation", "normal"] = "permutation",
    random_state: Seed = 0,
    return_report: bool = False,
) -> Any:
    """Return the number of principal components to keep, by a rule.

    Parameters
    ----------
    model_or_X : fitted PCA or KernelPCA; or array, sparse matrix or data frame of shape (n, d)
        Variances of a kernel PCA are those in its feature space: only "fixed", "variance", "error" and "gap" take it.
        Data are centered and not standardized: standardize them first for the correlation matrix. A model is enough for
        all rules but "parallel", and "mle" and "bayesian" need one with all components.
    rule : str
        "fixed"
            `value` components.
        "variance"
            The fewest with a cumulative share of the variance of at least `value`, 0 < value <= 1 (Jolliffe 2002,
            6.1.1).
        "error"
            The fewest with a squared reconstruction error of at most `value`, in the units of X squared: with
            per="sample" the mean of the samples, (n - 1)/n Σ_{d>K} λ_d, with per="total" the sum over them (Eckart &
            Young 1936).
        "mle"
            The largest Laplace approximation of the evidence of a probabilistic PCA (Minka 2000); 1 <= K < d <= n.
        "bayesian"
            The components that automatic relevance determination does not prune (Bishop 1998, `BayesianPCA`);
            0 <= K < r, the rank of the centered data.
        "parallel"
            The leading components whose variance exceeds that of data without correlation (Horn 1965; the quantile in
            the place of the mean after Glorfeld, Educ. Psychol. Meas. 55 (1995) 377).
        "broken_stick"
            The leading components with more than b_k = (1/q) Σ_{i=k}^q 1/i of the variance, the expected shares of a
            stick broken at random into q = min(n - 1, d) pieces (Frontier 1976, Jackson 1993).
        "gap"
            The components before the steepest fall from one variance to the next, as a share of the former, that the
            residuals of a model make certain: λ_i - ‖r_i‖ against λ_{i+1} + ‖r_{i+1}‖ (Weyl 1912; von Luxburg 2007).
            It is sought where those before it have a share of the variance below `value`: the far end of a spectrum
            falls by any factor.
    value : int or float
        Only for the first three rules and "gap"; no default, but 0.95 for "variance" and "gap".
    per : "sample" or "total"
        For "error".
    quantile : float in (0, 1)
        For "parallel".
    n_draws : int >= 1
        For "parallel": random data sets.
    null : "permutation" or "normal"
        For "parallel": every column of X permuted by itself, or normal numbers with the variances of the columns.
    random_state : None, int, RandomState or Generator
        For "parallel"; the same integer gives the same answer.
    return_report : bool
        Return a `RankSelection` with what was compared, for a plot.

    Returns
    -------
    int, or RankSelection
        From 0 to the number of components known.

    Raises
    ------
    InvalidParameterError
        An unknown rule; a value that is missing, out of range or not taken by the rule; a model that knows too little.
    ValueError
        Data with NaN or infinity.

    Notes
    -----
    Cost: of data O(n d min(n, d)) for the spectrum; for "parallel" n_draws times that; for "mle" O(d²)
    more, for "bayesian" of data a `PCA`, and O(d) a step.
    """
    value = USUAL_SHARE if value is None and rule == "variance" else value
    settings = _Settings(value, per, quantile, n_draws, null, random_state)
    _check(rule, settings)
    choice = _chosen(rule, _known(model_or_X), settings)
    return choice if return_report else choice.n_components


def compare_rules(
    model_or_X: ArrayLike | BaseEstimator,
    *,
    share: float = 0.95,
    error: float | None = None,
    quantile: float = 0.95,
    n_draws: int = 100,
    random_state: Seed = 0,
) -> list[RuleResult]:
    """Return the choices of all rules.

    Parameters
    ----------
    model_or_X : fitted PCA or KernelPCA; or array, sparse matrix or data frame of shape (n, d)
    share : float
        For "variance".
    error : float, optional
        For "error", the mean over samples; default (1 - share) of the total.
    quantile : float
    n_draws : int
    random_state : None, int, RandomState or Generator
        For "parallel".

    Returns
    -------
    list of RuleResult
        One for each rule but "fixed" and "gap"; a rule that cannot be applied has None and the reason.

    Raises
    ------
    InvalidParameterError, ValueError
        Settings out of range, data with NaN or infinity.
    """
    known = _known(model_or_X)
    if error is None:
        error = (1.0 - share) * known.total * (known.n - 1) / known.n
    wanted = {"variance": share, "error": error, "mle": None, "bayesian": None, "parallel": None, "broken_stick": None}
    notes = {"variance": f"share {share:g}", "error": f"mean error {error:.4g}", "parallel": f"quantile {quantile:g}"}
    table = []
    for rule, value in wanted.items():
        settings = _Settings(value, "sample", quantile, n_draws, "permutation", random_state)
        _check(rule, settings)
        try:
            table.append(
                RuleResult(rule, _chosen(rule, known, settings).n_components, SOURCES[rule], notes.get(rule, ""))
            )
        except InvalidParameterError as reason:
            table.append(RuleResult(rule, None, SOURCES[rule], str(reason)))
    return table


# -- what is known -----------------------------------------------------------------------------------------------------


def _known(model_or_X: Any) -> _Spectrum:
    if hasattr(model_or_X, "fit"):
        return _of_model(model_or_X)
    rows = as_rows(model_or_X)
    check_finite(rows, FINITE, of_missing="The rules take no missing values.")
    rows = dense_rows(rows)
    n, d = int(rows.shape[0]), int(rows.shape[1])
    if n < 2 or d < 1:
        raise InvalidParameterError(f"data of shape ({n}, {d}) have no variance: at least 2 samples are needed.")
    with device_context(rows), overflow_allowed():
        variances = _variances(rows)
    if not np.all(np.isfinite(variances)):
        raise ValueError("the variances of the data overflow; divide the data by a constant.")
    return _Spectrum(variances, float(np.sum(variances)), n, d, min(n - 1, d), rows)


def _of_model(model: Any) -> _Spectrum:
    variances, errors = np.maximum(spectrum_of(model), 0.0), residuals_of(model)
    of_kernel = not hasattr(model, "components_")
    n = kernel_samples_of(model) if of_kernel else samples_of(model)
    if n < 2:
        raise InvalidParameterError("the model was fitted to 1 sample, which has no variance.")
    d, rank = (n, n - 1) if of_kernel else (int(model.components_.shape[1]), whole_rank(model))
    return _Spectrum(variances, total_variance_of(model), n, d, rank, errors=errors, model=model, of_kernel=of_kernel)


def _variances(rows: Array) -> np.ndarray:
    """The min(n - 1, d) variances of dense rows, over n - 1, descending, on the host in float64."""
    mean = feature_means(rows)
    centered = cast(rows, mean.dtype) - mean[None, :]
    n, d = centered.shape
    products = centered if d <= n else namespace_of(centered).matrix_transpose(centered)
    values = np.linalg.eigvalsh(_finite(inner_products(products, products)))[::-1][: min(n - 1, d)]
    return np.maximum(values, 0.0) / (n - 1)


def _finite(products: np.ndarray) -> np.ndarray:
    """The matrix itself, for LAPACK never returns from some with infinity."""
    if not np.all(np.isfinite(products)):
        raise ValueError("the variances of the data overflow; divide the data by a constant.")
    return products


# -- the rules ---------------------------------------------------------------------------------------------------------


def _chosen(rule: str, known: _Spectrum, settings: _Settings) -> RankSelection:
    if known.of_kernel and rule not in OF_ANY_SPECTRUM:
        raise InvalidParameterError(
            f'rule "{rule}" is about variances in the space of the data, and the model is a kernel PCA. Rules for it: '
            f"{', '.join(map(repr, OF_ANY_SPECTRUM))}; KernelPCACV chooses by the error of rows held out."
        )
    return RULES[rule](known, settings)


def _fixed(known: _Spectrum, settings: _Settings) -> RankSelection:
    most = len(known.variances)
    if not 0 <= settings.value <= most:
        raise InvalidParameterError(f'rule "fixed": value={settings.value!r} must be from 0 to {most}.')
    return _choice("fixed", int(settings.value), "variance", known.variances)


def _variance(known: _Spectrum, settings: _Settings) -> RankSelection:
    cumulative = np.cumsum(known.shares)
    thresholds = np.full(len(cumulative), float(settings.value))
    if known.total == 0:
        return _choice("variance", 0, "cumulative share", cumulative, thresholds)
    reached = np.flatnonzero(cumulative >= settings.value - ROUNDING)
    if not len(reached):
        raise InvalidParameterError(
            f"the {len(cumulative)} components that the model keeps have a share of {cumulative[-1]:.6g}, less than "
            f"value={settings.value!r}; fit more of them."
        )
    return _choice("variance", int(reached[0]) + 1, "cumulative share", cumulative, thresholds)


def _error(known: _Spectrum, settings: _Settings) -> RankSelection:
    """Errors with 0, 1, ... components; `values` are those with 1 and more."""
    left = np.append(known.total, known.total - np.cumsum(known.variances))
    if known.is_whole:  # sums of the tail: exact where the difference is rounding
        left = np.append(np.cumsum(known.variances[::-1])[::-1], 0.0)
    errors = np.maximum(left, 0.0) * (known.n - 1) / (known.n if settings.per == "sample" else 1)
    reached = np.flatnonzero(errors <= settings.value)
    if not len(reached):
        raise InvalidParameterError(
            f"with all {len(known.variances)} components that the model keeps the error is {errors[-1]:.6g}, more than "
            f"value={settings.value!r}; fit more of them."
        )
    what = f"error per {settings.per}" if settings.per == "sample" else "total error"
    return _choice("error", int(reached[0]), what, errors[1:], np.full(len(errors) - 1, float(settings.value)))


def _mle(known: _Spectrum, settings: _Settings) -> RankSelection:
    if known.n < known.d or known.d < 2:
        raise InvalidParameterError(f'rule "mle" needs 2 <= d <= n; got n = {known.n}, d = {known.d}.')
    _check_whole("mle", known)
    evidence = log_evidence(known.variances, known.n, known.d)
    return _choice("mle", most_evident(evidence), "log evidence", evidence)


def _bayesian(known: _Spectrum, settings: _Settings) -> RankSelection:
    _check_whole("bayesian", known)
    if not known.total > 0:
        return _choice("bayesian", 0, "squared length of a column of W", known.variances)
    # PCA tells small variances from rounding, which the square of the data does not.
    if known.rows is None:
        variances, mean, like = known.model.explained_variance_, known.model.mean_, known.model.components_
    else:
        fit = fit_pca(known.rows, settings=PCASettings(warns_of_rounding=False))
        variances, mean, like = fit.explained_variance, fit.mean, fit.components
    spectrum = to_host(variances).astype(np.float64)[: known.rank] * (known.n - 1) / known.n
    rank = span_rank(spectrum, 0.0, known.n, known.d, rounding_of(mean, like))
    found = relevance_in_span(spectrum, 0.0, rank, known.n, known.d)
    return _choice("bayesian", int(np.sum(found.kept)), "squared length of a column of W", found.lengths)


def _check_whole(rule: str, known: _Spectrum) -> None:
    if not known.is_whole:
        raise InvalidParameterError(
            f'rule "{rule}" needs all {known.rank} eigenvalues, and the model keeps {len(known.variances)}; fit with '
            "n_components=None, or pass the data."
        )


def _parallel(known: _Spectrum, settings: _Settings) -> RankSelection:
    if known.rows is None:
        raise InvalidParameterError('rule "parallel" compares with permuted data; pass the data instead of a model.')
    rng = generator(settings.random_state)
    draw = _permuted if settings.null == "permutation" else _normal
    with device_context(known.rows):
        host = np.asarray(to_host(known.rows), dtype=np.float64)
        drawn = np.stack([_variances(draw(host, known.rows, rng)) for _ in range(settings.n_draws)])
    thresholds = np.quantile(drawn, settings.quantile, axis=0)
    return _choice("parallel", _leading(known.variances > thresholds), "variance", known.variances, thresholds)


def _permuted(host: np.ndarray, like: Array, rng: np.random.Generator) -> Array:
    """Every column permuted by itself: the variances stay, the correlations go."""
    return from_host(rng.permuted(host, axis=0), like, accumulation_dtype(like))


def _normal(host: np.ndarray, like: Array, rng: np.random.Generator) -> Array:
    """Normal numbers with the variances of the columns."""
    deviations = from_host(np.std(host, axis=0, ddof=1), like, accumulation_dtype(like))
    return standard_normal(rng, host.shape, deviations) * deviations[None, :]


def _broken_stick(known: _Spectrum, settings: _Settings) -> RankSelection:
    thresholds = (np.cumsum(1.0 / np.arange(known.rank, 0, -1))[::-1] / known.rank)[: len(known.variances)]
    shares = known.shares[: len(thresholds)]
    kept = _leading(shares > thresholds)
    if kept == len(shares) < known.rank:
        raise InvalidParameterError(
            f"all {kept} components that the model keeps exceed the broken stick; fit more of them, or pass the data."
        )
    return _choice("broken_stick", kept, "share of the variance", shares, thresholds)


def _gap(known: _Spectrum, settings: _Settings) -> RankSelection:
    errors = np.zeros(len(known.variances)) if known.errors is None else known.errors
    gaps = certain_gaps(known.variances, errors)
    within = USUAL_SHARE if settings.value is None else float(settings.value)
    if known.total == 0:
        return _choice("gap", 0, "certain relative gap", gaps)
    return _choice("gap", largest_certain_gap(gaps, known.shares, within, ROUNDING), "certain relative gap", gaps)


RULES: dict[str, Callable[[_Spectrum, _Settings], RankSelection]] = {
    "fixed": _fixed,
    "variance": _variance,
    "error": _error,
    "mle": _mle,
    "bayesian": _bayesian,
    "parallel": _parallel,
    "broken_stick": _broken_stick,
    "gap": _gap,
}


def _leading(passes: np.ndarray) -> int:
    """Return the number of leading entries that pass."""
    return int(np.argmin(passes)) if not np.all(passes) else len(passes)


def _choice(
    rule: str, K: int, compared: str, values: np.ndarray, thresholds: np.ndarray | None = None
) -> RankSelection:
    return RankSelection(rule, K, SOURCES[rule], compared, values, thresholds)


# -- arguments ---------------------------------------------------------------------------------------------------------


def _check(rule: Any, settings: _Settings) -> None:
    """Raise `InvalidParameterError` for a rule or a setting that is not allowed."""
    if not isinstance(rule, str) or rule not in RULES:
        raise InvalidParameterError(f"rule={rule!r} is not known; give one of {', '.join(map(repr, RULES))}.")
    allowed = ALLOWED.get(rule, Rule(f'left out: rule "{rule}" takes none', lambda value: value is None))
    allowed.check_argument("value", settings.value)
    word("sample", "total").check_argument("per", settings.per)
    word("permutation", "normal").check_argument("null", settings.null)
    SHARE.check_argument("quantile", settings.quantile)
    COUNT.check_argument("n_draws", settings.n_draws)
