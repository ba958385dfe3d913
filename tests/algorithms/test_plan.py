"""The plan: decided before anything large is allocated, printable, held to the memory limit."""

from __future__ import annotations

import itertools
import json
import pickle
import re
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from gpukpca import PCA, KernelPCA, Nystrom, Plan, Progress
from gpukpca._formatting import format_allowance, format_bytes, format_need
from gpukpca.algorithms.resources import memory_text, parsed_bytes
from gpukpca.eigen import BlockKrylov, Dense
from gpukpca.exceptions import InvalidParameterError, MemoryBudgetError
from gpukpca.gram.storage import DenseStorage, Storage, TiledStorage
from gpukpca.gram.tiling import full_cache_bytes, tile_edge_for
from tests.algorithms.test_predicted_memory import traced
from tests.each import each


@pytest.fixture
def X(rng: np.random.Generator) -> np.ndarray:
    return rng.standard_normal((2000, 10))


@pytest.mark.parametrize(
    ("text", "size"),
    [("4GiB", 4 * 2**30), ("500MB", 500 * 10**6), ("1.5 gib", 3 * 2**29), (" 2g ", 2 * 2**30), ("77", 77), (123, 123)],
)
def test_sizes_are_read(text: object, size: int) -> None:
    assert parsed_bytes(text) == size


@pytest.mark.parametrize("text", ["four", "4 Gx", "-1GiB", 0, -5, True, 1.5, "", "1e400GiB"])
def test_wrong_sizes_say_what_is_right(text: object) -> None:
    with pytest.raises(InvalidParameterError, match="4GiB"):
        parsed_bytes(text)


@pytest.mark.parametrize(("size", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (3 * 2**40, "3.0 TiB")])
def test_sizes_are_spelled(size: int, text: str) -> None:
    assert format_bytes(size) == text


@pytest.mark.parametrize(
    ("size", "text"), [(1023, "1023 B"), (1536, "1.5 KiB"), (1537, "1.6 KiB"), (2**20 - 1, "1.0 MiB"), (0.5, "1 B")]
)
def test_a_limit_of_the_printed_need_is_enough(size: float, text: str) -> None:
    assert format_need(size) == text
    assert parsed_bytes(format_need(size)) >= size


@pytest.mark.parametrize(
    ("size", "text"), [(1023, "1023 B"), (1536, "1.5 KiB"), (1537, "1.5 KiB"), (2**20 - 1, "1023.9 KiB")]
)
def test_the_printed_allowance_is_there_and_below_any_larger_need(size: int, text: str) -> None:
    assert format_allowance(size) == text
    assert parsed_bytes(text) <= size < parsed_bytes(format_need(size + 1))


