"""Progress of a fit: events during and after every pass, for a callable, as lines on the terminal, and for the log."""

from __future__ import annotations

import logging
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from gpukpca._formatting import format_seconds, printable
from gpukpca._typing import PassReport, RankReport
from gpukpca.algorithms.fields import field_of, record
from gpukpca.backend.parallel import TileReport


@record()
class Progress:
    """One event of a fit, passed to ``KernelPCA(verbose=callable)``.

    See Also
    --------
    gpukpca.KernelPCA : Sends events to the callable `verbose`.

    Examples
    --------
    >>> import numpy as np
    >>> from gpukpca import KernelPCA
    >>> events = []
    >>> model = KernelPCA(5, kernel="rbf", eigen_solver="randomized", random_state=0, verbose=events.append)
    >>> model = model.fit(np.random.default_rng(0).standard_normal((200, 4)))
    >>> events[0].stage, "pass" in {event.stage for event in events}
    ('plan', True)
    """

    stage: str = field_of(
        "",
        '"plan", "resumed", "checkpoint", "waiting" (for a worker of a cluster), "tiles", "pass", "step" (of EM), '
        '"start" (its directions are known), "rank", "batch" or "fold"',
    )
    text: str = field_of("", "the event as a line of text")
    done: int = field_of(
        "", "tiles of this pass, passes, steps, landmarks, rows, chunks, or fits of a search", default=0
    )
    total: int = field_of(
        "",
        "the number of these in all; of passes and steps, an upper limit; of a plan the passes that it expects, where "
        "each takes as long",
        default=0,
    )
    residual: float | None = field_of(
        "",
        "largest relative residual so far; of EM the gain of a step in the log-likelihood of an observed entry, or the "
        "square of the turn of the components where that is larger",
        default=None,
    )
    tolerance: float | None = field_of("", "the residual at which the solver stops", default=None)
    log_likelihood: float | None = field_of(
        "", "of an observed entry, after a step of EM; of Bayesian PCA with the prior", default=None
    )
    seconds_left: float | None = field_of(
        "",
        "until the fit ends: by the plan and the time of the first pass, later by the seconds of a pass and the "
        "decay of the residual; None while it is not known",
        default=None,
    )
    seconds: float | None = field_of("", "of a pass or step", default=None)


Listener = Callable[[Progress], None]
LOGGER = logging.getLogger("gpukpca")
# Passes whose residuals show their decay.
RECENT = 3
# Seconds from the last line to one within a pass.
SECONDS_A_LINE = 30.0


def listener_from(verbose: Any) -> Listener | None:
    """Return the listener of a fit: a callable, or a printer of plan and passes; and the log where it takes events.

    None where nothing listens, so that a fit does not count its tiles.
    """
    listener = verbose if callable(verbose) else partial(_print_line, Pace()) if verbose else None
    is_new = LOGGER.isEnabledFor(logging.INFO) and not isinstance(listener, LogListener)
    return LogListener(listener) if is_new else listener


class Pace:
    """Decide which events become a line: within a pass one in `SECONDS_A_LINE`, else all."""

    clock: Callable[[], float] = staticmethod(time.monotonic)

    def __init__(self) -> None:
        self._last = self.clock()

    def shows(self, event: Progress) -> bool:
        """Return whether an event becomes a line now."""
        now = self.clock()
        if event.stage == "tiles" and now - self._last < SECONDS_A_LINE:
            return False
        self._last = now
        return True


def _print_line(pace: Pace, event: Progress) -> None:
    if pace.shows(event):
        print(stamped(printable(event.text, keep="\n"), time.time()), file=sys.stderr, flush=True)


def stamped(text: str, seconds: float) -> str:
    """Return the text with a point of time, in seconds since the epoch, before every line."""
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
    return "\n".join(f"{stamp} {line}" for line in text.splitlines())


@dataclass(frozen=True)
class LogListener:
    """A listener that logs events at a pace, the others for debugging, and passes them on."""

    listener: Listener | None = None
    pace: Pace = field(default_factory=Pace, compare=False, repr=False)

    def __call__(self, event: Progress) -> None:
        """Log the event and pass it on."""
        took = "" if event.seconds is None else f" ({event.seconds:.2g} s)"
        LOGGER.log(logging.INFO if self.pace.shows(event) else logging.DEBUG, "%s%s", event.text, took)
        if self.listener is not None:
            self.listener(event)


