"""Model files: what is written is what comes back, and nothing but a model file is ever believed."""

from __future__ import annotations

import inspect
import io
import json
import os
import pickle
import random
import signal
import stat
import sys
import time
import tracemalloc
import warnings
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
import scipy.sparse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.gaussian_process.kernels import RBF as ProcessRBF

import gpukpca
from gpukpca import PCA, IncrementalPCA, KernelPCA, kernels
from gpukpca._archive import LARGEST_HEADER, MOST_MEMBERS
from gpukpca.decomposition._kernels import NAMED_KERNELS
from gpukpca.eigen import BlockKrylov, Solver
from gpukpca.exceptions import DeviceUnavailableError, InvalidParameterError, ModelFormatError
from gpukpca.gram.storage import Storage
from gpukpca.persistence import ESTIMATORS, load_with_notes, save_load, save_with_notes
from gpukpca.persistence.save_load import FORMAT
from gpukpca.persistence.table import ENTRIES
from tests.model_files import DIVERSE, MODELS, changed, data, fitted, parts

GOLDEN = Path(__file__).parent / "golden"
# Scores of one model on two libraries: the same numbers, multiplied in another order.
AGREES = {"float64": 1e-12, "float32": 1e-5}


@pytest.fixture(autouse=True)
def without_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """That the file is synced, and when, is seen by who is killed there."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


def answers(model: Any, X: Any) -> dict[str, Any]:
    """What a model says of its data, or with which error it refuses, by method."""
    scores = model.transform(X)
    first = (X, 1) if isinstance(model, KernelPCA) else (X,)
    questions: dict[str, tuple[Any, ...]] = {
        **dict.fromkeys(("score_samples", "score", "denoise", "reconstruction_error", "feature_space_error"), (X,)),
        **dict.fromkeys(("predict", "predict_proba", "impute", "posterior_covariance"), (X,)),
        **dict.fromkeys((" denoise", " reconstruction_error", " feature_space_error"), first),
        "inverse_transform": (scores,),
        "get_covariance": (),
    }
    found = {"transform": scores}
    for name, arguments in questions.items():
        if method := getattr(model, name.strip(), None):
            try:
                found[name] = method(*arguments)
            except ValueError as error:
                found[name] = str(error)
    if hasattr(model, "_latent"):
        found["sample"] = model.sample(3)
    return found


def assert_same(a: Any, b: Any, where: str) -> None:
    """Two values are the same to the last bit, arrays and objects of the library included."""
    assert type(a) is type(b), where
    if isinstance(a, np.ndarray):
        assert a.dtype == b.dtype, where
        np.testing.assert_array_equal(a, b, err_msg=where)
    elif scipy.sparse.issparse(a):
        for part in ("data", "indices", "indptr"):
            assert_same(getattr(a, part), getattr(b, part), f"{where}.{part}")
    elif isinstance(a, dict) and where != "bic_":
        assert a.keys() == b.keys()
        for key in a:
            assert_same(a[key], b[key], f"{where}.{key}")
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        for place, parts in enumerate(zip(a, b, strict=True)):
            assert_same(*parts, f"{where}[{place}]")
    elif type(a).__module__.startswith("gpukpca.") and hasattr(a, "__dict__"):
        left_out = {"AffineProjection": {"rows"}, "FeatureSpace": {"landmarks", "axes"}}.get(type(a).__name__, set())
        for name in vars(a).keys() - {"reseeded", "fallbacks"} - left_out:
            assert_same(getattr(a, name), getattr(b, name), f"{where}.{name}")
    else:
        assert a == b, where


# -- there and back ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.filterwarnings("ignore")
def test_a_loaded_model_is_the_one_that_was_saved(name, tmp_path):
    model, X = fitted(name)
    model.save(tmp_path / "m.npz")
    again = gpukpca.load(tmp_path / "m.npz")
    assert type(again) is type(model)
    assert vars(again).keys() == vars(model).keys()
    for attribute, value in vars(model).items():
        assert_same(vars(again)[attribute], tuple(value) if isinstance(value, range) else value, attribute)
    assert str(getattr(again, "plan_", "")) == str(getattr(model, "plan_", ""))
    assert_same(answers(again, X), answers(model, X), name)
    again.save(tmp_path / "again.npz")
    assert (tmp_path / "again.npz").read_bytes() == (tmp_path / "m.npz").read_bytes()


# One of every kind of estimator and of pre-image, in one dtype each.
KINDS = {
    "ridge, landmarks": "float32",
    "distance constraint": "float64",
    "PCA": "float32",
    "incremental": "float64",
    "probabilistic": "float32",
    "local": "float64",
}


@pytest.mark.parametrize("name", KINDS)
def test_models_of_every_library_are_read_as_those_of_numpy(xp, name, tmp_path):
    dtype = KINDS[name]
    X = data().astype(dtype)
    model = clone(MODELS[name][0]).fit(xp.array(X))
    model.save(tmp_path / "m.npz")
    again = gpukpca.load(tmp_path / "m.npz")
    scores = again.transform(X)
    assert isinstance(scores, np.ndarray)
    assert scores.dtype == dtype
    wanted = xp.host(model.transform(xp.array(X)))
    np.testing.assert_allclose(scores, wanted, rtol=0, atol=AGREES[dtype] * np.abs(wanted).max())
    for attribute, value in vars(again).items():
        assert not hasattr(value, "shape") or isinstance(value, np.ndarray), attribute
    assert xp.owns(again.transform(xp.array(X)))
    if hasattr(model, "denoise"):
        assert xp.owns(again.denoise(xp.array(X)))


def test_a_model_of_a_device_is_read_where_there_is_none(cuda, monkeypatch, tmp_path):
    X = data()
    model = KernelPCA(2, kernel="rbf", device="cuda", fit_inverse_transform=True).fit(X)
    scores = model.transform(X)
    model.save(tmp_path / "m.npz")
    with monkeypatch.context() as patch:  # as in a process that has not imported it
        for name in [name for name in sys.modules if name.partition(".")[0] == "cupy"]:
            patch.delitem(sys.modules, name)
        again = gpukpca.load(tmp_path / "m.npz")
        assert again.device is None
        assert again.device_.startswith("cuda")
        np.testing.assert_allclose(again.transform(X), scores, rtol=0, atol=1e-12)
        assert np.isfinite(again.inverse_transform(scores)).all()
        assert "cupy" not in sys.modules


def where_computed(model: Any) -> Any:
    """An array of those that new points are computed with."""
    if hasattr(model, "_map"):
        return model._map.offset if isinstance(model, KernelPCA) else model._map.axes
    return model._latent.axes if hasattr(model, "_latent") else model._model.frame.shift


@pytest.mark.parametrize(
    "name",
    [
        *sorted(KINDS.keys() - {"incremental"}),
        "linear, inverse",
        "combined",
        "PCA, given scale",
        "distance constraint, poly",
    ],
)
@pytest.mark.filterwarnings("ignore:coordinates do not say")
def test_a_model_of_the_host_is_put_on_a_device(cuda, name, tmp_path):
    model, X = fitted(name)
    model.save(tmp_path / "m.npz")
    for device in ("cuda", "cuda:0", "auto"):
        again = gpukpca.load(tmp_path / "m.npz", device=device)
        assert isinstance(where_computed(again), cuda.ndarray)
        scores = again.transform(X)
        assert isinstance(scores, np.ndarray)
        np.testing.assert_allclose(scores, model.transform(X), rtol=0, atol=1e-12)
        assert isinstance(again.transform(cuda.asarray(X)), cuda.ndarray)
        if hasattr(model, "inverse_transform"):
            np.testing.assert_allclose(again.inverse_transform(scores), model.inverse_transform(scores), atol=1e-12)
        assert isinstance(
            next(iter(vars(again)[n] for n in ("X_fit_", "components_") if hasattr(again, n))), np.ndarray
        )


def test_what_parts_of_a_model_have_in_common_is_read_once(cuda, tmp_path):
    fitted("ridge")[0].save(tmp_path / "m.npz")
    again = gpukpca.load(tmp_path / "m.npz", "cuda")
    assert again._preimage.X is again._map.basis
    assert again._preimage.knots is again._preimage.scores
    fitted("fixed point")[0].save(tmp_path / "m.npz")
    again = gpukpca.load(tmp_path / "m.npz", "cuda")
    assert again._preimage.space.map is again._map


def test_sparse_models_stay_on_the_host(cuda, tmp_path):
    model, X = fitted("sparse")
    model.save(tmp_path / "m.npz")
    np.testing.assert_array_equal(gpukpca.load(tmp_path / "m.npz", "auto").transform(X), model.transform(X))
    with pytest.raises(InvalidParameterError, match="sparse rows are computed on the CPU"):
        gpukpca.load(tmp_path / "m.npz", "cuda")


def test_batches_go_on_after_loading(cuda, tmp_path):
    model = IncrementalPCA(2).partial_fit(data())
    model.save(tmp_path / "m.npz")
    wanted = model.partial_fit(data(seed=1)).components_
    np.testing.assert_array_equal(gpukpca.load(tmp_path / "m.npz").partial_fit(data(seed=1)).components_, wanted)
    there = gpukpca.load(tmp_path / "m.npz", device="cuda").partial_fit(data(seed=1))
    assert there.device_.startswith("cuda")
    np.testing.assert_allclose(there.components_, wanted, atol=1e-12)


def test_without_a_device_the_parameter_says_what_is_wrong(tmp_path):
    model, _ = fitted("PCA")
    model.save(tmp_path / "m.npz")
    assert gpukpca.load(tmp_path / "m.npz", device="cpu").device == "cpu"
    with pytest.raises(InvalidParameterError, match="device='gpu'"):
        gpukpca.load(tmp_path / "m.npz", device="gpu")
    if not gpukpca.backend.device.cuda_is_installed():
        with pytest.raises(DeviceUnavailableError, match="cupy"):
            gpukpca.load(tmp_path / "m.npz", device="cuda")


def test_golden_files_are_read():
    """Made by ``python tests/persistence/golden/make.py``, one set for every format; the scores are among the notes."""
    files = sorted(GOLDEN.glob("*.npz"))
    assert {path.stem.rpartition("_")[2] for path in files} == {str(number) for number in range(1, FORMAT + 1)}
    for path in files:
        model, notes = load_with_notes(path)
        np.testing.assert_allclose(model.transform(notes["X_new"]), notes["scores"], rtol=0, atol=1e-13)


def test_parameters_that_an_older_file_lacks_have_their_default():
    assert changed("linear", lambda header, _: header.pop("parameters.memory_limit")).memory_limit is None


def test_notes_come_back(tmp_path):
    notes = {"mean": np.arange(3.0), "names": ("a", "b"), "source": "x.csv", "nested": {"a": [1, 2], "b": (1, "c")}}
    model, _ = fitted("PCA")
    save_with_notes(model, tmp_path / "m.npz", notes | {"nothing": None, "none": ()})
    _, found = load_with_notes(tmp_path / "m.npz")
    assert_same(found.pop("mean"), notes.pop("mean"), "mean")
    assert found == notes | {"nothing": None, "none": ()}
    assert load_with_notes(GOLDEN / "pca_1.npz")[1].keys() == {"X_new", "scores"}


def test_the_file_can_be_read_without_the_library(tmp_path):
    model, _ = fitted("PCA")
    model.save(tmp_path / "m.npz")
    with np.load(tmp_path / "m.npz", allow_pickle=False) as archive:
        np.testing.assert_array_equal(archive["components_"], model.components_)
        header = json.loads(archive["header.json"])
    assert header["estimator"] == "PCA"
    assert header["version"] == gpukpca.__version__
    assert not [value for value in header.values() if isinstance(value, dict)]


def test_no_array_is_written_twice(tmp_path):
    X = data(2000, 20)
    model = KernelPCA(2, kernel="rbf").fit(X)
    model.save(tmp_path / "m.npz")
    assert (tmp_path / "m.npz").stat().st_size < 1.1 * (X.nbytes + 2 * model.eigenvectors_.nbytes) + 20_000


def test_a_loaded_model_shares_nothing_with_its_file(tmp_path):
    model, X = fitted("rbf, inverse")
    model.save(tmp_path / "m.npz")
    again = gpukpca.load(tmp_path / "m.npz")
    (tmp_path / "m.npz").write_bytes(b"")
    np.testing.assert_array_equal(again.transform(X), model.transform(X))
    again.X_fit_ += 1.0  # an array like any other


def test_a_memory_map_becomes_part_of_the_file(tmp_path):
    np.save(tmp_path / "X.npy", data(200))
    model = KernelPCA(2, kernel="rbf").fit(np.load(tmp_path / "X.npy", mmap_mode="r"))
    model.save(tmp_path / "m.npz")
    again = gpukpca.load(tmp_path / "m.npz")
    assert type(again.X_fit_) is np.ndarray
    np.testing.assert_allclose(again.transform(data()), model.transform(data()), rtol=0, atol=1e-13)


def test_what_belongs_to_a_process_is_left_out(tmp_path):
    rng = np.random.RandomState(0)
    model = PCA(2, random_state=rng, verbose=lambda event: None, device="cpu").fit(data())
    model.save(tmp_path / "m.npz")
    again = gpukpca.load(tmp_path / "m.npz")
    assert (again.random_state, again.verbose, again.device) == (None, 0, None)


# -- what cannot be saved ----------------------------------------------------------------------------------------------


class Own(kernels.RBF):
    """A kernel of the user's."""


