"""Runs of the command line in the process of the tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from click.testing import CliRunner, Result

from gpukpca.cli.app import gpukpca

OUT = ("-o", "s.npz")
FOODS = """,England,Wales,Scotland,N.Ireland
Cheese,105,103,103,66
Carcass_meat ,245,227,242,267
Other_meat ,685,803,750,586
Fish,147,160,122,93
Fats_and_oils ,193,235,184,209
Sugars,156,175,147,139
Fresh_potatoes ,720,874,566,1033
Fresh_Veg ,253,265,171,143
Other_Veg ,488,570,418,355
Processed_potatoes ,198,203,220,187
Processed_Veg ,360,365,337,334
Fresh_fruit ,1102,1137,957,674
Cereals ,1472,1582,1462,1494
Beverages,57,73,53,47
Soft_drinks ,1374,1256,1572,1506
Alcoholic_drinks ,375,475,458,135
Confectionery ,54,64,62,41
"""


def run(*arguments: object) -> Result:
    return CliRunner().invoke(gpukpca, [str(a) for a in arguments])


def done(*arguments: object) -> Result:
    """Run a command that has to succeed."""
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result


def fit(*arguments: object) -> Result:
    return done("fit", *arguments)


def refused(*arguments: object) -> str:
    """Return the one line of a command that has to fail without a trace."""
    before = sorted(Path().iterdir())
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.stderr
    assert sorted(Path().iterdir()) == before
    return result.stderr


def loaded(path: str = "s.npz") -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as archive:
        return dict(archive)


def facts(path: str = "s.npz") -> dict[str, Any]:
    """Return the metadata of a file of scores."""
    return json.loads(str(loaded(path)["metadata"]))


def text(name: str, content: str | bytes) -> str:
    Path(name).write_bytes(content.encode() if isinstance(content, str) else content)
    return name
