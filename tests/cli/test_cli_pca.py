"""The command line with ``--method pca``, its options, its pictures, and the simulated sets."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from gpukpca import PCA, KernelPCA
from gpukpca.cli.inputs import BUNDLED, read_input
from gpukpca.cli.kernel_method import KernelMethod
from gpukpca.cli.methods import METHODS
from gpukpca.cli.options import MODEL_OPTIONS
from tests.cli_runs import FOODS, fit, loaded, run, text

PCA_OF = ("--method", "pca")
OUT = ("-o", "s.npz")
COUNTRIES = ("foods.csv", "--index-column", 0, "--transpose")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test runs in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


# -- results -----------------------------------------------------------------------------------------------------------


def test_foods_give_the_published_ratios():
    text("foods.csv", FOODS)
    result = fit(*COUNTRIES, *PCA_OF, "-n", 4, *OUT)
    found = loaded()
    np.testing.assert_allclose(found["explained_variance_ratio"], [0.67444, 0.29052, 0.03503, 0], atol=5e-6)
    assert list(found["sample_names"]) == ["England", "Wales", "Scotland", "N.Ireland"]
    assert found["components"].shape == (4, 17)
    assert found["feature_names"].shape == found["mean"].shape == (17,)
    assert found["mean"][list(found["feature_names"]).index("Soft_drinks")] == (1374 + 1256 + 1572 + 1506) / 4
    for word in ("0.67444", "0.96497", "variance ratio", "residual", "dual", "4 x 17 from foods.csv", "s.npz"):
        assert word in result.stdout
    assert result.stderr.startswith("warning: only 3 of the 4 components carry variance")
    assert result.stderr.count("\n") == 1


def test_results_are_those_of_the_estimator(rng: np.random.Generator):
    X = rng.standard_normal((60, 7)).astype(np.float32)
    np.save("x.npy", X)
    fit("x.npy", *PCA_OF, "-n", 3, "--svd-solver", "randomized", "--whiten", "--scale", *OUT)
    model = PCA(3, svd_solver="randomized", whiten=True, scale=True, random_state=0)
    scores, found = model.fit_transform(X), loaded()
    np.testing.assert_array_equal(found["scores"], scores)
    for name in ("components", "mean", "explained_variance", "explained_variance_ratio", "singular_values", "scale"):
        np.testing.assert_array_equal(found[name], getattr(model, f"{name}_"))
    for name in ("residual_norms", "total_variance", "noise_variance"):
        np.testing.assert_array_equal(found[name], getattr(model, f"{name}_"))
    facts = json.loads(str(found["metadata"]))
    assert facts["method"] == "pca"
    assert facts["parameters"]["whiten"] is True
    assert facts["solver"] == model.solver_
    assert facts["scaled"] == "7 columns to mean 0 and standard deviation 1 (over n - 1)"
    assert "verbose" not in facts["parameters"]
    # The file is enough to project a new point.
    point = (X[:1] - found["mean"]) / found["scale"] @ found["components"].T / np.sqrt(found["explained_variance"])
    np.testing.assert_allclose(point, scores[:1], atol=1e-4)


def test_a_share_and_minka_choose_the_number(rng: np.random.Generator):
    X = rng.standard_normal((200, 3)) @ rng.standard_normal((3, 8)) * 5 + 0.1 * rng.standard_normal((200, 8))
    np.save("x.npy", X)
    fit("x.npy", *PCA_OF, "-n", "mle", *OUT)
    assert loaded()["scores"].shape == (200, 3)
    assert json.loads(str(loaded()["metadata"]))["n_components"] == 3
    fit("x.npy", *PCA_OF, "-n", "0.5", "--force", *OUT)
    found = loaded()["explained_variance_ratio"]
    assert found.sum() > 0.5 > found[:-1].sum()


def test_all_components_are_those_of_the_estimator(rng: np.random.Generator):
    X = rng.standard_normal((30, 14))
    np.save("x.npy", X)
    fit("x.npy", *PCA_OF, "-n", "all", *OUT)
    assert loaded()["components"].shape == (14, 14)
    fit("x.npy", "-n", "all", "--force", *OUT)
    assert loaded()["scores"].shape == KernelPCA(kernel="rbf").fit_transform(X).shape == (30, 29)


def test_ten_components_by_default_or_as_many_as_there_are(rng: np.random.Generator):
    for shape, p in (((30, 40), 10), ((30, 4), 4), ((3, 40), 3)):
        np.save("x.npy", rng.standard_normal(shape))
        fit("x.npy", *PCA_OF, "--force", *OUT)
        assert loaded()["components"].shape == (p, shape[1])


def test_scores_as_csv_with_names():
    text("foods.csv", FOODS)
    fit(*COUNTRIES, *PCA_OF, "-n", 2, "-o", "s.csv")
    fit(*COUNTRIES, *PCA_OF, "-n", 2, "-o", "s.npz")
    again = read_input("s.csv", index_column="sample")
    np.testing.assert_array_equal(again.X, loaded()["scores"])
    assert again.sample_names == ("England", "Wales", "Scotland", "N.Ireland")


def test_the_plan_is_printed_and_nothing_written():
    result = run("plan", "digits", *PCA_OF, "-n", 5, "--memory-limit", "1GiB")
    assert result.exit_code == 0
    for word in ("1797 x 64", "covariance_eigh", "5 components", "1.0 GiB allowed"):
        assert word in result.stdout
    assert not list(Path().iterdir())


# -- pictures ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("p", [1, 2])
def test_foods_are_drawn_with_their_names(p: int):
    text("foods.csv", FOODS)
    fit(*COUNTRIES, *PCA_OF, "-n", p, *OUT, "--plot", "p.svg")
    assert "PCA" in METHODS["pca"].title(Wanted())
    assert Path("p.svg").stat().st_size > 5000


class Wanted:
    """Options that a title asks for."""

    scale = whiten = True


def test_titles_say_what_was_done():
    assert METHODS["pca"].title(Wanted()) == "PCA of standardized columns, whitened"


def test_images_are_drawn_as_images(monkeypatch: pytest.MonkeyPatch):
    seen = {}

    def plot_images(model, X, image_shape, scores, labels, title):
        seen.update(shape=image_shape, n=len(scores), labels=labels, title=title)
        return Figure()

    from matplotlib.figure import Figure

    monkeypatch.setattr("gpukpca.plotting.plot_images", plot_images)
    fit("digits", *PCA_OF, "-n", 3, "--image-shape", "8x8", *OUT, "--plot", "p.png")
    assert (seen["shape"], seen["n"], seen["title"]) == ((8, 8), 1797, "digits, PCA, n = 1797")
    np.testing.assert_array_equal(seen["labels"], load_digits().target)


def test_pictures_of_images_are_written():
    np.save("x.npy", load_digits().data[:50])
    fit("x.npy", *PCA_OF, "-n", 4, "--image-shape", "8,8", *OUT, "--plot", "p.png")
    assert Path("p.png").read_bytes().startswith(b"\x89PNG")


# -- simulated sets ----------------------------------------------------------------------------------------------------


def test_simulated_sets_are_bundled():
    assert set(BUNDLED) == {"digits", "iris", "wine", "breast_cancer", "genotypes", "clusters"}
    fit("genotypes", *PCA_OF, "-n", 2, *OUT)
    found = loaded()
    assert found["components"].shape == (2, 2000)
    assert len(set(found["labels"])) == 9
    fit("clusters", "-n", 2, "--gamma", "0.2", "--force", *OUT)
    found = loaded()
    assert set(found["labels"]) == {"A", "B"}
    first = found["scores"][:, 0] * np.where(found["labels"] == "A", 1, -1)
    assert max(np.mean(first > 0), np.mean(first < 0)) > 0.98


def test_help_names_methods_and_sets():
    found = " ".join(run("fit", "--help").stdout.split())
    assert f"[{'|'.join(METHODS)}]" in found
    for word in ("genotypes", "clusters", "[pca] Scores of variance 1", "[kernel] Of poly", "mle"):
        assert word in found


# -- wrong use ---------------------------------------------------------------------------------------------------------

PICTURE = ("--plot", "p.png")
BAD = [
    ("unknown method", ["iris", "-m", "pcaa", *OUT], "'pcaa' is not one of 'kernel', 'pca'"),
    ("too many for the columns", ["iris", *PCA_OF, "-n", 5, *OUT], "-n 5 is too many: PCA of 150 samples with 4 col"),
    ("too many, both bounds", ["iris", *PCA_OF, "-n", 200, *OUT], "at most min(150, 4) = 4 components"),
    ("no components", ["iris", *PCA_OF, "-n", 0, *OUT], "-n 0 leaves nothing"),
    ("negative", ["iris", *PCA_OF, "-n", -2, *OUT], "leaves nothing"),
    ("share above one", ["iris", *PCA_OF, "-n", 1.5, *OUT], "a share of the variance lies between 0 and 1"),
    ("minka in words", ["iris", *PCA_OF, "-n", "mla", *OUT], "'mla' is not a number, or \"mle\""),
    ("minka of few", ["few.npy", *PCA_OF, "-n", "mle", *OUT], "there are 3 and 5"),
    ("minka by iteration", ["iris", *PCA_OF, "-n", "mle", "--svd-solver", "arpack", *OUT], "--svd-solver arpack"),
    ("share by iteration", ["iris", *PCA_OF, "-n", 0.5, "--svd-solver", "randomized", *OUT], "--svd-solver randomized"),
    ("all of a cluster", ["iris", "--method", "local", "-n", "all", *OUT], "-n all: --method local takes a count"),
    ("all of ppca", ["iris", "--method", "ppca", "-n", "all", *OUT], "-n all: --method ppca takes a count"),
    ("minka of a kernel", ["iris", "-n", "mle", *OUT], "-n mle: --method kernel takes a count or a share"),
    ("unknown solver", ["iris", *PCA_OF, "--svd-solver", "svd", *OUT], "'svd' is not one of"),
    ("shape that does not fit", ["digits", *PCA_OF, "--image-shape", "7x8", *PICTURE, *OUT], "7 x 8 has 56 pixels"),
    ("shape, columns", ["digits", *PCA_OF, "--image-shape", "7x8", *PICTURE, *OUT], "the data have 64 columns"),
    ("shape of one number", ["digits", *PCA_OF, "--image-shape", "8", *PICTURE, *OUT], "'8' is no shape"),
    ("shape of nothing", ["digits", *PCA_OF, "--image-shape", "0x8", *PICTURE, *OUT], "'0x8' is no shape"),
    ("shape without a picture", ["digits", *PCA_OF, "--image-shape", "8x8", *OUT], "give --plot as well"),
    ("shape with a kernel", ["digits", "--image-shape", "8x8", *PICTURE, *OUT], "--image-shape does not apply"),
    ("no such names", ["names.csv", *PCA_OF, "--index-column", "who", *OUT], "--index-column 'who': no such column"),
    ("no such labels", ["names.csv", *PCA_OF, "--label-column", "7", *OUT], "--label-column '7': no such column"),
    ("missing values", ["nan.npy", *PCA_OF, *OUT], "row 1, column 0"),
    ("tolerance", ["iris", *PCA_OF, "--tol", 2, *OUT], "--tol 2.0"),
    ("device", ["iris", *PCA_OF, "--device", "gpu", *OUT], "gpu"),
    ("no memory", ["digits", *PCA_OF, "--memory-limit", "1KiB", *OUT], "1.0 KiB"),
    *(
        (f"{name} with pca", ["iris", *PCA_OF, f"--{name}", value, *OUT], f"--{name} does not apply to --method pca")
        for name, value in {
            **{"kernel": "rbf", "gamma": 1, "degree": 3, "coef0": 1, "eigen-solver": "dense", "rank": 5},
            **{"landmarks": "uniform", "gram": "dense", "max-iter": 5},
        }.items()
    ),
    ("svd-solver with a kernel", ["iris", "--svd-solver", "full", *OUT], "it is for --method pca"),
    ("whiten with a kernel", ["iris", "--whiten", *OUT], "--whiten does not apply to --method kernel"),
]


@pytest.mark.parametrize(("what", "arguments", "fragment"), BAD, ids=[row[0] for row in BAD])
def test_wrong_use_is_one_line_and_exit_2(what: str, arguments: list[object], fragment: str):
    text("names.csv", "name,u,v\na,1,2\nb,3,4\n")
    np.save("few.npy", np.arange(15.0).reshape(3, 5))
    np.save("nan.npy", np.array([[1.0], [np.nan], [2.0]]))
    before = sorted(Path().iterdir())
    result = run("fit", *arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert fragment in result.stderr
    assert sorted(Path().iterdir()) == before


def test_a_plan_has_the_same_errors():
    for arguments in (["iris", *PCA_OF, "-n", 5], ["iris", *PCA_OF, "--gamma", 1], ["iris", "--whiten"]):
        result = run("plan", *arguments)
        assert result.exit_code == 2
        assert result.stderr.count("\n") == 1


def test_every_option_of_a_method_exists():
    names = {option(lambda: None).__click_params__[0].name for option in MODEL_OPTIONS} | {"image_shape", "checkpoint"}
    for method in METHODS.values():
        assert set(method.options) <= names
    assert set(METHODS["pca"].options) & set(KernelMethod.options) == {"checkpoint", "scheduler"}
