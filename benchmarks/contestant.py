"""One contestant in a process that lives on: ``python -m benchmarks.contestant NAME [FOLDER]``.

Each line of the standard input is a message in JSON, and each line of the output its answer. "prepare" loads a case,
"fit" runs it once or several times by the clock, and "finish" returns memory, facts and accuracy and frees the case.
In a separate process the peak of memory is the contestant's, and a crash or a kill is a result. The library comes from
FOLDER, another checkout, where one is named.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.accuracy import agreement, axes_residual, eigen_errors, product_error
from benchmarks.cases import Case
from benchmarks.datasets import load
from benchmarks.peers import PEERS, Peer
from benchmarks.places import NoDevice, on_host, timed

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
    """The timed computation, and the functions of its answer that run after it."""

    run: Callable[[], Any]
    checks: Callable[[Any], dict[str, Any]]  # figures of its accuracy, "residual" among them
    facts: Callable[[Any], dict[str, Any]] = lambda _: {}  # passes, tiles and the like, as the library reports them


def main() -> None:
    name, *folders = sys.argv[1:]
    sys.path[:0] = folders  # before the library is imported; this package is loaded already
    # Should memory run out, the system ends this process and not the one that keeps the record.
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="utf-8")
    player = Player(name)
    for line in sys.stdin:
        print(json.dumps(player.answer(**json.loads(line)), default=int), flush=True)  # integers of NumPy


class Player:
    """A contestant and the case that it has prepared."""

    def __init__(self, name: str) -> None:
        self.peer = PEERS[name]

    def answer(self, do: str, **message: Any) -> dict[str, Any]:
        """Return what a step measured with its outcome, or the reason of a failure."""
        try:
            return {"outcome": "ok"} | getattr(self, do)(**message)
        except Exception as error:  # whatever a contestant does is a result
            if isinstance(error, NoDevice) or (isinstance(error, ModuleNotFoundError) and not is_own(error)):
                return {"outcome": f"skipped: {error}"}
            text = " ".join(str(error).split()).replace(str(Path.cwd()), ".")
            return {"outcome": f"{type(error).__name__}: {text[:200]}"}

    def prepare(self, case: dict[str, Any]) -> dict[str, Any]:
        """Load the data, and run a smaller problem that warms up."""
        self.case = Case(**case)
        data = load(self.case.data, self.case.n + self.case.new, self.case.d, self.case.dtype)
        X, new = data[: self.case.n], data[self.case.n :]
        if self.case.task != "axes" and not self.case.gamma:
            self.case = replace(self.case, gamma=1.0 / (self.case.d * float(np.var(X, dtype=np.float64))))
        self.task = TASKS[self.case.task](self.peer, self.case, X, new)
        forget_peak()
        self.before = peak_mib()
        return {}

    def fit(self, calls: int = 1) -> dict[str, Any]:
        """Run the task; return the seconds and the CPU seconds of one of so many calls."""
        cpu = time.process_time()

        def run() -> None:
            for _ in range(calls):
                self.found = self.task.run()

        seconds = timed(run, self.peer.place)[0]
        return {"seconds": round(seconds / calls, 7), "cpu": round((time.process_time() - cpu) / calls, 7)}

    def finish(self, certify: bool) -> dict[str, Any]:
        """Return memory in MiB, facts, and the accuracy of the last answer; forget the case.

        `peak_mib` is the growth of the process during the fits, `total_mib` all of it. `device_mib` is the memory in
        use on the device at the end, the CUDA context included: pools of memory do not shrink by themselves.
        """
        total, taken, task = peak_mib(), self.peer.place.taken(), self.task
        self.peer.place.release()
        found = {
            "peak_mib": None if total is None or self.before is None else total - self.before,
            "total_mib": total,
            "device_mib": None if taken is None else round(taken / 2**20, 1),
            "gamma": self.case.gamma,
            "facts": task.facts(self.found),
            "residual": None,
        }
        if certify:
            found |= task.checks(self.found)
        del self.task, self.found
        self.peer.place.release()
        return found


def is_own(error: ModuleNotFoundError) -> bool:
    """Return whether it is a module of the library that is missing, and not one that a machine may lack."""
    return (error.name or "").partition(".")[0] in ("gpukpca", "benchmarks")


# -- tasks -------------------------------------------------------------------------------------------------------------


def fit(peer: Peer, case: Case, X: np.ndarray, new: np.ndarray) -> Task:
    """Time a new model and its `fit_transform`; the error is the largest residual."""
    placed = peer.place.put(X)
    rows = warm_up_rows(peer, case)
    peer.build(replace(case, n=rows)).fit_transform(placed[:rows])

    def facts(answer: dict[str, Any]) -> dict[str, Any]:
        return answer["facts"] | (copying(peer, X, answer["scores"]) if peer.place.on_device else {})

    return Task(lambda: fitted(peer, case, placed), lambda answer: fit_checks(peer, case, X, answer), facts)


def fitted(peer: Peer, case: Case, X: Any) -> dict[str, Any]:
    """Return what the checks need of a fit, so that the model can be freed; arrays where the contestant left them."""
    model = peer.build(case)
    scores = model.fit_transform(X)
    names = ("residual_norms", "certificate", "gap")
    found = {name: getattr(model, f"{name}_", None) for name in names} | {"eigenvalues": eigenvalues_of(model)}
    return found | {"scores": scores, "facts": facts_of(model)}


def eigenvalues_of(model: Any) -> Any:
    """Return the eigenvalues that a model or the last step of a pipeline has; of a PCA those of the Gram matrix."""
    last = model.steps[-1][1] if hasattr(model, "steps") else model
    if hasattr(last, "eigenvalues_"):
        return last.eigenvalues_
    return last.singular_values_**2 if hasattr(last, "singular_values_") else None


def fit_checks(peer: Peer, case: Case, X: np.ndarray, answer: dict[str, Any]) -> dict[str, Any]:
    """Return the largest residual, and for a certificate how far its bounds are missed (at most 0: they hold).

    With K = F Fᵀ + E, E positive semidefinite with trace c, every Rayleigh quotient of an approximate vector is at
    least its approximate eigenvalue, and none exceeds the largest of those by more than c.
    """
    values, certificate = answer["eigenvalues"], answer["certificate"]
    values = None if values is None else on_host(values)[: case.p].astype(np.float64)
    residual, quotients = eigen_errors(case, X, on_host(answer["scores"]), values, peer.place.check)
    found: dict[str, Any] = {"residual": residual}
    if certificate is not None:
        found["certificate"] = float(certificate) / float(values[0])
        if quotients is not None:
            found["below_bound"] = float(np.max(values - quotients) / values[0])
            found["above_bound"] = float((np.max(quotients) - values[0] - float(certificate)) / values[0])
    return found


def compared(peer: Peer, case: Case, X: np.ndarray, new: np.ndarray) -> Task:
    """Time the fit on the contestant's place and compare it with the same fit on NumPy."""

    def checks(answer: dict[str, Any]) -> dict[str, Any]:
        host = fitted(PEERS["gpukpca"], case, X)
        arrays = {name: on_host(answer[name]) for name in ("scores", "eigenvalues", "residual_norms")}
        return fit_checks(peer, case, X, answer) | agreement(arrays, host, case.dtype)

    return replace(fit(peer, case, X, new), checks=checks)


