"""One contestant at one case or several, in a process of its own.

``python -m benchmarks.contestant`` with a job in JSON on the standard input prints what was measured, a line of JSON
after each case.

A process of its own makes the peak of memory the contestant's, and a crash or a kill a result.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.accuracy import agreement, axes_residual, eigen_errors, largest_difference, on_host, product_error
from benchmarks.cases import Case
from benchmarks.datasets import load
from benchmarks.peers import PEERS, Peer
from benchmarks.places import NoDevice, median_of, timed, timed_runs

# Libraries load parts of themselves in their first call, and CuPy compiles its kernels there. A host is warm after a
# few rows, more than "auto" takes for the dense solver. On a device the whole problem warms it up, so that every way
# through it has been compiled, unless that takes long: then enough rows for the same way.
WARM_UP_ROWS_HOST = 1000
WARM_UP_AXES = 1000
WHOLE_WARM_UP_UP_TO = 200_000
WARM_UP_ROWS_LARGE = 50_000
WARM_UP_ROWS_SLOW = 5000
COPIES = 5


@dataclass(frozen=True)
class Task:
    """What the clock runs over, and what is asked after it.

    Attributes
    ----------
    run : callable
        Nothing -> answer.
    checks : callable
        Answer -> figures of its accuracy, "residual" among them, and others.
    facts : callable
        Answer -> what the library did: passes, tiles and the like.
    """

    run: Callable[[], Any]
    checks: Callable[[Any], dict[str, Any]]
    facts: Callable[[Any], dict[str, Any]] = lambda _: {}


@dataclass(frozen=True)
class Fitted:
    """What is kept of a model when the clock has stopped; arrays where the contestant left them."""

    scores: Any
    eigenvalues: Any
    facts: dict[str, Any]
    certificate: float | None = None
    residual_norms: Any = None
    gap: float | None = None


def main() -> None:
    job = json.load(sys.stdin)
    for case in job["cases"]:
        answer = result(Case(**case), job["contestant"], job["certify"], job["memory_limit"])
        print(json.dumps(answer), flush=True)
        if answer["outcome"] != "ok":  # an error on a device can spoil all that follows in its process
            break


def result(case: Case, contestant: str, certify: bool, memory_limit: int | None) -> dict[str, Any]:
    """Return the answer of `measured`, or the reason of a failure."""
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
    """Seconds of every run, memory in MiB, facts, and the accuracy of the last answer.

    `peak_mib` is the growth of the process during the runs, `total_mib` all of it; on a device `device_mib` is what is
    taken at the end, the CUDA context included: pools of memory do not shrink by themselves.
    """
    data = load(case.data, case.n + case.new, case.d, case.dtype)
    X, new = data[: case.n], data[case.n :]
    case = replace(case, gamma=case.gamma or 1.0 / (case.d * float(np.var(X, dtype=np.float64))))
    task = TASKS[case.task](peer, case, X, new)
    forget_peak()
    before = peak_mib()
    with limited_memory(None if peer.on_device else memory_limit):
        seconds, answer = timed_runs(task.run, peer.place.wait, runs=case.repeats, patience=case.patience)
    total, taken = peak_mib(), peer.place.taken()
    peer.place.release()
    found = {
        "seconds": [round(second, 7) for second in seconds],
        "peak_mib": None if total is None or before is None else total - before,
        "total_mib": total,
        "device_mib": None if taken is None else round(taken / 2**20, 1),
        "gamma": case.gamma,
        "facts": task.facts(answer),
        "residual": None,
    }
    if certify:
        found |= task.checks(answer)
    return found


# -- tasks -------------------------------------------------------------------------------------------------------------


def fit(peer: Peer, case: Case, X: np.ndarray, new: np.ndarray) -> Task:
    """Time a new model and its `fit_transform`; the error is the largest residual."""
    placed = peer.place.put(X)
    rows = warm_up_rows(peer, case)
    peer.build(replace(case, n=rows)).fit_transform(placed[:rows])

    def run() -> Fitted:
        model = peer.build(case)
        return kept(model, model.fit_transform(placed), case.p)

    def facts(answer: Fitted) -> dict[str, Any]:
        copies = copying(peer, X, answer.scores) if peer.on_device else {}
        return answer.facts | copies

    return Task(run, lambda answer: fit_checks(peer, case, X, answer), facts)


def fit_checks(peer: Peer, case: Case, X: np.ndarray, answer: Fitted) -> dict[str, Any]:
    """Return the largest residual, and for a certificate how far its bounds are missed (at most 0: they hold).

    With K = F Fᵀ + E, E positive semidefinite with trace c, every Rayleigh quotient of an approximate vector is at
    least its approximate eigenvalue, and none exceeds the largest of those by more than c.
    """
    values = None if answer.eigenvalues is None else on_host(answer.eigenvalues)[: case.p].astype(np.float64)
    residual, quotients = eigen_errors(case, X, on_host(answer.scores), values, check_place(peer))
    found: dict[str, Any] = {"residual": residual}
    if answer.certificate is not None and values is not None:
        found["certificate"] = answer.certificate / float(values[0])
    if "certificate" in found and quotients is not None:
        found["below_bound"] = float(np.max(values - quotients) / values[0])
        found["above_bound"] = float((np.max(quotients) - values[0] - answer.certificate) / values[0])
    return found


def compared(peer: Peer, case: Case, X: np.ndarray, new: np.ndarray) -> Task:
    """Time the fit on the contestant's place and compare it with the same fit on NumPy."""
    task = fit(peer, case, X, new)

    def checks(answer: Fitted) -> dict[str, Any]:
        model = PEERS["gpukpca"].build(case)
        other = kept(model, model.fit_transform(X), case.p)
        return fit_checks(peer, case, X, answer) | agreement(as_arrays(answer), as_arrays(other), case.dtype)

    return replace(task, checks=checks)