class ETAListener:
    """A listener that adds the time left to the events of an iteration.

    Parameters
    ----------
    listener : callable
        Called with every event, with `seconds_left` where it is known. The text of a pass or step states it; that of
        tiles also states the time left of their pass.
    clock : callable
        Returns seconds.
    """

    def __init__(self, listener: Listener, clock: Callable[[], float] = time.perf_counter) -> None:
        self.listener = listener
        self.clock = clock
        # The end, the number and the seconds of the last pass, and residuals by pass since the last jump upwards.
        self._ended, self._pass = clock(), -1
        self._seconds: float | None = None
        self._residuals: list[tuple[int, float]] = []
        self._left: float | None = None
        # Of a product: its last tile so far, and the one before the first whose time is known.
        self._tile = self._first_tile = 0
        # The begin of the fit, its time by the plan and its passes, if equal ones; a fit that resumes takes less.
        self._began = clock()
        self._planned: float | None = None
        self._passes = 0

    def __call__(self, event: Progress) -> None:
        """Pass the event on."""
        if event.stage in ("plan", "resumed"):
            self._began, self._planned = self.clock(), event.seconds_left
            self._passes = event.total
        if event.stage == "tiles":
            of_pass, of_fit = self._within_pass(event)
            left = "" if of_pass is None else f", about {format_seconds(of_pass)} left of this pass"
            if left and of_fit is not None and of_fit > (of_pass or 0.0):
                left = f"{left}, {format_seconds(of_fit)} of the fit"
            event = replace(event, seconds_left=of_fit, text=event.text + left)
        elif event.stage in ("pass", "step"):
            self._measure(event)
            self._left = self._after_pass(event) if event.stage == "pass" else self._after_step(event)
            self._left = self._by_passes(event.done) if self._left is None else self._left
            left = "" if self._left is None else f", about {format_seconds(self._left)} left"
            event = replace(event, seconds_left=self._left, seconds=self._seconds, text=event.text + left)
        else:  # work before the first tile is no part of a pass
            self._ended = self.clock()
            event = replace(event, seconds_left=self._by_plan())
        self.listener(event)

    def _by_plan(self) -> float | None:
        """Return what the time of the plan leaves; None where it is over."""
        left = (self._planned or 0.0) - (self.clock() - self._began)
        return left if left > 0.0 else None

    def _by_passes(self, done: int) -> float | None:
        """Return the time of the passes that the plan expects after those done; what it leaves without passes."""
        if done < self._passes and self._seconds is not None:
            return (self._passes - done) * self._seconds
        return self._by_plan()

    def _within_pass(self, event: Progress) -> tuple[float | None, float | None]:
        """Return the time left of the pass, and that of the fit."""
        now = self.clock()
        if event.done < self._tile:  # another product, perhaps long after the first
            self._ended, self._first_tile = now, event.done
        self._tile, done, spent = event.done, event.done - self._first_tile, now - self._ended
        of_pass = spent / done * (event.total - event.done) if done else None
        if self._seconds is not None:
            return of_pass, None if self._left is None else max(0.0, self._left - spent)
        if of_pass is not None and self._passes:
            return of_pass, of_pass + (self._passes - 1) * (spent + of_pass)
        return of_pass, max((left for left in (of_pass, self._by_plan()) if left is not None), default=None)

    def _measure(self, event: Progress) -> None:
        now = self.clock()
        if event.done <= self._pass:  # another solution, with more components
            self._residuals = []
        self._seconds, self._ended, self._pass = now - self._ended, now, event.done
        self._tile = self._first_tile = 0

    def _after_step(self, event: Progress) -> float | None:
        if not event.tolerance:
            return None
        if event.residual is not None:
            lowest = min([event.residual, *(residual for _, residual in self._residuals[-1:])])
            self._residuals.append((event.done, lowest))
        # Extrapolations make the residual fall by leaps: its decay is that of the second half of the steps.
        half = [earlier for earlier in self._residuals if 2 * earlier[0] <= event.done] or self._residuals[:1]
        return self._until(event, half[-1], self._residuals[-1]) if half else None

    def _after_pass(self, event: Progress) -> float | None:
        if not event.residual or not event.tolerance:
            return 0.0 if event.residual == 0.0 else None
        if self._residuals and event.residual >= self._residuals[-1][1]:
            self._residuals = []
        self._residuals = [*self._residuals[-RECENT:], (event.done, event.residual)]
        # The residual falls on as in the last few passes.
        return self._until(event, self._residuals[0], self._residuals[-1])

    def _until(self, event: Progress, earlier: tuple[int, float], later: tuple[int, float]) -> float | None:
        """Return the time until the residual, which fell between two passes, is the tolerance."""
        (first, high), (last, low), tolerance = earlier, later, event.tolerance
        if not tolerance or low <= tolerance:
            return 0.0
        if not low < high or self._seconds is None:
            return None
        passes = math.ceil(math.log(low / tolerance) / (math.log(high / low) / (last - first)))
        return min(passes, max(0, event.total - event.done)) * self._seconds


def timed(listener: Listener | None) -> Listener | None:
    """Return the listener of an iteration, whose events state the time left."""
    return None if listener is None else ETAListener(listener)


def _reported(listener: Listener | None, event: Callable[..., Progress]) -> Callable[..., None] | None:
    """Return a callback that passes on the event of its arguments; None where nothing listens."""
    return None if listener is None else lambda *arguments: listener(event(*arguments))


def tile_report(listener: Listener | None) -> TileReport | None:
    """Return the callback of an operator during a product."""
    return _reported(listener, lambda done, total: Progress("tiles", f"{done} of {total} tiles", done, total))


def pass_report(listener: Listener | None) -> PassReport | None:
    """Return the callback of a solver after a pass."""

    def event(done: int, total: int, residual: float | None, tolerance: float) -> Progress:
        reached = "" if residual is None else f", largest relative residual {residual:.1e} (stops at {tolerance:.0e})"
        return Progress("pass", f"pass {done}{reached}", done, total, residual, tolerance)

    return _reported(listener, event)


def rank_report(listener: Listener | None) -> RankReport | None:
    """Return the callback of a factorization after a block of landmarks."""

    def event(done: int, total: int, left: float) -> Progress:
        return Progress("rank", f"{done} of {total} landmarks, {left:.2e} of the trace left", done, total)

    return _reported(listener, event)


def waiting_report(listener: Listener | None) -> Callable[[str], None] | None:
    """Return the callback of a cluster that waits for a worker."""
    return _reported(listener, partial(Progress, "waiting"))


def chunk_report(listener: Listener | None) -> Callable[[int, int], None] | None:
    """Return the callback of a cluster during a pass over the chunks of a Dask array."""
    return _reported(listener, lambda done, total: Progress("batch", f"{done} of {total} chunks", done, total))
