"""Times that no implementation by library calls on tiles undercuts, on a card whose ceilings are known.

A card is a table of rates: large products, exponentials, and copies of a tile and in memory. A pass over K, n samples,
d features, b columns, every tile of the upper triangle used twice:

- operations n² d + 2 n² b: inner products of half the pairs, and both products of every tile;
- n²/2 exponentials;
- 3 n²/2 items of tiles: written by the product, read by two products;
- of a stored tile only its two products: 2 n² b operations, n²/2 items of memory and n²/2 of the tile.

Their seconds are added: calls follow one another. (A kernel that fuses them could be faster.) Real calls have shapes at
which a card is slower: `benchmarks.shapes` times them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.ceilings import Ceilings, rate
from benchmarks.peer import is_ours

GEMM = {"float32": "sgemm", "float64": "dgemm"}
# The reduction of a symmetric matrix to tridiagonal form, which every full eigensolver begins with.
TRIDIAGONAL = 4.0 / 3.0


def roofline(
    ceilings: Ceilings, dtype: str, operations: float, memory: float = 0.0, exps: float = 0.0, tiles: float = 0.0
) -> float:
    """Return the seconds of operations of large products, exponentials, and items of memory and of tiles.

    A rate that was not measured is that of copies.
    """
    item = np.dtype(dtype).itemsize
    bytes_at = {"copy": memory * item, f"exp {dtype}": 2.0 * exps * item, "tile copy": tiles * item}
    moved = sum(size / rate(ceilings, name if name in ceilings else "copy") for name, size in bytes_at.items())
    return operations / rate(ceilings, GEMM[dtype]) + moved


def pass_seconds(ceilings: Ceilings, n: int, d: int, b: float, dtype: str = "float32", cached: float = 0.0) -> float:
    """Return the floor of one product with b columns where the share `cached` of the tiles is stored."""
    half, new = 0.5 * n * n, 1.0 - cached
    operations = 2.0 * half * (new * d + 2.0 * b)
    return roofline(ceilings, dtype, operations, cached * half, new * half, (3.0 * new + cached) * half)


def full_seconds(ceilings: Ceilings, n: int, d: int, dtype: str = "float32") -> float:
    """Return the seconds to compute the upper triangle of K, and to make K tridiagonal."""
    half = 0.5 * n * n
    return roofline(ceilings, dtype, n * n * d + TRIDIAGONAL * n**3, half, half)


def nystrom_seconds(ceilings: Ceilings, n: int, d: int, rank: int, dtype: str = "float32") -> float:
    """Return the floor of columns of K, their orthogonalization, and the factor F (n, rank) written and read once."""
    return roofline(ceilings, dtype, 2.0 * n * rank * (d + rank), 2.0 * n * rank, n * rank)


def fit_seconds(ceilings: Ceilings, entry: dict[str, Any]) -> float | None:
    """Return the floor of all passes of a fit, the first of which fills the cache; None where K is not in tiles."""
    facts, n, d, dtype = entry["facts"], entry["n"], entry["d"], entry["dtype"]
    if str(facts.get("solver", "")).startswith("dense"):
        return full_seconds(ceilings, n, d, dtype)
    if not facts.get("passes") or "cached_tiles" not in facts:
        return None
    columns, cached = facts["columns"] / facts["passes"], facts["cached_tiles"] / facts["tiles"]
    again = pass_seconds(ceilings, n, d, columns, dtype, cached)
    return pass_seconds(ceilings, n, d, columns, dtype) + (facts["passes"] - 1) * again


def floor_seconds(ceilings: Ceilings, entry: dict[str, Any]) -> float | None:
    """Return the floor of an entry; None where its work or the machine is unknown."""
    known = entry["outcome"] == "ok" and {"copy", "sgemm", "dgemm"} <= set(ceilings)
    if not known or entry.get("kernel") != "rbf":
        return None
    n, d, dtype, facts = entry["n"], entry["d"], entry["dtype"], entry["facts"]
    if entry["task"] not in ("fit", "compared", "product"):
        return None
    if entry["task"] == "product":
        return pass_seconds(ceilings, n, d, entry["p"], dtype, facts["cached_tiles"] / facts["tiles"])
    if "Nystrom" in entry["contestant"]:
        return nystrom_seconds(ceilings, n, d, min(entry["rank"], n), dtype)
    if is_ours(entry["contestant"]):
        return fit_seconds(ceilings, entry)
    return full_seconds(ceilings, n, d, dtype)
