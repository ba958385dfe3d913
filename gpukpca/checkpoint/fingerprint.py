"""Fingerprints of fits: named lines of text that must agree where one fit resumes from the checkpoint of another."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from gpukpca._formatting import printable
from gpukpca.backend import blocking
from gpukpca.backend.namespace import is_foreign, is_sparse, to_host
from gpukpca.backend.parallel import map_in_order, row_slices, worker_count
from gpukpca.backend.partitioned_rows import PartitionedRows
from gpukpca.backend.rows import take_rows

# Of the files; another number is another layout of them.
FORMAT = 2

Fingerprint = dict[str, str]


def difference(found: Mapping[str, Any], wanted: Fingerprint) -> str:
    """Return the first field in which two jobs differ, as text; empty where there is none."""
    for name, value in wanted.items():
        if name == "data" and name in found and found[name] != value:
            return "the data differ (their hashes do)"
        if found.get(name) != value:
            return printable(f"{name} was {str(found.get(name))[:200]} and is {value[:200]} now")
    return ""


def described(value: Any) -> str:
    """Return a parameter as text with all digits of its numbers, the same in every process."""
    if is_foreign(value) or isinstance(value, np.ndarray):
        return f"array {tuple(value.shape)} {digest_of(np.atleast_2d(to_host(value)))}"
    if isinstance(value, (np.bool_, np.number)):
        return repr(value.item())
    if isinstance(value, (list, tuple)):
        return f"({', '.join(map(described, value))})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {described(part)}' for key, part in sorted(value.items()))}}}"
    fields = fields_of(value)
    if fields is not None:
        return f"{type(value).__name__}({', '.join(f'{key}={described(part)}' for key, part in fields.items())})"
    if callable(value):
        return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', type(value).__name__)}"
    return repr(value)


def fields_of(value: Any) -> dict[str, Any] | None:
    """Return the fields of a dataclass, or the parameters of an object that has `get_params`; None for others."""
    if isinstance(value, type):
        return None
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return value.get_params(deep=False) if hasattr(value, "get_params") else None


def digest_of(X: Any, n_jobs: int | None = None) -> str:
    """Return a hash of the entries of X, by panels of rows and with threads; the same wherever X is.

    Rows on a cluster are hashed where they are, panel by panel, so that there the panels must agree as well.
    """
    if isinstance(X, PartitionedRows):
        return hashlib.sha256("".join(X.over_panels(digest_of)).encode()).hexdigest()[:32]
    parts = [X.data[:, None], X.indices[:, None], X.indptr[:, None]] if is_sparse(X) else [X]
    whole = hashlib.sha256()
    for part in parts:
        for piece in _digests(part, n_jobs):
            whole.update(piece)
    return whole.hexdigest()[:32]


def _digests(part: Any, n_jobs: int | None) -> list[bytes]:
    """Return the hashes of the panels of an array of two dimensions, in order."""
    width = max(1, int(part.shape[1])) * 8
    panels = row_slices(int(part.shape[0]), max(1, blocking.HASHED_BYTES // width))

    def work(panel: tuple[int, int]) -> bytes:
        return hashlib.sha256(to_host(take_rows(part, *panel)).tobytes()).digest()

    return map_in_order(work, panels, worker_count(part, n_jobs))
