"""Between values and the flat header with its arrays: every value has a path of names joined by dots.

An object is its fields, each under the path of the object, beside the key «class». An array that is there already, bit
for bit, and an object that several share are named and not written again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any

import numpy as np

from gpukpca._archive import DTYPES, LARGEST_INTEGER, NAME, Arrays, Header
from gpukpca._typing import Array
from gpukpca.backend.csr import CSR, csr_from_parts
from gpukpca.backend.namespace import is_foreign, is_numpy, is_sparse, to_host
from gpukpca.exceptions import InvalidParameterError, ModelFormatError
from gpukpca.kernels import Kernel
from gpukpca.persistence.kinds import Sizes, check_fields
from gpukpca.persistence.table import BY_NAME, entry_for

# Keys that are no name of a field: Python's own words are none.
CLASS, SAME_AS = "class", "as"


# -- from values to the file -------------------------------------------------------------------------------------------


class Flattened:
    """Header and arrays of the values that were put in.

    Attributes
    ----------
    header, arrays : dict
    """

    def __init__(self) -> None:
        self.header: Header = {}
        self.arrays: Arrays = {}
        self._alike: dict[Any, list[str]] = {}  # names of arrays that begin with the same entries
        self._objects: dict[int, tuple[str, Any]] = {}  # held, so that no other object gets the same number

    def put(self, path: str, value: Any) -> None:
        """Write a value under a path.

        Raises
        ------
        InvalidParameterError
            The value is no data, or of a class that is not in the table.
        """
        if not NAME.fullmatch(path):
            raise InvalidParameterError(f"{path[:80]!r} is nested too deeply for a model file, or no name.")
        value = tuple(value) if isinstance(value, range) else value
        if _is_scalar(value) or (isinstance(value, tuple) and all(map(_is_scalar, value))):
            self.header[path] = (
                [_plain(path, part) for part in value] if isinstance(value, tuple) else _plain(path, value)
            )
        elif isinstance(value, Real):
            self._put_array(path, np.asarray(value, dtype=np.float64))  # a number that JSON has no word for
        elif is_numpy(value) and value.dtype == object:
            self._put_object(path, "names", {"items": tuple(value.tolist())})
        elif is_numpy(value) or is_foreign(value):
            self._put_array(path, to_host(value))
        elif is_sparse(value):
            fields = {"data": value.data, "indices": value.indices, "indptr": value.indptr, "shape": value.shape}
            self._put_object(path, type(value).__name__, fields)
        elif isinstance(value, tuple):
            self._put_object(path, "tuple", {str(place): part for place, part in enumerate(value)})
        elif isinstance(value, list):
            self._put_object(path, "list", {"items": tuple(value)})
        elif isinstance(value, dict):
            self._put_object(path, "dict", {"keys": tuple(value), "values": tuple(value.values())})
        elif id(value) in self._objects:
            self.header[f"{path}.{SAME_AS}"] = self._objects[id(value)][0]
        elif (entry := entry_for(value)) is not None:
            self._put_object(path, type(value).__name__, entry.taken(value))
            if entry.shared:
                self._objects[id(value)] = path, value
        else:
            raise InvalidParameterError(_refusal(path, value))

    def _put_object(self, path: str, name: str, fields: dict[str, Any]) -> None:
        self.header[f"{path}.{CLASS}"] = name
        for field, value in fields.items():
            self.put(f"{path}.{field}", value)

    def _put_array(self, path: str, array: np.ndarray) -> None:
        array = array.astype(array.dtype.newbyteorder("<"), copy=False)
        if array.dtype.str not in DTYPES:
            raise InvalidParameterError(f"{path}: arrays of {array.dtype} have no place in a model file.")
        alike = self._alike.setdefault((array.shape, array.flat[:8].tobytes()), [])
        twin = next((name for name in alike if _identical(array, self.arrays[name])), None)
        if twin is None:
            self.arrays[path] = array
            alike.append(path)
        else:
            self.header[f"{path}.{SAME_AS}"] = twin


def _is_scalar(value: Any) -> bool:
    """Return whether JSON has a word for a value."""
    return (
        value is None
        or isinstance(value, (str, bool, np.bool_, Integral))
        or (isinstance(value, Real) and math.isfinite(value))
    )


def _plain(path: str, value: Any) -> Any:
    """A scalar as Python's own."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if not isinstance(value, Integral):
        return float(value)
    if abs(int(value)) > LARGEST_INTEGER:
        raise InvalidParameterError(f"{path}={value!r} is an integer beyond 64 bits.")
    return int(value)


def _identical(a: np.ndarray, b: np.ndarray) -> bool:
    """Return whether two arrays are the same to the last bit, in memory too."""
    if a is b:
        return True
    alike = a.dtype == b.dtype and a.shape == b.shape and a.strides == b.strides
    return alike and a.size > 0 and np.array_equal(a.view(f"i{a.itemsize}"), b.view(f"i{b.itemsize}"))


