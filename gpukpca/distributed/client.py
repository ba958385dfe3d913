"""A Dask cluster as the operators use it: work is waited for while workers live, and what is lost is named.

Everything that a task needs is an argument of it or the result of another task, never scattered data alone: when a
worker dies, the scheduler makes what it held anew from the source.
"""

from __future__ import annotations

import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpukpca._formatting import pluralize
from gpukpca._version import __version__
from gpukpca.backend.device import cuda_place
from gpukpca.exceptions import ClusterError, DeviceUnavailableError, InvalidParameterError

# Seconds between two looks at the cluster, seconds in which the scheduler answers, and seconds without a worker after
# which nothing is expected any more; the last is the setting "gpukpca.timeout" of Dask.
LOOK = 1.0
# Seconds without a worker after which it is said that one is waited for.
SILENCE = 5.0
ANSWER = 30.0
PATIENCE = 60.0


@dataclass(frozen=True)
class Worker:
    """A worker as the scheduler knows it.

    Attributes
    ----------
    address, host : str
    threads : int
    memory : int
        Bytes; 0 without a limit.
    running : bool
        Whether it takes work: one whose memory is full does not.
    busy : bool
        Whether it computes or fetches something.
    """

    address: str
    host: str
    threads: int
    memory: int
    running: bool = True
    busy: bool = False