class OwnPCA(PCA):
    """An estimator of the user's."""


class OwnSolver(BlockKrylov):
    """A solver of the user's."""


def product(x: np.ndarray, y: np.ndarray) -> float:
    return float(x @ y)


CODE = {
    "function": (KernelPCA(1, kernel=product), "kernel is a function, which is code"),
    "process kernel": (KernelPCA(1, kernel=ProcessRBF()), "kernel is a RBF, which is code"),
    "own kernel": (KernelPCA(1, kernel=Own(0.1)), "kernel is a Own, which is code"),
    "inside": (KernelPCA(1, kernel=2.0 * (Own(0.1) + kernels.Linear())), r"kernel\.k\.k1 is a Own"),
    "modulated": (
        KernelPCA(1, kernel=kernels.modulate(kernels.RBF(), lambda X: X[:, 0] * 0.0 + 1.0)),
        "Modulated, which is code",
    ),
    "own solver": (KernelPCA(1, eigen_solver=OwnSolver()), "eigen_solver is a OwnSolver, which has no place"),
    "own class": (OwnPCA(1), "OwnPCA is a class of its own"),
    "huge integer": (PCA(1, memory_limit=10**30), "beyond 64 bits"),
}


@pytest.mark.parametrize("case", CODE)
def test_code_is_refused_and_the_old_file_stays(case, tmp_path):
    estimator, message = CODE[case]
    (tmp_path / "m.npz").write_text("old")
    model = estimator.fit(data())
    with pytest.raises(InvalidParameterError, match=message):
        model.save(tmp_path / "m.npz")
    assert (tmp_path / "m.npz").read_text() == "old"
    assert os.listdir(tmp_path) == ["m.npz"]


