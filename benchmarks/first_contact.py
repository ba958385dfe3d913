"""Say within half a minute whether a card computes what the host computes: ``python -m benchmarks.first_contact``.

It asks the card to compute, prints the rates that plans and "auto" go by, compares fits with NumPy's, and times fits
twice: the first one compiles kernels. It prints what was chosen by the clock. The last lines count differences that are
too large, and apart from them steps that raised an error. The exit status is 1 where either happened or the card does
not work.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

from benchmarks.report import duration
from gpukpca._process import state

D, COMPONENTS = 100, 10
# Rows of the timed fits, and of the fit that the host repeats.
ROWS, ROWS_QUICK = (10_000, 100_000), (300, 1500)
COMPARED, COMPARED_QUICK = 3000, 300
# The largest difference, of eigenvalues relative to the first one, of scores relative to the largest.
ALLOWED = 1e-5


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.first_contact", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rows, to try the script itself")
    is_quick = parser.parse_args().quick
    if not _works():
        sys.exit(1)
    n = COMPARED_QUICK if is_quick else COMPARED
    fits = [(solver, dtype) for solver in ("randomized", "dense") for dtype in ("float64", "float32")]
    steps = [partial(compared, n, *fit) for fit in fits]
    counts = counted([*steps, *(partial(timed, n) for n in (ROWS_QUICK if is_quick else ROWS))])
    for what, choices in {"edge of tiles": state.tile_edges, "float16 tiles pay": state.half_tiles}.items():
        for kind, choice in choices.items():
            print(f"{what}: {choice} ({kind})")
    finish(*counts)


def counted(steps: list[Callable[[], bool]]) -> tuple[int, int]:
    """Run all steps; return how many returned false, and how many raised an error, which is printed."""
    wrong = errors = 0
    for step in steps:
        try:
            wrong += not step()
        except Exception:
            errors += 1
            print(traceback.format_exc(), flush=True)
    return wrong, errors


def finish(wrong: int, errors: int) -> None:
    """Print both numbers in the words of the suite's summary, and end."""
    print(f"failed assertions, tolerances among them: {wrong}\nfailures of code: {errors}")
    sys.exit(bool(wrong or errors))


def _works() -> bool:
    """Ask the current device to compute, and print what it is or why it does not."""
    from gpukpca.backend.work import rates_text
    from gpukpca.cuda.device import probe

    start = time.perf_counter()
    works, what = probe()
    print(f"{what}; asked in {duration(time.perf_counter() - start)}", flush=True)
    if works:
        import cupy

        print(f"rates: {rates_text(cupy.empty(0))}", flush=True)
    return works


def rows(n: int, dtype: str = "float32") -> np.ndarray:
    """Return rows whose directions differ, so that each component of a fit is determined."""
    scales = np.concatenate([0.8 ** np.arange(COMPONENTS + 2), np.full(D - COMPONENTS - 2, 0.02)])
    X: np.ndarray = np.random.default_rng(0).standard_normal((n, D)) * scales
    return X.astype(dtype)


def fitted(X: Any, solver: Any = "randomized") -> Any:
    """Return a fit where the data are."""
    from gpukpca import KernelPCA

    return KernelPCA(COMPONENTS, kernel="rbf", gamma=0.05, eigen_solver=solver, random_state=0).fit(X)


def compared(n: int, solver: str, dtype: str) -> bool:
    """Print how far a fit on the card is from NumPy's in float64; return whether the difference is allowed."""
    import cupy

    wanted, expected = on_numpy(n)
    X = cupy.asarray(rows(n, "float64").astype(dtype))
    made = fitted(X, solver)
    values = np.abs(made.eigenvalues_.get() - wanted).max() / wanted[0]
    found = made.transform(X).get()
    # Where two entries of an axis are largest but for rounding, its sign is that of either.
    found *= np.sign(np.sum(found * expected, axis=0))
    scores = np.abs(found - expected).max() / np.abs(expected).max()
    # Scores in float32 err by the rounding of K divided by the gap of two eigenvalues.
    is_right = bool(values <= ALLOWED and (dtype == "float32" or scores <= ALLOWED))
    notes = "".join(f"; {note}" for note in made.fallbacks_)
    what = f"{n} rows, {dtype}, {made.solver_}, against NumPy in float64"
    verdict = "" if is_right else f", WRONG: more than {ALLOWED:.0e}"
    print(f"{what}: eigenvalues {values:.1e}, scores {scores:.1e}{verdict}{notes}", flush=True)
    return is_right and not made.fallbacks_


@cache
def on_numpy(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return eigenvalues and scores of the host's fit."""
    X = rows(n, "float64")
    model = fitted(X)
    return model.eigenvalues_, model.transform(X)


def timed(n: int) -> bool:
    """Print the times of a first and a second fit of n rows in float32, and what computed them; return true."""
    import cupy

    X, seconds = cupy.asarray(rows(n)), []
    for _ in range(2):
        start = time.perf_counter()
        model = fitted(X)
        cupy.cuda.Device().synchronize()
        seconds.append(time.perf_counter() - start)
    first, second = map(duration, seconds)
    worst = float(model.residual_norms_.max() / model.eigenvalues_[0])
    print(f"{n} rows, float32, {model.solver_}: first fit {first}, second {second}; residuals at most {worst:.1e} λ₁")
    print(f"  {model.plan_.storage}; {model.plan_.predicted_bytes / 2**20:.0f} MiB predicted", flush=True)
    return True


if __name__ == "__main__":
    main()