def transform(peer: Peer, case: Case, X: np.ndarray, new: np.ndarray) -> Task:
    """Time `transform` of new points; the error is its difference from the scores of the first training rows."""
    model = peer.build(case)
    scores = on_host(model.fit_transform(peer.place.put(X)))
    few, placed = peer.place.put(X[:1000]), peer.place.put(new)
    apart = np.abs(on_host(model.transform(few)) - scores[:1000])
    residual = float(np.max(apart) / np.max(np.abs(scores[:1000])))
    return Task(lambda: model.transform(placed), lambda _: {"residual": residual})


def product(peer: Peer, case: Case, X: np.ndarray, new: np.ndarray) -> Task:
    """Time a product with a block of p centered columns, after one that warmed up and filled the caches."""
    V = np.random.default_rng(0).standard_normal((case.n, case.p), dtype=np.float32).astype(case.dtype)
    V -= V.mean(axis=0)
    placed, block = peer.place.put(X), peer.place.put(V)
    rows = warm_up_rows(peer, case) if peer.place.on_device else case.n
    op = peer.build(case)(placed)
    warm = op if rows == case.n else peer.build(replace(case, n=rows))(placed[:rows])
    warm @ block[:rows]

    def checks(out: Any) -> dict[str, Any]:
        """Plain matrix products are compared in time alone."""
        put = peer.place.check
        return {"residual": product_error(case, X, V, on_host(out), put) if peer.certified else None}

    return Task(lambda: op @ block, checks, lambda _: storage_facts(op))


