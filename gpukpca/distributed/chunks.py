"""Rows as the chunks of a Dask array: a task loads a chunk, computes, and drops it; results are merged as a tree."""

from __future__ import annotations

import operator
import pickle
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property, partial
from typing import Any

import numpy as np

from gpukpca._typing import Array
from gpukpca.backend import blocking
from gpukpca.backend.namespace import is_numpy, is_sparse
from gpukpca.backend.parallel import row_slices
from gpukpca.data.batches import slice_of
from gpukpca.data.finite import FINITE, advice_for, refuse_entries
from gpukpca.data.gate import check_container
from gpukpca.data.rows import Merge, itself, sampling_step
from gpukpca.data.slicing import gather_rows
from gpukpca.distributed.client import Cluster
from gpukpca.distributed.contents import ChunkFacts, check_chunk, checked_width, chunk_facts
from gpukpca.distributed.lazy import whole_rows
from gpukpca.distributed.pairs import warn_of_panels
from gpukpca.distributed.rows import (
    JOINED,
    ClusterRows,
    as_panel,
    merge_results,
    merged_in_tree,
    on_panel,
    panels_for,
    short_name,
)

# From a chunk and the shared arguments to a result.
OfChunk = Callable[[Any, tuple[Any, ...]], Any]

# Share of the memory of the workers up to which chunks stay there between passes; beyond it every pass loads them.
SHARE_HELD = 0.2
# Chunks whose rows are a sample of all.
CHUNKS_SAMPLED = 4
# Chunks whose tasks are submitted together, and most reports of a pass. The sum of each such set stays on a worker
# until those of its neighbors are there.
SUBMITTED, REPORTS = 64, 16
# Nodes of the graph that one chunk alone needs, up to which they run inside of its task.
FUSED_NODES = 16
# Times that a task is tried again after an error, as of a file that could not be read, unless `dask.annotate` says so.
RETRIES = 2
# What `dask.annotate` says of the layers of a Dask array, with the value for several layers.
ANNOTATIONS: dict[str, Callable[[list[Any]], Any]] = {
    "retries": max,
    "priority": max,
    "resources": lambda values: {name: amount for value in values for name, amount in value.items()},
    "workers": lambda values: values[-1],
    "allow_other_workers": all,
}


