"""Save fitted estimators to files, and load them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from numbers import Integral
from typing import Any

from sklearn.utils.validation import check_is_fitted

from gpukpca._archive import MOST_MEMBERS, Arrays, Header, read_archive, write_archive
from gpukpca._files import plain_target
from gpukpca._formatting import printable
from gpukpca._typing import Array
from gpukpca._version import __version__
from gpukpca.algorithms.placement import placement_for
from gpukpca.backend.device import parsed_device
from gpukpca.backend.namespace import move
from gpukpca.backend.random import generator
from gpukpca.exceptions import InvalidParameterError, ModelFormatError
from gpukpca.persistence.kinds import Sizes, check_fields
from gpukpca.persistence.layouts import Layout
from gpukpca.persistence.tree import Flattened, Rebuilt

# Of the files written, and the oldest that is read. Raised where the meaning of a part changes, not for a new optional
# part.
FORMAT = OLDEST = 1
# Parameters that belong to a process or a machine, not to a model, and what scikit-learn's `set_output` and
# `set_fit_request` leave on an estimator.
NOT_KEPT = ("checkpoint", "client", "device", "verbose")
OF_SKLEARN = ("_sklearn_output_config", "_metadata_request")
# Letters of which a model has one at least.
NEVER_NONE = {"n": "samples", "m": "rows of the basis", "d": "features", "r": "rows of the pre-image", "k": "clusters"}
# What parts of the right types that do not belong together lead to.
CONTRADICTIONS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


# The classes of estimators by name; each registers when its module is imported.
ESTIMATORS: dict[str, Any] = {}


class Saved:
    """Base of estimators that can be saved and loaded; stands before the bases of scikit-learn.

    `_layout` names the parts of the file; `_check_parameters` raises where a parameter is out of range.
    """

    _layout: Layout
    _check_parameters: Callable[[], None]

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        layout = vars(cls).get("_layout")
        if layout is not None:
            ESTIMATORS[layout.estimator] = cls

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted estimator to a file that `gpukpca.load` reads, on any machine.

        Parameters
        ----------
        path : str or path
            An existing file is replaced, whole: until all is written it stays what it was.

        Raises
        ------
        NotFittedError
        InvalidParameterError
            A part of the model is code (a kernel that is a Python function, or of a class of your own, a solver of your
            own), or is infinite; an attribute of your own.
        OSError
            A directory, no such folder, no permission, no space.

        Notes
        -----
        An uncompressed .npz of named arrays with one JSON text, `header.json`; arrays of a device are written as they
        are on the host. Not kept: `checkpoint`, `client`, `device`, `verbose`, a `random_state` that is neither
        None nor an integer, `set_output`. With all samples for a basis, and with a ridge pre-image, the training data
        are part of the model, and of the file.
        """
        save_with_notes(self, path, {})


# -- to a file ---------------------------------------------------------------------------------------------------------


def save_with_notes(model: Any, path: str | os.PathLike[str], notes: dict[str, Any]) -> None:
    """Save a model with values of the caller beside it.

    Parameters
    ----------
    model : fitted estimator with a method `save`
    path : str or path
    notes : dict
        Identifiers to numbers, text, None, arrays, and tuples, lists and dictionaries of those.
    """
    check_is_fitted(model)
    plain_target(path)  # before any work
    layout = model._layout
    if type(model).__name__ != layout.estimator:
        raise InvalidParameterError(
            f"{type(model).__name__} is a class of its own, which no reader of the file would know; only "
            f"{layout.estimator} itself can be saved."
        )
    flat = Flattened()
    flat.header |= {"format": FORMAT, "version": __version__, "estimator": layout.estimator}
    for name, value in model.get_params(deep=False).items():
        if name not in NOT_KEPT:
            flat.put(f"parameters.{name}", _seed(value) if name == "random_state" else value)
    for name, value in _fitted(model, layout).items():
        flat.put(name, value)
    for name, value in notes.items():
        flat.put(f"notes.{name}", value)
    try:
        _rebuilt(flat.header, flat.arrays, {layout.estimator: type(model)})
    except ModelFormatError as error:  # no file rather than one that nobody can read
        raise InvalidParameterError(f"this model cannot be saved: {error}.") from error
    if len(flat.arrays) >= MOST_MEMBERS:
        raise InvalidParameterError(f"this model cannot be saved: it has {len(flat.arrays)} arrays.")
    write_archive(path, flat.header, flat.arrays)


