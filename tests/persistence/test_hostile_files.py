"""Model files of strangers: every one is read as what it says, or refused with the documented error."""

from __future__ import annotations

import contextlib
import copy
import itertools
import json
import os
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from click.testing import CliRunner

import gpukpca
from gpukpca import Checkpoint, KernelPCA, _container, kernels
from gpukpca._container import read_container, write_container
from gpukpca.checkpoint import KIND as STATE
from gpukpca.checkpoint import NAMES, FolderCheckpointer
from gpukpca.cli.app import gpukpca as gpukpca_cli
from gpukpca.decomposition import _model_files
from gpukpca.decomposition._model_files import restored
from gpukpca.exceptions import CheckpointError, MemoryBudgetError, ModelFormatError
from gpukpca.persistence.model_file import KIND
from tests.hostile import EXTREMES, forks, in_a_process, mutated
from tests.model_files import DIVERSE, MODELS, changed, get, parts, paths, put


@forks
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning", "ignore:.*fork:RuntimeWarning")
def test_models_of_mutated_index_arrays_are_refused_or_have_scores() -> None:
    parts("sparse")  # fitted before the fork

    def work() -> str:
        rng, refused = np.random.default_rng(17), 0
        for _ in range(300):
            name = str(rng.choice(["fit.map.basis.indices", "fit.map.basis.indptr"]))

            def change(header: Any, arrays: Any, name: str = name) -> None:
                arrays[name] = mutated(arrays[name], rng)

            try:
                model = changed("sparse", change)
            except ModelFormatError:
                refused += 1
            else:
                assert np.all(np.isfinite(model.transform(np.ones((2, 6)))))
        return str(refused)

    assert 100 < int(in_a_process(work)) < 300


def test_a_model_of_unsorted_rows_is_refused_and_a_fit_of_them_has_a_file(tmp_path: Path) -> None:
    def reverse(header: Any, arrays: Any) -> None:
        ends = arrays["fit.map.basis.indptr"]
        for start, stop in itertools.pairwise(ends):
            for name in ("fit.map.basis.indices", "fit.map.basis.data"):
                arrays[name][start:stop] = arrays[name][start:stop][::-1].copy()

    with pytest.raises(ModelFormatError, match="column indices must ascend in every row"):
        changed("sparse", reverse)
    X = scipy.sparse.csr_array(([1.0, 2.0, 3.0, 4.0, 5.0], [4, 1, 1, 0, 2], [0, 3, 4, 5]), shape=(3, 6))
    assert not X.has_canonical_format
    model = KernelPCA(1, kernel="rbf").fit(X)
    gpukpca.save(model, tmp_path / "m", notes={"rows": X})
    again = gpukpca.load(tmp_path / "m")
    np.testing.assert_array_equal(again.transform(X), model.transform(X))
    np.testing.assert_array_equal(again.notes_["rows"].toarray(), X.toarray())


# -- what a file costs -------------------------------------------------------------------------------------------------

COMPARISONS = Counter[str]()


class Name(str):
    """A name that counts how often it is compared."""

    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        COMPARISONS["all"] += 1
        return str.__eq__(self, other)


def counting(text: str) -> Any:
    """Parse the header of a file, whose names of transposed arrays count comparisons."""
    content = json.loads(text)
    return content | {"transposed": [Name(name) for name in content.get("transposed", [])]}


def of_arrays(count: int) -> tuple[Any, dict[str, np.ndarray]]:
    """Return notes that hold many small arrays in Fortran order."""
    arrays = {f"notes.{i}": np.asfortranarray(np.eye(2, dtype=np.float32)) for i in range(count)}
    return [{"array": name} for name in arrays], arrays


def of_one_matrix(count: int, entries: int = 10**4) -> tuple[Any, dict[str, np.ndarray]]:
    """Return notes that name the arrays of one unsorted CSR matrix many times."""
    arrays = {"data": np.ones(entries), "indices": np.arange(entries)[::-1].copy(), "indptr": np.array([0, entries])}
    parts = {name: {"array": name} for name in arrays}
    return [{"class": "csr_array", **parts, "shape": [1, entries]}] * count, arrays


