"""Columns that belong to rows: weights; rows without any value; distances between rows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import polars
import pytest
from sklearn.preprocessing import StandardScaler

import gpukpca
from gpukpca import PCA, KernelPCA, ProbabilisticPCA, save
from gpukpca.cli.inputs import read_input
from tests.cli.runs import OUT, done, facts, fit, loaded, refused, text
from tests.each import each

M = "m.safetensors"
COUNTS = np.array([3, 1, 0, 2, 1, 1, 4, 1, 1, 2, 1, 5])


@pytest.fixture
def X(rng: np.random.Generator) -> np.ndarray:
    """Write rows with counts as x.csv, x.parquet and x.npz, without them as plain.csv, and repeated as many.csv."""
    X = np.round(rng.standard_normal((12, 3)) * [1.0, 5.0, 20.0] + 3.0, 3)
    table = polars.DataFrame({"a": X[:, 0], "w": COUNTS, "b": X[:, 1], "c": X[:, 2]})
    table.write_csv("x.csv")
    table.write_parquet("x.parquet")
    np.savez("x.npz", X=X, w=COUNTS)
    table.drop("w").write_csv("plain.csv")
    polars.DataFrame(np.repeat(X, COUNTS, axis=0), schema=["a", "b", "c"]).write_csv("many.csv")
    return X


# -- weights -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", ["--method pca", "--method pca --scale", "-k linear", "--gamma .1", "--gamma .1 --scale"]
)
def test_a_column_of_weights_counts_the_rows(X: np.ndarray, options: str):
    fit("many.csv", *options.split(), "-n", 2, *OUT)
    expected = loaded()["explained_variance"]
    for source, column, shown in (("x.csv", "w", "w"), ("x.parquet", "1", "w"), ("x.npz", "w", "w")):
        out = fit(source, "--weight-column", column, *options.split(), "-n", 2, *OUT, "--force", "--save", M).stdout
        assert f"rows: 12; features: 3{'' if source == 'x.npz' else ' (a … c)'}; weights: {shown}\n" in out
        np.testing.assert_allclose(loaded()["explained_variance"], expected, rtol=1e-9)
        np.testing.assert_array_equal(loaded()["sample_weight"], COUNTS)
        scores = loaded()["scores"]
        # New rows need no weights; those of the fit are found by their name, as the audit needs them.
        for new in (source, "plain.csv"):
            done("transform", M, new, "-o", "t.npz", "--force")
            np.testing.assert_allclose(loaded("t.npz")["scores"][COUNTS > 0], scores[COUNTS > 0], atol=1e-8)
        audited = done("audit", M, source).stdout
        assert "weights: w\n" in audited
        assert max(float(line.split()[3]) for line in audited.splitlines()[3:5]) < 1e-6
        Path(M).unlink()


def test_latent_models_count_rows_with_missing_cells_by_their_weights(X: np.ndarray):
    few, counts = np.array([[1.0, 2.0, 0.5], [2.0, np.nan, 1.0], [4.0, 7.0, 2.5], [3.0, 6.5, 1.0]]), [2, 3, 1, 2]
    np.savez("few.npz", X=few, w=counts)
    np.savez("again.npz", X=np.repeat(few, counts, axis=0))
    for method in ("ppca", "bayesian"):
        how = ("--method", method, "-n", 1, "--tol", 1e-12, "--key", "X", *OUT, "--force")
        fit("again.npz", *how)
        expected = loaded()["explained_variance"]
        fit("few.npz", "--weight-column", "w", *how)
        np.testing.assert_allclose(loaded()["explained_variance"], expected, rtol=1e-5)


def test_weights_are_named_in_the_words_of_the_shell(X: np.ndarray):
    for weight, words in (
        ("-1", "--weight-column is not allowed: entry 1 is -1.0. Pass one finite number >= 0 for each row"),
        ("", "--weight-column is not allowed: entry 1 is nan"),
        ("NA", "--weight-column is not allowed: entry 1 is nan"),
        ("many", "'many'"),
    ):
        text("y.csv", f"a,b,w\n1,2,3\n2,5,{weight}\n4,1,2\n")
        message = refused("fit", "y.csv", "--method", "pca", "--weight-column", "w", *OUT)
        assert words in message
        assert "sample_weight" not in message
    message = refused("fit", "x.csv", "--method", "local", "--weight-column", "w", *OUT)
    assert "does not apply to --method local; it is for --method kernel or pca or ppca or bayesian" in message
    assert "--weight-column cannot go with --transpose" in refused(
        "fit", "x.csv", "--weight-column", "w", "--transpose", *OUT
    )
    assert "--weight-column does not apply to iris" in refused("fit", "iris", "--weight-column", "w", *OUT)
    np.savez("y.npz", X=X, w=COUNTS[:5])
    assert "error: y.npz: 'w' has shape (5,), and the matrix has 12 rows" in refused(
        "fit", "y.npz", "--weight-column", "w", *OUT
    )
    fit("x.csv", "--weight-column", "w", "--method", "pca", "-n", 1, "--save", M)
    message = refused("audit", M, "plain.csv")
    assert "the model was fitted with --weight-column; pass the same weights" in message


def test_a_plan_and_the_rows_that_are_left_out_go_with_weights(X: np.ndarray):
    assert "12 x 3" in done("plan", "x.csv", "--method", "pca", "--weight-column", "w").stdout
    lines = Path("x.csv").read_text(encoding="utf-8").splitlines()
    text("y.csv", "\n".join([*lines[:3], ",7,1,1", *lines[3:]]))
    fit("y.csv", "--weight-column", "w", "--rows", "complete", "--method", "pca", "-n", 2, *OUT)
    expected = PCA(2, random_state=0).fit(X, sample_weight=COUNTS).explained_variance_
    np.testing.assert_allclose(loaded()["explained_variance"], expected, rtol=1e-9)


# -- rows without any value --------------------------------------------------------------------------------------------


@each("method", ["ppca", "bayesian"])
def test_rows_without_any_value_score_0_and_are_named_by_their_lines(method: str):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 2)) @ rng.standard_normal((2, 5)) + 0.1 * rng.standard_normal((60, 5))
    rows = [",".join(map(str, row)) for row in X]
    rows[4], rows[30] = ",,,,", "NA,NA,NA,NA,"
    text("x.csv", "\n".join(["a,b,c,d,e", *rows]))
    result = fit("x.csv", "--method", method, "-n", 2, *OUT, "--force")
    assert result.stderr == (
        "warning: lines 6, 32 of x.csv hold no value: no fit counts them, and their scores are 0.\n"
    )
    fit("x.csv", "--method", method, "-n", 2, "-q", "--save", M, "--force")
    assert done("transform", M, "x.csv", "-q", "-o", "t.npz", "--force").stderr == result.stderr
    assert np.all(loaded()["scores"][[4, 30]] == 0)
    assert facts()["missing"] == 10
    text("y.csv", "\n".join(["a,b,c,d,e", "", *rows]))
    assert "warning: rows 4, 30 of y.csv hold" in fit("y.csv", "--method", method, "-n", 2, *OUT, "--force").stderr
    np.save("x.npy", np.where(np.arange(60)[:, None] < 20, np.nan, X))
    assert "warning: rows 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, ... (20) of x.npy" in (
        fit("x.npy", "--method", method, "-n", 2, *OUT, "--force").stderr
    )


def test_scores_of_probabilistic_models_are_drawn_in_the_units_of_pca(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
):
    X = rng.standard_normal((200, 4)) * [40.0, 6.0, 0.1, 0.1]
    np.save("x.npy", X)
    drawn: dict[str, Any] = {}
    monkeypatch.setattr("gpukpca.cli.fit.draw", lambda file, path, figure: drawn.update({str(path): figure}))
    for method in ("pca", "ppca"):
        out = fit("x.npy", "--method", method, "-n", 2, "--plot", f"{method}.png", *OUT, "--force").stdout
    assert "posterior means of variance near 1; --plot draws them in the units of the data" in out
    np.testing.assert_array_equal(loaded()["scores"], ProbabilisticPCA(2, random_state=0).fit_transform(X))
    points = [np.asarray(figure.axes[1].collections[0].get_offsets()) for figure in drawn.values()]
    deviations = [np.sort(np.std(one, axis=0)) for one in points]
    np.testing.assert_allclose(deviations[1], deviations[0], rtol=1e-3)


# -- pictures ----------------------------------------------------------------------------------------------------------


def test_the_components_of_a_picture_are_chosen():
    for options in (["--method", "pca"], ["-k", "linear"], ["--method", "pca", "--image-shape", "2x2"]):
        for chosen, words in (
            ((), ("component 1", "component 2")),
            (("--components", "3,1"), ("component 3", "component 1")),
        ):
            fit("iris", *options, "-n", 3, *chosen, "--plot", "p.svg", "--force")
            labels = re.findall(r"<!-- (component \d) \(", Path("p.svg").read_text(encoding="utf-8"))
            assert labels[:2] == list(words)
    for given, words in (
        (["--components", "4,1", "-n", 3], "--components: the model has 3 components, counted from 1"),
        (["--components", "4,1", "-n", "0.9"], "--components: the model has 1 component, counted from 1"),
        (["--components", "0,1"], "'0,1' is no pair of components, such as 1,3"),
        (["--components", "2,2"], "give two different components, such as 1,3"),
    ):
        assert words in refused("fit", "iris", "--method", "pca", *given, "--plot", "q.svg")
    assert "--components is for pictures: give --plot" in refused("fit", "iris", "--components", "1,3", *OUT)


# -- distances ---------------------------------------------------------------------------------------------------------


def test_distances_are_scaled_classically(rng: np.random.Generator):
    X = rng.standard_normal((30, 3)) * [5.0, 2.0, 1.0]
    D = np.linalg.norm(X[:, None] - X[None], axis=2)
    names = [f"i{i}" for i in range(30)]
    text(
        "d.csv",
        "\n".join(
            ["," + ",".join(names), *(f"{n}," + ",".join(map(str, row)) for n, row in zip(names, D, strict=True))]
        ),
    )
    np.save("d.npy", D)
    expected = np.linalg.eigvalsh(np.cov(X.T))[::-1] * 29
    for source in ("d.csv", "d.npy"):
        out = fit(source, "--kernel", "precomputed", "-n", 2, *OUT, "--save", M, "--force").stdout
        assert "distances D, of which -D²/2 is the kernel matrix; rows: 30; features: 30" in out
        np.testing.assert_allclose(loaded()["eigenvalues"], expected[:2], rtol=1e-9)
        done("transform", M, source, "-o", "t.npz", "--force")
        np.testing.assert_allclose(loaded("t.npz")["scores"], loaded()["scores"], atol=1e-9)
    model = KernelPCA(2, kernel="precomputed").fit(-(D**2) / 2)
    np.testing.assert_allclose(np.abs(loaded()["scores"]), np.abs(model.transform(-(D**2) / 2)), atol=1e-9)
    np.save("k.npy", X @ X.T)
    assert "distances" not in fit("k.npy", "--kernel", "precomputed", "-n", 2, *OUT, "--force").stdout


# -- saved models ------------------------------------------------------------------------------------------------------


def test_a_model_finds_columns_by_names_that_differ():
    text("y.csv", "a,a,b\n1,2,3\n2,4,1\n3,1,9\n")
    message = refused("fit", "y.csv", "--method", "pca", "-n", 1, "--save", M)
    assert "--save: 2 columns of y.csv have the name 'a', by which a model finds them; rename one, or leave" in message
    fit("y.csv", "--method", "pca", "-n", 1, "--drop", "#0", "--save", M)
    done("transform", M, "y.csv", "--drop", "#0", *OUT)


def test_a_model_that_was_standardized_over_n_transforms_as_it_did(X: np.ndarray):
    scaler = StandardScaler().fit(X)
    model = KernelPCA(2, kernel="rbf", gamma=0.2).fit(scaler.transform(X))
    from sklearn.pipeline import Pipeline

    notes = {"method": "kernel", "feature_names": ("a", "b", "c"), "index_name": "", "label_name": ""}
    save(Pipeline([("scale", scaler), ("model", model)]), M, notes)
    done("transform", M, "plain.csv", "-o", "t.npz")
    np.testing.assert_allclose(loaded("t.npz")["scores"], model.transform(scaler.transform(X)), atol=1e-12)
    np.testing.assert_array_equal(gpukpca.load(M)[0].scale_, scaler.scale_)
    assert read_input("plain.csv").weights is None
