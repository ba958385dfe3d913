"""Schema of model files: the fields of the classes of the table with their types, shapes and rules.

An object becomes a JSON node with the name of its class and the nodes of its fields; arrays are stored by the path of
their first field. Types and shapes come from the classes: annotations, and `field_of` of fit results. A letter of a
shape stands for one number in all of a model: n samples, d features, p components, m rows of the basis, r rows of a
ridge pre-image, k clusters, q candidates.
"""

from __future__ import annotations

import dataclasses
import math
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from inspect import signature
from numbers import Integral, Real
from types import MappingProxyType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from gpukpca._container import CODES, LARGEST_INTEGER, Arrays
from gpukpca._formatting import printable
from gpukpca._typing import Array
from gpukpca.algorithms.kernel_pca.model import KernelPCAFit
from gpukpca.algorithms.preimage.stored import OF_A_SPACE
from gpukpca.backend.namespace import dtype_name, is_foreign, is_numpy, is_sparse, move, to_host
from gpukpca.data.csr import CSR, canonical, csr_from_parts
from gpukpca.eigen.landmarks import is_given
from gpukpca.eigen.solver import normalized
from gpukpca.exceptions import InvalidParameterError, ModelFormatError
from gpukpca.kernels.prepared import PreparedRows
from gpukpca.persistence.classes import CLASSES

# Shapes and rules of fields whose classes lie below `field_of`.
BELOW: dict[str, dict[str, tuple[str, ...]]] = {
    "Geometry": {"mean": ("d",), "varying": ("*", "index of d")},
    "Moments": {"mean": ("d",), "squares": ("d", "nonnegative")},
    "TiledStorage": {"tile_edge": ("", "positive")},
}
PREPARED: dict[str, tuple[str, ...]] = {"data": ("0 *", "or sparse"), "mean": ("d",)}
# Arguments of constructors that follow from the others, or that only a fit reads.
DERIVED = {"factors", "largest"}
# Columns of sparse rows: a file need not hold them, and products take memory for each.
WIDEST = 2**31 - 1
# Class, field and a value of earlier versions, which only a new fit would use, and what is read in its place.
REPLACED = {("Nystrom", "landmarks", "kmeans++"): "rpcholesky"}
# Classes and estimators of earlier versions, with those that hold the same now; their fields or parameters that have
# another name, or are gone.
FORMER: dict[str, tuple[str, dict[str, str | None]]] = {
    "PCAPlan": ("Plan", {"reason": "solver_reason"}),
    "StreamedStorage": ("LandmarkStorage", {}),
    "LinearProjection": ("LinearProjection", {"weights": "multipliers"}),
    "Cluster": ("GaussianCluster", {}),
    "ClusterStorage": ("ClusterStorage", {"keeps_blocks": None}),
    "IncrementalFit": ("IncrementalFit", dict.fromkeys(("residual_norms", "converged", "n_passes", "solver"))),
    "IncrementalPCA": ("IncrementalPCA", {"exact": None}),
    "LowRankStorage": ("LowRankStorage", {"source": None}),
}
# The parts of a model name its arrays at most twice on average.
MOST_TIMES = 16
# Letters of which a model has one at least.
NEVER_NONE = {"n": "samples", "m": "rows of the basis", "d": "features", "r": "rows of the pre-image", "k": "clusters"}

# Characters of the path of a node in an error: names of fields of any length must not be copied for every node.
LONGEST_PATH = 200

Node = Any


# -- fields ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Field:
    """The type, shape and rules of a field."""

    hint: Any
    shape: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    required: bool = True

    def __str__(self) -> str:
        shape = f"({', '.join(self.shape)}{',' * (len(self.shape) == 1)})"
        kind = f"numbers of shape {shape}" if self.shape else getattr(self.hint, "__name__", str(self.hint))
        finite = "finite " if self.shape and "infinite" not in self.rules else ""
        return ", ".join([finite + kind, *self.rules])