# Hostile parts of a growing size: notes and their arrays.
NOTES: dict[str, Callable[[int], tuple[Any, dict[str, np.ndarray]]]] = {
    "many arrays": of_arrays,
    "one matrix many times": of_one_matrix,
    "many numbers": lambda count: ([0] * (5 * count), {}),
    "many objects": lambda count: ([{"class": "list", "items": []}] * count, {}),
    "many texts": lambda count: ({"class": "texts", "items": ["a"] * count}, {}),
}
DOORS: dict[str, Callable[[Path], Any]] = {
    "load": gpukpca.load,
    "info": lambda path: CliRunner().invoke(gpukpca_cli, ["info", str(path)]),
    "checkpoint": lambda path: FolderCheckpointer(Checkpoint(path.parent), {}, lambda *_: None),
}
MOST_BYTES = 40  # for each byte of a file: an object of Python for a character or two


def written(door: str, notes: Any, arrays: dict[str, np.ndarray], folder: Path) -> Path:
    """Write the file with hostile notes that a door opens."""
    if door == "checkpoint":
        path = folder / NAMES[1]
        write_container(path, STATE, {"number": 1, "fingerprint": {}, "state": {"Q": notes}}, arrays)
    else:
        path, (header, more) = folder / "m", parts("rbf, inverse")
        write_container(path, KIND, {**header, "notes": {"n": notes}}, more | arrays)
    return path


def opened(door: str, path: Path) -> str:
    """Return what a door says of a file."""
    try:
        return str(DOORS[door](path))
    except (ModelFormatError, CheckpointError) as error:
        return str(error)


