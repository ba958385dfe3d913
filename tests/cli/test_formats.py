"""Files of other programs: parquet, packed text, sparse matrices, sets read by slices, and the standard input."""

from __future__ import annotations

import gzip
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars
import pytest
import scipy.io
import scipy.sparse
from click.testing import CliRunner

from gpukpca.cli.app import gpukpca
from gpukpca.cli.inputs import ARRAY, CONVERSIONS, read_input
from tests.cli.runs import done, facts, fit, loaded, refused, run
from tests.cli.runs import text as write
from tests.each import each

TABLE = "who;a,b,kind\nAda,1,2.5,red\nBob,3,-4,blue\nCyd,5,6,red\n".replace(";", ",")
HOW = {"index_column": "who", "label_column": "kind"}


def zstd(text: str) -> bytes:
    """Return text in one raw block of a frame of zstd (RFC 8878), without a checksum."""
    content = text.encode()
    head = bytes.fromhex("28b52ffd") + bytes([0b10100000]) + len(content).to_bytes(4, "little")
    return head + ((len(content) << 3) | 1).to_bytes(3, "little") + content


def through_stdin(content: bytes, *arguments: object) -> Any:
    """Run a command with bytes on its standard input."""
    return CliRunner().invoke(gpukpca, [str(one) for one in arguments], input=content)


def same(read: Any, expected: Any) -> None:
    np.testing.assert_array_equal(read.X, expected.X)
    assert (read.sample_names, read.feature_names) == (expected.sample_names, expected.feature_names)
    assert read.labels.tolist() == expected.labels.tolist()


def test_packed_text_and_parquet_are_the_table_that_the_text_is():
    expected = read_input(write("t.csv", TABLE), **HOW)
    polars.read_csv("t.csv").write_parquet("t.parquet")
    for name, content in (("t.csv.gz", gzip.compress(TABLE.encode())), ("T.CSV.ZST", zstd(TABLE))):
        same(read_input(write(name, content), **HOW), expected)
    same(read_input("t.parquet", **HOW), expected)
    same(read_input("t.parquet", index_column="0", label_column="-1", columns="1,2"), expected)
    # Lines keep their numbers, and white space and quotes their meaning.
    odd = '# x y\n\n1 2\n "3" x\n'
    write("o.txt.gz", gzip.compress(odd.encode()))
    with pytest.raises(ValueError, match=r"line 4, column 2 \(y\): 'x' is not a number"):
        read_input("o.txt.gz")
    fit("t.csv.gz", "--index-column", "who", "--label-column", "kind", "-n", 1, "-o", "s.npz", "--plot", "p.png")
    assert facts()["input"] == "t.csv.gz, header: line 1; rows: 3; features: 2 (a … b); labels: kind; names: who"


def test_parquet_has_missing_cells_and_columns_of_many_types():
    frame = polars.DataFrame({"a": [1, None], "b": [True, False], "f": [1.5, 2.5], "when": ["x", "y"]})
    frame.write_parquet("x.parquet")
    read = read_input("x.parquet", drop="when", missing=True)
    np.testing.assert_array_equal(read.X, [[1, 1, 1.5], [np.nan, 0, 2.5]])
    assert "row 1, column a: '' is a missing value. Give --rows complete" in refused(
        "fit", "x.parquet", "--drop", "when", "-o", "s.npz"
    )
    assert "row 0, column when: 'x' is not a number" in refused("fit", "x.parquet", "-o", "s.npz")
    frame.select(polars.col("f").cast(polars.Float32)).write_parquet("f.parquet")
    assert read_input("f.parquet").X.dtype == np.float32
    frame.head(0).write_parquet("empty.parquet")
    assert "no rows" in refused("fit", "empty.parquet", "--columns", "f", "-o", "s.npz")


