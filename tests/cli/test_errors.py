"""Wrong use of the command line: one line on the standard error, exit code 2, and no file touched."""

from __future__ import annotations

import os
import re
import sys
import warnings
from pathlib import Path

import click
import numpy as np
import pytest

from gpukpca._extras import pip_install
from gpukpca.cli import commands
from gpukpca.cli.failures import failures_in_one_line, message_of, warnings_in_one_line
from gpukpca.exceptions import CheckpointWarning, InvalidParameterError
from tests.cli.runs import OUT, fit, refused, run, text
from tests.each import each

PCA, PICTURE = ("-m", "pca"), ("--plot", "p.png")
BAD = [
    ("missing file", ["none.csv", *OUT], "none.csv: no such file"),
    ("missing file and --header", ["none.csv", "--header", *OUT], "none.csv: no such file"),
    ("near a bundled name", ["irsi", *OUT], "Did you mean 'iris'?"),
    ("directory", ["folder", *OUT], "folder is a directory"),
    ("pipe", ["pipe.csv", *OUT], "pipe.csv is a pipe or a device"),
    ("infinity", ["inf.npy", "-m", "pca", *OUT], "row 1, column 0. Every entry must be a finite number"),
    ("empty file", ["empty.csv", *OUT], "empty.csv holds no rows"),
    ("blank file", ["blank.csv", *OUT], "blank.csv holds no rows"),
    ("header only", ["header.csv", *OUT], "has a header and no rows"),
    ("header of an array", ["large.npy", "--header", *OUT], "--header does not apply to large.npy, which is"),
    ("header of a set", ["iris", "--no-header", *OUT], "--no-header does not apply to iris, which is"),
    ("named, no header", ["text.csv", "--no-header", "--index-column", "a", *OUT], "'a' is a name in the first line"),
    ("unknown suffix", ["x.xlsx", *OUT], "ending in .xlsx"),
    ("short row", ["short.csv", *OUT], "line 3, column 2: the row has 1 cells, and the first row 2"),
    ("long row", ["long.csv", *OUT], "line 2, column 3"),
    ("text column", ["text.csv", *OUT], "line 3, column 2 (b): 'red' is not a number"),
    ("NA", ["na.csv", *OUT], "line 2, column 1: 'NA' is a missing value"),
    ("nan", ["nan.csv", *OUT], "line 1, column 2: 'nan' is a missing value"),
    ("empty cell", ["hole.csv", *OUT], "line 2, column 2: '' is a missing value"),
    ("empty row between", ["gap.csv", *OUT], "line 2, column 1: '' is a missing value"),
    ("underscore", ["under.csv", *OUT], "line 2, column 1: '1_0'"),
    (
        "comma among points",
        ["mixed.csv", "--delimiter", ";", *OUT],
        "line 2, column 1: '1,5' is not a number, or not a finite one",
    ),
    ("open quotation", ["open.csv", *OUT], "open.csv, line 4: unexpected end of data; look for a quotation mark"),
    ("open quotation at the end", ["end.csv", *OUT], "line 2: unexpected end of data; look for a quotation mark"),
    ("quotes alone", ["quotes.csv", *OUT], "quotes.csv has a header and no rows"),
    ("thousands", ["thousands.csv", *OUT], "line 2, column 1: '1,234.5' is not a number"),
    (
        "thousands by points",
        ["points.csv", "--delimiter", ";", "--decimal", ",", *OUT],
        "line 2, column 1: '1.234,5' is not a number",
    ),
    (
        "empty column",
        ["comma.csv", *OUT],
        "line 1, column 3: '' is a missing value. Give --rows complete to leave out such rows",
    ),
    ("and a header", ["commas.csv", *OUT], "line 1: column 2 has no name. Give --drop '#2'"),
    ("named empty column", ["named.csv", *OUT], "line 2, column 2 (b): '' is a missing value"),
    ("not UTF-8", ["latin.csv", *OUT], "not UTF-8"),
    ("no numbers", ["names.csv", "--index-column", "0", *OUT], "no column of numbers"),
    ("no such column", ["text.csv", "--label-column", "kind", *OUT], "--label-column 'kind': no such column"),
    ("two of the name", ["twice.csv", "--label-column", "a", *OUT], "2 columns of the"),
    ("labels of columns", ["text.csv", "--label-column", "b", "--transpose", *OUT], "--transpose"),
    ("vector", ["vector.npy", *OUT], "shape (3,)"),
    ("no rows", ["none.npy", *OUT], "none.npy"),
    ("strings", ["strings.npy", *OUT], "real numbers are needed"),
    ("objects", ["objects.npy", *OUT], "objects.npy cannot be read as .npy"),
    ("no magic", ["text.npy", *OUT], "text.npy cannot be read as .npy"),
    ("cut off", ["cut.npy", *OUT], "cut.npy cannot be read as .npy, it is damaged"),
    ("NaN inside", ["nan.npy", *OUT], "row 1, column 0"),
    ("NaN with scale", ["nan.npy", "--scale", *OUT], "row 1, column 0"),
    ("too large for float32", ["large.npy", "--dtype", "float32", *OUT], "too large for float32"),
    ("no zip", ["text.npz", *OUT], "text.npz cannot be read as .npz, it is damaged"),
    ("objects in npz", ["objects.npz", *OUT], "objects.npz: real numbers are needed"),
    ("several matrices", ["two.npz", *OUT], "u (2, 2), v (2, 2), w (3,)"),
    ("no matrix", ["w.npz", *OUT], "--key"),
    ("no such key", ["two.npz", "--key", "z", *OUT], "no array 'z'"),
    ("labels of another length", ["two.npz", "--key", "u", "--label-column", "w", *OUT], "has 2 rows"),
    (
        "delimiter of an archive",
        ["two.npz", "--delimiter", ";", *OUT],
        "--delimiter does not apply to two.npz, which is",
    ),
    ("decimal of a set", ["iris", "--decimal", ",", *OUT], "--decimal does not apply to iris, which is"),
    ("delimiter of two", ["text.csv", "--delimiter", ";;", *OUT], "--delimiter ';;' is not allowed"),
    ("two commas", ["text.csv", "--decimal", ",", *OUT], "--decimal , is also the delimiter of text.csv"),
    ("decimal of no kind", ["text.csv", "--decimal", "'", *OUT], "--decimal"),
    ("key of csv", ["text.csv", "--key", "u", *OUT], "--key does not apply to text.csv"),
    ("label column of a bundled set", ["iris", "--label-column", "u", *OUT], "does not apply"),
    ("no input", [*OUT], "Missing argument"),
    ("no output", ["iris", "-q"], "--output"),
    ("unknown option", ["iris", "--gama", "1", *OUT], "--gama"),
    (
        "zero components",
        ["iris", "-n", "0", *OUT],
        '0 is no count from 1 on, and no share between 0 and 1, or "mle", or "bic", or "all"',
    ),
    ("share above one", ["iris", "-n", "1.5", *OUT], "1.5 is no count from 1 on, and no share"),
    ("one as a share", ["iris", "-n", "1.0", *OUT], 'no share between 0 and 1, or "mle", or "bic", or "all"'),
    ("components as text", ["iris", "-n", "few", *OUT], "'few' is not a number"),
    ("negative gamma", ["iris", "--gamma", "-1", *OUT], "--gamma -1.0"),
    ("gamma as text", ["iris", "--gamma", "mean", *OUT], '"scale", or "median"'),
    ("no threads", ["iris", "--n-jobs", "0", *OUT], "--n-jobs 0"),
    ("negative seed", ["iris", "--seed", "-1", *OUT], "--seed"),
    ("memory as text", ["iris", "--memory-limit", "much", *OUT], "--memory-limit 'much'"),
    ("memory too small", ["iris", "--memory-limit", "1KiB", *OUT], "1.0 KiB are allowed"),
    ("indefinite", ["wave.npy", "-k", "precomputed", "-n", "3", *OUT], "negative eigenvalues"),
    ("not square", ["iris", "-k", "precomputed", *OUT], "square"),
    ("scaled kernel matrix", ["wave.npy", "-k", "precomputed", "--scale", *OUT], "--scale"),
    ("output suffix", ["iris", "-o", "s.mat"], ".npz, .csv"),
    ("output there", ["iris", "-o", "there.npz"], "there.npz exists; --force replaces it"),
    ("output is a directory", ["iris", "-o", "folder.npz", "--force"], "folder.npz is a directory"),
    ("no such folder", ["iris", "-o", "nowhere/s.npz"], "there is no folder nowhere"),
    ("output is a link", ["iris", "-o", "link.npz", "--force"], "link.npz is a link"),
    ("output is the input", ["two.npz", "--key", "u", "-o", "two.npz", "--force"], "is the input itself"),
    ("plot suffix", ["iris", *OUT, "--plot", "p.gif"], ".png, .pdf, .svg"),
    ("plot there", ["iris", *OUT, "--plot", "there.png"], "there.png exists"),
    ("infinite cell", ["inf.csv", *OUT], "line 2, column 1: 'Infinity' is not a number, or not a finite"),
    ("overflow", ["huge.csv", *OUT], "line 1, column 2: '1e999' is not a number, or not a finite"),
    ("overflow of digits", ["digits.csv", *OUT], "characters)' is not a number, or not a finite"),
    ("unknown method", ["iris", "-m", "pcaa", *OUT], "'pcaa' is not one of 'kernel', 'pca'"),
    ("too many for the columns", ["iris", *PCA, "-n", 5, *OUT], "--n-components 5 must be between 0 and"),
    ("minka as text", ["iris", *PCA, "-n", "mla", *OUT], "'mla' is not a number, or \"mle\""),
    ("minka of few", ["few.npy", *PCA, "-n", "mle", *OUT], "--n-components 'mle' is only supported if"),
    (
        "minka by iteration",
        ["iris", *PCA, "-n", "mle", "--solver", "arpack", *OUT],
        "--n-components 'mle' cannot be a string with svd_solver='arpack', which does not compute all eigenvalues",
    ),
    (
        "minka of a kernel",
        ["iris", "-n", "mle", *OUT],
        "--n-components mle does not apply to --method kernel; it is for --method pca. Give a count.",
    ),
    *(
        (
            f"{n} of {m}",
            ["iris", "-m", m, "-n", n, *OUT],
            "--n-components 0.9 is not allowed; n_components must be"
            if n == "0.9"
            else f"--n-components {n} does not apply to --method {m}; it is for --method ",
        )
        for m in ("ppca", "bayesian", "local")
        for n in ("all", "mle", "0.9")
    ),
    ("nearest kernel", ["iris", "-k", "gaussian", *OUT], "'precomputed'. Did you mean 'rbf'?"),
    ("unknown solver", ["iris", *PCA, "--solver", "svd", *OUT], "'svd' is not one of"),
    ("shape that does not fit", ["digits", *PCA, "--image-shape", "7x8", *PICTURE, *OUT], "(7, 8) has 56 pixels, and"),
    ("shape of one number", ["digits", *PCA, "--image-shape", "8", *PICTURE, *OUT], "'8' is no shape"),
    ("shape of nothing", ["digits", *PCA, "--image-shape", "0x8", *PICTURE, *OUT], "'0x8' is no shape"),
    ("shape without a picture", ["digits", *PCA, "--image-shape", "8x8", *OUT], "give --plot as well"),
    (
        "a solver of pca",
        ["iris", "--solver", "dual", *OUT],
        "--solver 'dual' is not known; give one of 'auto', 'dense'",
    ),
    ("landmarks of no nystrom", ["iris", "--rank", 5, *OUT], "--rank is for --solver nystrom"),
    ("no name of a folder", ["iris", "--checkpoint", "", *OUT], "folder must be the path of a folder"),
    ("no scheduler", ["iris", "--scheduler", "nowhere", *OUT], "nowhere"),
    ("quiet and verbose", ["iris", "-q", "-v", *OUT], "--quiet and --verbose contradict each other"),
]


