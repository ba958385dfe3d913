"""Rules for the number of components from the literature: one table, one function a rule."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
from sklearn.base import BaseEstimator

from gpukpca._rules import COUNT, NONE, SHARE, Rule, is_real, number, word
from gpukpca._typing import Array, ArrayLike, Stream, Vector
from gpukpca.algorithms.latent.ard import ard_in_span, rounding_of, varying_features
from gpukpca.algorithms.pca.fit import fit_rows
from gpukpca.algorithms.pca.operator import centered_matrix
from gpukpca.algorithms.pca.settings import PCASettings
from gpukpca.algorithms.pca.spectrum import log_evidence, most_evident
from gpukpca.algorithms.resources import Resources
from gpukpca.backend.device import device_context
from gpukpca.backend.namespace import accumulation_dtype, epsilon, from_host, overflow_allowed, to_host
from gpukpca.backend.random import Randomness, Seed, generator, standard_normal
from gpukpca.data.frequencies import degrees_of_freedom
from gpukpca.data.scale import rescaled, variances_of_data
from gpukpca.data.slicing import dense_rows, place_of
from gpukpca.decomposition._fitted import (
    fitted_value,
    is_centered,
    rows_of,
    samples_of,
    spectrum_of,
    total_variance_of,
)
from gpukpca.decomposition._reader import read_rows
from gpukpca.eigen.request import TIE, count_of_share
from gpukpca.exceptions import InvalidParameterError

USUAL_SHARE = 0.95
IN_MEMORY = 'rule "parallel" permutes the columns of X, which needs all rows in memory; pass one array.'
RuleName = Literal["variance", "error", "mle", "bayesian", "parallel", "broken_stick"]


@dataclass(frozen=True)
class RankSelection:
    """The choice of a rule, with the numbers it compared; `n_components_for` describes them."""

    rule: str
    n_components: int
    source: str
    compared: str
    values: np.ndarray
    thresholds: np.ndarray | None = None


@dataclass(frozen=True)
class _Variances:
    """Variances over n - 1, descending, with their exact total, of rows or of a model.

    The rows count `count` times together; n is that as an integer, and no less than the rows. `rank` variances can
    differ from zero, and `eps` is the rounding of the type that they were computed or published in. `of_kernel`: they
    are variances in the feature space of a kernel. Variances are those of the data times the power of two `unit`.
    """

    variances: np.ndarray
    total: float
    n: int
    count: float
    d: int
    rank: int
    eps: float
    rows: Any = None  # in any container; None of a model
    place: Any = None
    weights: np.ndarray | None = None  # (n,), of rows that do not count once each
    model: Any = None
    of_kernel: bool = False
    unit: float = 1.0

    def in_units_of_data(self, squares: np.ndarray) -> np.ndarray:
        """Return variances, or sums of them, in the units of the data; raise where one overflows."""
        return variances_of_data(squares, self.unit, np.float64)

    @property
    def is_whole(self) -> bool:
        return len(self.variances) >= self.rank

    @property
    def shares(self) -> np.ndarray:
        return self.variances / self.total if self.total > 0 else np.zeros_like(self.variances)


# The keyword arguments of `n_components_for`, by name.
_Settings = SimpleNamespace
# The number of components, the meaning of the values that were compared, these values, and their thresholds.
_Choice = tuple[int, str, np.ndarray, np.ndarray | None]


@dataclass(frozen=True)
class RankRule:
    """A rule for the number of components.

    Attributes
    ----------
    source : str
    select : callable
        From what is known and the settings to the choice.
    takes : Rule
        The values that it takes.
    of_any_spectrum : bool
        It takes the spectrum of a kernel too.
    """

    source: str
    select: Callable[[_Variances, _Settings], _Choice]
    takes: Rule
    of_any_spectrum: bool = False


def n_components_for(
    model_or_X: ArrayLike | Stream | BaseEstimator,
    rule: RuleName = "variance",
    value: float | None = None,
    *,
    per: Literal["sample", "total"] = "sample",
    quantile: float = 0.95,
    n_draws: int = 100,
    null: Literal["permutation", "normal"] = "permutation",
    random_state: Seed = 0,
    return_report: bool = False,
    sample_weight: Vector | None = None,
) -> Any:
    """Return the number of principal components to keep, by a rule.

    Parameters
    ----------
    model_or_X : fitted PCA or KernelPCA; or rows (n, d) in any container that `PCA.fit` takes
        Variances of a kernel PCA are those in its feature space: only "variance" and "error" take it. Data are centered
        and not standardized: standardize them first for the correlation matrix. "parallel" needs the data, in one array
        in memory; "mle" and "bayesian" need them or a model with all components. Memory maps and sets are read by
        slices.
    rule : str
        "variance"
            The fewest with a cumulative share of the variance of more than `value`, as `PCA`, or all that vary,
            0 < value <= 1 (Jolliffe 2002, 6.1.1).
        "error"
            The fewest with a squared reconstruction error of at most `value`, in the units of X squared: with
            per="sample" the mean over samples, (n - 1)/n Σ_{d>K} λ_d, with per="total" the sum (Eckart & Young 1936).
            With weights n is their sum; of a sum below 2 the mean is Σ_{d>K} λ_d.
        "mle"
            The largest Laplace approximation of the evidence of a probabilistic PCA (Minka 2000); 1 <= K < d <= n.
        "bayesian"
            The components that automatic relevance determination does not prune (Bishop 1998, `BayesianPCA`);
            0 <= K <= r, the rank of the centered data; r only of data without noise.
        "parallel"
            The leading components whose variance exceeds that of data without correlation (Horn 1965; the quantile in
            place of the mean after Glorfeld, Educ. Psychol. Meas. 55 (1995) 377).
        "broken_stick"
            The leading components with more than b_k = (1/q) Σ_{i=k}^q 1/i of the variance, the expected shares of a
            stick broken at random into q = min(n - 1, d) pieces (Frontier 1976, Jackson 1993).
    value : float
        For "variance", by default 0.95, and for "error".
    per : "sample" or "total"
        For "error".
    quantile : float in (0, 1)
        For "parallel".
    n_draws : int >= 1
        For "parallel": random data sets.
    null : "permutation" or "normal"
        For "parallel": every column of X permuted by itself, or normal numbers with the variances of the columns.
    random_state : None, int, RandomState or Generator
        For "parallel".
    return_report : bool
        Return an object with the numbers compared, for a plot.
    sample_weight : array, shape (n,), optional
        How often each row of data counts, as in `gpukpca.PCA.fit`; n is Σ w. Not for a model, which has the weights of
        its fit, nor for "parallel", whose random rows count once each.

    Returns
    -------
    int, or object
        From 0 to the number of components known. The object has it as `n_components`, `values` (q,) with one number for
        each component, `thresholds` (q,) that they were compared with, or None, `compared`, which says what both mean,
        `rule` and its `source`.

    Raises
    ------
    InvalidParameterError
        An unknown rule; a value that is missing, out of range or not taken by the rule; a model with too few
        components, or of rows that were not centered.
    ValueError
        Data with NaN or infinity, or with variances out of range where the rule compares or states them; those of a
        model must not underflow.

    See Also
    --------
    gpukpca.BayesianPCA : The model of the rule "bayesian".

    Notes
    -----
    Cost: of data O(n d min(n, d)) for the spectrum; for "parallel" n_draws times that; for "mle" O(d²) more, for
    "bayesian" of data a `PCA`, and O(d) a step.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from gpukpca import PCA
    >>> from gpukpca.model_selection import n_components_for
    >>> X = load_iris().data
    >>> n_components_for(X, "variance", 0.99)
    3
    >>> n_components_for(PCA().fit(X), "broken_stick")
    1
    >>> n_components_for(X, "variance", 0.95, return_report=True).values.round(3)
    array([0.925, 0.978, 0.995, 1.   ])
    """
    if rule == "variance" and value is None:
        value = USUAL_SHARE
    settings = _Settings(value=value, per=per, quantile=quantile, n_draws=n_draws, null=null, random_state=random_state)
    _check(rule, settings)
    selection = _select(rule, _spectrum_of(model_or_X, rule, sample_weight), settings)
    return selection if return_report else selection.n_components


def _check(rule: Any, settings: _Settings) -> None:
    """Raise `InvalidParameterError` for a rule or a setting that is not allowed."""
    if not isinstance(rule, str) or rule not in RULES:
        raise InvalidParameterError(f"rule={rule!r} is not known; give one of {', '.join(map(repr, RULES))}.")
    takes = RULES[rule].takes
    if not takes.allows(settings.value):
        raise InvalidParameterError(
            f'value={settings.value!r} is not allowed; it must be {takes.text} with rule "{rule}".'
        )
    word("sample", "total").check_argument("per", settings.per)
    word("permutation", "normal").check_argument("null", settings.null)
    SHARE.check_argument("quantile", settings.quantile)
    COUNT.check_argument("n_draws", settings.n_draws)


def _select(rule: str, known: _Variances, settings: _Settings) -> RankSelection:
    if known.of_kernel and not RULES[rule].of_any_spectrum:
        allowed = ", ".join(repr(name) for name, one in RULES.items() if one.of_any_spectrum)
        raise InvalidParameterError(
            f'rule "{rule}" is about variances in the space of the data, and the model is a kernel PCA. Rules for it: '
            f"{allowed}; KernelPCACV chooses by the error of held-out rows."
        )
    n_components, compared, values, thresholds = RULES[rule].select(known, settings)
    return RankSelection(rule, n_components, RULES[rule].source, compared, values, thresholds)


# -- the spectrum ------------------------------------------------------------------------------------------------------


def _spectrum_of(model_or_X: Any, rule: str, sample_weight: Any) -> _Variances:
    if hasattr(model_or_X, "fit"):
        if sample_weight is not None:
            raise InvalidParameterError(
                "a model has the weights of its fit; pass sample_weight with data alone.", argument="sample_weight"
            )
        return _of_model(model_or_X)
    needs = IN_MEMORY if rule == "parallel" else ""
    rows, place, weights = read_rows("n_components_for", model_or_X, sample_weight, in_memory=needs)
    n, d = map(int, rows.shape)
    count, n = (n, n) if weights is None else (float(np.sum(weights)), int(np.count_nonzero(weights)))
    if n < 2 or d < 1:
        raise InvalidParameterError(f"data of shape ({n}, {d}) have no variance: at least 2 samples are needed.")
    with device_context(place.work), overflow_allowed():
        variances, unit = _variances(rows, weights)
    # Repeated rows are as many as their weights say; what these do not span has variance 0.
    n = max(n, round(count))
    known = np.zeros(min(n - 1, d))
    known[: len(variances)] = variances[: len(known)]
    total, eps = float(np.sum(known)), epsilon(place_of(rows))
    return _Variances(known, total, n, count, d, len(known), eps, rows, place, weights, unit=unit)


def _of_model(model: Any) -> _Variances:
    """Return the spectrum of a fitted PCA or kernel PCA, of any library."""
    if not is_centered(model):
        raise InvalidParameterError(
            f"the rules compare variances, and {type(model).__name__} was fitted with center=False; fit with "
            "center=True, or request a share of the squares by n_components."
        )
    variances, of_kernel = np.maximum(spectrum_of(model), 0.0), fitted_value(model, "components_") is None
    n = rows_of(model)
    if n < 2:
        raise InvalidParameterError("the model was fitted to 1 sample, which has no variance.")
    d = n if of_kernel else int(model.components_.shape[1])
    total, ratios = total_variance_of(model), fitted_value(model, "explained_variance_ratio_")
    if total == 0.0 and ratios is not None and np.any(to_host(ratios) > 0):
        raise InvalidParameterError(
            f"the variances of {type(model).__name__} underflow, and are 0; fit it to the data times a large constant."
        )
    rank, eps = min(n - 1, d), epsilon(model.explained_variance_)
    return _Variances(variances, total, n, samples_of(model), d, rank, eps, model=model, of_kernel=of_kernel)


def _variances(rows: Any, weights: np.ndarray | None = None) -> tuple[np.ndarray, float]:
    """Return the min(n, d) variances of rows times a power of two, and that power."""
    Z = centered_matrix(rows, True, None, weights=weights)
    n, d = Z.shape
    values = np.linalg.eigvalsh(to_host(Z.scatter() if d <= n else Z.gram()).astype(np.float64))
    return np.maximum(values[::-1], 0.0) / degrees_of_freedom(Z.count), Z.unit


# -- the rules ---------------------------------------------------------------------------------------------------------


def _variance(known: _Variances, settings: _Settings) -> _Choice:
    cumulative, eps = np.cumsum(known.shares), known.eps
    K = count_of_share(known.variances, known.total, settings.value, eps) if known.total > 0 else 0
    if K is None and known.is_whole:  # nothing exceeds a share of 1: all that hold more than rounding
        K = int(np.sum(1.0 - cumulative > TIE * eps * math.sqrt(known.rank))) + 1
    if K is None:
        raise InvalidParameterError(
            f"the {len(cumulative)} components that the model keeps have a share of {np.sum(known.shares):.6g}, not "
            f"more than value={settings.value!r}; fit more of them."
        )
    return min(K, len(cumulative)), "cumulative share", cumulative, np.full(len(cumulative), float(settings.value))


def _error(known: _Variances, settings: _Settings) -> _Choice:
    """Compare the errors with 0, 1, ... components; the values are those with 1 and more."""
    left = np.append(known.total, known.total - np.cumsum(known.variances))
    if known.is_whole:  # sums of the tail: exact where the difference is rounding
        left = np.append(np.cumsum(known.variances[::-1])[::-1], 0.0)
    errors = np.maximum(left, 0.0) * degrees_of_freedom(known.count) / (known.count if settings.per == "sample" else 1)
    errors = known.in_units_of_data(errors)
    reached = np.flatnonzero(errors <= settings.value)
    if not len(reached):
        raise InvalidParameterError(
            f"with all {len(known.variances)} components that the model keeps the error is {errors[-1]:.6g}, more "
            f"than value={settings.value!r}; fit more of them."
        )
    compared = "error per sample" if settings.per == "sample" else "total error"
    return int(reached[0]), compared, errors[1:], np.full(len(errors) - 1, float(settings.value))


def _mle(known: _Variances, settings: _Settings) -> _Choice:
    if known.n < known.d or known.d < 2:
        raise InvalidParameterError(f'rule "mle" needs 2 <= d <= n; got n = {known.n}, d = {known.d}.')
    _check_whole("mle", known)
    evidence = log_evidence(known.variances, known.n, known.d)
    return most_evident(evidence), "log evidence", evidence, None


def _bayesian(known: _Variances, settings: _Settings) -> _Choice:
    _check_whole("bayesian", known)
    if not known.total > 0:
        return 0, "squared length of a column of W", known.variances, None
    # PCA separates small variances from rounding, which the square of the data does not.
    if known.rows is None:
        variances, mean, like = known.model.explained_variance_, known.model.mean_, known.model.components_
    else:
        quiet, resources = PCASettings(warns_of_rounding=False), Resources.at(known.place, None, None)
        with device_context(known.place.work), overflow_allowed():
            rows = rescaled(known.rows, known.unit)
            fit = fit_rows(rows, None, quiet, resources, Randomness(0), sample_weight=known.weights)
        variances, mean, like = fit.explained_variance, fit.mean, fit.components
    spectrum = to_host(variances).astype(np.float64)[: known.rank] * degrees_of_freedom(known.count) / known.count
    rounding = rounding_of(mean, like, float(np.sum(spectrum)))
    varying = varying_features(like.T[:, : len(spectrum)], spectrum, 0.0, rounding)
    solution = ard_in_span(spectrum, 0.0, rounding, known.n, varying, known.d)
    lengths = known.in_units_of_data(solution.lengths)
    return int(np.sum(solution.kept)), "squared length of a column of W", lengths, None


def _check_whole(rule: str, known: _Variances) -> None:
    if not known.is_whole:
        raise InvalidParameterError(
            f'rule "{rule}" needs all {known.rank} eigenvalues, and the model keeps {len(known.variances)}; fit with '
            "n_components=None, or pass the data."
        )


def _parallel(known: _Variances, settings: _Settings) -> _Choice:
    if known.rows is None:
        raise InvalidParameterError('rule "parallel" compares with permuted data; pass the data instead of a model.')
    if known.weights is not None:
        raise InvalidParameterError(
            'rule "parallel" draws random rows, each of which counts once; it takes no sample_weight.',
            argument="sample_weight",
        )
    like = dense_rows(known.rows)
    rng, wide = generator(settings.random_state), accumulation_dtype(like)
    with device_context(like):
        host = np.asarray(to_host(like), dtype=np.float64) * known.unit

        def draw() -> Array:
            if settings.null == "permutation":  # the variances stay, the correlations go
                return from_host(rng.permuted(host, axis=0), like, wide)
            deviations = from_host(np.std(host, axis=0, ddof=1), like, wide)
            return standard_normal(rng, host.shape, deviations) * deviations[None, :]

        drawn = np.stack([_variances(draw())[0][: known.rank] for _ in range(settings.n_draws)])
    quantiles = np.quantile(drawn, settings.quantile, axis=0)
    values, thresholds = known.in_units_of_data(known.variances), known.in_units_of_data(quantiles)
    return _leading(known.variances > quantiles), "variance", values, thresholds


def _broken_stick(known: _Variances, settings: _Settings) -> _Choice:
    thresholds = (np.cumsum(1.0 / np.arange(known.rank, 0, -1))[::-1] / known.rank)[: len(known.variances)]
    shares = known.shares[: len(thresholds)]
    K = _leading(shares > thresholds)
    if K == len(shares) < known.rank:
        raise InvalidParameterError(
            f"all {K} components that the model keeps exceed the broken stick; fit more of them, or pass the data."
        )
    return K, "share of the variance", shares, thresholds


def _leading(passes: np.ndarray) -> int:
    """Return the number of leading entries that pass."""
    return int(np.argmin(passes)) if not np.all(passes) else len(passes)


A_SHARE = Rule("a share in (0, 1]", lambda value: is_real(value) and 0 < value <= 1)
RULES: dict[str, RankRule] = {
    "variance": RankRule(
        "Jolliffe, Principal Component Analysis (2002), section 6.1.1", _variance, A_SHARE, of_any_spectrum=True
    ),
    "error": RankRule(
        "Eckart & Young, Psychometrika 1 (1936) 211",
        _error,
        Rule("an error >= 0", number(at_least=0).allows),
        of_any_spectrum=True,
    ),
    "mle": RankRule("Minka, NIPS 13 (2000) 598", _mle, NONE),
    "bayesian": RankRule("Bishop, NIPS 11 (1998) 382", _bayesian, NONE),
    "parallel": RankRule("Horn, Psychometrika 30 (1965) 179", _parallel, NONE),
    "broken_stick": RankRule(
        "Frontier, J. Exp. Mar. Biol. Ecol. 25 (1976) 67; Jackson, Ecology 74 (1993) 2204", _broken_stick, NONE
    ),
}
