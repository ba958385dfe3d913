"""The command line: what it reads, writes, prints, refuses, and what it leaves behind."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path

import click
import numpy as np
import pytest
from rich.console import Console

from gpukpca import KernelPCA, Progress, __version__
from gpukpca.cli import commands, report, table
from gpukpca.cli.app import COMMANDS
from gpukpca.cli.inputs import read_input
from gpukpca.cli.scaling import Standardization
from gpukpca.exceptions import MemoryBudgetError
from tests.cli_runs import FOODS, fit, loaded, run, text


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test runs in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


# -- results -----------------------------------------------------------------------------------------------------------


def test_a_bandwidth_that_leaves_every_sample_alone_is_told():
    told = "K is nearly the identity"
    assert told in fit("digits", "-n", 2, "-o", "s.npz").stderr
    assert told not in fit("digits", "-n", 2, "--gamma", "scale", "-o", "t.npz").output


def test_foods_give_the_published_ratios_and_the_names_of_the_countries():
    text("foods.csv", FOODS)
    result = fit("foods.csv", "-k", "linear", "-n", 4, "--index-column", 0, "--transpose", "-o", "s.npz")
    found = loaded()
    np.testing.assert_allclose(found["explained_variance_ratio"], [0.67444, 0.29052, 0.03503, 0], atol=5e-6)
    assert list(found["sample_names"]) == ["England", "Wales", "Scotland", "N.Ireland"]
    assert list(found["feature_names"][:2]) == ["Cheese", "Carcass_meat"]
    assert found["scores"].shape == (4, 4)
    assert "0.67444" in result.stdout
    assert "header in the first line" in result.stdout
    # The RankWarning: one tidy line, no path, no class.
    assert result.stderr.startswith("warning: only 3 of the 4 components carry variance")
    assert result.stderr.count("\n") == 1
    assert ".py" not in result.stderr


def test_results_are_those_of_the_estimator(rng: np.random.Generator):
    X = rng.standard_normal((60, 5)).astype(np.float32)
    np.save("x.npy", X)
    fit("x.npy", "-n", 3, "--kernel", "rbf", "--gamma", "scale", "--eigen-solver", "randomized", "-o", "s.npz")
    model = KernelPCA(3, kernel="rbf", gamma="scale", eigen_solver="randomized", random_state=0)
    scores, found = model.fit_transform(X), loaded()
    np.testing.assert_array_equal(found["scores"], scores)
    for name in ("eigenvalues", "explained_variance", "explained_variance_ratio", "residual_norms", "total_variance"):
        np.testing.assert_array_equal(found[name], getattr(model, f"{name}_"))
    assert found["scores"].dtype == np.float32
    facts = json.loads(str(found["metadata"]))
    assert facts["parameters"]["gamma"] == "scale"
    assert facts["solver"] == model.solver_
    assert facts["passes"] == model.n_passes_
    assert "numpy" in facts["versions"]
    assert "labels" not in found


def test_what_ran_is_printed():
    out = fit("iris", "-k", "linear", "-n", 2, "-o", "s.npz").stdout
    for word in (
        "150 x 4 from iris",
        "cpu, float64",
        "Linear()",
        "features span the feature space",
        "1 over K",
        "MiB",
        "s.npz",
    ):
        assert word in out


def test_a_share_of_the_variance_shows_twenty_rows_and_counts_the_rest(rng: np.random.Generator):
    np.save("x.npy", rng.standard_normal((60, 40)))
    out = fit("x.npy", "-k", "linear", "-n", "0.95", "-o", "s.npz").stdout
    p = loaded()["eigenvalues"].shape[0]
    assert p > 20
    assert f"and {p - 20} more; all {p} together carry 0.9" in out


def test_ten_components_by_default_fewer_for_fewer_samples(rng: np.random.Generator):
    np.save("x.npy", rng.standard_normal((30, 40)))
    np.save("few.npy", rng.standard_normal((3, 40)))
    fit("x.npy", "-o", "s.npz")
    assert loaded()["eigenvalues"].shape == (10,)
    fit("few.npy", "-o", "s.npz", "--force")
    assert loaded()["eigenvalues"].shape == (3,)


def test_scores_as_csv_read_back_exactly():
    text("foods.csv", FOODS)
    fit("foods.csv", "-k", "linear", "-n", 2, "--index-column", 0, "-o", "s.csv")
    fit("foods.csv", "-k", "linear", "-n", 2, "--index-column", 0, "-o", "s.npz")
    again = read_input("s.csv", index_column="sample")
    np.testing.assert_array_equal(again.X, loaded()["scores"])
    assert again.feature_names == ("component_1", "component_2")
    assert again.sample_names is not None
    assert again.sample_names[1] == "Carcass_meat"


def test_bundled_sets_have_labels_and_quiet_is_quiet():
    result = fit("iris", "-n", 2, "-o", "s.npz", "--quiet")
    assert result.output == ""
    assert set(loaded()["labels"]) == {"setosa", "versicolor", "virginica"}


def test_a_file_wins_over_a_bundled_set_of_its_name():
    Path("iris").mkdir()
    assert read_input("iris").X.shape == (150, 4)
    Path("iris").rmdir()
    text("iris", "1,2\n")
    result = run("fit", "iris", "-o", "s.npz")
    assert result.exit_code == 2
    assert "files ending in nothing" in result.stderr


@pytest.mark.parametrize("suffix", ["png", "pdf", "svg"])
def test_plots_are_written(suffix: str):
    fit("iris", "-k", "linear", "-n", 2, "-o", "s.npz", "--plot", f"p.{suffix}")
    content = Path(f"p.{suffix}").read_bytes()
    assert len(content) > 5000
    assert {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<svg"}[suffix] in content[:1000]


def test_options_that_the_kernel_does_not_read_are_named():
    result = fit("iris", "-k", "linear", "-n", 2, "--gamma", 3, "-o", "s.npz", "-q")
    assert result.stderr == "warning: --gamma is not used by the kernel linear.\n"


# -- reading -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("1,2\n3,4\n", "comma, no header"),
        ("a,b\n1,2\n3,4\n", "comma, header"),
        ("\ufeffa,b\r\n1,2\r\n3,4\r\n\r\n\r\n", "comma, header"),
        ('"a","b"\n"1"," 2 "\n3,4\n,\n', "comma, header"),
        ("a;b\n1;2\n3;4\n", "semicolon, header"),
        ("a;b\n1,0;2,0e0\n3;+4,0\n", "semicolon, header in the first line, decimal comma"),
        ("a\tb\n1\t2.0\n\n3\t4\n", "tab, header"),
    ],
)
def test_text_is_understood(content: str, words: str):
    table = read_input(text("x.csv", content))
    np.testing.assert_array_equal(table.X, [[1, 2], [3, 4]])
    assert words in table.source
    assert table.feature_names == (None if "no header" in words else ("a", "b"))


def test_names_and_labels_are_taken_by_name_and_by_number():
    text("x.csv", "who,x,y,kind\nAda,1,2,7\nBob,3,4,9\n")
    for index, label in (("who", "kind"), ("0", "-1"), ("0", "3")):
        table = read_input("x.csv", index_column=index, label_column=label)
        np.testing.assert_array_equal(table.X, [[1, 2], [3, 4]])
        assert table.sample_names == ("Ada", "Bob")
        assert table.feature_names == ("x", "y")
        assert table.labels is not None
        assert table.labels.tolist() == [7, 9]
    text("y.csv", "Ada,1,0.5\nBob,3,red\n")
    table = read_input("y.csv", index_column="0", label_column="2")
    assert table.labels is not None
    assert table.labels.tolist() == ["0.5", "red"]
    assert table.feature_names is None


@pytest.mark.parametrize("name", ["x.txt", "x.dat"])
@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("1 2\n3 4\n", "white space, no header"),
        ("  a\t b \n  1 \t 2\n\n 3  4.0\n", "white space, header"),
        ('"a" b\n1 2\n3 4', "white space, header"),
        ("1, 2\n3, 4\n", "comma, no header"),
        ("a b;c d\n1;2\n3;4\n", "semicolon, header"),
        ("# a b\n1 2\n3 4\n", "white space, header"),
        ("# a\tb\n1\t2\n3\t4\n", "tab, header"),
    ],
)
def test_white_space_separates_where_nothing_else_does(name: str, content: str, words: str):
    table = read_input(text(name, content))
    np.testing.assert_array_equal(table.X, [[1, 2], [3, 4]])
    assert words in table.source


def test_the_mark_that_savetxt_puts_before_names_is_no_part_of_them():
    np.savetxt("x.txt", [[1, 2], [3, 4]], header="a b")
    assert read_input("x.txt", label_column="b").feature_names == ("a",)
    assert read_input(text("y.txt", "#a\tb\n1\t2\n")).feature_names == ("#a", "b")
    for name, content in (("x.txt", "# 1990 1991\n1 2\n"), ("x.csv", "# a b\n1,2\n")):
        with pytest.raises(ValueError, match=r"line [12], column [12]"):
            read_input(text(name, content))


def test_white_space_separates_in_no_csv_file_and_no_ragged_one():
    for name, content in (("x.csv", "1 2\n3 4\n"), ("x.txt", "1 2\n3\n"), ("y.txt", "New York 1\nBoston 2\n")):
        with pytest.raises(ValueError, match="is not a number"):
            read_input(text(name, content))
    rows = "1 2\n" * 60 + "3\n"
    with pytest.raises(ValueError, match=r"line 61, column 2: the row has 1 cells, .* \(separated by white space\)"):
        read_input(text("x.txt", rows))


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("name", ["x.csv", "x.txt"])
@pytest.mark.parametrize("width", [2, 9000, 20000])
def test_lines_of_any_length_are_sampled_whole(delimiter: str, name: str, width: int):
    """A header or a row longer than the sample, and than the longest cell that the csv module takes."""
    X = (np.arange(3 * width) % 997 / 8).reshape(3, width)
    names = [f"gene {i}" for i in range(width)]
    rows = [names, *([str(value) for value in row] for row in X)]
    table = read_input(text(name, "\n".join(delimiter.join(row) for row in rows)))
    np.testing.assert_array_equal(table.X, X)
    assert table.feature_names == tuple(names)


TABLE = "id,age,name,x,y\n7,20,a,1,2\n8,21,b,3,4\n"


@pytest.mark.parametrize(
    ("options", "names", "X"),
    [
        ({"drop": "id,name"}, "age x y", [[20, 1, 2], [21, 3, 4]]),
        ({"drop": "0, -3"}, "age x y", [[20, 1, 2], [21, 3, 4]]),
        ({"drop": "id", "index_column": "name"}, "age x y", [[20, 1, 2], [21, 3, 4]]),
        ({"drop": "name,id", "label_column": "name"}, "age x y", [[20, 1, 2], [21, 3, 4]]),
        ({"columns": "y,age"}, "age y", [[20, 2], [21, 4]]),
        ({"columns": "3", "label_column": "name"}, "x", [[1], [3]]),
        ({"of_model": ("y", "x")}, "y x", [[2, 1], [4, 3]]),
        ({"of_model": ("p", "q"), "drop": "name"}, "id age x y", [[7, 20, 1, 2], [8, 21, 3, 4]]),
    ],
)
def test_columns_are_chosen_and_left_out(options: dict, names: str, X: list):
    table = read_input(text("x.csv", TABLE), **options)
    np.testing.assert_array_equal(table.X, X)
    assert table.feature_names == tuple(names.split())


def test_columns_are_left_out_of_every_kind_of_input():
    without = read_input(text("x.csv", "a,1,2\nb,3,4\n"), drop="0")
    np.testing.assert_array_equal(without.X, [[1, 2], [3, 4]])
    assert without.feature_names is None
    comma = read_input(text("y.csv", '"a,b",c\n1,2\n'), drop='"a,b"')
    assert comma.feature_names == ("c",)
    np.save("x.npy", np.arange(6.0).reshape(2, 3))
    np.savez("x.npz", X=np.arange(6.0).reshape(2, 3))
    for name in ("x.npy", "x.npz"):
        np.testing.assert_array_equal(read_input(name, columns="0,2").X, [[0, 2], [3, 5]])
        np.testing.assert_array_equal(read_input(name, drop="1", transpose=True).X, [[0, 3], [2, 5]])
    assert read_input("iris", drop="sepal width (cm)").feature_names == (
        *("sepal length (cm)", "petal length (cm)", "petal width (cm)"),
    )
    years = read_input(text("z.csv", "1990,kind,1991\n1,a,2\n"), of_model=("1991", "1990"))
    np.testing.assert_array_equal(years.X, [[2, 1]])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--drop", "none"), "--drop 'none': no such column of the 4 in iris"),
        (("--columns", "4"), "--columns '4': no such column"),
        (("--drop", "0", "--columns", "1"), "--columns and --drop contradict each other"),
        (("--drop", "0,1,2,3"), "--drop leaves no column"),
        (("--drop", ""), "give names or numbers of columns"),
        (("--columns", "0,,1"), "give names or numbers of columns"),
    ],
)
@pytest.mark.parametrize("command", [("fit", "iris", "-o", "s.npz"), ("plan", "iris")])
def test_what_is_no_choice_of_columns_is_refused(command: tuple, options: tuple, words: str):
    result = run(*command, *options)
    assert result.exit_code == 2
    assert words in result.stderr
    assert result.stderr.count("\n") == 1


def test_the_report_names_the_columns_that_are_features():
    text("x.csv", TABLE)
    assert "columns      id, age, x, y\n" in fit("x.csv", "--label-column", "name", "-n", 1, "-o", "s.npz").stdout
    assert "columns      age, x, y\n" in fit("x.csv", "--drop", "id,name", "-n", 1, "-o", "t.npz").stdout
    text("wide.csv", ",".join(f"v{i}" for i in range(100)) + "\n" + 3 * (",".join(map(str, range(100))) + "\n"))
    out = fit("wide.csv", "--method", "pca", "--drop", "99", "-n", 1, "-o", "u.npz").stdout
    assert "v0, v1, v2, v3, v4, v5, v6, v7, v8, v9, ..., v98 (99)\n" in out
    np.save("x.npy", np.eye(3))
    assert "columns      3 without names\n" in fit("x.npy", "-n", 1, "-o", "v.npz").stdout


def test_a_picture_may_be_all_that_is_written():
    out = fit("iris", "-n", 2, "--plot", "p.png").stdout
    assert Path("p.png").read_bytes().startswith(b"\x89PNG")
    assert out.splitlines()[-1].split() == ["written", "p.png"]
    assert sorted(path.name for path in Path().iterdir()) == ["p.png"]


@pytest.mark.parametrize("options", [("-k", "rbf"), ("--method", "pca"), ("--eigen-solver", "nystrom")])
@pytest.mark.parametrize("unit", [1e-3, 1.0, 1e4])
def test_residuals_are_shown_relative_to_the_first(rng: np.random.Generator, options: tuple, unit: float):
    np.save("x.npy", unit * rng.standard_normal((60, 3)))
    out = fit("x.npy", *options, "-n", 2, "-o", "s.npz", *(() if "pca" in options else ("--gamma", "scale"))).stdout
    found = loaded()
    values = found["eigenvalues" if "eigenvalues" in found else "explained_variance"]
    rows = [line.split() for line in out.splitlines() if line.strip()[:2] in ("1 ", "2 ")]
    assert [row[-1] for row in rows] == [f"{residual / values[0]:.1e}" for residual in found["residual_norms"]]
    assert "relative residual" in out
    assert "relative to the first" in out


BAD_OPTIONS = [
    "--memory-limit 0",
    "--memory-limit 1KB",
    "--memory-limit 1KB --method pca --svd-solver dual -n 3",
    "--memory-limit 1KB --method local",
    "--tol -1",
    "--tol 2 --method pca",
    "--gamma -1",
    "--n-jobs 0",
    "--n-jobs 0 --method local",
    "--max-iter 0",
    "--max-iter 0 --method ppca",
    "--max-iter 0 --method bayesian",
    "--coef0 nan -k poly",
    "--degree -1 -k poly",
    "--device foo",
    "--device foo --method pca",
    "--clusters 0 --method local",
    "--clusters 200 --method local",
    "--seed 99999999999999",
    "--n-components 10 --method ppca",
    "--n-components mle --method pca --svd-solver arpack",
    "--n-components 0.5 --method pca --svd-solver randomized",
    "--checkpoint none/here",
]


@pytest.mark.parametrize("options", BAD_OPTIONS)
def test_errors_name_options_and_no_parameters(options: str):
    result = run("fit", "iris", "-o", "s.npz", *options.split())
    assert result.exit_code == 2
    assert options.split()[0] in result.stderr
    for parameter in commands.fit.params:
        assert f"{parameter.name}=" not in result.stderr
        assert "_" not in str(parameter.name) or str(parameter.name) not in result.stderr
    assert "None" not in result.stderr
    assert not any(name in result.stderr for name in ("KernelPCA:", "PCA:", "random_state", "n_clusters"))


def test_warnings_name_options_and_kernels_keep_their_parameters():
    result = fit("iris", "-n", 1000, "-o", "s.npz", "-q")
    assert result.stderr.startswith("warning: --n-components 1000 is more than the 150 sample(s)")
    stderr = run("fit", "iris", "--preimage", "fixed_point", "-k", "sigmoid", "-o", "t.npz").stderr
    assert "Sigmoid(gamma=0.25, coef0=1.0)" in stderr


def test_whether_there_is_a_header_can_be_said():
    years = text("x.csv", "1990,1991\n1,2\n3,4\n")
    assert read_input(years).X.shape == (3, 2)
    assert read_input(years, header=False).X.shape == (3, 2)
    table = read_input(years, header=True)
    assert table.feature_names == ("1990", "1991")
    np.testing.assert_array_equal(table.X, [[1, 2], [3, 4]])
    assert read_input(years, header=True, label_column="1991").feature_names == ("1990",)
    with pytest.raises(ValueError, match="line 1, column 1: 'a' is not a number"):
        read_input(text("y.csv", "a,b\n1,2\n"), header=False)


def test_a_row_that_starts_with_the_number_of_a_column_is_no_header():
    table = read_input(text("x.csv", "0,1.5,2\n1,2.5,3\n"), index_column="0")
    assert table.sample_names == ("0", "1")
    assert table.feature_names is None


def test_a_header_of_years_is_seen_by_its_empty_corner():
    table = read_input(text("x.csv", ",1990,1991\nAda,1,2\n"), index_column="0")
    assert table.feature_names == ("1990", "1991")


def test_archives_choose_their_only_or_usual_matrix():
    x, y = np.arange(12.0).reshape(4, 3), np.arange(4)
    np.savez("one.npz", features=x, y=y)
    np.savez("usual.npz", other=x + 1, x_train=x, y=y, cube=np.zeros((4, 3, 2)))
    np.savez("named.npz", u=x, v=x + 1, who=np.array(["a", "b", "c", "d"]))
    np.testing.assert_array_equal(read_input("one.npz").X, x)
    table = read_input("usual.npz", label_column="y")
    np.testing.assert_array_equal(table.X, x)
    np.testing.assert_array_equal(table.labels, y)
    table = read_input("named.npz", key="v", index_column="who")
    np.testing.assert_array_equal(table.X, x + 1)
    assert table.sample_names == ("a", "b", "c", "d")


def test_npy_is_a_memory_map_and_dtype_is_kept_or_asked_for():
    np.save("x.npy", np.eye(3, dtype=np.float32))
    assert isinstance(read_input("x.npy").X, np.memmap)
    assert read_input("x.npy", dtype="float64").X.dtype == np.float64
    np.save("u.npy", np.eye(5, dtype=np.uint8) * 255)
    fit("u.npy", "-n", 2, "-o", "s.npz")
    assert loaded()["scores"].dtype == np.float64
    fit("u.npy", "-n", 2, "--dtype", "float32", "-o", "s.npz", "--force")
    assert loaded()["scores"].dtype == np.float32


def test_more_than_the_free_memory_is_refused_with_both_numbers(monkeypatch: pytest.MonkeyPatch):
    text("foods.csv", FOODS)
    np.savez("x.npz", x=np.zeros((100, 100)))
    np.save("u.npy", np.zeros((100, 100), dtype=np.uint8))
    monkeypatch.setattr(table, "host_free_bytes", lambda: 1000)
    for name, needed in (("foods.csv", "1.3 KiB"), ("x.npz", "78.1 KiB"), ("u.npy", "78.1 KiB")):
        with pytest.raises(MemoryBudgetError, match=f"{needed} of memory, and 1000 B are free"):
            read_input(name)


@pytest.mark.parametrize("scale", [1.0, 1e-200, 1e150])
def test_standardized_columns(rng: np.random.Generator, scale: float):
    X = rng.standard_normal((20000, 4)) + [0, 1e3, -5, 0.1]
    X[:, 3] = 0.1
    scaling = Standardization.of(scale * X)
    assert scaling.constant == 1
    Z = scaling.applied(scale * X)
    np.testing.assert_allclose(Z.mean(axis=0), 0, atol=1e-11)
    np.testing.assert_allclose(Z.std(axis=0), [1, 1, 1, 0], atol=1e-11)
    assert not Z[:, 3].any()
    single = Standardization.of(X.astype(np.float32)).applied(X.astype(np.float32))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, Z, atol=2e-4)


def test_scale_is_reported():
    np.save("x.npy", np.array([[1, 2.0], [1, 3], [1, 7]]))
    out = fit("x.npy", "-k", "linear", "-n", 1, "--scale", "-o", "s.npz").stdout
    assert "1 columns to mean 0 and standard deviation 1; 1 constant, only centered" in out
    np.testing.assert_allclose(loaded()["eigenvalues"], [3.0])


# -- bad input ---------------------------------------------------------------------------------------------------------

OUT = ("-o", "s.npz")
BAD = [
    ("missing file", ["none.csv", *OUT], "none.csv: no such file"),
    ("missing file and --header", ["none.csv", "--header", *OUT], "none.csv: no such file"),
    ("missing file and --no-header", ["none", "--no-header", *OUT], "none: no such file"),
    ("missing array and --header", ["none.npz", "--header", "--key", "X", *OUT], "none.npz: no such file"),
    ("missing file and --columns", ["none.dat", "--columns", "1", *OUT], "none.dat: no such file"),
    ("near a bundled name", ["irsi", *OUT], "Did you mean 'iris'?"),
    ("directory", ["folder", *OUT], "folder is a directory"),
    ("pipe", ["pipe.csv", *OUT], "pipe.csv is a pipe or a device"),
    ("infinity", ["inf.npy", "-m", "pca", *OUT], "row 1, column 0. Every entry must be a finite number"),
    ("empty file", ["empty.csv", *OUT], "empty.csv is empty"),
    ("blank file", ["blank.csv", *OUT], "blank.csv holds no rows"),
    ("header only", ["header.csv", *OUT], "has a header and no rows"),
    ("header of an array", ["large.npy", "--header", *OUT], "--header is for text files, and large.npy is none"),
    ("header of a set", ["iris", "--no-header", *OUT], "--no-header is for text files"),
    ("named, no header", ["text.csv", "--no-header", "--index-column", "a", *OUT], "'a' is a name in the first line"),
    ("unknown suffix", ["x.xlsx", *OUT], "ending in .xlsx"),
    ("short row", ["short.csv", *OUT], "line 3, column 2: the row has 1 cells, and the first row 2"),
    ("long row", ["long.csv", *OUT], "line 2, column 3"),
    ("text column", ["text.csv", *OUT], "line 3, column 2 (b): 'red' is not a number"),
    ("NA", ["na.csv", *OUT], "line 2, column 1: 'NA' is a missing value"),
    ("NA in the first row", ["na1.csv", *OUT], "line 1, column 1: 'NA'"),
    ("nan", ["nan.csv", *OUT], "line 1, column 2: 'nan' is a missing value"),
    ("empty cell", ["hole.csv", *OUT], "line 2, column 2: '' is a missing value"),
    ("empty row between", ["gap.csv", *OUT], "line 2, column 1: '' is a missing value"),
    ("underscore", ["under.csv", *OUT], "line 2, column 1: '1_0'"),
    ("comma among points", ["mixed.csv", *OUT], "line 2, column 1: '1,5' is not a number with a decimal point"),
    ("not UTF-8", ["latin.csv", *OUT], "not UTF-8"),
    ("no numbers", ["names.csv", "--index-column", "0", *OUT], "no column of numbers"),
    ("no such column", ["text.csv", "--label-column", "kind", *OUT], "--label-column 'kind': no such column"),
    ("column out of range", ["text.csv", "--index-column", "5", *OUT], "--index-column '5': no such column"),
    ("two of the name", ["twice.csv", "--label-column", "a", *OUT], "2 columns are called so"),
    ("labels of columns", ["text.csv", "--label-column", "b", "--transpose", *OUT], "--transpose"),
    ("vector", ["vector.npy", *OUT], "shape (3,)"),
    ("no rows", ["none.npy", *OUT], "none.npy"),
    ("strings", ["strings.npy", *OUT], "real numbers are needed"),
    ("complex", ["complex.npy", *OUT], "real numbers are needed"),
    ("objects", ["objects.npy", *OUT], "objects.npy cannot be read"),
    ("no magic", ["text.npy", *OUT], "text.npy is not a .npy file"),
    ("cut off", ["cut.npy", *OUT], "cut.npy cannot be read"),
    ("NaN inside", ["nan.npy", *OUT], "row 1, column 0"),
    ("NaN with scale", ["nan.npy", "--scale", *OUT], "row 1, column 0"),
    ("too large for float32", ["large.npy", "--dtype", "float32", *OUT], "too large for float32"),
    ("no zip", ["text.npz", *OUT], "text.npz is not a .npz file"),
    ("objects in npz", ["objects.npz", *OUT], "objects.npz cannot be read"),
    ("several matrices", ["two.npz", *OUT], "u (2, 2), v (2, 2), w (3,)"),
    ("no matrix", ["w.npz", *OUT], "--key"),
    ("no such key", ["two.npz", "--key", "z", *OUT], "no array 'z'"),
    ("labels of another length", ["two.npz", "--key", "u", "--label-column", "w", *OUT], "has 2 rows"),
    ("key of csv", ["text.csv", "--key", "u", *OUT], "--key u does not apply"),
    ("label column of a bundled set", ["iris", "--label-column", "u", *OUT], "does not apply"),
    ("no input", [*OUT], "Missing argument"),
    ("no output", ["iris"], "--output"),
    ("unknown option", ["iris", "--gama", "1", *OUT], "--gama"),
    ("unknown kernel", ["iris", "-k", "rbff", *OUT], "rbff"),
    ("zero components", ["iris", "-n", "0", *OUT], "-n 0 leaves nothing"),
    ("components below zero", ["iris", "-m", "ppca", "-n", "-2", *OUT], "-n -2 leaves nothing"),
    ("share above one", ["iris", "-n", "1.5", *OUT], "-n 1.5: a share of the variance lies between 0 and 1"),
    ("components in words", ["iris", "-n", "few", *OUT], "'few' is not a number"),
    ("negative gamma", ["iris", "--gamma", "-1", *OUT], "--gamma -1.0"),
    ("gamma in words", ["iris", "--gamma", "mean", *OUT], '"scale", or "median"'),
    ("gamma nan", ["iris", "--gamma", "nan", *OUT], "--gamma nan"),
    ("no threads", ["iris", "--n-jobs", "0", *OUT], "--n-jobs 0"),
    ("negative seed", ["iris", "--seed", "-1", *OUT], "--seed"),
    ("memory in words", ["iris", "--memory-limit", "much", *OUT], "--memory-limit much"),
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
    ("plot nowhere", ["iris", *OUT, "--plot", "nowhere/p.png"], "no folder nowhere"),
]


def make_bad_files() -> None:
    for name in ("folder", "folder.npz"):
        Path(name).mkdir()
    texts: dict[str, str | bytes] = {
        "empty.csv": "", "blank.csv": "\n\n , \n", "header.csv": "a,b\n", "x.xlsx": "1", "short.csv": "a,b\n1,2\n3\n",
        "long.csv": "1,2\n1,2,3\n4,5\n", "text.csv": "a,b\n1,2\n3,red\n", "na.csv": "1,2\nNA,4\n",
        "na1.csv": "NA,NA\n1,4\n", "nan.csv": "1,nan\n", "hole.csv": "1,2\n3,\n", "gap.csv": "1,2\n,\n3,4\n",
        "under.csv": "1,2\n1_0,2\n", "mixed.csv": "1.5;2\n1,5;3\n", "latin.csv": "a,é\n1,2\n".encode("latin-1"),
        "names.csv": "Ada\nBob\n", "twice.csv": "a,a,b\n1,2,3\n", "text.npy": "1,2\n", "text.npz": "1,2\n",
        "there.npz": "old", "there.png": "old",
    }  # fmt: skip
    for name, content in texts.items():
        text(name, content)
    arrays = {
        "vector": np.zeros(3), "none": np.zeros((0, 3)), "strings": np.array([["a"]]), "complex": np.eye(2) * 1j,
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
    Path("link.npz").symlink_to("elsewhere.npz")
    os.mkfifo("pipe.csv")


@pytest.mark.parametrize(("what", "arguments", "fragment"), BAD, ids=[row[0] for row in BAD])
def test_bad_input_is_one_line_and_exit_2(what: str, arguments: list[str], fragment: str):
    make_bad_files()
    before = sorted(os.listdir())
    result = run("fit", *arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert fragment in result.stderr
    assert "Traceback" not in result.stderr
    assert sorted(os.listdir()) == before
    assert Path("there.npz").read_text() == "old"


def test_targets_are_checked_before_anything_is_read(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("gpukpca.cli.fit.read_input", lambda *a, **k: pytest.fail("the input was read"))
    for arguments in (["-o", "s.mat"], ["-o", "s.npz", "--plot", "p.gif"], ["-o", "s.npz", "-n", "-3"]):
        assert run("fit", "iris", *arguments).exit_code == 2


def test_a_broken_matplotlib_is_found_out_before_the_fit(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("gpukpca.cli.fit.read_input", lambda *a, **k: pytest.fail("the input was read"))
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    result = run("fit", "iris", *OUT, "--plot", "p.png")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: --plot: pictures need Matplotlib, and its import failed")


def test_a_folder_that_takes_no_file_is_found_out_first(monkeypatch: pytest.MonkeyPatch):
    def read_only(**_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("tempfile.TemporaryFile", read_only)
    result = run("fit", "iris", *OUT)
    assert result.exit_code == 2
    assert result.stderr == "error: --output s.npz: nothing can be written to .: Read-only file system.\n"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read and write everything")
def test_no_permission():
    text("x.csv", "1,2\n3,4\n")
    Path("x.csv").chmod(0)
    text("old.npz", "old")
    Path("old.npz").chmod(0o444)
    assert "Permission denied" in run("fit", "x.csv", *OUT).stderr
    assert "not writable" in run("fit", "iris", "-o", "old.npz", "--force").stderr


def test_plot_without_matplotlib_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = run("fit", "iris", *OUT, "--plot", "p.png")
    assert result.exit_code == 2
    assert result.stderr.endswith('pip install "gpukpca[plot]"\n')
    assert os.listdir() == []


def test_debug_prints_the_traceback():
    result = run("fit", "none.csv", *OUT, "--debug")
    assert result.exit_code == 2
    assert "Traceback" in result.stderr
    assert "FileNotFoundError" in result.stderr


# -- whole files -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("broken", ["write_rows", "draw"])
def test_a_failing_write_leaves_the_old_files_whole(monkeypatch: pytest.MonkeyPatch, broken: str):
    text("s.npz", "old scores")
    text("p.png", "old plot")

    def full(file: object, *_: object) -> None:
        file.write(b"half of it")  # type: ignore[attr-defined]
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(f"gpukpca.cli.fit.{broken}", full)
    result = run("fit", "iris", "-k", "linear", "-n", 2, *OUT, "--plot", "p.png", "--force")
    assert result.exit_code == 2
    assert "No space left" in result.stderr
    assert Path("s.npz").read_text() == "old scores"
    assert Path("p.png").read_text() == "old plot"
    assert sorted(os.listdir()) == ["p.png", "s.npz"]


def test_force_replaces_and_keeps_permissions():
    text("s.npz", "old")
    Path("s.npz").chmod(0o640)
    fit("iris", "-k", "linear", "-n", 2, *OUT, "--force")
    assert loaded()["scores"].shape == (150, 2)
    assert Path("s.npz").stat().st_mode & 0o777 == 0o640


def test_an_interrupt_leaves_nothing(monkeypatch: pytest.MonkeyPatch):
    for target in ("gpukpca.KernelPCA.fit_transform", "gpukpca.cli.fit.write_rows"):
        with monkeypatch.context() as patch:
            patch.setattr(target, interrupt)
            result = run("fit", "iris", "-k", "linear", "-n", 2, *OUT)
        assert result.exit_code == 130
        assert result.stderr == "interrupted; nothing was written\n"
        assert os.listdir() == []


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


INTERRUPTED_IN_A_PRODUCT = """
import os, signal
from gpukpca.cli import main
from gpukpca.gram.tiled import TiledGram