def test_a_plan_that_fits_shows_no_need_above_its_limit() -> None:
    tenth = 2**30 // 10
    for predicted, allowed in itertools.product([0, 1, 2**30, 2**30 + 1, 2**30 + tenth // 2, 2**40 - 1], repeat=2):
        need, limit = re.findall(r"\d[\d.]* [KMGT]?i?B", memory_text(predicted, allowed))
        assert need == format_need(predicted)
        sizes = [0 if size == "0 B" else parsed_bytes(size) for size in (need, limit)]
        assert (sizes[0] <= sizes[1]) == (predicted <= allowed), (need, limit)


@each("n", [1, 2, 255, 256, 257, 1024, 4096, 4097, 20_000])
@each("workers", [1, 2, 64])
def test_tiles_cover_the_upper_triangle(n: int, workers: int) -> None:
    edge = tile_edge_for(n, workers, on_gpu=False)
    assert 1 <= edge <= max(n, 1)
    storage = TiledStorage.within(2**62, n, 8, workers, edge)
    entries = full_cache_bytes(n, edge, 1)
    assert storage.cached_tiles == storage.tiles
    # Every pair at least once, and beyond that no more than the other halves of the diagonal tiles.
    assert n * (n + 1) // 2 <= entries <= n * (n + edge) // 2 + edge * edge


def test_a_budget_is_filled_with_whole_tiles() -> None:
    storage = TiledStorage.within(10 * 1024 * 1024 * 4 + 5, 10_240, 4, 2, 1024)
    assert (storage.cached_tiles, storage.tile_edge) == (10, 1024)
    assert TiledStorage.within(-7, 10_240, 4, 2, 1024).cached_tiles == 0
    assert storage.bytes_held(4) <= 10 * 1024 * 1024 * 4 + 5
    limit = 2**27 + 3 * 2**20
    plan = KernelPCA(5, kernel="laplacian", memory_limit=limit, n_jobs=2).plan((6000, 2000))
    assert plan.storage.cached_tiles > 0  # and what prepares the rows is gone before
    assert 0 <= limit - plan.predicted_bytes < 8 * plan.storage.tile_edge**2


def test_a_full_cache_is_about_half_of_the_square_matrix() -> None:
    tiled = TiledStorage.within(2**62, 20_000, 4, 2, 1024)
    assert tiled.bytes_held(4) < 0.53 * DenseStorage(20_000, 2).bytes_held(4)


def test_the_plan_is_kept_and_can_be_read(X: np.ndarray) -> None:
    model = KernelPCA(3, kernel="rbf", random_state=0).fit(X)
    assert isinstance(model.plan_, Plan)
    text = str(model.plan_)
    for words in ("2000 x 10", "float64", "RBF(gamma=0.1)", "block Krylov for 3 components", "tiled", "predicted, "):
        assert words in text


def test_a_precomputed_matrix_that_is_not_square_has_no_plan() -> None:
    with pytest.raises(InvalidParameterError, match=r"square in fit; got shape \(5, 3\)"):
        KernelPCA(2, kernel="precomputed").plan(np.ones((5, 3)))


@pytest.mark.parametrize(
    "model", [KernelPCA(3, kernel="rbf", eigen_solver=BlockKrylov()), PCA(3, svd_solver="randomized")]
)
def test_the_plan_states_the_dense_solver_where_it_takes_over(X: np.ndarray, model: KernelPCA | PCA) -> None:
    plan = model.plan(X[:14])  # more than a fifth of the samples and of the features
    assert plan.solver == Dense()
    assert "p = 3 is more than a fifth" in str(plan)
    assert "dense" in model.fit(X[:14]).solver_


def test_a_limit_that_serves_the_dense_solver_serves_a_request_that_it_takes_over(X: np.ndarray) -> None:
    needs = [
        KernelPCA(150, kernel="rbf", eigen_solver=solver).plan(X[:600]).predicted_bytes
        for solver in ("dense", "randomized")
    ]
    assert needs[0] == needs[1]


@pytest.mark.parametrize("gram", ["auto", "dense", "tiled"])
@pytest.mark.parametrize("solver", ["dense", "randomized"])
def test_storage_and_solver_are_independent(X: np.ndarray, gram: str, solver: str) -> None:
    reference = KernelPCA(4, kernel="rbf", eigen_solver="dense").fit(X[:600])
    model = KernelPCA(4, kernel="rbf", eigen_solver=solver, gram=gram, random_state=0).fit(X[:600])
    assert isinstance(model.plan_.storage, DenseStorage if gram == "dense" else TiledStorage)
    np.testing.assert_allclose(model.eigenvalues_, reference.eigenvalues_, rtol=1e-12)


def test_a_class_of_storage_has_the_bytes_of_its_name(X: np.ndarray) -> None:
    class Unbilled(Storage):
        """States no bytes: those of the square matrix are its bound."""

        def build(self, source: Any) -> Any:
            raise AssertionError

        def __str__(self) -> str:
            return "unbilled"

    grams: tuple[Any, ...] = ("dense", DenseStorage, Unbilled)
    bills = [KernelPCA(4, kernel="laplacian", gram=gram).plan(X).bill for gram in grams]
    assert bills[0] == bills[1] == bills[2]
    assert bills[0]["K"] == 8 * len(X) ** 2


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"gram": Storage}, "gram=Storage cannot be made of n and workers: .*abstract.*build"),
        ({"gram": TiledStorage}, "gram=TiledStorage cannot be made of n and workers: .*tile_edge"),
        ({"gram": DenseStorage, "kernel": "precomputed"}, "gram=DenseStorage needs a kernel"),
        ({"gram": DenseStorage, "memory_limit": "92MiB"}, 'Try gram="auto"'),
    ],
)
def test_a_class_of_storage_that_cannot_be_used_is_an_error(
    X: np.ndarray, settings: dict[str, Any], words: str
) -> None:
    with pytest.raises((InvalidParameterError, MemoryBudgetError), match=words):
        KernelPCA(**{"n_components": 2, "kernel": "rbf", **settings}).fit(X @ X.T)


