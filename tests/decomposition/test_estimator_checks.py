"""scikit-learn's own estimator checks, but for those of `is_apart`; some once more with SciPy's array-API switch on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.decomposition.estimator_checks import ESTIMATORS, run_checks

ROOT = Path(__file__).resolve().parents[2]
# Every estimator passes more: without a bound a loop over no check would pass.
FEWEST = 40


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)
def test_scikit_learn_estimator_checks(estimator):
    passed = run_checks(estimator)
    assert len(passed) >= FEWEST, passed


def test_checks_of_arrays_and_containers_pass_with_the_array_api_switch_of_scipy():
    pytest.importorskip("array_api_strict")
    ran = subprocess.run(
        [sys.executable, "-m", "tests.decomposition.estimator_checks"],
        env=os.environ | {"SCIPY_ARRAY_API": "1", "OMP_NUM_THREADS": "1"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-6000:] + ran.stderr[-2000:]
    passed = [
        line.split()[0]
        for line in ran.stdout.splitlines()
        if "check_array_api_input(array_namespace=array_api_strict" in line
    ]
    assert set(passed) == {type(estimator).__name__ for estimator in ESTIMATORS}, ran.stdout
