"""Names and parameters that left work for one minor version, and say what replaces them."""

from __future__ import annotations

import re
import warnings
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path

import pytest
from sklearn.base import clone

from gpukpca import KernelPCACV
from gpukpca._former import FORMER
from gpukpca.algorithms import KernelPCASettings, PCASettings
from gpukpca.eigen import BlockKrylov

NAMES = [(f"gpukpca.{room}", name) for room, names in FORMER.items() for name in names]


def test_a_name_that_left_gives_its_object_and_one_warning_at_the_line_of_the_user():
    for room, name in NAMES:
        module, remedy = import_module(room), FORMER[room.removeprefix("gpukpca.")][name][1]
        assert name not in {*module.__all__, *dir(module)}
        for ask in (f"found = module.{name}", f"from {room} import {name} as found"):
            scope = {"module": module, "__name__": "user"}
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                exec(compile(f"\n\n{ask}", "script of the user", "exec"), scope)
            (warning,) = caught
            assert warning.category is FutureWarning
            text = f"{room}.{name} will be removed in the next minor version: {remedy}."
            assert (str(warning.message), warning.filename, warning.lineno) == (text, "script of the user", 3)
            assert scope["found"].__module__.startswith("gpukpca.")
            assert scope["found"].__name__.lstrip("_") in (name, "Residuals")
        with pytest.raises(AttributeError, match=f"module '{room}' has no attribute '{name}s'"):
            getattr(module, f"{name}s")


def test_the_page_of_deprecations_names_what_left():
    page = (Path(__file__).parents[1] / "docs" / "development" / "deprecation.md").read_text(encoding="utf-8")
    assert not [name for _, name in NAMES if not re.search(rf"\| .*\b{name}\b.* \|", page)]


def test_a_parameter_that_was_renamed_works_by_its_former_name():
    search, solver = KernelPCACV(solver="dense"), BlockKrylov(block_size=3)
    for old, (call, read) in {
        "eigen_solver": (partial(KernelPCACV, n_components=[2]), lambda made: made.solver),
        "eigen_solver of the settings": (KernelPCASettings, lambda made: made.solver),
        "svd_solver of the settings": (PCASettings, lambda made: made.solver),
        "eigen_solver, set": (search.set_params, lambda made: made.get_params()["solver"]),
    }.items():
        name, value = old.split()[0].rstrip(","), "randomized"
        with pytest.warns(FutureWarning, match=f"the parameter {name} is called solver now") as caught:
            made = call(**{name: value})
        assert caught[0].filename == __file__
        assert read(made) == value
    search.set_params(solver=solver)
    with pytest.warns(FutureWarning, match="the parameter eigen_solver is called solver now"):
        search.set_params(eigen_solver__block_size=5)
    assert search.solver.block_size == 5
    assert "eigen_solver" not in search.get_params()
    assert clone(search).solver == search.solver
    for both in (
        lambda: KernelPCACV(solver="dense", eigen_solver="dense"),
        lambda: search.set_params(solver__block_size=3, eigen_solver__block_size=4),
        lambda: replace(KernelPCASettings(), eigen_solver="dense"),
    ):
        with pytest.raises(TypeError, match="eigen_solver and solver are one parameter, and both are given"):
            both()


@pytest.mark.filterwarnings("ignore:the parameter:FutureWarning")
def test_a_parameter_that_was_renamed_is_an_attribute_and_in_older_pickles():
    search = KernelPCACV()
    search.set_params(eigen_solver=BlockKrylov(), eigen_solver__block_size=4)
    assert search.eigen_solver is search.solver
    assert search.solver.block_size == 4
    search.eigen_solver = "dense"
    assert clone(search).solver == "dense"
    for made, old in ((search, "eigen_solver"), (KernelPCASettings(), "eigen_solver"), (PCASettings(), "svd_solver")):
        # As a version before the new name pickled it.
        state = {old if name == "solver" else name: value for name, value in made.__getstate__().items()}
        again = type(made).__new__(type(made))
        again.__setstate__(state | {old: "randomized"})
        assert again.solver == "randomized"

    class Own(KernelPCACV):
        def __init__(self, eigen_solver="auto"):
            super().__init__(solver=eigen_solver)

    assert Own().set_params(eigen_solver="dense").solver == "dense"


def test_an_option_that_was_renamed_works_by_its_former_name(tmp_path, monkeypatch):
    testing = pytest.importorskip("click.testing")
    from gpukpca.cli.app import gpukpca

    monkeypatch.chdir(tmp_path)
    for options in ("--eigen-solver randomized", "--method pca --svd-solver=randomized"):
        name = options.replace("=", " ").split()[-2]
        run = testing.CliRunner().invoke(gpukpca, ["plan", "iris", *options.split()])
        assert (run.exit_code, run.stderr) == (0, f"warning: {name} is called --solver now.\n")
        assert "block Krylov" in run.output
    run = testing.CliRunner().invoke(gpukpca, ["plan", "iris", "--svd-solver", "dense", "--solver=dense"])
    assert (run.exit_code, "--svd-solver and --solver are one option" in run.stderr) == (2, True)
