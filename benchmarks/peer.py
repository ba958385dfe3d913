"""One contestant: how it is built, where it computes, and what brings it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from benchmarks.cases import KERNELS, Case
from benchmarks.places import Host

HOST = Host()


def is_ours(contestant: str) -> bool:
    """Return whether a contestant is of the library that the benchmarks are for."""
    return contestant.startswith(("gpukpca", "pass"))


@dataclass(frozen=True)
class Peer:
    """One contestant."""

    # Case -> model with ``fit_transform(X)``, and ``transform`` where a case has new points; of principal axes ``fit``,
    # `components_` and `explained_variance_`. In the cases about single products: case -> function of X that returns
    # an operator for ``@``.
    build: Callable[[Case], Any]
    place: Host = HOST
    kernels: tuple[str, ...] = KERNELS
    largest_n: int = 10**9  # left out above: too slow, or more memory than usual machines have
    largest_d: int = 10**9
    certified: bool = False  # its error is asserted; the error of others is only recorded
    bounded: bool = False  # an approximation whose own bounds are asserted
    slow: bool = False  # of cubic cost: warmed up with few rows
    joins: tuple[str, ...] = ()  # beginnings of the names of cases that it joins without being named there
    package: str = ""  # the distribution that it needs; "" where the package itself needs it
    install: str = ""  # the command that brings it, where pip does not by the name of the package

    @property
    def is_promised(self) -> bool:
        """Return whether a failure fails the row."""
        return self.certified or self.bounded

    def can_play(self, case: Case) -> bool:
        """Return whether it has the kernel and can manage the size."""
        return case.kernel in self.kernels and case.n <= self.largest_n and case.d <= self.largest_d

    def why_absent(self) -> str | None:
        """Return a sentence with the command that brings a missing package, else None."""
        if self.package:
            try:
                version(self.package)
            except PackageNotFoundError:
                return f"{self.package} is not installed: {self.install or f'pip install {self.package}'}"
        return None
