"""Model files of strangers: every one is read as what it says, or refused with the documented error."""

from __future__ import annotations

import copy
import itertools
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpukpca
from gpukpca._container import write_container
from gpukpca.exceptions import ModelFormatError
from gpukpca.persistence.save_load import KIND, restored
from tests.hostile import EXTREMES, forks, in_a_process, mutated
from tests.model_files import DIVERSE, MODELS, changed, get, parts, paths, put


@pytest.fixture(autouse=True)
def without_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda handle: None)


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
SEEDS = range(20)
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