def _seed(random_state: Any) -> int | None:
    """Return an integer seed; None for a generator, whose state a fit has changed."""
    return int(random_state) if isinstance(random_state, Integral) else None


def _fitted(model: Any, layout: Layout) -> dict[str, Any]:
    """Return the fitted attributes in the order of the layout; raise for attributes that it does not know."""
    known = {*model.get_params(deep=False), *layout.fitted, *OF_SKLEARN}
    if unknown := sorted(set(vars(model)) - known):
        raise InvalidParameterError(
            f"{layout.estimator} has {', '.join(unknown)}, which a model file has no place for; delete it first, or "
            "keep it beside the model with gpukpca.persistence.save_with_notes. (An attribute of the library needs a "
            "line in gpukpca/persistence/layouts.py.)"
        )
    return {name: vars(model)[name] for name in layout.fitted if name in vars(model)}


# -- from a file -------------------------------------------------------------------------------------------------------


def check_version(header: Header) -> None:
    """Raise `ModelFormatError` for a format that this version does not read."""
    number, version = header.get("format"), header.get("version")
    if not isinstance(number, int) or isinstance(number, bool) or not isinstance(version, str):
        raise ModelFormatError("its header does not say which format it has")
    if number > FORMAT:
        raise ModelFormatError(
            f"it was written by gpukpca {printable(version[:40])} in format {number}, and this is gpukpca "
            f"{__version__}, which reads formats {OLDEST} to {FORMAT}; install a newer gpukpca"
        )
    if number < OLDEST:
        raise ModelFormatError(f"its format {number} is older than {OLDEST}, the oldest that is read")


def restored(
    header: Header, arrays: Arrays, estimators: Mapping[str, Any], device: str | None = None
) -> tuple[Any, dict[str, Any]]:
    """Return the fitted estimator of a header and arrays, of a version that is read, and the notes.

    What the estimator needs for new points goes to `device`.
    """
    model, notes = _rebuilt(header, arrays, estimators, device)
    with _meant():
        generator(getattr(model, "random_state", None))
        model._check_parameters()
        model._layout.check(model)
    return model, notes


def _rebuilt(
    header: Header, arrays: Arrays, estimators: Mapping[str, Any], device: str | None = None
) -> tuple[Any, dict[str, Any]]:
    """Return the estimator with parts of the right kinds and shapes, and the notes."""
    sizes: Sizes = {}
    with _meant():
        built = Rebuilt(header, arrays, sizes)
        tree = built.tree
        model = _with_parameters(built, tree, estimators)
        layout, nodes = model._layout, _folder(tree, "notes")
        _set_fitted(model, built, tree, sizes, private=False)
    place = _placing(model.set_params(device=device), layout)
    with _meant():
        _set_fitted(model, built, tree, sizes, private=True, place=place)
        _check_sizes(sizes)
        return model, {key: built.value(node, f"notes.{key}") for key, node in nodes.items()}


def _check_sizes(sizes: Sizes) -> None:
    for letter, what in NEVER_NONE.items():
        if sizes.get(letter, 1) == 0:
            raise ModelFormatError(f"it has no {what}")


@contextmanager
def _meant() -> Iterator[None]:
    """Report contradictions inside as `ModelFormatError`."""
    try:
        yield
    except ModelFormatError:
        raise
    except CONTRADICTIONS as error:
        raise ModelFormatError(f"its parts make no model ({error})") from error