product = TiledGram.__matmul__

def interrupted(self, V):
    os.kill(os.getpid(), signal.SIGINT)
    return product(self, V)

TiledGram.__matmul__ = interrupted
main()
"""


INTERRUPTED_IN_AN_IMPORT = """
import os, signal, sys

class Finder:
    def find_spec(self, name, *_):
        if name == sys.argv[-1]:
            del sys.argv[-1]
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Finder())
from gpukpca.cli import main
main()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals as on POSIX")
@pytest.mark.parametrize("module", ["click", "sklearn", "scipy.linalg"])
def test_ctrl_c_before_the_imports_are_done_ends_in_one_line(module):
    command = [sys.executable, "-c", INTERRUPTED_IN_AN_IMPORT, "fit", "iris", *OUT, module]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 130
    assert ended.stderr.strip() == "interrupted"
    assert os.listdir() == []


def test_the_package_runs_as_a_program():
    asked = [sys.executable, "-m", "gpukpca"]
    assert subprocess.run([*asked, "--version"], capture_output=True, text=True, check=True).stdout.startswith(
        "gpukpca,"
    )
    wrong = subprocess.run([*asked, "fti"], capture_output=True, text=True, check=False)
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("error: No such command 'fti'")


def test_the_help_names_the_commands_that_there_are():
    assert set(COMMANDS) == {name for name, value in vars(commands).items() if isinstance(value, click.Command)}
    assert list(COMMANDS) == sorted(COMMANDS)
    for name, help_text in COMMANDS.items():
        assert help_text in run("--help").stdout
        assert run(name, "--help").stdout.startswith(f"Usage: gpukpca {name} ")