def _refusal(path: str, value: Any) -> str:
    """Why a value cannot be written, and what to do."""
    name = f"{path} is a {type(value).__name__}, "
    if callable(value) or isinstance(value, Kernel):
        return (
            f"{name}which is code, and model files hold data only. Use kernels of gpukpca.kernels and their algebra, "
            "or pickle the model for readers who trust you."
        )
    return f"{name}which has no place in a model file. It holds numbers, text, arrays, and objects of {_known()}."


def _known() -> str:
    return ", ".join(sorted(BY_NAME))


# -- and back ----------------------------------------------------------------------------------------------------------


class Rebuilt:
    """The values that header and arrays tell.

    Parameters
    ----------
    header, arrays : dict
    sizes : dict
        What letters of shapes mean so far.
    """

    def __init__(self, header: Header, arrays: Arrays, sizes: Sizes) -> None:
        self.arrays, self.sizes = arrays, sizes
        self.tree = _tree({**header, **arrays})
        self._objects: dict[str, Any] = {}
        self._moved: dict[int, Array] = {}
        if len(set(header) & set(arrays)):
            raise ModelFormatError("a name stands for a value and for an array")

    def value(self, node: Any, path: str, place: Callable[[Array], Array] | None = None) -> Any:
        """The value of a node of the tree; the arrays inside of objects at `place`, where one is given."""
        if isinstance(node, list):
            return tuple(node)
        if is_numpy(node) and node.ndim == 0:
            return float(node)
        if not isinstance(node, dict):
            return node
        if SAME_AS in node:
            return self._same(node, path)
        name = node.get(CLASS)
        fields = {key: self.value(part, f"{path}.{key}", place) for key, part in node.items() if key != CLASS}
        if name in CSR:
            return _csr(name, fields, path)
        if name in PLAIN:
            return _plain_container(name, fields, path)
        entry = BY_NAME.get(name) if isinstance(name, str) else None
        if entry is None:
            raise ModelFormatError(f"{path} is a {str(name)[:80]!r}, which is none of {_known()}")
        fields = {entry.former.get(key, key): part for key, part in fields.items()}
        check_fields(f"{path} ({name})", fields, entry.kinds, self.sizes)
        if place is not None:
            moved = {key for key, part in fields.items() if is_numpy(part) and key not in entry.host}
            fields = {key: self._at(place, part) if key in moved else part for key, part in fields.items()}
        made = entry.made(fields)
        if entry.shared:
            self._objects[path] = made
        return made

    def _same(self, node: dict[str, Any], path: str) -> Any:
        """The array or the object, made before, that is named."""
        other = node[SAME_AS]
        if len(node) == 1 and isinstance(other, str):
            if other in self.arrays:
                return self.value(self.arrays[other], path)
            if other in self._objects:
                return self._objects[other]
        raise ModelFormatError(f"{path} is said to be the same as {str(other)[:80]!r}, which is nothing that is here")

    def _at(self, place: Callable[[Array], Array], array: np.ndarray) -> Array:
        """The array there; what several objects have is brought once."""
        if id(array) not in self._moved:
            self._moved[id(array)] = place(array)
        return self._moved[id(array)]


def _tree(flat: dict[str, Any]) -> dict[str, Any]:
    """Nested dictionaries from paths."""
    tree: dict[str, Any] = {}
    for path, value in flat.items():
        *folders, last = path.split(".")
        node = tree
        for folder in folders:
            node = node.setdefault(folder, {})
            if not isinstance(node, dict):
                raise ModelFormatError(f"{path} lies inside of what is a value")
        if last in node:
            raise ModelFormatError(f"{path} is a value, and others lie inside of it")
        node[last] = value
    return tree


PARTS = {"names": ("items",), "list": ("items",), "dict": ("keys", "values")}
PLAIN = ("tuple", *PARTS)


def _plain_container(name: str, fields: dict[str, Any], path: str) -> Any:
    """A list, a dictionary, a tuple of more than scalars, or an array of text."""
    if name == "tuple":
        wanted = [str(place) for place in range(len(fields))]
        if set(wanted) != set(fields):
            raise ModelFormatError(f"{path} is a tuple with the parts {', '.join(fields)[:80]}")
        return tuple(fields[place] for place in wanted)
    if tuple(sorted(fields)) != PARTS[name] or not all(isinstance(part, tuple) for part in fields.values()):
        raise ModelFormatError(f"{path} is no {name}")
    if name == "dict":
        if len(fields["keys"]) != len(fields["values"]):
            raise ModelFormatError(f"{path} has {len(fields['keys'])} keys and {len(fields['values'])} values")
        return dict(zip(fields["keys"], fields["values"], strict=True))
    if name == "list":
        return list(fields["items"])
    array = np.empty(len(fields["items"]), dtype=object)
    array[:] = fields["items"]
    return array


def _csr(name: str, fields: dict[str, Any], path: str) -> Any:
    """Return a CSR matrix of checked parts."""
    if set(fields) != {"data", "indices", "indptr", "shape"}:
        raise ModelFormatError(f"{path} is no CSR matrix: it has {', '.join(sorted(fields))[:80]}")
    try:
        return csr_from_parts(name, **fields)
    except (ValueError, TypeError, IndexError, OverflowError) as error:
        raise ModelFormatError(f"{path} is no CSR matrix: {error}") from error
