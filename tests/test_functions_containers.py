"""One table of public functions and containers of rows: the number of the array, or a sentence that names a way out.

A cell is never a raw error of another library, and a set on a disk is read whole only where the documentation says so.
"""

from __future__ import annotations

import inspect
import re
import traceback
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from sklearn.base import clone

from gpukpca import (
    PCA,
    BayesianPCA,
    IncrementalPCA,
    KernelPCA,
    KernelPCACV,
    LocalPCA,
    Nystrom,
    ProbabilisticPCA,
    double_center,
    gram_matrix,
    kernel_matmat,
    residuals,
    variable_correlations,
)
from gpukpca.algorithms import Resources, fit_kernel_pca, fit_pca
from gpukpca.decomposition import (
    inertia,
    intrinsic_dimension,
    reconstruction,
    reconstruction_error,
    squared_cosines,
)
from gpukpca.exceptions import MemoryBudgetError
from gpukpca.gram import CenteredGram, DenseGram, TiledGram
from gpukpca.kernels import RBF, Kernel, Linear, Precomputed, is_psd
from gpukpca.model_selection import n_components_for
from tests.containers import CONTAINERS, Slices, halves
from tests.test_public_api import ROOMS

N, D, P = 60, 4, 2
GAMMA = 1e-3
# Parameters that hold rows, by which the public functions of the table are found.
ROWS = ("X", "Y", "K", "V", "F", "Z", "X_new", "scores", "model_or_X")
# What has such a parameter and is not in the table, with the reason.
OF_THE_LIBRARY = "the library calls it with checked rows"
OMITTED = {
    **dict.fromkeys(["Resources.check_copy", "Resources.for_fit"], OF_THE_LIBRARY),
    **dict.fromkeys(["KernelPCAFit", "KernelPCAFit.of_eigenpairs", "PCAFit"], "a result"),
    **{f"CenteredGram.{method}": "a block of vectors" for method in ("project", "rooted")},
    "SymmetricOperator.project": "a block of vectors",
    "to_device": "an array of any dimension",
}
# Methods of kernels that the library calls with checked rows.
HOOKS = ("features", "prepare", "prepare_rows", "resolve", "row_factors", "template")


# Containers of the same rows; all hold whole numbers, so that every type holds them exactly.
SETS = ("set", "set of NumPy", "set of integers", "set of masked rows", "sparse set")
BATCHES = ("batches", "short batches", "sparse batches", "generator", "iterable", "loader")
# What holds no rows: refused everywhere, or empty where there are none.
NO_ROWS: dict[str, Callable[[np.ndarray], Any]] = {
    "1-d": lambda rows: rows[0],
    "3-d": lambda rows: rows[None],
    "empty": lambda rows: rows[:0],
    "no columns": lambda rows: rows[:, :0],
    "empty list": lambda rows: [],
    "list of arrays": halves,
    "None": lambda rows: None,
    "text": lambda rows: "rows.npy",
    "number": lambda rows: 3.0,
    "masked entries": lambda rows: np.ma.MaskedArray(rows, mask=rows == rows[0, 0]),
    "set of masked entries": lambda rows: Slices(np.ma.MaskedArray(rows, mask=rows == rows[0, 0])),
}


@pytest.fixture(scope="module")
def X() -> np.ndarray:
    rng = np.random.default_rng(3)
    return (rng.integers(0, 8, (N, D)) ** 2 * [4, 3, 2, 1]).astype(np.float64)  # skew, so that signs are sure


def models(X: np.ndarray) -> dict[str, Any]:
    """Every estimator, fitted to X; "of K" to the linear kernel matrix."""
    rbf = {"kernel": "rbf", "gamma": GAMMA}
    made = {
        "PCA": PCA(P),
        "ProbabilisticPCA": ProbabilisticPCA(P),
        "BayesianPCA": BayesianPCA(P),
        "IncrementalPCA": IncrementalPCA(P),
        "KernelPCA": KernelPCA(P, preimage="ridge", **rbf),
        "KernelPCA by landmarks": KernelPCA(P, eigen_solver=Nystrom(landmarks=X[::2]), **rbf),
        "KernelPCACV": KernelPCACV(gammas=[GAMMA], n_components=[P], cv=2),
        "LocalPCA": LocalPCA(2, P, n_init=1, random_state=0),
    }
    found = {name: model.fit(X) for name, model in made.items()}
    return found | {"KernelPCA of a matrix": KernelPCA(P, kernel="precomputed").fit(X @ X.T)}


