"""Every snippet of the README runs."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
import sklearn.datasets
from click.testing import CliRunner

README = Path(__file__).resolve().parents[1] / "README.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README.read_text(encoding="utf-8"), flags=re.M | re.S)


@pytest.fixture
def fewer_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    """750 of the 1797, and coarse pictures: a third of the time, and what is asked is that the README runs."""
    digits = sklearn.datasets.load_digits()
    fewer = sklearn.utils.Bunch(**digits | {key: digits[key][:750] for key in ("data", "target", "images")})
    pair = (fewer.data, fewer.target)
    monkeypatch.setattr("sklearn.datasets.load_digits", lambda return_X_y=False: pair if return_X_y else fewer)
    monkeypatch.setitem(matplotlib.rcParams, "savefig.dpi", 60)


def test_python_snippets_run_in_order(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fewer_digits: None
) -> None:
    monkeypatch.chdir(tmp_path)  # one of them writes files
    namespace: dict[str, Any] = {}
    snippets = blocks("python")
    assert len(snippets) >= 4
    for snippet in snippets:
        exec(compile(snippet, "README.md", "exec"), namespace)
    assert "components carry 90 % of the variance" in capsys.readouterr().out
    # Values of gamma that fit the units of the data: the recipes do what they are for.
    assert namespace["search"].best_score_ > 0.8
    assert np.mean((namespace["restored"] - namespace["X"][500:510]) ** 2) < 0.25 * namespace["X"].var()


def test_command_lines_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fewer_digits: None) -> None:
    from gpukpca.cli.app import gpukpca

    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    rows = [",".join([f"s{i}", *(f"{v:.3f}" for v in rng.standard_normal(4)), "ab"[i % 2]]) for i in range(30)]
    Path("table.csv").write_text("\n".join(["name,u,v,w,x,kind", *rows]) + "\n", encoding="utf-8")
    lines = [line for block in blocks("bash") for line in block.splitlines() if line.startswith("gpukpca ")]
    assert len(lines) >= 3
    for line in lines:
        extra = ["--force"] if " fit " in line else []
        result = CliRunner().invoke(gpukpca, shlex.split(line)[1:] + extra)
        assert result.exit_code == 0, (line, result.output)
    assert Path("digits.png").stat().st_size > 5_000


def test_scripts_that_are_named_exist() -> None:
    text = README.read_text(encoding="utf-8")
    for script in set(re.findall(r"ci/\w+\.sh", text)):
        assert (README.parent / script).exists(), script
