"""Names and parameters that left the public interface: they work until 0.24, with a FutureWarning."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from inspect import signature
from typing import Any, TypeVar

from gpukpca.exceptions import InvalidParameterError, warn_again

C = TypeVar("C", bound=type)

RETURNED = "{} returns these objects, and needs no import of their class"
RECEIVED = "a {} of yours receives these objects, and needs no import of their class"

# room -> name -> module of the object, and what to do instead; the object may have another name now.
FORMER = {
    "backend": {
        "from_host": ("backend.namespace", "use asarray of the library, with dtype and device of another array"),
        "namespace_of": ("backend.namespace", "use array_api_compat.array_namespace"),
        "synchronize": ("backend.device", "use the function of the library of the array"),
    },
    "datasets": {"Foods": ("datasets:_Foods", RETURNED.format("uk_foods"))},
    "decomposition": {
        "EigenpairAudit": ("algorithms.audit:Residuals", "use Residuals"),
        "load_with_notes": ("decomposition._model_files", "use load(path).notes_"),
        "IntrinsicDimension": ("decomposition.diagnostics", RETURNED.format("intrinsic_dimension")),
        "PreimageInfo": ("algorithms.preimage.result", RETURNED.format("return_info=True")),
    },
    "eigen": {
        "LowRank": ("eigen.low_rank", "for a matrix F Fᵀ fit gpukpca.PCA to F"),
        "PairRequest": ("eigen.request", f"give top_eigh a number or a share; {RECEIVED.format('solver')}"),
        "landmark_cholesky": ("eigen.landmarks", "use pivoted_cholesky(op, landmarks=...)"),
        "PivotedCholesky": ("eigen.pivoted_factor", RETURNED.format("pivoted_cholesky")),
    },
    "gram": {
        "BasePointGram": ("gram.base_point", "use gpukpca.gram.CenteredGram, which is the same for every base point"),
        "LowRankGram": ("gram.low_rank", "for a matrix F Fᵀ fit gpukpca.PCA to F"),
        "StorageInput": ("gram.storage", RECEIVED.format("storage")),
    },
    "kernels": {
        "Exp": ("kernels.algebra", "write exp(k)"),
        "Modulated": ("kernels.algebra", "write modulate(k, g)"),
        "Power": ("kernels.algebra", "write k ** exponent"),
        "Product": ("kernels.algebra", "write k1 * k2"),
        "Scale": ("kernels.algebra", "write factor * k"),
        "Sum": ("kernels.algebra", "write k1 + k2"),
    },
    "model_selection": {"RankSelection": ("model_selection.n_components", RETURNED.format("return_report=True"))},
}


def keep_former_names(module: str) -> None:
    """Let a module of the package give the names that left it; type checkers and `dir` do not see them."""
    room = module.removeprefix("gpukpca.")

    def former(name: str) -> Any:
        if name not in FORMER[room]:
            raise AttributeError(f"module {module!r} has no attribute {name!r}", name=name, obj=sys.modules[module])
        home, remedy = FORMER[room][name]
        path, _, own = home.partition(":")
        # "from room import name" asks twice: by this function of importlib, whether there is such a name, and then.
        if sys._getframe(1).f_code.co_name != "_handle_fromlist":
            warn_again(FutureWarning(f"{module}.{name} will be removed in the next minor version: {remedy}."))
        return getattr(import_module(f"gpukpca.{path}"), own or name)

    vars(sys.modules[module])["__getattr__"] = former


def former_parameters(**names: str) -> Callable[[C], C]:
    """Return the decorator of a class that takes parameters by former names too, and has them as attributes.

    Its signature, and with it `get_params` and `clone`, are those of the new names.
    """

    def present(name: str) -> str:
        text = f"the parameter {name} is called {names[name]} now, and by no other name in the next minor version."
        warn_again(FutureWarning(text))
        return names[name]

    def taking(method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def renamed(self: Any, *args: Any, **parameters: Any) -> Any:
            found = {}
            for name, value in parameters.items():
                head, mark, rest = name.partition("__")
                if head in names and head not in signature(type(self)).parameters:  # a subclass may have its own
                    if f"{names[head]}{mark}{rest}" in parameters:
                        text = f"{head} and {names[head]} are one parameter, and both are given: leave out {head}."
                        raise InvalidParameterError(text)
                    name = f"{present(head)}{mark}{rest}"
                found[name] = value
            return method(self, *args, **found)

        return renamed

    def attribute(name: str) -> property:
        def read(self: Any) -> Any:
            return getattr(self, present(name))

        def write(self: Any, value: Any) -> None:
            setattr(self, present(name), value)

        return property(read, write, doc=f"Former name of `{names[name]}`.")

    def made(cls: C) -> C:
        for name in ("__init__", "set_params"):
            if hasattr(cls, name):
                setattr(cls, name, taking(getattr(cls, name)))
        for name in names:
            setattr(cls, name, attribute(name))
        restore = getattr(cls, "__setstate__", None)

        def __setstate__(self: Any, state: dict[str, Any]) -> None:
            state = {names.get(name, name): value for name, value in state.items()}
            if restore is None:
                self.__dict__.update(state)
            else:
                restore(self, state)

        setattr(cls, "__setstate__", __setstate__)  # noqa: B010
        return cls

    return made
