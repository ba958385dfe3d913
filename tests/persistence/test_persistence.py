"""Model files: what is written is what comes back, and nothing but a model file is ever believed."""

from __future__ import annotations

import copy
import dataclasses
import errno
import json
import os
import pickle
import random
import signal
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
import scipy.sparse
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.gaussian_process.kernels import RBF as ProcessRBF
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler

import gpukpca
from gpukpca import PCA, IncrementalPCA, KernelPCA, LocalPCA, ProbabilisticPCA, _files, kernels, save
from gpukpca._container import LARGEST_HEADER, read_container, write_container
from gpukpca.decomposition._kernels import NAMED_KERNELS
from gpukpca.decomposition._model_files import ESTIMATORS
from gpukpca.eigen import BlockKrylov, Nystrom, Solver
from gpukpca.exceptions import DeviceUnavailableError, InvalidParameterError, ModelFormatError
from gpukpca.gram.storage import DenseStorage, Storage
from gpukpca.persistence.classes import CLASSES
from gpukpca.persistence.model_file import FORMAT, KIND
from gpukpca.persistence.schema import RULES, fields_of
from tests.each import each
from tests.model_files import DIVERSE, MODELS, Arrays, Header, changed, data, fitted, get, holes, parts, paths, put

GOLDEN = Path(__file__).parent / "golden"
# Scores of one model on two libraries: the same numbers, multiplied in another order.
AGREES = {"float64": 1e-12, "float32": 1e-5}


def answers(model: Any, X: Any) -> dict[str, Any]:
    """Return what a model says of its data, or the error with which it refuses, by method."""
    scores = model.transform(X)
    first = (X, 1) if isinstance(model, KernelPCA) else (X,)
    questions: dict[str, tuple[Any, ...]] = {
        **dict.fromkeys(("score_samples", "score", "denoise", "reconstruction_error", "feature_space_error"), (X,)),
        **dict.fromkeys(("predict", "predict_proba", "impute", "posterior_covariance"), (X,)),
        **dict.fromkeys((" denoise", " reconstruction_error", " feature_space_error"), first),
        "inverse_transform": (scores,),
        "get_covariance": (),
    }
    if isinstance(model, ProbabilisticPCA):
        questions["sample"] = (3,)
    found = {"transform": scores}
    for name, arguments in questions.items():
        if method := getattr(model, name.strip(), None):
            try:
                found[name] = method(*arguments)
            except ValueError as error:
                found[name] = str(error)
    return found


def assert_same(a: Any, b: Any, where: str) -> None:
    """Two values are the same to the last bit, arrays and objects of the library included."""
    assert type(a) is type(b), where
    if isinstance(a, np.ndarray):
        assert a.dtype == b.dtype, where
        assert a.flags.f_contiguous == b.flags.f_contiguous or not b.flags.forc, where
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
        for place, pair in enumerate(zip(a, b, strict=True)):
            assert_same(*pair, f"{where}[{place}]")
    elif type(a).__module__.startswith("gpukpca.") and hasattr(a, "__dict__"):
        for name in vars(a).keys() - {"rows", "space"}:  # what is computed at the first use
            assert_same(getattr(a, name), getattr(b, name), f"{where}.{name}")
    else:
        assert a == b, where


# -- there and back ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.filterwarnings("ignore")
def test_a_loaded_model_is_the_one_that_was_saved(name: str, tmp_path: Path) -> None:
    model, X = fitted(name)
    model.save(tmp_path / "m")
    again = gpukpca.load(tmp_path / "m")
    assert type(again) is type(model)
    kept = {key: value for key, value in vars(model).items() if key != "X_fit_" or "precomputed" not in name}
    assert vars(again).keys() == {*kept, "notes_"}
    for attribute, value in kept.items():
        assert_same(vars(again)[attribute], tuple(value) if isinstance(value, range) else value, attribute)
    assert str(getattr(again, "plan_", "")) == str(getattr(model, "plan_", ""))
    assert_same(answers(again, X), answers(model, X), name)
    again.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "m").read_bytes()


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
def test_models_of_every_library_are_read_as_those_of_numpy(xp: Any, name: str, tmp_path: Path) -> None:
    dtype = KINDS[name]
    X = data().astype(dtype)
    model = clone(MODELS[name][0]).fit(xp.array(X))
    model.save(tmp_path / "m")
    again = gpukpca.load(tmp_path / "m")
    scores = again.transform(X)
    assert isinstance(scores, np.ndarray)
    assert scores.dtype == dtype
    expected = xp.host(model.transform(xp.array(X)))
    np.testing.assert_allclose(scores, expected, rtol=0, atol=AGREES[dtype] * np.abs(expected).max())
    for attribute, value in vars(again).items():
        assert not hasattr(value, "shape") or isinstance(value, np.ndarray), attribute
    assert xp.owns(again.transform(xp.array(X)))
    if hasattr(model, "denoise"):
        assert xp.owns(again.denoise(xp.array(X)))


