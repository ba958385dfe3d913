"""The command line with ``--method ppca``, ``bayesian`` and ``local``: missing cells, counts, files, pictures."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from gpukpca import BayesianPCA, LocalPCA, ProbabilisticPCA
from gpukpca.cli.inputs import read_input
from gpukpca.cli.scaling import Standardization
from tests.cli_runs import fit, loaded, run, text

OUT = ("-o", "s.npz")
HOLES = """name,a,b,c
one,1.0,2.5,NA
two,2.0,,1.0
three,3.5,6.5,0.5
four,4.0,8.5,
five,5.5,10.0,-1.5
six,?,12.5,-2.0
seven,7.5,14.0,-3.0
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test runs in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def plane(rng: np.random.Generator, n: int = 80, d: int = 6) -> np.ndarray:
    """Points about a plane."""
    return rng.standard_normal((n, 2)) @ rng.standard_normal((2, d)) * 3.0 + 0.3 * rng.standard_normal((n, d)) + 1.0


def refused(*arguments: object) -> str:
    """The one line of an error."""
    result = run("fit", *arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


# -- probabilistic PCA -------------------------------------------------------------------------------------------------


def test_ppca_gives_what_the_estimator_gives(rng: np.random.Generator):
    X = plane(rng)
    np.save("x.npy", X)
    out = fit("x.npy", "--method", "ppca", "-n", 2, *OUT).stdout
    model = ProbabilisticPCA(2, random_state=0)
    scores, found = model.fit_transform(X), loaded()
    np.testing.assert_array_equal(found["scores"], scores)
    for name in ("components", "mean", "loadings", "explained_variance", "noise_variance"):
        np.testing.assert_array_equal(found[name], getattr(model, f"{name}_"))
    facts = json.loads(str(found["metadata"]))
    assert facts["method"] == "ppca"
    assert facts["noise_variance"] == pytest.approx(float(model.noise_variance_))
    for word in ("variance ratio", "noise", f"{float(model.noise_variance_):.6g}", "80 x 6 from x.npy", "MiB"):
        assert word in out


def test_iterations_are_told_where_there_are_some():
    text("t.csv", HOLES)
    assert "em, " in fit("t.csv", "--method", "ppca", "-n", 1, "--index-column", 0, *OUT).stdout
    assert "iteration" not in fit("iris", "--method", "ppca", "-n", 2, *OUT, "--force").stdout


def test_missing_cells_of_a_table_are_taken(rng: np.random.Generator):
    text("t.csv", HOLES)
    out = fit("t.csv", "--method", "ppca", "-n", 1, "--index-column", "name", *OUT).stdout
    assert "4 of 21 cells" in out
    X = read_input("t.csv", index_column="name", missing=True).X
    assert np.sum(np.isnan(X)) == 4
    np.testing.assert_array_equal(loaded()["scores"], ProbabilisticPCA(1, random_state=0).fit_transform(X))
    assert json.loads(str(loaded()["metadata"]))["missing"] == 4
    assert "line 2, column 4 (c): 'NA' is a missing value" in refused(
        "t.csv", "--index-column", "name", *OUT, "--force"
    )


@pytest.mark.parametrize("mark", ["", "NA", "NaN", "#N/A", "<NA>", "n/a", "null", "-", "?"])
def test_every_usual_mark_of_a_missing_cell_is_known(mark: str):
    text("t.csv", HOLES.replace("6.5", mark))
    assert "5 of 21 cells" in fit("t.csv", "--method", "ppca", "-n", 1, "--index-column", 0, *OUT).stdout
    message = refused("t.csv", "--method", "local", "--index-column", 0, *OUT, "--force")
    assert "or fit with --method ppca or bayesian, which take them" in message


def test_words_in_a_table_with_missing_cells_are_still_errors():
    text("t.csv", HOLES.replace("6.5", "six"))
    assert "line 4, column 3 (b): 'six' is not a number" in refused(
        "t.csv", "--method", "ppca", "-n", 1, "--index-column", 0, *OUT
    )


def test_missing_numbers_of_a_matrix_and_standardized_columns(rng: np.random.Generator):
    X = plane(rng) * [1e-3, 1.0, 10.0, 1e3, 1e5, 1.0]
    X[rng.random(X.shape) < 0.1] = np.nan
    np.save("x.npy", X)
    fit("x.npy", "--method", "ppca", "-n", 2, "--scale", *OUT)
    scaling = Standardization.of(X, missing=True)
    assert scaling.constant == 0
    Z = scaling.applied(X)
    np.testing.assert_allclose(scaling.undone(Z), X, rtol=1e-13, atol=1e-13 * np.nanmax(np.abs(X)))
    np.testing.assert_allclose(np.nanmean(Z, axis=0), 0.0, atol=1e-13)
    np.testing.assert_allclose(np.nanstd(Z, axis=0), 1.0, rtol=1e-13)
    np.testing.assert_array_equal(np.isnan(Z), np.isnan(X))
    np.testing.assert_array_equal(loaded()["scores"], ProbabilisticPCA(2, random_state=0).fit_transform(Z))
    assert "NaN" in refused("x.npy", "--method", "pca", "-n", 2, *OUT, "--force")


@pytest.mark.parametrize("method", ["ppca", "bayesian", "local"])
def test_shares_and_the_words_of_other_methods_are_refused(method: str):
    for count in ("0.9", "mle"):
        assert f"-n {count}: --method {method} takes a count" in refused("iris", "--method", method, "-n", count, *OUT)


def test_options_of_other_methods_are_refused():
    assert "--gamma does not apply to --method ppca" in refused("iris", "--method", "ppca", "--gamma", 1, *OUT)
    assert "--clusters does not apply to --method pca" in refused("iris", "--method", "pca", "--clusters", 3, *OUT)
    assert "--hard does not apply to --method kernel" in refused("iris", "--hard", *OUT)


@pytest.mark.parametrize("method", ["ppca", "bayesian", "local"])
def test_there_is_no_plan(method: str):
    result = run("plan", "iris", "--method", method)
    assert result.exit_code == 2
    assert f"--method {method} has no plan" in result.stderr


def test_fewer_components_by_default_where_there_are_few_columns():
    fit("iris", "--method", "ppca", *OUT)
    assert loaded()["scores"].shape == (150, 3)


# -- Bayesian PCA ------------------------------------------------------------------------------------------------------


def test_bayesian_finds_the_dimension(rng: np.random.Generator):
    X = plane(rng, 300, 10)
    np.save("x.npy", X)
    out = fit("x.npy", "--method", "bayesian", "--plot", "b.png", *OUT).stdout
    assert "2 of 9 components are relevant" in out
    found, model = loaded(), BayesianPCA(random_state=0).fit(X)
    assert found["scores"].shape == (300, 2)
    np.testing.assert_array_equal(found["precisions"], model.precisions_)
    assert json.loads(str(found["metadata"]))["n_components"] == 2
    assert Path("b.png").stat().st_size > 10_000


def test_bayesian_that_finds_nothing_still_writes_and_shows_no_empty_table(rng: np.random.Generator):
    np.save("x.npy", rng.standard_normal((400, 5)))
    result = fit("x.npy", "--method", "bayesian", "--plot", "b.png", *OUT)
    assert "variance ratio" not in result.stdout
    assert loaded()["scores"].shape == (400, 0)
    fit("x.npy", "--method", "bayesian", "-o", "s.csv")
    assert Path("s.csv").read_text().splitlines()[:3] == ["sample", "1", "2"]
    assert "0 of 4 components are relevant" in result.stdout
    assert Path("b.png").exists()


# -- local PCA ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hard", [False, True])
def test_local_gives_what_the_estimator_gives(hard: bool):
    switch = ("--hard",) if hard else ()
    out = fit("clusters", "--method", "local", "--clusters", 2, "-n", 1, *switch, "--plot", "l.png", *OUT).stdout
    X = read_input("clusters").X
    model = LocalPCA(2, 1, method="hard" if hard else "mixture", random_state=0).fit(X)
    found = loaded()
    np.testing.assert_array_equal(found["scores"], model.transform(X))
    np.testing.assert_array_equal(found["clusters"], model.labels_)
    for name in ("weights", "means", "components", "noise_variance"):
        np.testing.assert_array_equal(found[name], getattr(model, f"{name}_"))
    assert "2, each with 1 component\n" in out
    numbers = [line.split()[0] for line in out.splitlines() if line.split() and line.split()[0].isdigit()]
    assert numbers == [str(number) for number in np.unique(found["clusters"])]
    assert "samples" in out
    assert Path("l.png").stat().st_size > 10_000


def test_local_chooses_by_the_criterion():
    out = fit("clusters", "--method", "local", "--clusters", "bic", "-n", 1, *OUT).stdout
    assert "each with 1 component: the smallest BIC of" in out
    table = json.loads(str(loaded()["metadata"]))["bic"]
    assert len(table) > 1
    counts = json.loads(str(loaded()["metadata"]))
    best = f"{counts['n_clusters']} clusters, {counts['n_components']} components"
    assert min(table, key=table.get) == best


def test_the_limit_of_memory_is_not_ignored():
    assert "--memory-limit" in refused("digits", "--method", "local", "--memory-limit", "1KB", *OUT)


def test_two_columns_of_a_table_name_the_axes_as_they_are_written():
    rows = read_input("clusters").X
    text("t.csv", "$a_b,c\n" + "".join(f"{x},{y}\n" for x, y in rows))
    fit("t.csv", "--method", "local", "-n", 1, "--plot", "l.svg", *OUT)
    drawn = Path("l.svg").read_text(encoding="utf-8")
    assert "<!-- $a_b -->" in drawn
    assert "<!-- c -->" in drawn


def test_columns_separated_by_spaces_are_told():
    text("t.csv", "a b c\n1 2 3\n4 5 7\n")
    assert "columns must be separated by tab, semicolon or comma" in refused("t.csv", "--method", "ppca", *OUT)
