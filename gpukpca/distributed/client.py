"""A Dask cluster as the operators use it: errors name the work that was lost, and no wait is without an end."""

from __future__ import annotations

import asyncio
import logging
import pickle
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpukpca._extras import pip_install
from gpukpca._formatting import pluralize
from gpukpca._version import __version__
from gpukpca.backend import blocking
from gpukpca.backend.device import cuda_place, free_bytes
from gpukpca.backend.parallel import row_slices
from gpukpca.exceptions import ClusterError, DeviceUnavailableError, InvalidParameterError

# Seconds without a worker after which a wait ends ("gpukpca.timeout" in Dask's configuration), and the share of it
# after which workers are looked for, and the wait is reported.
PATIENCE, CHECK_SHARE = 60.0, 1.0 / 12.0
# Seconds in which the scheduler at an address answers.
TIMEOUT = 10.0


class LostWorkError(ClusterError):
    """Tasks were forgotten: they were cancelled, or data that were sent to a worker ended with it."""


@dataclass(frozen=True)
class Worker:
    """A worker as the scheduler describes it; `memory` is in bytes, 0 without a limit."""

    address: str
    host: str
    threads: int
    memory: int
    takes_work: bool
    is_busy: bool


class Cluster:
    """The workers behind a client.

    Parameters
    ----------
    client : distributed.Client
    waiting : callable, optional
        Called with a line of text where no worker takes work for some seconds, once until one does.
    report : callable, optional
        Called with (chunks done, chunks in all) during a pass over the chunks of a Dask array.

    Attributes
    ----------
    workers : list of Worker
        Those that take work at the start, in the order of their names. Wait for an adaptive cluster with
        ``client.wait_for_workers(n)``; products use workers that join later too.

    Raises
    ------
    InvalidParameterError
        The client is asynchronous, or used in a task that keeps its thread.
    ClusterError
        The client is closed, there are no workers, one does not answer, or they run another version of gpukpca.
    """

    def __init__(
        self,
        client: Any,
        waiting: Callable[[str], None] | None = None,
        report: Callable[[int, int], None] | None = None,
    ) -> None:
        import dask
        from dask.utils import parse_timedelta

        _check_client(client)
        self.client = client
        self.patience: float = float(parse_timedelta(dask.config.get("gpukpca.timeout", PATIENCE)))
        self._idle_since: float | None = None
        self._waiting, self._reported = waiting, False
        self.report = report
        self._direct = True
        if not self.workers_now():  # an adaptive cluster starts a worker for a task
            self.results([self.submit(int, name="first")], ["the first task"])
        self.workers: list[Worker] = self.workers_now()
        if not self.workers:
            raise self._lost("the first task")
        for address, version in self.run(version_reader()).items():
            if version != __version__:
                raise ClusterError(
                    f"the worker at {address} runs gpukpca {version}, and this process {__version__}; install the same "
                    "on both."
                )

    def describe(self) -> str:
        """Return «2 workers with 4 threads, scheduler at tcp://...»."""
        workers = f"{pluralize(len(self.workers), 'worker')} with {pluralize(self.threads, 'thread')}"
        return f"{workers}, scheduler at {self._where}"

    @property
    def threads(self) -> int:
        """Return the threads of all workers at the start."""
        return sum(worker.threads for worker in self.workers)

    def workers_now(self) -> list[Worker]:
        """Return the workers that take work now, in the order of their names."""
        return [worker for worker in self._known_workers() if worker.takes_work]

    def run(self, function: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
        """Return the result of a function on every worker that computes it, by address.

        Raises
        ------
        ClusterError
            Workers have not answered for as long as `patience`, as their process is stopped.
        """
        addresses = [worker.address for worker in self._known_workers()]

        async def ask() -> list[Any]:
            settings = {"on_error": "ignore", "callback_timeout": self.patience}
            calls = [self.client.run(function, *arguments, workers=[one], **settings) for one in addresses]
            return await asyncio.gather(*calls, return_exceptions=True)

        answers = self.client.sync(ask)
        if silent := [one for one, answer in zip(addresses, answers, strict=True) if isinstance(answer, TimeoutError)]:
            raise ClusterError(
                f"{pluralize(len(silent), 'worker')} did not answer within {self.patience:g} s: {', '.join(silent)}. "
                "Restart what is stopped or out of reach, then fit again."
            )
        found: dict[str, Any] = {}
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
            found |= answer
        return found

    def memory(self, on_gpu: bool = False) -> list[int]:
        """Return the bytes that each of `workers` may take, or that are free on its GPU."""
        if not on_gpu and all(worker.memory for worker in self.workers):
            return [worker.memory for worker in self.workers]
        free, hosts = self.run(free_here, on_gpu), Counter(worker.host for worker in self.workers)
        found = [free.get(worker.address, 0) for worker in self.workers]
        if on_gpu:
            return found
        return [one.memory or bytes_ // hosts[one.host] for one, bytes_ in zip(self.workers, found, strict=True)]

    def check_gpus(self) -> None:
        """Raise `DeviceUnavailableError` where a worker has no GPU that computes."""
        for address, fault in self.run(gpu_fault).items():
            if fault:
                raise DeviceUnavailableError(
                    f"the worker at {address} cannot compute on a GPU: {fault}. Start workers with a GPU each, as "
                    "dask-cuda's LocalCUDACluster does, and no others."
                )

    # -- work ----------------------------------------------------------------------------------------------------------

    def submit(
        self,
        function: Callable[..., Any],
        *futures: Any,
        arguments: Sequence[Any] = (),
        name: str,
        worker: str | None = None,
    ) -> Any:
        """Return a future of ``function(*futures, *arguments)``, on `worker` while that lives.

        Raises
        ------
        InvalidParameterError
            An argument cannot be pickled.
        """
        from distributed.protocol.pickle import dumps

        place = {} if worker is None else {"workers": [worker], "allow_other_workers": True}
        try:
            packed = dumps((function, tuple(arguments)))
        except Exception as error:  # every class of objects raises its own
            raise InvalidParameterError(f"{list(arguments)} cannot be sent to the workers: {error}") from error

        def send(task: Callable[..., Any], *parts: Any) -> Any:
            key = f"gpukpca-{name}-{uuid.uuid4().hex}"
            with self._open_client():
                return self.client.submit(task, *parts, key=key, pure=False, **place)

        # The blocks of a product belong into its tasks: the scheduler then computes again what a dead worker held. A
        # large block is sent in pieces, as Dask warns of a large task by a setting that all threads share.
        pieces = [packed[start:stop] for start, stop in row_slices(len(packed), blocking.TASK_BYTES)]
        parts = pieces if len(pieces) == 1 else [send(bytes, piece) for piece in pieces]
        return send(_unpacker(), len(parts), *parts, *futures)

    def submit_graph(self, graph: Mapping[Any, Any], keys: Sequence[Any], settings: Mapping[str, Any]) -> list[Any]:
        """Return the futures of some keys of a graph of Dask; `settings` are those of ``Client.get``."""
        with self._open_client():
            return list(self.client.get(graph, list(keys), sync=False, **settings))

    def persist(self, X: Any, settings: Mapping[str, Any]) -> Any:
        """Return a Dask array whose chunks stay on the workers as long as it; see `submit_graph`."""
        with self._open_client():
            return self.client.persist(X, **settings)

    def computed(self, X: Any, name: str, settings: Mapping[str, Any]) -> Any:
        """Return a Dask array, which errors call by its `name`, in this process; see `submit_graph`."""
        with self._open_client():
            future = self.client.compute(X, **settings)
        return self.results([future], [name])[0]

    def share(self, *arguments: Any) -> Any:
        """Return a future of the tuple of the arguments: it is sent once, and workers copy it from each other."""
        return self.submit(tuple, arguments=(arguments,), name="shared")

    def scatter(self, panel: Any, worker: Worker | None) -> Any:
        """Return a future of data sent to a worker, or to any where that ended; the scheduler keeps none of them."""
        end = time.monotonic() + self.patience
        while True:
            key, place = f"gpukpca-rows-{uuid.uuid4().hex}", None if worker is None else [worker.address]
            settings = {"timeout": CHECK_SHARE * self.patience, "direct": self._direct, "hash": False}
            try:
                return self.client.scatter({key: panel}, workers=place, **settings)[key]
            except (OSError, KeyError) as error:  # TimeoutError too
                if time.monotonic() > end or self.client.status == "closed":
                    raise self._lost("sending rows") from error
                if worker is not None and worker not in self.workers_now():
                    worker = None  # it has ended meanwhile
                elif not isinstance(error, TimeoutError):
                    self._direct = False  # this process reaches the workers by way of the scheduler only

    def results(
        self, futures: Sequence[Any], names: Sequence[str], report: Callable[[int, int], None] | None = None
    ) -> list[Any]:
        """Return the results in order; the workers need not keep them. See `wait`."""
        seconds, found = self.patience, None
        with released(futures):
            self.wait(futures, names, report)
            while found is None:
                try:
                    found = self.client.sync(self.client.gather, list(futures), callback_timeout=seconds)
                except TimeoutError:
                    self._check_alive(names[0])
                    seconds *= 2  # a slow line
                except CancelledError:
                    raise self._cancelled(names[0]) from None
        return found

    def wait(
        self, futures: Sequence[Any], names: Sequence[str], report: Callable[[int, int], None] | None = None
    ) -> None:
        """Wait until all futures have a result; `names` say in errors what was lost.

        Raises
        ------
        ClusterError
            A task ended four workers, or there has been no worker, or no scheduler, for as long as `patience`.
        Exception
            Of a task.
        """
        self._idle_since, pending = None, dict(zip(futures, names, strict=True))
        count = len(pending)
        for done in self._batches(pending):
            for future in done:
                if future.status in ("lost", "pending"):  # its worker has ended, and another one computes it again
                    continue
                name = pending.pop(future)
                if future.status == "error":
                    raise self._named(future, name)
                if future.status != "finished":
                    raise self._cancelled(name)
            if report is not None:
                report(count - len(pending), count)

    def _batches(self, pending: Mapping[Any, str]) -> Iterator[list[Any]]:
        """Yield futures that are done, several at once, while some are pending; the caller removes them."""
        from distributed import as_completed

        while pending:
            if self.client.status == "closed":
                raise self._lost(next(iter(pending.values())))
            with self._open_client(), self.client.as_current():
                completed = as_completed(list(pending), timeout=CHECK_SHARE * self.patience)
            while pending and completed.count():
                try:
                    done = completed.next_batch()
                except TimeoutError:
                    self._check_alive(next(iter(pending.values())))
                    break
                yield done

    def _named(self, future: Any, name: str) -> BaseException:
        """Return the error of a task with the name of the task."""
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

    # -- workers that answer -------------------------------------------------------------------------------------------

    def _known_workers(self) -> list[Worker]:
        """Return the workers that the scheduler knows; none where it does not answer."""
        if self.client.status != "running":
            return []
        try:
            found = self.client.sync(self.client.scheduler.identity, callback_timeout=self.patience)["workers"]
        except (OSError, AttributeError, RuntimeError, CancelledError):  # TimeoutError too; the client may be closed
            return []
        return [
            _worker(address, facts)
            for address, facts in sorted(found.items(), key=lambda item: (str(item[1].get("name")), item[0]))
        ]

    def _check_alive(self, name: str) -> None:
        """Raise where no worker has been able to work for as long as `patience`."""
        workers = self._known_workers()
        # A worker that takes no work may hold what all others wait for.
        if any(worker.is_busy for worker in workers) or (workers and all(worker.takes_work for worker in workers)):
            self._idle_since, self._reported = None, False
            return
        now = time.monotonic()
        self._idle_since = self._idle_since or now
        if self.client.status == "closed" or now - self._idle_since > self.patience:
            raise self._lost(name)
        if now > self._idle_since and not self._reported and self._waiting is not None:
            self._reported = True
            what = "to answer" if self.client.status != "running" else "to have a worker that takes work"
            self._waiting(f"waiting for the scheduler at {self._where} {what}, for {self.patience:.0f} s at most")

    @contextmanager
    def _open_client(self) -> Iterator[None]:
        """Raise `ClusterError` where the client is closed."""
        try:
            yield
        except Exception as error:  # of several classes
            if self.client.status != "closed":
                raise
            raise self._lost("work that was sent") from error

    @property
    def _where(self) -> str:
        return self.client.scheduler.address if self.client.scheduler is not None else "of the client"

    def _cancelled(self, name: str) -> ClusterError:
        """Return the error for work that the scheduler has forgotten."""
        if self.client.status != "running":
            return self._lost(name)
        what = "it was cancelled, the client restarted, or the data of a worker ended with it"
        return LostWorkError(f"{name} was lost: {what}. Repair the cluster, then fit again.")

    def _lost(self, name: str) -> ClusterError:
        """Return the error for work that no worker will finish."""
        workers = self._known_workers()
        full = [worker.address for worker in workers if not worker.takes_work]
        if self.client.status != "running":
            what = f"the scheduler at {self._where} cannot be reached"
        elif full:
            what = (
                f"the worker at {full[0]} takes no work, as its memory is full and nothing more can be spilled to disk"
            )
        elif workers:
            what = f"no worker could be reached for {self.patience:.0f} s, such as the one at {workers[0].address}"
        else:
            what = f"the scheduler at {self._where} has had no worker for {self.patience:.0f} s: they ended"
        return ClusterError(f"{name} was lost: {what}. Repair the cluster, then fit again.")


def _worker(address: str, facts: dict[str, Any]) -> Worker:
    counts = facts.get("metrics", {}).get("task_counts", {})
    return Worker(
        address,
        facts["host"],
        int(facts["nthreads"]),
        int(facts["memory_limit"] or 0),
        takes_work=facts.get("status", "running") == "running",
        is_busy=any(counts.get(state) for state in ("executing", "long-running", "flight")),
    )


@contextmanager
def released(futures: Sequence[Any]) -> Iterator[None]:
    """Release the futures at the end: errors keep frames that name them for a while."""
    try:
        yield
    finally:
        for future in futures:
            future.release()


def version_reader() -> Callable[[], str]:
    """Return a function that is sent by its code: any release on a worker runs it."""

    def version() -> str:
        from gpukpca._version import __version__

        return __version__

    return version


def _unpacker() -> Callable[..., Any]:
    """Return the function that workers call. One inside a function is sent by its code and needs no package there."""

    def unpacked(count: int, *parts: Any) -> Any:
        function, arguments = pickle.loads(b"".join(parts[:count]))
        return function(*parts[count:], *arguments)

    return unpacked


# -- functions that run on the workers ---------------------------------------------------------------------------------


def free_here(on_gpu: bool) -> int:
    """Return the bytes that are free on this worker, or on its GPU."""
    place = cuda_place(None, "float64")[0] if on_gpu else None
    return free_bytes(np.empty(0) if place is None else place)


def gpu_fault() -> str:
    """Return why this worker cannot compute on a GPU; nothing where it can."""
    place, what = cuda_place(None, "float64")
    return "" if place is not None else what


# -- clients -----------------------------------------------------------------------------------------------------------


def _check_client(client: Any) -> None:
    """Raise where the client cannot be waited for."""
    from distributed.threadpoolexecutor import thread_state

    if client.asynchronous:
        raise InvalidParameterError("the Dask client is asynchronous; give one started with asynchronous=False.")
    if client.status not in ("running", "connecting"):
        raise ClusterError(
            f"the Dask client is {client.status}, so that no worker can be reached; start one with "
            "distributed.Client(...)."
        )
    if getattr(thread_state, "proceed", False):
        raise InvalidParameterError(
            "a fit on a cluster, inside one of its tasks, would wait for the thread that it occupies; take the client "
            "from «with distributed.worker_client() as client:»."
        )


def active_cluster(
    waiting: Callable[[str], None] | None = None, report: Callable[[int, int], None] | None = None
) -> Cluster | None:
    """Return the cluster of the active Dask client, ready for work; None where there is no client.

    The active client is the last one started, or that of ``with client.as_current():``. `Cluster` has the arguments.
    """
    distributed = sys.modules.get("distributed")  # a client exists only where it is imported, which takes half a second
    if distributed is None:
        return None
    try:
        client = distributed.default_client()
    except ValueError:  # there is none
        return None
    return Cluster(client, waiting, report)


@contextmanager
def connected(address: str, timeout: float = TIMEOUT) -> Iterator[Any]:
    """Connect a Dask client to a scheduler such as tcp://10.0.0.1:8786; inside it is the active client.

    Raises
    ------
    InvalidParameterError
        The text is no address.
    ClusterError
        Dask is not installed, or no scheduler answers there.
    """
    try:
        from distributed import Client
        from distributed.comm.addressing import get_address_host_port, normalize_address
    except ImportError as error:
        raise ClusterError(f"Dask is not installed ({error}); {pip_install('dask')}.") from error
    try:
        get_address_host_port(normalize_address(address))  # a client with a wrong one would not end cleanly
        with _silent_logs():
            client = Client(address, timeout=timeout, set_as_default=False)
    except ValueError as error:
        raise InvalidParameterError(
            f"{address!r} is no address of a scheduler ({error}); give what `dask scheduler` printed, such as "
            "tcp://10.0.0.1:8786."
        ) from error
    except OSError as error:
        raise ClusterError(
            f"no scheduler answers at {address!r} within {timeout:g} s. Give the address that `dask scheduler` "
            "printed, such as tcp://10.0.0.1:8786."
        ) from error
    with _silent_logs(), client, client.as_current():
        yield client


@contextmanager
def _silent_logs() -> Iterator[None]:
    """Silence the loggers of Dask: they print tracebacks of a lost cluster, which one error reports."""
    names = [name for name in list(logging.root.manager.loggerDict) if name.split(".")[0] in ("distributed", "tornado")]
    loggers = [logging.getLogger(name) for name in names]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