def test_a_plan_of_landmarks_states_that_a_class_of_storage_is_not_used(X: np.ndarray) -> None:
    notes = [
        KernelPCA(2, kernel="rbf", eigen_solver=solver, gram=DenseStorage).plan(X[:50]).notes
        for solver in ("nystrom", "dense")
    ]
    assert notes == [("gram=DenseStorage is not used: it is for exact solvers in this process",), ()]


def test_progress_reaches_a_callable(X: np.ndarray) -> None:
    events: list[Progress] = []
    model = KernelPCA(3, kernel="rbf", random_state=0, verbose=events.append).fit(X)
    passes = [event for event in events if event.stage == "pass"]
    assert [event.done for event in passes] == list(range(1, model.n_passes_ + 1))
    assert passes[-1].residual is not None
    assert passes[-1].residual <= passes[-1].tolerance  # type: ignore[operator]
    assert events[0].stage == "plan"


def test_verbose_prints_a_line_a_pass(X: np.ndarray, capsys: pytest.CaptureFixture[str]) -> None:
    model = KernelPCA(3, kernel="rbf", random_state=0, verbose=1).fit(X)
    lines = capsys.readouterr().err.splitlines()
    stamped = [re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d (.*)", line) for line in lines]
    texts = [line[1] for line in stamped if line is not None]
    assert len(texts) == len(lines)
    assert sum(text.startswith("pass ") for text in texts) == model.n_passes_
    assert any(text.startswith("memory") for text in texts)


@pytest.mark.parametrize(("tiles", "words"), [(1, "1 upper tile of"), (3, "3 upper tiles of")])
def test_counts_agree_with_their_nouns(tiles, words):
    edge = 64 if tiles == 1 else 32
    assert words in str(TiledStorage(64, 1, edge, 0))


ADVICE = {
    "few of block Krylov": ({"eigen_solver": "randomized"}, "a larger memory_limit", "randomized"),
    "a block Krylov object": ({"eigen_solver": BlockKrylov()}, "or a larger memory_limit", "randomized"),
    "many of block Krylov": (
        {"n_components": 900, "eigen_solver": "arpack"},
        "n_components=450, float32",
        "arpack",
    ),
    "by tiles": ({"n_components": 900, "gram": "tiled"}, "Try n_components=450", 'gram="tiled"'),
    "dense": ({"eigen_solver": "dense"}, 'eigen_solver="randomized"', "arpack"),
    "a dense object": ({"eigen_solver": Dense()}, 'eigen_solver="randomized"', "arpack"),
    "landmarks": ({"eigen_solver": "nystrom"}, "or a larger memory_limit", "nystrom"),
}


@pytest.mark.parametrize("case", ADVICE)
def test_no_advice_names_what_is_in_use(X: np.ndarray, case: str) -> None:
    parameters, wanted, unwanted = ADVICE[case]
    limit = 1000
    for _ in range(2):
        with pytest.raises(MemoryBudgetError) as raised:
            KernelPCA(**{"n_components": 3, "kernel": "rbf", "memory_limit": limit, **parameters}).plan(X)
        needed = re.search(r"needs ([\d.]+) MiB", str(raised.value))
        limit = int(0.9 * 2**20 * float(needed[1] if needed else "nan"))
    advice = str(raised.value).partition("allowed or free. ")[2]
    assert wanted in advice
    assert unwanted not in advice.replace('the approximation eigen_solver="nystrom"', "")


def test_a_share_of_the_variance_is_distinguished_from_a_count(X: np.ndarray) -> None:
    assert "p = 16, where a share of the variance begins, is small" in str(KernelPCA(0.9, kernel="rbf").plan(X))
    assert "p = 16 is small" in str(KernelPCA(16, kernel="rbf").plan(X))


def test_plans_print_their_words_wherever_they_are_shown(X: np.ndarray) -> None:
    for model in (KernelPCA(2, kernel="rbf", memory_limit="1GiB").fit(X), PCA(2, memory_limit="1GiB").fit(X)):
        assert repr(model.plan_) == str(model.plan_) == repr(model.plan(X))
        assert repr(model.plan_).startswith(f"data      {len(X)} x {X.shape[1]}, float64, on cpu\n")
        assert pickle.loads(pickle.dumps(model.plan_)) == model.plan_


# -- plans of a shape --------------------------------------------------------------------------------------------------


def test_the_plan_of_a_shape_is_that_of_data_of_this_shape(rng: np.random.Generator) -> None:
    """Data with features of variance 1, for which float32 products are as accurate as for those of the shape."""
    data = rng.standard_normal((1300, 12))
    models = [
        KernelPCA(3, kernel="rbf"),
        KernelPCA(0.9, kernel="laplacian", copy_X=False),
        KernelPCA(kernel="poly", degree=2),
        KernelPCA(3, kernel="rbf", gamma=0.1, eigen_solver=Nystrom(rank=40)),
        KernelPCA(3, kernel="rbf", gamma=50.0, gram="dense", preimage="ridge"),
        KernelPCA(3, kernel="rbf", eigen_solver="nystrom", checkpoint="never_made"),
        PCA(3),
        PCA(0.9, scale=True),
        PCA("mle"),
    ]
    for model, dtype in itertools.product(models, ("float32", "float64")):
        model = clone(model).set_params(memory_limit="1GiB")
        assert model.plan(data.shape, dtype=dtype) == model.plan(data.astype(dtype)), (model, dtype)
    assert PCA(3, memory_limit="1GiB").plan((1300.0, np.int32(12))) == PCA(3, memory_limit="1GiB").plan(data)
    stored = KernelPCA(3, kernel="precomputed", memory_limit="1GiB")
    assert stored.plan((400, 400)) == stored.plan(np.zeros((400, 400)))
    assert not hasattr(stored, "n_features_in_")


def test_the_plan_of_a_shape_names_a_rule_of_gamma(X: np.ndarray) -> None:
    for rule in ("scale", "median"):
        model = KernelPCA(3, kernel="rbf", gamma=rule, memory_limit="1GiB")
        plan, of_data = model.plan(X.shape), model.plan(X)
        assert plan.kernel == f"RBF(gamma={rule!r})"
        assert plan.notes == (*of_data.notes, "the rule for gamma needs data, and changes no bytes")
        assert plan.predicted_bytes == of_data.predicted_bytes
    assert KernelPCA(3, kernel="rbf").plan((50, 4)).kernel == "RBF(gamma=0.25)"
    # What a rule needs while it is computed counts for a shape too.
    with pytest.raises(MemoryBudgetError, match="to choose gamma"):
        KernelPCA(3, kernel="rbf", gamma="median", memory_limit="1MiB").plan((10**6, 4))


def test_the_plan_of_a_shape_allocates_nothing_of_the_size_of_the_data() -> None:
    for model in (KernelPCA(5, kernel="rbf", gamma="scale", eigen_solver="nystrom"), KernelPCA(5), PCA(5)):
        model.set_params(memory_limit="900GiB")
        with traced() as peak:
            plan = model.plan((100_000_000, 40), dtype="float32")
            assert peak() < 2**22
        assert (plan.n_samples, plan.n_features, plan.dtype) == (100_000_000, 40, "float32")


def test_a_shape_or_a_dtype_that_is_not_allowed_is_an_error(X: np.ndarray) -> None:
    for model in (KernelPCA(2), PCA(2)):
        for shape in ((5,), (5, 3, 2), (5, 0), (-5, 3), (5.5, 3), (5, float("inf")), (5, float("nan")), (2**40, 2**40)):
            with pytest.raises(InvalidParameterError, match=r"is no shape of data; give \(n_samples, n_features\)"):
                model.plan(shape)
        for dtype in ("int8", "float16", "complex64", "nothing", 3):
            with pytest.raises(InvalidParameterError, match="precision of the fit, float32 or float64"):
                model.plan((50, 4), dtype=dtype)
        with pytest.raises(InvalidParameterError, match="X has a dtype"):
            model.plan(X, dtype="float64")
        with pytest.raises(MemoryBudgetError, match="are allowed or free"):
            model.set_params(memory_limit="1KB").plan((10**6, 500))
    with pytest.raises(InvalidParameterError, match=r"square in fit; got shape \(5, 3\)"):
        KernelPCA(2, kernel="precomputed").plan((5, 3))
    with pytest.raises(InvalidParameterError, match="must be between"):
        PCA(7).plan((50, 4))


def test_the_plan_of_batches_reads_the_rows_that_choose_landmarks(
    rng: np.random.Generator, sizes: Callable[..., None]
) -> None:
    sizes(READ_ENTRIES=1500)
    X = rng.standard_normal((9000, 3))
    read: list[int] = []

    class Batches:
        def __iter__(self):
            for start in range(0, len(X), 500):
                read.append(start)
                yield X[start : start + 500]

    class Stored:
        shape, dtype = X.shape, X.dtype

        def __getitem__(self, part):
            read.extend(range(*part.indices(len(X))))
            return X[part]

        def __array__(self, dtype=None, copy=None):
            raise AssertionError("the set was read at once")

    parameters = {"kernel": "rbf", "memory_limit": "1GiB", "random_state": 0}
    model = KernelPCA(3, **parameters, gamma="scale", eigen_solver=Nystrom(rank=20))
    for rows, most in ((Batches(), 2000 // 500 + 1), (Stored(), 500 + 2100)):
        read.clear()
        plan = model.plan(rows)
        assert len(read) <= most
        fitted = clone(model).set_params(gamma=0.3).fit(rows).plan_
        assert replace(plan, kernel="", n_samples=0) == replace(fitted, kernel="", n_samples=0)
    assert plan.n_samples == len(X)
    # Exact solvers read a set whole in the fit, and a sample of it for the plan.
    read.clear()
    exact = KernelPCA(3, **parameters)
    assert replace(exact.plan(Stored()), notes=()) == exact.plan(X)
    assert len(read) <= 1100
    batches = iter(Batches())
    with pytest.raises(InvalidParameterError, match="plan, with the fit after it, reads the batches more than once"):
        model.plan(batches)
    assert len(list(batches)) == 18
    with pytest.raises(InvalidParameterError, match="an iterable of batches needs eigen_solver"):
        exact.plan(Batches())


def test_a_plan_as_a_dictionary_has_the_same_keys_for_every_estimator(X: np.ndarray) -> None:
    models = [KernelPCA(3, kernel="rbf"), KernelPCA(3, eigen_solver="nystrom", kernel="rbf"), PCA(3, svd_solver="full")]
    plans = [model.plan(X) for model in models]
    for plan in plans:
        values = plan.to_dict()
        assert json.loads(json.dumps(values)) == values
        assert set(values) == {one.name for one in fields(Plan)} | {"fits", "is_approximate"}
        assert values["storage"] == (None if plan.storage is None else str(plan.storage))
    assert [plan.to_dict()["solver"].split(" (")[0] for plan in plans] == ["block Krylov", "Nyström", "gesdd"]
    assert [plan.to_dict()["is_approximate"] for plan in plans] == [False, True, False]


def test_blocks_are_narrow_where_passes_are_cheap_and_have_no_limit() -> None:
    def columns(n: int, p: float, **settings: Any) -> int:
        solver: Any = KernelPCA(p, kernel="rbf", **settings).plan((n, 5), dtype="float64").solver
        return int(solver.width(n, 20, False))

    assert columns(1000, 20) == 4
    assert columns(1001, 20) == columns(1000, 0.5) == columns(1000, 20, max_iter=9) == 24
    assert columns(1000, 20, iterated_power=3) == columns(1000, 20, eigen_solver="randomized") == 24


def test_narrow_blocks_find_every_member_of_a_cluster() -> None:
    """The distances of 7 equal groups of rows give 6 equal eigenvalues, more than a block has columns."""
    X = np.eye(7)[np.arange(490) % 7]
    model = KernelPCA(6, kernel="rbf", gamma=1.0, random_state=0).fit(X)
    np.testing.assert_allclose(model.eigenvalues_, 70.0 * (1.0 - np.exp(-2.0)), rtol=1e-12)