def test_sparse_matrices_of_scipy_stay_sparse(rng: np.random.Generator):
    X = scipy.sparse.random_array((60, 8), density=0.3, rng=rng, format="csr")
    scipy.sparse.save_npz("x.npz", X)
    np.save("x.npy", X.toarray())
    scores, picture = [], ("--image-shape", "2x4", "--plot=p.png")
    for name in ("x.npz", "x.npy"):
        for options in ((), ("--method", "ppca"), ("--transpose",), ("--drop", "0,5"), ("--method", "pca")):
            fit(name, *options, "-n", 2, "-o", "s.npz", "--force", "--save", "m.safetensors")
            scores.append(np.abs(loaded()["scores"]))
        done("transform", "m.safetensors", name, "-o", "t.npz", "--force")
        drawn = picture if name == "x.npz" else ()
        done("denoise", "m.safetensors", name, "-o", "d.npz", "--force", *drawn)
        scores += [np.abs(loaded("t.npz")["scores"]), loaded("d.npz")["denoised"]]
    assert len(scores) == 14
    for sparse, dense in zip(scores[:7], scores[7:], strict=True):
        np.testing.assert_allclose(sparse, dense, atol=1e-9)
    assert Path("p.png").exists()
    fit("x.npz", "--method", "pca", *picture, "--force")
    for form in ("coo", "csc"):
        scipy.sparse.save_npz("x.npz", X.asformat(form))
        fit("x.npz", "-n", 2, "-o", "s.npz", "--force")
        np.testing.assert_allclose(np.abs(loaded()["scores"]), scores[0], atol=1e-9)
    assert "--scale centers columns, which fills a sparse matrix" in refused("fit", "x.npz", "--scale", "-o", "u.npz")
    assert "--label-column does not apply to x.npz" in refused("fit", "x.npz", "--label-column", "y", "-o", "u.npz")


class Part:
    """A set as zarr and h5py have it: shape, dtype, and slices of rows."""

    def __init__(self, values: np.ndarray, asked: list[Any]) -> None:
        self.values, self.asked = values, asked
        self.shape, self.dtype, self.size, self.ndim = values.shape, values.dtype, values.size, values.ndim

    def __getitem__(self, rows: Any) -> np.ndarray:
        self.asked.append(rows)
        return self.values[rows]