def test_wrong_options_are_reported_before_an_output_that_exists():
    Path("s.npz").write_text("old", encoding="utf-8")
    for options, expected in (
        ("--gamma -1", "--gamma -1.0 is not allowed"),
        ("--method pca --gamma 2", "--gamma does not apply to --method pca"),
        ("--set nu=2", "--set nu: there is no such parameter"),
        ("-n mle", "it is for --method pca"),
        ("", "--output s.npz exists; --force replaces it"),
    ):
        assert expected in refused("fit", "absent.csv", *options.split(), *OUT)


def make_bad_files() -> None:
    for name in ("folder", "folder.npz"):
        Path(name).mkdir()
    texts: dict[str, str | bytes] = {
        "empty.csv": "", "blank.csv": "\n\n , \n", "header.csv": "a,b\n", "x.xlsx": "1", "short.csv": "a,b\n1,2\n3\n",
        "long.csv": "1,2\n1,2,3\n4,5\n", "text.csv": "a,b\n1,2\n3,red\n", "na.csv": "1,2\nNA,4\n",
        "na1.csv": "NA,NA\n1,4\n", "nan.csv": "1,nan\n", "hole.csv": "1,2\n3,\n", "gap.csv": "1,2\n,\n3,4\n",
        "under.csv": "1,2\n1_0,2\n",
        "inf.csv": "1,2\nInfinity,2\n", "huge.csv": "1,1e999\n", "digits.csv": "1,1" + 400 * "0",
        "mixed.csv": "1.5;2\n1,5;3\n", "latin.csv": "a,é\n1,2\n".encode("latin-1"),
        "names.csv": "Ada\nBob\n", "twice.csv": "a,a,b\n1,2,3\n", "text.npy": "1,2\n", "text.npz": "1,2\n",
        "open.csv": 'a,b\n1,2\n5,"6\n7,9\n', "end.csv": '1,2\n3,"4', "quotes.csv": 'a\n""\n',
        "thousands.csv": '1.5,2\n"1,234.5",3\n', "points.csv": "1,5;2\n1.234,5;3\n",
        "comma.csv": "1,2,\n3,4,\n", "commas.csv": "a,b,\n1,2,\n3,4,\n", "named.csv": "a,b\n1,\n3,\n",
        "there.npz": "old", "there.png": "old",
    }  # fmt: skip
    for name, content in texts.items():
        text(name, content)
    arrays = {
        "vector": np.zeros(3), "few": np.arange(15.0).reshape(3, 5),
        "none": np.zeros((0, 3)), "strings": np.array([["a"]]), "complex": np.eye(2) * 1j,
        "objects": np.array([[None]]), "nan": np.array([[1.0], [np.nan], [2.0]]),
        "inf": np.array([[1.0], [np.inf], [2.0]]),
        "large": np.full((3, 3), 1e300),
        "wave": np.array([[0.0, 1, 0], [1, 0, 0], [0, 0, 0]]),
    }  # fmt: skip
    for name, array in arrays.items():
        np.save(f"{name}.npy", array)
    Path("cut.npy").write_bytes(Path("large.npy").read_bytes()[:-8])
    np.savez("objects.npz", x=arrays["objects"])
    np.savez("two.npz", u=np.eye(2), v=np.eye(2), w=np.zeros(3))
    np.savez("w.npz", w=np.zeros(3))
    if os.name == "posix":
        Path("link.npz").symlink_to("elsewhere.npz")
        os.mkfifo("pipe.csv")


