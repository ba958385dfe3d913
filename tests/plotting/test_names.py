"""Names of samples, classes and features: what is written, and where."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpukpca import PCA
from gpukpca.datasets import uk_foods
from gpukpca.plotting import BiplotDisplay, ScoresDisplay, plot_fit
from gpukpca.plotting.labels import UNKNOWN, shown_names
from tests.each import each
from tests.plotting.pixels import png

Text = pytest.importorskip("matplotlib.text").Text


def overlaps(ax: Any) -> int:
    """Return the number of pairs of texts whose boxes overlap."""
    ax.figure.figure.draw_without_rendering()
    # The box of the text alone: that of an annotation includes its arrow.
    boxes = [Text.get_window_extent(text) for text in ax.texts if text.get_text()]
    return sum(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


def written(ax: Any, names: list[str]) -> list[str]:
    return [text.get_text() for text in ax.texts if text.get_text() in names]


@each("n", [1, 9, 41, 150, 5000])
def test_as_many_names_are_written_as_have_room_and_a_line_says_how_many(rng: np.random.Generator, n: int) -> None:
    scores, names = rng.standard_normal((n, 2)), [f"row {i}" for i in range(n)]
    ax = ScoresDisplay(scores, names=names).plot().ax_
    found = written(ax, names)
    assert len(found) >= min(n, 38)
    rest = {text.get_text() for text in ax.texts} - {*names}
    assert rest == (set() if len(found) == n else {f"{len(found)} of {n} names drawn"})
    assert overlaps(ax) == 0
    farthest = int(
        np.argmax(np.linalg.norm(ax.transData.transform(scores) - ax.transData.transform(scores).mean(0), axis=1))
    )
    assert names[farthest] in found
    if n == 41:
        again = ScoresDisplay(scores, names=names).plot().ax_
        assert [text.get_position() for text in again.texts] == [text.get_position() for text in ax.texts]


def test_names_cover_no_points_and_stay_inside(rng: np.random.Generator) -> None:
    from matplotlib.figure import Figure

    scores, names = rng.standard_normal((60, 2)), [f"sample {i}" for i in range(60)]
    small = Figure(figsize=(2.2, 2.0)).subplots()
    for ax in (ScoresDisplay(scores, names=names).plot().ax_, ScoresDisplay(scores, names=names).plot(small).ax_):
        ax.figure.draw_without_rendering()
        points = ax.transData.transform(scores)
        for text in ax.texts:
            box = Text.get_window_extent(text)
            if text.get_text() in names:
                assert not np.any(np.all((points > box.min) & (points < box.max), axis=1)), text.get_text()
                assert ax.bbox.contains(*box.min)
                assert ax.bbox.contains(*box.max)
            else:  # the line below the plane
                assert box.y1 < ax.bbox.y0
                assert box.y0 >= -1.0


def test_the_line_of_one_component_has_names_where_they_have_room(rng: np.random.Generator) -> None:
    scores = rng.standard_normal((200, 1))
    ax = ScoresDisplay(scores, names=[f"row {i}" for i in range(200)]).plot().ax_
    assert 20 < len(ax.texts) < 200
    assert overlaps(ax) == 0
    ax = ScoresDisplay(scores, labels=[f"group {i % 60:02}" for i in range(200)]).plot().ax_
    ticks = [text.get_text() for text in ax.get_yticklabels()]
    assert ticks == [f"group {i:02}" for i in range(0, 60, 2)]
    assert [text.get_text() for text in ax.texts] == ["30 of 60 names drawn"]


def test_names_that_begin_alike_keep_what_differs() -> None:
    for names, longest in (
        ([f"experiment_of_2020_in_the_big_hall_sample_{i:03}_measured_twice_by_hand" for i in range(120)], 32),
        ([f"{i} is a number at the beginning of a long name" for i in range(120)], 30),
        ([f"a long name that says its number at the end {i}" for i in range(120)], 30),
        ([f"{a * 40}{i:03}{b * 40}" for a in "xyz" for b in "uvw" for i in range(9)], 32),
        (["short", "shorter", "short"], 30),
    ):
        shown = shown_names(names)
        assert len({*shown}) == len({*names})
        assert max(map(len, shown)) <= longest
    assert shown_names([0.1 + 0.2, np.float32(0.5), 3]) == ["0.3", "0.5", "3"]


def test_names_are_not_read_as_mathematics() -> None:
    names = ["$a_{", "x^2$ $", "_hidden"]
    png(plot_fit(PCA(2).fit(np.eye(3)), np.eye(3), labels=names, names=names, title="$_{").figure)


def test_names_of_classes_are_short_and_rows_without_one_are_gray(rng: np.random.Generator) -> None:
    labels = np.where(np.arange(60) == 2, np.nan, np.arange(60) % 9 * 0.1)
    ax = ScoresDisplay(rng.standard_normal((60, 3)), labels=labels).plot().ax_
    expected = ["0", "0.1", "0.2", "0.3", "0.4", "0.5", "0.6", "0.7", "0.8", "no label"]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == expected
    assert ax.get_legend().legend_handles[-1].get_color() == UNKNOWN


def test_names_do_not_cover_the_points_of_a_biplot() -> None:
    table = uk_foods()
    display = BiplotDisplay.from_estimator(PCA(2).fit(table.X), table.X, names=table.countries, n_arrows=4)
    ax = display.ax_
    ax.figure.draw_without_rendering()
    radius = np.sqrt(ax.collections[0].get_sizes()[0]) / 2.0 * ax.figure.dpi / 72.0
    boxes = {text.get_text(): Text.get_window_extent(text) for text in ax.texts}
    for name, point in zip(table.countries, ax.transData.transform(display.scores), strict=True):
        box = boxes[name]
        nearest = np.clip(point, (box.x0, box.y0), (box.x1, box.y1))
        assert np.linalg.norm(point - nearest) > radius, name


@pytest.mark.filterwarnings("error")
def test_a_biplot_without_arrows_has_no_names_of_features() -> None:
    table = uk_foods()
    display = BiplotDisplay.from_estimator(PCA(2).fit(table.X), table.X).plot(n_arrows=0)
    assert [text for text in display.ax_.texts if text.get_text()] == []
