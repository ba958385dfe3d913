"""One contestant at one case, in a process of its own: ``python -m benchmarks.contestant`` with a job in JSON on the
standard input prints what was measured as the last line of the standard output.

A process of its own makes the peak of memory the contestant's, and a crash or a kill a result.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.accuracy import largest_difference, largest_residual, product_error
from benchmarks.cases import Case
from benchmarks.datasets import load
from benchmarks.peers import PEERS, NoDevice, Peer

# Libraries load parts of themselves in their first call. More rows than "auto" takes for the dense solver, so that the
# iterative one is warm too.
WARM_UP_ROWS = {False: 1000, True: 5000}

# What the clock runs over, and how wrong its answer is.
Task = tuple[Callable[[], Any], Callable[[Any], float | None]]


def main() -> None:
    job = json.load(sys.stdin)
    print(json.dumps(result(Case(**job["case"]), job["contestant"], job["certify"], job["memory_limit"])))


def result(case: Case, contestant: str, certify: bool, memory_limit: int | None) -> dict[str, Any]:
    """What `measured` found, or why there is nothing, in one line."""
    # Should memory run out, the system ends this process and not the one that keeps the record.
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    try:
        return {"outcome": "ok"} | measured(case, PEERS[contestant], certify, memory_limit)
    except (ModuleNotFoundError, NoDevice) as reason:
        return {"outcome": f"skipped: {reason}"}
    except Exception as error:  # whatever a contestant does is a result
        text = " ".join(str(error).split()).replace(str(Path.cwd()), ".")
        return {"outcome": f"{type(error).__name__}: {text[:200]}"}


def measured(case: Case, peer: Peer, certify: bool, memory_limit: int | None) -> dict[str, Any]:
    """Seconds of every run, memory in MiB, and the error of the last answer.

    `peak_mib` is the growth of the process during the runs, `total_mib` all of it; on a device `device_mib` is what is
    taken at the end, the CUDA context included: pools of memory do not shrink by themselves.
    """
    data = load(case.data, case.n + case.new, case.d, case.dtype)
    X, new = data[: case.n], data[case.n :]
    case = replace(case, gamma=case.gamma or 1.0 / (case.d * float(np.var(X, dtype=np.float64))))
    run, error = TASKS[case.task](peer, case, X, new)
    forget_peak()
    before = peak_mib()
    seconds = []
    with limited_memory(None if peer.on_device else memory_limit):
        for _ in range(case.repeats):
            start = time.perf_counter()
            answer = run()
            seconds.append(time.perf_counter() - start)
    total = peak_mib()
    return {
        "seconds": [round(second, 7) for second in seconds],
        "peak_mib": None if total is None or before is None else total - before,
        "total_mib": total,
        "device_mib": device_mib() if peer.on_device else None,
        "gamma": case.gamma,
        "residual": error(answer) if certify else None,
    }


# -- tasks -------------------------------------------------------------------------------------------------------------


def fit(peer: Peer, case: Case, X: np.ndarray, new: np.ndarray) -> Task:
    """A new model, its `fit_transform`, and the scores on the host; the error is the largest residual."""
    placed = peer.place(X)
    few = WARM_UP_ROWS[peer.on_device]
    peer.build(replace(case, n=min(case.n, few))).fit_transform(placed[:few])

    def run() -> Any:
        model = peer.build(case)
        scores = on_host(model.fit_transform(placed))
        values = getattr(model, "eigenvalues_", None)
        return scores, None if values is None else on_host(values)[: case.p]

    return run, lambda answer: largest_residual(case, X, *answer)


def transform(peer: Peer, case: Case, X: np.ndarray, new: np.ndarray) -> Task:
    """`transform` of new points; the error is the difference between transform and fit on the first training rows."""
    model = peer.build(case)
    scores = on_host(model.fit_transform(peer.place(X)))
    few, placed = peer.place(X[:1000]), peer.place(new)
    again = on_host(model.transform(few))
    return lambda: on_host(model.transform(placed)), lambda _: largest_difference(again, scores[:1000])


def product(peer: Peer, case: Case, X: np.ndarray, new: np.ndarray) -> Task:
    """One product with a block of p centred columns, after one that filled the caches."""
    V = np.random.default_rng(0).standard_normal((case.n, case.p)).astype(case.dtype)
    V -= V.mean(axis=0)
    model = peer.build(case).fit(X)
    model.product(V)
    return lambda: model.product(V), lambda out: None if out is None else product_error(case, X, V, out)


TASKS = {"fit": fit, "transform": transform, "product": product}


def on_host(a: Any) -> np.ndarray:
    """As a NumPy array: what has arrived on the host has been computed, so this also waits for a device."""
    if hasattr(a, "get"):
        return a.get()
    return np.asarray(a.cpu() if hasattr(a, "cpu") else a)


# -- memory ------------------------------------------------------------------------------------------------------------


def peak_mib() -> float | None:
    """Largest resident memory so far; None where the system does not say.

    `getrusage` would not do: its peak begins with that of the parent process.
    """
    status = Path("/proc/self/status")
    if not status.exists():
        return None
    return next(int(line.split()[1]) / 1024 for line in status.read_text().splitlines() if line.startswith("VmHWM:"))


def forget_peak() -> None:
    """Let the peak begin at what is in use now, where the system allows it: not at what loading and warm-up took."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")


@contextmanager
def limited_memory(limit: int | None) -> Iterator[None]:
    """No more than `limit` bytes of address space for a while: a MemoryError instead of a machine that swaps."""
    if limit is None:
        yield
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def device_mib() -> float:
    """Memory taken on the device by the library that is loaded."""
    if "cupy" in sys.modules:
        free, total = sys.modules["cupy"].cuda.runtime.memGetInfo()
    else:
        free, total = sys.modules["torch"].cuda.mem_get_info()
    return (total - free) / 2**20


if __name__ == "__main__":
    main()
