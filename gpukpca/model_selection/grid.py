"""Candidates of a search: parameters of `KernelPCA`, grouped by shared decompositions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import ParameterGrid

from gpukpca._rules import is_integer, is_real
from gpukpca._typing import Array
from gpukpca.algorithms.resources import Resources
from gpukpca.backend.parameters import parameter_names, same_value
from gpukpca.decomposition._kernels import NAMED_KERNELS
from gpukpca.decomposition._parameters import check_parameters
from gpukpca.decomposition.preimage.methods import preimage_method
from gpukpca.exceptions import InvalidParameterError
from gpukpca.kernels import Kernel
from gpukpca.kernels.bandwidth import resolved_gamma, rule_bytes

# The automatic gammas: from 1/16 to 16 of the rules, about a factor of 4 apart.
REACH, STEP = 16.0, 4.0
MOST_COMPONENTS = 64
# Parameters that candidates with the same eigenpairs may differ in.
AFTER_THE_DECOMPOSITION = ("n_components", "preimage", "alpha")


@dataclass(frozen=True)
class GridPoint:
    """One combination of parameters: its place in `cv_results_`, and a `KernelPCA` with them that is not fitted."""

    number: int
    estimator: Any

    @property
    def p(self) -> int:
        """Return the number of components; 0 for a share of the variance."""
        return int(self.estimator.n_components) if is_integer(self.estimator.n_components) else 0


def grid_of(search: Any, X: Array, smallest: int, resources: Resources) -> list[dict[str, Any]]:
    """Return all combinations of parameters of a `KernelPCACV`, in the order of scikit-learn's `ParameterGrid`.

    Automatic gammas come from X (n, d); `smallest` is the number of rows of the smallest training part. Raises
    `InvalidParameterError` for an empty or wrong grid, and for a parameter that is named twice, and `MemoryBudgetError`
    where the rules for gamma do not fit.
    """
    choice = {} if search.param_grid is None else search.param_grid
    grids = [choice] if isinstance(choice, Mapping) else choice
    try:
        ParameterGrid(grids)
    except (TypeError, ValueError) as error:
        raise InvalidParameterError(
            f"KernelPCACV: param_grid={choice!r} is not allowed; give a dict of lists, or a list of such dicts. {error}"
        ) from error
    for name, parameter in (("n_components", "n_components"), ("gamma", "gammas")):
        if getattr(search, parameter) is not None and any(name in grid for grid in grids):
            raise InvalidParameterError(
                f"KernelPCACV: {name} is in param_grid and in {parameter}; give one of the two."
            )
    own: dict[str, Any] = {"n_components": _components(search.n_components, smallest)}
    kernels = [kernel for grid in grids for kernel in grid.get("kernel", [search.kernel])]
    gammas = _gammas(search, X, kernels, resources)
    if gammas is not None:
        own["gamma" if isinstance(search.kernel, str) else "kernel__gamma"] = gammas
    grid = [params for grid in grids for params in ParameterGrid(own | dict(grid))]
    if not grid:
        raise InvalidParameterError("KernelPCACV: param_grid=[] is not allowed; give a dict of lists, or None.")
    return grid


def _components(choice: Any, smallest: int) -> list[Any]:
    if choice is None:
        limit = max(1, min(MOST_COMPONENTS, smallest - 1))
        return [2**i for i in range(1, limit.bit_length()) if 2**i <= limit] or [1]
    return [int(value) if is_integer(value) else value for value in _values("n_components", choice)]


def _gammas(search: Any, X: Array, kernels: list[Any], resources: Resources) -> list[Any] | None:
    """Return the gammas to try; None where there is nothing to choose."""
    if search.gammas is None:
        known = [kernel for kernel in kernels if isinstance(kernel, str) and kernel in NAMED_KERNELS]
        named = [kernel for kernel in known if "gamma" in parameter_names(NAMED_KERNELS[kernel])]
        if not named or not isinstance(search.kernel, str):
            return None
        of_distances = any(NAMED_KERNELS[kernel].depends_on_distance for kernel in named)
        needed = rule_bytes("median" if of_distances else "scale", *X.shape)
        resources.check(needed, "the choice of gammas needs", [[("gammas as numbers", 0)]])
        return automatic_gammas(X, named)
    if isinstance(search.kernel, Kernel) and "gamma" not in search.kernel.get_params(deep=False):
        raise InvalidParameterError(
            f"KernelPCACV: {search.kernel!r} has no parameter gamma; name the parameters to search in param_grid, such "
            'as {"kernel__k1__gamma": [0.1, 1.0]}.'
        )
    return [float(value) if is_real(value) else value for value in _values("gammas", search.gammas)]


def _values(name: str, choice: Any) -> list[Any]:
    """Return the values of a parameter that is one value or a sequence."""
    values = [choice] if np.ndim(choice) == 0 else list(choice)
    if not values:
        raise InvalidParameterError(f"KernelPCACV: {name} is empty; give None, one value, or a list of values.")
    return values


def automatic_gammas(X: Array, kernels: Sequence[str] = ("rbf",)) -> list[float]:
    """Return gammas around the rules "scale" and, for kernels of distances, "median".

    From 1/16 of the smallest to 16 times the largest, evenly in logarithms, about a factor of 4 apart.
    """
    kinds = [NAMED_KERNELS[kernel] for kernel in kernels]
    rules = {("scale", kind.gamma_of_length) for kind in kinds}
    rules |= {("median", kind.gamma_of_length) for kind in kinds if kind.depends_on_distance}
    values = [resolved_gamma("KernelPCACV", rule, X, of_length) for rule, of_length in sorted(rules)]
    low, high = min(values) / REACH, max(values) * REACH
    count = 1 + round(float(np.log(high / low) / np.log(STEP)))
    return [float(gamma) for gamma in np.geomspace(low, high, count)]


def candidates_of(template: Any, grid: list[dict[str, Any]]) -> list[GridPoint]:
    """Return an estimator for every combination.

    Raises `InvalidParameterError`, before any work, for a parameter that `KernelPCA` does not have, a value out of
    range, and a missing pre-image.
    """
    candidates = []
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
        candidates.append(GridPoint(number, estimator))
    return candidates


def grouped(candidates: list[GridPoint]) -> list[list[GridPoint]]:
    """Return candidates by shared decomposition, the most components first; a share of the variance has its own."""
    groups: list[tuple[dict[str, Any], list[GridPoint]]] = []
    for candidate in sorted(candidates, key=lambda one: -one.p):
        settings = candidate.estimator.get_params(deep=False)
        if candidate.p:
            settings = {name: value for name, value in settings.items() if name not in AFTER_THE_DECOMPOSITION}
        group = next((group for known, group in groups if _same(known, settings)), None)
        if group is None:
            groups.append((settings, [candidate]))
        else:
            group.append(candidate)
    return [group for _, group in groups]


def _same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Return whether all settings are equal, and of one type."""
    pairs = [(one[name], other.get(name)) for name in one]
    return one.keys() == other.keys() and all(type(a) is type(b) and same_value(a, b) for a, b in pairs)
