"""Strings of strangers: none acts on the terminal, runs in a spreadsheet, or ends the program with a traceback."""

from __future__ import annotations

import ast
import csv
import random
import warnings
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpukpca import PCA, save
from gpukpca._container import read_container, write_container
from gpukpca._formatting import printable
from gpukpca.checkpoint import differing_field
from gpukpca.cli import inputs
from gpukpca.cli.inputs import read_input
from gpukpca.cli.text import quoted, unquoted
from gpukpca.exceptions import ModelFormatError
from gpukpca.persistence.model_file import KIND
from tests.cli.runs import fit, run, text
from tests.each import each
from tests.model_files import DIVERSE, changed, parts, paths, put

# A title for the window, a bell, a color by C1, an override of direction, a new line, half a pair.
EVIL = "\x1b]0;title\x07\x9b31m\u202e\u2066\x7f\b\r\n\u2028"


# -- the terminal ------------------------------------------------------------------------------------------------------


def test_what_is_seen_stays_and_what_is_not_is_an_escape() -> None:
    for plain in ("", "naïve é ü 数 α² ‖x‖ «»\xa0", "\\x1b"):
        assert printable(plain) == plain
    assert printable("a\x1b[31m\x07\n") == "a\\x1b[31m\\x07\\n"
    assert printable("a\nb\x9b\u202e\ud800", keep="\n") == "a\nb\\x9b\\u202e\\ud800"


def table(name: str, *header: str) -> str:
    """Write a text file of numbers below a header."""
    lines = [
        ",".join(f'"{cell}"' for cell in header),
        *(",".join([str(i * j % 7) for j in range(1, 4)]) for i in range(9)),
    ]
    return text(name, "\n".join(lines) + "\n")


def model_with(**notes: Any) -> None:
    """Save a model in m.safetensors with notes of the command line."""
    X = np.random.default_rng(0).standard_normal((9, 3))
    save(PCA(2).fit(X), "m.safetensors", {"method": "pca", **notes})


def forged_version() -> None:
    """Save a model of a later format with a hostile version."""
    model_with()
    header, arrays = read_container("m.safetensors", KIND)
    write_container("m.safetensors", KIND, header | {"format": 99, "version": "\x1b]0;x\x07\x9b\u202e"}, arrays)


PLACES = {
    "name of the input": lambda: run("fit", table(f"{EVIL}.csv", "a", "b", "c"), "-n", 2, "-o", "s.npz"),
    "name of no input": lambda: run("fit", f"{EVIL}.csv", "-o", "s.npz"),
    "name of the output": lambda: run("fit", table("x.csv", "a", "b", "c"), "-n", 2, "-o", f"{EVIL}.csv"),
    "name of the model": lambda: run("transform", f"{EVIL}.npz", table("x.csv", "a", "b", "c"), "-o", "s.npz"),
    "suffix": lambda: run("fit", text(f"x.{EVIL}", "1,2\n"), "-o", "s.npz"),
    "traceback": lambda: run("fit", f"{EVIL}.csv", "-o", "s.npz", "--debug"),
    "header": lambda: run("fit", table("x.csv", f"a{EVIL}", "b", "c"), "-o", "s.npz", "--label-column", "no"),
    "header of text": lambda: run("fit", text("x.csv", f'"a{EVIL}",b\n1,2\nx,3\n'), "-o", "s.npz"),
    "cell": lambda: run("fit", text("x.csv", f'a,b\n1,2\n"{EVIL}",3\n'), "-o", "s.npz"),
    "key of an archive": lambda: (
        np.savez("x.npz", **{f"a{EVIL}": np.eye(3), "b": np.eye(3)}),
        run("fit", "x.npz", "-o", "s.npz"),
    )[1],
    "only key of an archive": lambda: (
        np.savez("x.npz", **{f"a{EVIL}": np.random.default_rng(0).random((9, 3))}),
        run("fit", "x.npz", "-n", 2, "-o", "s.npz"),
    )[1],
    "names of a model": lambda: (
        model_with(feature_names=(f"a{EVIL}", "b", "c")),
        run("transform", "m.safetensors", table("x.csv", "a", "b", "c"), "-o", "s.npz"),
    )[1],
    "too many names of a model": lambda: (
        model_with(feature_names=("a", "b", "c", f"d{EVIL}")),
        run("transform", "m.safetensors", table("x.csv", "a", "b", "c"), "-o", "s.npz"),
    )[1],
    "version of a model": lambda: (
        forged_version(),
        run("transform", "m.safetensors", table("x.csv", "a", "b", "c"), "-o", "s.npz"),
    )[1],
    "option": lambda: run("fit", "iris", f"--{EVIL}", "-o", "s.npz"),
    "command": lambda: run(EVIL),
}


@each("place", PLACES)
def test_control_characters_never_reach_the_terminal(place: str) -> None:
    result = PLACES[place]()
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.output
    for line in result.output.split("\n"):
        assert printable(line) == line
    if place != "traceback":
        assert "Traceback" not in result.output


def test_the_command_line_prints_in_one_place_only() -> None:
    """Other calls would print strings of files as they are."""
    homes = {"failures.py": {"echo"}, "report.py": {"print"}}
    for path in Path(inputs.__file__).parent.glob("*.py"):
        calls = [node.func for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Call)]
        names = {call.attr for call in calls if isinstance(call, ast.Attribute)}
        names |= {call.id for call in calls if isinstance(call, ast.Name)}
        assert {"echo", "secho", "print", "print_exc"} & names <= homes.get(path.name, set()), path.name


