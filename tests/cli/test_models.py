"""The command line with model files: fit --save, transform, denoise."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import gpukpca
from gpukpca import PCA, KernelPCA, save
from gpukpca.cli.apply import SLICE_ROWS
from gpukpca.cli.inputs import read_input
from tests.cli.runs import OUT, done, facts, fit, loaded, refused, text

M = "m.safetensors"
SAVE = ("--save", M, *OUT)


@pytest.fixture
def X(rng: np.random.Generator) -> np.ndarray:
    """Write 90 rows to x.npy and 30 more to new.npy."""
    X = rng.standard_normal((120, 3)) @ rng.standard_normal((3, 6)) + 0.1 * rng.standard_normal((120, 6))
    np.save("x.npy", X[:90])
    np.save("new.npy", X[90:])
    return X


# -- transform ---------------------------------------------------------------------------------------------------------


def test_a_saved_model_gives_the_scores_of_new_samples(X: np.ndarray):
    fit("x.npy", "-k", "rbf", "--gamma", "scale", "-n", 3, *SAVE)
    out = done("transform", M, "new.npy", "-o", "t.npz").stdout
    model = KernelPCA(3, kernel="rbf", gamma="scale", random_state=0).fit(X[:90])
    np.testing.assert_array_equal(loaded("t.npz")["scores"], model.transform(X[90:]))
    np.testing.assert_array_equal(gpukpca.load(M).eigenvalues_, model.eigenvalues_)
    assert (facts("t.npz")["estimator"], facts("t.npz")["model"]) == ("KernelPCA", M)
    for word in (f"KernelPCA from {M}", "new.npy, memory map; rows: 30; features: 6", "t.npz"):
        assert word in out
    assert done("transform", M, "x.npy", "-o", "again.npz", "--quiet").output == ""
    np.testing.assert_allclose(loaded("again.npz")["scores"], loaded()["scores"], atol=1e-9)


@pytest.mark.parametrize("method", ["kernel", "pca", "ppca", "bayesian", "local"])
def test_columns_are_standardized_as_they_were_for_the_fit(X: np.ndarray, method: str):
    rows = X[:90] * [1, 10, 100, 1e3, 1e-3, 1] + 5
    np.save("x.npy", rows)
    fit("x.npy", "--method", method, "-n", 2, "--scale", *SAVE)
    done("transform", M, "x.npy", "-o", "t.npz")
    np.testing.assert_allclose(loaded("t.npz")["scores"], loaded()["scores"], atol=1e-8)
    pipeline = gpukpca.load(M)
    assert pipeline.scale is True if method == "pca" else isinstance(pipeline[0], StandardScaler)
    np.testing.assert_array_equal(pipeline.transform(rows), loaded("t.npz")["scores"])


def test_a_model_may_be_all_that_is_written(X: np.ndarray):
    assert M in done("fit", "x.npy", "-n", 2, "--save", M).stdout
    assert not Path("s.npz").exists()
    assert "nothing would be written: give --output for the scores, --save" in refused("fit", "x.npy", "--quiet")
    before = sorted(Path().iterdir())
    alone = done("fit", "x.npy", "-n", 2).stdout
    assert "eigenvalue" in alone
    assert "written" not in alone
    assert sorted(Path().iterdir()) == before
    assert "give --output" in refused("transform", M, "x.npy")


def test_a_model_saved_without_the_command_line_is_as_good(X: np.ndarray):
    model = PCA(2).fit(X[:90])
    model.save("any.name")
    done("transform", "any.name", "new.npy", "-o", "t.npz")
    np.testing.assert_array_equal(loaded("t.npz")["scores"], model.transform(X[90:]))
    save(make_pipeline(StandardScaler(), PCA(2)).fit(X[:90]), M, {})
    done("denoise", M, "new.npy", "-o", "d.npz")
    assert loaded("d.npz")["denoised"].shape == (30, 6)


def test_rows_are_counted_from_the_start_of_the_input(rng: np.random.Generator):
    rows = rng.standard_normal((SLICE_ROWS + 900, 3))
    np.save("x.npy", rows)
    fit("x.npy", "--method", "pca", "-n", 2, *SAVE)
    rows[SLICE_ROWS + 20, 1] = np.nan
    np.save("x.npy", rows)
    message = (
        f"x.npy contains NaN: 1 value(s), the first in row {SLICE_ROWS + 20}, column 1. "
        "--rows complete leaves such rows out"
    )
    for command in ("transform", "denoise"):
        assert message in refused(command, M, "x.npy", "-o", "t.npz")
    done("transform", M, "x.npy", "--rows", "complete", "-o", "t.npz", "--force")
    assert loaded("t.npz")["scores"].shape == (SLICE_ROWS + 899, 2)
    # The means of other rows would make a score depend on these.
    assert "give --rows complete" in refused("transform", M, "x.npy", "--rows", "imputed", "-o", "t.npz", "--force")
    assert "--rows complete leaves such rows out" in refused("fit", "x.npy", "-k", "linear", "--scale", *OUT, "--force")
    fit("x.npy", "--method", "local", "--scale", "--rows", "imputed", "-n", 2, "-o", "t.npz", "--force")


def test_the_scores_of_a_local_model_name_their_clusters(X: np.ndarray):
    fit("x.npy", "--method", "local", "-n", 2, "--save", M, "-o", "s.csv")
    model = gpukpca.load(M)
    for rows, name in ((X[:90], "x"), (X[90:], "new")):
        done("transform", M, f"{name}.npy", "-o", f"t_{name}.csv")
        found = read_input(f"t_{name}.csv", label_column="cluster")
        np.testing.assert_array_equal(found.labels, model.predict(rows))
        np.testing.assert_array_equal(found.X, model.transform(rows))
    assert Path("s.csv").read_text(encoding="utf-8") == Path("t_x.csv").read_text(encoding="utf-8")
    done("transform", M, "new.npy", "-o", "t.npz")
    np.testing.assert_array_equal(loaded("t.npz")["clusters"], model.predict(X[90:]))


# -- columns -----------------------------------------------------------------------------------------------------------


def test_names_of_columns_must_be_those_of_the_fit():
    fit("iris", "-n", 2, *SAVE)
    text("t.csv", "sepal length (cm),sepal width (cm),petal length,petal width (cm)\n1,2,3,4\n")
    message = refused("transform", M, "t.csv", "-o", "t.npz")
    assert "t.csv has no column petal length (cm), which the model was fitted with" in message
    text(
        "t.csv", "sepal length (cm),sepal length (cm),sepal width (cm),petal length (cm),petal width (cm)\n1,2,3,4,5\n"
    )
    assert "2 columns named 'sepal length (cm)'; keep the one to use" in refused("transform", M, "t.csv", "-o", "t.npz")
    text("t.csv", "a,b,c,d\n1,2,3,4\n")
    message = refused("transform", M, "t.csv", "-o", "t.npz")
    assert "column 1 of t.csv is 'a', and the model was fitted with 'sepal length (cm)'" in message
    text("u.csv", "1,2,3,5\n5,6,7,9\n")
    done("transform", M, "u.csv", "-o", "t.npz")


@pytest.mark.parametrize("options", [(), ("--scale",), ("--method", "pca"), ("--method", "local")])
def test_new_samples_give_the_columns_of_the_model_by_name(X: np.ndarray, options: tuple[str, ...]):
    """In any order, and among others that are not read, numbers or not."""
    rows = [f"{i},{a},{b},{c},k{i % 2}" for i, (a, b, c) in enumerate(X[:40, :3])]
    text("x.csv", "\n".join(["id,a,b,c,kind", *rows]))
    fit("x.csv", "-n", 2, "--drop", "id,kind", *options, *SAVE)
    rows = [f"{c},k{i % 2},{a},{b}" for i, (a, b, c) in enumerate(X[:40, :3])]
    text("y.csv", "\n".join(["c,kind,a,b", *rows]))
    for name in ("x.csv", "y.csv"):
        done("transform", M, name, "-o", "t.npz", "--force")
        np.testing.assert_allclose(loaded("t.npz")["scores"], loaded()["scores"], atol=1e-9)
        assert list(loaded("t.npz")["feature_names"]) == ["a", "b", "c"]


def test_names_and_labels_are_read_from_the_columns_of_the_fit():
    rows = "Ada,1,2,u\nBob,4,5,v\nCyd,8,9,u\n"
    text("a.csv", f"who,a,b,kind\n{rows}")
    text("b.csv", "kind,b,who,a\nv,5,Dan,4\n")
    text("c.csv", "a,b\n1,2\n")
    text("d.csv", "who,kind,a,b\n1,2,3,4\n")
    fit("a.csv", "--index-column", "who", "--label-column", "kind", "-n", 1, "-q", *SAVE)
    for name, expected in (("b", ["sample", "label"]), ("c", []), ("d", ["sample", "label"])):
        done("transform", M, f"{name}.csv", "-o", f"{name}-scores.csv")
        lines = Path(f"{name}-scores.csv").read_text().splitlines()
        assert lines[0].split(",") == [*expected, "component_1"]
    assert Path("b-scores.csv").read_text().splitlines()[1].startswith("Dan,v,")
    done("transform", M, "b.csv", "--index-column", "kind", "-o", "s.csv")
    assert Path("s.csv").read_text().splitlines()[1].startswith("v,")


def test_columns_without_names_are_selected_again(X: np.ndarray):
    fit("x.npy", "-n", 2, "--drop", "0,-1", *SAVE)
    message = refused("transform", M, "x.npy", "-o", "t.npz")
    assert "x.npy has 6 columns of numbers; the model needs 4. --columns" in message
    done("transform", M, "x.npy", "--drop", "0,5", "-o", "t.npz")
    np.testing.assert_allclose(loaded("t.npz")["scores"], loaded()["scores"], atol=1e-9)


@pytest.mark.parametrize("names", [3, ("a", "b"), "abcdef"])
def test_notes_of_a_file_are_checked(X: np.ndarray, names: object):
    save(PCA(2).fit(X), M, {"feature_names": names})
    assert "the file names other columns than those of its model" in refused("transform", M, "x.npy", *OUT)


# -- denoise -----------------------------------------------------------------------------------------------------------


def test_denoise_maps_to_the_components_and_back(X: np.ndarray):
    fit("x.npy", "-k", "rbf", "--gamma", 0.05, "-n", 6, "--preimage", "fixed_point", *SAVE)
    out = done("denoise", M, "new.npy", "-o", "d.npz", "--plot", "d.png", "-n", 3).stdout
    model = KernelPCA(6, kernel="rbf", gamma=0.05, preimage="fixed_point", random_state=0).fit(X[:90])
    points = model.denoise(X[90:], n_components=3)
    np.testing.assert_array_equal(loaded("d.npz")["denoised"], points)
    assert f"{np.mean((points - X[90:]) ** 2):.6g}" in out
    assert Path("d.png").stat().st_size > 10_000


@pytest.mark.parametrize("options", [("--method", "pca"), ("-k", "linear", "--preimage", "ridge")])
def test_denoise_by_axes_in_the_units_of_the_data(X: np.ndarray, options: tuple[str, ...]):
    rows = X[:90] * 100 + 7
    np.save("x.npy", rows)
    fit("x.npy", *options, "-n", 4, "--scale", *SAVE)
    done("denoise", M, "x.npy", "-o", "d.csv", "-n", 2)
    found = read_input("d.csv")
    assert found.feature_names == tuple(f"feature_{i}" for i in range(1, 7))
    peer = make_pipeline(StandardScaler(), PCA(2)).fit(rows)
    back = peer.inverse_transform(peer.transform(rows))
    np.testing.assert_allclose(found.X, back, atol=1e-6 * np.abs(back).max())


def test_missing_cells_are_filled_by_a_probabilistic_model(X: np.ndarray):
    holes = X[:90] * 10 + 3
    holes[::7, 2] = np.nan
    np.savez("x.npz", X=holes, many=np.arange(90))
    fit("x.npz", "--method", "ppca", "-n", 3, "--scale", *SAVE)
    done("transform", M, "x.npz", "-o", "t.npz")
    np.testing.assert_allclose(loaded("t.npz")["scores"], loaded()["scores"], atol=1e-9)
    # A picture is drawn with holes, and with more labels than colors.
    done("denoise", M, "x.npz", "--label-column", "many", "-o", "d.npz", "--plot", "d.png")
    assert Path("d.png").stat().st_size > 10_000
    found = loaded("d.npz")["denoised"]
    assert np.all(np.isfinite(found))
    assert np.abs(found[::7, 2] - (X[:90] * 10 + 3)[::7, 2]).max() < 0.3 * np.std(X[:90, 2] * 10)
    done("denoise", M, "x.npz", "-o", "i.npz", "--plot", "i.png", "--image-shape", "2x3")
    PCA(2).fit(X).save("pca.safetensors")
    assert "NaN" in refused("transform", "pca.safetensors", "x.npz", "-o", "u.npz")


@pytest.mark.parametrize("method", ["local", "bayesian"])
def test_denoise_by_planes_and_by_relevance(X: np.ndarray, method: str):
    fit("x.npy", "--method", method, *SAVE)
    done("denoise", M, "new.npy", "-o", "d.npz")
    np.testing.assert_array_equal(loaded("d.npz")["denoised"], gpukpca.load(M).denoise(X[90:]))
    assert "has to use all of its components" in refused("denoise", M, "new.npy", "-o", "e.npz", "-n", 1)


def test_noise_does_not_set_the_grays_of_the_picture(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch):
    noisy = load_digits().data[:50] / 16 + rng.standard_normal((50, 64))
    noisy[0, 0] = 30.0
    np.save("noisy.npy", noisy)
    fit("digits", "--method", "pca", "-n", 8, *SAVE)
    drawn = []
    monkeypatch.setattr("gpukpca.cli.apply.draw", lambda file, path, figure: drawn.append(figure))
    out = done("denoise", M, "noisy.npy", "-o", "d.npy", "--plot", "d.png", "--image-shape", "8x8").stdout
    shown = np.load("d.npy")[np.linspace(0, 49, 12).astype(int)]
    assert {ax.images[0].get_clim() for ax in drawn[0].axes} == {(shown.min(), shown.max())}
    assert "change" in out


# -- wrong use ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (f"transform {M} wide.npy -o t.npz", "wide.npy has 7 columns of numbers; the model needs 6"),
        (f"denoise {M} x.npy -o t.npz", "the model has no way back to data space: fit it with --preimage"),
        ("transform none.npz x.npy -o t.npz", "none.npz: does not exist; give a model file"),
        ("denoise . x.npy -o t.npz", "is a directory; give a model file"),
        (f"transform x.npy {M} -o t.npz", "x.npy is no model file of gpukpca"),
        (
            f"transform {M} {M} -o t.npz",
            f"{M} is a saved model; give data instead. Where MODEL is an argument, it comes first",
        ),
        (f"fit {M} -o t.npz", f"{M} is a saved model; give data instead. Where MODEL is an argument, it comes first"),
        ("transform s.npz x.npy -o t.npz", "is no model file of gpukpca"),
        ("transform x.npy x.npy -o t.npz", "is no model file of gpukpca"),
        ("transform pca.npz x.npy -o pca.npz --force", "pca.npz is the model itself"),
        ("fit s.npz -o s.npz --force", "s.npz is the input itself"),
        ("fit x.npy --save m.pkl", "the name must end in .safetensors"),
        (f"fit x.npy --save {M}", f"{M} exists; --force replaces it"),
        ("denoise pca.npz x.npy -o d.npz -n 3", "-n 3: the model has 2 components"),
        ("denoise pca.npz x.npy -o d.npz -n 0.9", "'0.9' is not a whole number from 1 on, such as 200 or 1e6.\n"),
        ("denoise pca.npz x.npy -o d.npz --image-shape 2x3", "give --plot as well"),
        (
            "denoise pca.npz x.npy -o d.npz --plot d.png --image-shape 2x2",
            "has 4 pixels, and the data have 6 columns",
        ),
        (f"transform {M} x.npy -n 2 -o t.npz", "(see gpukpca transform --help).\n"),
        (f"transform {M} -o t.npz", "Missing argument 'INPUT' (see gpukpca transform --help).\n"),
    ],
)
def test_what_does_not_fit_is_refused(X: np.ndarray, command: str, expected: str):
    fit("x.npy", "-n", 2, *SAVE)
    np.save("wide.npy", np.ones((3, 7)))
    PCA(2).fit(X).save("pca.npz")
    assert expected in refused(*command.split())


AUDITED = ("--gamma 0.1", "--method pca", "--method pca --whiten --scale", "-k linear --scale", "--set center=false")
AUDITED += ("--gamma 0.1 --solver nystrom --rank 20", "--gamma .1 --preimage ridge")


@pytest.mark.parametrize("options", AUDITED)
def test_a_saved_model_is_audited_on_the_data_of_its_fit(X: np.ndarray, options: str):
    np.save("x.npy", X[:90])
    fit("x.npy", *options.split(), "-n", 2, *SAVE)
    expected = (
        f"x.npy, memory map; rows: 90; features: 6\n{gpukpca.residuals(gpukpca.load(M), X[:90], random_state=0)}\n"
    )
    printed = done("audit", M, "x.npy").stdout
    assert re.sub(r"pass, \S+ s", "", printed) == re.sub(r"pass, \S+ s", "", expected)
    for method, name in (("local", "LocalPCA"), ("ppca", "ProbabilisticPCA"), ("bayesian", "BayesianPCA")):
        fit("x.npy", "--method", method, "-n", 2, "--save", "l.safetensors", "--force")
        words = f"a {name} has no residuals; models of kernel and pca have them"
        assert words in refused("audit", "l.safetensors", "x.npy")