if os.name != "posix":
    BAD = [row for row in BAD if row[0] not in ("pipe", "output is a link")]


@each("arguments, fragment", [row[1:] for row in BAD])
def test_bad_input_is_one_line_and_exit_2(arguments: list[str], fragment: str):
    if not Path("there.npz").exists():
        make_bad_files()
    assert fragment in refused("fit", *arguments)
    assert Path("there.npz").read_text(encoding="utf-8") == "old"


BAD_OPTIONS = [
    "--memory-limit 0",
    "--memory-limit 1KB",
    "--memory-limit 1KB --method pca --solver dual -n 3",
    "--memory-limit 1KB --method local",
    "--tol -1",
    "--tol 2 --method pca",
    "--gamma -1",
    "--n-jobs 0",
    "--n-jobs 0 --method local",
    "--max-iter 0",
    "--max-iter 0 --method ppca",
    "--max-iter 0 --method bayesian",
    "--set coef0=nan -k poly",
    "--degree -1 -k poly",
    "--device foo",
    "--device foo --method pca",
    "--clusters 200 --method local",
    "--seed 99999999999999",
    "--n-components 10 --method ppca",
    "--n-components mle --method pca --solver arpack",
]


@each("options", BAD_OPTIONS)
def test_errors_of_the_library_name_the_option(options: str):
    message = refused("fit", "iris", *OUT, *options.split())
    option, value = options.split()[:2]
    # Where the work does not fit, and where a folder cannot be written, no value is forbidden.
    if value in ("1KB", "none/here"):
        assert re.search(r"memory_limit|checkpoint='none/here'", message)
    else:
        assert re.match(rf"error: (\w+: )?{option} ", message)