class ChunkRows(ClusterRows):
    """The rows of a Dask array, whose panels are its chunks without the empty ones.

    Chunks that fit into a share of the memory of the workers stay there between passes. Others are loaded by the tasks
    of `fold` and `each`, and dropped. Panels on request stay as long as these rows.

    Parameters
    ----------
    X : dask.array.Array, shape (n, d)
        Chunks may be of unknown or unequal length, cut the columns, be empty or be of several dtypes: float32 where all
        are, float64 else.
    cluster : Cluster
    cuda : bool
        Whether panels move to the GPUs of their workers; they do where a chunk is on one.
    purpose : str
        What computes with the rows, for errors about missing values.

    Attributes
    ----------
    is_held : bool
        Whether the chunks stay on the workers.

    Raises
    ------
    ValueError, TypeError
        Chunks are no table of finite numbers. A Dask array that says enough, and whose chunks do not stay, is not read
        for this: every task checks its chunk.

    Notes
    -----
    A pass has a task for every chunk, and one for every `JOINED` results. What only one chunk needs runs inside of its
    task.
    """

    def __init__(self, X: Any, cluster: Cluster, *, cuda: bool = False, purpose: str = "") -> None:
        X = whole_rows(X)
        self.cluster = cluster
        self._settings = settings = {"retries": RETRIES} | annotations_of(X)
        self.is_held: bool = X.nbytes <= SHARE_HELD * sum(cluster.memory())  # not where lengths are unknown
        self._graph = ChunkGraph(cluster.persist(X, settings) if self.is_held else X)
        check_container(X._meta)
        is_known = is_numpy(X._meta) or is_sparse(X._meta)
        says_all = X.dtype in (np.float32, np.float64) and is_known and not np.isnan(X.shape).any()
        self._is_said: bool = says_all and all(X.shape) and not cuda and not self.is_held
        self._advice = advice_for(purpose)
        if self._is_said:
            facts = [ChunkFacts((size, X.shape[1]), str(X.dtype)) for size in X.chunks[0]]
        else:
            facts = self._summed("facts", {k: partial(chunk_facts, k=k) for k in range(len(self._graph.keys))})
        d = checked_width(facts)
        self._kept = [k for k, fact in enumerate(facts) if fact.shape[0]]
        kept = [facts[k] for k in self._kept]
        if cuda := cuda or any(fact.on_gpu for fact in facts):
            self.cluster.check_gpus()
        dtype = "float32" if all(fact.dtype == "float32" for fact in kept) else "float64"
        self._describe([fact.shape[0] for fact in kept], d, np.dtype(dtype))
        self._as_panel = dtype, cuda
        self.chunks: list[int] = [fact.shape[0] for fact in facts]
        self.on_gpu: bool = cuda
        found = [(fact.shape[0], fact.nan, fact.infinity) for fact in facts]
        refuse_entries(found, dtype, FINITE, "Input X", of_missing=self._advice)
        warn_of_panels([fact.warned for fact in facts])

    def sample(self) -> Array:
        """Return rows of some chunks, as many as `Rows.sample`."""
        few = np.unique(np.linspace(0, len(self._kept) - 1, CHUNKS_SAMPLED).astype(np.int64)).tolist()
        count = -(-self.shape[0] // (sampling_step(*self.shape) * len(few)))
        return np.concatenate(self._of_chunks({self._kept[k]: partial(some_rows, count=count) for k in few}))

    def fold(self, function: Callable[..., Any], *arguments: Any, merge: Merge = operator.add) -> Any:
        if any(isinstance(argument, ClusterRows) for argument in arguments):
            return super().fold(function, *arguments, merge=merge)
        calls = {k: self._call(k, function, merge=merge) for k in self._kept}
        return self._summed(short_name(function), calls, *arguments, merge=merge)

    def each(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        if any(isinstance(argument, ClusterRows) for argument in arguments):
            return super().each(function, *arguments)
        calls = {k: self._call(k, function) for k in self._kept}
        return self.cluster.results(self._futures(short_name(function), calls, *arguments), self._names(function))

    def _picked(self, places: Mapping[int, np.ndarray], *others: ClusterRows) -> list[Array]:
        if others or "panels" in vars(self):
            return super()._picked(places, *others)
        return self._of_chunks({self._kept[k]: partial(gather_rows, chosen=place) for k, place in places.items()})

    def _of_chunks(self, choices: Mapping[int, Callable[[Array], Array]]) -> list[Array]:
        """Return some rows of each numbered chunk."""
        calls = {k: self._call(k, itself, choice) for k, choice in choices.items()}
        return self.cluster.results(self._futures("rows", calls), [f"rows of chunk {k}" for k in calls])

    @cached_property
    def panels(self) -> list[Any]:  # type: ignore[override]
        """The futures of all panels, which stay on the workers from the first request on."""
        return self._futures("panel", {k: self._call(k, itself, stays=True) for k in self._kept})

    @cached_property
    def held(self) -> ClusterRows:
        """The rows in panels of about one length that stay on the workers: chunks joined up to `PANEL_BYTES`."""
        by_bytes = -(-self.shape[0] * self.shape[1] * self.dtype.itemsize // blocking.PANEL_BYTES)
        count = max(panels_for(self.cluster), by_bytes)
        rows = ClusterRows(self.cluster, self.sizes, self.shape[1], self.dtype, self.panels.__getitem__, [self])
        rows = rows.grouped(count, limit=8 * count)
        rows.chunks = self.chunks
        return rows

    # -- tasks ---------------------------------------------------------------------------------------------------------

    def _call(self, k: int, function: Callable[..., Any], choice: Callable[..., Any] = itself, **how: Any) -> OfChunk:
        """Return the task of a chunk; see `on_chunk`."""
        said = (k, (self.chunks[k], self.shape[1]), self._advice) if self._is_said else None
        return partial(on_chunk, function=function, panel=(*self._as_panel, choice), said=said, **how)

    def _futures(self, name: str, calls: Mapping[int, OfChunk], *arguments: Any) -> list[Any]:
        """Return a future of ``call(chunk, shared arguments)`` of each numbered chunk."""
        name, shared, found, tasks = unique_name(name), self.cluster.share(*arguments), [], list(calls.items())
        for start, stop in row_slices(len(tasks), SUBMITTED):
            graph = self._graph.tasks(name, shared, tasks[start:stop])
            found += self.cluster.submit_graph(graph, [(name, k) for k, _ in tasks[start:stop]], self._settings)
        return found

    def _summed(self, called: str, calls: Mapping[int, OfChunk], *arguments: Any, merge: Merge = operator.add) -> Any:
        """Return ``call(chunk, shared arguments)`` of numbered chunks, merged as a tree."""
        name, shared = unique_name(called), self.cluster.share(*arguments)
        tasks, marks = list(calls.items()), []
        count = max(JOINED, min(SUBMITTED, -(-len(tasks) // REPORTS)))

        def sums() -> Iterable[Any]:
            for start, stop in row_slices(len(tasks), count):
                graph = self._graph.tasks(name, shared, tasks[start:stop])
                joins: dict[Any, Any] = {}

                def join(keys: list[Any], start: int = start, joins: dict[Any, Any] = joins) -> Any:
                    joins[key := (f"{name}-joined", start, len(joins))] = (merge_results, *keys, merge)
                    return key

                last = merged_in_tree([(name, k) for k, _ in tasks[start:stop]], join)
                mark = f"{name}-mark", start
                graph |= joins | {mark: (nothing, last)}
                found, done = self.cluster.submit_graph(graph, [last, mark], self._settings)
                marks.append(done)
                yield found

        def join_sums(some: list[Any]) -> Any:
            return self.cluster.submit(merge_results, *some, arguments=(merge,), name=called)

        total = merged_in_tree(sums(), join_sums)
        futures, text = [total, *marks], f"{called} of {len(tasks)} chunks"
        return self.cluster.results(futures, [text] * len(futures), self._report(len(tasks), count))[0]

    def _report(self, chunks: int, together: int) -> Callable[[int, int], None] | None:
        """Return the report of a wait for sets of chunks, and for their sum."""
        report = self.cluster.report
        return None if report is None else lambda done, of: report(min(chunks, done * together), chunks)


class ChunkGraph:
    """The graph of a Dask array, cut into nodes of one chunk and shared nodes.

    Parameters
    ----------
    X : dask.array.Array
        One chunk for all columns.

    Attributes
    ----------
    keys : list
        Of all chunks.
    """

    def __init__(self, X: Any) -> None:
        import dask
        from distributed import futures_of

        # While the futures live, Dask leaves them out of graphs, which name them by their keys.
        self._futures = {future.key: future for future in futures_of(X)}
        (X,) = dask.optimize(X)
        self._nodes = dict(X.__dask_graph__())
        self.keys: list[Any] = [row[0] for row in X.__dask_keys__()]
        needed = [self._needed(key) for key in self.keys]
        uses = Counter(node for nodes in needed for node in nodes)
        self._own = [nodes if nodes and all(uses[node] == 1 for node in nodes) else [] for nodes in needed]

    def _needed(self, key: Any) -> list[Any]:
        """Return the nodes that a chunk needs; none where they are many, or are on the workers."""
        from dask.core import get_dependencies

        found: list[Any] = []
        left = [key]
        while left:
            node = left.pop()
            if node in found:
                continue
            if len(found) == FUSED_NODES or node not in self._nodes:
                return []
            found.append(node)
            # `get_dependencies` leaves out what the graph lacks.
            named = getattr(self._nodes[node], "dependencies", None)
            left += get_dependencies(self._nodes, node) if named is None else named
        return found

    def tasks(self, name: str, shared: Any, calls: Iterable[tuple[int, OfChunk]]) -> dict[Any, Any]:
        """Return the graph of ``call(chunk, shared arguments)`` for (number of chunk, call)."""
        from dask.optimization import cull
        from distributed.protocol.pickle import dumps

        graph, apart = {}, []
        for k, call in calls:
            own, key = {node: self._nodes[node] for node in self._own[k]}, self.keys[k]
            packed = dumps((call, own, key))
            chunk = [] if own else [self._futures.get(key, key)]
            graph[name, k] = (of_chunk, packed, shared, *chunk)
            apart += [] if own or key in self._futures else [key]
        return graph | dict(cull(self._nodes, apart)[0])


def unique_name(name: str) -> str:
    """Return a prefix that the task keys of one pass share."""
    return f"gpukpca-{name}-{uuid.uuid4().hex}"


def chunk_batches(X: Any, cluster: Cluster | None) -> Iterator[Any]:
    """Yield the chunks of a Dask array (n, d) in this process, without empty ones.

    The workers of a cluster compute them, or without one Dask in this process.
    """
    chunks, settings = whole_rows(X).blocks, {"retries": RETRIES} | annotations_of(X)
    for k in range(chunks.shape[0]):
        one = chunks[k]
        chunk = one.compute() if cluster is None else cluster.computed(one, f"chunk {k}", settings)
        if chunk.shape[0]:
            yield chunk


def annotations_of(X: Any) -> dict[str, Any]:
    """Return what `dask.annotate` says of the layers of a Dask array; that around a fit, Dask adds by itself."""
    said = [layer.annotations for layer in X.__dask_graph__().layers.values() if layer.annotations]
    values = {name: [one[name] for one in said if name in one and not callable(one[name])] for name in ANNOTATIONS}
    return {name: ANNOTATIONS[name](found) for name, found in values.items() if found}


# -- functions that run on the workers ---------------------------------------------------------------------------------


def of_chunk(packed: bytes, shared: tuple[Any, ...], *chunk: Any) -> Any:
    """Return the result of a chunk, which is passed or loaded."""
    call, own, key = pickle.loads(packed)
    if not chunk:
        import dask

        chunk = (dask.get(own, key),)
    return call(*chunk, shared)


def on_chunk(
    chunk: Any,
    shared: tuple[Any, ...],
    function: Callable[..., Any],
    panel: tuple[Any, ...],
    said: tuple[Any, ...] | None,
    merge: Merge | None = None,
    stays: bool = False,
) -> Any:
    """Return ``function(panel)`` of a chunk; of a sparse one in dense slices, merged. See `check_chunk` for `said`."""
    if said is not None:
        check_chunk(chunk, panel[0], *said)
    if merge is None or not is_sparse(chunk):
        return on_panel(shared, as_panel(chunk, *panel), function, stays)
    rows, d = chunk.tocsr(), int(chunk.shape[1])
    slices = (rows[start:stop] for start, stop in row_slices(int(rows.shape[0]), slice_of(d)))
    return merge_results(*(on_panel(shared, as_panel(one, *panel), function, False) for one in slices), merge)


def nothing(_: Any) -> None:
    """Return None: that the argument is there."""


def some_rows(panel: Array, count: int) -> Array:
    """Return about so many rows of a panel."""
    return panel[:: max(1, int(panel.shape[0]) // count), :]