def test_only_fitted_models_are_saved(tmp_path):
    for estimator in (cls() for cls in ESTIMATORS.values()):
        with pytest.raises(NotFittedError):
            estimator.save(tmp_path / "m.npz")


def test_places_that_cannot_be_written_to_are_named(tmp_path):
    model, _ = fitted("PCA")
    with pytest.raises(IsADirectoryError):
        model.save(tmp_path)
    with pytest.raises(FileNotFoundError, match="no folder"):
        model.save(tmp_path / "none" / "m.npz")
    with pytest.raises(IsADirectoryError):
        model.save(f"{tmp_path}/none/")
    with pytest.raises(TypeError):
        model.save(3)
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(OSError, match="symbolic links"):
        model.save(tmp_path / "loop")
    with pytest.raises(OSError, match="device"):
        model.save("/dev/null")
    (tmp_path / "m.npz").write_text("old")
    (tmp_path / "m.npz").chmod(0o444)
    if not os.access(tmp_path / "m.npz", os.W_OK):  # the administrator may write anywhere
        with pytest.raises(PermissionError):
            model.save(tmp_path / "m.npz")


def test_a_path_may_be_bytes(tmp_path):
    path = os.fsencode(tmp_path / "modèle.npz")
    fitted("PCA")[0].save(path)
    assert isinstance(gpukpca.load(path), PCA)


def test_no_file_is_written_that_could_not_be_read(tmp_path):
    model, _ = fitted("PCA, scaled and whitened")
    model.scale_ = model.scale_ * np.inf
    with pytest.raises(InvalidParameterError, match="cannot be saved: PCA: scale_ must be finite"):
        model.save(tmp_path / "m.npz")
    model, _ = fitted("rbf, inverse")
    model.more_ = model._more = 1.0
    with pytest.raises(InvalidParameterError, match="KernelPCA has _more, more_, which a model file has no place for"):
        model.save(tmp_path / "m.npz")
    assert os.listdir(tmp_path) == []


def test_what_scikit_learn_notes_of_an_estimator_is_in_nobodys_way(tmp_path):
    model = PCA(2).set_output(transform="pandas").fit(data())
    model.save(tmp_path / "m.npz")
    assert isinstance(gpukpca.load(tmp_path / "m.npz").transform(data()), np.ndarray)


# What follows from other parts, what is made at the first use, what a fit notes on its way, what code made.
LEFT_OUT = {
    "AffineProjection": {"rows"},
    "FeatureSpace": {"landmarks", "axes"},
    "FixedPoint": {"points", "slope"},
    "DistanceConstraint": {"points"},
    "Cluster": {"reseeded", "fallbacks"},
    "CombinedRows": {"factors"},
    "SparseProductRows": {"half_norms"},
}


@pytest.mark.parametrize("base", [Storage, Solver])
def test_every_part_of_a_model_has_an_entry(base):
    classes = {cls for cls in subclasses(base) if cls.__module__.startswith("gpukpca.")}
    assert not {cls.__name__ for cls in classes} - {entry.cls.__name__ for entry in ENTRIES}


def test_every_named_kernel_has_an_entry():
    kernels = {type(make(KernelPCA(), {})) for make in NAMED_KERNELS.values()}
    assert kernels <= {entry.cls for entry in ENTRIES}


def subclasses(base: type) -> set[type]:
    """Return the classes below a class."""
    direct = set(base.__subclasses__())
    return direct.union(*map(subclasses, direct))


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.cls.__name__)
def test_the_table_has_every_part_of_an_object(entry):
    parts = set(inspect.signature(entry.cls).parameters)
    assert parts - set(entry.kinds) == LEFT_OUT.get(entry.cls.__name__, set())
    assert not set(entry.kinds) - parts


def test_a_model_of_more_arrays_than_are_read_is_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr(save_load, "MOST_MEMBERS", 12)
    with pytest.raises(InvalidParameterError, match=r"cannot be saved: it has \d+ arrays"):
        fitted("local")[0].save(tmp_path / "m.npz")
    assert os.listdir(tmp_path) == []


def test_a_model_of_more_text_than_is_read_is_not_written(tmp_path):
    model, _ = fitted("PCA, frame")
    model.feature_names_in_ = np.array(["x" * LARGEST_HEADER, "b", "c", "d"], dtype=object)
    with pytest.raises(InvalidParameterError, match=r"a file holds 1000000\. Fit an array without column names"):
        model.save(tmp_path / "m.npz")
    assert os.listdir(tmp_path) == []


def test_a_header_of_more_than_a_megabyte_is_not_parsed(tmp_path, monkeypatch):
    (tmp_path / "m.npz").write_bytes(BROKEN["a header of more than a megabyte"]())
    monkeypatch.setattr(json, "loads", poison)
    with pytest.raises(ModelFormatError, match=r"header\.json has \d+ bytes, and at most 1000000 are read"):
        gpukpca.load(tmp_path / "m.npz")


def test_archives_beyond_four_gigabytes_have_wider_numbers(tmp_path, monkeypatch):
    model, X = fitted("PCA")
    with monkeypatch.context() as patch:
        patch.setattr(zipfile, "ZIP64_LIMIT", 100)
        model.save(tmp_path / "m.npz")
    np.testing.assert_array_equal(gpukpca.load(tmp_path / "m.npz").transform(X), model.transform(X))


