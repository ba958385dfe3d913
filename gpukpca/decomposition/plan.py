"""What a fit will do and what memory it takes: decided before anything large is allocated, and printable."""

from __future__ import annotations

import re
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from gpukpca._typing import Array
from gpukpca.backend.device import free_bytes
from gpukpca.backend.limits import SHARE_OF_FREE
from gpukpca.decomposition.progress import format_seconds
from gpukpca.eigen import BlockKrylov, Dense, LowRank, Nystrom
from gpukpca.exceptions import InvalidParameterError
from gpukpca.gram.residence import GramStorage

UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
UNITS |= {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
NO_CHECKPOINT = "no checkpoint is written: this solution has no passes between which it could go on"


@dataclass(frozen=True)
class Plan:
    """What a fit does; ``print(plan)`` says it in words.

    Attributes
    ----------
    n_samples, n_features, n_components : int
    dtype, device, kernel : str
    solver : Dense, BlockKrylov, LowRank, Nystrom or another solver object
    solver_reason : str
    residence : Residence
    predicted_bytes, available_bytes : int
        Peak of what the fit allocates beside the data passed in, and what it may.
    start_landmarks : int
        Rows whose own components the iteration starts from; 0: from random vectors.
    bytes_read : int
        Read from the file of X in every pass; 0 where its rows are held in memory.
    preimage_landmarks : int
        Scores that the ridge pre-image is approximated from; 0: all of them, or another method.
    notes : tuple of str
        Why a smaller path was taken, if one was.
    estimated_seconds : float or None
        The time of the fit, from counts of operations and rates of a core or a card, to a factor of a few. None where
        it is not known: on a cluster, and for a function of two rows or a solver of your own.
    """

    n_samples: int
    n_features: int
    n_components: int
    dtype: str
    device: str
    kernel: str
    solver: Any
    solver_reason: str
    residence: GramStorage
    predicted_bytes: int
    available_bytes: int
    start_landmarks: int = 0
    bytes_read: int = 0
    preimage_landmarks: int = 0
    notes: tuple[str, ...] = ()
    estimated_seconds: float | None = None

    def __repr__(self) -> str:
        lines = [
            f"data      {self.n_samples} x {self.n_features}, {self.dtype}, on {self.device}",
            f"kernel    {self.kernel}",
            f"solver    {solver_name(self.solver)} for {self.n_components} components ({self.solver_reason})",
            f"K         {self.residence.describe()}",
            f"memory    {format_bytes(self.predicted_bytes)} predicted, {format_bytes(self.available_bytes)} allowed",
            *time_line(self.estimated_seconds),
            f"workers   {self.residence.workers}",
        ]
        if isinstance(self.solver, BlockKrylov):
            n, p, on_gpu = self.n_samples, self.n_components, self.device.startswith("cuda")
            width, most = self.solver.width(n, p, on_gpu), self.solver.basis_columns(n, p, on_gpu)
            lines.append(f"block     {width} columns a pass, at most {most} kept")
        if self.start_landmarks:
            lines.append(f"start     components of {self.start_landmarks} random rows")
        if self.bytes_read:
            lines.append(f"reading   {format_bytes(self.bytes_read)} of X from its file in every pass over K")
        return "\n".join(lines + [f"note      {note}" for note in self.notes])


def solver_name(solver: Any) -> str:
    """«dense», «block Krylov» or the class of a solver object."""
    if isinstance(solver, Nystrom):
        return f"Nyström ({solver.landmarks} landmarks, rank {solver.rank})"
    return {Dense: "dense", BlockKrylov: "block Krylov", LowRank: "low rank"}.get(type(solver), type(solver).__name__)


def memory_limit(limit: Any, like: Array) -> int:
    """Bytes that a fit may allocate: a number, «4GiB», or None for most of what is free."""
    if limit is None:
        return int(SHARE_OF_FREE * free_bytes(like))
    return parsed_bytes(limit)


def time_line(seconds: float | None) -> list[str]:
    """Return the line of a plan about its time, if that is known."""
    if seconds is None:
        return []
    return [f"time      {f'about {format_seconds(seconds)}' if seconds >= 1 else 'less than 1 s'}, estimated"]


def parsed_bytes(size: Any) -> int:
    """Bytes from an integer or a string such as "4GiB", "500 MB", "2g"."""
    if isinstance(size, str):
        match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([a-zA-Z]*)\s*", size)
        if match and match.group(2).lower() in UNITS:
            size = int(float(match.group(1)) * UNITS[match.group(2).lower()])
    if isinstance(size, float) and size.is_integer():
        size = int(size)
    if isinstance(size, bool) or not isinstance(size, Integral) or size <= 0:
        raise InvalidParameterError(
            f"memory_limit={size!r} is not allowed; give None, a number of bytes, or a string such as '4GiB'."
        )
    return int(size)


def format_bytes(size: int) -> str:
    """«1.4 GiB»."""
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"