@cache
def fields_of(cls: Any) -> dict[str, Field]:
    """Return the stored fields of a class: those of a dataclass, else the arguments of its constructor."""
    below = BELOW.get(cls.__name__, PREPARED if issubclass(cls, PreparedRows) else {})
    if dataclasses.is_dataclass(cls):
        hints = get_type_hints(cls)
        unset = dataclasses.MISSING
        parts = dataclasses.fields(cls)
        stated = {f.name: (f.metadata, f.default is unset and f.default_factory is unset) for f in parts}
    else:  # its methods check the values of its arguments
        hints, free = get_type_hints(cls.__init__), MappingProxyType({"rules": ("infinite",)})
        stated = {name: (free, part.default is part.empty) for name, part in signature(cls).parameters.items()}
    fields = {}
    for name, (metadata, required) in stated.items():
        shape, rules = metadata.get("shape", ()), metadata.get("rules", ())
        if name in below:
            letters, *rules = below[name]
            shape = tuple(letters.split())
        if name not in DERIVED and "derived" not in rules:
            fields[name] = Field(hints.get(name, Any), shape, tuple(rules), required)
    return fields


def check_stored(owner: str, values: dict[str, Any], fields: dict[str, Field], sizes: dict[str, int]) -> None:
    """Raise `ModelFormatError` unless the values are those of the fields; bind the letters of their shapes."""
    if unknown := sorted(set(values) - set(fields)):
        raise ModelFormatError(f"{owner} has no {', '.join(unknown)[:200]}; a newer gpukpca may have written the file")
    for name, field in fields.items():
        if name not in values:
            if field.required:
                raise ModelFormatError(f"{owner} lacks {name}")
        elif not _holds(values[name], field, sizes):
            known = ", ".join(f"{letter} = {size}" for letter, size in sizes.items())
            raise ModelFormatError(f"{owner}: {name} must be {field} ({known}); it is {described(values[name])}")


def check_sizes(sizes: dict[str, int]) -> None:
    """Raise `ModelFormatError` where a model has nothing of what it needs."""
    for letter, what in NEVER_NONE.items():
        if sizes.get(letter, 1) == 0:
            raise ModelFormatError(f"it has no {what}")


def _holds(value: Any, field: Field, sizes: dict[str, int]) -> bool:
    if value is None and (field.shape or "or None" in field.rules):  # the type of an array is Any
        return "or None" in field.rules or types.NoneType in get_args(field.hint)
    if not field.shape:
        if isinstance(value, float) and math.isnan(value):
            return "or NaN" in field.rules
        if not holds_type(value, field.hint):
            return False
        return not isinstance(value, (int, float)) or _follows_rules(value, field.rules, sizes)
    entries = value
    if is_sparse(value) and "or sparse" in field.rules:
        entries = value.data if value.shape[1] <= WIDEST else None
    is_array = is_numpy(entries) and entries.dtype.kind in _kinds(field.rules)
    return is_array and _fits(value.shape, field.shape, sizes) and _follows_rules(entries, field.rules, sizes)


def _kinds(rules: tuple[str, ...]) -> str:
    """Return the kinds of the dtype that an array may have: numbers, indices or flags."""
    if "or integers" in rules:
        return "fi"
    return "b" if "flags" in rules else "i" if any(rule.startswith("index") for rule in rules) else "f"


def _fits(shape: Sequence[int], dims: tuple[str, ...], sizes: dict[str, int]) -> bool:
    """Return whether a shape fits the letters; bind the free ones. What is neither letter nor number is any length."""
    if len(shape) != len(dims):
        return False
    for length, dim in zip(shape, dims, strict=True):
        if dim.isdigit() and length != int(dim):
            return False
        if dim.isalpha() and len(dim) == 1 and sizes.setdefault(dim, int(length)) != length:
            return False
    return True


