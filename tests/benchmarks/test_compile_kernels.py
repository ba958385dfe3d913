"""`ci/compile_kernels.py` without CuPy and NVRTC, and the listing that it reads."""

from __future__ import annotations

import importlib.util
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from tests.kernel_listing import PREFIX, find_unlisted, list_kernels

SCRIPT = Path(__file__).resolve().parents[2] / "ci" / "compile_kernels.py"
# As NVRTC 12.9 reports two functions, the second with spilled registers and an array in local memory.
LOG = """ptxas info    : 13 bytes gmem
ptxas info    : Compiling entry function 'gpukpca_gaussian' for 'sm_90'
ptxas info    : Function properties for gpukpca_gaussian
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 25 registers, used 0 barriers
ptxas info    : Compile time = 6.131 ms
ptxas info    : Compiling entry function '_Z7unlucky' for 'sm_90'
ptxas info    : Function properties for _Z7unlucky
ptxas         .     {stack} bytes stack frame, {stores} bytes spill stores, {loads} bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 816 bytes cumulative stack size, 4096 bytes smem
ptxas info    : Compile time = 12.070 ms
"""


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module; `gpukpca` and CuPy are imported by its functions alone."""
    if not SCRIPT.exists():
        pytest.skip("the scripts are not part of this distribution")
    spec = importlib.util.spec_from_file_location("compile_kernels", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)  # dataclasses look there
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("stack", "stores", "loads"), [(800, 0, 0), (0, 8, 0), (0, 0, 16), (0, 0, 0)])
def test_local_memory_of_any_kind_is_a_fault(
    script: Any, stack: int, stores: int, loads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = script.usage(LOG.format(stack=stack, stores=stores, loads=loads))
    assert found["gpukpca_gaussian"] == script.Usage(25, 0)
    assert found["_Z7unlucky"] == script.Usage(255, max(stack, stores, loads))
    compiler = types.SimpleNamespace(CompileException=RuntimeError)
    monkeypatch.setitem(sys.modules, "cupy.cuda.compiler", compiler)
    monkeypatch.setattr(script, "compile_unit", lambda unit, architecture: found)
    results = [script.resources("label", script.Unit(name, ""), "90") for name in found]
    assert results[0] == found["gpukpca_gaussian"]
    assert isinstance(results[1], str) is (stack + stores + loads > 0)


def test_a_kernel_that_does_not_compile_is_a_fault(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise RuntimeError("error: identifier is undefined")

    compiler = types.SimpleNamespace(CompileException=RuntimeError)
    monkeypatch.setitem(sys.modules, "cupy.cuda.compiler", compiler)
    monkeypatch.setattr(script, "compile_unit", fails)
    assert "identifier is undefined" in script.resources("label", script.Unit("name", ""), "90")


def test_functions_of_a_module_are_found_without_a_device(script: Any) -> None:
    names = ("gpukpca_f<float>", "gpukpca_f<double>")
    module = script.RawModule(code="text", options=("-O3",), name_expressions=list(names))
    assert module.get_function(names[1]) == script.Unit(names[1], "text", ("-O3",), names)


def test_every_listed_kernel_can_be_made(cuda: Any) -> None:
    kernels = list_kernels()
    assert {"gpukpca_probe", "gpukpca_gaussian", "gpukpca_cityblock_float32"} <= set(kernels)
    for name, (module, listing) in kernels.items():
        assert name.startswith(PREFIX)
        kernel = module._kernel(name)
        assert kernel.name == name
        if isinstance(listing, str):
            assert f" {name}(" in listing
            continue
        arrays = {p.name for p in kernel.params if p.raw} | {kernel.in_params[0].name, kernel.out_params[0].name}
        assert [set(types) for types in listing] == [arrays] * len(listing)


def test_no_two_modules_list_kernels_of_one_name() -> None:
    modules = {module.__name__: module for module, _ in list_kernels().values()}
    assert sum(len(module.KERNELS) for module in modules.values()) == len(list_kernels())


def test_all_listed_kernels_are_compiled(script: Any, cuda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "RawModule", None, raising=False)
    monkeypatch.setattr(script, "elementwise_units", lambda kernel, types: [(kernel.name, types)])
    made = dict(script.units())
    assert list(made) == list(list_kernels())
    assert made["gpukpca_probe"] == list_kernels()["gpukpca_probe"][1]


def test_a_kernel_that_is_not_listed_is_noticed() -> None:
    launched = ["gpukpca_new", "gpukpca_gaussian", "cupy_copy__float64_float64", "gpukpca_new"]
    assert find_unlisted(launched) == ["gpukpca_new"]