# The value of a cell: from rows in a container to numbers.
Cell = Callable[[Any], Any]


def cell_of(name: str, model: Any, method: str, X: np.ndarray) -> tuple[str, Cell]:
    """The kind of rows that a method of an estimator takes, and its cell."""
    kind = "K" if "matrix" in name else "scores" if method == "inverse_transform" else "X"
    more: dict[str, Any] = {}
    if (name, method) == ("LocalPCA", "inverse_transform"):
        more["labels"] = np.zeros(N, dtype=np.int64)
    if (name, method) == ("KernelPCA of a matrix", "feature_space_error"):
        more["diagonal"] = np.sum(X**2, axis=1)

    def cell(rows: Any) -> Any:
        if method == "plan":
            plan = clone(model).plan(rows)
            return plan.n_samples, plan.n_features
        if method in ("fit", "partial_fit"):
            return getattr(clone(model), method)(rows).transform(X @ X.T if kind == "K" else X)
        if method in ("fit_transform", "fit_predict"):
            return getattr(clone(model), method)(rows)
        return getattr(model, method)(rows, **more)

    return kind, cell


def functions(X: np.ndarray) -> dict[str, tuple[str, Cell]]:
    """Every cell by the name of its function, and what follows a comma: the argument or the model."""
    fitted, kernel, V = models(X), RBF(GAMMA), X[:, :P].copy()
    table: dict[str, tuple[str, Cell]] = {}
    for name, model in fitted.items():
        for method in methods_of(type(model)):
            if hasattr(model, method):
                path = f"{type(model).__name__}.{method}{name.removeprefix(type(model).__name__).replace(' ', ', ', 1)}"
                table[path] = cell_of(name, model, method, X)
    pca, kpca = fit_pca(X, P), fit_kernel_pca(X, kernel, P)
    table |= {
        "double_center": ("K", double_center),
        "gram_matrix": ("X", lambda rows: gram_matrix(kernel, rows)),
        "gram_matrix, Y": ("X", lambda rows: gram_matrix(kernel, X, rows)),
        "kernel_matmat": ("X", lambda rows: kernel_matmat(kernel, rows, X, V)),
        "kernel_matmat, Y": ("X", lambda rows: kernel_matmat(kernel, X, rows, V)),
        "kernel_matmat, V": ("scores", lambda rows: kernel_matmat(kernel, X, X, rows)),
        "residuals": ("X", lambda rows: residuals(fitted["PCA"], rows).rayleigh_quotients),
        "residuals, kernel": ("X", lambda rows: residuals(fitted["KernelPCA"], rows).rayleigh_quotients),
        "residuals, matrix": ("K", lambda rows: residuals(fitted["KernelPCA of a matrix"], rows).rayleigh_quotients),
        "residuals, scores": ("scores", lambda rows: residuals((kernel, rows), X).rayleigh_quotients),
        "variable_correlations": ("X", lambda rows: variable_correlations(fitted["PCA"], rows)),
        "variable_correlations, Y": ("X", lambda rows: variable_correlations(fitted["PCA"], X, rows)),
        "fit_pca": ("X", lambda rows: fit_pca(rows, P).transform(X)),
        "PCAFit.transform": ("X", pca.transform),
        "PCAFit.inverse_transform": ("scores", pca.inverse_transform),
        "PCAFit.log_density": ("X", pca.log_density),
        "fit_kernel_pca": ("X", lambda rows: fit_kernel_pca(rows, kernel, P).transform(X)),
        "fit_kernel_pca, matrix": ("K", lambda rows: fit_kernel_pca(rows, Precomputed(), P).transform(X @ X.T)),
        "KernelPCAFit.transform": ("X", kpca.transform),
        "Resources.for_data": ("X", lambda rows: float(Resources.for_data(rows, memory_limit="1GiB").limit)),
        "inertia": ("X", inertia),
        "intrinsic_dimension": ("X", lambda rows: intrinsic_dimension(rows).per_sample),
        "reconstruction": ("X", lambda rows: reconstruction(fitted["PCA"], rows)),
        "reconstruction_error": ("X", lambda rows: reconstruction_error(fitted["PCA"], rows)),
        "squared_cosines": ("X", lambda rows: squared_cosines(fitted["PCA"], rows)),
        "CenteredGram.of_kernel": ("X", lambda rows: CenteredGram.of_kernel(kernel, rows) @ V),
        "TiledGram": ("X", lambda rows: TiledGram(kernel, rows) @ V),
        "DenseGram": ("K", lambda rows: DenseGram(rows) @ V),
        "Kernel.__call__": ("X", kernel),
        "Kernel.__call__, Y": ("X", lambda rows: kernel(X, rows)),
        "Kernel.diagonal": ("X", Linear().diagonal),
        "Precomputed.__call__": ("K", Precomputed()),
        "Precomputed.diagonal": ("K", Precomputed().diagonal),
        "is_psd": ("X", lambda rows: float(is_psd(kernel, rows))),
        "n_components_for": ("X", lambda rows: float(n_components_for(rows, "variance", 0.9))),
    }
    return table


