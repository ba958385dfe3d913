"""Names and parameters that left work for one minor version, and say what replaces them."""

from __future__ import annotations

import warnings
from importlib import import_module

import pytest

from gpukpca._former import FORMER

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
