"""Times that no implementation by library calls on tiles undercuts, on a card whose ceilings are known.

A pass over K, n samples, d features, b columns, items of s bytes, every tile of the upper triangle used twice:

- operations n² d + 2 n² b: inner products of half the pairs, and both products of every tile;
- bytes 2.5 s n²: each of the n²/2 entries is written by the product, read and written by the exponential, and read by
  two products, which is 10 bytes an ordered pair in float32;
- of a cached tile only its two products: 2 n² b operations and s n² bytes.

Their seconds at the card's rates of large products and of copies are added: calls follow one another. (A kernel of
one's own that fuses them could be faster.) Real calls have shapes at which the card is slower, so the sum of the calls
as measured is told beside the floor.
"""

from __future__ import annotations

from typing import Any

from benchmarks.ceilings import rate

ITEM = {"float32": 4, "float64": 8}
GEMM = {"float32": "sgemm", "float64": "dgemm"}
# The reduction of a symmetric matrix to tridiagonal form, which every full eigensolver begins with.
TRIDIAGONAL = 4.0 / 3.0

Ceilings = dict[str, dict[str, Any]]


def pass_seconds(ceilings: Ceilings, n: int, d: int, b: float, dtype: str = "float32", cached: float = 0.0) -> float:
    """One product with b columns, the share `cached` of the tiles at hand."""
    operations = (1.0 - cached) * n * n * d + 2.0 * n * n * b
    items = (2.5 - 1.5 * cached) * n * n
    return operations / rate(ceilings, GEMM[dtype]) + items * ITEM[dtype] / rate(ceilings, "copy")


def full_seconds(ceilings: Ceilings, n: int, d: int, dtype: str = "float32") -> float:
    """Return the seconds to compute and exponentiate the upper triangle of K, and to make K tridiagonal."""
    operations = n * n * d + TRIDIAGONAL * n**3
    return operations / rate(ceilings, GEMM[dtype]) + 1.5 * n * n * ITEM[dtype] / rate(ceilings, "copy")


def calls_seconds(ceilings: Ceilings, n: int, d: int) -> float | None:
    """One float32 product with nothing cached as the sum of the calls measured at these shapes; None where d was not.

    Per tile of the upper triangle: its product, with two columns for the norms, its exponentials, and two products with
    a block.
    """
    tile, block = ceilings.get(f"tile {d + 2}"), ceilings.get("tile times block")
    if tile is None or block is None or "exp" not in ceilings:
        return None
    edge = tile["edge"]
    tiles = n * n / 2.0 / edge**2
    exponentials = 8.0 * edge**2 / rate(ceilings, "exp")
    both = block["seconds"] + ceilings["transposed tile times block"]["seconds"]
    return tiles * (tile["seconds"] + exponentials + both)


def fit_seconds(ceilings: Ceilings, entry: dict[str, Any]) -> float | None:
    """All passes of a fit as the record tells them; None where it does not.

    The first pass fills the cache, later ones use it.
    """
    facts = entry.get("facts") or {}
    n, d, dtype = entry["n"], entry["d"], entry["dtype"]
    if str(facts.get("solver", "")).startswith("dense"):
        return full_seconds(ceilings, n, d, dtype)
    if not facts.get("passes") or facts.get("held") != "tiled":
        return None
    columns = facts["columns"] / facts["passes"]
    cached = facts["cached_tiles"] / facts["tiles"]
    first = pass_seconds(ceilings, n, d, columns, dtype)
    return first + (facts["passes"] - 1) * pass_seconds(ceilings, n, d, columns, dtype, cached)


def nystrom_seconds(ceilings: Ceilings, n: int, d: int, rank: int, dtype: str = "float32") -> float:
    """Columns of K from inner products, their orthogonalization, and the factor F (n, rank) written and read once."""
    operations = 2.0 * n * rank * d + 2.0 * n * rank * rank
    return operations / rate(ceilings, GEMM[dtype]) + 2.0 * n * rank * ITEM[dtype] / rate(ceilings, "copy")


def floor_seconds(ceilings: Ceilings, entry: dict[str, Any]) -> float | None:
    """Of an entry of the record that ran on the card; None where nothing is known of its work, or of the card."""
    on_card = entry["outcome"] == "ok" and entry.get("device_mib") is not None
    if not on_card or entry["kernel"] != "rbf" or not {"copy", "sgemm", "dgemm"} <= set(ceilings):
        return None
    n, d, dtype = entry["n"], entry["d"], entry["dtype"]
    if entry["task"] == "product":
        facts = entry["facts"]
        cached = facts["cached_tiles"] / facts["tiles"]
        return pass_seconds(ceilings, n, d, entry["p"], dtype, cached)
    if entry["task"] not in ("fit", "compared"):
        return None
    if "Nystrom" in entry["contestant"]:
        return nystrom_seconds(ceilings, n, d, min(entry["rank"], n), dtype)
    if entry["contestant"].startswith("gpukpca"):
        return fit_seconds(ceilings, entry)
    return full_seconds(ceilings, n, d, dtype)
