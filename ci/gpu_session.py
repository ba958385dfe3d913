"""Run parts that need a CUDA device while they fit into one call; ``ci/gpu_session.sh`` says which and how."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

# Seconds of the archive at the end, and of a part from its interrupt until it is killed.
PACKING, GRACE = 10, 20
# A benchmark ends by itself so many seconds before it would be interrupted.
EARLIER = 15
QUICK_LIMIT = 120
LARGEST_LOG, SHOWN_LINES = 4_000_000, 40
LATE, LATE_STATUS = "out of time", (124, 137)
# What tests/conftest.py and `benchmarks.first_contact` print.
ASSERTIONS = re.compile(r"^failed assertions, tolerances among them: (\d+)$", re.MULTILINE)
ERRORS = re.compile(r"^failures of code: (\d+)$", re.MULTILINE)
# What pytest prints of a benchmark: a wrong answer names its contestant alone, a colon and an error follow otherwise.
ROW = re.compile(r"^(?:FAILED|ERROR) benchmarks/.*?(?: - (.*))?$", re.MULTILINE)
WRONG = re.compile(r"assert .*|AssertionError: [^:]*")
LATE_ROW = '"outcome": "not run: no time left"'

Row = dict[str, Any]


class Part(NamedTuple):
    """A command of bash, and the most seconds that it may take; its record, if any, is FOLDER/NAME.json."""

    name: str
    limit: int
    command: str


def main() -> None:
    out, names, done = Path(sys.argv[1]), sys.argv[2:], os.environ.get("DONE", "").split()
    table = parts(bool(os.environ.get("QUICK")))
    known = [part.name for part in table]
    if unknown := [name for name in (*names, *done) if name not in known]:
        print(f"There is no part «{unknown[0]}»; parts are {', '.join(known)}.", file=sys.stderr)
        sys.exit(2)
    out.mkdir(parents=True, exist_ok=True)
    about = subprocess.check_output([os.environ["PYTHON"], "-m", "benchmarks.machine"])
    session = Session(out, table, json.loads(about), done)
    sys.exit(not session.play(float(os.environ.get("SECONDS_IN_ALL", "540")), names))


def parts(is_quick: bool) -> list[Part]:
    """Return all parts in their order: whether a card computes what it should, then how fast it is."""
    quick = "--quick" if is_quick else ""

    def bench(name: str, limit: int, which: str) -> Part:
        limit = min(limit, QUICK_LIMIT) if is_quick else limit
        # The first part that measures the rates of the card does so for those after it.
        known = 'rates="$FOLDER/headline.json"; ! grep -qs sgemm "$rates" || set -- --ceilings "$rates"'
        options = f'{quick} --record "$FOLDER/{name}.json" --seconds {limit - EARLIER} --tb=line -k "{which}"'
        return Part(name, limit, f'{known}; exec bash ci/bench.sh --gpu {options} "$@"')

    card = 'nvidia-smi -q -d CLOCK,POWER,TEMPERATURE || echo "nvidia-smi does not run here."'
    info = 'if "$PYTHON" ci/missing.py click polars rich; then "$PYTHON" -m gpukpca info || exit; fi'
    return [
        Part("versions", 30, f'{card}; "$PYTHON" -m benchmarks.machine || exit; {info}'),
        Part("contact", 40, f'exec "$PYTHON" -m benchmarks.first_contact {quick}'),
        Part("shapes", 90, f'exec "$PYTHON" -m benchmarks.shapes {quick}'),
        bench("headline", 150, "gpu-cached or gpu-fit-250000"),
        Part(
            "suite", 210, "exec bash ci/test_gpu.sh -q --tb=short" + " tests/eigen/test_pivoted_cholesky.py" * is_quick
        ),
        bench("million", 165, "gpu-fit-1000000"),
        bench("peers", 120, "gpu-peers or gpu-lanczos or gpu-pca"),
        bench("targets", 450, "test_trial and not (gpu-cached or gpu-fit or gpu-peers or gpu-lanczos)"),
        bench("crossover", 520, "test_sweep_on_card and not gpu-pca"),
    ]


def executed(part: Part, out: Path) -> tuple[int, str]:
    """Return the exit status and the output of a part; pytest prints its failures after an interrupt, too."""
    limits = ["timeout", "--signal=INT", f"--kill-after={GRACE}", str(part.limit)]
    # Where lines end early, pytest cuts the errors that are counted.
    environment, scratch = os.environ | {"COLUMNS": "400", "FOLDER": str(out)}, out / ".part"
    with scratch.open("wb") as file:
        status = subprocess.call(
            [*limits, "bash", "-c", part.command], stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=environment
        )
    text = scratch.read_bytes()[-LARGEST_LOG:].decode(errors="replace")
    scratch.unlink()
    return status, text


def judged(part: Part, status: int, text: str, record: str, seconds: float) -> Row:
    """Return the row of a part: its result, its failed assertions, and apart from them failures by another error."""
    messages, late = ROW.findall(text), record.count(LATE_ROW)
    wrong = sum(bool(WRONG.fullmatch(message)) for message in messages)
    assertions = sum(map(int, ASSERTIONS.findall(text))) + max(0, wrong - late)
    errors = sum(map(int, ERRORS.findall(text))) + len(messages) - wrong
    is_late = late > 0 or (status in LATE_STATUS and seconds >= part.limit)
    if status and not (is_late or assertions or errors):
        errors = 1  # it ended before it could count
    row = {"part": part.name, "result": LATE if is_late else "failed" if status else "passed"}
    return row | {"seconds": round(seconds, 1), "assertions": assertions, "errors": errors}


class Session:
    """The folder of parts that ran in this call and in earlier ones; `about` describes the machine."""

    def __init__(self, out: Path, parts: Sequence[Part], about: Any, done: Sequence[str] = ()) -> None:
        self.out, self.parts, self.about, self.state = out, parts, about, out / "parts.jsonl"
        lines = self.state.read_text(encoding="utf-8").splitlines() if self.state.exists() else []
        # Part -> its last row.
        self.rows: dict[str, Row] = {name: {"result": "ended before"} for name in done}
        self.rows |= {row["part"]: row for row in map(json.loads, lines)}

    def has_ended(self, part: Part) -> bool:
        return self.rows.get(part.name, {"result": LATE})["result"] != LATE

    def play(
        self,
        total: float,
        names: Sequence[str] = (),
        run: Callable[[Part, Path], tuple[int, str]] = executed,
        clock: Callable[[], float] = time.monotonic,
    ) -> bool:
        """Run the named parts, or those that have not ended, while they fit; return whether all that ran passed."""
        begin, results, by_name = clock(), [], {part.name: part for part in self.parts}
        for part in [by_name[name] for name in names] or [one for one in self.parts if not self.has_ended(one)]:
            start = clock()
            rest = max(0, int(total - PACKING - (start - begin)))
            if part.limit > rest:
                print(f"{part.name}: waits for the next call: it may take {part.limit} s, and {rest} s are left")
                continue
            record = self.out / f"{part.name}.json"
            record.unlink(missing_ok=True)
            status, text = run(part, self.out)
            written = record.read_text(encoding="utf-8") if record.exists() else ""
            self.keep(judged(part, status, text, written, clock() - start), text)
            results.append(self.rows[part.name]["result"])
        with tarfile.open(self.out / "session.tar.gz", "w:gz") as archive:
            for file in sorted([*self.out.glob("*.json*"), *self.out.glob("session.log")]):
                archive.add(file, file.name)
        print(self.table())
        return set(results) <= {"passed"}

    def keep(self, row: Row, text: str) -> None:
        """Add a row and an output to the files, both with the machine; print the end of the output."""
        self.rows[row["part"]] = row
        summary, about = f"{row['part']}: {row['result']} after {row['seconds']:.0f} s", json.dumps(self.about)
        append(self.state, json.dumps(row | {"machine": self.about}))
        append(self.out / "session.log", f"== {summary}; {about}\n{text}")
        print("\n".join([f"== {row['part']}", *text.splitlines()[-SHOWN_LINES:], summary]), flush=True)

    def table(self) -> str:
        """Return what each part took, its failures and what waits, and the setting of a call that goes on."""
        lines = [f"{'part':10} {'at most':>7} {'seconds':>8} {'assertions':>11} {'errors':>7}  result"]
        for part in self.parts:
            row = dict.fromkeys(("seconds", "assertions", "errors"), "") | self.rows.get(part.name, {"result": "waits"})
            failed = f"{row['assertions']:>11} {row['errors']:>7}"
            lines.append(f"{part.name:10} {part.limit:7} {row['seconds']:>8} {failed}  {row['result']}")
        ended = [part.name for part in self.parts if self.has_ended(part)]
        all_ended = len(ended) == len(self.parts)
        return "\n".join([*lines, "No part is left." if all_ended else f'In another folder: DONE="{" ".join(ended)}"'])


def append(file: Path, text: str) -> None:
    with file.open("a", encoding="utf-8") as stream:
        stream.write(f"{text}\n")


if __name__ == "__main__":
    main()
