"""Parameter objects: the arguments of a constructor by name, their rules, text and equality."""

from __future__ import annotations

import inspect
import math
from functools import cache
from numbers import Number
from typing import Any, ClassVar, Self

import numpy as np

from gpukpca._rules import Rules, check_attributes, closest
from gpukpca.backend.namespace import is_foreign, is_numpy, to_host
from gpukpca.exceptions import InvalidParameterError

# Equal values of these types have equal hashes.
SCALARS = (Number, np.bool_, str, type(None))
# Entries of an array or a sequence that the text of an object shows.
SHOWN = 8


class ParameterObject:
    """An object that holds the arguments of its constructor as they were given, under their own names.

    `get_params` and `set_params` follow scikit-learn's rules, nested names such as ``k1__gamma`` included, so objects
    can be cloned, pickled, printed and searched over. A subclass states the ``rules`` of its parameters in its class
    statement, in addition to those of its bases: ``class RBF(Kernel, rules=(("gamma", NOT_NEGATIVE),))``.
    """

    _rules: ClassVar[Rules] = ()

    def __init_subclass__(cls, *, rules: Rules = (), **more: Any) -> None:
        super().__init_subclass__(**more)
        if "rules" in vars(cls):
            raise TypeError(f"{cls.__name__}.rules is not read: write class {cls.__name__}(..., rules=...) instead.")
        cls._rules = (*cls._rules, *rules)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the constructor's arguments by name; with `deep` also those of objects inside, as ``k1__gamma``."""
        parameters: dict[str, Any] = {}
        for name in parameter_names(type(self)):
            parameters[name] = value = getattr(self, name)
            if deep and isinstance(value, ParameterObject):
                parameters.update({f"{name}__{key}": inner for key, inner in value.get_params().items()})
        return parameters

    def set_params(self, **parameters: Any) -> Self:
        """Set constructor arguments by name.

        Parameters
        ----------
        **parameters
            Values by name, also by nested names such as ``k1__gamma``.

        Returns
        -------
        ParameterObject
            The object itself.

        Raises
        ------
        InvalidParameterError
            No such parameter, or an option of a parameter that is no object. Values are checked by the next fit.
        """
        names = parameter_names(type(self))
        for key, value in parameters.items():
            name, _, inner = key.partition("__")
            if name not in names:
                raise InvalidParameterError(
                    f"{type(self).__name__} has no parameter {name!r}; it has {names}.{closest(name, names)}"
                )
            if inner:
                check_has_options(type(self).__name__, name, getattr(self, name), key)
                getattr(self, name).set_params(**{inner: value})
            else:
                self._assign(name, value)
        return self

    def _assign(self, name: str, value: Any) -> None:
        setattr(self, name, value)

    def _compared(self) -> dict[str, Any]:
        """Return the parameters in which equal objects agree."""
        return self.get_params(deep=False)

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={_text_of(value)}" for name, value in self.get_params(deep=False).items())
        return f"{type(self).__name__}({arguments})"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and same_value(self._compared(), other._compared())

    def __hash__(self) -> int:
        """Return the same number for equal objects, by those parameters that are numbers, text or objects."""
        named = {k: v for k, v in self._compared().items() if isinstance(v, (*SCALARS, ParameterObject))}
        return hash((type(self), frozenset(named.items())))


def parameter_names(kind: type[ParameterObject]) -> list[str]:
    """Return the names of the arguments of a constructor."""
    return list(_arguments_of(kind.__init__))


def check_values(owner: ParameterObject) -> None:
    """Raise `InvalidParameterError` for parameters out of range."""
    check_attributes(owner, owner._rules)


def check_has_options(owner: str, name: str, value: Any, option: str, example: str = "") -> None:
    """Raise `InvalidParameterError` where a parameter of an owner, given an option, is no object that has options."""
    if not hasattr(value, "set_params") or isinstance(value, type):
        such = f", such as {example}" if example else ""
        raise InvalidParameterError(
            f"{owner}: {option} is an option of an object, and {name}={value!r} is not an object with options; set "
            f"{name} to one first{such}."
        )


@cache
def _arguments_of(init: Any) -> tuple[str, ...]:
    return () if init is object.__init__ else tuple(inspect.signature(init).parameters)[1:]


def _text_of(value: Any) -> str:
    """Return a parameter as text; a long sequence, or a large array or data frame, is «(...)»."""
    shape = (len(value),) if isinstance(value, (list, tuple)) else getattr(value, "shape", None)
    return "(...)" if isinstance(shape, tuple) and math.prod(shape) > SHOWN else repr(value)


def same_value(a: Any, b: Any) -> bool:
    """Return whether two parameters are equal: scalars by value, arrays entry by entry, containers part by part.

    Only scalars are equal to scalars. An object that cannot be compared is equal to itself only.
    """
    if a is b:
        return True
    if isinstance(a, SCALARS) or isinstance(b, SCALARS):
        return isinstance(a, SCALARS) and isinstance(b, SCALARS) and bool(a == b)
    if _is_array(a) or _is_array(b):
        return _is_array(a) and _is_array(b) and np.array_equal(to_host(a), to_host(b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same_value(value, b[key]) for key, value in a.items())
    if isinstance(a, (list, tuple)) and type(a) is type(b):
        return len(a) == len(b) and all(map(same_value, a, b))
    try:
        return bool(a == b)
    except (TypeError, ValueError):
        return False


def _is_array(value: Any) -> bool:
    return is_numpy(value) or is_foreign(value)
