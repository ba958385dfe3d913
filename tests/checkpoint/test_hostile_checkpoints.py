"""Checkpoints of strangers: forged states with the right digest, and links planted where a fit writes."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import shutil
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpukpca import PCA, Checkpoint, KernelPCA, Progress
from gpukpca._container import read_container, write_container
from gpukpca.checkpoint import KIND, NAMES
from gpukpca.eigen import BlockKrylov
from gpukpca.exceptions import CheckpointError, CheckpointWarning, ConvergenceError
from tests.hostile import forks, in_a_process
from tests.long_fits import SETTINGS, rows

# Forged states; `GPUKPCA_FUZZ=10000` tries more.
COUNT = int(os.environ.get("GPUKPCA_FUZZ", "60"))
FITS: dict[str, tuple[type, np.ndarray, dict[str, Any]]] = {
    "tight": (KernelPCA, rows(60), SETTINGS),
    "restarts": (KernelPCA, rows(60), {**SETTINGS, "eigen_solver": BlockKrylov(tol=1e-9, max_blocks=3), "tol": 0}),
    "share": (KernelPCA, rows(120), {**SETTINGS, "n_components": 0.4, "tol": 1e-3}),
    "float32": (KernelPCA, rows(60, dtype="float32"), {**SETTINGS, "tol": 1e-5}),
    "PCA": (PCA, rows(120, 40), {"n_components": 2, "svd_solver": "randomized", "random_state": 0}),
}
# The pass whose end interrupts the fit; the last state is that of its end.
STOPS = (3, 5, None)
# In place of any number, text or list of a header.
VALUES: list[Any] = [None, True, False, 0, 1, -1, 2, 10**6, 2**31, 2**62, -(2**62), 900, -900, 1.5, "", "x", "1"]
VALUES += ["nan", "inf", "-inf", "0x0.0p+0", "0x1p+1000", "0x1p-1070", "DONE", "VERIFY", "EXTEND", "9" * 5000]
VALUES += [[], [1], {}, {"a": 1}]


class Stop(Exception):
    """The end of a fit, as by Ctrl-C."""


def fit(name: str, folder: Path, stop: int | None = None) -> Any:
    """Fit with a checkpoint after every pass; end after the pass `stop`."""
    cls, data, settings = FITS[name]
    events = iter(range(1, 10**6))

    def listen(event: Progress) -> None:
        if event.stage == "pass" and next(events) == stop:
            raise Stop

    return cls(**{**settings, "checkpoint": Checkpoint(folder, 0), "verbose": listen}).fit(data)


def variances(model: Any) -> np.ndarray:
    return model.eigenvalues_ if isinstance(model, KernelPCA) else model.explained_variance_


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int | None], Path]:
    """Return the folders of fits that ended after some pass."""
    made = {(name, stop): tmp_path_factory.mktemp("states") / "c" for name in FITS for stop in STOPS}
    for (name, stop), folder in made.items():
        with contextlib.suppress(Stop):
            fit(name, folder, stop)
    return made


def newest(folder: Path) -> Path:
    """Return the file with the larger number."""
    there = [folder / name for name in NAMES if (folder / name).exists()]
    return max(there, key=lambda path: read_container(path, KIND)[0]["number"])


# -- forged states -----------------------------------------------------------------------------------------------------


def places(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the paths of all parts of a value of JSON but itself."""
    if path:
        yield path
    for key, part in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        yield from places(part, (*path, key))


def forge_header(node: Any, rng: np.random.Generator) -> None:
    """Change or remove one part of a value of JSON."""
    chosen = list(places(node))
    *way, last = chosen[rng.integers(len(chosen))]
    for key in way:
        node = node[key]
    if isinstance(node, dict) and rng.random() < 0.15:
        del node[last]
    else:
        node[last] = copy.deepcopy(VALUES[rng.integers(len(VALUES))])