class Cluster:
    """The workers behind a client.

    Parameters
    ----------
    client : distributed.Client
    waiting : callable, optional
        Called with a line of text where no worker takes work for some seconds, once until one does.

    Attributes
    ----------
    workers : list of Worker
        Those that take work now, in the order of their names. Ones that come later take the places of those that go:
        wait for an adaptive cluster with ``client.wait_for_workers(n)``.

    Raises
    ------
    InvalidParameterError
        The client is asynchronous, closed, or used in a task that keeps its thread.
    ClusterError
        There are no workers, or they run another version of gpukpca.
    """

    def __init__(self, client: Any, waiting: Callable[[str], None] | None = None) -> None:
        import dask
        from dask.utils import parse_timedelta

        _check_client(client)
        self.client = client
        self.patience = float(parse_timedelta(dask.config.get("gpukpca.timeout", PATIENCE)))
        self._ill_since: float | None = None
        self._waiting, self._told = waiting, False
        self.results([self.submit(version_here, name="version")], ["the first task"])  # an adaptive cluster wakes up
        self.workers = [worker for worker in self.workers_now() if worker.running]
        if not self.workers:
            raise self._lost("the first task")
        self._check_versions()

    def describe(self) -> str:
        """«2 workers with 4 threads, scheduler at tcp://...»."""
        threads = sum(worker.threads for worker in self.workers)
        workers = f"{pluralize(len(self.workers), 'worker')} with {pluralize(threads, 'thread')}"
        return f"{workers}, scheduler at {self.client.scheduler.address}"

    def workers_now(self) -> list[Worker]:
        """The workers that the scheduler knows, in the order of their names; none where it does not answer."""
        try:
            found = self.client.sync(self.client.scheduler.identity, callback_timeout=ANSWER)["workers"]
        except (OSError, AttributeError, CancelledError, RuntimeError):  # TimeoutError too; the client may be closed
            return []
        return [
            _worker(address, facts)
            for address, facts in sorted(found.items(), key=lambda item: (str(item[1].get("name")), item[0]))
        ]

    def on_every_worker(self, function: Callable[..., Any], *arguments: Any, name: str) -> list[tuple[Worker, Any]]:
        """``function(*arguments)`` on every worker; somewhere else where one has gone meanwhile."""
        futures = [self.submit(function, *arguments, name=name, worker=worker.address) for worker in self.workers]
        names = [f"the {name} of the worker at {worker.address}" for worker in self.workers]
        return list(zip(self.workers, self.results(futures, names), strict=True))

    def _check_versions(self) -> None:
        for worker, found in self.on_every_worker(version_here, name="version"):
            if found != __version__:
                raise ClusterError(
                    f"the worker at {worker.address} runs gpukpca {found}, and this process {__version__}; install "
                    "the same on both."
                )

    def check_gpus(self) -> None:
        """Raise `DeviceUnavailableError` where a worker has no GPU that computes."""
        for worker, fault in self.on_every_worker(gpu_fault, name="gpu"):
            if fault:
                raise DeviceUnavailableError(
                    f"the worker at {worker.address} cannot compute on a GPU: {fault}. Start workers with a GPU each, "
                    "as dask-cuda's LocalCUDACluster does, and no others."
                )

    # -- work ----------------------------------------------------------------------------------------------------------

    def submit(self, function: Callable[..., Any], *arguments: Any, name: str, worker: str | None = None) -> Any:
        """A future of ``function(*arguments)``, on `worker` as long as that lives.

        Raises
        ------
        InvalidParameterError
            An argument cannot be pickled.
        """
        place = {} if worker is None else {"workers": [worker], "allow_other_workers": True}
        packed, given = _packed(function, arguments)
        with large_graphs_are_meant():
            key = f"gpukpca-{name}-{uuid.uuid4().hex}"
            return self.client.submit(_runner(), packed, *given, key=key, pure=False, **place)

    def waited(self, futures: Sequence[Any], names: Sequence[str], report: Any = None) -> None:
        """Wait until all are there; `names` say in errors what was lost.

        Raises
        ------
        ClusterError
            A task ended four workers, or there has been no worker, or no scheduler, for as long as `patience`.
        Exception
            What a task raised.
        """
        self._ill_since = None
        with _released(futures, where_it_fails_only=True):
            for done, (future, name) in enumerate(zip(futures, names, strict=True)):
                self._wait(future, name, futures, names)
                if report is not None:
                    report(done + 1, len(futures))

    def results(self, futures: Sequence[Any], names: Sequence[str], report: Any = None) -> list[Any]:
        """The results in order; see `waited`. The workers need not keep them."""
        with _released(futures):
            self.waited(futures, names, report)
            return self._fetched(list(futures), names)

    def _wait(self, future: Any, name: str, futures: Sequence[Any], names: Sequence[str]) -> None:
        """Until a future is there, or another one has failed."""
        ended = threading.Event()  # Dask's waiting with a time limit leaves the future behind in a frame
        if not future.done():
            future.add_done_callback(lambda _: ended.set())
        while not (future.done() or ended.wait(LOOK)):
            self._check_alive(name)
            self._raise_failure(futures, names)
        self._raise_failure([future], [name])

    def _raise_failure(self, futures: Sequence[Any], names: Sequence[str]) -> None:
        for future, name in zip(futures, names, strict=True):
            if future.status == "cancelled":
                raise self._lost(name)
            if future.status == "error":
                raise self._in_words(future, name)

    def _in_words(self, future: Any, name: str) -> BaseException:
        """What a task raised, with what it was for."""
        from distributed.scheduler import KilledWorker

        error = future.exception(timeout=self.patience)
        if isinstance(error, KilledWorker):
            return ClusterError(
                f"{name}: {error.allowed_failures + 1} workers in turn ended while they computed it, the last at "
                f"{getattr(error.last_worker, 'address', 'an unknown address')}. Most likely they ran out of memory: "
                "give the workers more of it, or make the chunks smaller."
            )
        causes = [error, error.__cause__]
        if missing := next((cause for cause in causes if isinstance(cause, ImportError)), None):
            return ClusterError(
                f"{name}: the cluster cannot import what it needs ({missing}). Install it on the workers and the "
                "scheduler, or send the file that defines it with client.upload_file(...)."
            )
        error.add_note(f"raised on a worker of the cluster for {name}")
        return error

    def _fetched(self, futures: list[Any], names: Sequence[str]) -> list[Any]:
        """The results of futures that are there; made anew where a worker has died since."""
        seconds = self.patience
        while True:
            try:
                return self.client.sync(self.client.gather, futures, callback_timeout=seconds)
            except TimeoutError:
                self._raise_failure(futures, names)
                self._check_alive(names[0])
                seconds *= 2  # a slow line
            except (CancelledError, Exception):
                self._raise_failure(futures, names)
                raise

    # -- whether anybody is there --------------------------------------------------------------------------------------

    def _check_alive(self, name: str) -> None:
        """Raise where no worker has been able to work for as long as `patience`."""
        if self.client.status == "running" and _can_work(self.workers_now()):
            self._ill_since, self._told = None, False
            return
        now = time.monotonic()
        self._ill_since = self._ill_since or now  # of what was seen: this process may have been held up itself
        if self.client.status == "closed" or now - self._ill_since > self.patience:
            raise self._lost(name)
        if now - self._ill_since > SILENCE and not self._told and self._waiting is not None:
            self._told = True
            what = "to answer" if self.client.status != "running" else "to have a worker that takes work"
            self._waiting(f"waiting for the scheduler at {self._where} {what}, for {self.patience:.0f} s at most")

    @property
    def _where(self) -> str:
        return self.client.scheduler.address if self.client.scheduler is not None else "of the client"

    def _lost(self, name: str) -> ClusterError:
        where = self._where
        workers = self.workers_now() if self.client.status == "running" else []
        full = [worker.address for worker in workers if not worker.running]
        if self.client.status != "running":
            what = f"the scheduler at {where} cannot be reached"
        elif full:
            what = (
                f"the worker at {full[0]} takes no work, as its memory is full and nothing more can be spilled to disk"
            )
        elif not workers:
            what = f"the scheduler at {where} has had no worker for {self.patience:.0f} s: they ended"
        else:
            what = "it was cancelled, the client restarted, or data scattered to a worker died with it"
        return ClusterError(f"{name} was lost: {what}. Mend the cluster, then fit again.")


