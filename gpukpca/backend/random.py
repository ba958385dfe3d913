"""Random numbers, drawn on the host from one generator, so that CPU and GPU start alike."""

from __future__ import annotations

import json
import math
from copy import deepcopy
from functools import cached_property
from typing import Any

import numpy as np

from gpukpca._rules import is_integer
from gpukpca._typing import Array
from gpukpca.backend.elementwise import add, multiply
from gpukpca.backend.namespace import cast, device_of, dtype_name, from_host, namespace_of, to_host
from gpukpca.exceptions import InvalidParameterError

# The values of random_state.
Seed = int | np.random.RandomState | np.random.Generator | None


def generator(random_state: Any, name: str = "random_state") -> np.random.Generator:
    """Return a generator from None, an int in [0, 2**32), a `RandomState` or a `Generator`.

    A `Generator` is returned as it is, and so is consumed; a `RandomState` gives one seed.
    """
    return Randomness(random_state, name).generator


class Randomness:
    """The source of random numbers of a fit: its value is checked now, and its generator made where one is drawn from.

    A generator takes 0.02 ms. A `RandomState` gives one seed, whether a number is drawn or not.
    """

    def __init__(self, random_state: Any, name: str = "random_state") -> None:
        check_random_state(random_state, name)
        is_legacy = isinstance(random_state, np.random.RandomState)
        self._seed = int(random_state.randint(0, 2**31 - 1)) if is_legacy else random_state

    @cached_property
    def generator(self) -> np.random.Generator:
        """Return the generator, at every use the same one."""
        return np.random.default_rng(self._seed)


def check_random_state(random_state: Any, name: str = "random_state") -> None:
    """Raise `InvalidParameterError` for a value that `generator` rejects; consume nothing."""
    if random_state is None or isinstance(random_state, (np.random.Generator, np.random.RandomState)):
        return
    if is_integer(random_state) and 0 <= random_state < 2**32:
        return
    raise InvalidParameterError(
        f"{name}={random_state!r} is not allowed. Give None, an integer from 0 to 2**32 - 1, a "
        "numpy.random.Generator or a numpy.random.RandomState.",
        argument=name,
    )


def format_generator(rng: np.random.Generator) -> str:
    """Return the state of a generator as JSON."""
    return json.dumps(rng.bit_generator.state, default=lambda array: array.tolist())


# Positions in buffers of generators, which NumPy reads wherever they point: folder and name in the state, the largest.
POSITIONS = {"MT19937": ("state", "pos", 624), "Philox": ("", "buffer_pos", 4)}


def restore_generator(rng: np.random.Generator, spelled: str) -> None:
    """Put a generator into a state of its kind; raise ValueError for an invalid one, of which a part may stay."""
    try:
        state = json.loads(spelled)
        for kind, (folder, name, last) in POSITIONS.items():
            place = (state[folder] if folder else state)[name] if state["bit_generator"] == kind else 0
            if not (type(place) is int and 0 <= place <= last):
                raise ValueError(f"the position of {kind} must lie between 0 and {last}; it is {place!r:.80}")
        rng.bit_generator.state = state
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError) as error:
        raise ValueError(f"it is no state of {kind_of_generator(rng)}: {error}") from error


def is_state_of(rng: np.random.Generator, spelled: str) -> bool:
    """Return whether a text is a state of a generator of this kind."""
    try:
        restore_generator(deepcopy(rng), spelled)
    except ValueError:
        return False
    return True


def kind_of_generator(rng: np.random.Generator) -> str:
    """Return the kind of numbers that a generator gives, such as "PCG64"."""
    return type(rng.bit_generator).__name__


def standard_normal(rng: np.random.Generator, shape: tuple[int, ...], like: Array) -> Array:
    """Return independent N(0, 1) numbers as `like`: samples of a normal model; solvers take `random_directions`."""
    return from_host(rng.standard_normal(shape), like)


def random_directions(rng: np.random.Generator, shape: tuple[int, ...], like: Array) -> Array:
    """Return independent numbers, uniform on 256 levels between -2 and 2 of mean 0, as `like`: directions for a start.

    The generator gives one byte an entry, in C order. The floats are computed where `like` lives, with the same bits.
    """
    # Signs alone would take an eighth of the bytes. Measured on 64 spectra they need 0.9 % more passes than normal
    # numbers and bytes 0.2 %; and of few rows, columns of signs depend on each other (8 rows, 4 columns: 1 draw in 12).
    drawn = np.frombuffer(rng.bytes(math.prod(shape)), dtype=np.uint8).reshape(shape)
    # A copy: PyTorch warns about memory that cannot be written to.
    levels = namespace_of(like).asarray(drawn.copy(), device=device_of(like))
    return add(multiply(cast(levels, like.dtype), 2.0**-6), -255.0 * 2.0**-7)


def keyed_generator(seed: int, *key: int) -> np.random.Generator:
    """Return the generator of a seed and a key; generators of different keys are independent."""
    return np.random.default_rng([seed, *key])


def seeded_subset(n: int, size: int) -> np.ndarray:
    """Return `size` of the numbers 0 … n - 1, ascending, the same ones in every run."""
    return np.sort(np.random.default_rng(0).choice(n, size, replace=False))


def seeded_uniform(shape: tuple[int, ...]) -> np.ndarray:
    """Return independent numbers, uniform on [0, 1), on the host, the same ones in every run."""
    return np.random.default_rng(0).random(shape)


def uniform(rng: np.random.Generator, size: int) -> np.ndarray:
    """Return independent numbers, uniform on [0, 1), on the host."""
    return rng.random(size)


def weighted_draws(rng: np.random.Generator, weights: Array, size: int) -> np.ndarray:
    """Return the `weighted_indices` on the host."""
    return to_host(weighted_indices(rng, weights, size)).astype(np.int64)


def weighted_indices(rng: np.random.Generator, weights: Array, size: int) -> Array:
    """Return `size` independent indices, each i with probability weights[i] / sum; not all weights may be zero.

    Numbers are drawn on the host and weights in float64 are summed where they are, so that all libraries draw alike;
    there the indices are.
    """
    weights = weights if dtype_name(weights.dtype) == "float64" else to_host(weights).astype(np.float64)
    xp = namespace_of(weights)
    cumulative = xp.cumulative_sum(weights / xp.max(weights))
    levels = from_host(rng.random(size), cumulative) * cumulative[-1]
    # Rounding can make the product reach the sum itself, which the last positive weight reaches first.
    return xp.minimum(xp.searchsorted(cumulative, levels, side="right"), xp.searchsorted(cumulative, cumulative[-1:]))


def random_subset(rng: np.random.Generator, n: int, size: int) -> np.ndarray:
    """Return `size` different numbers of 0 … n - 1, in random order."""
    return rng.choice(n, size, replace=False)
