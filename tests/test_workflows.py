"""Hosted jobs: actions by digest, scripts that exist, floors of coverage."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FLOORS = ROOT / "ci" / "coverage_floors.py"


def test_actions_are_pinned_by_digest_and_the_same_everywhere() -> None:
    texts = [file.read_text(encoding="utf-8") for file in (ROOT / ".github" / "workflows").glob("*.yml")]
    used = [line for text in texts for line in re.findall(r"uses: (.*)", text)]
    pinned = [re.fullmatch(r"([\w-]+/[\w-]+)@([0-9a-f]{40}) # v[\d.]+", line) for line in used]
    assert len(texts) == 3
    assert all(pinned), used
    assert len({line[1] for line in pinned if line}) == len(set(used))


def test_jobs_call_scripts_that_exist() -> None:
    for file in (ROOT / ".github" / "workflows").glob("*.yml"):
        text = file.read_text(encoding="utf-8")
        named = {*re.findall(r"bash ci/(\w+)\.sh", text)}
        for matrix in re.findall(r"script: \[(.*)\]", text):
            named |= {*matrix.split(", ")}
        assert named, file.name
        for script in named:
            assert (ROOT / "ci" / f"{script}.sh").exists(), script


def test_a_release_is_built_of_locked_tools_sealed_tested_and_attested() -> None:
    tools = (ROOT / "ci" / "build_tools.txt").read_text(encoding="utf-8").splitlines()
    locked = [line for line in tools if not line.startswith("#")]
    assert all(re.fullmatch(r"[\w-]+==[\w.]+ --hash=sha256:[0-9a-f]{64}", line) for line in locked)
    assert {"build", "hatchling"} <= {line.partition("==")[0] for line in locked}
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
    jobs = dict(re.findall(r"^  (\w+):\n((?:    .*\n)+)", text.partition("jobs:\n")[2], flags=re.M))
    assert list(jobs) == ["build", "test", "upload"]
    scripts = {name: re.findall(r"run: (?:bash ci/)?(.*)", job) for name, job in jobs.items()}
    assert scripts["build"][0] == "build.sh"
    for job in ("test", "upload"):  # what they take is what was built
        assert "sha256sum --check --strict" in scripts[job][0]
        assert "SUMS: ${{ needs.build.outputs.sums }}" in jobs[job]
    assert "needs: [build, test]" in jobs["upload"]
    assert "attestations: true" in jobs["upload"]
    assert "id-token" not in jobs["build"] + jobs["test"]
    packages = (ROOT / "ci" / "package.sh").read_text(encoding="utf-8")
    assert re.search(r"twine==\d", packages)


@pytest.mark.parametrize(("reached", "room", "status"), [(100, "eigen", 0), (10, "eigen", 1), (100, "attic", 1)])
def test_a_room_below_its_floor_or_without_one_fails(tmp_path: Path, reached: int, room: str, status: int) -> None:
    report = tmp_path / "report.json"
    summary = {"summary": {"covered_lines": reached, "num_statements": 100}}
    report.write_text(json.dumps({"files": {f"gpukpca/{room}/a.py": summary}}), encoding="utf-8")
    ran = subprocess.run([sys.executable, FLOORS, report], capture_output=True, text=True, check=False)
    assert ran.returncode == status, ran.stderr
    assert (room in ran.stderr) == bool(status)


def test_every_room_has_a_floor() -> None:
    rooms = {path.name for path in (ROOT / "gpukpca").iterdir() if (path / "__init__.py").exists()}
    text = FLOORS.read_text(encoding="utf-8")
    assert set(re.findall(r'^    "(\w+)": \d+,', text, flags=re.M)) == {*rooms, "top"}