def test_a_model_of_a_device_is_read_where_there_is_none(
    cuda: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    X = data()
    model = KernelPCA(2, kernel="rbf", device="cuda", fit_inverse_transform=True).fit(X)
    scores = model.transform(X)
    model.save(tmp_path / "m")
    with monkeypatch.context() as patch:  # as in a process that has not imported it
        for name in [name for name in sys.modules if name.partition(".")[0] == "cupy"]:
            patch.delitem(sys.modules, name)
        again = gpukpca.load(tmp_path / "m")
        assert again.device is None
        assert again.device_.startswith("cuda")
        np.testing.assert_allclose(again.transform(X), scores, rtol=0, atol=1e-12)
        assert np.isfinite(again.inverse_transform(scores)).all()
        assert "cupy" not in sys.modules


def where_computed(model: Any) -> Any:
    """Return an array of those that new points are computed with."""
    fit = model._result
    if isinstance(model, KernelPCA):
        return fit.map.offset
    return fit.projection.axes if isinstance(model, PCA) else getattr(fit.model, "axes", None)


@pytest.mark.parametrize(
    "name",
    [
        *sorted(KINDS.keys() - {"incremental", "local"}),
        "linear, inverse",
        "combined",
        "PCA, given scale",
        "distance constraint, poly",
    ],
)
def test_a_model_of_the_host_is_put_on_a_device(cuda: Any, name: str, tmp_path: Path) -> None:
    model, X = fitted(name)
    model.save(tmp_path / "m")
    for device in ("cuda", "cuda:0", "auto"):
        again = gpukpca.load(tmp_path / "m", device=device)
        assert isinstance(where_computed(again), cuda.ndarray)
        scores = again.transform(X)
        assert isinstance(scores, np.ndarray)
        np.testing.assert_allclose(scores, model.transform(X), rtol=0, atol=1e-12)
        assert isinstance(again.transform(cuda.asarray(X)), cuda.ndarray)
        if hasattr(model, "inverse_transform"):
            np.testing.assert_allclose(again.inverse_transform(scores), model.inverse_transform(scores), atol=1e-12)
        public = {name: value for name, value in vars(again).items() if name.endswith("_")}
        assert not any(isinstance(value, cuda.ndarray) for value in public.values())


def test_clusters_are_put_on_a_device(cuda: Any, tmp_path: Path) -> None:
    model, X = fitted("local")
    model.save(tmp_path / "m")
    again = gpukpca.load(tmp_path / "m", device="cuda")
    assert isinstance(again._result.model.clusters[0].axes, cuda.ndarray)
    assert isinstance(again._result.model.clusters[0].variances, np.ndarray)
    np.testing.assert_allclose(again.transform(X), model.transform(X), rtol=0, atol=1e-12)


def test_arrays_that_parts_of_a_model_share_are_moved_once(cuda: Any, tmp_path: Path) -> None:
    fitted("ridge")[0].save(tmp_path / "m")
    fit = gpukpca.load(tmp_path / "m", "cuda")._result
    assert fit.preimage.X is fit.map.basis
    assert fit.preimage.knots is fit.preimage.scores
    fitted("fixed point")[0].save(tmp_path / "m")
    fit = gpukpca.load(tmp_path / "m", "cuda")._result
    assert fit.preimage.space.map is fit.map


def test_sparse_models_stay_on_the_host(cuda: Any, tmp_path: Path) -> None:
    model, X = fitted("sparse")
    model.save(tmp_path / "m")
    np.testing.assert_array_equal(gpukpca.load(tmp_path / "m", "auto").transform(X), model.transform(X))
    with pytest.raises(InvalidParameterError, match="sparse rows are computed on the CPU"):
        gpukpca.load(tmp_path / "m", "cuda")


def test_batches_continue_after_loading(tmp_path: Path) -> None:
    model = IncrementalPCA(2).partial_fit(data())
    model.save(tmp_path / "m")
    expected = model.partial_fit(data(seed=1)).components_
    np.testing.assert_array_equal(gpukpca.load(tmp_path / "m").partial_fit(data(seed=1)).components_, expected)


def test_batches_continue_on_a_device(cuda: Any, tmp_path: Path) -> None:
    model = IncrementalPCA(2).partial_fit(data())
    model.save(tmp_path / "m")
    there = gpukpca.load(tmp_path / "m", device="cuda").partial_fit(data(seed=1))
    assert there.device_.startswith("cuda")
    np.testing.assert_allclose(there.components_, model.partial_fit(data(seed=1)).components_, atol=1e-12)


@pytest.mark.parametrize("name", ["rbf, inverse", "PCA, randomized", "probabilistic", "local"])
def test_a_loaded_model_fits_again_to_the_same_bits(name: str, tmp_path: Path) -> None:
    model, X = fitted(name)
    model.save(tmp_path / "m")
    np.testing.assert_array_equal(gpukpca.load(tmp_path / "m").fit(X).transform(X), model.fit(X).transform(X))


def test_the_parameter_device_is_checked(tmp_path: Path) -> None:
    model, _ = fitted("PCA")
    model.save(tmp_path / "m")
    assert gpukpca.load(tmp_path / "m", device="cpu").device == "cpu"
    with pytest.raises(InvalidParameterError, match="device='gpu'"):
        gpukpca.load(tmp_path / "m", device="gpu")
    if not gpukpca.backend.device.cuda_is_installed():
        with pytest.raises(DeviceUnavailableError, match="CuPy"):
            gpukpca.load(tmp_path / "m", device="cuda")


def test_golden_files_are_read() -> None:
    """Made by ``python tests/persistence/golden/make.py``, one set for every format."""
    files = sorted(GOLDEN.glob("*.safetensors"))
    assert {path.stem.rpartition("_")[2] for path in files} == {str(FORMAT)}
    classes = set()
    for path in files:
        model = gpukpca.load(path)
        notes = model.notes_
        classes.add(type(model).__name__)
        np.testing.assert_allclose(model.transform(notes["X_new"]), notes["scores"], rtol=0, atol=1e-13)
    assert classes == {*ESTIMATORS, "Pipeline"}


def test_fields_that_a_file_lacks_have_their_default() -> None:
    assert (
        changed("linear", lambda header, _: header["steps"][0]["parameters"].pop("memory_limit")).memory_limit is None
    )
    assert changed("linear", lambda header, _: header["steps"][0]["fit"].pop("certificate")).gap_ is not None


def test_a_model_whose_kernel_was_set_is_saved(tmp_path: Path) -> None:
    model = KernelPCA(2, kernel="rbf").set_params(kernel="laplacian", gamma=0.1).fit(data())  # as searches do
    model.save(tmp_path / "m")
    np.testing.assert_array_equal(gpukpca.load(tmp_path / "m").transform(data()), model.transform(data()))


def test_notes_come_back(tmp_path: Path) -> None:
    notes = {"names": ("a", "b"), "source": "x.csv", "nested": {"a": [1, 2], "b": (1, "c")}, "nothing": None}
    notes |= {"none": (), "infinite": (np.inf, -np.inf)}
    model, _ = fitted("PCA")
    arrays = {"mean": np.arange(3.0), "scaling": {"mean": np.zeros(3), "deviation": np.ones(3)}}
    save(model, tmp_path / "m", notes | arrays)
    again = gpukpca.load(tmp_path / "m")
    found = again.notes_
    assert not hasattr(again.fit(np.eye(4)), "notes_")  # they are of the file of another fit
    assert_same({name: found.pop(name) for name in arrays}, arrays, "arrays")
    assert found == notes


def test_the_file_can_be_read_without_the_library(tmp_path: Path) -> None:
    model, _ = fitted("PCA")
    model.save(tmp_path / "m.safetensors")
    arrays = load_file(tmp_path / "m.safetensors")
    with safe_open(tmp_path / "m.safetensors", "numpy") as file:
        content = json.loads(file.metadata()["gpukpca"])
    assert content["header"]["steps"][0]["class"] == "PCA"
    assert content["header"]["version"] == gpukpca.__version__
    for name in ("fit.components", "fit.mean"):
        array = arrays[name].T if name in content["transposed"] else arrays[name]
        np.testing.assert_array_equal(array, vars(model)[name.removeprefix("fit.") + "_"])


def test_no_array_is_written_twice(tmp_path: Path) -> None:
    X = data(2000, 20)
    model = KernelPCA(2, kernel="rbf", preimage="fixed_point").fit(X)
    model.save(tmp_path / "m")
    assert (tmp_path / "m").stat().st_size < 1.1 * (X.nbytes + 3 * model.eigenvectors_.nbytes) + 20_000


def test_a_memory_map_becomes_part_of_the_file(tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", data(200))
    model = KernelPCA(2, kernel="rbf").fit(np.load(tmp_path / "X.npy", mmap_mode="r"))
    model.save(tmp_path / "m")
    again = gpukpca.load(tmp_path / "m")
    assert type(again.X_fit_) is np.ndarray
    np.testing.assert_allclose(again.transform(data()), model.transform(data()), rtol=0, atol=1e-13)


def test_what_belongs_to_a_process_is_left_out(tmp_path: Path) -> None:
    rng = np.random.RandomState(0)
    model = PCA(2, random_state=rng, verbose=lambda event: None, device="cpu").set_output(transform="pandas")
    model.fit(data()).save(tmp_path / "m")
    again = gpukpca.load(tmp_path / "m")
    assert (again.random_state, again.verbose, again.device) == (None, 0, None)
    assert isinstance(again.transform(data()), np.ndarray)


@pytest.mark.parametrize("estimator", [PCA(2), KernelPCA(2, kernel="rbf"), ProbabilisticPCA(2), LocalPCA(2, 1)])
def test_a_pipeline_with_a_scaler_comes_back(estimator: Any, tmp_path: Path) -> None:
    X = data() * 7.0 + 3.0
    model = Pipeline([("scale", StandardScaler()), ("reduce", estimator)]).fit(X)
    save(model, tmp_path / "m", {"method": "x"})
    again = gpukpca.load(tmp_path / "m")
    assert again.notes_ == {"method": "x"}
    save(again, tmp_path / "m")  # the notes belong to the file, and to the next one where they are given
    assert gpukpca.load(tmp_path / "m").notes_ == {}
    assert [name for name, _ in again.steps] == ["scale", "reduce"]
    assert_same(vars(again[0]), vars(model[0]), "scaler")
    np.testing.assert_array_equal(again.transform(X), model.transform(X))


def test_a_scaler_of_columns_with_holes_comes_back(tmp_path: Path) -> None:
    X = holes()
    model = make_pipeline(StandardScaler(with_mean=False), ProbabilisticPCA(2)).fit(X)
    assert len(model[0].n_samples_seen_) == X.shape[1]
    save(model, tmp_path / "m", {})
    again = gpukpca.load(tmp_path / "m")
    assert_same(again[0].n_samples_seen_, model[0].n_samples_seen_, "rows")
    np.testing.assert_array_equal(again.transform(X), model.transform(X))


@pytest.mark.parametrize("count", [np.int64(30), np.float64(30.5), 30])
def test_the_rows_of_a_scaler_keep_their_dtype(count: Any, tmp_path: Path) -> None:
    """It depends on the version of scikit-learn and on weights."""
    model = make_pipeline(StandardScaler(), PCA(2)).fit(data())
    model[0].n_samples_seen_ = count
    save(model, tmp_path / "m")
    again = gpukpca.load(tmp_path / "m")[0].n_samples_seen_
    assert (again, again.dtype) == (count, np.asarray(count).dtype)


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
    "function": (KernelPCA(1, kernel=product), "kernel is a function, which has no place"),
    "process kernel": (KernelPCA(1, kernel=ProcessRBF()), "kernel is a RBF, which has no place"),
    "own kernel": (KernelPCA(1, kernel=Own(0.1)), "kernel is a Own, which has no place"),
    "inside": (KernelPCA(1, kernel=2.0 * (Own(0.1) + kernels.Linear())), r"kernel\.k\.k1 is a Own"),
    "modulated": (
        KernelPCA(1, kernel=kernels.modulate(kernels.RBF(), lambda X: X[:, 0] * 0.0 + 1.0)),
        "Modulated, which has no place",
    ),
    "own solver": (KernelPCA(1, eigen_solver=OwnSolver()), "eigen_solver is a OwnSolver, which has no place"),
    "storage": (KernelPCA(1, gram=DenseStorage), "gram is the class DenseStorage, .* Fit with names"),
    "own class": (OwnPCA(1), "OwnPCA is no class of gpukpca.*no subclass"),
    "search": (GridSearchCV(PCA(), {"n_components": [1, 2]}), "Of a search save its best_estimator_"),
    "huge integer": (PCA(1, memory_limit=10**30), "beyond 64 bits"),
    "another scaler": (make_pipeline(MinMaxScaler(), PCA(1)), "a StandardScaler and such an estimator"),
    "three steps": (make_pipeline(StandardScaler(), PCA(2), PCA(1)), "two steps"),
}


@pytest.mark.parametrize("case", CODE)
def test_code_is_refused_and_the_old_file_stays(case: str, tmp_path: Path) -> None:
    estimator, message = CODE[case]
    (tmp_path / "m").write_text("old", encoding="utf-8")
    with pytest.raises(InvalidParameterError, match=message):
        save(clone(estimator).fit(data()), tmp_path / "m", {})
    assert (tmp_path / "m").read_text(encoding="utf-8") == "old"
    assert os.listdir(tmp_path) == ["m"]


def test_only_fitted_models_are_saved(tmp_path: Path) -> None:
    with pytest.raises(InvalidParameterError, match="ndarray is no class of gpukpca"):
        save(np.ones((3, 2)), tmp_path / "m")
    for estimator in (*(cls() for cls in ESTIMATORS.values()), make_pipeline(StandardScaler(), PCA(1))):
        with pytest.raises(NotFittedError):
            save(estimator, tmp_path / "m", {})


def test_places_that_cannot_be_written_to_are_named(tmp_path: Path) -> None:
    model, _ = fitted("PCA")
    with pytest.raises(IsADirectoryError):
        model.save(tmp_path)
    with pytest.raises(FileNotFoundError, match="no folder"):
        model.save(tmp_path / "none" / "m")
    with pytest.raises(IsADirectoryError):
        model.save(f"{tmp_path}/none/")
    with pytest.raises(TypeError):
        model.save(3)


@pytest.mark.skipif(sys.platform == "win32", reason="devices and permissions as on POSIX")
def test_devices_and_permissions_are_named(tmp_path: Path) -> None:
    model, _ = fitted("PCA")
    with pytest.raises(OSError, match="device"):
        model.save("/dev/null")
    (tmp_path / "m").write_text("old", encoding="utf-8")
    (tmp_path / "m").chmod(0o444)
    if not os.access(tmp_path / "m", os.W_OK):  # the administrator may write anywhere
        with pytest.raises(PermissionError):
            model.save(tmp_path / "m")


@pytest.mark.parametrize("has_handles", [True, False])  # names of open files, which Windows lacks
def test_a_path_may_be_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_handles: bool) -> None:
    path = os.fsencode(tmp_path / "modèle")
    fitted("PCA")[0].save(path)
    if not has_handles:
        monkeypatch.setattr(os.path, "exists", lambda path: False)
    assert isinstance(gpukpca.load(path), PCA)


