"""Pairs of fits of two checkouts: ``python -m benchmarks.against REV [--quick] [--large] [-k PART]``.

A line for each case has the time of the revision over that of this checkout, on one thread. The exit status is 1 where
a settled interval lies below 0.97, or this checkout fails.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.cases import EVERY, Case
from benchmarks.contest import LEAST_TIMEOUT, QUICK_SECONDS, Contest
from benchmarks.datasets import why_absent
from benchmarks.machine import ROOT, machine
from benchmarks.ratios import ratio_text
from benchmarks.verdicts import Entry

SLOWER = 0.97


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.against", description=__doc__)
    parser.add_argument("revision", metavar="REV", help="a name that git knows")
    parser.add_argument("--quick", action="store_true", help="small sizes, within three minutes")
    parser.add_argument("--large", action="store_true", help="also the cases that take minutes")
    parser.add_argument("-k", default="", metavar="PART", help="cases whose names have this part")
    options = parser.parse_args()
    sized = [case for case in EVERY if (case.quick_n if options.quick else options.large or not case.large)]
    cases = [case for case in sized if options.k in case.name and not why_absent(case.data)]
    contest = Contest(machine(), quick=options.quick, rows_left=len(cases))
    if options.quick:
        contest.timeout, contest.deadline = LEAST_TIMEOUT, time.monotonic() + QUICK_SECONDS
    print(f"time of {options.revision} / time of this checkout, one thread")
    with checkout(options.revision) as folder:
        is_slower = [compared(contest, case, options.revision, folder) for case in cases]
        contest.close()
    sys.exit(any(is_slower))


@contextmanager
def checkout(revision: str) -> Iterator[str]:
    """Yield a folder with a revision; end with git's sentence where there is none of this name."""
    with tempfile.TemporaryDirectory() as parent:
        folder, git = f"{parent}/checkout", ["git", "-C", str(ROOT), "worktree"]
        if subprocess.run([*git, "add", "--quiet", "--detach", folder, revision], check=False).returncode:
            sys.exit(f"--against: git has no revision {revision}. Name a commit, a branch or a tag.")
        try:
            yield folder
        finally:
            subprocess.run([*git, "remove", "--force", folder], check=True)


def compared(contest: Contest, case: Case, revision: str, folder: str) -> bool:
    """Print the ratio of a case; return whether this checkout is slower, or fails."""
    names = (case.contestants[0], f"{case.contestants[0]} of {revision}")
    contest.close(but=names)
    contest.origins[names[1]] = (names[0], folder)
    here, there = (Entry(contestant=name, outcome="ok", columns={}, seconds=[]) for name in names)
    contest.play_column(case, [here, there], 1)
    failures = [f"{entry['contestant']}: {entry['outcome']}" for entry in (here, there) if entry["outcome"] != "ok"]
    column = there["columns"].get("1", {"ratio": {"pairs": 0, "settled": False}, "pairs": []})
    discarded = sum(bool(pair["discarded"]) for pair in column["pairs"])
    text = "; ".join(failures) or f"{ratio_text(column['ratio'], '{:.2f}'.format)}; {discarded} discarded"
    print(f"{case.name:28} {names[0]:26} {text}", flush=True)
    return here["outcome"] != "ok" or bool(column["ratio"]["settled"] and column["ratio"]["high"] < SLOWER)


if __name__ == "__main__":
    main()