def pictures(X: np.ndarray) -> dict[str, tuple[str, Cell]]:
    """The cells of functions that draw."""
    from gpukpca import plotting

    model, local, V = PCA(P).fit(X), LocalPCA(2, 1, random_state=0).fit(X), X[:, :P].copy()
    flat = PCA(P).fit(V)
    grid = np.linspace(0.0, 1.0, 5), np.linspace(0.0, 1.0, 5)
    values = np.zeros((1, 5, 5))
    return {
        "AxesDisplay": ("X", lambda rows: plotting.AxesDisplay(model, rows).points),
        "AxesDisplay, local": ("X", lambda rows: plotting.AxesDisplay(local, rows).points),
        "AxesDisplay.from_estimator": ("X", lambda rows: plotting.AxesDisplay.from_estimator(model, rows).points),
        "BiplotDisplay": ("scores", lambda rows: plotting.BiplotDisplay(rows, np.eye(P)).scores),
        "BiplotDisplay.from_estimator": ("X", lambda rows: plotting.BiplotDisplay.from_estimator(model, rows).scores),
        "ContoursDisplay": ("scores", lambda rows: plotting.ContoursDisplay(grid, values, [1.0], rows).X),
        "ContoursDisplay.from_estimator": (
            "scores",
            lambda rows: plotting.ContoursDisplay.from_estimator(flat, rows, n_components=1).X,
        ),
        "ImageRowsDisplay.from_estimator": (
            "X",
            lambda rows: list(plotting.ImageRowsDisplay.from_estimator(model, rows, (2, 2)).rows.values()),
        ),
        "ScoresDisplay": ("scores", lambda rows: plotting.ScoresDisplay(rows).scores),
        "ScoresDisplay.from_estimator": ("X", lambda rows: plotting.ScoresDisplay.from_estimator(model, rows).scores),
        "plot_fit": ("X", lambda rows: len(plotting.plot_fit(model, rows).axes)),
        "plot_images": ("X", lambda rows: len(plotting.plot_images(model, rows, (2, 2)).axes)),
    }


def methods_of(cls: type) -> list[str]:
    """Public methods of a class with a parameter of rows, inherited ones too."""
    found = []
    for name in dir(cls):
        member = inspect.getattr_static(cls, name)
        if (name[0] == "_" and name != "__call__") or re.fullmatch(r"set_\w+_request", name):
            continue
        member = getattr(cls, name) if not isinstance(member, property) else None
        if callable(member) and takes_rows(member):
            found.append(name)
    return found


def takes_rows(function: Callable[..., Any]) -> bool:
    return bool(set(inspect.signature(function).parameters) & set(ROWS))


def public_names() -> set[str]:
    """Every public function, class and method that takes rows, but inherited methods of public classes."""
    found, classes = set(), set()
    for room in ROOMS:
        for name in import_module(room).__all__:
            value = getattr(import_module(room), name)
            if inspect.isclass(value):
                classes.add(value)
            elif inspect.isroutine(value) and takes_rows(value):
                found.add(name)
    for cls in classes:
        if takes_rows(cls):
            found.add(cls.__name__)
        for name in methods_of(cls):
            bases = [base for base in cls.__mro__[1:] if base in classes]
            inherited = any(getattr(base, name, None) is getattr(cls, name) for base in bases)
            if not inherited and not (issubclass(cls, Kernel) and name in HOOKS):
                found.add(f"{cls.__name__}.{name}")
    return found


def test_every_public_function_of_rows_is_in_the_table(X: np.ndarray) -> None:
    pytest.importorskip("matplotlib")
    named = {name.partition(",")[0] for name in (*functions(X), *pictures(X))}
    public = public_names()
    assert sorted(public - named - set(OMITTED)) == [], "a cell is missing: put the function into the table"
    assert sorted(set(OMITTED) - public) == []
    assert sorted(named - public) == []


