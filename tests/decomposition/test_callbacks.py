"""Callbacks of scikit-learn: a fit is a task, and every pass, batch or fold of it is a task inside."""

from __future__ import annotations

import inspect
import sys
from typing import Any

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gpukpca import PCA, IncrementalPCA, KernelPCA, KernelPCACV, LocalPCA, ProbabilisticPCA, Progress
from tests.long_fits import SETTINGS, rows

callback = pytest.importorskip("sklearn.callback")
X = rows()


class Record:
    """A callback that notes what it is called for."""

    max_propagation_depth = None

    def __init__(self) -> None:
        self.calls: list[str] = []

    def setup(self, estimator: Any, context: Any) -> None:
        self.calls.append("setup")

    def teardown(self, estimator: Any, context: Any) -> None:
        self.calls.append("teardown")

    def on_fit_task_begin(self, estimator: Any, context: Any) -> None:
        self.calls.append(f"begin {context.task_name}")

    def on_fit_task_end(self, estimator: Any, context: Any) -> None:
        self.calls.append(f"end {context.task_name}")


FITS: dict[str, tuple[Any, str]] = {
    "KernelPCA": (KernelPCA(**SETTINGS), "pass"),
    "PCA": (PCA(2, svd_solver="randomized", random_state=0), "pass"),
    "IncrementalPCA": (IncrementalPCA(2, batch_size=50), "batch"),
    "LocalPCA": (LocalPCA(2, random_state=0), "pass"),
    "ProbabilisticPCA": (ProbabilisticPCA(2, solver="em", random_state=0), "step"),
    "KernelPCACV": (KernelPCACV(gammas=[0.1], n_components=[2], cv=2), "fold"),
}


def test_scikit_learn_has_the_private_names_that_the_library_uses() -> None:
    """A version without one of them fails here, by name: without them callbacks would not be called, silently."""
    contexts: list[Any] = []

    class Listener(Record):
        def on_fit_task_begin(self, estimator: Any, context: Any) -> None:
            contexts.append((context, set(vars(estimator))))

    model = IncrementalPCA(2).set_callbacks(Listener()).set_output(transform="default")
    with config_context(enable_metadata_routing=True):
        model.set_partial_fit_request(check_input=False)
    assert {"_skl_callbacks", "_sklearn_output_config", "_metadata_request"} <= vars(model).keys()
    model.fit(X)
    assert callable(model._init_callback_context)
    context, attributes = contexts[0]
    assert "_callback_fit_ctx" in attributes
    for name in ("subcontext", "call_on_fit_task_begin", "call_on_fit_task_end"):
        assert callable(getattr(context, name)), name
    assert "_parent_callback_ctx" in inspect.getsource(sys.modules[type(context).__module__])
    assert {"with_callbacks", "CallbackSupportMixin"} <= vars(callback).keys()


@pytest.mark.parametrize("name", FITS)
def test_every_event_of_a_fit_is_a_task(name: str) -> None:
    record, events = Record(), []
    model, stage = clone(FITS[name][0]), FITS[name][1]
    model.set_params(verbose=lambda event: events.append(event.stage)).set_callbacks(record)
    model.fit(rows(300, 60 if name == "PCA" else 5))
    assert record.calls[:2] == ["setup", "begin fit"]
    assert record.calls[-2:] == ["end fit", "teardown"]
    assert record.calls[2:-2] == [f"begin {stage}", f"end {stage}"] * events.count(stage)
    assert events.count(stage) > 0
    assert not [name for name in vars(model) if "callback_fit" in name or "teardown" in name]


def test_a_fit_that_fails_tears_its_callbacks_down_and_changes_nothing() -> None:
    def stop(event: Progress) -> None:
        if event.stage == "pass":
            raise KeyboardInterrupt

    record = Record()
    model = KernelPCA(**SETTINGS, verbose=stop).set_callbacks(record)
    before = dict(vars(model))
    with pytest.raises(KeyboardInterrupt):
        model.fit(X)
    assert record.calls == ["setup", "begin fit", "begin pass", "end pass", "teardown"]
    assert vars(model) == before


def test_callbacks_leave_numbers_clones_and_files_alone(tmp_path: Any) -> None:
    record = Record()
    model = KernelPCA(**SETTINGS).set_callbacks(record).fit(X)
    np.testing.assert_array_equal(model.eigenvectors_, KernelPCA(**SETTINGS).fit(X).eigenvectors_)
    model.save(tmp_path / "model")
    count = len(record.calls)
    clone(model).fit(X)
    assert len(record.calls) == 2 * count


def test_a_pipeline_passes_its_callbacks_on() -> None:
    record = Record()
    make_pipeline(StandardScaler(), KernelPCA(**SETTINGS)).set_callbacks(record).fit(X)
    assert record.calls.count("setup") == record.calls.count("teardown") == 1
    assert "end pass" in record.calls


def test_the_progress_bar_of_scikit_learn_works(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("rich")
    KernelPCA(**SETTINGS).set_callbacks(callback.ProgressBar()).fit(X)
    assert "KernelPCA - fit" in capsys.readouterr().out