def _worker(address: str, facts: dict[str, Any]) -> Worker:
    counts = facts.get("metrics", {}).get("task_counts", {})
    busy = any(counts.get(state) for state in ("executing", "long-running", "flight"))
    running = facts.get("status", "running") == "running"
    return Worker(address, facts["host"], int(facts["nthreads"]), int(facts["memory_limit"] or 0), running, busy)


def _can_work(workers: list[Worker]) -> bool:
    """Whether anything is to be expected; a worker that takes no work may hold what all others wait for."""
    return any(worker.busy for worker in workers) or (bool(workers) and all(worker.running for worker in workers))


@contextmanager
def _released(futures: Sequence[Any], *, where_it_fails_only: bool = False) -> Iterator[None]:
    """Futures that nobody waits for any more are released, also where the user interrupts.

    They would be by themselves, but errors that were caught inside keep the frames that name them for a while.
    """
    done = False
    try:
        yield
        done = where_it_fails_only
    finally:
        for future in () if done else futures:
            future.release()


def large_graphs_are_meant() -> Any:
    """No advice to scatter data inside: the scheduler keeps them, and makes anew what a dead worker held."""
    import dask

    return dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TiB"})


def _packed(function: Callable[..., Any], arguments: Sequence[Any]) -> tuple[bytes, list[Any]]:
    """A call as bytes, but for its futures and arrays, which are given beside it.

    A worker that cannot import what a message is made of closes for good: what the user brings, and this package, are
    therefore unpacked in the task, where a module that is missing is an error like others.
    """
    from distributed import Future
    from distributed.protocol.pickle import dumps

    apart = [isinstance(argument, Future | np.ndarray) for argument in arguments]
    kept = [None if beside else argument for argument, beside in zip(arguments, apart, strict=True)]
    try:
        packed = dumps((function, kept, apart))
    except Exception as error:  # each object has its own way of saying so
        raise InvalidParameterError(f"{kept} cannot be sent to the workers: {error}") from error
    return packed, [argument for argument, beside in zip(arguments, apart, strict=True) if beside]


def _runner() -> Callable[..., Any]:
    """What the workers call: a function inside a function is sent by its code, and needs nothing of this package."""

    def run(packed: bytes, *given: Any) -> Any:
        import pickle

        function, kept, apart = pickle.loads(packed)
        rest = iter(given)
        return function(*(next(rest) if beside else argument for argument, beside in zip(kept, apart, strict=True)))

    return run


# -- what runs on the workers ------------------------------------------------------------------------------------------


def _sent_by_its_code() -> Callable[[], str]:
    def version_here() -> str:
        """The version on this machine, of whatever age: the function needs nothing else of the package there."""
        from gpukpca._version import __version__

        return __version__

    return version_here


version_here = _sent_by_its_code()


def gpu_fault() -> str:
    """Why this worker cannot compute on a GPU; nothing where it can."""
    place, what = cuda_place(None, "float64")
    return "" if place is not None else what


# -- clients -----------------------------------------------------------------------------------------------------------


def _check_client(client: Any) -> None:
    """Raise where the client cannot be waited for."""
    from distributed.threadpoolexecutor import thread_state

    if client.asynchronous:
        raise InvalidParameterError("the Dask client is asynchronous; give one started with asynchronous=False.")
    if client.status not in ("running", "connecting"):
        raise InvalidParameterError(f"the Dask client is {client.status}; start one with distributed.Client(...).")
    if getattr(thread_state, "proceed", False):
        raise InvalidParameterError(
            "a fit on a cluster, inside one of its tasks, would wait for the thread that it occupies; take the client "
            "from «with distributed.worker_client() as client:»."
        )


def client_for(given: Any) -> Any:
    """`given`, or the active Dask client where that is None or "active"; None where there is none.

    Raises
    ------
    InvalidParameterError
        `given` is something else, or "active" and no client is.
    """
    # Who has a client has imported this; importing it costs half a second.
    distributed = sys.modules.get("distributed")
    if distributed is not None and isinstance(given, distributed.Client):
        return given
    if given is not None and not (isinstance(given, str) and given == "active"):
        named = f" For the scheduler there, client=distributed.Client({given!r})." if _is_address(given) else ""
        raise InvalidParameterError(
            f'client={given!r} is not allowed; give a distributed.Client, "active" or None.{named}'
        )
    active = None
    if distributed is not None:
        with suppress(ValueError):  # there is none
            active = distributed.default_client()
    if active is None and given == "active":
        raise InvalidParameterError('client="active", and no Dask client is; start one with distributed.Client(...).')
    return active


def _is_address(given: Any) -> bool:
    """Whether it looks like what `dask scheduler` prints."""
    return isinstance(given, str) and ":" in given


def cluster_for(given: Any, waiting: Callable[[str], None] | None = None) -> Cluster | None:
    """The cluster of `client_for`, ready for work; see `Cluster` for `waiting`."""
    client = client_for(given)
    return None if client is None else Cluster(client, waiting)
