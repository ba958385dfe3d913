"""The method `save` of estimators, and the way back from a file to a fitted estimator."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from numbers import Integral
from typing import Any

from sklearn.utils.validation import check_is_fitted

from gpukpca._archive import MOST_MEMBERS, Arrays, Header, write_archive
from gpukpca._files import plain_target
from gpukpca._formatting import printable
from gpukpca._typing import Array
from gpukpca._version import __version__
from gpukpca.algorithms.placement import placement_for
from gpukpca.backend.namespace import move
from gpukpca.backend.random import generator
from gpukpca.decomposition.saved.kinds import Sizes, check_fields
from gpukpca.decomposition.saved.layouts import Layout
from gpukpca.decomposition.saved.tree import Flattened, Rebuilt
from gpukpca.exceptions import InvalidParameterError, ModelFormatError

# Of the files written, and the oldest that is read.
FORMAT = OLDEST = 1
# Parameters that belong to a process or a machine, not to a model, and what scikit-learn's `set_output` and
# `set_fit_request` leave on an estimator.
NOT_KEPT = ("checkpoint", "client", "device", "verbose")
OF_SKLEARN = ("_sklearn_output_config", "_metadata_request")
# Letters of which a model has one at least.
NEVER_NONE = {"n": "samples", "m": "rows of the basis", "d": "features", "r": "rows of the pre-image", "k": "clusters"}
# What parts of the right types that do not belong together lead to.
CONTRADICTIONS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


class Saved:
    """An estimator that can be written to a file and read by `gpukpca.load`: to be named before scikit-learn's bases.

    `_layout` says what the file holds.
    """

    _layout: Layout

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
        write_model(self, path)


# -- to a file ---------------------------------------------------------------------------------------------------------


def write_model(model: Any, path: str | os.PathLike[str], notes: Mapping[str, Any] | None = None) -> None:
    """`Saved.save`, with notes of the caller's own beside the model: numbers, text, tuples and arrays by name."""
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
    for name, value in (notes or {}).items():
        flat.put(f"notes.{name}", value)
    try:
        _rebuilt(flat.header, flat.arrays, {layout.estimator: type(model)})
    except ModelFormatError as error:  # no file rather than one that nobody can read
        raise InvalidParameterError(f"this model cannot be saved: {error}.") from error
    if len(flat.arrays) >= MOST_MEMBERS:
        raise InvalidParameterError(f"this model cannot be saved: it has {len(flat.arrays)} arrays.")
    write_archive(path, flat.header, flat.arrays)


def _seed(random_state: Any) -> int | None:
    """A generator has a state, which a fit has used up; a number says the same again."""
    return int(random_state) if isinstance(random_state, Integral) else None


def _fitted(model: Any, layout: Layout) -> dict[str, Any]:
    """The fitted attributes that are there, in the order of the layout; none is left out in silence."""
    known = {*model.get_params(deep=False), *layout.fitted, *OF_SKLEARN}
    if unknown := sorted(set(vars(model)) - known):
        raise InvalidParameterError(
            f"{layout.estimator} has {', '.join(unknown)}, which a model file has no place for; delete it first, or "
            "keep it beside the model with gpukpca.persistence.save_with_notes."
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
    """The fitted estimator that header and arrays tell, and the notes beside it.

    Parameters
    ----------
    header, arrays : dict
        As `read_archive` gives them, of a version that is read.
    estimators : dict
        The classes that there may be, by name.
    device : str, optional
        The parameter of the estimator; what it needs for new points goes there.

    Raises
    ------
    ModelFormatError
    InvalidParameterError, DeviceUnavailableError
        About `device`.
    """
    model, notes = _rebuilt(header, arrays, estimators, device)
    with _meant():
        generator(getattr(model, "random_state", None))
        model._layout.check(model)
    return model, notes


def _rebuilt(
    header: Header, arrays: Arrays, estimators: Mapping[str, Any], device: str | None = None
) -> tuple[Any, dict[str, Any]]:
    """The estimator with parts of the right kinds and shapes, and the notes."""
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
    """What contradicts itself inside is the file's fault."""
    try:
        yield
    except ModelFormatError:
        raise
    except CONTRADICTIONS as error:
        raise ModelFormatError(f"its parts make no model ({error})") from error


def _with_parameters(built: Rebuilt, tree: dict[str, Any], estimators: Mapping[str, Any]) -> Any:
    """The estimator, not fitted yet. Parameters that a file lacks, as an older one may, have their default."""
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
    """Set the public attributes, which say what letters mean, or the private ones, and with them all that is left."""
    kinds = {name: kind for name, kind in model._layout.fitted.items() if name.startswith("_") == private}
    taken = [name for name in kinds if name in tree]
    taken += sorted(set(tree) - set(taken)) if private else []
    fitted = {name: built.value(tree.pop(name), name, place) for name in taken}
    check_fields(model._layout.estimator, fitted, kinds, sizes)
    vars(model).update(fitted)


def _placing(model: Any, layout: Layout) -> Callable[[Array], Array] | None:
    """What brings an array to where the model computes; None for the host."""
    place = placement_for(model.device, getattr(model, layout.home))
    return partial(move, like=place.work) if place.moved else None
