"""A fit from the command line on the cluster of a Dask scheduler."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gpukpca.distributed.connection import connected

# How plans begin the note that names the cluster.
NOTE = "cluster: "


@contextmanager
def shared_out(model: Any, address: str | None) -> Iterator[None]:
    """Inside, the estimator's fits and plans go to the workers of the scheduler at `address`, where there is one."""
    if address is None:
        yield
        return
    with _logs_kept_out(), connected(address) as client:
        model.set_params(client=client)
        try:
            yield
        finally:
            model.set_params(client=None)


@contextmanager
def _logs_kept_out() -> Iterator[None]:
    """What Dask logs of a lost cluster, tracebacks among it: the program says it in one line."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def labeled(notes: tuple[str, ...]) -> list[tuple[str, str]]:
    """The notes of a plan with their labels: «cluster» of the one that names it."""
    return [("cluster", note.removeprefix(NOTE)) if note.startswith(NOTE) else ("note", note) for note in notes]