def test_the_option_of_an_argument_comes_first_or_before_its_value():
    context = click.Context(commands.fit)
    with context:
        for error, message in (
            (InvalidParameterError("KernelPCA: tol=2 is too large", argument="tol"), "KernelPCA: --tol 2 is too large"),
            (
                InvalidParameterError("a cluster needs a row", argument="n_clusters"),
                "--clusters: a cluster needs a row",
            ),
            (InvalidParameterError("rng=-1 is negative", argument="rng"), "rng=-1 is negative"),
            (InvalidParameterError("tol=2 in RBF(gamma=3)"), "tol=2 in RBF(gamma=3)"),
            (OSError("tol=2"), "tol=2"),
        ):
            assert message_of(error) == message
    assert message_of(InvalidParameterError("tol=2", argument="tol")) == "tol=2"


def test_warnings_and_kernels_keep_their_parameters():
    result = fit("iris", "-n", 1000, *OUT, "-q")
    assert result.stderr.startswith("warning: n_components is more than the number of samples")
    message = refused("fit", "iris", "--preimage", "fixed_point", "-k", "sigmoid", "-o", "t.npz")
    assert "Sigmoid(gamma=0.25, coef0=1)" in message


@pytest.mark.parametrize(("failure", "code"), [(ValueError("bad"), 2), (KeyboardInterrupt(), 130)])
def test_warnings_come_once_and_before_the_line_of_a_failure(
    failure: BaseException, code: int, capsys: pytest.CaptureFixture[str]
):
    def work():
        with failures_in_one_line(False), warnings_in_one_line():
            for _ in range(2):
                warnings.warn("first", UserWarning, stacklevel=1)
                warnings.warn("second", CheckpointWarning, stacklevel=1)
                warnings.warn("of programmers", DeprecationWarning, stacklevel=1)
            raise failure

    with pytest.raises(SystemExit) as ended:
        work()
    assert ended.value.code == code
    lines = capsys.readouterr().err.splitlines()
    assert (lines[:2], len(lines)) == (["warning: first", "warning: second"], 3)


