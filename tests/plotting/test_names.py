"""Names of samples, classes and features: what is written, and where."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from gpukpca import PCA
from gpukpca.datasets import uk_foods
from gpukpca.plotting import BiplotDisplay, ScoresDisplay, plot_fit
from gpukpca.plotting.scores import MAX_NAMES
from tests.plotting.pixels import png

pytest.importorskip("matplotlib")


def overlaps(ax: Any) -> int:
    """Return the number of pairs of texts whose boxes overlap."""
    from matplotlib.text import Text

    ax.figure.figure.draw_without_rendering()
    # The box of the text alone: that of an annotation includes its arrow.
    boxes = [Text.get_window_extent(text) for text in ax.texts if text.get_text()]
    return sum(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


def test_names_are_written_up_to_forty_apart_from_each_other(rng: np.random.Generator) -> None:
    scores, names = rng.standard_normal((MAX_NAMES, 2)), [f"sample {i}" for i in range(MAX_NAMES)]
    ax = ScoresDisplay(scores, names=names).plot().ax_
    assert [text.get_text() for text in ax.texts] == names
    assert overlaps(ax) <= 2
    first, again = (ScoresDisplay(scores[:9], names=names[:9]).plot().ax_ for _ in range(2))
    assert [text.get_position() for text in again.texts] == [text.get_position() for text in first.texts]
    assert not ScoresDisplay(np.vstack([scores, scores]), names=names + names).plot().ax_.texts


def test_names_lie_at_the_points_without_adjusttext(monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    monkeypatch.setitem(sys.modules, "adjustText", None)
    scores = rng.standard_normal((5, 2))
    ax = ScoresDisplay(scores, names=list("abcde")).plot().ax_
    np.testing.assert_array_equal([text.get_position() for text in ax.texts], scores)


def test_names_are_not_read_as_mathematics() -> None:
    names = ["$a_{", "x^2$ $", "_hidden"]
    png(plot_fit(PCA(2).fit(np.eye(3)), np.eye(3), labels=names, names=names, title="$_{").figure)


def test_names_of_classes_and_samples_are_short_and_nan_is_a_class(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    X = rng.standard_normal((60, 3))
    model = PCA(2).fit(X)
    labels = np.where(np.arange(60) == 2, np.nan, np.arange(60) % 9 * 0.1)
    display = ScoresDisplay.from_estimator(model, X, labels=labels)
    expected = ["0", "0.1", "0.2", "0.3", "0.4", "0.5", "0.6", "0.7", "0.8", "nan"]
    assert [text.get_text() for text in display.ax_.get_legend().get_texts()] == expected
    assert all(np.isfinite(text.get_position()).all() for text in display.ax_.texts)
    monkeypatch.setitem(sys.modules, "adjustText", None)  # so many names take long to move
    names = [f"sample {i} with a name that fills the picture, number {i}" for i in range(35)]
    for components in ((0, 1), (0,)):
        ax = ScoresDisplay.from_estimator(model, X[:35], names=names, components=components).ax_
        shown = [text.get_text() for text in (ax.texts if len(components) == 2 else ax.get_yticklabels())]
        assert len(set(shown)) == 35
        assert all(text.startswith("sample ") and "…" in text and len(text) <= 31 for text in shown)


def test_names_do_not_cover_the_points_of_a_biplot() -> None:
    pytest.importorskip("adjustText")
    table = uk_foods()
    display = BiplotDisplay.from_estimator(PCA(2).fit(table.X), table.X, names=table.countries, n_arrows=4)
    ax = display.ax_
    ax.figure.draw_without_rendering()
    radius = np.sqrt(ax.collections[0].get_sizes()[0]) / 2.0 * ax.figure.dpi / 72.0
    boxes = {text.get_text(): text.get_window_extent() for text in ax.texts}
    for name, point in zip(table.countries, ax.transData.transform(display.scores), strict=True):
        box = boxes[name]
        nearest = np.clip(point, (box.x0, box.y0), (box.x1, box.y1))
        assert np.linalg.norm(point - nearest) > radius, name
