"""Compare the lines of each room that tests reached with its floor: ``python ci/coverage_floors.py REPORT.json``.

The report is that of ``coverage json``. The exit status is 1 where a room is below its floor, or has none.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

# Percent of the lines of a room that the suite reached on a processor without CuPy and without the real data, less two.
# A card, or the stand-in for it, reaches the rest of `cuda`.
FLOORS: dict[str, int] = {
    "algorithms": 97,
    "backend": 92,
    "cli": 96,
    "covariance": 96,
    "cuda": 32,
    "data": 96,
    "decomposition": 96,
    "distributed": 94,
    "eigen": 94,
    "gram": 96,
    "kernels": 96,
    "model_selection": 97,
    "persistence": 94,
    "plotting": 97,
    "top": 96,
}


def shares(files: dict[str, dict[str, dict[str, int]]]) -> dict[str, float]:
    """Return the percent of lines reached in each room, a folder of the package; modules beside them are "top"."""
    reached: Counter[str] = Counter()
    lines: Counter[str] = Counter()
    for name, facts in files.items():
        parts = Path(name.replace("\\", "/")).parts
        inside = parts[parts.index("gpukpca") + 1 :]
        room = inside[0] if len(inside) > 1 else "top"
        reached[room] += facts["summary"]["covered_lines"]
        lines[room] += facts["summary"]["num_statements"]
    return {room: 100.0 * reached[room] / max(lines[room], 1) for room in sorted(lines)}


def main() -> None:
    report = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    found = shares(report["files"])
    for room, share in found.items():
        print(f"{room:16} {share:5.1f} %  floor {FLOORS.get(room, 'none')}")
    if low := [room for room, share in found.items() if room not in FLOORS or share < FLOORS[room]]:
        sys.exit(f"Below the floor, or without one: {', '.join(low)}. Add tests; do not lower the floor.")


if __name__ == "__main__":
    main()
