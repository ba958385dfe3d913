"""What a fit will do and what memory it takes: decided before anything large is allocated, and printable."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

from gpukpca._typing import Array
from gpukpca.backend.device import describe_device, free_bytes, is_on_gpu
from gpukpca.backend.namespace import dtype_name, empty_like, is_sparse, item_size
from gpukpca.backend.tiles import worker_count
from gpukpca.decomposition.choices import solver_from
from gpukpca.eigen import BlockKrylov, Dense
from gpukpca.exceptions import InvalidParameterError, MemoryBudgetError
from gpukpca.gram.product import dense_row_bytes
from gpukpca.gram.residence import SMALLEST_EDGE, Residence, tile_edge_for, tiled_residence
from gpukpca.kernels import Kernel, Linear, Precomputed

UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
UNITS |= {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
# Of the free memory, what a fit may plan to use: other programs breathe too.
SHARE_OF_FREE = 0.85
FEWEST_BLOCKS = 4


@dataclass(frozen=True)
class Plan:
    """What a fit does; ``print(plan)`` says it in words.

    Attributes
    ----------
    n_samples, n_features, n_components : int
    dtype, device, kernel : str
    solver : Dense, BlockKrylov or another solver object
    solver_reason : str
    residence : Residence
    predicted_bytes, available_bytes : int
        Peak of what the fit allocates beside the data passed in, and what it may.
    notes : tuple of str
        Why a smaller path was taken, if one was.
    """

    n_samples: int
    n_features: int
    n_components: int
    dtype: str
    device: str
    kernel: str
    solver: Any
    solver_reason: str
    residence: Residence
    predicted_bytes: int
    available_bytes: int
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [
            f"data      {self.n_samples} x {self.n_features}, {self.dtype}, on {self.device}",
            f"kernel    {self.kernel}",
            f"solver    {solver_name(self.solver)} for {self.n_components} components ({self.solver_reason})",
            f"K         {self.residence.describe()}",
            f"memory    {spelled_bytes(self.predicted_bytes)} predicted, {spelled_bytes(self.available_bytes)} allowed",
            f"workers   {self.residence.workers}",
        ]
        return "\n".join(lines + [f"note      {note}" for note in self.notes])


def solver_name(solver: Any) -> str:
    """«dense», «block Krylov» or the class of a solver object."""
    return {Dense: "dense", BlockKrylov: "block Krylov"}.get(type(solver), type(solver).__name__)


def make_plan(estimator: Any, X: Array, kernel: Kernel, p: int, limit: int | None = None) -> Plan:
    """Residence and solver for `p` components within the memory limit, or within `limit` bytes where that is given.

    Raises
    ------
    MemoryBudgetError
        Not even the smallest way fits; names what is needed, what is allowed, and what to change.
    """
    like = empty_like(X)
    n, d = int(X.shape[0]), int(X.shape[1])
    limit = limit or memory_limit(estimator.memory_limit, like)
    workers = worker_count(like, estimator.n_jobs)
    solver, why = solver_from(estimator, n, p, is_on_gpu(like))
    draft = Plan(
        n_samples=n,
        n_features=d,
        n_components=p,
        dtype=dtype_name(X.dtype),
        device=describe_device(X),
        kernel=repr(kernel),
        solver=solver,
        solver_reason=why,
        residence=Residence("dense", n, n, 0, workers),
        predicted_bytes=0,
        available_bytes=limit,
    )
    if isinstance(solver, Dense) and kernel.positive_definite is not True:
        draft = replace(draft, solver=Dense(tol=solver.tol, full_spectrum=True))
    return _fitted_to_memory(draft, estimator, X, kernel)


def _fitted_to_memory(draft: Plan, estimator: Any, X: Array, kernel: Kernel) -> Plan:
    """The draft with a residence and, where need be, a smaller solver."""
    if kernel.stored_only and estimator.gram == "tiled":
        raise InvalidParameterError(
            'gram="tiled" needs a kernel that can be evaluated block by block; precomputed kernels and plain callables '
            'are stored. Use gram="auto".'
        )
    fewest = None
    for solver, note in _solvers_to_try(draft, estimator):
        for edge in _edges_to_try(draft, X, kernel):
            needed, residence = _needs(draft, estimator, X, kernel, solver, edge)
            if needed <= draft.available_bytes:
                notes = draft.notes + ((note,) if note else ())
                return replace(draft, solver=solver, residence=residence, predicted_bytes=needed, notes=notes)
            fewest = needed if fewest is None else min(fewest, needed)
    raise MemoryBudgetError(_too_big(draft, fewest or 0, item_size(X.dtype)))


def _needs(draft: Plan, estimator: Any, X: Array, kernel: Kernel, solver: Any, edge: int) -> tuple[int, Residence]:
    """Bytes for one way of doing it, and how K is then held: with as many tiles cached as fit."""
    n, item, workers = draft.n_samples, item_size(X.dtype), draft.residence.workers
    fixed = _fixed_bytes(draft, X, kernel, edge, estimator)
    if hasattr(solver, "workspace_items"):  # a solver of the user's own need not say
        fixed += solver.workspace_items(n, draft.n_components, is_on_gpu(X)) * item
    if isinstance(kernel, Precomputed):  # the matrix is the user's own
        return fixed, Residence("dense", n, n, 0, workers)
    if kernel.stored_only or estimator.gram == "dense":
        residence = Residence("dense", n, n, 0, workers)
    else:
        residence = tiled_residence(n, item, workers, draft.available_bytes - fixed, edge)
    return fixed + residence.cache_bytes(item), residence


def _edges_to_try(draft: Plan, X: Array, kernel: Kernel) -> list[int]:
    """The usual edge of a tile, and a smaller one for tight limits."""
    usual = tile_edge_for(draft.n_samples, draft.residence.workers, is_on_gpu(X), dense_row_bytes(kernel, X))
    return [usual, SMALLEST_EDGE] if usual > SMALLEST_EDGE else [usual]


def _solvers_to_try(draft: Plan, estimator: Any) -> list[tuple[Any, str]]:
    """The chosen solver, then smaller ones that may stand in for it, each with what to say about it."""
    n, p = draft.n_samples, draft.n_components
    tries: list[tuple[Any, str]] = [(draft.solver, "")]
    automatic = isinstance(estimator.eigen_solver, str) and estimator.eigen_solver == "auto"
    iterative, so_far = draft.solver, ""
    if automatic and isinstance(draft.solver, Dense) and 5 * p <= n:
        iterative = BlockKrylov(tol=float(estimator.tol), max_passes=estimator.max_iter)
        so_far = "the dense solver does not fit into memory; block Krylov instead"
        tries.append((iterative, so_far))
    if isinstance(iterative, BlockKrylov) and iterative.max_blocks is None and 5 * p <= n:
        few = f"the basis of block Krylov is held to {FEWEST_BLOCKS} blocks to fit into memory"
        tries.append((replace(iterative, max_blocks=FEWEST_BLOCKS), f"{so_far}; {few}" if so_far else few))
    return tries


def _fixed_bytes(draft: Plan, X: Array, kernel: Kernel, edge: int, estimator: Any) -> int:
    """Bytes that do not depend on how K is held: the model's data, prepared rows, tiles and sums of the workers."""
    n, d, p = draft.n_samples, draft.n_features, draft.n_components
    item = item_size(X.dtype)
    if isinstance(kernel, Precomputed):
        return n * n * item + n * p * item * 4  # the symmetric part, where the matrix is not symmetric to the last bit
    row_bytes = dense_row_bytes(kernel, X)
    data = (X.data.nbytes + X.indices.nbytes) if is_sparse(X) else n * d * item
    operand = -(-data // max(n, 1)) + 2 * row_bytes  # of one row, in the slices that a tile is made from
    tiles = draft.residence.workers * edge * ((1 + kernel.scratch_tiles) * edge * item + operand)
    sums = draft.residence.workers * n * (p + 10) * item
    # The ridge pre-image holds the kernel matrix of the scores, and a right-hand side.
    ridge = (n * n + 2 * n * d) * item if estimator.fit_inverse_transform and not isinstance(kernel, Linear) else 0
    return data * (2 if estimator.copy_X else 1) + 2 * n * item + tiles + sums + ridge


def _too_big(draft: Plan, needed: int, item: int) -> str:
    n = draft.n_samples
    advice = ["a larger memory_limit", "float32 data"] if item == 8 else ["a larger memory_limit"]
    if (isinstance(draft.solver, Dense) and draft.solver_reason == "asked for") or 5 * draft.n_components > n:
        advice.insert(0, f'eigen_solver="randomized" with at most {n // 5} components and gram="tiled"')
    return (
        f"the fit needs {spelled_bytes(needed)} (of which the square kernel matrix would take "
        f"{spelled_bytes(n * n * item)}), and {spelled_bytes(draft.available_bytes)} are allowed or free. Try "
        f"{', or '.join(advice)}."
    )


def memory_limit(limit: Any, like: Array) -> int:
    """Bytes that a fit may allocate: a number, «4GiB», or None for most of what is free."""
    if limit is None:
        return int(SHARE_OF_FREE * free_bytes(like))
    return parsed_bytes(limit)


def parsed_bytes(size: Any) -> int:
    """Bytes from an integer or a string such as "4GiB", "500 MB", "2g"."""
    if isinstance(size, str):
        match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([a-zA-Z]*)\s*", size)
        if match and match.group(2).lower() in UNITS:
            size = int(float(match.group(1)) * UNITS[match.group(2).lower()])
    if isinstance(size, float) and size.is_integer():
        size = int(size)
    if isinstance(size, bool) or not isinstance(size, Integral) or size <= 0:
        raise InvalidParameterError(
            f"memory_limit={size!r} is not allowed; give None, a number of bytes, or a string such as '4GiB'."
        )
    return int(size)


def spelled_bytes(size: int) -> str:
    """«1.4 GiB»."""
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"