def holds_type(value: Any, hint: Any) -> bool:
    """Return whether a value is of an annotated type; an array is any array."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if hint is np.ndarray:
        return bool(is_numpy(value))
    if origin in (Union, types.UnionType):
        return any(holds_type(value, argument) for argument in arguments)
    if origin is Literal:
        return type(value) in map(type, arguments) and value in arguments
    if origin in (tuple, list):
        kinds = arguments[:1] * len(value) if origin is list or arguments[-1] is ... else arguments
        return isinstance(value, origin) and len(value) == len(kinds) and all(map(holds_type, value, kinds))
    if origin is dict:
        pairs = value.items() if isinstance(value, dict) else [(None, None)]
        return all(holds_type(key, arguments[0]) and holds_type(part, arguments[1]) for key, part in pairs)
    if hint in (int, float):
        return isinstance(value, (int, hint)) and not isinstance(value, bool) and value == value
    if hint is str:
        return isinstance(value, str) and printable(value) == value
    return value is None if hint is None else isinstance(value, hint)


# -- rules -------------------------------------------------------------------------------------------------------------


def _follows_rules(value: Any, rules: tuple[str, ...], sizes: dict[str, int]) -> bool:
    if "infinite" not in rules and not np.all(np.isfinite(value)):
        return False
    return all(RULES[rule](value) if rule in RULES else _is_index(value, rule, sizes) for rule in rules)


def _is_index(value: Any, rule: str, sizes: dict[str, int]) -> bool:
    """Return whether integers are indices below the letter that ends the rule.

    Rows that were read once leave no array that binds n; then nothing is read at these indices.
    """
    return not value.size or (value.min() >= 0 and value.max() < sizes.get(rule[-1], math.inf))


RULES: dict[str, Callable[[Any], Any]] = {
    "nonnegative": lambda value: np.all(np.asarray(value) >= 0),
    "positive": lambda value: np.all(np.asarray(value) > 0),
    "infinite": lambda value: not np.any(np.isnan(value)),
    # They allow more, which `_holds` and `_kinds` read.
    **dict.fromkeys(("or sparse", "or None", "or NaN", "or integers", "flags"), lambda value: True),
    "index": lambda value: not value.size or value.min() >= 0,  # of rows that no array of the model has
}


def described(value: Any) -> str:
    """Return a short description of a value."""
    if is_numpy(value) or is_sparse(value):
        finite = np.all(np.isfinite(value.data if is_sparse(value) else value)) if value.dtype != object else True
        return f"{value.dtype} of shape {value.shape}" + ("" if finite else " with NaN or infinity")
    return repr(value)[:80]


# -- from objects to nodes ---------------------------------------------------------------------------------------------


class Writer:
    """Build nodes of objects, and collect the arrays that they name: each array once."""

    def __init__(self) -> None:
        self.arrays: Arrays = {}
        # Paths, arrays, which are held so that no other gets the same id, and how often each is named.
        self._names: dict[int, tuple[str, Any, int]] = {}

    def node(self, path: str, value: Any) -> Node:
        """Return the node of a value.

        Raises
        ------
        InvalidParameterError
            The value is no data, or of a class that is not in the table.
        """
        if value is None or isinstance(value, (str, bool)):
            return value
        if isinstance(value, np.bool_):
            return bool(value)
        if isinstance(value, Integral):
            if abs(int(value)) > LARGEST_INTEGER:
                raise InvalidParameterError(f"{path}={value!r} is an integer beyond 64 bits.")
            return int(value)
        if isinstance(value, Real):
            return float(value) if math.isfinite(value) else {"class": "float", "items": repr(float(value))}
        if is_numpy(value) and value.dtype.kind in "OUb":
            return {"class": "flags" if value.dtype.kind == "b" else "texts", "items": value.tolist()}
        if is_numpy(value) or is_foreign(value):
            return {"array": self._name(path, value)}
        if isinstance(value, (tuple, range)):
            return [self.node(f"{path}.{place}", part) for place, part in enumerate(value)]
        if isinstance(value, list):
            return {"class": "list", "items": self.node(path, tuple(value))}
        if isinstance(value, dict):
            return {"class": "dict", "items": self.node(path, tuple(value.items()))}
        name = type(value).__name__
        if is_sparse(value) and name in CSR:
            value = canonical(value)
            parts = {"data": value.data, "indices": value.indices, "indptr": value.indptr, "shape": value.shape}
        elif CLASSES.get(name) is type(value):  # a subclass may hold more
            parts = {field: getattr(value, field) for field in fields_of(CLASSES[name])}
            if is_given(value):  # in any container
                parts["landmarks"] = normalized(value).landmarks
        else:
            raise InvalidParameterError(_refusal(path, value))
        if isinstance(value, PreparedRows) and "dtype" in parts:
            parts["dtype"] = dtype_name(parts["dtype"])
        return {"class": name} | {field: self.node(f"{path}.{field}", part) for field, part in parts.items()}

    def _name(self, path: str, value: Any) -> str:
        known, _, times = self._names.get(id(value), ("", None, MOST_TIMES))
        if times >= MOST_TIMES:  # a file that named one array more often would be refused
            known, times, array = path, 0, np.asarray(to_host(value))
            if array.dtype.newbyteorder("<") not in CODES:
                raise InvalidParameterError(f"{path}: arrays of {array.dtype} have no place in a model file.")
            self.arrays[path] = array
        self._names[id(value)] = known, value, times + 1
        return known


def _refusal(path: str, value: Any) -> str:
    """Return why a value cannot be written, and what to do."""
    what = f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"
    return (
        f"{path} is {what}, which has no place in a model file: it holds data only, and objects of gpukpca. Fit "
        "with names, and kernels of gpukpca.kernels and their algebra, in place of classes and functions, or pickle "
        "the model for readers who trust you."
    )


# -- and back ----------------------------------------------------------------------------------------------------------


class Reader:
    """Build objects of nodes and arrays; check every field.

    Parameters
    ----------
    arrays : dict
    like : array, optional
        Arrays inside of objects go where it is, but for those of fields that stay on the host; an array that several
        objects have is moved once.
    """

    def __init__(self, arrays: Arrays, like: Array | None = None) -> None:
        self.arrays = arrays
        self.like: Any | None = like
        self.sizes: dict[str, int] = {}
        self._moved: dict[int, Array] = {}

    def value(self, node: Node, path: str) -> Any:
        """Return the value of a node; raise `ModelFormatError` where it has none."""
        path = path[:LONGEST_PATH]
        if isinstance(node, list):
            return tuple(self.value(part, f"{path}.{place}") for place, part in enumerate(node))
        if not isinstance(node, dict):
            return node
        if set(node) == {"array"} and isinstance(node["array"], str) and node["array"] in self.arrays:
            return self.arrays[node["array"]]
        parts = dict(node)
        name, parts = as_now(parts.pop("class", None), parts)
        values = {field: self.value(part, f"{path}.{field}") for field, part in parts.items()}
        if name in BUILDERS and isinstance(name, str):
            return _built(name, values, path)
        cls = CLASSES.get(name) if isinstance(name, str) else None
        if cls is None:
            raise ModelFormatError(f"{path} is a {str(name)[:80]!r}, and known are {', '.join(sorted(CLASSES))}")
        for (owner, field, earlier), present in REPLACED.items():
            if name == owner and parts.get(field) == earlier:
                values[field] = present
        fields = fields_of(cls)
        check_stored(f"{path} ({name})", values, fields, self.sizes)
        if self.like is not None:
            values = {field: self._placed(part, fields[field]) for field, part in values.items()}
        return _made(cls, values)

    def _placed(self, value: Any, field: Field) -> Any:
        """Return an array of an object, or prepared rows, where the model computes."""
        if isinstance(value, PreparedRows):
            return value.moved(self.like)
        stays = np.ndarray in (field.hint, *get_args(field.hint))  # on the host, wherever the model computes
        if not is_numpy(value) or not field.shape or stays:
            return value
        if id(value) not in self._moved:
            self._moved[id(value)] = move(value, self.like)
        return self._moved[id(value)]


def as_now(name: Any, parts: dict[str, Node]) -> tuple[Any, dict[str, Node]]:
    """Return the name that a class or an estimator has now, and its fields or parameters that this version has."""
    name, renamed = FORMER.get(name, (name, {})) if isinstance(name, str) else (name, {})
    named = ((renamed.get(field, field), part) for field, part in parts.items())
    return name, {field: part for field, part in named if field is not None}


def _made(cls: Any, values: dict[str, Any]) -> Any:
    """Return the object of checked fields; a pre-image that needs the fitted space waits for it."""
    if issubclass(cls, PreparedRows) and "dtype" in values:
        values["dtype"] = np.dtype(values["dtype"])
    if cls in OF_A_SPACE:
        return partial(cls.of, **values)
    made = cls(**values)
    if cls is KernelPCAFit and isinstance(made.preimage, partial):
        return dataclasses.replace(made, preimage=made.preimage(space=made.space))
    return made


def _texts(items: Any) -> np.ndarray:
    if not all(isinstance(item, str) for item in items):
        raise TypeError("its entries are not texts")
    return np.array(items, dtype=object)


BUILDERS: dict[str, Callable[..., Any]] = {
    "float": lambda items: float(items),
    "texts": _texts,
    "flags": lambda items: np.asarray(items, dtype=bool),
    "list": lambda items: list(items),
    "dict": lambda items: dict(items),
    **{name: partial(csr_from_parts, name) for name in CSR},
}


def _built(name: str, values: dict[str, Any], path: str) -> Any:
    """Return a container or a CSR matrix of its parts."""
    try:
        return BUILDERS[name](**values)
    except (ValueError, TypeError, IndexError, OverflowError) as error:
        raise ModelFormatError(f"{path} is no {'CSR matrix' if name in CSR else name}: {error}") from error