@pytest.mark.parametrize("door", DOORS)
def test_what_a_door_takes_is_bounded_by_the_file(door: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory by the bytes of the file, and comparisons by the arrays in it; nothing is a square of either."""
    opened(door, written(door, [], {}, tmp_path))  # imports
    monkeypatch.setattr(_container, "json", SimpleNamespace(loads=counting, dumps=json.dumps))
    for name, hostile in NOTES.items():
        for count in (250, 1000):
            path = written(door, *hostile(count), tmp_path)
            COMPARISONS.clear()
            tracemalloc.start()
            opened(door, path)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak < MOST_BYTES * path.stat().st_size, (name, count)
            assert COMPARISONS["all"] <= 8 * count, (name, count)


def test_a_matrix_that_a_file_names_again_and_again_is_refused() -> None:
    notes, more = of_one_matrix(700)
    header, arrays = parts("rbf, inverse")
    with pytest.raises(ModelFormatError, match="name the same arrays more than 16 times"):
        restored({**header, "notes": {"n": notes}}, arrays | more)


def test_a_long_name_is_not_copied_for_every_value(tmp_path: Path) -> None:
    """Two files of the same bytes: with a long name over many values, and with a long text beside them."""
    header, arrays = parts("rbf, inverse")
    long, values, seconds = "x" * 10**6, [0] * 20000, []
    for notes in ({"n": long, "m": values}, {long: values}):
        write_container(tmp_path / "m", KIND, {**header, "notes": notes}, arrays)
        started = time.process_time()
        gpukpca.load(tmp_path / "m")
        seconds.append(time.process_time() - started)
    assert seconds[1] < 8 * seconds[0]  # 20 times where every value copies the name


@pytest.mark.filterwarnings("ignore::gpukpca.exceptions.GpuKPCAWarning")
def test_a_transform_costs_what_its_entries_do(tmp_path: Path) -> None:
    """A model of CSR rows, and new ones, in few columns and in many."""
    for kernel, settings in SPARSE_KERNELS.items():
        _, header, arrays = sparse_model(settings, tmp_path / "m")
        for columns in (10**4, 10**7):
            claim(header, columns, "as it is")
            named = {node["array"] for node in nodes(header) if "array" in node}
            write_container(tmp_path / "m", KIND, header, {name: arrays[name] for name in named})
            model = gpukpca.load(tmp_path / "m")
            X = scipy.sparse.csr_array((np.ones(3), [0, 3, columns - 1], [0, 2, 3]), shape=(2, columns))
            model.transform(X)
            tracemalloc.start()
            model.transform(X)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak < 2**18, (kernel, columns)


# -- columns that a file claims ----------------------------------------------------------------------------------------

CLAIMED = 2**31 - 1
SPARSE_KERNELS: dict[str, Any] = {
    **{name: name for name in ("linear", "rbf", "poly", "sigmoid", "cosine", "laplacian", "matern")},
    "combined": kernels.RBF() + kernels.Linear() * kernels.Laplacian(),
    "exponential": kernels.exp(kernels.Cosine()),
}
SPARSE_ROWS = scipy.sparse.random_array((30, 6), density=0.6, format="csr", rng=1)
SPARE = 4 * 2**30  # bytes


def sparse_model(kernel: Any, path: Path) -> tuple[Any, dict[str, Any], dict[str, np.ndarray]]:
    model = KernelPCA(2, kernel=kernel).fit(SPARSE_ROWS)
    model.save(path)
    return model, *read_container(path, KIND)


def nodes(node: Any) -> Iterator[dict[str, Any]]:
    """Yield all objects of a header."""
    if isinstance(node, dict):
        yield node
    for part in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from nodes(part)


def claim(header: dict[str, Any], columns: int, template: str) -> None:
    """Let a model of CSR rows have so many columns, with a template that holds no number for each."""
    (step,) = header["steps"]
    step["facts"]["n_features_in_"] = columns
    for node in nodes(step):
        if node.get("class") == "csr_array":
            node["shape"][1] = columns
        if "mean" in node:
            node["mean"] = None
        if node.get("class") == "SparseProductRows":  # the rows without a mean
            node["class"] = "DifferenceRows"
    if template == "none":
        step["fit"]["map"]["template"] = None


def bounded(work: Callable[[], str]) -> str:
    """Return the text of work in a process that may take four gibibytes more than it has."""
    import resource

    def limited() -> str:
        pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[0])
        limit = pages * resource.getpagesize() + SPARE
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        return work()

    return in_a_process(limited)


@forks
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="limits of the address space as on Linux")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning", "ignore:.*fork:RuntimeWarning")
@pytest.mark.filterwarnings("ignore::gpukpca.exceptions.IndefiniteKernelWarning")
@pytest.mark.parametrize("kernel", SPARSE_KERNELS)
def test_columns_that_a_file_claims_take_no_memory(kernel: str, tmp_path: Path) -> None:
    """2³¹ columns of 4 bytes would be 8 GiB."""
    path = tmp_path / "m"
    _, header, arrays = sparse_model(SPARSE_KERNELS[kernel], path)
    for template in ("as it is", "none"):
        claimed = copy.deepcopy(header)
        claim(claimed, CLAIMED, template)
        named = {node["array"] for node in nodes(claimed) if "array" in node}
        write_container(path, KIND, claimed, {name: array for name, array in arrays.items() if name in named})
        assert bounded(lambda: str(gpukpca.load(path).n_features_in_)) == str(CLAIMED)


@pytest.mark.parametrize("kernel", ["linear", "laplacian", "cosine"])
def test_a_model_of_many_columns_gives_the_scores_of_few(kernel: str, tmp_path: Path) -> None:
    """Rows of hashed text have 2²⁰ columns."""
    wide = scipy.sparse.csr_array((SPARSE_ROWS.data, 1000 * SPARSE_ROWS.indices, SPARSE_ROWS.indptr), shape=(30, 2**20))
    narrow = KernelPCA(2, kernel=kernel).fit(SPARSE_ROWS)
    same = {"gamma": narrow.gamma_} if kernel == "laplacian" else {}
    KernelPCA(2, kernel=kernel, **same).fit(wide).save(tmp_path / "m")
    scores = gpukpca.load(tmp_path / "m").transform(wide)
    np.testing.assert_allclose(scores, narrow.transform(SPARSE_ROWS), atol=1e-13)


def test_a_file_for_which_memory_is_lacking_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sparse_model("rbf", tmp_path / "m")

    def lacking(*_: Any) -> None:
        raise MemoryError("Unable to allocate 9 GiB")

    for place in ("read_container", "restored"):
        with monkeypatch.context() as patch:
            patch.setattr(_model_files, place, lacking)
            with pytest.raises(MemoryBudgetError, match=r"m holds .* KiB, and reading .* takes more memory"):
                gpukpca.load(tmp_path / "m")


def refused(header: dict[str, Any], arrays: dict[str, np.ndarray], more: dict[str, Any], text: str, **new: Any) -> None:
    """Check that the parts of a model are refused after changes of values by path, and with new arrays."""
    header, arrays = copy.deepcopy(header), arrays | new
    for path, value in more.items():
        put(header, f"steps.0.fit.{path}", value)
    named = {node["array"] for node in nodes(header) if "array" in node}
    with pytest.raises(ModelFormatError, match=text):
        restored(header, {name: array for name, array in arrays.items() if name in named})


def test_parts_that_would_make_dense_rows_of_sparse_ones_are_refused(tmp_path: Path) -> None:
    wide = scipy.sparse.csr_array((SPARSE_ROWS.data, SPARSE_ROWS.indices, SPARSE_ROWS.indptr), shape=(30, 10**4))
    KernelPCA(2, kernel="rbf").fit(wide).save(tmp_path / "m")
    header, arrays = read_container(tmp_path / "m", KIND)
    means = {"fit.map.template.geometry.mean": np.ones(10**4)}
    refused(header, arrays, {}, "means of CSR rows have 10000 entries", **means)
    template = {"map.template.data": {"array": "t"}}
    refused(header, arrays, template, "the template of CSR rows has dense ones", t=np.zeros((0, 10**4)))
    parts_of = {"components": np.zeros((2, 10**4)), "mean": np.zeros(10**4), "wide_mean": np.ones(10**4)}
    preimage = {"class": "LinearPreimage"} | {name: {"array": name} for name in parts_of}
    refused(header, arrays, {"preimage": preimage}, "no pre-image", **parts_of)


# -- model files -------------------------------------------------------------------------------------------------------

NUMBERS = (np.nan, np.inf, -np.inf, 1e308, -1e308, 1e200, 1e-308, 0.0, -1.0)
SEEDS = range(int(os.environ.get("GPUKPCA_FUZZ", "10")))
FUZZED = (*DIVERSE, "linear", "poly", "Nyström", "precomputed", "sparse", "probabilistic", "local", "PCA, given scale")


def mutate(header: dict[str, Any], arrays: dict[str, np.ndarray], rng: np.random.Generator) -> None:
    """Change one array or one number of the header."""
    names = [name for name, array in arrays.items() if array.size]
    numbers = [path for path in paths(header["steps"][0]["fit"]) if type(get(header["steps"][0]["fit"], path)) is float]
    if numbers and rng.random() < 0.2:
        put(header["steps"][0]["fit"], rng.choice(numbers), float(rng.choice([1e308, -1e308, 1e-308, 0.0, -1.0])))
        return
    name = rng.choice(names)
    array = arrays[name] = arrays[name].copy()
    change = rng.integers(6)
    with np.errstate(over="ignore", invalid="ignore"):
        if change == 0:
            array.flat[rng.integers(array.size)] = value_for(array, rng)
        elif change == 1:
            array[...] = value_for(array, rng)
        elif change == 2:
            arrays[name] = array * array.dtype.type(10 if array.dtype.kind == "i" else rng.choice([1e30, 1e200]))
        elif change == 3:
            arrays[name] = array[: rng.integers(len(array) + 1)]
        elif change == 4:
            arrays[name] = array.astype(rng.choice(["<f4", "<f8", "<i4", "<i8"]))
        else:
            arrays[name] = array.reshape(-1) if array.ndim > 1 else array[:, None]


def value_for(array: np.ndarray, rng: np.random.Generator) -> Any:
    return rng.choice(EXTREMES if array.dtype.kind == "i" else NUMBERS)


def use(model: Any, X: Any) -> None:
    """Call the methods of a model. One whose parts do not belong together may raise any error of Python."""
    scores = None
    with contextlib.suppress(Exception):
        scores = model.transform(X)
        assert scores.shape[0] == X.shape[0]
    for name, argument in (("inverse_transform", scores), ("denoise", X), ("predict", X), ("score_samples", X)):
        with contextlib.suppress(Exception):
            getattr(model, name)(argument)
    with contextlib.suppress(Exception):
        str(model.plan_)


@forks
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="limits of the address space as on Linux")
@pytest.mark.parametrize("name", FUZZED)
@pytest.mark.filterwarnings("ignore")
def test_forged_models_are_refused_or_used_without_harm(name: str, tmp_path: Path) -> None:
    """Files with right digests and one wrong part end no process and take little memory."""
    header, arrays = parts(name)
    X = MODELS[name][1]()
    path = tmp_path / "m.npz"

    def work() -> str:
        refused = 0
        for seed in SEEDS:
            changed_header, changed_arrays = copy.deepcopy(header), dict(arrays)
            mutate(changed_header, changed_arrays, np.random.default_rng(seed))
            write_container(path, KIND, changed_header, changed_arrays)
            try:
                use(gpukpca.load(path), X)
            except ModelFormatError:
                refused += 1
        return str(refused)

    assert int(bounded(work)) >= len(SEEDS) // 4


ANOTHER_TEMPLATE = {"class": "DotRows", "data": {"array": "t"}, "factor": 1.0, "mean": None, "copied": False}
# name of the model, values by path of its fit: parts of the right types and shapes that do not belong together
UNRELATED: dict[str, tuple[str, dict[str, Any]]] = {
    "template of another kernel": ("rbf, inverse", {"map.template": ANOTHER_TEMPLATE}),
    "Nyström without landmarks": ("Nyström", {"landmarks": None}),
    "an interval upside down": ("Nyström", {"total_interval": [2.0, 1.0]}),
    "a pre-image without scores": ("rbf, inverse", {"scores": None}),
    "a method of no plan": ("PCA", {"plan.method": "guess"}),
    "a ridge of more rows than landmarks": ("ridge, landmarks", {"preimage.rule.landmarks": 7}),
    "a ridge of another kernel": ("ridge", {"preimage.kernel": {"class": "Precomputed"}}),
    "a centered ridge without a mean": ("ridge", {"preimage.mean": None}),
    "a kernel without a slope": ("fixed point", {"kernel": {"class": "Laplacian", "gamma": 1.0}}),
    "distances without a center": ("distance constraint", {"preimage.mean": None}),
    "noise above the variances": ("probabilistic, holes", {"model.noise": 1e9}),
    "another scale": ("probabilistic", {"model.scale": 2.0**40}),
    "weights that do not sum to 1": ("local", {"model.clusters.items.0.weight": 0.1}),
    "errors of another method": ("local", {"model.method": "hard"}),
}


@forks
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="limits of the address space as on Linux")
@pytest.mark.filterwarnings("ignore")
def test_parts_that_do_not_belong_together_do_no_harm() -> None:
    for name, _ in UNRELATED.values():
        parts(name)  # fitted before the fork

    def work() -> str:
        for name, changes in UNRELATED.values():

            def change(header: Any, arrays: Any, changes: dict[str, Any] = changes) -> None:
                arrays["t"] = np.zeros((0, 4))
                for path, value in changes.items():
                    put(header, f"steps.0.fit.{path}", value)
                named = {node["array"] for node in nodes(header) if "array" in node}
                for array in set(arrays) - named:
                    del arrays[array]

            with contextlib.suppress(ModelFormatError):
                use(changed(name, change), MODELS[name][1]())
        return "done"

    assert bounded(work) == "done"
