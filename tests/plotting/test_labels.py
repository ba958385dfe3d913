"""Labels of every kind are groups with a legend, or a scale with a color bar, and none is cut off."""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta, timezone
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gpukpca import PCA
from gpukpca.plotting import ContoursDisplay, ScoresDisplay, SpectrumDisplay
from gpukpca.plotting.labels import ColorScale, Groups, read_labels

pytest.importorskip("matplotlib")
DAYS = [date(2024, 1, 31) + timedelta(k) for k in range(40)]


def test_dates_of_every_kind_are_a_scale() -> None:
    days = np.array(DAYS, dtype="datetime64[D]")
    for labels in (
        DAYS,
        days,
        days.astype("datetime64[ns]"),
        list(days),
        [str(day) for day in DAYS],
        [f"{day} 00:00:00" for day in DAYS],
        [f"{day}T00:00Z" for day in DAYS],
        [datetime(day.year, day.month, day.day) for day in DAYS],
        [datetime(day.year, day.month, day.day, tzinfo=timezone(timedelta(hours=9))) for day in DAYS],
        list(pd.DatetimeIndex(days)),
        pd.Series(pd.DatetimeIndex(days)),
        pd.Series(pd.DatetimeIndex(days).tz_localize("Europe/Berlin")),
    ):
        read = read_labels(labels, 40)
        assert isinstance(read, ColorScale)
        assert read.is_dates
        np.testing.assert_array_equal(read.values, days.astype(float))
    missing = read_labels(pd.Series(pd.DatetimeIndex([None, *days[1:]])), 40)
    assert isinstance(missing, ColorScale)
    assert np.flatnonzero(np.isnan(missing.values)).tolist() == [0]


def test_a_color_bar_of_dates_leaves_room_to_the_plane(rng: np.random.Generator) -> None:
    scores = rng.standard_normal((40, 2))
    for labels in (DAYS, [str(day) for day in DAYS], DAYS[:13] + [None] * 27):
        display = ScoresDisplay(scores, labels=labels).plot()
        display.figure_.draw_without_rendering()
        ax, bar = display.figure_.axes
        assert ax.bbox.width > 0.6 * display.figure_.bbox.width
        texts = [text.get_text() for text in bar.get_yticklabels()]
        assert "2024-02-01" in texts
        assert len(texts) < 10


def test_ticks_of_dates_are_whole_and_clear_of_the_label(rng: np.random.Generator) -> None:
    units = {
        "D": r"2024-0[12]-\d\d",  # of two months
        "h": r"2024-01-0\d\n\d\d:00",
        "m": r"2024-01-01\n0\d:\d\d",
        "s": r"2024-01-01\n00:0\d:\d\d",
        "ms": r"2024-01-01\n00:00:00\.\d{6}",
    }
    scales = [(np.datetime64("2024-01-01") + np.arange(60).astype(f"m8[{unit}]"), form) for unit, form in units.items()]
    for labels, form in [*scales, (np.linspace(15.0, 21.5, 60), r"\d\d")]:
        figure = ScoresDisplay(rng.standard_normal((60, 2)), labels=labels).plot().figure_
        figure.draw_without_rendering()
        bar = figure.axes[1]
        low, high = bar.get_ylim()
        ticks = [tick.label2 for tick in bar.yaxis.get_major_ticks() if low <= tick.get_loc() <= high]
        assert len(ticks) >= 4
        assert all(re.fullmatch(form, tick.get_text()) for tick in ticks), [tick.get_text() for tick in ticks]
        assert not bar.yaxis.get_offset_text().get_text()
        boxes = sorted((tick.get_window_extent() for tick in ticks), key=lambda box: box.y0)
        assert all(below.y1 < above.y0 for below, above in pairwise(boxes))
        gap = bar.yaxis.label.get_window_extent().x0 - max(box.x1 for box in boxes)
        assert gap > 3.0 * figure.dpi / 72.0


