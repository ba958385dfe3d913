"""What the workers do with one panel of rows."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from gpukpca._formatting import pluralize
from gpukpca._typing import Array
from gpukpca.backend.device import device_context
from gpukpca.backend.namespace import is_foreign, is_numpy, move, overflow_allowed, to_host
from gpukpca.backend.rows import gather_rows
from gpukpca.gram.product import compute_tile
from gpukpca.kernels.base import Kernel
from gpukpca.kernels.prepared import PreparedRows

Warned = tuple[str, type[Warning]]

# What catches warnings is the same for all threads of a process.
_catching = threading.Lock()


def on_panel(panel: Array, function: Callable[..., Any], *arguments: Any) -> Any:
    """``function(panel, *arguments)``, on the host; arguments come to where the panel is."""
    with device_context(panel), overflow_allowed():
        return on_host(function(panel, *(beside(argument, panel) for argument in arguments)))


def prepared(kernel: Kernel, rows: Array, template: PreparedRows) -> tuple[PreparedRows, list[Warned]]:
    """Rows made ready, and what the kernel warned of: a warning on a worker would reach nobody."""
    with overflow_allowed(), _catching, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ready = kernel.prepare(rows, like=template)
    return ready, [(str(one.message), one.category) for one in caught if issubclass(one.category, UserWarning)]


def tell(by_panel: list[list[Warned]]) -> None:
    """Warn in this process of what kernels warned of on workers: each kind once, in the words for the first panel."""
    kinds = {kind: None for warned in by_panel for _, kind in warned}
    for kind in kinds:
        found = [(k, message) for k, warned in enumerate(by_panel) for message, which in warned if which is kind]
        k, message = found[0]
        others = f" Likewise in {pluralize(len(found) - 1, 'other panel')}." if len(found) > 1 else ""
        warnings.warn(f"panel {k} of the rows: {message}{others}", kind, stacklevel=3)


def beside(argument: Any, panel: Array) -> Any:
    """An argument where the panel is: rows and floating-point arrays; host integers index, and stay."""
    if isinstance(argument, PreparedRows):
        return argument.moved(panel)
    if is_numpy(argument) and argument.dtype.kind == "f":
        return move(argument, panel)
    return argument


def on_host(answer: Any) -> Any:
    """The arrays of an answer as host arrays."""
    if isinstance(answer, tuple | list):
        return type(answer)(on_host(part) for part in answer)
    return to_host(answer) if is_foreign(answer) else answer


def picked(panel: Array, chosen: np.ndarray) -> np.ndarray:
    """Some rows of a panel."""
    with device_context(panel):
        return to_host(gather_rows(panel, chosen))


def panel_diagonal(panel: Array, kernel: Kernel, template: PreparedRows) -> tuple[Array, list[Warned]]:
    """k(x, x) of the rows of a panel, and what the kernel warned of."""
    rows, warned = prepared(kernel, panel, template)
    return kernel.tile_diagonal(rows), warned


def panel_columns(panel: Array, kernel: Kernel, template: PreparedRows, chosen: Array) -> Array:
    """K between a panel and a few rows."""
    a, b = (prepared(kernel, rows, template)[0] for rows in (panel, chosen))
    return compute_tile(kernel, a, b, panel[:0, 0], False)
