"""Tall blocks whose rows stay on the workers: arrays of a small library, on which an iteration runs unchanged."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

import numpy as np

from gpukpca._typing import Array
from gpukpca.backend.namespace import to_host
from gpukpca.data.rows import gathered
from gpukpca.distributed.client import Cluster
from gpukpca.distributed.rows import ClusterRows


class RemoteBlock(ClusterRows):
    """A block (n, b) with its rows in the panels of other rows, as an array that follows the standard as far as needed.

    Functions of one panel at a time are collected, and run together in one task a panel where a sum, an extreme or a
    product is computed of the block; these come here.

    Parameters
    ----------
    device : ClusterRows
        The rows whose panels the block shares; blocks of one device are combined.
    like : array, shape (0, b)
    submit : callable
        ``submit(k)`` returns the future of panel k, at the first request.
    operation : (callable, arguments), optional
        What gives a panel in place of `submit`: a function, and arguments of which some are blocks.
    """

    __array_ufunc__ = None  # NumPy leaves operators to this class

    def __init__(
        self,
        device: ClusterRows,
        like: np.ndarray,
        submit: Callable[[int], Any] | None = None,
        operation: tuple[Callable[..., Array], tuple[Any, ...]] | None = None,
    ) -> None:
        self.cluster: Cluster = device.cluster
        self.device: ClusterRows = device
        self._describe(device.sizes, int(like.shape[1]), like.dtype)
        self.on_gpu: bool = False
        self._panel, self._operation = submit, operation

    @cached_property
    def panels(self) -> list[Any]:  # type: ignore[override]
        """The futures of all panels; what they are computed from is released."""
        submit = self._panel
        if submit is None:
            blocks: list[RemoteBlock] = []
            program = self._program(blocks)
            submit = blocks[0]._task(_evaluated, (*blocks[1:], program), stays=True)
        self._panel = self._operation = None
        return [submit(k) for k in range(len(self.sizes))]

    def _program(self, blocks: list[RemoteBlock]) -> Any:
        """Return the operations that give a panel; append the blocks they need to `blocks`."""
        if self._operation is None:
            if not any(block is self for block in blocks):
                blocks.append(self)
            return next(k for k, block in enumerate(blocks) if block is self)
        function, arguments = self._operation
        return function, [(None, a._program(blocks)) if isinstance(a, RemoteBlock) else (a,) for a in arguments]

    @classmethod
    def of_array(cls, A: Any, device: ClusterRows) -> RemoteBlock:  # type: ignore[override]
        """Return the rows of a host array."""
        return cls(device, A[:0], device.split(A).panels.__getitem__)

    def map(self, function: Callable[..., Array], *arguments: Any, width: int | None = None) -> RemoteBlock:
        """Return ``function(panel, *arguments)`` of all panels, computed with what follows."""
        like = function(self.like, *(a.like if isinstance(a, RemoteBlock) else a for a in arguments))
        return RemoteBlock(self.device, like, operation=(function, (self, *arguments)))

    def __array_namespace__(self, api_version: str | None = None) -> Any:
        return NAMESPACE

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(gathered(self), dtype)

    def __getitem__(self, key: tuple[slice, Any]) -> Any:
        """Return some columns as a block, or one column in this process."""
        rows, columns = key
        if rows != slice(None):
            raise IndexError("rows of a block on the workers are taken by `take`.")
        if isinstance(columns, slice):
            return self.map(operator.getitem, key)
        return self.joined(operator.getitem, key)

    def __matmul__(self, B: Array) -> RemoteBlock:
        """Return the product with a small array (b, c), where the rows are."""
        return self.map(operator.matmul, to_host(B))

    def __add__(self, other: Any) -> RemoteBlock:
        return self.map(operator.add, other)

    def __sub__(self, other: Any) -> RemoteBlock:
        return self.map(operator.sub, other)

    def __mul__(self, other: Any) -> RemoteBlock:
        return self.map(operator.mul, other)

    def __truediv__(self, other: Any) -> RemoteBlock:
        return self.map(operator.truediv, other)

    __radd__: Callable[[RemoteBlock, Any], RemoteBlock] = __add__
    __rmul__: Callable[[RemoteBlock, Any], RemoteBlock] = __mul__


# What merges the reductions of panels.
MERGES: dict[str, Callable[[Any, Any], Any]] = {"sum": operator.add, "max": np.maximum, "all": operator.and_}


class _Namespace:
    """The functions of blocks on the workers. Arrays without n rows are small, and those of NumPy in this process."""

    __name__ = "gpukpca.distributed.blocks"

    def __getattr__(self, name: str) -> Any:
        """Return an elementwise function or a reduction of blocks, that of NumPy for arrays in this process."""
        function = getattr(np, name)
        if not callable(function) or isinstance(function, type):
            return function

        def called(first: Any, *others: Any, **settings: Any) -> Any:
            settings.pop("device", None)
            if not isinstance(first, RemoteBlock):
                return function(first, *others, **settings)
            if name in MERGES:
                return first.fold(partial(function, **settings), merge=MERGES[name])
            return first.map(function, *others)

        return called

    def __array_namespace_info__(self) -> Any:
        return self

    def dtypes(self, *, device: Any = None, kind: Any = None) -> Any:
        """Return the types of NumPy."""
        return np.__array_namespace_info__().dtypes(kind=kind)

    @property
    def linalg(self) -> Any:
        """Return the functions of linear algebra: `qr`."""
        return self

    def asarray(self, A: Any, *, dtype: Any = None, device: Any = None, copy: bool | None = None) -> Any:
        """Return a host array with n rows as a block on the workers; any other in this process."""
        A = np.asarray(A, dtype)
        is_tall = device is not None and A.ndim == 2 and A.shape[0] == device.shape[0]
        return RemoteBlock.of_array(A, device) if is_tall else A

    def full(self, shape: tuple[int, ...], value: float, *, dtype: Any = None, device: Any = None) -> Any:
        return self.asarray(np.full(shape, value, dtype), device=device)

    def astype(self, A: Any, dtype: Any, *, copy: bool = True) -> Any:
        if not isinstance(A, RemoteBlock):
            return A.astype(dtype, copy=copy)
        return A if A.dtype == dtype and not copy else A.map(operator.methodcaller("astype", dtype))

    def concat(self, parts: list[Any], *, axis: int = 0) -> Any:
        if not isinstance(parts[0], RemoteBlock):
            return np.concatenate(parts, axis=axis)
        return parts[0].map(_side_by_side, *parts[1:])

    def qr(self, A: RemoteBlock, *, mode: str = "reduced") -> tuple[RemoteBlock, np.ndarray]:
        """Return Q, on the workers, and R, here, from QR factors of panels.

        Demmel, Grigori, Hoemmen & Langou, SIAM J. Sci. Comput. 34 (2012) A206 (TSQR).
        """
        pairs = ClusterRows.map(A, np.linalg.qr, width=A.shape[1])
        triangles = pairs.each(operator.itemgetter(1))
        Q, R = np.linalg.qr(np.concatenate(triangles))
        stops = np.cumsum([len(triangle) for triangle in triangles]).tolist()
        parts = [Q[stop - len(triangle) : stop] for stop, triangle in zip(stops, triangles, strict=True)]

        def rotated(k: int) -> Any:
            return A.cluster.submit(_rotated, pairs.panels[k], arguments=(parts[k],), name="orthonormal")

        return RemoteBlock(A.device, np.empty((0, Q.shape[1]), A.dtype), rotated), R


NAMESPACE = _Namespace()


# -- functions that run on the workers ---------------------------------------------------------------------------------


def _evaluated(*arguments: Any) -> Any:
    """Return the result of a program for (*panels, program); see `RemoteBlock._program`."""
    *panels, program = arguments

    def value(step: Any) -> Any:
        if isinstance(step, int):
            return panels[step]
        function, operands = step
        return function(*(value(step[1]) if len(step) == 2 else step[0] for step in operands))

    return value(program)


def _side_by_side(*parts: np.ndarray) -> np.ndarray:
    return np.concatenate(parts, axis=1)


def _rotated(factors: tuple[np.ndarray, np.ndarray], part: np.ndarray) -> Array:
    """Return the rows of Q in a panel: its own Q times its rows of the joint factor."""
    return factors[0] @ part
