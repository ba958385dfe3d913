"""Save fitted estimators to files, and load them: a file holds parameters, the fit result and a few facts."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Integral
from typing import IO, Any

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted

from gpukpca._container import CONTRADICTIONS, Arrays, Header, format_errors, read_container, write_content
from gpukpca._files import plain_target, replaced_whole
from gpukpca._formatting import format_bytes, printable
from gpukpca._typing import Array
from gpukpca._version import __version__
from gpukpca.algorithms.fields import field_of
from gpukpca.algorithms.placement import Placement, placement_for
from gpukpca.backend.device import parsed_device
from gpukpca.backend.namespace import is_foreign, is_numpy, is_sparse, to_host
from gpukpca.backend.random import generator
from gpukpca.exceptions import InvalidParameterError, MemoryBudgetError, ModelFormatError
from gpukpca.kernels import Kernel
from gpukpca.persistence.checks import check_fit
from gpukpca.persistence.schema import Field, Node, Reader, Writer, check_fields, check_sizes, holds_type, register

KIND = "model"
# Of the files written and read. Raised where the meaning of a part changes, not for a new field with a default.
FORMAT = 1
# Parameters that belong to a process or a machine, not to a model, and what scikit-learn's `set_output` and
# `set_fit_request` leave on an estimator.
NOT_KEPT = ("checkpoint", "device", "verbose")
OF_SKLEARN = ("_sklearn_output_config", "_metadata_request", "_skl_callbacks")
# Attributes of an estimator that do not follow from its parameters and its fit result.
FACTS = {
    "n_features_in_": Field(int, rules=("nonnegative",)),
    "feature_names_in_": Field(np.ndarray, required=False),
    "device_": Field(str, required=False),
    "fallbacks_": Field(tuple[str, ...], required=False),
    "batch_size_": Field(int, rules=("positive",), required=False),
}
# Which steps of a model are scalers.
SHAPES = ([False], [True, False])
CONTRADICTION = "its parts make no model"

# The classes of estimators by name; each registers when its module is imported.
ESTIMATORS: dict[str, Any] = {}


class Saved:
    """Base of estimators that can be saved and loaded; stands before the bases of scikit-learn.

    A subclass that readers of files know states the `_result_type` of its fits. It keeps the fit result in `_result`,
    and `_publish(result, place)` sets the attributes that follow from it.
    """

    _result: Any
    _result_type: type
    _publish: Callable[..., None]
    _check_parameters: Callable[[], None]
    # The attribute that says where the data of the fit were.
    _home = "components_"

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        if "_result_type" in vars(cls):
            ESTIMATORS[cls.__name__] = cls

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted estimator to a file that `gpukpca.load` reads, on any machine.

        Parameters
        ----------
        path : str or path
            Such as "model.safetensors"; any name is allowed. An existing file is replaced, whole: until all is written
            it stays what it was. A link is replaced and not followed.

        Raises
        ------
        NotFittedError
        InvalidParameterError
            A part of the model is code (a Python function as kernel, a user-defined class of kernel or solver), or is
            infinite; an attribute was added, or was changed after the fit.
        OSError
            A directory, no such folder, no permission, no space.

        Notes
        -----
        A safetensors file: arrays by name, such as ``fit.components``, and one JSON text in its metadata. An array that
        the text names as transposed is stored so. Arrays of a device are written as they are on the host. Not kept:
        `checkpoint`, `device`, `verbose`, a `random_state` that is neither None nor an integer, `set_output`.
        With all samples for a basis, and with a ridge pre-image, the training data are part of the model, and of the
        file. `gpukpca.save` also saves a Pipeline of a StandardScaler and an estimator.
        """
        save(self, path)


@dataclass(frozen=True)
class ScalerFit:
    """The fitted attributes of a StandardScaler."""

    mean: Array | None = field_of("d", "of the columns")
    var: Array | None = field_of("d", "of the columns, over n", "nonnegative")
    scale: Array | None = field_of("d", "divisors of the centered columns", "positive")
    n_samples_seen: Array = field_of(
        "*", "rows, or for every column those without missing entries; sums of weights", "nonnegative", "or integers"
    )

    @classmethod
    def of(cls, scaler: Any) -> ScalerFit:
        """Return the state of a fitted scaler."""
        return cls(scaler.mean_, scaler.var_, scaler.scale_, np.atleast_1d(scaler.n_samples_seen_))

    def publish(self, scaler: Any) -> None:
        """Set the attributes of a scaler."""
        scaler.mean_, scaler.var_, scaler.scale_ = self.mean, self.var, self.scale
        scaler.n_samples_seen_ = self.n_samples_seen if len(self.n_samples_seen) > 1 else self.n_samples_seen[0]


