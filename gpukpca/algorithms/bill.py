"""The bill of materials of a fit: who holds which bytes, phase after phase."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from gpukpca._formatting import format_bytes

# Bytes by the names of what holds them.
Parts = dict[str, int]

# Blocks of n rows that this process holds in addition to the solver's where a cluster multiplies: V and its copies,
# products that return, and sums in float64.
BLOCKS_IN_TRANSIT = 6
# What a batch may be cut to.
SHORTER = "batches of at most {0} rows (batch_size={0} where fit cuts them)"
# Parts of a bill that a plan prints.
SHOWN = 4


class Bill(dict[str, Parts]):
    """The bytes of a fit in addition to its data: phase -> {name: bytes}; those of the phase "" are held throughout.

    Every part is an upper bound. The other phases come one after another, so the largest of them makes the peak.
    """

    @property
    def parts(self) -> Parts:
        """Return the bytes at the peak by their names."""
        held, largest = self.get("", {}), max((self | {"": {}}).values(), key=total)
        return held | {name: held.get(name, 0) + size for name, size in largest.items()}

    @property
    def peak(self) -> int:
        """Return the most bytes that are held at a time."""
        return total(self.parts)


def total(parts: Parts) -> int:
    """Return the sum of the bytes."""
    return sum(parts.values())


def fewer(text: str, count: int, result: Callable[[int], Any], least: int = 1) -> Iterator[tuple[str, Any]]:
    """Yield advice and what follows from it: for the half of a count, the half of that, and so on to the least."""
    while (count := count // 2) >= least:
        yield text.format(count), result(count)


def with_pairs(parts: Parts, first: int, pair_bytes: int) -> Callable[[int], Parts]:
    """Return the parts of a number of components that a share takes, each beyond the first ones of so many bytes."""
    return lambda count: parts | {"more components": max(0, count - first) * pair_bytes}


def parts_text(parts: Parts) -> str:
    """Return the largest parts of a peak as a plan prints them."""
    sizes = sorted(((name, size) for name, size in parts.items() if size), key=lambda part: -part[1])
    rest = [("others", sum(size for _, size in sizes[SHOWN:]))] if len(sizes) > SHOWN else []
    return ", ".join(f"{name} {format_bytes(size)}" for name, size in sizes[:SHOWN] + rest)