def test_links_are_followed_and_permissions_kept(tmp_path):
    model, X = fitted("PCA")
    (tmp_path / "real.npz").write_text("old")
    (tmp_path / "real.npz").chmod(0o640)
    (tmp_path / "m.npz").symlink_to("real.npz")
    model.save(str(tmp_path / "m.npz"))
    assert (tmp_path / "m.npz").is_symlink()
    assert stat.S_IMODE((tmp_path / "real.npz").stat().st_mode) == 0o640
    np.testing.assert_array_equal(gpukpca.load(str(tmp_path / "real.npz")).transform(X), model.transform(X))


# -- killed while writing, two at once ---------------------------------------------------------------------------------

POINTS = [("write", 0), ("write", 1), ("write", 9), ("fsync", 0), ("replace", 0), ("fsync", 1)]


def dies(point: str, countdown: int) -> None:
    """From now on this process is killed when it calls the function of that name for the so-and-so-manieth time."""
    owner: Any = zipfile._ZipWriteFile if point == "write" else os  # type: ignore[attr-defined]
    original = getattr(owner, point)

    def deadly(*arguments: Any, **named: Any) -> Any:
        nonlocal countdown
        countdown -= 1
        if countdown < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*arguments, **named)

    setattr(owner, point, deadly)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes and signals as on POSIX")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("point", POINTS)
def test_whoever_is_killed_leaves_the_old_file_or_the_new_one(point, tmp_path):
    old, new = PCA(1).fit(data()), PCA(2).fit(data())
    old.save(tmp_path / "m.npz")
    child = os.fork()
    if child == 0:
        try:
            dies(*point)
            new.save(tmp_path / "m.npz")
        finally:
            os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    is_new = point == ("fsync", 1)  # of the folder, after the new name is there
    assert gpukpca.load(tmp_path / "m.npz").n_components_ == (2 if is_new else 1)


def test_of_two_writers_the_last_one_wins_whole(tmp_path, monkeypatch):
    first, second = PCA(1).fit(data()), PCA(2).fit(data())
    replace = os.replace

    def meanwhile(source: Any, target: Any) -> None:
        monkeypatch.setattr(os, "replace", replace)
        second.save(target)
        assert gpukpca.load(target).n_components_ == 2
        replace(source, target)

    monkeypatch.setattr(os, "replace", meanwhile)
    first.save(tmp_path / "m.npz")
    assert gpukpca.load(tmp_path / "m.npz").n_components_ == 1
    assert os.listdir(tmp_path) == ["m.npz"]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_write_that_fails_leaves_nothing_behind(error, tmp_path, monkeypatch):
    PCA(1).fit(data()).save(tmp_path / "m.npz")

    def fails(*_: Any) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fails)
        with pytest.raises(type(error)):
            PCA(2).fit(data()).save(tmp_path / "m.npz")
    assert gpukpca.load(tmp_path / "m.npz").n_components_ == 1
    assert os.listdir(tmp_path) == ["m.npz"]


# -- files that are none -----------------------------------------------------------------------------------------------


def whole() -> bytes:
    """The bytes of a small valid file."""
    return (GOLDEN / "incremental_pca_1.npz").read_bytes()


def archive(change: Callable[[zipfile.ZipFile, dict[str, bytes]], Any], **options: Any) -> bytes:
    """The members of a valid file written anew, with a change to them; what is left over is written as it is."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(whole())) as old, zipfile.ZipFile(buffer, "w", **options) as new:
        members = {name: old.read(name) for name in old.namelist()}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            change(new, members)
            for name, content in members.items():
                new.writestr(name, content)
    return buffer.getvalue()


def with_header(text: bytes) -> bytes:
    return archive(lambda new, members: members.update({"header.json": text}))


def header_with(**values: Any) -> bytes:
    """A valid header with other values."""

    def change(new: zipfile.ZipFile, members: dict[str, bytes]) -> None:
        header = {**json.loads(members["header.json"]), **{k.replace("__", "."): v for k, v in values.items()}}
        members["header.json"] = json.dumps(header).encode()

    return archive(change)


def with_array(header: str, content: bytes = b"", name: str = "components_.npy") -> bytes:
    """An array with a header of one's own."""
    text = header.encode().ljust(118) + b"\n"
    start = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text
    return archive(lambda new, members: members.update({name: start + content}))


def saved(function: Callable[..., Any], *arguments: Any, **named: Any) -> bytes:
    buffer = io.BytesIO()
    function(buffer, *arguments, **named)
    return buffer.getvalue()


def encrypted(content: bytes) -> bytes:
    """Every member marked as encrypted, in its own header and in the directory."""
    found = bytearray(content)
    for mark, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        start = found.find(mark)
        while start >= 0:
            found[start + place] |= 1
            start = found.find(mark, start + 4)
    return bytes(found)


def a_claim(shape: str, descr: str = "<f8") -> bytes:
    return with_array(f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}", b"\0" * 48)