register(ScalerFit)


# -- to a file ---------------------------------------------------------------------------------------------------------


def save(model: Any, path: str | os.PathLike[str], notes: dict[str, Any] | None = None) -> None:
    """Save a model, or a pipeline of a scaler and a model; `gpukpca.load` reads it.

    Parameters
    ----------
    model : fitted estimator with a method `save`, or Pipeline of two steps, a StandardScaler and such an estimator
    path : str or path
        Any name, such as "model.safetensors". An existing file is replaced, as by `numpy.save`, and only once all is
        written.
    notes : dict, optional
        Values of the caller, which `load_with_notes` returns: text to numbers, text, None, arrays, and tuples, lists
        and dictionaries of those.

    Raises
    ------
    InvalidParameterError
        A model or a value that a file cannot hold.
    OSError
        The file cannot be written; nothing has changed then.

    See Also
    --------
    load : Read the file.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> import gpukpca
    >>> path = os.path.join(tempfile.mkdtemp(), "model.safetensors")
    >>> X = np.arange(12.0).reshape(6, 2) ** 2
    >>> gpukpca.save(gpukpca.PCA(1).fit(X), path)
    >>> gpukpca.load(path).transform(X[:1]).shape
    (1, 1)
    """
    with replaced_whole(plain_target(path)) as (file,):
        write_model(file, model, notes)


def write_model(file: IO[bytes], model: Any, notes: dict[str, Any] | None = None) -> None:
    """Write what `save` saves to an open binary file."""
    steps = model.steps if type(model) is Pipeline else [(None, model)]
    if [type(step) is StandardScaler for _, step in steps] not in SHAPES:
        raise InvalidParameterError(
            "a file holds an estimator of gpukpca, or a Pipeline of two steps, a StandardScaler and such an estimator."
        )
    writer = Writer()
    nodes = [
        {"name": name} | _node_of(writer, "" if name is None else f"steps.{place}.", step)
        for place, (name, step) in enumerate(steps)
    ]
    header = {"format": FORMAT, "version": __version__, "steps": nodes}
    header["notes"] = {name: writer.node(f"notes.{name}", value) for name, value in (notes or {}).items()}
    try:
        twins = _steps(header, writer.arrays)
    except ModelFormatError as error:  # better no file than one that cannot be read
        raise InvalidParameterError(f"this model cannot be saved: {error}.") from error
    for (_, step), twin in zip(steps, twins, strict=True):
        _check_same(step, twin)
    write_content(file, KIND, header, writer.arrays)


def _node_of(writer: Writer, path: str, model: Any) -> dict[str, Node]:
    """Return the node of an estimator or a scaler; names of its arrays begin with the path."""
    cls = type(model)
    if hasattr(model, "fit"):
        check_is_fitted(model)
    if cls is StandardScaler:
        result: Any = ScalerFit.of(model)
    elif cls is ESTIMATORS.get(cls.__name__):
        result = model._result
    elif hasattr(model, "best_estimator_"):
        raise InvalidParameterError(f"a file holds one model, not the search {cls.__name__}: save its best_estimator_.")
    else:
        base = next((base.__name__ for base in cls.__mro__ if ESTIMATORS.get(base.__name__) is base), "an estimator")
        raise InvalidParameterError(
            f"{cls.__name__} is no class of gpukpca, so no reader of the file would know it; only {base} itself can be "
            "saved."
        )
    parameters = {
        name: writer.node(f"{path}parameters.{name}", _seed(value) if name == "random_state" else value)
        for name, value in model.get_params(deep=False).items()
        if name not in NOT_KEPT
    }
    facts = {name: writer.node(f"{path}{name}", value) for name, value in _facts(model).items()}
    return {"class": cls.__name__, "parameters": parameters, "facts": facts, "fit": writer.node(f"{path}fit", result)}


def _seed(random_state: Any) -> int | None:
    """Return an integer seed; None for a generator, whose state a fit has changed."""
    return int(random_state) if isinstance(random_state, Integral) else None


def _facts(model: Any) -> dict[str, Any]:
    """Return the attributes of a fitted estimator that are facts."""
    return {name: value for name, value in vars(model).items() if name in FACTS}