@pytest.mark.skipif(sys.platform == "win32", reason="signals as on POSIX")
def test_ctrl_c_ends_a_long_fit_with_130(rng: np.random.Generator):
    np.save("x.npy", rng.standard_normal((3000, 20)))
    command = [sys.executable, "-c", INTERRUPTED_IN_A_PRODUCT, "fit", "x.npy", "-n", "3", *OUT]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 130
    assert ended.stderr == "interrupted; nothing was written\n"
    assert os.listdir() == ["x.npy"]


# -- the terminal ------------------------------------------------------------------------------------------------------


def play(bar: report.ProgressBar) -> None:
    bar(Progress("plan", "plan"))
    bar(Progress("tiles", "3 of 4 tiles", 3, 4))
    bar(Progress("pass", "pass 1", 1, 300, None, 1e-8))
    bar(Progress("pass", "pass 2", 2, 300, 0.0, 1e-8))
    for residual in (1e-2, 1e-5, 1e-9):
        bar(Progress("pass", f"residual {residual}", 2, 300, residual, 1e-8))


def test_the_bar_waits_and_only_shows_on_a_terminal():
    shown = {}
    for terminal, delay in ((True, 0.0), (True, 60.0), (False, 0.0)):
        file = io.StringIO()
        with report.ProgressBar(Console(force_terminal=terminal, file=file, width=120), delay=delay) as bar:
            time.sleep(0.1)
            play(bar)
        shown[terminal, delay] = "eigenvectors" in file.getvalue()
    assert shown == {(True, 0.0): True, (True, 60.0): False, (False, 0.0): False}