OBJECTS = np.array([{"a": 1}, None], dtype=object)
BROKEN: dict[str, Callable[[], bytes]] = {
    "empty": lambda: b"",
    "text": lambda: b"scores, 1, 2\n",
    "zeros": lambda: bytes(100_000),
    "pickle": lambda: pickle.dumps({"a": np.arange(3)}),
    "joblib": lambda: saved(lambda buffer: joblib.dump({"a": np.arange(3)}, buffer)),
    "npy": lambda: saved(np.save, np.arange(3)),
    "npz of scores": lambda: saved(np.savez, scores=np.arange(3)),
    "npz with objects": lambda: saved(np.savez, a=OBJECTS, allow_pickle=True),
    "objects for an array": lambda: archive(
        lambda new, members: members.update({"components_.npy": saved(np.save, OBJECTS, allow_pickle=True)})
    ),
    "compressed": lambda: archive(lambda new, members: None, compression=zipfile.ZIP_DEFLATED),
    "bomb": lambda: archive(
        lambda new, members: new.writestr("bomb_.npy", bytes(50_000_000), compress_type=zipfile.ZIP_DEFLATED)
    ),
    "encrypted": lambda: encrypted(whole()),
    "no header": lambda: archive(lambda new, members: members.pop("header.json")),
    "a member twice": lambda: archive(lambda new, members: new.writestr("mean_.npy", members["mean_.npy"])),
    "a member too few": lambda: archive(lambda new, members: members.pop("mean_.npy")),
    "a member too many": lambda: archive(lambda new, members: members.update({"more_.npy": members["mean_.npy"]})),
    "a private one too many": lambda: archive(lambda new, members: members.update({"_x.npy": members["mean_.npy"]})),
    "path upwards": lambda: archive(lambda new, members: members.update({"../up.npy": members["mean_.npy"]})),
    "absolute path": lambda: archive(lambda new, members: members.update({"/tmp/up.npy": members["mean_.npy"]})),
    "folder": lambda: archive(lambda new, members: members.update({"folder/": b""})),
    "other member": lambda: archive(lambda new, members: members.update({"run.py": b"import os"})),
    "many members": lambda: archive(
        lambda new, members: members.update({f"a{i}_.npy": b"" for i in range(MOST_MEMBERS)})
    ),
    "value inside of an array": lambda: archive(
        lambda new, members: members.update({"mean_.deep.npy": members["mean_.npy"]})
    ),
    "not UTF-8": lambda: with_header(b'{"format": 1, "version": "\xff\xfe"}'),
    "no JSON": lambda: with_header(b"{"),
    "a list": lambda: with_header(b"[1]"),
    "a number": lambda: with_header(b"1"),
    "empty header": lambda: with_header(b""),
    "nothing said": lambda: with_header(b"{}"),
    "deep": lambda: with_header(b'{"format":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "deep objects": lambda: with_header(b'{"a":' * 100_000 + b"1" + b"}" * 100_000),
    "a key twice": lambda: with_header(b'{"format": 1, "format": 1, "version": "0", "estimator": "PCA"}'),
    "NaN": lambda: header_with(noise_variance_=float("nan")),
    "infinity": lambda: header_with(noise_variance_=float("inf")),
    "beyond float64": lambda: with_header(b'{"format": 1, "version": "0", "a": 1e999}'),
    "a header of more than a megabyte": lambda: with_header(
        b'{"format": 1, "version": "0", "a": "' + b"a" * LARGEST_HEADER + b'"}'
    ),
    "an integer of 10**5 digits": lambda: with_header(b'{"format": 1, "version": "0", "a": ' + b"9" * 100_000 + b"}"),
    "not flat": lambda: header_with(noise_variance_={"a": 1}),
    "list in a list": lambda: header_with(noise_variance_=[[1]]),
    "half of a surrogate pair": lambda: with_header(b'{"format": 1, "version": "\\ud800"}'),
    "key of another alphabet": lambda: header_with(**{"ü": 1}),
    "empty key": lambda: header_with(**{"": 1}),
    "key of 65 parts": lambda: header_with(**{"__".join(["a"] * 65): 1}),
    "format is text": lambda: header_with(format="1"),
    "format is true": lambda: header_with(format=True),
    "format 0": lambda: header_with(format=0),
    "version is missing": lambda: with_header(b'{"format": 1}'),
    "unknown estimator": lambda: header_with(estimator="SVC"),
    "estimator is a list": lambda: header_with(estimator=["PCA"]),
    "another estimator": lambda: header_with(estimator="PCA"),
    "estimator of another room": lambda: header_with(estimator="os.system"),
    "parameters are a value": lambda: with_header(
        b'{"format": 1, "version": "0", "estimator": "PCA", "parameters": 1}'
    ),
    "unknown parameter": lambda: header_with(parameters__depth=3),
    "parameter that is never kept": lambda: header_with(parameters__device="cuda"),
    "wrong parameter": lambda: header_with(parameters__n_components="two"),
    "parameter of a class": lambda: header_with(parameters__batch_size__class="RBF"),
    "unknown class": lambda: header_with(parameters__batch_size__class="os.system"),
    "wrong type": lambda: header_with(noise_variance_="none"),
    "true for a number": lambda: header_with(noise_variance_=True),
    "negative variance": lambda: header_with(noise_variance_=-1.0),
    "negative count": lambda: header_with(n_samples_seen_=-1),
    "wrong number of features": lambda: header_with(n_features_in_=99),
    "wrong number of components": lambda: header_with(n_components_=99),
    "unknown attribute": lambda: header_with(more_=1),
    "a method": lambda: header_with(transform=1),
    "part of a class missing": lambda: header_with(_state__moments__class="Running"),
    "same as nothing": lambda: header_with(mean___as="none_"),
    "10**13 elements": lambda: a_claim("(10000000000000,)"),
    "a product beyond 64 bits": lambda: a_claim("(4294967296, 4294967297)"),
    "a product beyond 64 bits that comes back to 6": lambda: a_claim("(6148914691236517206, 3)"),
    "negative length": lambda: a_claim("(-1, 3)"),
    "10**4 dimensions": lambda: a_claim(f"({'1, ' * 10_000})"),
    "10**6 dimensions": lambda: a_claim(f"({'1, ' * 5_000})" + " " * 10),
    "a huge length beside none": lambda: a_claim("(0, 9999999999999999999)"),
    "lengths that are no numbers": lambda: a_claim("(1e3,)"),
    "a call for a shape": lambda: a_claim("(__import__('os').getpid(),)"),
    "complex": lambda: a_claim("(3,)", "<c16"),
    "text array": lambda: a_claim("(3,)", "<U4"),
    "big-endian": lambda: a_claim("(6,)", ">f8"),
    "object array": lambda: a_claim("(6,)", "|O"),
    "structured": lambda: with_array("{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (6,), }", b"\0" * 48),
    "one byte too many": lambda: archive(
        lambda new, members: members.update({"mean_.npy": members["mean_.npy"] + b"\0"})
    ),
    "array without a header": lambda: archive(lambda new, members: members.update({"mean_.npy": b"\x93NUMPY"})),
    "array of format 2": lambda: archive(
        lambda new, members: members.update({"mean_.npy": b"\x93NUMPY\x02" + members["mean_.npy"][7:]})
    ),
    "very many members": lambda: whole()[:-10] + (2**31).to_bytes(4, "little") + whole()[-6:],
    "comment": lambda: whole()[:-2] + b"\x05\x00hello",
    "bytes before": lambda: b"#!/bin/sh\n" + whole(),
    "another file before": lambda: whole() + whole(),
    "end only": lambda: whole()[-22:],
    "two halves": lambda: whole()[: len(whole()) // 2] + whole()[-22:],
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_no_model_file_is_refused(case, tmp_path, monkeypatch):
    path = tmp_path / "m.npz"
    path.write_bytes(BROKEN[case]())
    for module, name in ((pickle, "loads"), (pickle, "load"), (pickle, "Unpickler"), (joblib, "load"), (np, "load")):
        monkeypatch.setattr(module, name, poison)
    tracemalloc.start()
    started = time.perf_counter()
    try:
        with pytest.raises(ModelFormatError, match="no model file of gpukpca"):
            gpukpca.load(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert time.perf_counter() - started < 2.0
    assert peak < 20 * len(path.read_bytes()) + 1_000_000


def poison(*_: Any, **__: Any) -> None:
    raise AssertionError("this runs what a file says")


def test_reading_never_unpickles(monkeypatch):
    for name in ("loads", "load", "Unpickler"):
        monkeypatch.setattr(pickle, name, poison)
    monkeypatch.setattr(np, "load", poison)
    for path in GOLDEN.glob("*.npz"):
        gpukpca.load(path)


@pytest.mark.skipif(sys.platform == "win32", reason="devices and pipes as on POSIX")
def test_places_that_hold_no_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        gpukpca.load(tmp_path / "none.npz")
    with pytest.raises(IsADirectoryError):
        gpukpca.load(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    for path in ("/dev/zero", "/dev/null", tmp_path / "pipe"):
        with pytest.raises(ModelFormatError, match="a device or a pipe"):
            gpukpca.load(path)
    with pytest.raises(TypeError):
        gpukpca.load(0)
    (tmp_path / "m.npz").write_bytes(whole())
    (tmp_path / "m.npz").chmod(0)
    if not os.access(tmp_path / "m.npz", os.R_OK):
        with pytest.raises(PermissionError):
            gpukpca.load(tmp_path / "m.npz")


def test_the_name_of_the_file_does_not_matter(tmp_path):
    (tmp_path / "model.pkl").write_bytes(whole())
    assert isinstance(gpukpca.load(tmp_path / "model.pkl"), IncrementalPCA)


def test_every_proper_beginning_of_a_file_is_refused(tmp_path):
    path = tmp_path / "m.npz"
    path.write_bytes(whole())
    for length in reversed(range(len(whole()))):
        os.truncate(path, length)
        with pytest.raises(ModelFormatError):
            gpukpca.load(path)


def test_a_newer_format_names_the_version_that_wrote_it(tmp_path):
    (tmp_path / "m.npz").write_bytes(header_with(format=FORMAT + 1, version="9.1.0", estimator="Later"))
    with pytest.raises(ModelFormatError, match=r"written by gpukpca 9\.1\.0 in format .*newer gpukpca"):
        gpukpca.load(tmp_path / "m.npz")


RIDGE_KERNELS = ("_preimage.kernel", "_preimage.rule.kernel")


def drop_row(arrays: dict[str, np.ndarray], name: str) -> None:
    arrays[name] = arrays[name][:-1]


def without(header: dict[str, Any], arrays: dict[str, np.ndarray], path: str) -> None:
    """Nothing of a part is left."""
    for part in (header, arrays):
        for key in [key for key in part if key == path or key.startswith(f"{path}.")]:
            del part[key]


def no_features(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    header["n_features_in_"] = 0
    arrays.update({name: array[..., :0] if array.shape[-1] == 4 else array[:0] for name, array in arrays.items()})


def another_template(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    without(header, arrays, "_map.template")
    fields = {"class": "DotRows", "factor": 1.0, "mean": None, "copied": False}
    header.update({f"_map.template.{name}": value for name, value in fields.items()})
    arrays["_map.template.data"] = np.zeros((0, 4))


def another_map(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """The map of a pre-image is one of its own, with the same numbers."""
    old, new = "_map.", "_preimage.space.map."
    del header["_preimage.space.map.as"]
    header.update({new + key[len(old) :]: value for key, value in list(header.items()) if key.startswith(old)})
    arrays.update({new + key[len(old) :]: value for key, value in list(arrays.items()) if key.startswith(old)})


def same_as(header: dict[str, Any], arrays: dict[str, np.ndarray], path: str, other: str) -> None:
    """Nothing of a part is left but the word that it is another."""
    without(header, arrays, path)
    header[f"{path}.as"] = other


# name of the model, what is wrong with it, part of the message
CONTRADICTIONS: dict[str, tuple[str, Callable[[dict[str, Any], dict[str, np.ndarray]], Any], str | None]] = {
    "other length": ("rbf, inverse", lambda h, a: a.update(eigenvalues_=a["eigenvalues_"][:2]), "shape"),
    "NaN inside": ("rbf, inverse", lambda h, a: a["eigenvectors_"].__setitem__((3, 1), np.nan), "NaN or infinity"),
    "infinity in the data": ("rbf, inverse", lambda h, a: a["X_fit_"].__setitem__((0, 0), np.inf), "NaN or infinity"),
    "negative eigenvalue": ("rbf, inverse", lambda h, a: a["eigenvalues_"].__setitem__(2, -0.1), "descend"),
    "scale of 0": ("PCA, scaled and whitened", lambda h, a: a["scale_"].__setitem__(0, 0.0), "scale_ must be positive"),
    "negative residual": ("rbf, inverse", lambda h, a: a["residual_norms_"].__setitem__(0, -0.1), "residual_norms_"),
    "negative share": ("PCA", lambda h, a: a["explained_variance_ratio_"].__setitem__(0, -0.1), ">= 0"),
    "ascending": ("rbf, inverse", lambda h, a: a.update(eigenvalues_=a["eigenvalues_"][::-1].copy()), "descend"),
    "not orthonormal": ("rbf, inverse", lambda h, a: a["eigenvectors_"].__setitem__((0, 0), 0.9), "orthonormal"),
    "not unit": ("PCA", lambda h, a: a.update(components_=1.01 * a["components_"]), "orthonormal"),
    "integers for data": ("rbf, inverse", lambda h, a: a.update(X_fit_=a["X_fit_"].astype(np.int64)), "finite rows"),
    "huge vectors": ("PCA", lambda h, a: a.update(components_=1e300 * a["components_"]), "orthonormal"),
    "landmark that is no sample": ("Nyström", lambda h, a: a["landmarks_"].__setitem__(0, 30), "landmarks_"),
    "negative landmark": ("precomputed, Nyström", lambda h, a: a["landmarks_"].__setitem__(0, -1), "landmarks_"),
    "interval upside down": ("Nyström", lambda h, a: h.update(total_variance_interval_=[2.0, 1.0]), "in order"),
    "kernel unknown": ("rbf, inverse", lambda h, a: h.update({"kernel_.class": "Own"}), "'Own', which is none of"),
    "kernel of another name": (
        "rbf, inverse",
        lambda h, a: h.update({"parameters.kernel": "own"}) or h.update({"kernel_.class": "Linear"}),
        "Linear",
    ),
    "kernel parameter unknown": ("rbf, inverse", lambda h, a: h.update({"kernel_.nu": 1.5}), "has no nu"),
    "kernel parameter missing": ("rbf, inverse", lambda h, a: h.pop("kernel_.gamma"), "lacks gamma"),
    "kernel parameter out of range": ("rbf, inverse", lambda h, a: h.update({"kernel_.gamma": -1.0}), "gamma=-1.0"),
    "kernel with a rule": ("rbf, inverse", lambda h, a: h.update({"kernel_.gamma": "scale"}), "gamma='scale'"),
    "kernel inside out of range": ("combined", lambda h, a: h.update({"kernel_.k1.k1.factor": 0.0}), "factor=0.0"),
    "kernel is a plan": (
        "rbf, inverse",
        lambda h, a: h.update({"kernel_.class": "Dense", "kernel_.tol": 0.0}),
        "Dense",
    ),
    "kernel is text": (
        "precomputed",
        lambda h, a: h.pop("kernel_.class") and h.update(kernel_="rbf"),
        "must be a Kernel",
    ),
    "template of another kernel": ("rbf, inverse", lambda h, a: another_template(h, a), "no model"),
    "half a pre-image": ("rbf, inverse", lambda h, a: a.pop("X_transformed_fit_"), None),
    "CSR indices beyond the columns": ("sparse", lambda h, a: a["X_fit_.indices"].__setitem__(0, 6), "CSR"),
    "CSR indices below 0": ("sparse", lambda h, a: a["X_fit_.indices"].__setitem__(0, -1), "CSR"),
    "CSR rows beyond the data": ("sparse", lambda h, a: a["X_fit_.indptr"].__setitem__(-1, 10**6), "CSR"),
    "CSR rows backwards": ("sparse", lambda h, a: a["X_fit_.indptr"].__setitem__(1, 60), "CSR"),
    "CSR of another shape": ("sparse", lambda h, a: h.update({"X_fit_.shape": [30, 10**12]}), None),
    "CSR of more columns than memory": (
        "sparse",
        lambda h, a: h.update({"X_fit_.shape": [30, 10**12], "n_features_in_": 10**12}),
        "finite rows",
    ),
    "CSR with NaN": ("sparse", lambda h, a: a["X_fit_.data"].__setitem__(0, np.nan), "finite rows"),
    "CSR without data": ("sparse", lambda h, a: a.pop("X_fit_.data"), None),
    "constant feature that is none": (
        "constant features",
        lambda h, a: a["_map.template.geometry.varying"].__setitem__(0, 99),
        "varying",
    ),
    "solver unknown": ("linear", lambda h, a: h.update({"plan_.solver.class": "Own"}), "Own"),
    "plan without tiles": ("rbf, inverse", lambda h, a: h.update({"plan_.storage.tile_edge": 0}), "tile_edge"),
    "method unknown": ("PCA", lambda h, a: h.update({"plan_.method": "guess"}), "method"),
    "names too few": ("frame", lambda h, a: h.update({"feature_names_in_.items": ["one"]}), "feature_names_in_"),
    "a name twice": ("frame", lambda h, a: h.update({"feature_names_in_.items": ["one"] * 4}), "feature_names_in_"),
    "names that are numbers": ("frame", lambda h, a: h.update({"feature_names_in_.items": [1, 2, 3, 4]}), "texts"),
    "a mean of other length": ("ridge", lambda h, a: drop_row(a, "_map.mean_weights"), "mean_weights"),
    "a mean with NaN": ("ridge", lambda h, a: a["_map.mean_weights"].__setitem__(3, np.nan), "mean_weights"),
    "a mean without its norm": ("ridge", lambda h, a: h.pop("_map.mean_norm"), "lacks mean_norm"),
    "a mean of infinite norm": (
        "ridge",
        lambda h, a: a.update({"_map.mean_norm": np.asarray(np.inf)}) or h.pop("_map.mean_norm"),
        "mean_norm must be a finite number",
    ),
    "no rows": ("ridge", lambda h, a: a.update({k: v[:0] for k, v in a.items() if len(v) == 30}), None),
    "no samples": ("local", lambda h, a: a.update(labels_=a["labels_"][:0]), "it has no samples"),
    "no features": ("PCA, none", lambda h, a: no_features(h, a), "it has no features"),
    "ridge without coefficients": ("ridge", lambda h, a: h.pop("_preimage.dual_coef.as"), "lacks dual_coef"),
    "ridge of other length": (
        "ridge, landmarks",
        lambda h, a: drop_row(a, "_preimage.knots"),
        r"knots must be",
    ),
    "ridge of more rows than landmarks": (
        "ridge, landmarks",
        lambda h, a: h.update({"_preimage.rule.landmarks": 7}),
        "8 rows for 30 samples and 7 landmarks",
    ),
    "ridge of fewer rows than samples": (
        "ridge, landmarks",
        lambda h, a: h.update({"_preimage.rule.landmarks": 0}),
        "8 rows for 30 samples and 0 landmarks",
    ),
    "centered ridge without a mean": (
        "ridge",
        lambda h, a: without(h, a, "_preimage.mean") or h.update({"_preimage.mean": None}),
        "must have a mean",
    ),
    "ridge with a mean that is not centered": (
        "ridge",
        lambda h, a: h.update({"_preimage.rule.centered": False}),
        "must have a mean",
    ),
    "ridge with a negative weight": ("ridge", lambda h, a: h.update({"_preimage.rule.alpha": -1.0}), "alpha"),
    "ridge with a rule for gamma": ("ridge", lambda h, a: h.update({"_preimage.kernel.gamma": "scale"}), "gamma"),
    "ridge with a rule that is none": ("ridge", lambda h, a: h.update({"_preimage.rule.kernel.gamma": "x"}), "gamma"),
    "ridge with another kernel than its rule": (
        "ridge",
        lambda h, a: h.update({"_preimage.rule.kernel.class": "Laplacian"}),
        "was to be Laplacian",
    ),
    "ridge on a matrix": (
        "ridge",
        lambda h, a: [h.update({f"{k}.class": "Precomputed"}) or h.pop(f"{k}.gamma") for k in RIDGE_KERNELS],
        None,
    ),
    "ridge without public coefficients": (
        "ridge",
        lambda h, a: a.update({"_preimage.dual_coef": a.pop("dual_coef_")}) or h.pop("_preimage.dual_coef.as"),
        "half of a pre-image",
    ),
    "ridge on other samples": (
        "ridge, Nyström",
        lambda h, a: drop_row(a, "_preimage.X"),
        "X must be finite",
    ),
    "slope of a kernel that has none": (
        "fixed point",
        lambda h, a: (
            h.update({"kernel_.class": "Laplacian", "_map.template": None})
            or [h.pop(k) for k in list(h) if k.startswith("_map.template.")]
        ),
        None,
    ),
    "no looks": ("fixed point", lambda h, a: h.update({"_preimage.max_iter": 0}), "max_iter"),
    "negative spread": ("fixed point", lambda h, a: h.update({"_preimage.spread": -1.0}), "spread"),
    "center of other length": (
        "fixed point",
        lambda h, a: without(h, a, "_preimage.mean") or a.update({"_preimage.mean": np.ones(3)}),
        "mean",
    ),
    "starts too few": (
        "fixed point, Nyström",
        lambda h, a: drop_row(a, "_preimage.scores"),
        "scores must be",
    ),
    "pre-image with another kernel": (
        "fixed point",
        lambda h, a: h.update({"_preimage.space.kernel.gamma": 9.0}),
        "of another model",
    ),
    "pre-image on another basis": ("fixed point", lambda h, a: another_map(h, a), "of another model"),
    "norms too few": ("distance constraint", lambda h, a: drop_row(a, "_preimage.norms"), "norms"),
    "norms with NaN": ("distance constraint", lambda h, a: a["_preimage.norms"].__setitem__(0, np.nan), "norms"),
    "negative reach": ("distance constraint", lambda h, a: h.update({"_preimage.reach": -1.0}), "reach"),
    "more neighbors than points": (
        "distance constraint",
        lambda h, a: h.update({"_preimage.n_neighbors": 31}),
        "31 neighbors among 30",
    ),
    "distances without a center": (
        "distance constraint",
        lambda h, a: without(h, a, "_preimage.mean") or h.update({"_preimage.mean": None}),
        "does not tell",
    ),
    "method of pre-images unknown": ("ridge", lambda h, a: h.update({"parameters.preimage": "guess"}), "guess"),
    "option out of range": (
        "ridge, landmarks",
        lambda h, a: h.update({"parameters.preimage.n_landmarks": -1}),
        "n_landmarks=-1",
    ),
    "option unknown": ("ridge, landmarks", lambda h, a: h.update({"parameters.preimage.depth": 3}), "has no depth"),
    "the same as itself": ("ridge", lambda h, a: same_as(h, a, "_preimage", "_preimage"), "nothing that is here"),
    "the same as what comes later": ("ridge", lambda h, a: same_as(h, a, "kernel_", "_preimage"), "nothing that is"),
    "the same as another object": ("ridge", lambda h, a: same_as(h, a, "_preimage", "_map"), "_preimage must be"),
    "a kernel that is in itself twice": ("combined", lambda h, a: same_as(h, a, "kernel_.k2", "kernel_.k1"), "nothing"),
    "a seed that is none": ("PCA", lambda h, a: h.update({"parameters.random_state": 0.5}), "random_state"),
    "the same as many": ("ridge", lambda h, a: h.update({"_preimage.dual_coef.as": [1]}), "nothing that is here"),
    "latent axes not orthonormal": (
        "probabilistic, holes",
        lambda h, a: a["_latent.axes"].__imul__(1.01),
        "axes must be orthonormal",
    ),
    "latent axes too many": (
        "probabilistic, holes",
        lambda h, a: a.update({"_latent.axes": np.eye(4)}),
        "axes must be",
    ),
    "variances below the noise": (
        "probabilistic, holes",
        lambda h, a: h.update({"_latent.noise": 1e9}),
        "at least the noise",
    ),
    "negative noise": ("probabilistic", lambda h, a: h.update({"_latent.noise": -1.0}), "noise must be"),
    "likelihoods with NaN": (
        "probabilistic, holes",
        lambda h, a: a["log_likelihoods_"].__setitem__(0, np.nan),
        "log_likelihoods_",
    ),
    "negative precision": ("Bayesian", lambda h, a: a["precisions_"].__setitem__(0, -1.0), "precisions_"),
    "precision that is no number": ("Bayesian", lambda h, a: a["precisions_"].__setitem__(-1, np.nan), "precisions_"),
    "precisions too few": ("Bayesian", lambda h, a: a.update(precisions_=a["precisions_"][:0]), "precisions_"),
    "weights that do not sum to 1": (
        "local",
        lambda h, a: h.update({"_model.clusters.0.weight": 0.1}),
        "weights must be positive and sum to 1",
    ),
    "a cluster without weight": (
        "local",
        lambda h, a: h.update({"_model.clusters.0.weight": 1.0, "_model.clusters.1.weight": 0.0}),
        "weights must be positive",
    ),
    "a cluster too few": (
        "local",
        lambda h, a: [part.pop(k) for part in (h, a) for k in list(part) if k.startswith("_model.clusters.1.")],
        "1 clusters, and n_clusters_ is 2",
    ),
    "a cluster without noise": ("local", lambda h, a: h.update({"_model.clusters.0.noise": 0.0}), "must be positive"),
    "a cluster with flat axes": (
        "local",
        lambda h, a: a["_model.clusters.1.axes"].__imul__(0.0),
        "axes must be orthonormal",
    ),
    "a cluster of other dimension": (
        "local",
        lambda h, a: a.update({"_model.clusters.1.axes": np.eye(4)[:2]}),
        "axes must be",
    ),
    "a label of no cluster": ("local", lambda h, a: a["labels_"].__setitem__(0, 2), "labels_"),
    "a frame of size 0": ("local", lambda h, a: h.update({"_model.frame.factor": 0.0}), "cannot be multiplied"),
    "history of another method": ("local", lambda h, a: h.update({"_model.method": "hard"}), "history"),
    "method of no kind": ("local", lambda h, a: h.update({"_model.method": "soft"}), "method"),
    "criteria of no pair": ("local, hard", lambda h, a: h.update({"bic_.keys.0": [1, 2, 3]}), "bic_ must be"),
    "criteria by number": ("local, hard", lambda h, a: h.update({"bic_.keys.0": 1}), "bic_ must be"),
    "criteria that are text": (
        "local, hard",
        lambda h, a: h.update({"bic_.values": ["?"] * len(h["bic_.values"])}),
        "bic_ must be",
    ),
    "a value with values inside": ("PCA", lambda h, a: h.update({"noise_variance_.more": 1}), "value"),
}


@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_parts_that_contradict_each_other_are_refused(case):
    name, change, message = CONTRADICTIONS[case]
    with pytest.raises(ModelFormatError, match=message):
        changed(name, change)


@settings(max_examples=60, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(flips=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 7)), min_size=1, max_size=3))
def test_flipped_bits_are_found_or_change_nothing(flips, tmp_path_factory):
    content = bytearray(whole())
    for place, bit in flips:
        content[int(place * len(content))] ^= 1 << bit
    path = tmp_path_factory.getbasetemp() / "flipped.npz"
    path.write_bytes(content)
    try:
        again = gpukpca.load(path)
    except ModelFormatError:
        return
    model = gpukpca.load(GOLDEN / "incremental_pca_1.npz")
    np.testing.assert_array_equal(again.transform(data(5, 3)), model.transform(data(5, 3)))


@pytest.mark.parametrize("bit", range(8))
def test_every_flipped_bit_of_the_last_bytes_is_found(bit, tmp_path):
    """They say where all members are: before the beginning of the file, where the place is misread."""
    path = tmp_path / "flipped.npz"
    for place in range(-22, 0):
        content = bytearray(whole())
        content[place] ^= 1 << bit
        path.write_bytes(content)
        with suppress(ModelFormatError):
            gpukpca.load(path)


VALUES = [None, True, -1, 0, 1, 10**18, -0.5, 1e308, "", "rbf", "RBF", "class", [], [1, 2], ["a"], [None]]


@pytest.mark.parametrize("name", DIVERSE)
@pytest.mark.filterwarnings("ignore:.*have not converged", "ignore:coordinates do not say")
def test_any_value_in_any_place_of_the_header_is_judged(name):
    """Whatever a header of whole members says is a model that works, or a clear error."""
    chance = random.Random(0)
    for key in parts(name)[0]:
        value = chance.choice(VALUES)
        try:
            model = changed(name, lambda header, arrays, at=key, new=value: header.update({at: new}))
        except ModelFormatError:
            continue
        scores = model.transform(data(5))
        assert scores.shape[0] == 5
        if hasattr(model, "inverse_transform"):
            assert model.inverse_transform(scores).shape == (5, 4)
        str(getattr(model, "plan_", ""))