def test_attributes_that_the_file_would_lose_are_refused(tmp_path: Path) -> None:
    model, _ = fitted("rbf, inverse")
    model.more_ = model._more = 1.0
    with pytest.raises(InvalidParameterError, match="_more, more_ was added or changed after the fit"):
        model.save(tmp_path / "m")
    model, _ = fitted("PCA, scaled and whitened")
    model.scale_ = 2.0 * model.scale_
    with pytest.raises(InvalidParameterError, match="scale_ was added or changed after the fit"):
        model.save(tmp_path / "m")
    assert os.listdir(tmp_path) == []


def test_no_file_is_written_that_could_not_be_read(tmp_path: Path) -> None:
    model, _ = fitted("PCA, scaled and whitened")
    model._result = dataclasses.replace(model._result, scale=model.scale_ * np.inf)
    with pytest.raises(InvalidParameterError, match=r"cannot be saved: fit \(PCAFit\): scale must be finite"):
        model.save(tmp_path / "m")
    model, _ = fitted("PCA, frame")
    model.feature_names_in_ = np.array(["x" * LARGEST_HEADER, "b", "c", "d"], dtype=object)
    with pytest.raises(InvalidParameterError, match="Fit an array without column names"):
        model.save(tmp_path / "m")
    assert os.listdir(tmp_path) == []


