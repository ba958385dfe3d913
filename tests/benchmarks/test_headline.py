"""The fits whose K fits nowhere, at small sizes: records, and what an interrupt leaves."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("benchmarks", reason="the benchmarks are not part of the package")

from benchmarks import headline
from gpukpca import KernelPCA, Progress


def run(monkeypatch: pytest.MonkeyPatch, folder: Path, case: str, *more: str) -> Any:
    arguments = [case, "--rows", "1500", "--memory-limit", "32MB", "--folder", str(folder), *more]
    monkeypatch.setattr(sys, "argv", ["headline", *arguments])
    headline.main()
    return json.loads((folder / f"headline-{case}-1500.json").read_text(encoding="utf-8"))


def test_a_million_rows_start_from_landmarks_and_go_on_after_an_interrupt(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = run(monkeypatch, tmp_path / "whole", "million")
    assert whole["passes"] == 2
    assert max(whole["relative_residuals"]) <= 1e-5
    assert run(monkeypatch, tmp_path / "more", "million", "--passes", "0")["passes"] >= 3

    def stop(event: Progress) -> None:
        if event.stage == "pass":
            raise KeyboardInterrupt

    set_params = KernelPCA.set_params
    with monkeypatch.context() as patch:
        patch.setattr(KernelPCA, "set_params", lambda self, **given: set_params(self, **(given | {"verbose": stop})))
        with pytest.raises(KeyboardInterrupt):
            run(patch, tmp_path / "part", "million")
    capsys.readouterr()
    rest = run(monkeypatch, tmp_path / "part", "million")
    printed = capsys.readouterr().err
    assert "resumed at pass 1" in printed
    assert "directions to start from" not in printed
    assert rest["eigenvalues"] == whole["eigenvalues"]


def test_digits_come_from_the_folder_of_the_user(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, rng: np.random.Generator
) -> None:
    monkeypatch.setenv("GPUKPCA_DATA", str(tmp_path))
    with pytest.raises(SystemExit, match="set GPUKPCA_DATA"):
        run(monkeypatch, tmp_path, "mnist")
    (tmp_path / "mnist").mkdir()
    squares = {name: rng.integers(256, size=(750, 28, 28)).astype(np.uint8) for name in ("x_train", "x_test")}
    np.savez(tmp_path / "mnist" / "mnist.npz", **squares)
    record = run(monkeypatch, tmp_path, "mnist", "--memory-limit", "64MB")
    assert len(record["eigenvalues"]) == 10
    assert record["machine"]["gpukpca"]
