"""The command line with model files: fit --save, transform, denoise."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

import gpukpca
from gpukpca import PCA, KernelPCA
from gpukpca.cli.apply import CHUNK
from gpukpca.cli.inputs import read_input
from gpukpca.persistence import load_with_notes, save_with_notes
from tests.cli.runs import OUT, fit, loaded, refused, text
from tests.cli.runs import done as run_done


def done(*arguments: object) -> str:
    return run_done(*arguments).stdout


@pytest.fixture
def X(rng: np.random.Generator) -> np.ndarray:
    """Rows in x.npy, and 30 more in new.npy."""
    X = rng.standard_normal((120, 3)) @ rng.standard_normal((3, 6)) + 0.1 * rng.standard_normal((120, 6))
    np.save("x.npy", X[:90])
    np.save("new.npy", X[90:])
    return X


def test_a_saved_model_gives_the_scores_of_new_samples(X: np.ndarray):
    fit("x.npy", "-k", "rbf", "--gamma", "scale", "-n", 3, "--save", "m.npz", *OUT)
    out = done("transform", "m.npz", "new.npy", "-o", "t.npz")
    model = KernelPCA(3, kernel="rbf", gamma="scale", random_state=0).fit(X[:90])
    np.testing.assert_array_equal(loaded("t.npz")["scores"], model.transform(X[90:]))
    np.testing.assert_array_equal(gpukpca.load("m.npz").eigenvalues_, model.eigenvalues_)
    facts = json.loads(str(loaded("t.npz")["metadata"]))
    assert facts["estimator"] == "KernelPCA"
    assert facts["model"] == "m.npz"
    for word in ("KernelPCA from m.npz", "30 x 6 from new.npy", "t.npz"):
        assert word in out
    done("transform", "m.npz", "x.npy", "-o", "again.npz", "--quiet")
    np.testing.assert_allclose(loaded("again.npz")["scores"], loaded()["scores"], atol=1e-9)


@pytest.mark.parametrize("method", ["kernel", "pca", "ppca", "local"])
def test_columns_are_standardized_as_they_were_for_the_fit(X: np.ndarray, method: str):
    np.save("x.npy", X[:90] * [1, 10, 100, 1e3, 1e-3, 1] + 5)
    fit("x.npy", "--method", method, "-n", 2, "--scale", "--save", "m.npz", *OUT)
    done("transform", "m.npz", "x.npy", "-o", "t.npz")
    np.testing.assert_allclose(loaded("t.npz")["scores"], loaded()["scores"], atol=1e-8)


def test_a_model_may_be_all_that_is_written(X: np.ndarray):
    out = done("fit", "x.npy", "-n", 2, "--save", "m.npz")
    assert "m.npz" in out
    assert not Path("s.npz").exists()
    assert "nothing would be written: give --output for the scores, --save for the model" in refused("fit", "x.npy")
    assert "give --output" in refused("transform", "m.npz", "x.npy")


def test_denoise_is_the_way_to_the_components_and_back(X: np.ndarray):
    fit("x.npy", "-k", "rbf", "--gamma", 0.05, "-n", 6, "--preimage", "fixed_point", "--save", "m.npz", *OUT)
    out = done("denoise", "m.npz", "new.npy", "-o", "d.npz", "--plot", "d.png", "-n", 3)
    model = KernelPCA(6, kernel="rbf", gamma=0.05, preimage="fixed_point", random_state=0).fit(X[:90])
    points = model.denoise(X[90:], n_components=3)
    np.testing.assert_array_equal(loaded("d.npz")["denoised"], points)
    assert f"{np.mean((points - X[90:]) ** 2):.6g}" in out
    assert Path("d.png").stat().st_size > 10_000


def test_denoise_by_axes_in_the_units_of_the_data(X: np.ndarray):
    np.save("x.npy", X[:90] * 100 + 7)
    for method, way in (("pca", ()), ("kernel", ("-k", "linear", "--preimage", "ridge"))):
        fit("x.npy", "--method", method, *way, "-n", 4, "--scale", "--save", "m.npz", *OUT, "--force")
        done("denoise", "m.npz", "x.npy", "-o", "d.csv", "-n", 2, "--force")
        found = read_input("d.csv")
        assert found.feature_names is None or len(found.feature_names) == 6
        Z = (X[:90] * 100 + 7 - found.X.mean(axis=0)) / X[:90].std(axis=0)
        peer = PCA(2).fit(Z)
        back = peer.inverse_transform(peer.transform(Z)) * X[:90].std(axis=0) + found.X.mean(axis=0)
        np.testing.assert_allclose(found.X, back, atol=1e-6 * np.abs(back).max())


def test_missing_cells_are_filled_by_a_probabilistic_model(X: np.ndarray):
    holes = X[:90] * 10 + 3
    holes[::7, 2] = np.nan
    np.save("x.npy", holes)
    fit("x.npy", "--method", "ppca", "-n", 3, "--scale", "--save", "m.npz", *OUT)
    done("transform", "m.npz", "x.npy", "-o", "t.npz")
    np.testing.assert_allclose(loaded("t.npz")["scores"], loaded()["scores"], atol=1e-9)
    done("denoise", "m.npz", "x.npy", "-o", "d.npz")
    found = loaded("d.npz")["denoised"]
    assert np.all(np.isfinite(found))
    assert np.abs(found[::7, 2] - (X[:90] * 10 + 3)[::7, 2]).max() < 0.3 * np.std(X[:90, 2] * 10)
    PCA(2).fit(X).save("m2.npz")
    assert "NaN" in refused("transform", "m2.npz", "x.npy", "-o", "u.npz")


@pytest.mark.parametrize("method", ["local", "bayesian"])
def test_denoise_by_planes_and_by_relevance(X: np.ndarray, method: str):
    fit("x.npy", "--method", method, "--save", "m.npz", *OUT)
    done("denoise", "m.npz", "new.npy", "-o", "d.npz")
    model = gpukpca.load("m.npz")
    np.testing.assert_array_equal(loaded("d.npz")["denoised"], model.denoise(X[90:]))
    assert "has to use all of its components" in refused("denoise", "m.npz", "new.npy", "-o", "e.npz", "-n", 1)


def test_images_before_and_after():
    fit("digits", "--gamma", "scale", "-n", 20, "--preimage", "ridge", "--save", "m.npz", *OUT)
    out = done("denoise", "m.npz", "digits", "-o", "d.npy", "--plot", "d.png", "--image-shape", "8x8")
    assert np.load("d.npy").shape == (1797, 64)
    assert Path("d.png").stat().st_size > 5_000
    assert "change" in out


def test_names_of_columns_must_be_those_of_the_fit():
    fit("iris", "-n", 2, "--save", "m.npz", *OUT)
    text("t.csv", "sepal length (cm),sepal width (cm),petal length,petal width (cm)\n1,2,3,4\n")
    message = refused("transform", "m.npz", "t.csv", "-o", "t.npz")
    assert "t.csv has no column petal length (cm), which the model was fitted with" in message
    text("t.csv", "a,b,c,d\n1,2,3,4\n")
    message = refused("transform", "m.npz", "t.csv", "-o", "t.npz")
    assert "column 1 of t.csv is 'a', and the model was fitted with 'sepal length (cm)'" in message
    text("u.csv", "1,2,3,4\n5,6,7,9\n")
    done("transform", "m.npz", "u.csv", "-o", "t.npz")


@pytest.mark.parametrize("options", [(), ("--scale",), ("--method", "pca"), ("--method", "local")])
def test_new_samples_give_the_columns_of_the_model_by_name(X: np.ndarray, options: tuple[str, ...]):
    """In any order, beside others that are not read, numbers or not."""
    rows = [f"{i},{a},{b},{c},k{i % 2}" for i, (a, b, c) in enumerate(X[:40, :3])]
    text("x.csv", "\n".join(["id,a,b,c,kind", *rows]))
    fit("x.csv", "-n", 2, "--drop", "id,kind", *options, "--save", "m.npz", *OUT)
    rows = [f"{c},k{i % 2},{a},{b}" for i, (a, b, c) in enumerate(X[:40, :3])]
    text("y.csv", "\n".join(["c,kind,a,b", *rows]))
    for name in ("x.csv", "y.csv"):
        done("transform", "m.npz", name, "-o", "t.npz", "--force")
        np.testing.assert_allclose(loaded("t.npz")["scores"], loaded()["scores"], atol=1e-9)
        assert list(loaded("t.npz")["feature_names"]) == ["a", "b", "c"]


def test_columns_without_names_are_chosen_again(X: np.ndarray):
    fit("x.npy", "-n", 2, "--drop", "0,-1", "--save", "m.npz", *OUT)
    assert "x.npy has 6 columns of numbers; the model needs 4. --columns" in refused(
        "transform", "m.npz", "x.npy", "-o", "t.npz"
    )
    done("transform", "m.npz", "x.npy", "--drop", "0,5", "-o", "t.npz")
    np.testing.assert_allclose(loaded("t.npz")["scores"], loaded()["scores"], atol=1e-9)


def test_what_does_not_fit_is_refused(X: np.ndarray):
    fit("x.npy", "-n", 2, "--save", "m.npz", *OUT)
    np.save("wide.npy", np.ones((3, 7)))
    assert "wide.npy has 7 columns of numbers; the model needs 6" in refused(
        "transform", "m.npz", "wide.npy", "-o", "t.npz"
    )
    assert "the model has no way back to data space: fit it with --preimage" in refused(
        "denoise", "m.npz", "x.npy", "-o", "t.npz"
    )
    assert "MODEL none.npz: no such file" in refused("transform", "none.npz", "x.npy", "-o", "t.npz")
    assert "is a directory; give the file that gpukpca fit --save wrote" in refused(
        "denoise", ".", "x.npy", "-o", "t.npz"
    )
    assert "m.npz is the model: MODEL comes first" in refused("transform", "x.npy", "m.npz", "-o", "t.npz")
    assert "m.npz is a saved model; give data" in refused("transform", "m.npz", "m.npz", "-o", "t.npz")
    assert "m.npz is a saved model; give data" in refused("fit", "m.npz", "-o", "t.npz")
    assert "is no model file of gpukpca" in refused("transform", "s.npz", "x.npy", "-o", "t.npz")
    assert "is no model file of gpukpca" in refused("transform", "x.npy", "x.npy", "-o", "t.npz")
    assert "is the model itself" in refused("transform", "m.npz", "x.npy", "-o", "m.npz", "--force")
    assert "is the input itself" in refused("fit", "s.npz", "--save", "s.npz", "--force")
    assert "--output and --save name the same file" in refused("fit", "x.npy", "-o", "k.npz", "--save", "./k.npz")
    assert "the name must end in .npz" in refused("fit", "x.npy", "--save", "m.pkl")
    assert "m.npz exists; --force replaces it" in refused("fit", "x.npy", "--save", "m.npz")


def test_fewer_components_than_fitted_only(X: np.ndarray):
    fit("x.npy", "--method", "pca", "-n", 2, "--save", "m.npz", *OUT)
    assert "-n 3: the model has 2 components" in refused("denoise", "m.npz", "x.npy", "-o", "d.npz", "-n", 3)
    assert "give --plot as well" in refused("denoise", "m.npz", "x.npy", "-o", "d.npz", "--image-shape", "2x3")
    assert "has 4 pixels, and the data have 6 columns" in refused(
        "denoise", "m.npz", "x.npy", "-o", "d.npz", "--plot", "d.png", "--image-shape", "2x2"
    )


@pytest.mark.parametrize(
    "scaling",
    [
        3,
        {"mean": np.zeros(5), "deviation": np.ones(6)},
        {"mean": np.zeros(6)},
        {"mean": np.zeros(6), "deviation": np.zeros(6)},
    ],
)
def test_notes_of_a_file_are_not_believed(X: np.ndarray, scaling: object):
    save_with_notes(PCA(2).fit(X), "m.npz", {"scaling": scaling})
    assert load_with_notes("m.npz")[1]
    assert "how columns were standardized" in refused("transform", "m.npz", "x.npy", "-o", "t.npz")


def test_a_model_saved_without_the_command_line_is_as_good(X: np.ndarray):
    model = PCA(2).fit(X[:90])
    model.save("m.npz")
    done("transform", "m.npz", "new.npy", "-o", "t.npz")
    np.testing.assert_array_equal(loaded("t.npz")["scores"], model.transform(X[90:]))


def test_rows_are_counted_from_the_start_of_the_input(rng: np.random.Generator):
    rows = rng.standard_normal((CHUNK + 900, 3))
    np.save("x.npy", rows)
    fit("x.npy", "--method", "pca", "-n", 2, "--save", "m.npz", *OUT)
    rows[CHUNK + 20, 1] = np.nan
    np.save("x.npy", rows)
    message = f"x.npy contains NaN: 1 value(s), the first in row {CHUNK + 20}, column 1. PCA does not accept"
    assert message in refused("transform", "m.npz", "x.npy", "-o", "t.npz")
    assert message in refused("denoise", "m.npz", "x.npy", "-o", "t.npz")


def test_noise_does_not_set_the_grays_of_the_picture(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch):
    noisy = load_digits().data[:50] / 16 + rng.standard_normal((50, 64))
    noisy[0, 0] = 30.0
    np.save("noisy.npy", noisy)
    fit("digits", "--method", "pca", "-n", 8, "--save", "m.npz", *OUT)
    drawn = []
    monkeypatch.setattr("gpukpca.cli.apply.draw", lambda file, path, figure: drawn.append(figure))
    done("denoise", "m.npz", "noisy.npy", "-o", "d.npy", "--plot", "d.png", "--image-shape", "8x8")
    shown = np.load("d.npy")[np.linspace(0, 49, 12).astype(int)]
    assert {ax.images[0].get_clim() for ax in drawn[0].axes} == {(shown.min(), shown.max())}


def test_many_labels_and_missing_cells_do_not_keep_a_picture_from_being_drawn(X: np.ndarray):
    holes = X[:90].copy()
    holes[::9, 1] = np.nan
    np.savez("x.npz", X=holes, many=np.arange(90), few=np.arange(90) % 3)
    fit("x.npz", "--method", "ppca", "-n", 2, "--save", "m.npz", *OUT)
    for labels in ("many", "few"):
        done("denoise", "m.npz", "x.npz", "--label-column", labels, "-o", f"{labels}.npz", "--plot", f"{labels}.png")
        assert Path(f"{labels}.png").stat().st_size > 10_000
    done("denoise", "m.npz", "x.npz", "-o", "i.npz", "--plot", "i.png", "--image-shape", "2x3")


def test_an_option_that_is_not_there_points_to_the_help(X: np.ndarray):
    assert "(see gpukpca transform --help).\n" in refused("transform", "m.npz", "x.npy", "-n", 2, "-o", "t.npz")
    assert "Missing argument 'INPUT' (see gpukpca transform --help).\n" in refused("transform", "m.npz", "-o", "t.npz")
    assert "'0.9' is not a valid integer.\n" in refused("denoise", "m.npz", "x.npy", "-n", 0.9, "-o", "t.npz")


def test_the_scores_of_a_local_model_say_in_which_cluster_they_are(X: np.ndarray):
    fit("x.npy", "--method", "local", "-n", 2, "--save", "m.npz", "-o", "s.csv")
    model = gpukpca.load("m.npz")
    for rows, name in ((X[:90], "x"), (X[90:], "new")):
        done("transform", "m.npz", f"{name}.npy", "-o", f"t_{name}.csv")
        found = read_input(f"t_{name}.csv", label_column="cluster")
        np.testing.assert_array_equal(found.labels, model.predict(rows))
        np.testing.assert_array_equal(found.X, model.transform(rows))
    assert Path("s.csv").read_text() == Path("t_x.csv").read_text()
    done("transform", "m.npz", "new.npy", "-o", "t.npz")
    np.testing.assert_array_equal(loaded("t.npz")["clusters"], model.predict(X[90:]))