@pytest.mark.parametrize(
    ("labels", "names", "codes"),
    [
        ([3, 1, 3], ["1", "3"], [1, 0, 1]),
        ([True, False, True], ["False", "True"], [1, 0, 1]),
        ([0.5, np.nan, 0.25], ["0.25", "0.5", "no label"], [1, 2, 0]),
        (["b", None, "a"], ["a", "b", "no label"], [1, 2, 0]),
        (["b", "", "a"], ["a", "b", "no label"], [1, 2, 0]),
        (np.array([2, None, 1], object), ["1", "2", "no label"], [1, 2, 0]),
        ([None, None, None], ["no label"], [0, 0, 0]),
        (np.array(["a", 2, None], object), ["2", "a", "no label"], [1, 0, 2]),
        (DAYS[:3][::-1], ["2024-01-31", "2024-02-01", "2024-02-02"], [2, 1, 0]),
        (["2024-02", "2024-01", "x"], ["2024-01", "2024-02", "x"], [1, 0, 2]),
        (pd.Series([1, None, 2], dtype="Int64"), ["1", "2", "no label"], [0, 2, 1]),
        (pd.Series(["b", pd.NA, "a"], dtype="string"), ["a", "b", "no label"], [1, 2, 0]),
        (pd.Categorical(["mid", "low", "mid"], ["low", "mid", "high"]), ["low", "mid"], [1, 0, 1]),
        (pd.Series(["b", None, "a"], dtype=pd.CategoricalDtype(["b", "a"])), ["b", "a", "no label"], [0, 2, 1]),
        (pd.CategoricalIndex([20, 10, 20], [20, 10]), ["20", "10"], [0, 1, 0]),
        (pd.Series(pd.PeriodIndex(["2024-02", "2024-01", "2024-02"], freq="M")), ["2024-01", "2024-02"], [1, 0, 1]),
    ],
)
def test_labels_of_every_kind_are_groups(labels: Any, names: list[str], codes: list[int]) -> None:
    read = read_labels(labels, 3)
    assert isinstance(read, Groups)
    ax = ScoresDisplay(np.eye(3), labels=labels).plot(components=(0,)).ax_
    assert [text.get_text() for text in ax.get_yticklabels()] == names
    assert read.codes.tolist() == codes


def test_many_numbers_are_a_scale_and_many_names_and_categories_are_groups() -> None:
    for labels in (np.arange(13), np.arange(13.0), [*range(13)], np.array([*range(13)], object)):
        assert isinstance(read_labels(labels, 13), ColorScale)
    for labels in (pd.MultiIndex.from_product([range(13), ["a"]]), [*range(12), "a"]):
        assert isinstance(read_labels(labels, 13), Groups)
    for labels in (pd.Categorical(np.arange(13)), [f"2024-13-{k:02}" for k in range(13)], [f"{k}" for k in range(13)]):
        assert isinstance(read_labels(labels, 13), Groups)


def test_no_legend_is_cut_off(rng: np.random.Generator) -> None:
    """Neither in figures of the library nor in axes of others, which no layout engine resizes."""
    from matplotlib.figure import Figure

    scores = rng.standard_normal((300, 2))
    short, long = (
        [f"{name} {k % 25}" for k in range(300)] for name in ("group", "a name too long for a legend, number")
    )
    figures = [SpectrumDisplay([0.5, 0.3]).plot(Figure(figsize=(w, 2.5)).subplots()).figure_ for w in (2.2, 6.0)]
    figures.append(
        SpectrumDisplay([0.5, 0.3]).plot(Figure(figsize=(2.2, 2.5), layout="constrained").subplots()).figure_
    )
    for labels in (short, long):
        figures.append(ContoursDisplay.from_estimator(PCA(2).fit(scores), scores, labels=labels).figure_)
        for ax in (None, Figure().subplots(), Figure(figsize=(3.0, 2.5)).subplots(), Figure().subplots(1, 2)[1]):
            figures.append(ScoresDisplay(scores, labels=labels).plot(ax).figure_)
    for figure in figures:
        figure.draw_without_rendering()
        legends = [*figure.legends, *(ax.get_legend() for ax in figure.axes if ax.get_legend() is not None)]
        (box,) = (legend.get_window_extent() for legend in legends)
        assert figure.bbox.x0 - 1 <= box.x0 < box.x1 <= figure.bbox.x1 + 1
        assert figure.bbox.y0 - 1 <= box.y0 < box.y1 <= figure.bbox.y1 + 1
        assert all(ax.bbox.width > 0.1 * figure.bbox.width for ax in figure.axes if ax.get_xlabel() == "component 1")
