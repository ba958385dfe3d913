"""Candidates of a search: parameters of `KernelPCA`, grouped by shared decompositions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import ParameterGrid

from gpukpca._rules import is_integer, is_real
from gpukpca._typing import Array
from gpukpca.decomposition._parameters import check_parameters
from gpukpca.decomposition.preimage.methods import preimage_method
from gpukpca.exceptions import InvalidParameterError
from gpukpca.kernels import Kernel
from gpukpca.kernels.bandwidth import resolved_gamma
from gpukpca.kernels.validation import same_value

# Kernels that have a gamma, and those among them for which distances say what it should be.
OF_DISTANCES = ("rbf", "laplacian", "matern", "rational_quadratic")
WITH_GAMMA = (*OF_DISTANCES, "poly", "sigmoid")
# The automatic gammas: from 1/16 to 16 of the rules, about a factor of 4 apart.
REACH, STEP = 16.0, 4.0
MOST_COMPONENTS = 64
# What candidates may differ in and still share eigenpairs.
AFTER_THE_DECOMPOSITION = ("n_components", "preimage", "alpha")


@dataclass(frozen=True)
class Candidate:
    """One combination of parameters.

    Attributes
    ----------
    number : int
        Its place in `cv_results_`.
    estimator : KernelPCA
        Not fitted, with these parameters.
    """

    number: int
    estimator: Any

    @property
    def p(self) -> int:
        """Components asked for; 0 where a share of the variance is."""
        return int(self.estimator.n_components) if is_integer(self.estimator.n_components) else 0


@dataclass
class Group:
    """Candidates that one decomposition serves, those with the most components first."""

    members: list[Candidate] = field(default_factory=list)

    @property
    def estimator(self) -> Any:
        """The member with the most components."""
        return self.members[0].estimator

    @property
    def counts_components(self) -> bool:
        """Return whether every member has a number of components."""
        return all(member.p for member in self.members)


def grid_of(search: Any, X: Array, smallest: int) -> list[dict[str, Any]]:
    """Return all combinations of parameters of a `KernelPCACV`, in the order of scikit-learn's `ParameterGrid`.

    Automatic gammas come from X (n, d); `smallest` is the number of rows of the smallest training part. Raises
    `InvalidParameterError` for a grid that is empty or no grid, and for a parameter named twice.
    """
    own: dict[str, Any] = {"n_components": _components(search.n_components, smallest)}
    grids = _given_grids(search)
    tried = [kernel for grid in grids for kernel in grid.get("kernel", [search.kernel])]
    gammas = _gammas(search, X, tried)
    if gammas is not None:
        own["gamma" if isinstance(search.kernel, str) else "kernel__gamma"] = gammas
    return [params for grid in grids for params in ParameterGrid(own | grid)]


def _given_grids(search: Any) -> list[dict[str, Any]]:
    """`param_grid` as a list, each grid with a sequence for every parameter."""
    given = {} if search.param_grid is None else search.param_grid
    grids = [given] if isinstance(given, Mapping) else given
    if not isinstance(grids, Sequence) or not grids or not all(isinstance(grid, Mapping) for grid in grids):
        raise InvalidParameterError(
            f"KernelPCACV: param_grid={given!r} is not allowed; give a dict of lists, or a list of such dicts."
        )
    for name, values in ((name, values) for grid in grids for name, values in grid.items()):
        what = {"n_components": "n_components", "gamma": "gammas"}.get(name)
        if what is not None and getattr(search, what) is not None:
            raise InvalidParameterError(f"KernelPCACV: {name} is in param_grid and in {what}; give one of the two.")
        if isinstance(values, str) or not isinstance(values, (Sequence, np.ndarray)) or len(values) == 0:
            raise InvalidParameterError(
                f"KernelPCACV: param_grid[{name!r}]={values!r} is not allowed; give a list of values, also for one."
            )
    return [dict(grid) for grid in grids]


def _components(given: Any, smallest: int) -> list[Any]:
    if given is None:
        most = max(1, min(MOST_COMPONENTS, smallest - 1))
        return [2**i for i in range(1, most.bit_length()) if 2**i <= most] or [1]
    values = [given] if np.ndim(given) == 0 else list(given)
    if not values:
        raise InvalidParameterError("KernelPCACV: n_components is empty; give None, a number, or a list of numbers.")
    return [int(value) if is_integer(value) else value for value in values]


def _gammas(search: Any, X: Array, tried: list[Any]) -> list[Any] | None:
    """The gammas to try; None where there is nothing to choose."""
    given = search.gammas
    if given is None:
        with_gamma = [kernel for kernel in tried if isinstance(kernel, str) and kernel in WITH_GAMMA]
        if not with_gamma or not isinstance(search.kernel, str):
            return None
        return automatic_gammas(X, any(kernel in OF_DISTANCES for kernel in with_gamma))
    if isinstance(search.kernel, Kernel) and "gamma" not in search.kernel.get_params(deep=False):
        raise InvalidParameterError(
            f"KernelPCACV: {search.kernel!r} has no gamma of its own; name what is to be searched in param_grid, such "
            'as {"kernel__k1__gamma": [0.1, 1.0]}.'
        )
    values = [given] if np.ndim(given) == 0 else list(given)
    if not values:
        raise InvalidParameterError("KernelPCACV: gammas is empty; give None, or a list of numbers >= 0.")
    return [float(value) if is_real(value) else value for value in values]


def automatic_gammas(X: Array, of_distances: bool = True) -> list[float]:
    """Gammas around what the rules "scale" and, for kernels of distances, "median" say.

    From 1/16 of the smaller to 16 times the larger, evenly in logarithms, about a factor of 4 apart.
    """
    rules = ("scale", "median") if of_distances else ("scale",)
    values = [resolved_gamma("KernelPCACV", rule, X) for rule in rules]
    low, high = min(values) / REACH, max(values) * REACH
    count = 1 + round(float(np.log(high / low) / np.log(STEP)))
    return [float(gamma) for gamma in np.geomspace(low, high, count)]


def candidates_of(template: Any, grid: list[dict[str, Any]]) -> list[Candidate]:
    """Return an estimator for every combination.

    Raises `InvalidParameterError`, before any work, for a parameter that `KernelPCA` does not have, a value out of
    range, and no pre-image to score by.
    """
    found = []
    for number, params in enumerate(grid):
        try:
            estimator = clone(template).set_params(**clone(params, safe=False))
        except (ValueError, AttributeError) as error:
            raise InvalidParameterError(f"KernelPCACV: {params!r} cannot be set: {error}") from error
        check_parameters(estimator)
        if preimage_method(estimator) is None:
            raise InvalidParameterError(
                f"KernelPCACV: {params!r} has no pre-image, and candidates are scored by it; leave None out of the "
                "grid, or name a method such as 'ridge'."
            )
        found.append(Candidate(number, estimator))
    return found


def grouped(candidates: list[Candidate]) -> list[Group]:
    """Candidates by what decides their decomposition; a share of the variance is found by a fit of its own."""
    groups: list[tuple[dict[str, Any], Group]] = []
    for candidate in sorted(candidates, key=lambda one: -one.p):
        settings = candidate.estimator.get_params(deep=False)
        if candidate.p:
            settings = {name: value for name, value in settings.items() if name not in AFTER_THE_DECOMPOSITION}
        group = next((group for known, group in groups if _same(known, settings)), None)
        if group is None:
            group = Group()
            groups.append((settings, group))
        group.members.append(candidate)
    return [group for _, group in groups]


def _same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(same_setting(one[name], other[name]) for name in one)


def same_setting(a: Any, b: Any) -> bool:
    """Return whether two settings of one type mean the same: estimators by their parameters, others by equality."""
    if type(a) is not type(b):
        return False
    if hasattr(a, "get_params") and not isinstance(a, Kernel):
        return _same(a.get_params(), b.get_params())
    return same_value(a, b)