# -- cells -------------------------------------------------------------------------------------------------------------

# Functions that read a set whole, as their documentation says.
WHOLE = {
    *(f"KernelPCA.{method}" for method in ("fit", "fit_transform")),
    *(f"KernelPCA.{method}, of a matrix" for method in ("fit", "fit_transform", "plan")),
    *(f"LocalPCA.{method}" for method in ("fit", "fit_predict", "fit_transform")),
    *("KernelPCACV.fit", "KernelPCACV.fit_transform", "fit_kernel_pca", "fit_kernel_pca, matrix"),
    *("double_center", "gram_matrix", "gram_matrix, Y", "CenteredGram.of_kernel"),
    *("kernel_matmat, V", "TiledGram", "DenseGram"),
    *("Kernel.__call__", "Kernel.__call__, Y", "Kernel.diagonal", "Precomputed.__call__", "Precomputed.diagonal"),
    *("is_psd", "residuals, matrix", "residuals, scores"),
    *(
        "AxesDisplay",
        "AxesDisplay, local",
        "AxesDisplay.from_estimator",
        "ImageRowsDisplay.from_estimator",
        "plot_images",
    ),
    *("ContoursDisplay", "ContoursDisplay.from_estimator", "BiplotDisplay", "ScoresDisplay"),
}
FITS = ("fit", "fit_transform", "partial_fit")
# Results that depend on the cuts of batches, or on another solver; shapes alone are compared.
DIFFERENT = {
    *((f"IncrementalPCA.{method}", name) for method in FITS for name in (*BATCHES, *SETS)),
    *(("IncrementalPCA.partial_fit", name) for name in CONTAINERS if name.startswith("Dask")),  # of its chunks
    *(("KernelPCA.partial_fit, by landmarks", name) for name in (*SETS, *BATCHES)),  # other signs
    *(("KernelPCA.partial_fit, by landmarks", name) for name in CONTAINERS if name.startswith("Dask")),  # of its chunks
}
# Cells that give a number where there are no rows, with the reason.
EMPTY_IS_RIGHT = {
    *(
        ("Resources.for_data", name) for name in ("empty", "no columns", "masked entries", "set of masked entries")
    ),  # the place alone
    *((name, "None") for name in ("ProbabilisticPCA.posterior_covariance", "BayesianPCA.posterior_covariance")),
    *((name, "None") for name in ("Kernel.__call__, Y", "gram_matrix, Y", "variable_correlations, Y")),  # the default
}
WAYS = re.compile(
    r"\b(pass|give|call|reshape|use|leave|set|choose|turn|join|fit|convert|read|wrap|take|fill|drop|move|must|needs?"
    r"|minimum of 1)\b",
    re.IGNORECASE,
)


def numbers(result: Any) -> list[np.ndarray]:
    """The arrays of a result."""
    if hasattr(result, "compute"):
        result = result.compute()
    if isinstance(result, (tuple, list)):
        return [array for part in result for array in numbers(part)]
    return [np.asarray(result.toarray() if scipy.sparse.issparse(result) else result, dtype=np.float64)]