def test_a_plan_has_the_same_errors():
    for arguments in (["iris", *PCA, "-n", 5], ["iris", *PCA, "--gamma", 1], ["iris", "--whiten"]):
        refused("plan", *arguments)


def test_everything_but_the_data_is_checked_before_the_input_is_read(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("gpukpca.cli.fit.read_input", lambda *a, **k: pytest.fail("the input was read"))
    for arguments in (
        ["-o", "s.mat"],
        [*OUT, "--plot", "p.gif"],
        [*OUT, "-n", "-3"],
        [*OUT, "-m", "local", "-n", "all"],
    ):
        refused("fit", "iris", *arguments)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "matplotlib.figure", None)
        message = refused("fit", "iris", *OUT, "--plot", "p.png")
        assert message.startswith("error: --plot: pictures need Matplotlib, and its import failed")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert refused("fit", "iris", *OUT, "--plot", "p.png").endswith(f"{pip_install('plot')}\n")


def test_a_folder_that_takes_no_file_is_found_first(monkeypatch: pytest.MonkeyPatch):
    def read_only(**_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("tempfile.TemporaryFile", read_only)
    message = refused("fit", "iris", *OUT)
    assert message == "error: --output s.npz: nothing can be written to .: Read-only file system.\n"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read and write everything")
def test_no_permission():
    text("x.csv", "1,2\n3,4\n")
    Path("x.csv").chmod(0)
    text("old.npz", "old")
    Path("old.npz").chmod(0o444)
    assert "Permission denied" in refused("fit", "x.csv", *OUT)
    assert "not writable" in refused("fit", "iris", "-o", "old.npz", "--force")


def test_debug_prints_the_traceback():
    result = run("fit", "none.csv", *OUT, "--debug")
    assert result.exit_code == 2
    assert "Traceback" in result.stderr
    assert "FileNotFoundError" in result.stderr


# -- values of options -------------------------------------------------------------------------------------------------


def test_long_values_of_options_are_not_echoed_whole() -> None:
    digits = "9" * 5000
    for name in ("-n", "--rank", "--kernel", "--columns", "--drop", "--label-column", "--device", "--method"):
        assert len(refused("fit", "iris", name, digits, *OUT)) < 900
    for name in ("--memory-limit", "--degree", "--tol", "--clusters", "--seed", "--image-shape"):
        assert len(refused("fit", "iris", name, digits, "--method", "local", *OUT)) < 900
    assert len(refused("fit", digits, *OUT)) < 900
    assert len(refused("fit", "iris", f"--{digits}", *OUT)) < 900
    assert len(refused("fit", "iris", "--drop", "a " * 5000, *OUT)) < 3500
    result = run("fit", "iris", "-n", digits[:4000], *OUT)
    assert (result.exit_code, len(result.stderr) < 1500) == (0, True)
    assert " characters)" in result.stderr


def test_line_breaks_and_long_cells_in_names_of_columns_are_errors() -> None:
    for line in ("a\rb", "a\nb", "a\r\nb", '"a\rb', "x" * 200_000):
        for option in ("--drop", "--columns"):
            assert f"{option} '" in refused("fit", "iris", option, line, *OUT)
    Path("x.txt").write_text(f"# {'name' * 50_000}\n1 2\n3 4\n5 7\n", encoding="utf-8")
    assert run("fit", "x.txt", "-n", 1, *OUT).exit_code == 0
