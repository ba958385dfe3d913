"""Listeners of an estimator: its `verbose`, the log, and the callbacks of scikit-learn 1.9 and later."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from gpukpca.algorithms.progress import Listener, Progress, listener_from

try:
    from sklearn.callback import with_callbacks
except ImportError:  # below scikit-learn 1.9
    with_callbacks = None

if with_callbacks is None or TYPE_CHECKING:

    class CallbackSupportMixin:
        """Stand for the class that scikit-learn below 1.9 lacks and that has no types."""
else:
    from sklearn.callback import CallbackSupportMixin as CallbackSupportMixin

# Calls the hook `teardown` of the callbacks of an estimator.
_tear_down = None if with_callbacks is None else with_callbacks(lambda estimator: None)

# Where scikit-learn keeps the callbacks of an estimator, and the context of one that fits it.
CALLBACKS = {"_skl_callbacks", "_parent_callback_ctx"}
# Stages of events whose end is the end of a task of callbacks.
TASKS = ("pass", "step", "batch", "fold")


@contextmanager
def fit_task(estimator: Any, X: Any) -> Iterator[None]:
    """Call the callbacks of an estimator at the beginning of its fit, and at the end."""
    if _tear_down is None or not vars(estimator).keys() & CALLBACKS:
        yield
        return
    try:
        context = estimator._init_callback_context(max_subtasks=None)
        context.call_on_fit_task_begin(estimator=estimator, X=X)
        yield
        context.call_on_fit_task_end(estimator=estimator, X=X)
    finally:
        _tear_down(estimator)


def listener_of(estimator: Any) -> Listener | None:
    """Return the listener of a fit; None where nothing listens."""
    listener = listener_from(estimator.verbose)
    context = vars(estimator).get("_callback_fit_ctx")
    if context is None or not vars(estimator).get("_skl_callbacks"):
        return listener

    def listen(event: Progress) -> None:
        if event.stage in TASKS:
            task = context.subcontext(task_name=event.stage)
            task.call_on_fit_task_begin(estimator=estimator)
            task.call_on_fit_task_end(estimator=estimator)
        if listener is not None:
            listener(event)

    return listen
