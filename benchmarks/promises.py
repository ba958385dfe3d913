"""What is asserted of a figure once the clock has stopped: that it is one, and that its answer is right."""

from __future__ import annotations

from typing import Any

from benchmarks.cases import Case
from benchmarks.contest import NO_TIME
from benchmarks.peers import PEERS
from benchmarks.verdicts import agrees, bounds_hold


def is_figure(entry: dict[str, Any]) -> bool:
    """Return whether there are seconds to show, or a promise is broken, because there should be."""
    peer = PEERS[entry["contestant"]]
    promised = (peer.certified or peer.bounded) and not entry["outcome"].startswith("skipped")
    return entry["outcome"] in ("ok", NO_TIME) or promised


def check(case: Case, entry: dict[str, Any]) -> None:
    """The promise of a certified contestant: it ends, where it should run, and its error is near the tolerance.

    Of an approximation its bounds are promised; of a compared fit that it is the fit of the host. Speed never is.
    """
    contestant, outcome = entry["contestant"], entry["outcome"]
    if outcome.startswith("skipped"):
        return
    assert outcome != NO_TIME, contestant
    if "certificate" in entry:
        assert bounds_hold(entry), contestant
    peer = PEERS[contestant]
    if not (peer.certified or peer.bounded):
        return
    assert outcome == "ok", f"{contestant}: {outcome}"
    where = str(entry["facts"].get("device", peer.place.name))
    assert where.startswith(peer.place.name), f"{contestant} computed on {where}"
    if peer.certified:
        assert entry["residual"] <= 3 * case.tol, contestant
    if case.most_mib and contestant == case.contestants[0] and entry["total_mib"] is not None:
        assert entry["total_mib"] < case.most_mib, contestant
    if case.task == "compared":
        assert agrees(case, entry), contestant