def _with_parameters(built: Rebuilt, tree: dict[str, Any], estimators: Mapping[str, Any]) -> Any:
    """Return the unfitted estimator; parameters that an older file lacks have their default."""
    for key in ("format", "version"):
        del tree[key]
    name = tree.pop("estimator", None)
    if not isinstance(name, str) or name not in estimators:
        raise ModelFormatError(f"its estimator is {str(name)[:80]!r}; known are {', '.join(estimators)}")
    nodes = _folder(tree, "parameters")
    unknown = sorted(set(nodes) - (set(estimators[name]().get_params(deep=False)) - set(NOT_KEPT)))
    if unknown:
        raise ModelFormatError(f"{name} has no parameter {', '.join(unknown)[:200]}")
    return estimators[name](**{key: built.value(node, f"parameters.{key}") for key, node in nodes.items()})


def _folder(tree: dict[str, Any], name: str) -> dict[str, Any]:
    nodes = tree.pop(name, {})
    if not isinstance(nodes, dict):
        raise ModelFormatError(f"{name} is a value")
    return nodes


def _set_fitted(
    model: Any,
    built: Rebuilt,
    tree: dict[str, Any],
    sizes: Sizes,
    private: bool,
    place: Callable[[Array], Array] | None = None,
) -> None:
    """Set the public attributes, which determine the sizes of letters, or the private ones and the rest."""
    kinds = {name: kind for name, kind in model._layout.fitted.items() if name.startswith("_") == private}
    taken = [name for name in kinds if name in tree]
    taken += sorted(set(tree) - set(taken)) if private else []
    fitted = {name: built.value(tree.pop(name), name, place) for name in taken}
    check_fields(model._layout.estimator, fitted, kinds, sizes)
    vars(model).update(fitted)


def _placing(model: Any, layout: Layout) -> Callable[[Array], Array] | None:
    """Return the function that moves an array to the device of the model; None for the host."""
    place = placement_for(model.device, getattr(model, layout.home))
    return partial(move, like=place.work) if place.moved else None


# -- public functions --------------------------------------------------------------------------------------------------


def load(path: str | os.PathLike[str], device: str | None = None) -> Any:
    """Return the fitted estimator that ``model.save(path)`` wrote.

    Parameters
    ----------
    path : str or path
        Its name does not matter, only what is in it.
    device : None, "auto", "cpu", "cuda" or "cuda:N"
        The estimator's parameter `device`. None: new points are computed on the host, wherever the model was fitted.
        "cuda": what they need goes to the GPU now.

    Returns
    -------
    KernelPCA, PCA, IncrementalPCA, ProbabilisticPCA, BayesianPCA or LocalPCA
        Its arrays are NumPy's, in memory of their own.

    Raises
    ------
    ModelFormatError
        No model file, damaged, cut off, its parts contradict each other, or written by a newer version.
    OSError
        No such file, a directory, no permission.
    InvalidParameterError, DeviceUnavailableError
        About `device`.

    Notes
    -----
    Safe for files from anywhere: nothing in them is run, objects are made from a fixed table of classes, and no more
    memory is taken than the file has bytes, and what the checks need (p² items, and the basis made ready for the
    kernel and the pre-image). Cost: one reading of the file, and n p² operations.
    """
    return load_with_notes(path, device)[0]


def load_with_notes(path: str | os.PathLike[str], device: str | None = None) -> tuple[Any, dict[str, Any]]:
    """Return the estimator of `load` and the notes of `save_with_notes`; without any, an empty dictionary.

    Parameters
    ----------
    path : str or path
    device : as for `load`

    Returns
    -------
    (estimator, dict)
    """
    from gpukpca import decomposition  # noqa: F401  # the estimators register

    parsed_device(device)
    try:
        return restored(*read_archive(os.fspath(path), check_version), ESTIMATORS, device)
    except ModelFormatError as error:
        raise ModelFormatError(f"{os.fspath(path)} is no model file of gpukpca that can be read: {error}.") from error