def forge(header: Any, arrays: dict[str, np.ndarray], rng: np.random.Generator) -> None:
    """Change one part of a checkpoint."""
    kind = rng.random()
    if kind < 0.5:
        forge_header(header["state"], rng)
    elif kind < 0.6:
        forge_header(header, rng)
    elif kind < 0.7 and isinstance(header["state"].get("generator"), str):
        generator = json.loads(header["state"]["generator"])
        forge_header(generator, rng)
        header["state"]["generator"] = json.dumps(generator)
    else:
        forge_array(arrays, rng)


def forge_array(arrays: dict[str, np.ndarray], rng: np.random.Generator) -> None:
    name = str(rng.choice(list(arrays)))
    array = arrays[name].copy()
    change = rng.integers(7)
    with np.errstate(over="ignore", invalid="ignore"):
        if change == 0:
            del arrays[name]
            return
        if change == 1:
            name = str(rng.choice([*arrays, "new", "known", "means", "block"]))
        elif change == 2 and array.size:
            array.flat[rng.integers(array.size)] = rng.choice([np.nan, np.inf, 0.0, 1e30, -1e30, 1e-30])
        elif change == 3:
            array *= array.dtype.type(rng.choice([0.0, -1.0, 2.0, 1e30, 1e-30]))
        elif change == 4:
            array = array.astype(str(rng.choice(["<f4", "<f8", "<i4", "<i8"])))
        elif change == 5:
            array = array[: rng.integers(len(array) + 1)]
        else:
            array = array.reshape(-1) if array.ndim > 1 else array[:, None]
    arrays[name] = array


def outcome(seed: int, folders: dict[tuple[str, int | None], Path], folder: Path) -> str:
    """Return what a fit does with the forged newer file, beside the older one or alone."""
    rng = np.random.default_rng(seed)
    keys = list(folders)
    key = keys[rng.integers(len(keys))]
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(folders[key], folder)
    path = newest(folder)
    if rng.random() < 0.5:
        for other in {folder / name for name in NAMES} - {path}:
            other.unlink(missing_ok=True)
    header, arrays = read_container(path, KIND)
    try:
        for _ in range(rng.integers(1, 3)):
            forge(header, arrays, rng)
        write_container(path, KIND, header, arrays)
    except (ValueError, TypeError, AttributeError, LookupError):  # changes that do not go together
        return "impossible"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = fit(key[0], folder)
    except CheckpointError:
        return "refused"
    except (ArithmeticError, ConvergenceError, ValueError):  # of numbers that are those of no iteration
        return "failed"
    assert variances(model).ndim == 1, f"seed {seed}, {key}"
    return "fitted"


@forks
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning", "ignore:.*fork:RuntimeWarning")
def test_forged_states_are_refused_or_the_older_file_or_numbers_like_any_others(
    folders: dict[tuple[str, int | None], Path], tmp_path: Path
) -> None:
    """No forged state ends the process, or takes a fit to an error of another kind."""
    text = in_a_process(lambda: " ".join(outcome(seed, folders, tmp_path / "c") for seed in range(COUNT)))
    outcomes = Counter(text.split(" "))
    assert outcomes["refused"] >= COUNT // 6
    assert outcomes["fitted"] >= COUNT // 5


