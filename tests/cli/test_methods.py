"""The command `fit` with every method: results, report, files, counts, missing cells, pictures, plans."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.preprocessing import StandardScaler

from gpukpca import PCA, BayesianPCA, KernelPCA, LocalPCA, Nystrom, ProbabilisticPCA
from gpukpca.cli import commands
from gpukpca.cli.inputs import read_input
from gpukpca.cli.methods import METHODS
from tests.cli.runs import FOODS, OUT, done, facts, fit, loaded, refused, text
from tests.each import each

COUNTRIES = ("foods.csv", "--index-column", 0, "--transpose")
HOLES = """name,a,b,c
one,1.0,2.5,NA
two,2.0,,1.0
three,3.5,6.5,0.5
four,4.0,8.5,
five,5.5,10.0,-1.5
six,?,12.5,-2.0
seven,7.5,14.0,-3.0
"""


def plane(rng: np.random.Generator, n: int = 80, d: int = 6) -> np.ndarray:
    """Return points about a plane."""
    return rng.standard_normal((n, 2)) @ rng.standard_normal((2, d)) * 3.0 + 0.3 * rng.standard_normal((n, d)) + 1.0


# -- results -----------------------------------------------------------------------------------------------------------

SPECTRUM = "explained_variance explained_variance_ratio residual_norms total_variance"
AXES = "components mean explained_variance noise_variance"
# Method, options, the estimator, and fitted attributes that the file holds.
CASES: dict[str, tuple[str, str, Any, str]] = {
    "kernel": (
        "kernel",
        "-k rbf --gamma scale --solver randomized -n 3",
        KernelPCA(3, kernel="rbf", gamma="scale", eigen_solver="randomized"),
        f"eigenvalues {SPECTRUM}",
    ),
    "nystrom": (
        "kernel",
        "-k rbf --gamma scale --solver nystrom --rank 20 -n 3",
        KernelPCA(3, kernel="rbf", gamma="scale", eigen_solver=Nystrom(rank=20)),
        f"eigenvalues {SPECTRUM} certificate",
    ),
    "pca": (
        "pca",
        "--solver randomized --whiten -n 3",
        PCA(3, svd_solver="randomized", whiten=True),
        f"{AXES} {SPECTRUM} singular_values",
    ),
    "ppca": ("ppca", "-n 2", ProbabilisticPCA(2), f"{AXES} loadings"),
    "bayesian": ("bayesian", "", BayesianPCA(), f"{AXES} precisions"),
    "local": ("local", "--clusters 2 -n 1", LocalPCA(2, 1), "weights means components noise_variance"),
    "hard": (
        "local",
        "--set method=hard -n 1",
        LocalPCA(2, 1, method="hard"),
        "weights means components noise_variance",
    ),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("scale", [False, True], ids=["", "scaled"])
def test_results_are_those_of_the_estimator(rng: np.random.Generator, case: str, scale: bool):
    method, options, model, names = CASES[case]
    X = plane(rng).astype(np.float32 if case == "pca" else np.float64) * np.array([1, 9, 1, 1, 1, 0.1], np.float32)
    np.save("x.npy", X)
    out = fit("x.npy", "--method", method, *options.split(), *(["--scale"] if scale else []), *OUT).stdout
    scaler, own = StandardScaler().fit(X), scale and method == "pca"
    scaler.scale_ = scaler.scale_ * np.sqrt(80 / 79)
    model.set_params(random_state=0, **({"scale": True} if own else {}))
    scores, found = model.fit_transform(scaler.transform(X) if scale and not own else X), loaded()
    np.testing.assert_array_equal(found["scores"], scores)
    assert found["scores"].dtype == X.dtype
    for name in names.split():
        np.testing.assert_array_equal(found[name], getattr(model, f"{name}_"))
    if method == "local":
        np.testing.assert_array_equal(found["clusters"], model.labels_)
    assert ("scaler_mean" in found) is (scale and not own)
    if scale:
        deviations = found["scale" if own else "scaler_scale"]
        np.testing.assert_allclose(deviations, np.std(X, axis=0, dtype=np.float64, ddof=1), rtol=1e-6)
        assert "columns to mean 0 and standard deviation 1 (over n - 1)" in out
    assert "labels" not in found
    assert "x.npy, memory map; rows: 80; features: 6\n" in out
    metadata = facts()
    assert metadata["method"] == method
    assert metadata["parameters"]["random_state"] == 0
    assert "verbose" not in metadata["parameters"]
    assert "numpy" in metadata["versions"]


def test_what_ran_is_printed():
    out = fit("iris", "-k", "linear", "-n", 2, *OUT).stdout
    expected = (
        "iris, bundled with scikit-learn; rows: 150; features: 4 (sepal length (cm) … petal width (cm)); labels",
        "cpu, float64",
        "Linear()",
        "features span the feature space",
        "1 over K",
        "MiB",
    )
    for word in (*expected, "s.npz"):
        assert word in out
    out = fit("iris", "--method", "ppca", "-n", 2, "--force", *OUT).stdout
    assert f"variance {facts()['noise_variance']:.6g} in every other direction" in out
    assert "iteration" not in out


@pytest.mark.parametrize(("method", "solver"), [("kernel", "dense: p = 4"), ("pca", "dual")])
def test_foods_give_the_published_ratios_and_the_names_of_the_countries(method: str, solver: str):
    text("foods.csv", FOODS)
    result = fit(*COUNTRIES, "--method", method, *(["-k", "linear"] if method == "kernel" else []), "-n", 4, *OUT)
    found = loaded()
    np.testing.assert_allclose(found["explained_variance_ratio"], [0.67444, 0.29052, 0.03503, 0], atol=5e-6)
    assert list(found["sample_names"]) == ["England", "Wales", "Scotland", "N.Ireland"]
    assert list(found["feature_names"][:2]) == ["Cheese", "Carcass_meat"]
    assert found["scores"].shape == (4, 4)
    for word in (
        "0.67444",
        "0.96497",
        "variance ratio",
        "residual",
        solver,
        "header: line 1",
        "rows: 4; features: 17 (Cheese … Confectionery); names",
    ):
        assert word in result.stdout
    # The warning is one tidy line without path and class.
    assert result.stderr.startswith("warning: fewer components carry variance than were requested")
    assert result.stderr.count("\n") == 1
    assert ".py" not in result.stderr


def test_the_file_of_a_scaled_pca_projects_a_new_point(rng: np.random.Generator):
    X = plane(rng)
    np.save("x.npy", X)
    fit("x.npy", "--method", "pca", "-n", 3, "--whiten", "--scale", *OUT)
    found = loaded()
    centered = (X - found["mean"]) / found["scale"]
    point = centered @ found["components"].T / np.sqrt(found["explained_variance"])
    np.testing.assert_allclose(point, found["scores"], atol=1e-10)


def test_a_bandwidth_that_isolates_every_sample_is_a_warning():
    assert "K is nearly the identity" in fit("digits", "-n", 2, *OUT).stderr
    assert "K is nearly the identity" not in fit("digits", "-n", 2, "--gamma", "scale", "-o", "t.npz").output
    raw = fit("wine", "-n", 2, "-o", "u.npz").stderr
    assert "--scale" in raw
    assert "--gamma" not in raw
    assert fit("wine", "-n", 2, "--scale", "-o", "v.npz").stderr == ""


def test_constant_columns_are_only_centered():
    np.save("x.npy", np.array([[0.1, 2.0], [0.1, 3], [0.1, 7]]))
    out = fit("x.npy", "-k", "linear", "-n", 1, "--scale", *OUT).stdout
    assert "columns to mean 0 and standard deviation 1 (over n - 1)" in out
    np.testing.assert_allclose(loaded()["eigenvalues"], [2.0])


@pytest.mark.parametrize("unit", [1e-200, 1e200])
def test_a_variance_beyond_float64_is_an_error(unit: float):
    np.save("x.npy", np.array([[1.0, 2.0 * unit], [2.0, unit], [4.0, unit]]))
    assert "--scale: the variance of column 1 is beyond" in refused("fit", "x.npy", "-n", 1, "--scale", *OUT)


@pytest.mark.parametrize("options", [("-k", "rbf"), ("--method", "pca"), ("--solver", "nystrom")])
@pytest.mark.parametrize("unit", [1e-3, 1e4])
def test_residuals_are_shown_relative_to_the_first(rng: np.random.Generator, options: tuple, unit: float):
    np.save("x.npy", unit * rng.standard_normal((60, 3)))
    out = fit("x.npy", *options, "-n", 2, *OUT, *(() if "pca" in options else ("--gamma", "scale"))).stdout
    found = loaded()
    values = found["eigenvalues" if "eigenvalues" in found else "explained_variance"]
    rows = [line.split() for line in out.splitlines() if line.strip()[:2] in ("1 ", "2 ")]
    assert [row[-1] for row in rows] == [f"{residual / values[0]:.1e}" for residual in found["residual_norms"]]
    assert "relative residual" in out


def test_scores_as_csv_read_back_exactly():
    text("foods.csv", FOODS)
    for path in ("s.csv", "s.npz"):
        fit("foods.csv", "-k", "linear", "-n", 2, "--index-column", 0, "-o", path)
    again = read_input("s.csv", index_column="sample")
    np.testing.assert_array_equal(again.X, loaded()["scores"])
    assert again.feature_names == ("component_1", "component_2")
    assert again.sample_names[1] == "Carcass_meat"


def test_quiet_is_quiet_and_bundled_sets_have_labels():
    assert fit("iris", "-n", 2, "--quiet", *OUT).output == ""
    assert set(loaded()["labels"]) == {"setosa", "versicolor", "virginica"}


def test_options_that_the_kernel_does_not_read_are_named():
    result = fit("iris", "-k", "linear", "-n", 2, "--gamma", 3, "-q", *OUT)
    assert result.stderr == "warning: --gamma is not used by the kernel linear.\n"


def test_the_report_names_the_columns_that_are_features():
    text("x.csv", "id,age,name,x,y\n7,20,a,1,2\n8,21,b,3,4\n")
    assert "features: 4 (id … y); labels: name\n" in fit("x.csv", "--label-column", "name", "-n", 1, *OUT).stdout
    assert "rows: 2; features: 3 (age … y)\n" in fit("x.csv", "--drop", "id,name", "-n", 1, "-o", "t.npz").stdout
    text("wide.csv", ",".join(f"v{i}" for i in range(100)) + "\n" + 3 * (",".join(map(str, range(100))) + "\n"))
    out = fit("wide.csv", "--method", "pca", "--drop", "99", "-n", 1, "-o", "u.npz").stdout
    assert "features: 99 (v0 … v98)\n" in out


# -- numbers of components ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "shape", "options", "p"),
    [
        ("kernel", (30, 40), (), 10),
        ("kernel", (3, 40), (), 3),
        ("kernel", (30, 14), ("-n", "all"), 29),
        ("pca", (30, 40), (), 10),
        ("pca", (30, 4), (), 4),
        ("pca", (3, 40), (), 3),
        ("pca", (30, 14), ("-n", "all"), 14),
        ("ppca", (30, 4), (), 3),
        ("local", (30, 4), (), 2),
    ],
)
def test_the_default_number_of_components(rng: np.random.Generator, method: str, shape: tuple, options: tuple, p: int):
    np.save("x.npy", rng.standard_normal(shape))
    fit("x.npy", "--method", method, *options, *OUT)
    assert loaded()["scores"].shape == (shape[0], p)


def test_a_share_shows_twenty_rows_and_counts_the_rest(rng: np.random.Generator):
    np.save("x.npy", rng.standard_normal((60, 40)))
    out = fit("x.npy", "-k", "linear", "-n", "0.95", *OUT).stdout
    p = loaded()["eigenvalues"].shape[0]
    assert p > 20
    assert f"and {p - 20} more; all {p} together carry 0.9" in out
    fit("x.npy", "--method", "pca", "-n", "0.5", "--force", *OUT)
    ratios = loaded()["explained_variance_ratio"]
    assert ratios.sum() > 0.5 > ratios[:-1].sum()


def test_minka_and_relevance_find_the_dimension(rng: np.random.Generator):
    np.save("x.npy", plane(rng, 300, 10))
    fit("x.npy", "--method", "pca", "-n", "mle", *OUT)
    assert facts()["n_components"] == 2
    out = fit("x.npy", "--method", "bayesian", "--plot", "b.png", "--force", *OUT).stdout
    assert "2 of 9 components are relevant" in out
    assert loaded()["scores"].shape == (300, 2)
    assert Path("b.png").stat().st_size > 10_000


def test_noise_without_a_relevant_direction_still_writes_and_shows_no_empty_table(rng: np.random.Generator):
    np.save("x.npy", rng.standard_normal((400, 5)))
    out = fit("x.npy", "--method", "bayesian", "--plot", "b.png", *OUT).stdout
    assert "0 of 4 components are relevant" in out
    assert "variance ratio" not in out
    assert loaded()["scores"].shape == (400, 0)
    assert Path("b.png").exists()
    fit("x.npy", "--method", "bayesian", "-o", "s.csv")
    assert Path("s.csv").read_text(encoding="utf-8").splitlines()[:3] == ["sample", "1", "2"]


def test_local_selects_by_the_criterion_and_numbers_clusters_as_the_files():
    out = fit("iris", "--method", "local", "--clusters", "bic", "-n", 1, *OUT).stdout
    assert "each with 1 component: the smallest BIC of" in out
    metadata = facts()
    best = f"{metadata['n_clusters']} clusters, {metadata['n_components']} components"
    assert len(metadata["bic"]) > 1
    assert min(metadata["bic"], key=metadata["bic"].get) == best
    numbers = [line.split()[0] for line in out.splitlines() if line.split() and line.split()[0].isdigit()]
    assert numbers == [str(number) for number in np.unique(loaded()["clusters"])]


# -- missing cells -----------------------------------------------------------------------------------------------------


def test_missing_cells_of_a_table_are_accepted_by_latent_methods_alone():
    text("t.csv", HOLES)
    out = fit("t.csv", "--method", "ppca", "-n", 1, "--index-column", "name", *OUT).stdout
    assert "4 of 21 cells" in out
    assert "solver      em\niterations  " in out
    X = read_input("t.csv", index_column="name", missing=True).X
    assert np.sum(np.isnan(X)) == facts()["missing"] == 4
    np.testing.assert_array_equal(loaded()["scores"], ProbabilisticPCA(1, random_state=0).fit_transform(X))
    message = refused("fit", "t.csv", "--index-column", "name", *OUT, "--force")
    assert "line 2, column 4 (c): 'NA' is a missing value" in message
    assert "or --method ppca or bayesian, which take missing values" in message


@each("mark", ["", "NA", "NaN", "nAn", "#N/A", "<NA>", "n/a", "null", "-", "?"])
def test_every_usual_mark_of_a_missing_cell_is_known(mark: str):
    X = read_input(text("t.csv", HOLES.replace("6.5", mark)), index_column="0", missing=True).X
    assert np.argwhere(np.isnan(X)).tolist() == [[0, 2], [1, 1], [2, 1], [3, 2], [5, 0]]


def test_text_and_infinity_in_a_table_with_missing_cells_are_still_errors():
    for cell in ("six", "-inf", "1e400"):
        text("t.csv", HOLES.replace("6.5", cell))
        message = refused("fit", "t.csv", "--method", "ppca", "-n", 1, "--index-column", 0, *OUT)
        assert f"line 4, column 3 (b): {cell!r} is not a number, or not a finite one" in message


def test_missing_numbers_of_a_matrix_and_standardized_columns(rng: np.random.Generator):
    X = plane(rng) * [1e-3, 1.0, 10.0, 1e3, 1e5, 1.0]
    X[rng.random(X.shape) < 0.1] = np.nan
    np.save("x.npy", X)
    fit("x.npy", "--method", "ppca", "-n", 2, "--scale", *OUT)
    Z = (X - np.nanmean(X, axis=0)) / np.nanstd(X, axis=0, ddof=1)
    scores = ProbabilisticPCA(2, random_state=0).fit_transform(Z)
    np.testing.assert_allclose(loaded()["scores"], scores, atol=1e-9)
    assert "NaN" in refused("fit", "x.npy", "--method", "pca", "-n", 2, *OUT, "--force")


# -- plans and pictures ------------------------------------------------------------------------------------------------


def test_the_plan_is_printed_and_nothing_written():
    out = done("plan", "digits", "--method", "pca", "-n", 5, "--memory-limit", "1GiB").stdout
    for word in ("1797 x 64", "covariance_eigh", "5 components", "1.0 GiB allowed"):
        assert word in out
    assert not list(Path().iterdir())
    for method in ("ppca", "bayesian", "local"):
        assert f"--method {method} has no plan" in refused("plan", "iris", "--method", method)


def test_the_plan_of_a_shape_needs_no_input():
    shape = ("--samples", "1e6", "--features", 100)
    same = ("-n", 20, "--memory-limit", "64GiB", "--n-jobs", 2)
    plan = json.loads(done("plan", *shape, "--dtype", "float32", "--gamma", "scale", *same, "--json").stdout)
    expected = KernelPCA(20, kernel="rbf", gamma="scale", memory_limit="64GiB", n_jobs=2, copy_X=False)
    assert plan == expected.plan((1_000_000, 100), dtype="float32").to_dict()
    assert json.loads(done("plan", *shape, "--method", "pca", *same, "--json").stdout)["method"] == "covariance_eigh"
    assert "1000000 x 100, float64" in done("plan", *shape, "--method", "pca").stdout
    assert json.loads(done("plan", *shape, "--json", *same[2:]).stdout)["n_components"] == 10
    assert json.loads(done("plan", "iris", "--json").stdout)["n_samples"] == 150
    assert done("plan", "iris").stdout.startswith("input     iris, bundled with scikit-learn; rows: 150; features: 4")


def test_a_plan_has_an_input_or_a_shape():
    shape = ("--samples", 30, "--features", 3)
    for arguments, words in (
        ((), "there is nothing to plan; give INPUT, or both --samples and --features"),
        (("iris", *shape), "contradict each other"),
        (shape[:2], "both --samples and --features"),
        (shape[2:], "both --samples and --features"),
        (("--samples", 1.5, "--features", 3), "'1.5' is not a whole number from 1 on"),
        (("--samples", 0, "--features", 3), "'0' is not a whole number"),
        (("--samples", "inf", "--features", 3), "'inf' is not a whole number"),
        (("--samples", "1e40", "--features", 3), "no shape of data"),
        ((*shape, "--key", "x"), "--key: a plan by --samples"),
        ((*shape, "--transpose"), "--transpose: a plan by --samples"),
        ((*shape, "--scheduler", "tcp://x:1"), "--scheduler: a plan by --samples"),
        ((*shape, "--kernel", "precomputed"), "must be square"),
        ((*shape, "--memory-limit", "1KB", "--json"), "are allowed or free"),
    ):
        assert words in refused("plan", *arguments), arguments


@pytest.mark.parametrize("suffix", ["png", "pdf", "svg"])
def test_a_picture_may_be_all_that_is_written(suffix: str):
    out = fit("iris", "-n", 2, "--plot", f"p.{suffix}").stdout
    content = Path(f"p.{suffix}").read_bytes()
    assert len(content) > 5000
    assert {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<svg"}[suffix] in content[:1000]
    assert out.splitlines()[-1].split() == ["written", f"p.{suffix}"]
    assert len(list(Path().iterdir())) == 1


def test_the_title_says_what_was_done():
    text("foods.csv", FOODS)
    fit(*COUNTRIES, "--method", "pca", "--whiten", "--scale", "-n", 2, *OUT, "--plot", "p.svg")
    assert "foods, PCA of standardized columns, whitened, n = 4" in Path("p.svg").read_text(encoding="utf-8")


def test_images_are_drawn_as_images():
    np.save("x.npy", load_digits().data[:50])
    fit("x.npy", "--method", "pca", "-n", 4, "--image-shape", "8,8", *OUT, "--plot", "p.svg")
    assert Path("p.svg").read_text(encoding="utf-8").count("<image ") >= 8


def test_two_columns_of_a_table_name_the_axes_as_they_are_written():
    rows = read_input("iris").X[:, :2]
    text("t.csv", "$a_b,c\n" + "".join(f"{x},{y}\n" for x, y in rows))
    fit("t.csv", "--method", "local", "-n", 1, "--plot", "l.svg", *OUT)
    drawn = Path("l.svg").read_text(encoding="utf-8")
    assert "<!-- $a_b -->" in drawn
    assert "<!-- c -->" in drawn


def test_the_name_of_the_labels_is_on_the_scores_alone():
    rows = [f"{i % 7},{i * i % 11}" for i in range(30)]
    for name, labels in (("kind", "uvw"), ("depth", [f"{i}.5" for i in range(30)])):
        table = [f"a,b,{name}", *(f"{row},{labels[i % len(labels)]}" for i, row in enumerate(rows))]
        text("t.csv", "\n".join(table))
        fit("t.csv", "--label-column", name, "-n", 2, "--plot", "p.svg", "--force")
        assert Path("p.svg").read_text(encoding="utf-8").count(f"<!-- {name} -->") == 1


# -- parameters without an option --------------------------------------------------------------------------------------

SETTINGS: list[tuple[str, Any]] = [
    ("-k matern --set nu=2.5 --gamma 0.5", KernelPCA(2, kernel="matern", gamma=0.5, kernel_params={"nu": 2.5})),
    (
        "-k rational_quadratic --set alpha=3",
        KernelPCA(2, kernel="rational_quadratic", kernel_params={"alpha": 3}),
    ),
    ("--method local --set method=hard --set n_init=2", LocalPCA(2, 2, method="hard", n_init=2)),
    ("-k poly --set coef0=2 --gamma 0.1", KernelPCA(2, kernel="poly", coef0=2, gamma=0.1)),
    ("-k rbf --gamma 1 --set gram=tiled", KernelPCA(2, kernel="rbf", gamma=1, gram="tiled")),
    (
        "-k rbf --gamma 1 --solver nystrom --rank 9 --set landmarks=uniform",
        KernelPCA(2, kernel="rbf", gamma=1, eigen_solver=Nystrom(rank=9, landmarks="uniform")),
    ),
    ("--method pca --set center=false --set scale=true", PCA(2, center=False, scale=True)),
    ("-k rbf --gamma 1 --set center=false", KernelPCA(2, kernel="rbf", gamma=1, center=False)),
    ("--method ppca --set solver=em", ProbabilisticPCA(2, solver="em")),
]


def test_parameters_without_an_option_are_set_by_name():
    X = read_input("iris").X
    for options, model in SETTINGS:
        fit("iris", "-n", 2, *options.split(), "-o", "s.npz", "--force", "-q")
        np.testing.assert_array_equal(loaded()["scores"], model.set_params(random_state=0).fit_transform(X))
    assert facts()["parameters"]["solver"] == "em"
    assert "nu=2.5" in done("plan", "iris", "-n", 2, "-k", "matern", "--set", "nu=2.5").stdout


def test_settings_are_checked_before_the_input_is_read():
    for options, expected in (
        ("--set nu", "'nu' is no setting; give NAME=VALUE, such as nu=2.5"),
        ("-k matern --set nu=-1", "Matern: --set nu=-1 is not allowed; nu must be"),
        ("-k matern --set nu=abc", "Matern: --set nu='abc' is not allowed"),
        ("-k rbf --set nu=2", "--set nu: there is no such parameter with these options; there are alpha, "),
        ("--method pca --set n_oversample=2", "Did you mean 'n_oversamples'?"),
        ("-k rbf --set coef0=2", "--set coef0: there is no such parameter"),
        ("--set landmarks=uniform", "--set landmarks: there is no such parameter"),
        ("--set gamma=2", "--set gamma: give the option --gamma"),
        ("--set verbose=2", "--set verbose: there is no such parameter"),
        ("--method local --set method=hrd", "LocalPCA: --set method='hrd' is not allowed"),
        ("--method pca --set center=false --scale", "give --set scale=true in place of --scale"),
        ("--method ppca --set center=false", "--set center: there is no such parameter"),
        ("--method ppca --set solver=none", "ProbabilisticPCA: --set solver=None is not allowed"),
    ):
        assert expected in refused("fit", "absent.csv", *options.split(), *OUT)


# -- options of methods ------------------------------------------------------------------------------------------------

VALUES = {"kernel": "rbf", "preimage": "ridge", "solver": "em"}
VALUES |= {"image_shape": "2x2", "checkpoint": "c", "scheduler": "tcp://x:1", "components": "1,3"}
OPTIONS = {option.name: option for option in commands.fit.params if isinstance(option, click.Option)}


@pytest.mark.parametrize("method", METHODS)
def test_options_of_other_methods_are_refused(method: str):
    for name in sorted({name for one in METHODS.values() for name in one.options}):
        option = OPTIONS[name]
        if name not in METHODS[method].options:
            value = [] if option.is_flag else [VALUES.get(name, "3")]
            message = refused("fit", "iris", "--method", method, option.opts[-1], *value, *OUT, "--plot", "p.png")
            assert f"{option.opts[-1]} does not apply to --method {method}; it is for --method " in message
        owners = ", ".join(one.name for one in METHODS.values() if name in one.options)
        assert option.help.startswith(f"[{owners}] ")
