"""`gpukpca info FILE`: what a model file holds, without its arrays; strangers' files too."""

from __future__ import annotations

import copy
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

import gpukpca
from gpukpca import _container
from gpukpca._container import read_container, write_container
from gpukpca.cli import main
from gpukpca.exceptions import ModelFormatError
from gpukpca.persistence.contents import contents_of
from gpukpca.persistence.model_file import KIND
from tests.cli.runs import done, fit, refused, run
from tests.each import each
from tests.model_files import MODELS, fitted, parts, paths, put

MODEL = ("--save", "m.safetensors")


def test_info_prints_what_a_model_file_holds() -> None:
    fit("iris", "--scale", "-n", 3, "--gamma", 0.5, *MODEL)
    printed = [" ".join(line.split()) for line in done("info", "m.safetensors").stdout.splitlines()]
    header, arrays = read_container("m.safetensors", KIND)
    assert printed[0].startswith("file m.safetensors, ")
    assert printed[1] == f"written by gpukpca {gpukpca.__version__}, in format 1"
    assert [line for line in printed if line.startswith("class")] == ["class StandardScaler", "class KernelPCA"]
    for line in (
        "parameter gamma = 0.5",
        "parameter n_components = 3",
        "fact n_features_in_ = 4",
        "fit kernel = RBF(gamma=0.5)",
        "note method = 'kernel'",
        "array steps.1.fit.map.basis: float64, 150 x 4, 4.7 KiB",
    ):
        assert line in printed
    assert sum(line.startswith("array ") for line in printed) == len(arrays)
    assert printed[-1].startswith("digest SHA-256 ")
    assert header["version"] == gpukpca.__version__


def test_info_prints_one_json_object_for_scripts() -> None:
    fit("iris", "--scale", "-n", 3, "--gamma", 0.5, *MODEL)
    found = json.loads(done("info", "m.safetensors", "--json").stdout)
    assert [step["name"] for step in found["steps"]] == ["StandardScaler", "KernelPCA"]
    assert found["steps"][1]["parameters"]["gamma"] == "0.5"
    basis = {"name": "steps.1.fit.map.basis", "dtype": "float64", "shape": [150, 4], "size": 4800}
    assert basis in found["arrays"]
    assert (found["version"], found["file"]) == (gpukpca.__version__, "m.safetensors")
    machine = json.loads(done("info", "--json").stdout)
    assert machine["gpukpca"] == gpukpca.__version__
    assert {"cpu", "cuda", "numpy", "blas"} <= set(machine)


@each("name", MODELS)
def test_the_contents_of_every_model_are_those_of_its_file(name: str) -> None:
    fitted(name)[0].save("m")
    header, arrays = parts(name)
    found = contents_of("m")
    assert [step["name"] for step in found["steps"]] == [step["class"] for step in header["steps"]]
    stored = {one["name"]: (one["dtype"], one["shape"], one["size"]) for one in found["arrays"]}
    assert stored == {key: (str(array.dtype), array.shape, array.nbytes) for key, array in arrays.items()}


def test_no_array_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes of the arrays are damaged, and any call that would read one fails."""
    fit("iris", "-n", 2, *MODEL)
    whole = done("info", "m.safetensors").stdout
    content = bytearray(Path("m.safetensors").read_bytes())
    content[-100:] = bytes(100)
    Path("m.safetensors").write_bytes(content)
    with pytest.raises(ModelFormatError, match="SHA-256"):
        gpukpca.load("m.safetensors")
    opened = _container.safe_open

    class Outline:
        """The reader of a file that gives no array."""

        def __init__(self, *arguments: Any) -> None:
            self.file = opened(*arguments)

        def __enter__(self) -> Outline:
            self.file.__enter__()
            return self

        def __exit__(self, *arguments: Any) -> Any:
            return self.file.__exit__(*arguments)

        def __getattr__(self, name: str) -> Any:
            assert name in ("keys", "metadata", "get_slice")
            return getattr(self.file, name)

    monkeypatch.setattr(_container, "safe_open", Outline)
    assert done("info", "m.safetensors").stdout == whole


def test_other_files_are_named_in_one_line() -> None:
    fit("iris", "-n", 2, *MODEL, "--checkpoint", "c", "--solver", "randomized", "--tol", "1e-9")
    Path("text").write_text("a,b\n1,2\n", encoding="utf-8")
    for file, text in (
        ("none", "does not exist"),
        (".", "is a directory"),
        ("text", "text is no model file of gpukpca"),
        (sorted(Path("c").iterdir())[0], "it is no model of gpukpca"),
    ):
        assert text in refused("info", file)
    header, arrays = read_container("m.safetensors", KIND)
    write_container("n.safetensors", KIND, header | {"format": 2, "version": "9.9"}, arrays)
    assert "was written by gpukpca 9.9 in format 2" in refused("info", "n.safetensors")


def test_hostile_headers_are_printed_as_text_or_refused_in_one_line() -> None:
    fit("iris", "-n", 2, *MODEL)
    header, arrays = read_container("m.safetensors", KIND)
    values: list[Any] = [None, "\x1b]0;x\x07\x9b\u202e", "9" * 10**5, [], {}, {"class": "x"}, {"array": 3}, 2**62]
    values += [{"class": "dict", "items": [1]}, {"class": "list"}, json.loads("[" * 40 + "]" * 40), ["x"] * 10**4]
    for path in [*paths(header), "steps", "steps.0", "steps.0.fit", "steps.0.facts", "notes", "version"]:
        for value in values[len(path) % 6 :: 6]:
            forged = copy.deepcopy(header)
            put(forged, path, value)
            write_container("f", KIND, forged, arrays)
            result = run("info", "f")
            assert result.exit_code in (0, 2), (path, value)
            printed = result.stdout + result.stderr
            assert printed.replace("\n", "").isprintable()
            assert max(map(len, printed.splitlines())) < 1000
            assert result.exit_code == 0 or result.stderr.count("\n") == 1


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device that is full")
@pytest.mark.parametrize("arguments", [["info"], ["info", "m"], ["--help"], ["fit", "--help"], ["plan", "iris"]])
def test_a_full_output_is_one_line(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fitted("rbf, inverse")[0].save("m")
    with open("/dev/full", "w", encoding="utf-8") as full, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", full)
        patch.setattr(sys, "argv", ["gpukpca", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
    assert ended.value.code == 2
    assert capsys.readouterr().err == "error: standard output: No space left on device\n"