# -- the table ---------------------------------------------------------------------------------------------------------


def subclasses(base: type) -> set[type]:
    """Return the classes below a class."""
    direct = set(base.__subclasses__())
    return direct.union(*map(subclasses, direct))


@pytest.mark.parametrize("base", [Storage, Solver])
def test_every_part_of_a_model_is_in_the_table(base: type) -> None:
    classes = {cls for cls in subclasses(base) if cls.__module__.startswith("gpukpca.")}
    assert {cls.__name__ for cls in classes} <= set(CLASSES)


def test_every_named_kernel_is_in_the_table() -> None:
    assert set(NAMED_KERNELS.values()) <= set(CLASSES.values())


@each("name", sorted(CLASSES))
def test_fields_follow_rules_that_there_are(name: str) -> None:
    for field in fields_of(CLASSES[name]).values():
        assert all(rule in RULES or rule.startswith("index of ") for rule in field.rules)


# -- killed while writing, two at once ---------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes and signals as on POSIX")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("name", ["fsync", "chmod", "replace"])
def test_a_killed_process_leaves_the_old_file(name: str, tmp_path: Path) -> None:
    old, new = PCA(1).fit(data()), PCA(2).fit(data())
    old.save(tmp_path / "m")
    child = os.fork()
    if child == 0:
        setattr(os, name, lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
        try:
            new.save(tmp_path / "m")
        finally:
            os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    assert gpukpca.load(tmp_path / "m").n_components_ == 1


def test_of_two_writers_the_last_one_wins_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = PCA(1).fit(data()), PCA(2).fit(data())
    replace = os.replace

    def meanwhile(source: Any, target: Any) -> None:
        monkeypatch.setattr(os, "replace", replace)
        second.save(target)
        assert gpukpca.load(target).n_components_ == 2
        replace(source, target)

    monkeypatch.setattr(os, "replace", meanwhile)
    first.save(tmp_path / "m")
    assert gpukpca.load(tmp_path / "m").n_components_ == 1
    assert os.listdir(tmp_path) == ["m"]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_write_that_fails_leaves_nothing_behind(
    error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    PCA(1).fit(data()).save(tmp_path / "m")

    def fails(*_: Any) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(_files.os, "fsync", fails)
        with pytest.raises(type(error)):
            PCA(2).fit(data()).save(tmp_path / "m")
    assert gpukpca.load(tmp_path / "m").n_components_ == 1
    assert os.listdir(tmp_path) == ["m"]


@pytest.mark.skipif(sys.platform == "win32", reason="links and permissions as on POSIX")
def test_links_are_replaced_and_permissions_kept(tmp_path: Path) -> None:
    model, X = fitted("PCA")
    (tmp_path / "real").write_text("old", encoding="utf-8")
    (tmp_path / "m").symlink_to("real")
    model.save(str(tmp_path / "m"))
    assert not (tmp_path / "m").is_symlink()
    assert (tmp_path / "real").read_text(encoding="utf-8") == "old"
    (tmp_path / "m").chmod(0o640)
    model.save(str(tmp_path / "m"))
    assert stat.S_IMODE((tmp_path / "m").stat().st_mode) == 0o640
    np.testing.assert_array_equal(gpukpca.load(str(tmp_path / "m")).transform(X), model.transform(X))


# -- other files -------------------------------------------------------------------------------------------------------


def poison(*_: Any, **__: Any) -> None:
    raise AssertionError("this runs what a file says")


STRANGE: dict[str, Callable[[Path], Any]] = {
    "empty": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_text("scores, 1, 2\n", encoding="utf-8"),
    "zeros": lambda path: path.write_bytes(bytes(100_000)),
    "pickle": lambda path: path.write_bytes(pickle.dumps({"a": np.arange(3)})),
    "joblib": lambda path: joblib.dump({"a": np.arange(3)}, path),
    "npz of scores": lambda path: (np.savez(f"{path}.npz", a=np.arange(3)), os.replace(f"{path}.npz", path)),
    "arrays of another program": lambda path: save_file({"a": np.arange(3)}, path),
    "another kind": lambda path: write_container(path, "checkpoint", {}, {}),
    "no header": lambda path: write_container(path, KIND, {}, {}),
}


@pytest.mark.parametrize("case", STRANGE)
def test_what_is_no_model_file_is_refused(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    STRANGE[case](tmp_path / "m")
    for module, name in ((pickle, "loads"), (pickle, "load"), (pickle, "Unpickler"), (joblib, "load"), (np, "load")):
        monkeypatch.setattr(module, name, poison)
    with pytest.raises(ModelFormatError, match=r"m is no model file of gpukpca that can be read: it"):
        gpukpca.load(tmp_path / "m")


def test_reading_never_unpickles(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("loads", "load", "Unpickler"):
        monkeypatch.setattr(pickle, name, poison)
    for path in GOLDEN.glob("*.safetensors"):
        gpukpca.load(path)


@pytest.mark.skipif(sys.platform == "win32", reason="devices and pipes as on POSIX")
def test_places_that_hold_no_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="does not exist; give a model file") as found:
        gpukpca.load(tmp_path / "none")
    assert (found.value.errno, found.value.filename) == (errno.ENOENT, str(tmp_path / "none"))
    with pytest.raises(IsADirectoryError, match=r"is a directory; give a model file"):
        gpukpca.load(tmp_path)
    with pytest.raises(ModelFormatError, match="a device or a pipe"):
        gpukpca.load("/dev/zero")
    with pytest.raises(TypeError):
        gpukpca.load(0)  # type: ignore[arg-type]
    fitted("PCA")[0].save(tmp_path / "m")
    (tmp_path / "m").chmod(0)
    if not os.access(tmp_path / "m", os.R_OK):
        with pytest.raises(PermissionError):
            gpukpca.load(tmp_path / "m")


def test_mutated_model_files_are_refused_or_equal(tmp_path: Path) -> None:
    """One flipped bit in every part of a file; `test_container` has all bits and other changes."""
    content = (GOLDEN / f"incremental_pca_{FORMAT}.safetensors").read_bytes()
    for place in range(0, len(content), 7):
        (tmp_path / "m").write_bytes(content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :])
        with pytest.raises(ModelFormatError):
            gpukpca.load(tmp_path / "m")


# -- parts that contradict each other ----------------------------------------------------------------------------------


def scaled(name: str, factor: float) -> Callable[[Header, Arrays], Any]:
    return lambda header, arrays: arrays[name].__imul__(factor)


def entry(name: str, place: Any, value: Any) -> Callable[[Header, Arrays], Any]:
    return lambda header, arrays: arrays[name].__setitem__(place, value)


def shorter(name: str) -> Callable[[Header, Arrays], Any]:
    return lambda header, arrays: arrays.update({name: arrays[name][:-1]})


def array(name: str, value: Any) -> Callable[[Header, Arrays], Any]:
    return lambda header, arrays: arrays.update({name: value})


def value(path: str, new: Any) -> Callable[[Header, Arrays], Any]:
    return lambda header, arrays: put(header, f"steps.0.{path}", new)


def missing(path: str) -> Callable[[Header, Arrays], Any]:
    def remove(header: Header, arrays: Arrays) -> None:
        folder, _, last = f"steps.0.{path}".rpartition(".")
        del get(header, folder)[last]

    return remove


def without_array(path: str) -> Callable[[Header, Arrays], Any]:
    """Return a change after which a part is None."""

    def remove(header: Header, arrays: Arrays) -> None:
        arrays.pop(get(header, f"steps.0.{path}")["array"])
        put(header, f"steps.0.{path}", None)

    return remove


def no_rows(header: Header, arrays: Arrays) -> None:
    arrays.update({name: array[:0] for name, array in arrays.items() if len(array) == 30})


def fewer_clusters(header: Header, arrays: Arrays) -> None:
    get(header, "steps.0.fit.model.clusters.items").pop()
    for name in [name for name in arrays if name.startswith("fit.model.clusters.1.")]:
        del arrays[name]


def no_features(header: Header, arrays: Arrays) -> None:
    put(header, "steps.0.facts.n_features_in_", 0)
    arrays.update({name: array[..., :0] if array.shape[-1] == 4 else array[:0] for name, array in arrays.items()})


def a_wide_matrix(header: Header, arrays: Arrays) -> None:
    put(header, "steps.0.fit.map.basis.shape", [30, 10**12])
    put(header, "steps.0.facts.n_features_in_", 10**12)


# Values of the wrong type for a field of one value.
WRONG = {int: "x", float: "x", bool: 3, str: "\x1b[31m"}


def fields_in(node: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield path, field and node of all fields of all objects of a model."""
    if isinstance(node, list):
        for place, part in enumerate(node):
            yield from fields_in(part, f"{path}.{place}")
    elif isinstance(node, dict):
        fields = fields_of(CLASSES[node["class"]]) if node.get("class") in CLASSES else {}
        for name, part in node.items():
            if name in fields:
                yield f"{path}.{name}", fields[name], part
            yield from fields_in(part, f"{path}.{name}")


def violations(field: Any, path: str, node: Any, arrays: Arrays) -> Iterator[Any]:
    """Yield changes to header and arrays after which a field does not follow its type, shape or rules."""
    rules, name = field.rules, node.get("array") if isinstance(node, dict) else None
    yield value(path, {"class": "Own"})
    if name is not None and field.shape:
        numbers = arrays[name]
        yield array(name, numbers[None])
        yield array(name, numbers.astype(np.int64 if numbers.dtype.kind == "f" else np.float64))
        wrong = [-1] + [10**6] * ("index" not in rules) if numbers.dtype.kind == "i" else [np.nan]
        wrong += [np.inf] * (numbers.dtype.kind == "f" and "infinite" not in rules)
        wrong += [-1.0] * ("nonnegative" in rules) + [0.0] * ("positive" in rules)
        yield from (entry(name, (0,) * numbers.ndim, number) for number in wrong if numbers.size)
    if type(node) in (int, float):
        bad = {"nonnegative": type(node)(-1), "positive": type(node)(0)}
        yield from (value(path, bad[rule]) for rule in rules if rule in bad)
    if type(node) is float and "infinite" not in rules:
        yield value(path, {"class": "float", "items": "inf"})
    if field.hint in WRONG:
        yield value(path, WRONG[field.hint])


@each("name", [*DIVERSE, "rbf, inverse", "Nyström", "sparse", "probabilistic", "local"])
def test_every_field_is_checked(name: str) -> None:
    """Its type, the axes and the dtype of its array, its range and its rules."""
    header, arrays = parts(name)
    count = 0
    for path, field, node in fields_in(header["steps"][0]["fit"], "fit"):
        for change in violations(field, path, node, arrays):
            with pytest.raises(ModelFormatError):
                pytest.fail(f"{path} is accepted: {changed(name, change)}")
            count += 1
    assert count > 60


# name of the model, what is wrong with it, part of the message
CONTRADICTIONS: dict[str, tuple[str, Callable[[Header, Arrays], Any], str | None]] = {
    "a matrix of other samples": ("precomputed", value("fit.plan.n_features", 4), "as many columns as samples"),
    "a total that is NaN": (
        "rbf, inverse",
        value("fit.spectrum.total_variance", float("nan")),
        "total variance is NaN",
    ),
    "kernel unknown": ("rbf, inverse", value("fit.kernel.class", "Own"), "'Own', and known are"),
    "kernel parameter unknown": ("rbf, inverse", value("fit.kernel.nu", 1.5), "has no nu"),
    "kernel parameter out of range": ("rbf, inverse", value("fit.kernel.gamma", -1.0), "gamma=-1.0"),
    "kernel with a rule": ("rbf, inverse", value("fit.kernel.gamma", "scale"), "gamma='scale'"),
    "kernel inside out of range": ("combined", value("fit.kernel.k1.k1.factor", 0.0), "factor=0.0"),
    "kernel without parts": ("combined", missing("fit.kernel.k2"), "lacks k2"),
    "kernel of a number": ("combined", value("fit.kernel.k2", 1.0), "k2 must be Kernel"),
    "kernel is a plan": ("rbf, inverse", value("fit.kernel", {"class": "Dense", "tol": 0.0}), "kernel must be Kernel"),
    "template with rows": ("rbf, inverse", array("fit.map.template.data", np.ones((2, 6))), "data must be"),
    "pre-image that is a number": ("rbf, inverse", value("fit.preimage", 3), None),
    "CSR indices beyond the columns": ("sparse", entry("fit.map.basis.indices", 0, 6), "CSR"),
    "CSR indices below 0": ("sparse", entry("fit.map.basis.indices", 0, -1), "CSR"),
    "CSR rows beyond the data": ("sparse", entry("fit.map.basis.indptr", -1, 10**6), "CSR"),
    "CSR rows backwards": ("sparse", entry("fit.map.basis.indptr", 1, 60), "CSR"),
    "CSR of another shape": ("sparse", value("fit.map.basis.shape", [30, 10**12]), None),
    "CSR of more columns than memory": ("sparse", a_wide_matrix, None),
    "CSR with NaN": ("sparse", entry("fit.map.basis.data", 0, np.nan), "basis must be finite"),
    "CSR without data": ("sparse", missing("fit.map.basis.data"), None),
    "constant feature beyond the columns": (
        "constant features",
        entry("fit.map.template.geometry.varying", 0, 99),
        "varying",
    ),
    "mean of a template of other length": (
        "rbf, inverse",
        array("fit.map.template.geometry.mean", np.ones(1)),
        "mean must be",
    ),
    "solver unknown": ("linear", value("fit.plan.solver.class", "Own"), "Own"),
    "solver that is a kernel": ("linear", value("fit.plan.solver", {"class": "Linear"}), None),
    "plan without tiles": ("rbf, inverse", value("fit.plan.storage.tile_edge", 0), "tile_edge"),
    "names too few": ("frame", value("facts.feature_names_in_.items", ["one"]), "feature_names_in_"),
    "a name twice": ("frame", value("facts.feature_names_in_.items", ["one"] * 4), "feature_names_in_"),
    "names that are numbers": ("frame", value("facts.feature_names_in_.items", [1, 2, 3, 4]), "texts"),
    "other features": ("PCA", value("facts.n_features_in_", 5), r"\(d = 5\)"),
    "a fact too few": ("PCA", missing("facts.device_"), "lacks device_"),
    "a fact too many": ("PCA", value("facts.components_", 1), "has no components_"),
    "an array too few": ("PCA", lambda header, arrays: arrays.pop("fit.mean"), "mean"),
    "an array too many": ("PCA", array("fit.more", np.ones(3)), "no part of it has the arrays fit.more"),
    "a mean without its norm": ("ridge", missing("fit.map.mean_norm"), "lacks mean_norm"),
    "no rows": ("ridge", no_rows, None),
    "no samples": ("local", lambda h, a: a.update({"fit.labels": a["fit.labels"][:0]}), "it has no samples"),
    "no features": ("PCA, none", no_features, "it has no features"),
    "ridge without coefficients": ("ridge", missing("fit.preimage.dual_coef"), "lacks dual_coef"),
    "ridge of other length": ("ridge, landmarks", shorter("fit.preimage.knots"), r"must be"),
    "ridge with a rule for gamma": ("ridge", value("fit.preimage.kernel.gamma", "scale"), "gamma"),
    "ridge with an unknown rule": ("ridge", value("fit.preimage.rule.kernel.gamma", "x"), "gamma"),
    "ridge on other samples": ("ridge, Nyström", shorter("fit.preimage.X"), "fit.preimage"),
    "starts too few": ("fixed point, Nyström", shorter("fit.preimage.scores"), "scores must be"),
    "more neighbors than points": ("distance constraint", value("fit.preimage.n_neighbors", 31), "31 neighbors among"),
    "method of pre-images unknown": ("ridge", value("parameters.preimage", "guess"), "guess"),
    "option out of range": ("ridge, landmarks", value("parameters.preimage.n_landmarks", -1), "n_landmarks=-1"),
    "option unknown": ("ridge, landmarks", value("parameters.preimage.depth", 3), "has no depth"),
    "parameter unknown": ("PCA", value("parameters.depth", 3), "no parameter depth"),
    "parameter that is never kept": ("PCA", value("parameters.device", "cuda"), "no parameter device"),
    "wrong parameter": ("PCA", value("parameters.n_components", "two"), "n_components"),
    "an array that is not there": ("ridge", value("fit.preimage.dual_coef", {"array": "x"}), "None"),
    "an array without a name": ("ridge", value("fit.preimage.dual_coef", {"array": [1]}), None),
    "a seed that is no integer": ("PCA", value("parameters.random_state", 0.5), "random_state"),
    "estimator unknown": ("PCA", value("class", "os.system"), "'os.system'; known are"),
    "estimator is a list": ("PCA", value("class", ["PCA"]), "known are"),
    "another estimator": ("PCA", value("class", "IncrementalPCA"), None),
    "fit of another estimator": ("local", value("class", "ProbabilisticPCA"), None),
    "fit is a number": ("PCA", value("fit", 1), "no part of it has the arrays"),
    "nothing known of the fit": ("PCA", value("fit", {}), "None"),
    "a part too many": ("PCA", value("more", 1), "'more'"),
    "latent axes too many": ("probabilistic, holes", array("fit.model.axes", np.eye(4)), "variances must be"),
    "a cluster of other dimension": ("local", array("fit.model.clusters.1.axes", np.eye(4)[:2]), "axes must be"),
    "no clusters": ("local", value("fit.model.clusters.items", []), None),
    "method of no kind": ("local", value("fit.model.method", "soft"), "method"),
    "weights of other clusters": ("local", fewer_clusters, "1 clusters, and 2 weights"),
    "an array that is None": ("rbf, inverse", without_array("fit.map.projection"), "projection must be"),
    "criteria of no pair": ("local, hard", value("fit.bic.items.0.0", [1, 2, 3]), "bic must be"),
    "criteria that are text": ("local, hard", value("fit.bic.items.0.1", "?"), "bic must be"),
}


@each("case", CONTRADICTIONS)
def test_parts_that_contradict_each_other_are_refused(case: str) -> None:
    name, change, message = CONTRADICTIONS[case]
    with pytest.raises(ModelFormatError, match=message):
        changed(name, change)


def test_landmarks_that_a_fit_no_longer_draws_are_read_as_the_default() -> None:
    def earlier(header: Header, arrays: Arrays) -> None:
        for path in ("parameters.eigen_solver", "fit.plan.solver"):
            put(header, f"steps.0.{path}.landmarks", "kmeans++")

    model = changed("Nyström", earlier)
    assert model.eigen_solver == Nystrom(rank=9)
    X = data()
    assert_same(answers(model, X), answers(changed("Nyström", lambda header, arrays: None), X), "answers")


PIPELINES: dict[str, Callable[[Header], Any]] = {
    "order": lambda header: header["steps"].reverse(),
    "one step": lambda header: header["steps"].pop(),
    "names": lambda header: put(header, "steps.0.name", "\x1b[31m"),
    "features": lambda header: put(header, "steps.0.facts.n_features_in_", 4),
    "scale": lambda header: put(header, "steps.0.fit.scale", None),
    "rows": lambda header: put(header, "steps.0.fit.n_samples_seen", "many"),
}


@pytest.mark.parametrize("case", PIPELINES)
def test_pipelines_of_other_steps_are_refused(case: str, tmp_path: Path) -> None:
    header, arrays = read_container(GOLDEN / f"pipeline_{FORMAT}.safetensors", KIND)
    PIPELINES[case](header)
    write_container(tmp_path / "m", KIND, header, arrays)
    with pytest.raises(ModelFormatError):
        gpukpca.load(tmp_path / "m")


def test_a_newer_format_names_the_version_that_wrote_it(tmp_path: Path) -> None:
    header, arrays = copy.deepcopy(parts("PCA"))
    write_container(tmp_path / "m", KIND, header | {"format": FORMAT + 1, "version": "9.1.0"}, arrays)
    with pytest.raises(ModelFormatError, match=r"written by gpukpca 9\.1\.0 in format .*newer gpukpca"):
        gpukpca.load(tmp_path / "m")
    for number in ("1", True, None):
        with pytest.raises(ModelFormatError, match="which format"):
            changed("PCA", lambda header, arrays, number=number: header.update(format=number))


VALUES = [None, True, -1, 0, 1, 10**18, -0.5, 1e308, "", "rbf", "RBF", "class", [], [1, 2], ["a"], [None], {}, {"a": 1}]


@each("name", DIVERSE)
@pytest.mark.filterwarnings("ignore")
def test_any_value_in_any_place_of_the_header_is_judged(name: str) -> None:
    """Whatever a header of whole arrays says is a model, whole, or a clear error."""
    chance, refused = random.Random(0), 0
    attributes = vars(changed(name, lambda header, arrays: None)).keys()
    places = paths(parts(name)[0]["steps"][0])
    for key in places:
        try:
            model = changed(name, value(key, chance.choice(VALUES)))
        except ModelFormatError:
            refused += 1
        else:
            assert type(model) is type(MODELS[name][0])
            assert attributes <= vars(model).keys(), key
    assert len(places) / 2 < refused < len(places)