@each("name", DIVERSE)
@pytest.mark.filterwarnings("ignore")
def test_errors_of_models_quote_no_control_character(name: str) -> None:
    """Anywhere in the header: in the message, and in those of its causes."""
    for key in paths(parts(name)[0]):
        try:
            model = changed(name, lambda header, arrays, key=key: put(header, key, f"a{EVIL}"))
        except ModelFormatError as error:
            cause: BaseException | None = error
            while cause is not None:
                assert printable(str(cause), keep="\n") == str(cause), key
                cause = cause.__cause__
        else:
            plan = str(getattr(model, "plan_", ""))
            assert printable(plan, keep="\n") == plan, key


def test_fields_of_another_fit_are_quoted_without_control_characters() -> None:
    found = differing_field({"shape": f"3 x 3{EVIL}"}, {"shape": "3 x 4"})
    assert found.startswith("shape was 3 x 3")
    assert printable(found) == found


# -- spreadsheets ------------------------------------------------------------------------------------------------------

FORMULAS = ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "'=1", "''@x", "=HYPERLINK(0)"]
HARMLESS = ["a", "", "-5", "+1.5e3", "3 = 4", "'", "'quoted'", "x-y", "é", "'tis"]


@each("name", FORMULAS + HARMLESS)
def test_names_are_quoted_where_a_spreadsheet_would_run_them(name: str) -> None:
    assert quoted(name) == (f"'{name}" if name in FORMULAS else name)
    assert unquoted(quoted(name)) == name


def test_formulas_in_a_table_are_text_in_the_scores_and_names_again_when_read() -> None:
    names = [name for name in FORMULAS + HARMLESS if name == name.strip() and name]
    lines = [f'"{quoted(name)}",{i},{i * i % 5}' for i, name in enumerate(names)]
    text("x.csv", "\n".join(["=name,=a,b", *lines]))
    fit("x.csv", "-n", 1, "--kernel", "linear", "--index-column", 0, "-o", "s.csv")
    with open("s.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    for row in rows:
        for cell in row:
            assert cell[:1] not in ("=", "@", "\t", "\r")
            assert cell[:1] not in ("+", "-") or np.isfinite(float(cell))
    assert read_input("s.csv", index_column="sample").sample_names == tuple(names)


def test_names_of_features_are_quoted_in_the_header_and_known_again() -> None:
    rng = np.random.default_rng(0)
    lines = [",".join(map(str, row)) for row in rng.standard_normal((20, 3)).round(3)]
    text("x.csv", "\n".join(["=a,@b,c", *lines]))
    fit("x.csv", "--method", "pca", "-n", 2, "--save", "m.safetensors", "-o", "s.npz")
    result = run("denoise", "m.safetensors", "x.csv", "-o", "clean.csv")
    assert result.exit_code == 0, result.output
    assert Path("clean.csv").read_text(encoding="utf-8").startswith("'=a,'@b,c\n")
    assert run("transform", "m.safetensors", "clean.csv", "-o", "t.npz").exit_code == 0


# -- damaged headers of NumPy files ------------------------------------------------------------------------------------

HEADERS = {
    "a bracket that is open": b"{'descr': '<f8', 'fortran_order': False, 'shape': (3, 3",
    "a quote that is open": b"{'descr': '<f8, 'fortran_order': False, 'shape': (3, 3), }",
    "indented": b"  {'descr': '<f8'\n 1\n   2",
    "no dictionary": b"[1, 2]",
    "no dtype": b"{'descr': 'none', 'fortran_order': False, 'shape': (3, 3), }",
    "a dtype of numbers": b"{'descr': 7, 'fortran_order': False, 'shape': (3, 3), }",
    "a shape of text": b"{'descr': '<f8', 'fortran_order': False, 'shape': ('a', 3), }",
    "a negative shape": b"{'descr': '<f8', 'fortran_order': False, 'shape': (-1, 3), }",
    "a huge shape": b"{'descr': '<f8', 'fortran_order': False, 'shape': (9223372036854775807, 9), }",
    "deep": b"(" * 3000 + b")" * 3000,
    "unhashable": b"{[]: 1}",
    "zeros": b"\0" * 80,
    "long": b"{'descr': '" + b"a" * 9000 + b"'}",
}


def npy(header: bytes) -> bytes:
    header += b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(72)


def write_archive_of(content: bytes, name: str = "x.npy") -> None:
    with zipfile.ZipFile("x.npz", "w") as archive:
        archive.writestr(name, content)


@each("suffix", ["npy", "npz"])
@each("case", HEADERS)
def test_a_damaged_header_is_one_line(case: str, suffix: str) -> None:
    Path("x.npy").write_bytes(npy(HEADERS[case]))
    write_archive_of(npy(HEADERS[case]))
    result = run("fit", f"x.{suffix}", "-o", "s.npz")
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("error: x.")
    assert result.stderr.count("\n") == 1
    assert len(result.stderr) < 500
    assert not Path("s.npz").exists()


def failure(path: str) -> str:
    """Return why a file cannot be read; nothing where it can."""
    try:
        read_input(path)
    except ValueError as error:
        return str(error)
    return ""


def test_any_damage_to_a_header_is_an_error_that_names_the_file() -> None:
    np.save("whole.npy", np.eye(3))
    whole, chance = Path("whole.npy").read_bytes(), random.Random(0)
    reason = ""
    for _ in range(500):
        content = bytearray(whole)
        for _ in range(chance.randint(1, 4)):
            content[chance.randrange(6, 128)] = chance.choice(b"'\"(){}[],:\n\0 \\\xff0919LOUb<>" + bytes(range(256)))
        Path("x.npy").write_bytes(content)
        with warnings.catch_warnings(), suppress(OSError, MemoryError):
            warnings.simplefilter("ignore")
            reason = failure("x.npy")
        assert reason == "" or reason.startswith("x.npy")
