"""One thread for tests on small matrices: a second thread of BLAS would only wait for the first."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from threadpoolctl import threadpool_limits


@contextmanager
def one_thread() -> Iterator[None]:
    """BLAS and OpenMP held to one thread; torch is loaded first, so that its OpenMP is held too."""
    with suppress(ImportError):
        import torch  # noqa: F401
    with threadpool_limits(1):
        yield