def transform(peer: Peer, case: Case, X: np.ndarray, new: np.ndarray) -> Task:
    """`transform` of new points; the error is the difference between transform and fit on the first training rows."""
    model = peer.build(case)
    scores = on_host(model.fit_transform(peer.place.put(X)))
    few, placed = peer.place.put(X[:1000]), peer.place.put(new)
    again = on_host(model.transform(few))
    return Task(lambda: model.transform(placed), lambda _: {"residual": largest_difference(again, scores[:1000])})


def product(peer: Peer, case: Case, X: np.ndarray, new: np.ndarray) -> Task:
    """One product with a block of p centered columns, after one that warmed up and filled the caches."""
    V = np.random.default_rng(0).standard_normal((case.n, case.p), dtype=np.float32).astype(case.dtype)
    V -= V.mean(axis=0)
    placed, block = peer.place.put(X), peer.place.put(V)
    rows = case.n if not peer.on_device else warm_up_rows(peer, case)
    model = peer.build(case).fit(placed)
    warm = model if rows == case.n else peer.build(replace(case, n=rows)).fit(placed[:rows])
    warm.product(block[:rows])

    def checks(out: Any) -> dict[str, Any]:
        device = check_place(peer)
        return {"residual": None if out is None else product_error(case, X, V, on_host(out), device)}

    return Task(lambda: model.product(block), checks, lambda _: facts_of(model))


def axes(peer: Peer, case: Case, X: np.ndarray, new: np.ndarray) -> Task:
    """Time the principal axes of X; the error is the largest ‖C v - λ v‖ / λ₁ of the covariance matrix C."""
    placed = peer.place.put(X)
    peer.build(case).fit(placed[: min(len(X), WARM_UP_AXES)])

    def checks(model: Any) -> dict[str, Any]:
        V, values = on_host(model.components_), on_host(model.explained_variance_)
        return {"residual": axes_residual(X, V.astype(np.float64), values.astype(np.float64))}

    return Task(lambda: peer.build(case).fit(placed), checks, facts_of)


TASKS = {"fit": fit, "compared": compared, "transform": transform, "product": product, "axes": axes}


def warm_up_rows(peer: Peer, case: Case) -> int:
    """Rows of the problem that is solved before the clock runs."""
    if not peer.on_device:
        return min(case.n, WARM_UP_ROWS_HOST)
    if peer.slow:
        return min(case.n, WARM_UP_ROWS_SLOW)
    return case.n if case.n <= WHOLE_WARM_UP_UP_TO else WARM_UP_ROWS_LARGE


def check_place(peer: Peer) -> Callable[[np.ndarray], Any] | None:
    """Where the accuracy is computed: None is the host."""
    return peer.place.check if peer.on_device else None


# -- what a model tells ------------------------------------------------------------------------------------------------


def kept(model: Any, scores: Any, p: int) -> Fitted:
    """Of a fitted model what the checks need, so that the model itself can go."""
    values = getattr(model, "eigenvalues_", None)
    certificate = getattr(model, "certificate_", None)
    return Fitted(
        scores,
        None if values is None else values[:p],
        facts_of(model),
        None if certificate is None else float(certificate),
        getattr(model, "residual_norms_", None),
        getattr(model, "gap_", None),
    )


def facts_of(model: Any) -> dict[str, Any]:
    """Return passes, multiplied columns, solver and storage of K, as far as the model has them."""
    names = {"passes": "n_passes_", "columns": "n_products_", "solver": "solver_", "device": "device_"}
    facts = {key: getattr(model, name) for key, name in names.items() if hasattr(model, name)}
    plan = getattr(model, "plan_", None)
    if getattr(plan, "notes", ()):
        facts["notes"] = list(plan.notes)
    held = getattr(plan, "storage", None) or getattr(model, "op", None)
    if held is not None:
        facts["held"] = type(held).__name__
        facts |= {name: getattr(held, name) for name in ("tile_edge", "tiles", "cached_tiles") if hasattr(held, name)}
    return facts


def as_arrays(answer: Fitted) -> dict[str, Any]:
    """On the host, for `agreement`."""
    names = ("scores", "eigenvalues", "residual_norms")
    return {name: on_host(getattr(answer, name)) for name in names} | {"gap": answer.gap}


def copying(peer: Peer, X: np.ndarray, scores: Any) -> dict[str, float]:
    """Median seconds of taking X to the device and of bringing the scores back, each from and to pageable memory."""
    wait, on_device = peer.place.wait, peer.place.check(on_host(scores))
    up = [timed(lambda: peer.place.check(X), wait)[0] for _ in range(COPIES)]
    down = [timed(lambda: on_host(on_device), wait)[0] for _ in range(COPIES)]
    return {"up_s": round(median_of(up) or 0.0, 7), "down_s": round(median_of(down) or 0.0, 7)}


# -- memory ------------------------------------------------------------------------------------------------------------


def peak_mib() -> float | None:
    """Largest resident memory so far; None where the system does not say.

    `getrusage` would not do: its peak begins with that of the parent process.
    """
    status = Path("/proc/self/status")
    if not status.exists():
        return None
    lines = status.read_text().splitlines()
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:")), None)


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


if __name__ == "__main__":
    main()
