"""The figure of pairs of fits: the median of the ratios of their seconds, with an interval, and whether it settles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

# A ratio settles where its interval lies within this share of it, from so many pairs; --quick is content with fewer.
WITHIN, LEAST_PAIRS, LEAST_PAIRS_QUICK = 0.15, 7, 3
DRAWS, CONFIDENCE = 2000, 0.99
# What the pairs of one run do not see: it widens each end of an interval.
UNSEEN = 0.02

Ratio = dict[str, Any]


def ratio_of(pairs: Sequence[Sequence[float]], least: int = LEAST_PAIRS) -> Ratio:
    """Return the median of second / first over the pairs, its bootstrap interval, and whether it has settled."""
    if not pairs:
        return {"pairs": 0, "settled": False}
    logs = np.log([second / first for first, second in pairs])
    drawn = np.random.default_rng(0).choice(logs, (DRAWS, len(logs)))
    ends = np.quantile(np.median(drawn, axis=1), [0.5 - CONFIDENCE / 2.0, 0.5 + CONFIDENCE / 2.0])
    ends += np.log1p([-UNSEEN, UNSEEN])
    low, value, high = (float(f"{x:.4g}") for x in np.exp([ends[0], np.median(logs), ends[1]]))
    narrow = max(high / value, value / low) <= 1.0 + WITHIN
    return {"value": value, "low": low, "high": high, "pairs": len(logs), "settled": narrow and len(logs) >= least}


def digits(value: float) -> str:
    """Return two digits, of small and large numbers as many as they have."""
    return f"{value:.0f}" if value >= 9.95 else f"{value:.1f}" if value >= 0.995 else f"{value:.2f}"


def ratio_text(ratio: Ratio | None, shown: Callable[[float], str] = digits) -> str:
    """Return "2.8 (2.6–3.0), 9 pairs", or that the ratio is not settled."""
    if not ratio or not ratio["pairs"]:
        return "not settled"
    interval = f"({shown(ratio['low'])}–{shown(ratio['high'])})"
    counted = f"{ratio['pairs']} pair{'s' * (ratio['pairs'] > 1)}"
    if not ratio["settled"]:
        return f"not settled {interval}, {counted}"
    return f"{shown(ratio['value'])} {interval}, {counted}"