def test_the_bar_measures_the_way_of_the_residual():
    with report.ProgressBar(Console(force_terminal=False)) as bar:
        shares = [bar._share(Progress("pass", "", 1, 9, r, 1e-8)) for r in (None, 1e-2, 1e-5, 1e-9)]
    np.testing.assert_allclose(np.array(shares[1:], dtype=float), [0, 0.5, 1])
    assert shares[0] is None


def test_info_and_version():
    out = run("info").stdout
    for word in ("cpu", "cuda", "gpukpca", "numpy", "scikit-learn", "array-api-compat", "cupy", "blas", "thread"):
        assert word in out
    assert __version__ in run("--version").stdout
    assert "COUNT|SHARE" in run("fit", "--help").stdout
    assert run().exit_code == 0


def test_peak_memory_is_known():
    peak = report.peak_memory_mib()
    assert peak is not None
    assert 20 < peak < 1e6


def test_warnings_filters_are_put_back():
    before = list(warnings.filters)
    fit("iris", "-k", "linear", "-n", 2, *OUT)
    assert list(warnings.filters) == before


def test_the_library_needs_neither_terminal_nor_plotting():
    code = "import sys; sys.modules.update(dict.fromkeys(['rich', 'click', 'matplotlib'])); import gpukpca"
    subprocess.run([sys.executable, "-c", code], check=True)
