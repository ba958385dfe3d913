"""Files and arrays of strangers: every one is read as what it says, or refused with the documented error."""

from __future__ import annotations

import copy
import itertools
import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import gpukpca
from gpukpca import PCA, KernelPCA
from gpukpca._container import write_container
from gpukpca.backend.csr import csr_from_parts
from gpukpca.exceptions import ModelFormatError
from gpukpca.kernels import RBF
from gpukpca.persistence.save_load import KIND, restored
from tests.model_files import DIVERSE, MODELS, changed, get, parts, paths, put


@pytest.fixture(autouse=True)
def without_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda handle: None)


EXTREMES = (-(2**31), -1, 0, 1, 5, 6, 7, 2**31 - 1)


def in_a_process(work: Callable[[], str]) -> str:
    """Return the text of `work`, run in a forked process; fail where that crashes or raises."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, work().encode())
        except BaseException:
            os.write(writer, traceback.format_exc()[-4000:].encode())
            os._exit(1)
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        text = pipe.read().decode()
    assert os.waitpid(child, 0)[1] == 0, text or "the process crashed"
    return text


forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes as on POSIX")


# -- CSR ---------------------------------------------------------------------------------------------------------------


def valid_parts() -> dict[str, Any]:
    matrix = scipy.sparse.random_array((8, 6), density=0.4, format="csr", rng=0)
    return {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr, "shape": matrix.shape}


def mutated(index: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return an index array after one random change."""
    index = index.astype(rng.choice([np.int32, np.int64]))
    extremes = (*EXTREMES, 2**62, -(2**63)) if index.dtype == np.int64 else EXTREMES
    place, other = rng.integers(len(index), size=2)
    change = rng.integers(8)
    if change == 0:
        index[place] = rng.choice(extremes)
    elif change == 1:
        index[[place, other]] = index[[other, place]]
    elif change == 2:  # what an order check of SciPy skips
        index[1:-1] = rng.choice(extremes)
        index[-1] = 0
    elif change == 3:
        index = index[: rng.integers(len(index))]
    elif change == 4:
        index = np.append(index, index.dtype.type(rng.choice(extremes)))
    elif change == 5:
        index = index[::-1].copy()
    elif change == 6:
        index[place] = max(int(index[place]), -(2**31) + 2) + int(rng.integers(-2, 1))
    else:
        index = index.astype(np.float64) if rng.random() < 0.2 else index[:, None]
    return index


def use(matrix: Any) -> None:
    """Compute with a matrix what kernels and operators compute."""
    matrix @ np.ones((matrix.shape[1], 2))
    matrix.T @ np.ones((matrix.shape[0], 2))
    (matrix @ matrix.T).toarray()
    matrix[np.array([1, 0])].toarray()


@forks
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning", "ignore:.*fork:RuntimeWarning")
def test_mutated_index_arrays_are_refused_or_make_a_matrix() -> None:
    def work() -> str:
        rng, refused, valid = np.random.default_rng(16), 0, valid_parts()
        for _ in range(10_000):
            fields = dict(valid)
            for _ in range(rng.integers(1, 3)):
                name = str(rng.choice(["indices", "indptr"]))
                if fields[name].ndim == 1 and len(fields[name]):
                    fields[name] = mutated(fields[name], rng)
            try:
                matrix = csr_from_parts("csr_array", **fields)
            except ValueError:
                refused += 1
            else:
                assert matrix.has_canonical_format
                use(matrix)
        return str(refused)

    refused = int(in_a_process(work))
    assert 5_000 < refused < 10_000  # some changes leave a matrix


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


OUTSIDE = {
    "indices": lambda part: part.__setitem__(0, 10**6),
    "indptr": lambda part: part.__setitem__(slice(1, None), [10**6] * (len(part) - 2) + [0]),
}


@pytest.mark.parametrize("part", OUTSIDE)
@pytest.mark.parametrize("form", ["csr", "csc"])
@pytest.mark.parametrize("work", [KernelPCA(2).fit, PCA(2).fit, RBF(0.1)], ids=["kernel PCA", "PCA", "kernel"])
def test_sparse_data_whose_entries_lie_outside_are_refused(part: str, form: str, work: Any) -> None:
    X = scipy.sparse.random(12, 6, 0.4, format=form, random_state=0)
    OUTSIDE[part](getattr(X, part))
    with pytest.raises(ValueError, match=r"indptr must never decrease|column indices must lie"):
        work(X)


def test_unsorted_and_repeated_indices_are_one_matrix() -> None:
    fields = valid_parts() | {"indices": np.array([4, 1, 1]), "data": np.array([1.0, 2.0, 3.0])}
    fields["indptr"] = np.array([0, 3] + [3] * 7)
    matrix = csr_from_parts("csr_matrix", **fields)
    np.testing.assert_array_equal(matrix.indices, [1, 4])
    np.testing.assert_array_equal(matrix.data, [5.0, 1.0])
    np.testing.assert_array_equal(fields["indices"], [4, 1, 1])  # not changed in place


def test_a_model_of_unsorted_rows_is_that_of_sorted_ones() -> None:
    header, arrays = parts("sparse")
    whole = restored(header, arrays)[0]

    def reverse(header: Any, arrays: Any) -> None:
        ends = arrays["fit.map.basis.indptr"]
        for start, stop in itertools.pairwise(ends):
            for name in ("fit.map.basis.indices", "fit.map.basis.data"):
                arrays[name][start:stop] = arrays[name][start:stop][::-1].copy()

    X = np.ones((3, 6))
    np.testing.assert_array_equal(changed("sparse", reverse).transform(X), whole.transform(X))


# -- model files -------------------------------------------------------------------------------------------------------

NUMBERS = (np.nan, np.inf, -np.inf, 1e308, -1e308, 1e200, 1e-308, 0.0, -1.0)
SEEDS = range(60)
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


def rows_of(model: Any, X: Any) -> Any:
    """Return X about the mean of a model, where it says one."""
    return X - np.nanmean(X, axis=0) + model.mean_ if hasattr(model, "mean_") else X


@forks
@pytest.mark.parametrize("name", FUZZED)
@pytest.mark.filterwarnings("ignore")
def test_models_that_are_read_have_finite_scores(name: str, tmp_path: Path) -> None:
    """Files with right checksums and one wrong part: refused, or scores of the training data are finite."""
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
                model = gpukpca.load(path)
            except ModelFormatError:
                refused += 1
            else:
                try:
                    assert np.all(np.isfinite(model.transform(rows_of(model, X))))
                except Exception as error:
                    error.add_note(f"seed {seed}")
                    raise
        return str(refused)

    assert int(in_a_process(work)) >= len(SEEDS) // 3