@pytest.fixture
def asked(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Imitate zarr and h5py, and return the slices that are read."""
    read: list[Any] = []
    X, names = rng.standard_normal((9000, 3)), np.array([b"a"] * 9000, dtype=object)
    np.save("x.npy", X)
    sets = {"X": Part(X, read), "y": Part(np.arange(9000) % 4, read), "who": Part(names, read)}
    sets |= {"group": SimpleNamespace(), "group/Z": Part(X[:50], read)}
    monkeypatch.setitem(sys.modules, "h5py", SimpleNamespace(File=lambda path, mode: sets))
    monkeypatch.setitem(sys.modules, "zarr", SimpleNamespace(open=lambda path, mode: sets["X"]))
    Path("x.zarr").mkdir()
    write("x.zarr/zarr.json", "{}")
    write("x.h5", b"\x89HDF")
    return read


def test_sets_of_zarr_and_hdf5_are_read_by_slices(asked: list[Any]):
    fit("x.npy", "--method", "pca", "-n", 2, "-o", "a.npz", "--save", "m.safetensors")
    for name in ("x.h5", "x.zarr"):
        fit(name, "--method", "pca", "-n", 2, "-o", "b.npz", "--force")
        np.testing.assert_allclose(np.abs(loaded("b.npz")["scores"]), np.abs(loaded("a.npz")["scores"]), atol=1e-9)
        done("transform", "m.safetensors", name, "-o", "t.npz", "--force")
        np.testing.assert_allclose(loaded("t.npz")["scores"], loaded("a.npz")["scores"], atol=1e-9)
    assert asked
    assert slice(None) not in asked
    read = read_input("x.h5", label_column="y", index_column="who", dtype="float32")
    assert (read.X.dtype, read.sample_names[:2], read.labels[:5].tolist()) == (np.float32, ("a", "a"), [0, 1, 2, 3, 0])
    fit("x.h5", "--key", "group/Z", "--scale", "--drop", 0, "-n", 2, "-o", "b.npz", "--force")
    assert loaded("b.npz")["scores"].shape == (50, 2)
    for key in ("group", "none"):
        assert f"has no array {key!r}; it has X (9000, 3)" in refused("fit", "x.h5", "--key", key, "-o", "c.npz")


def test_rows_of_a_set_without_any_value_are_named(asked: list[Any], monkeypatch: pytest.MonkeyPatch):
    original = Part.__getitem__

    def empty(part: Part, rows: Any) -> Any:
        return np.where((np.arange(*rows.indices(9000)) == 5000)[:, None], np.nan, original(part, rows))

    monkeypatch.setattr(Part, "__getitem__", empty)
    result = fit("x.zarr", "--method", "ppca", "-n", 1, "-o", "s.npz")
    assert result.stderr.startswith("warning: rows 5000 of x.zarr hold no value: no fit counts them")
    assert result.stderr.count("\n") == 1
    assert loaded()["scores"][5000] == 0


NYSTROM = ["--solver", "nystrom", "--rank", 20]


class Panic(BaseException):
    """An error of Rust, as pyo3 raises it."""


@each("kind", [RuntimeError, OSError, KeyError, Panic])
def test_a_damaged_set_is_one_line_whenever_it_is_read(
    kind: type[BaseException], asked: list[Any], monkeypatch: pytest.MonkeyPatch
):
    fit("x.npy", "--method", "pca", "-n", 2, "-o", "a.npz", "--save", "m.safetensors", "--force")
    original = Part.__getitem__

    def damaged(part: Part, rows: Any) -> Any:
        if rows.indices(9000)[1] > 8000:
            raise kind("a damaged\nchunk")
        return original(part, rows)

    monkeypatch.setattr(Part, "__getitem__", damaged)
    for name in ("x.h5", "x.zarr"):
        for options in (["--method", "pca"], NYSTROM, ["--scale"], ["--dtype", "float32"]):
            line = refused("fit", name, *options, "-n", 2, "-o", "b.npz")
            assert re.search(r"rows \d+ to \d+ of .* cannot be read, it is damaged or closed: .*chunk", line)
        for command in ("transform", "denoise"):
            assert "cannot be read, it is damaged" in refused(command, "m.safetensors", name, "-o", "b.npz")
    Path("a.npz").unlink()
    Path("m.safetensors").unlink()


def test_a_damaged_parquet_file_is_one_line(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch):
    polars.DataFrame({name: rng.standard_normal(900) for name in "abc"}).write_parquet("x.parquet")
    content, lines = Path("x.parquet").read_bytes(), 0
    for place in range(4, len(content) - 20, 2000):
        write("y.parquet", content[:place] + b"x" * 20 + content[place + 20 :])
        result = run("fit", "y.parquet", "-n", 2, "-o", "s.npz", "--force")
        lines += result.exit_code == 2
        assert result.exit_code == 0 or (result.exit_code == 2 and result.stderr.count("\n") == 1)
    assert lines

    def panic(*_: Any, **_more: Any) -> None:
        raise Panic("index out of bounds")

    for reader in ("read_parquet_schema", "read_parquet"):
        with monkeypatch.context() as patch:
            patch.setattr(polars, reader, panic)
            message = refused("fit", "x.parquet", "-o", "t.npz")
        assert "x.parquet cannot be read as parquet, it is damaged: index out of bounds" in message


def test_real_sets_of_hdf5_and_zarr_are_read(rng: np.random.Generator):
    h5py, zarr = pytest.importorskip("h5py"), pytest.importorskip("zarr")
    X = rng.standard_normal((40, 3))
    with h5py.File("x.h5", "w") as file:
        file["X"], file["y"], file["g/Z"] = X, np.arange(40) % 3, X[:, :2]
        file["who"] = [f"n{i}" for i in range(40)]
    group = zarr.open_group("x.zarr", mode="w")
    group["X"] = X
    for name in ("x.h5", "x.zarr"):
        np.testing.assert_array_equal(read_input(name).X[:], X)
    read = read_input("x.h5", key="g/Z", label_column="y", index_column="who")
    assert (read.X.shape, read.sample_names[3], read.labels[4]) == ((40, 2), "n3", 1)
    write("bad.h5", "x")
    assert "bad.h5 cannot be read as h5py" in refused("fit", "bad.h5", "-o", "s.npz")


def test_the_standard_input_is_read_in_every_command():
    X = np.arange(12.0).reshape(6, 2) ** 2
    np.save("x.npy", X)
    np.savez("x.npz", X=X)
    scipy.sparse.save_npz("sparse.npz", scipy.sparse.csr_array(X))
    polars.DataFrame(X, schema=["a", "b"]).write_parquet("x.parquet")
    text = "a,b\n" + "".join(f"{a},{b}\n" for a, b in X.tolist())
    write("x.csv", text)
    write("x.csv.gz", gzip.compress(text.encode()))
    write("x.csv.zst", zstd(text))
    fit("x.csv", "-n", 1, "--save", "m.safetensors", "-o", "a.npy", "--preimage", "ridge")
    for name in ("x.npy", "x.npz", "sparse.npz", "x.parquet", "x.csv", "x.csv.gz", "x.csv.zst"):
        content = Path(name).read_bytes()
        for command in (("fit", "-", "-n", 1), ("transform", "m.safetensors", "-"), ("denoise", "m.safetensors", "-")):
            result = through_stdin(content, *command, "-o", "b.npy", "--force")
            assert result.exit_code == 0, (name, command, result.output)
            if command[0] != "denoise":
                np.testing.assert_allclose(np.abs(np.load("b.npy")), np.abs(np.load("a.npy")), atol=1e-9)
        assert "6 x 2" in through_stdin(content, "plan", "-", "-n", 1).stdout
        assert "standard input" in result.stdout
        assert "; rows: 6; features: 2" in result.stdout
    assert "standard input, line 2, column 1: 'x' is" in through_stdin(b"1,2\nx,3\n", "plan", "-").stderr
    assert "standard input holds no rows" in through_stdin(b"", "plan", "-").stderr


def test_files_that_are_refused_say_how_to_convert_them():
    for suffix, advice in {**CONVERSIONS, ".pkl": ARRAY}.items():
        message = refused("fit", write(f"x{suffix}", "content"), "-o", "s.npz")
        assert f"files ending in {suffix} cannot be read. {advice.format(f'x{suffix}')}. Give .csv, .tsv" in message
    table = polars.DataFrame({"a": [1.0, 2.0, 4.0], "b": [2.0, 1.0, 0.0]})
    table.write_ipc("x.feather")
    scipy.io.savemat("x.mat", {"X": table.to_numpy()})
    scipy.io.mmwrite("x.mtx", scipy.sparse.csr_array(table.to_numpy()))
    for suffix, written in (
        (".feather", "parquet"),
        (".mat", "npy"),
        (".mtx", "npz"),
    ):
        exec(
            CONVERSIONS[suffix].format(f"x{suffix}").partition(" converts")[0],
            {"polars": polars, "numpy": np, "scipy": scipy},
        )
        np.testing.assert_array_equal(read_input(f"x.{written}").dense(), table.to_numpy())
    Path("folder").mkdir()
    assert "folder is a directory, and none of zarr" in refused("fit", "folder", "-o", "s.npz")
    for name, content, expected in (
        ("x.parquet", b"PAR1", "x.parquet cannot be read as parquet, it is damaged"),
        ("x.csv.gz", gzip.compress(TABLE.encode())[:-12], "x.csv.gz cannot be unpacked"),
        ("x.csv.zst", zstd(TABLE)[:-5], "x.csv.zst cannot be unpacked"),
    ):
        assert expected in refused("fit", write(name, content), "-o", "s.npz")


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch):
    for name in ("h5py", "zarr"):
        monkeypatch.setitem(sys.modules, name, None)
    Path("x.zarr").mkdir()
    write("x.zarr/.zgroup", "{}")
    for name, package in ((write("x.h5", "x"), "h5py"), ("x.zarr", "zarr")):
        assert f"{name} is read by {package}, which is not installed: pip install {package}" in refused(
            "fit", name, "-o", "s.npz"
        )
