"""Sets that another library reads: an error of any kind, in any read of any work, is one of this library."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from gpukpca import PCA, BayesianPCA, IncrementalPCA, KernelPCA, LocalPCA, Nystrom, ProbabilisticPCA
from gpukpca.decomposition import residuals
from gpukpca.exceptions import InvalidParameterError
from tests.each import each

ROWS = np.random.default_rng(0).standard_normal((60, 4)) * [3.0, 2.0, 1.0, 0.5]


class Panic(BaseException):
    """An error of Rust, as pyo3 raises it."""


class Failing:
    """A set as of zarr or HDF5, reads of which fail after so many."""

    def __init__(self, rows: Any, allowed: int, error: BaseException) -> None:
        self.rows, self.allowed, self.error = rows, allowed, error
        self.shape, self.dtype, self.reads = rows.shape, rows.dtype, 0

    def __getitem__(self, key: Any) -> Any:
        self.reads += 1
        if self.reads > self.allowed:
            raise self.error
        return self.rows[key]


class Whole(Failing):
    """A set that NumPy reads as a whole, as h5py has it."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self[:]


KERNEL, LINEAR = KernelPCA(2, kernel="rbf").fit(ROWS), PCA(2).fit(ROWS)
WORKS: dict[str, Callable[[Any], Any]] = {
    "PCA": PCA(2).fit,
    "PCA, passes": PCA(2, svd_solver="randomized", random_state=0).fit,
    "incremental": IncrementalPCA(2, batch_size=20).fit,
    "kernel": KernelPCA(2, kernel="rbf").fit,
    "Nyström": KernelPCA(2, kernel="rbf", gamma=0.1, eigen_solver=Nystrom(rank=9), random_state=0).fit,
    "landmarks": KernelPCA(2, kernel="rbf", gamma=0.1, eigen_solver=Nystrom(landmarks=[1, 30, 59])).fit,
    "probabilistic": ProbabilisticPCA(2, random_state=0).fit,
    "Bayesian": BayesianPCA(2, random_state=0).fit,
    "local": LocalPCA(2, 1, n_init=1, random_state=0).fit,
    "transform": LINEAR.transform,
    "transform of a kernel": KERNEL.transform,
    "scores": PCA(2).fit_transform,
    "audit": lambda X: residuals(LINEAR, X),
    "plan": KernelPCA(2).plan,
}
ENDS = (KeyboardInterrupt, SystemExit, MemoryError)
ERRORS: list[type[BaseException]] = [RuntimeError, OSError, ValueError, TypeError, KeyError, Panic, *ENDS]
MOST_READS = 40


def error_of(work: Callable[[Any], Any], X: Any) -> BaseException | None:
    try:
        work(X)
    except BaseException as error:
        return error
    return None


@each("work", WORKS)
@each("of", [Failing, Whole])
@pytest.mark.filterwarnings("ignore")
def test_any_error_in_any_read_names_the_set_and_the_rows(work: str, of: type[Failing]) -> None:
    for kind in ERRORS:
        for allowed in range(MOST_READS):
            X = of(ROWS, allowed, kind("a damaged\nchunk"))
            if (error := error_of(WORKS[work], X)) is None:
                break
            if kind in ENDS:
                assert isinstance(error, kind)
                continue
            assert isinstance(error, InvalidParameterError)
            assert error.__cause__ is X.error
            assert re.fullmatch(
                rf"rows \d+ to \d+ of a set of class {of.__name__} cannot be read, .*chunk.*", str(error)
            )
        assert 0 < allowed < MOST_READS - 1
        assert X.reads <= allowed


def test_rows_of_sparse_sets_are_read_through_the_same_door() -> None:
    X = Failing(scipy.sparse.csr_array(ROWS), 1, RuntimeError("damaged"))
    with pytest.raises(InvalidParameterError, match="rows 0 to 59 of a set of class Failing cannot be read") as failed:
        KernelPCA(2, kernel="rbf", gamma=0.1, eigen_solver=Nystrom(landmarks=[1, 30, 59])).fit(X)
    assert failed.value.__cause__ is X.error


@pytest.mark.parametrize("name", ["zarr", "h5py"])
def test_damaged_sets_name_their_file(name: str, tmp_path: Path) -> None:
    library, X = pytest.importorskip(name), np.tile(ROWS, (20, 1))
    path = tmp_path / f"x.{name}"
    if name == "zarr":
        library.open_group(path, mode="w").create_array("X", data=X, chunks=(100, 4))
        chunk = path / "X" / "c" / "7" / "0"
        chunk.write_bytes(b"x" * 20 + chunk.read_bytes()[20:])
        rows = library.open(path, mode="r")["X"]
    else:
        with library.File(path, "w") as file:
            file.create_dataset("X", data=X, chunks=(100, 4), compression="gzip")
            place = file["X"].id.get_chunk_info(7).byte_offset
        content = path.read_bytes()
        path.write_bytes(content[:place] + b"x" * 20 + content[place + 20 :])
        rows = library.File(path, "r")["X"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for work in (IncrementalPCA(2, batch_size=100).fit, KernelPCA(2).fit, LINEAR.transform):
            with pytest.raises(InvalidParameterError, match="cannot be read") as failed:
                work(rows)
            assert failed.value.__cause__ is not None
    with pytest.raises(InvalidParameterError, match=rf"rows 700 to 799 of .*x\.{name}/X cannot be read"):
        IncrementalPCA(2, batch_size=100).fit(rows)