def _check_same(model: Any, twin: Any) -> None:
    """Raise where an estimator has attributes that its file does not give back."""
    name = type(model).__name__
    known = {*model.get_params(deep=False), *OF_SKLEARN}
    if unknown := sorted(set(vars(model)) - known - set(vars(twin))):
        raise InvalidParameterError(
            f"{name} has {', '.join(unknown)}, which a model file has no place for; delete it first, or give it "
            "to gpukpca.persistence.save in `notes`."
        )
    for attribute in sorted(set(vars(twin)) - known):
        if attribute.endswith("_") and not _is_same(vars(model).get(attribute), vars(twin)[attribute]):
            raise InvalidParameterError(
                f"{name} cannot be saved: {attribute} was changed after the fit, and a file holds the result of the "
                "fit. Fit again, or give what you changed to gpukpca.persistence.save in `notes`."
            )


def _is_same(a: Any, b: Any) -> bool:
    """Return whether two attributes have the same numbers."""
    if is_sparse(a) and is_sparse(b):
        return a is b or (a.shape == b.shape and (a != b).nnz == 0)
    if is_numpy(a) or is_foreign(a):
        return a is b or (is_numpy(b) and np.array_equal(to_host(a), b))
    if b is None or isinstance(b, (int, float, np.number, str, tuple, dict, Kernel)):
        return bool(a == b)
    return type(a) is type(b)


