"""Times that no implementation by library calls on tiles undercuts, on a card whose ceilings are known.

A pass over K, n samples, d features, b columns, items of s bytes, every tile of the upper triangle used twice:

- operations n² d + 2 n² b: inner products of half the pairs, and both products of every tile;
- bytes 2.5 s n²: each of the n²/2 entries is written by the product, read and written by the exponential, and read by
  two products, which is 10 bytes an ordered pair in float32;
- of a cached tile only its two products: 2 n² b operations and s n² bytes.

Their seconds at the card's rates of large products and of copies are added: calls follow one another. (A kernel of
one's own that fuses them could be faster.) Real calls have shapes at which the card is slower, so the sum of the calls
as measured is reported beside the floor.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.ceilings import rate

GEMM = {"float32": "sgemm", "float64": "dgemm"}
# The reduction of a symmetric matrix to tridiagonal form, which every full eigensolver begins with.
TRIDIAGONAL = 4.0 / 3.0

Ceilings = dict[str, dict[str, Any]]


def roofline(ceilings: Ceilings, operations: float, items: float, dtype: str) -> float:
    """Return the seconds of operations at the rate of large products and of items at the rate of copies."""
    moved = items * np.dtype(dtype).itemsize
    return operations / rate(ceilings, GEMM[dtype]) + moved / rate(ceilings, "copy")


def pass_seconds(ceilings: Ceilings, n: int, d: int, b: float, dtype: str = "float32", cached: float = 0.0) -> float:
    """Return the floor of one product with b columns where the share `cached` of the tiles is stored."""
    operations = (1.0 - cached) * n * n * d + 2.0 * n * n * b
    return roofline(ceilings, operations, (2.5 - 1.5 * cached) * n * n, dtype)


def full_seconds(ceilings: Ceilings, n: int, d: int, dtype: str = "float32") -> float:
    """Return the seconds to compute and exponentiate the upper triangle of K, and to make K tridiagonal."""
    return roofline(ceilings, n * n * d + TRIDIAGONAL * n**3, 1.5 * n * n, dtype)


def nystrom_seconds(ceilings: Ceilings, n: int, d: int, rank: int, dtype: str = "float32") -> float:
    """Return the floor of columns of K, their orthogonalization, and the factor F (n, rank) written and read once."""
    return roofline(ceilings, 2.0 * n * rank * d + 2.0 * n * rank * rank, 2.0 * n * rank, dtype)


def calls_seconds(ceilings: Ceilings, n: int, d: int) -> float | None:
    """Return one float32 product with nothing cached as the sum of the calls measured; None where d was not.

    Per tile of the upper triangle: its product, with two columns for the norms, its exponentials, and two products with
    a block.
    """
    tile, block = ceilings.get(f"tile {d + 2}"), ceilings.get("tile times block")
    if tile is None or block is None or "exp" not in ceilings:
        return None
    tiles = n * n / 2.0 / tile["edge"] ** 2
    exponentials = 8.0 * tile["edge"] ** 2 / rate(ceilings, "exp")
    return tiles * (
        tile["seconds"] + exponentials + block["seconds"] + ceilings["transposed tile times block"]["seconds"]
    )


def fit_seconds(ceilings: Ceilings, entry: dict[str, Any]) -> float | None:
    """Return the floor of all passes of a fit, the first of which fills the cache; None where K is not in tiles."""
    facts, n, d, dtype = entry["facts"], entry["n"], entry["d"], entry["dtype"]
    if str(facts.get("solver", "")).startswith("dense"):
        return full_seconds(ceilings, n, d, dtype)
    if not facts.get("passes") or "cached_tiles" not in facts:
        return None
    columns = facts["columns"] / facts["passes"]
    again = pass_seconds(ceilings, n, d, columns, dtype, facts["cached_tiles"] / facts["tiles"])
    return pass_seconds(ceilings, n, d, columns, dtype) + (facts["passes"] - 1) * again


def floor_seconds(ceilings: Ceilings, entry: dict[str, Any]) -> float | None:
    """Return the floor of an entry that ran on the card; None where its work or the card is unknown."""
    on_card = entry["outcome"] == "ok" and entry.get("device_mib") is not None
    if not on_card or entry["kernel"] != "rbf" or not {"copy", "sgemm", "dgemm"} <= set(ceilings):
        return None
    n, d, dtype = entry["n"], entry["d"], entry["dtype"]
    if entry["task"] == "product":
        facts = entry["facts"]
        return pass_seconds(ceilings, n, d, entry["p"], dtype, facts["cached_tiles"] / facts["tiles"])
    if entry["task"] not in ("fit", "compared"):
        return None
    if "Nystrom" in entry["contestant"]:
        return nystrom_seconds(ceilings, n, d, min(entry["rank"], n), dtype)
    if entry["contestant"].startswith("gpukpca"):
        return fit_seconds(ceilings, entry)
    return full_seconds(ceilings, n, d, dtype)