def refusal(error: Exception) -> str:
    """What is wrong with an error of a cell; empty for a sentence of the library."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    text = str(error)
    if not isinstance(error, (ValueError, TypeError, MemoryBudgetError)) or isinstance(error, IndexError):
        return f"{type(error).__name__} is no error of an argument"
    if not re.search(r"/(gpukpca|sklearn)/", where.filename.replace("\\", "/")):
        return f"raised by {where.filename}:{where.lineno}"
    return "" if WAYS.search(text) else "names no way out"


def table_of(cells: dict[str, tuple[str, Cell]], X: np.ndarray, folder: Path) -> Iterator[tuple[str, str, str]]:
    """The cells that are wrong: function, container, and what is wrong."""
    given = {"X": X, "scores": X[:, :P].copy(), "K": X @ X.T}
    for name, (kind, cell) in cells.items():
        expected = numbers(cell(given[kind]))
        for container, make in CONTAINERS.items():
            if container == "CSR matrix" and kind != "K":
                continue
            rows = make(given[kind], folder)
            try:
                found = numbers(cell(rows))
            except Exception as error:
                if wrong := refusal(error):
                    yield name, container, f"{wrong}: {type(error).__name__}: {error}"
                continue
            shapes = [one.shape for one in found], [one.shape for one in expected]
            if shapes[0] != shapes[1]:
                yield name, container, f"shapes {shapes}"
            elif (name, container) not in DIFFERENT:
                room = 2e-4 if container == "float32" else 1e-8
                off = max(
                    float(np.max(np.abs(a - b), initial=0.0)) / max(float(np.max(np.abs(b), initial=0.0)), 1e-300)
                    for a, b in zip(found, expected, strict=True)
                )
                if not off <= room:
                    yield name, container, f"another number, off by {off:.1e}"
            is_sample = name.endswith(", by landmarks")  # of 2000 rows, of which landmarks are chosen
            if isinstance(rows, Slices) and rows.most >= N and name not in WHOLE and not is_sample:
                yield name, container, "the set is read whole"
        for container, of in NO_ROWS.items():
            try:
                found = numbers(cell(of(given[kind])))
            except Exception as error:
                if wrong := refusal(error):
                    yield name, container, f"{wrong}: {type(error).__name__}: {error}"
                continue
            is_missing = container.endswith("masked entries") and name.startswith(("ProbabilisticPCA", "BayesianPCA"))
            if any(one.size for one in found) and not is_missing and (name, container) not in EMPTY_IS_RIGHT:
                yield name, container, "a number of no rows"


@pytest.mark.filterwarnings("ignore")
def test_a_cell_is_the_number_of_the_array_or_a_sentence(X: np.ndarray, sizes: Any, tmp_path: Path) -> None:
    sizes(READ_ENTRIES=12 * D, PLAN_ROWS=20, EM_BATCH_ENTRIES=20 * D, UPDATE_ENTRIES=20 * D, CPU_TILE_EDGE=16)
    wrong = [f"{name} of {container}: {what}" for name, container, what in table_of(functions(X), X, tmp_path)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.filterwarnings("ignore")
def test_a_picture_is_that_of_the_array_or_a_sentence(
    X: np.ndarray, sizes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plotting = pytest.importorskip("gpukpca.plotting", exc_type=ImportError)
    for name in plotting.__all__:
        if hasattr(cls := getattr(plotting, name), "plot"):
            monkeypatch.setattr(cls, "plot", lambda self, *_, **__: self)  # reading is tested, and drawing takes long
    sizes(READ_ENTRIES=12 * D)
    wrong = [f"{name} of {container}: {what}" for name, container, what in table_of(pictures(X), X, tmp_path)]
    assert not wrong, "\n".join(wrong)


def test_the_page_of_libraries_names_what_reads_a_set_whole() -> None:
    page = Path(__file__).parents[1] / "docs" / "reference" / "array_libraries.md"
    (line,) = [line for line in page.read_text(encoding="utf-8").splitlines() if "| read whole" in line]
    call = line.partition("| read whole")[0].replace("kernels", "`Kernel`")
    named = {name.partition(".")[0] for name in re.findall(r"`([\w.]+)`", call)} - {"fit", "Nystrom"}
    assert named == {name.partition(",")[0].partition(".")[0] for name in WHOLE}


class Unreadable(Slices):
    """A set whose rows are on a disk that is never read as a whole."""

    def __init__(self, shape: tuple[int, int], most: int) -> None:
        self.shape, self.dtype, self.allowed = shape, np.dtype("float64"), most

    def __getitem__(self, part: slice) -> np.ndarray:
        start, stop, _ = part.indices(self.shape[0])
        assert stop - start <= self.allowed, "the set is read"
        return np.random.default_rng(start).standard_normal((stop - start, self.shape[1]))


def test_a_fit_that_cannot_fit_refuses_before_it_reads_the_set() -> None:
    held = Unreadable((200_000, D), 1000)
    for fit in (
        KernelPCA(2, kernel="rbf", gamma=0.1, memory_limit="4MiB").fit,  # the rows alone take 6 MiB
        KernelPCA(2, kernel="rbf", gamma=0.1, memory_limit="9MiB").fit,  # these fit, and their products do not
        LocalPCA(2, 2, memory_limit="4MiB").fit,
        KernelPCACV(gammas=[GAMMA], n_components=[P], memory_limit="4MiB").fit,
    ):
        with pytest.raises(MemoryBudgetError, match=r"are allowed or free|predicted"):
            fit(held)
    far = Unreadable((10**12, D), 1)  # more than any machine has
    calls: tuple[Callable[[Any], Any], ...] = (
        lambda rows: gram_matrix(RBF(GAMMA), rows),
        RBF(GAMMA),
        lambda rows: is_psd(RBF(GAMMA), rows),
        lambda rows: KernelPCA(2, kernel="precomputed").fit(rows),
    )
    for call in calls:
        with pytest.raises(MemoryBudgetError, match=r"X takes 29\.2 TiB in memory, and .*gpukpca\.Nystrom"):
            call(far)


def test_sets_are_read_by_slices_with_all_arguments_of_a_row(X: np.ndarray, sizes: Any) -> None:
    sizes(READ_ENTRIES=7 * D)
    fitted = models(X)
    local, matrix, kernel = fitted["LocalPCA"], fitted["KernelPCA of a matrix"], fitted["KernelPCA"]
    labels, Z = local.predict(X), local.transform(X)
    np.testing.assert_array_equal(local.inverse_transform(Slices(Z), labels=labels), local.inverse_transform(Z, labels))
    diagonal = np.sum(X**2, axis=1)
    errors = matrix.feature_space_error(X @ X.T, diagonal=diagonal)
    for held in (Slices(X @ X.T), scipy.sparse.coo_array(X @ X.T)):
        found = matrix.feature_space_error(held, diagonal=diagonal)
        np.testing.assert_allclose(found, errors, atol=1e-9 * np.max(diagonal))
    points, info = kernel.denoise(Slices(X), return_info=True)
    np.testing.assert_allclose(points, kernel.denoise(X), rtol=1e-9)
    assert info.converged.shape == (N,)
    with pytest.raises(ValueError, match="labels must have an entry for each of 60 rows"):
        local.inverse_transform(Slices(Z), labels=labels[:3])
    missing = X.copy()
    missing[::7, 1] = np.nan
    latent, held = fitted["ProbabilisticPCA"], Slices(missing)
    np.testing.assert_allclose(latent.impute(held), latent.impute(missing), rtol=1e-12)
    np.testing.assert_allclose(latent.posterior_covariance(held), latent.posterior_covariance(missing), rtol=1e-12)
    assert held.most == 7


def test_partial_fit_adds_the_slices_of_a_set_with_their_weights(X: np.ndarray, sizes: Any) -> None:
    sizes(READ_ENTRIES=20 * D, UPDATE_ENTRIES=20 * D)
    weights = np.arange(N) % 3
    nystrom = KernelPCA(P, kernel="rbf", gamma=GAMMA, eigen_solver=Nystrom(rank=10), random_state=0)
    for model in (IncrementalPCA(P), nystrom):
        for given in (None, weights):
            held, loop = clone(model), clone(model)
            held.partial_fit(Slices(X), sample_weight=given)
            for start in range(0, N, 20):
                part = slice(start, start + 20)
                loop.partial_fit(X[part], sample_weight=None if given is None else given[part])
            np.testing.assert_array_equal(held.transform(X), loop.transform(X))
            assert held.n_samples_seen_ == (N if given is None else np.sum(weights))
        before = dict(vars(held))
        bad = X.copy()
        bad[45, 2] = np.inf
        with pytest.raises(ValueError, match=r"rows 40 to 59.*: .* row 45"):
            held.partial_fit(Slices(bad))
        assert vars(held) == before


def test_the_plan_of_a_set_says_that_it_is_read_whole(X: np.ndarray) -> None:
    exact, landmarks = KernelPCA(P, kernel="rbf"), KernelPCA(P, kernel="rbf", eigen_solver=Nystrom(rank=10))
    assert "the set is read whole, 1.9 KiB more" in str(exact.plan(Slices(X)))
    for plan in (exact.plan(X), landmarks.plan(Slices(X)), PCA(P).plan(Slices(X))):
        assert "read whole" not in str(plan)


def test_frames_of_a_set_are_made_of_its_slices(X: np.ndarray, sizes: Any) -> None:
    pandas = pytest.importorskip("pandas")
    sizes(READ_ENTRIES=7 * D)
    for model in (PCA(P), KernelPCA(P, kernel="rbf", gamma=GAMMA), LocalPCA(2, P, random_state=0)):
        scores, held = model.fit(X).transform(X), Slices(X)
        frame = model.set_output(transform="pandas").transform(held)
        assert isinstance(frame, pandas.DataFrame)
        np.testing.assert_allclose(frame.to_numpy(), scores, atol=1e-9 * np.max(np.abs(scores)))
        assert held.most == 7