# Fields of a state that an honest fit never has, and what is said.
FORGED: dict[str, tuple[dict[str, Any], str]] = {
    "a text": ({"n_passes": "6"}, "n_passes must be int.* it is '6'"),
    "no number": ({"tol": None}, "tol must be float.* it is None"),
    "NaN": ({"distance": {"class": "float", "items": "nan"}}, "distance must be float.* it is nan"),
    "beyond floats": ({"smallest": {"class": "float", "items": "1" * 5000 + "x"}}, "smallest is no float"),
    "a flag": ({"p": True}, "p must be int.* it is True"),
    "negative": ({"restarts": -1}, "restarts must be int, nonnegative.* it is -1"),
    "an exponent beyond floats": ({"exponent": 2**31}, "counts contradict"),
    "a check after the last pass": ({"last_check": 7}, "counts contradict"),
    "more components than rows": ({"p": 61}, "counts contradict"),
    "the end of no iteration": ({"phase": "DONE"}, "no basis before the phase DONE"),
    "more passes over a twin than passes": ({"twin_passes": 7}, "counts contradict"),
    "no pass over a twin": ({"on_twin": True, "twin_passes": 5}, "no pass over a twin"),
    "a field of another version": ({"new": 1}, "a state has no new"),
    "numbers of no generator": ({"generator": "{}"}, "no state of these random numbers"),
    "numbers of another generator": ({"generator": '{"bit_generator": "MT19937"}'}, "no state of these random numbers"),
}


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("case", FORGED)
def test_a_forged_field_is_named(
    case: str, alone: bool, folders: dict[tuple[str, int | None], Path], tmp_path: Path
) -> None:
    fields, text = FORGED[case]
    folder = tmp_path / "c"
    shutil.copytree(folders["tight", 5], folder)
    path = newest(folder)
    header, arrays = read_container(path, KIND)
    header["state"] |= fields
    write_container(path, KIND, header, arrays)
    if alone:
        for other in {folder / name for name in NAMES} - {path}:
            other.unlink()
        with pytest.raises(CheckpointError, match=f"no checkpoint that is whole: .*{text}"):
            fit("tight", folder)
        return
    with pytest.warns(CheckpointWarning, match=rf"{path.name} cannot be used: .*{text}.*Resuming at pass 4\."):
        model = fit("tight", folder)
    np.testing.assert_array_equal(model.eigenvalues_, KernelPCA(**SETTINGS).fit(FITS["tight"][1]).eigenvalues_)


@pytest.mark.parametrize("number", [None, "5", 0, -1, 6, 2**62, True, [5]])
def test_a_number_that_is_not_that_of_the_file_is_damage(
    number: Any, folders: dict[tuple[str, int | None], Path], tmp_path: Path
) -> None:
    folder = tmp_path / "c"
    shutil.copytree(folders["tight", 5], folder)
    path = newest(folder)
    header, arrays = read_container(path, KIND)
    assert header["number"] == 5
    write_container(path, KIND, {**header, "number": number}, arrays)
    with pytest.warns(CheckpointWarning, match=rf"{path.name} cannot be used: its number is .*Resuming at pass 4\."):
        fit("tight", folder)


# -- planted links -----------------------------------------------------------------------------------------------------


@pytest.mark.skipif(os.name != "posix", reason="links as on POSIX")
@pytest.mark.parametrize("is_there", [True, False], ids=["a file", "no file"])
@pytest.mark.parametrize("name", NAMES)
def test_a_planted_link_is_replaced_and_not_followed(
    name: str, is_there: bool, folders: dict[tuple[str, int | None], Path], tmp_path: Path
) -> None:
    """It stands where the next checkpoint goes: beside a checkpoint, or in an empty folder."""
    folder, victim = tmp_path / "c", tmp_path / "victim"
    folder.mkdir()
    if is_there:
        victim.write_bytes(b"mine")
        victim.chmod(0o600)
        other = next(one for one in NAMES if one != name)
        shutil.copy(folders["tight", 5] / other, folder / other)
    (folder / name).symlink_to(victim)
    if is_there:
        with pytest.warns(CheckpointWarning, match=f"{name} cannot be used"):
            fit("tight", folder)
        assert (victim.read_bytes(), victim.stat().st_mode & 0o777) == (b"mine", 0o600)
    else:
        fit("tight", folder)
        assert not victim.exists()
    assert not (folder / name).is_symlink()
    assert read_container(folder / name, KIND)[0]["number"] % 2 == NAMES.index(name)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes as on POSIX")
def test_a_planted_pipe_is_replaced_without_waiting(
    folders: dict[tuple[str, int | None], Path], tmp_path: Path
) -> None:
    folder = tmp_path / "c"
    shutil.copytree(folders["tight", 5], folder)
    path = newest(folder)
    path.unlink()
    os.mkfifo(path)
    with pytest.warns(CheckpointWarning, match="a device or a pipe"):
        fit("tight", folder)
    assert path.is_file()
