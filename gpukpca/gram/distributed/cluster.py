"""A Dask cluster as the operators use it: work is waited for while workers live, and what is lost is named.

Everything that a task needs is an argument of it or the result of another task, never scattered data alone: when a
worker dies, the scheduler makes what it held anew from the source.
"""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from gpukpca._version import __version__
from gpukpca.exceptions import ClusterError, InvalidParameterError

# Seconds between two looks at the cluster, and seconds without a worker after which nothing is expected any more; the
# latter is the setting "gpukpca.timeout" of Dask.
LOOK = 1.0
PATIENCE = 60.0


@dataclass(frozen=True)
class Worker:
    """A worker as the scheduler knows it: `memory` in bytes, 0 without a limit."""

    address: str
    host: str
    threads: int
    memory: int


class Cluster:
    """The workers behind a client.

    Parameters
    ----------
    client : distributed.Client

    Raises
    ------
    ClusterError
        There are no workers, or they run another version of gpukpca.
    """

    def __init__(self, client: Any) -> None:
        import dask

        self.client = client
        self.patience = float(dask.config.get("gpukpca.timeout", PATIENCE))
        self._well = time.monotonic()
        self.workers = self._first_workers()
        self._check_versions()

    def _first_workers(self) -> list[Worker]:
        while not (workers := self._workers_now()):
            self._check_alive("the fit")
            time.sleep(min(LOOK, self.patience) / 4)
        return workers

    def _workers_now(self) -> list[Worker]:
        """The workers that the scheduler has, in the order of their names."""
        try:
            found = self.client.scheduler_info(n_workers=-1)["workers"]
        except OSError:
            return []
        return [
            Worker(address, facts["host"], int(facts["nthreads"]), int(facts["memory_limit"] or 0))
            for address, facts in sorted(found.items(), key=lambda item: (str(item[1].get("name")), item[0]))
            if facts.get("status") != "paused"
        ]

    def _check_versions(self) -> None:
        future = self.submit(version_here, name="version")
        (found,) = self.results([future], ["the version"])
        if found != __version__:
            raise ClusterError(
                f"the workers run gpukpca {found}, and this process {__version__}; install the same on both."
            )

    def describe(self) -> str:
        """«2 workers with 4 threads, scheduler at tcp://...»."""
        threads = sum(worker.threads for worker in self.workers)
        return f"{len(self.workers)} worker(s) with {threads} thread(s), scheduler at {self.client.scheduler.address}"

    # -- work ----------------------------------------------------------------------------------------------------------

    def submit(self, function: Callable[..., Any], *arguments: Any, name: str, worker: str | None = None) -> Any:
        """A future of ``function(*arguments)``, on `worker` as long as that lives."""
        import dask

        place = {} if worker is None else {"workers": [worker], "allow_other_workers": True}
        # The large arguments are meant: the scheduler keeps them, and makes anew what a dead worker held.
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TiB"}):
            key = f"gpukpca-{name}-{uuid.uuid4().hex}"
            return self.client.submit(function, *arguments, key=key, pure=False, **place)

    def results(self, futures: Sequence[Any], names: Sequence[str], report: Any = None) -> list[Any]:
        """The results in order; `names` say in errors what was lost.

        Raises
        ------
        ClusterError
            A task ended four workers, or there has been no worker, or no scheduler, for as long as `patience`.
        Exception
            What a task raised.
        """
        self._well = time.monotonic()
        try:
            for done, (future, name) in enumerate(zip(futures, names, strict=True)):
                with self.client.as_current():  # which `wait` asks
                    self._wait(future, name, futures, names)
                if report is not None:
                    report(done + 1, len(futures))
            return [self._fetched(future, name) for future, name in zip(futures, names, strict=True)]
        except BaseException:
            for future in futures:  # also where the user interrupts: the workers need not go on
                future.release()
            raise

    def _wait(self, future: Any, name: str, futures: Sequence[Any], names: Sequence[str]) -> None:
        """Until a future is there, or another one has failed."""
        from distributed import wait

        while not future.done():
            try:
                wait([future], timeout=LOOK)
            except TimeoutError:
                self._check_alive(name)
                self._raise_failure(futures, names)
            except CancelledError as error:
                raise self._lost(name) from error
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
        error.add_note(f"raised on a worker of the cluster for {name}")
        return error

    def _fetched(self, future: Any, name: str) -> Any:
        """The result of a future that is there; made anew where its worker has died since."""
        while True:
            try:
                return future.result(timeout=self.patience)
            except TimeoutError:
                if future.status == "error":
                    raise
                self._check_alive(name)
            except CancelledError as error:
                raise self._lost(name) from error

    # -- whether anybody is there --------------------------------------------------------------------------------------

    def _check_alive(self, name: str) -> None:
        """Raise where no worker has been able to work for as long as `patience`."""
        if self.client.status == "running" and self._workers_now():
            self._well = time.monotonic()
        elif self.client.status == "closed" or time.monotonic() - self._well > self.patience:
            raise self._lost(name)

    def _lost(self, name: str) -> ClusterError:
        where = self.client.scheduler.address if self.client.scheduler is not None else "of the client"
        if self.client.status != "running":
            what = f"the scheduler at {where} cannot be reached"
        elif not self._workers_now():
            what = (
                f"the scheduler at {where} has had no worker that takes work for {self.patience:.0f} s: they ended, or "
                "their memory is full and nothing more can be spilled to disk"
            )
        else:
            what = "its data were cancelled, or were held by a worker that died and cannot be made anew"
        return ClusterError(f"{name} was lost: {what}. Start workers again, then fit again.")


def version_here() -> str:
    """The version on this machine."""
    return __version__


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
    if given is not None and given != "active":
        raise InvalidParameterError(f'client={given!r} is not allowed; give a distributed.Client, "active" or None.')
    active = None
    if distributed is not None:
        with suppress(ValueError):  # there is none
            active = distributed.default_client()
    if active is None and given == "active":
        raise InvalidParameterError('client="active", and no Dask client is; start one with distributed.Client(...).')
    return active


def cluster_for(given: Any) -> Cluster | None:
    """The cluster of `client_for`, ready for work."""
    client = client_for(given)
    return None if client is None else Cluster(client)