# -- from a file -------------------------------------------------------------------------------------------------------


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
    KernelPCA, PCA, IncrementalPCA, ProbabilisticPCA, BayesianPCA or LocalPCA; a Pipeline of a StandardScaler and one
        Its arrays are NumPy arrays and share nothing with the file.

    Raises
    ------
    ModelFormatError
        No model file, damaged, cut off, with parts of other types, shapes or ranges, or written by a newer version.
    OSError
        No such file, a directory, no permission.
    MemoryBudgetError
        A file that is too large for the free memory.
    InvalidParameterError, DeviceUnavailableError
        About `device`.

    See Also
    --------
    save : Write the file.

    Notes
    -----
    Safe for files from anywhere: nothing in them is run, objects are made from a fixed table of classes, and memory is
    of the order of the file. The numbers are not proved to be those of a fit. Cost: one reading of the file and its
    SHA-256 digest.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> import gpukpca
    >>> path = os.path.join(tempfile.mkdtemp(), "model.safetensors")
    >>> X = np.random.default_rng(0).standard_normal((50, 4))
    >>> model = gpukpca.KernelPCA(2, kernel="rbf").fit(X)
    >>> model.save(path)
    >>> again = gpukpca.load(path)
    >>> bool((again.transform(X) == model.transform(X)).all())
    True
    """
    return load_with_notes(path, device)[0]


def load_with_notes(path: str | os.PathLike[str], device: str | None = None) -> tuple[Any, dict[str, Any]]:
    """Return the estimator of `load` and the notes of `save`; without any, an empty dictionary.

    Parameters
    ----------
    path : str or path
    device : as for `load`

    Returns
    -------
    estimator : object
        That of `load`.
    notes : dict
        The notes that were saved.

    See Also
    --------
    gpukpca.load : The estimator alone.
    gpukpca.save : Takes the notes.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> import gpukpca
    >>> from gpukpca.persistence import load_with_notes
    >>> path = os.path.join(tempfile.mkdtemp(), "model.safetensors")
    >>> gpukpca.save(gpukpca.PCA(1).fit(np.eye(4)), path, notes={"data": "unit vectors", "rows": 4})
    >>> load_with_notes(path)[1]
    {'data': 'unit vectors', 'rows': 4}
    """
    from gpukpca import decomposition  # noqa: F401  # the estimators register

    parsed_device(device)
    with naming(path) as path:
        return restored(*read_container(path, KIND), device)


@contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[str]:
    """Yield the path as text, and put it into errors of reading a model file."""
    path = os.fsdecode(path)
    try:
        yield path
    except (FileNotFoundError, IsADirectoryError) as error:
        what = "is a directory" if isinstance(error, IsADirectoryError) else "does not exist"
        advice = f"{what}; give a model file, which `save` or gpukpca fit --save wrote"
        raise type(error)(error.errno, advice, path) from error
    except ModelFormatError as error:
        raise ModelFormatError(f"{path} is no model file of gpukpca that can be read: {error}.") from error
    except MemoryError as error:
        size = format_bytes(os.stat(path).st_size)
        raise MemoryBudgetError(
            f"{path} holds {size}, and reading and checking it takes more memory than is free; free some, or load it "
            "on a larger machine."
        ) from error


def restored(header: Header, arrays: Arrays, device: str | None = None) -> tuple[Any, dict[str, Any]]:
    """Return the fitted estimator of a header and arrays, checked, and the notes.

    What the estimator needs for new points goes to `device`.
    """
    with format_errors(CONTRADICTION, *CONTRADICTIONS):
        check_version(header)
        steps = _steps(header, arrays)
        estimator, node = steps[-1], header["steps"][-1]
        generator(getattr(estimator, "random_state", None))
        estimator._check_parameters()
        check_fit(estimator._result)
        notes = {name: Reader(arrays).value(node, f"notes.{name}") for name, node in header["notes"].items()}
    estimator.set_params(device=device)
    place = placement_for(device, vars(estimator)[estimator._home])
    if place.moved:
        facts = _facts(estimator)
        estimator._publish(Reader(arrays, place.work).value(node["fit"], "fit"), place)
        vars(estimator).update(facts)
    names = [part["name"] for part in header["steps"]]
    return estimator if len(steps) == 1 else Pipeline(list(zip(names, steps, strict=True))), notes


def check_version(header: Header) -> None:
    """Raise `ModelFormatError` for a format that this version does not read."""
    number, version = header.get("format"), header.get("version")
    if not isinstance(number, int) or isinstance(number, bool) or not isinstance(version, str):
        raise ModelFormatError("its header does not say which format it has")
    if number != FORMAT:
        raise ModelFormatError(
            f"it was written by gpukpca {printable(version[:40])} in format {number}, and this is gpukpca "
            f"{__version__}, which reads format {FORMAT}; install {'a newer' if number > FORMAT else 'that'} gpukpca"
        )


def _steps(header: Header, arrays: Arrays) -> list[Any]:
    """Return the fitted estimator, after its scaler where it has one, with fields of the right types and shapes."""
    with format_errors(CONTRADICTION, *CONTRADICTIONS):
        if set(header) != {"format", "version", "steps", "notes"}:
            raise ModelFormatError(f"its header has {', '.join(map(repr, header))[:200]}")
        nodes = header["steps"]
        if [node["class"] == "StandardScaler" for node in nodes] not in SHAPES:
            raise ModelFormatError("its steps are no estimator, and no StandardScaler and an estimator")
        if not all(holds_type(node["name"], str if len(nodes) > 1 else None) for node in nodes):
            raise ModelFormatError("its steps have no names")
        steps = [_estimator(node, arrays) for node in nodes]
        if len({step.n_features_in_ for step in steps}) > 1:
            raise ModelFormatError("its scaler and its estimator have other features")
        if unknown := sorted(set(arrays) - set(_names_in(header))):
            raise ModelFormatError(f"no part of it has the arrays {printable(', '.join(unknown))[:200]}")
        return steps


def _names_in(node: Node) -> Iterator[str]:
    """Yield the names of the arrays of a node."""
    if isinstance(node, dict) and set(node) == {"array"}:
        yield node["array"]
    elif isinstance(node, (dict, list)):
        for part in node.values() if isinstance(node, dict) else node:
            yield from _names_in(part)


def _estimator(node: Node, arrays: Arrays) -> Any:
    """Return the fitted estimator of a node, on the host."""
    name = node["class"]
    known: dict[str, Any] = {**ESTIMATORS, "StandardScaler": StandardScaler}
    if not isinstance(name, str) or name not in known:
        raise ModelFormatError(f"its estimator is {str(name)[:80]!r}; known are {', '.join(ESTIMATORS)}")
    cls, reader = known[name], Reader(arrays)
    if set(node) != {"name", "class", "parameters", "facts", "fit"}:
        raise ModelFormatError(f"{name} has {', '.join(map(repr, node))[:200]}")
    if unknown := sorted(set(node["parameters"]) - (set(cls().get_params(deep=False)) - set(NOT_KEPT))):
        raise ModelFormatError(f"{name} has no parameter {', '.join(unknown)[:200]}")
    model = cls(**{key: reader.value(part, f"parameters.{key}") for key, part in node["parameters"].items()})
    facts = {key: reader.value(part, key) for key, part in node["facts"].items()}
    check_fields(name, facts, FACTS, reader.sizes)
    d = reader.sizes["d"] = facts["n_features_in_"]
    fit = reader.value(node["fit"], "fit")
    check_sizes(reader.sizes)
    names = facts.get("feature_names_in_")
    if names is not None and (names.dtype != object or names.shape != (d,) or len(set(names)) != d):
        raise ModelFormatError(f"feature_names_in_ must be {d} different texts")
    vars(model).update(facts)
    if type(fit) is not (ScalerFit if cls is StandardScaler else cls._result_type):
        raise ModelFormatError(f"{name} has a fit of {type(fit).__name__}")
    host = np.empty(0)
    if cls is StandardScaler:
        fit.publish(model)
    else:
        model._publish(fit, Placement(host, host))
    if missing := sorted(set(_facts(model)) - set(facts)):
        raise ModelFormatError(f"{name} lacks {', '.join(missing)}")
    vars(model).update(facts)
    return model