def axes(peer: Peer, case: Case, X: np.ndarray, new: np.ndarray) -> Task:
    """Time the principal axes of X; the error is the largest ‖C v - λ v‖ / λ₁ of the covariance matrix C."""
    placed = peer.place.put(X)
    peer.build(case).fit(placed[: min(case.n, WARM_UP_AXES)])

    def checks(model: Any) -> dict[str, Any]:
        V, sizes = (on_host(a).astype(np.float64) for a in (model.components_, model.singular_values_))
        return {"residual": axes_residual(X, V, sizes**2 / (case.n - 1), hasattr(model, "mean_"))}

    return Task(lambda: peer.build(case).fit(placed), checks, facts_of)


def search(peer: Peer, case: Case, X: np.ndarray, new: np.ndarray) -> Task:
    """Time a search over kernels with its refit; the best of the scores says whether two searches agree."""
    return Task(
        lambda: peer.build(case).fit(X),
        lambda _: {"residual": None},
        lambda model: {"best": {k: float(v) for k, v in model.best_params_.items()}, "score": float(model.best_score_)},
    )


TASKS = {task.__name__: task for task in (fit, compared, transform, product, axes, search)}


def warm_up_rows(peer: Peer, case: Case) -> int:
    """Return the rows of the problem that is solved before the clock runs."""
    if not peer.place.on_device:
        return min(case.n, WARM_UP_ROWS_HOST)
    if peer.slow:
        return min(case.n, WARM_UP_ROWS_SLOW)
    return case.n if case.n <= WHOLE_WARM_UP_UP_TO else WARM_UP_ROWS_LARGE


def facts_of(model: Any) -> dict[str, Any]:
    """Return passes, multiplied columns, solver and storage of K, as far as the model has them."""
    names = {"passes": "n_passes_", "columns": "n_products_", "solver": "solver_", "device": "device_"}
    names |= {"components": "n_components_"}
    facts = {key: getattr(model, name) for key, name in names.items() if hasattr(model, name)}
    plan = getattr(model, "plan_", None)
    if getattr(plan, "notes", ()):
        facts["notes"] = list(plan.notes)
    held = getattr(plan, "storage", None) or getattr(model, "op", None)
    return facts if held is None else facts | storage_facts(held)


def storage_facts(held: Any) -> dict[str, Any]:
    """Return the type and the tiles of a storage, or of an operator."""
    names = ("tile_edge", "tiles", "cached_tiles")
    return {"held": type(held).__name__} | {name: getattr(held, name) for name in names if hasattr(held, name)}


def copying(peer: Peer, X: np.ndarray, scores: Any) -> dict[str, float]:
    """Return the median seconds of copying X to the device and the scores back, with pageable host memory."""
    place = peer.place
    on_device = place.check(on_host(scores))
    up = [timed(lambda: place.check(X), place)[0] for _ in range(COPIES)]
    down = [timed(lambda: on_host(on_device), place)[0] for _ in range(COPIES)]
    return {"up_s": round(median(up), 7), "down_s": round(median(down), 7)}


# -- memory ------------------------------------------------------------------------------------------------------------


def peak_mib() -> float | None:
    """Return the largest resident memory so far; None where the system does not report it.

    `getrusage` would not do: its peak begins with that of the parent process.
    """
    status = Path("/proc/self/status")
    if not status.exists():
        return None
    lines = status.read_text(encoding="utf-8").splitlines()
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:")), None)


def forget_peak() -> None:
    """Reset the peak to the memory in use now, where the system allows it: loading and warm-up do not count."""
    with suppress(OSError, AttributeError, TypeError):  # Windows has no library without a name
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")


if __name__ == "__main__":
    main()
