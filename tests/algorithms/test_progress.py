"""Progress: the time left of an iteration, the line of a pass, and the log."""

from __future__ import annotations

import contextlib
import io
import logging
import re
from pathlib import Path

import numpy as np
import pytest

from gpukpca import PCA, IncrementalPCA, KernelPCA, LocalPCA, ProbabilisticPCA, Progress
from gpukpca.algorithms import fit_kernel_pca
from gpukpca.algorithms.progress import ETAListener, listener_from
from gpukpca.kernels import RBF
from tests.long_fits import SETTINGS, rows

X = rows()


def times_left(*steps: tuple[float, Progress]) -> list[float | None]:
    """Return the seconds left that every event states, each at its time."""
    now, left = [0.0], []
    listener = ETAListener(lambda event: left.append(event.seconds_left), lambda: now[0])
    for now[0], event in steps:
        listener(event)
    return left


def a_pass(done: int, residual: float | None, total: int = 300) -> Progress:
    return Progress("pass", "", done, total, residual, 1e-8)


def tiles(done: int) -> Progress:
    return Progress("tiles", "", done, 4)


def test_time_left_of_the_first_pass_follows_its_tiles() -> None:
    assert times_left((0.0, tiles(0)), (1.0, tiles(1)), (3.0, tiles(3))) == [None, 3.0, 1.0]


def test_time_left_follows_the_decay_of_the_residual() -> None:
    """Ten times less a pass of two seconds, four powers of ten to go; within a pass it runs down."""
    left = times_left(
        *((10.0, a_pass(1, None)), (12.0, a_pass(2, 1e-2)), (14.0, a_pass(3, 1e-3)), (16.0, a_pass(4, 1e-4))),
        *((17.0, tiles(2)), (18.0, a_pass(5, 1e-9))),
    )
    assert left == [None, None, 10.0, 8.0, 7.0, 0.0]


def test_time_left_is_that_of_the_whole_fit() -> None:
    """The plan and the slower of the two estimates count until the residual falls; then its decay alone."""
    plan = Progress("plan", "", seconds_left=20.0)
    left = times_left(
        *((1.0, plan), (3.0, tiles(2)), (5.0, a_pass(1, None)), (7.0, tiles(2)), (9.0, a_pass(2, 1e-2))),
        *((13.0, a_pass(3, 1e-5)), (15.0, a_pass(4, 1e-9))),
    )
    assert left == [20.0, 18.0, 16.0, 14.0, 12.0, 4.0, 0.0]
    # A slow pass counts where it is more than the plan; what the plan did not foresee is unknown.
    assert times_left((0.0, plan), (10.0, tiles(1)), (40.0, a_pass(1, None)))[1:] == [30.0, None]
    landmarks = [Progress("rank", "", done, 300) for done in (100, 300)]
    assert times_left((0.0, plan), (5.0, landmarks[0]), (12.0, landmarks[1])) == [20.0, 15.0, 8.0]
    # A product long after the first, such as that of the residuals after LAPACK, is timed from its first tile.
    late = [(0.0, tiles(0)), (4.0, tiles(4)), (90.0, tiles(1)), (91.0, tiles(2)), (93.0, tiles(4))]
    assert times_left(*late) == [None, 0.0, None, 2.0, 0.0]
    # What a fit that resumes saves, the plan does not know.
    assert times_left((0.0, plan), (1.0, Progress("resumed", "", 7)), (2.0, tiles(1)))[1:] == [None, 3.0]


def test_time_left_is_that_of_equal_passes() -> None:
    """The plan expects three passes in 80 s; each takes 4 s, until the decay of the residual says more."""
    plan = Progress("plan", "", total=3, seconds_left=80.0)
    left = times_left(
        *((0.0, plan), (1.0, tiles(1)), (3.0, tiles(3)), (4.0, a_pass(1, None)), (5.0, tiles(1))),
        *((8.0, a_pass(2, 1e-3)), (12.0, a_pass(3, 1e-7)), (13.0, tiles(1)), (16.0, a_pass(4, 1e-9))),
    )
    assert left == [80.0, 11.0, 9.0, 8.0, 7.0, 4.0, 4.0, 3.0, 0.0]
    resumed = (0.0, plan), (1.0, Progress("resumed", "", 2)), (2.0, tiles(1)), (5.0, a_pass(3, None))
    assert times_left(*resumed)[1:] == [None, 3.0, None]


def test_a_pass_has_a_line_in_thirty_seconds(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tiles of 10 s, and passes of 100 s: a line after each 30 s without one."""
    now = [0.0]
    monkeypatch.setattr("gpukpca.algorithms.progress.Pace.clock", lambda pace: now[0])
    listener = ETAListener(listener_from(1), lambda: now[0])
    listener(Progress("plan", "the plan", total=3))
    for number in (1, 2):
        for done in range(1, 11):
            now[0] += 10.0
            listener(Progress("tiles", f"{done} of 10 tiles", done, 10))
        listener(Progress("pass", f"pass {number}", number, 300, None, 1e-5))
    lines = [line.split(" ", 2)[2] for line in capsys.readouterr().err.splitlines()]
    assert lines == [
        "the plan",
        "3 of 10 tiles, about 70 s left of this pass, 4 min of the fit",
        "6 of 10 tiles, about 40 s left of this pass, 4 min of the fit",
        "9 of 10 tiles, about 10 s left of this pass, 4 min of the fit",
        "pass 1, about 3 min left",
        "3 of 10 tiles, about 70 s left of this pass, 3 min of the fit",
        "6 of 10 tiles, about 40 s left of this pass, 2 min of the fit",
        "9 of 10 tiles, about 10 s left of this pass, 2 min of the fit",
        "pass 2, about 2 min left",
    ]


def test_passes_over_rows_in_a_file_have_lines_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With no time between two lines, so that every piece of a pass has one."""
    monkeypatch.setattr("gpukpca.algorithms.progress.SECONDS_A_LINE", 0.0)
    np.save(tmp_path / "rows.npy", rows(1500, 400))
    settings = {"kernel": "rbf", "gamma": 1e-3, "eigen_solver": "randomized", "random_state": 0, "verbose": 1}
    for mode, limit in ((None, None), ("r", "12MB")):
        printed = io.StringIO()
        with contextlib.redirect_stderr(printed):
            model = KernelPCA(2, **settings, memory_limit=limit).fit(np.load(tmp_path / "rows.npy", mmap_mode=mode))
        assert (model.plan_.bytes_read > 0) is (mode == "r")
        within = [line for line in printed.getvalue().splitlines() if " tiles, about " in line]
        assert len(within) >= model.n_passes_


def test_time_left_of_a_resumed_fit_counts_its_own_passes_only() -> None:
    left = times_left(
        *((5.0, Progress("resumed", "", 7)), (6.0, tiles(1)), (9.0, a_pass(8, 1e-5))),
        *((10.0, tiles(1)), (11.0, a_pass(9, 1e-6)), (13.0, a_pass(10, 1e-7, total=10))),
    )
    assert left == [None, 3.0, None, None, 4.0, 0.0]


def test_time_left_is_unknown_where_the_residual_does_not_fall() -> None:
    left = times_left((1.0, a_pass(1, 1e-3)), (2.0, a_pass(2, 2e-3)), (3.0, a_pass(3, 1e-4)), (4.0, a_pass(1, None)))
    assert left[:2] == [None, None]
    assert left[2] is not None
    assert left[3] is None


def test_time_left_of_em_follows_the_lowest_distance_of_half_of_its_steps() -> None:
    """Ten times less in two steps of a second; moves and leaps upwards change nothing but the time."""

    def step(done: int, distance: float | None, total: int = 300) -> Progress:
        return Progress("step", "", done, total, distance, 1e-6)

    distances = [None, 1e-1, None, 1e-2, None, 5e-2, None, 1e-3, None, 1e-4, None, 1e-7]
    left = times_left(*((float(done + 1), step(done, distance)) for done, distance in enumerate(distances)))
    # By 10 in 2 steps, in 4 with the leap, not at all from step 3 to 5; by 10 in 4 from 3, by 100 in 6 and in 4.
    assert left == [None, None, None, 8.0, 8.0, 16.0, None, 12.0, 12.0, 6.0, 4.0, 0.0]
    assert times_left((1.0, step(1, 1e-1)), (2.0, step(3, 1e-2, total=5)))[-1] == 2.0
    # A second iteration does not go on from the first.
    again = times_left(*((float(k), step(done, 10.0**-done)) for k, done in enumerate((1, 2, 1, 2))))
    assert again == [None, 4.0, None, 4.0]


def test_a_line_a_pass_states_the_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    KernelPCA(**SETTINGS, verbose=1).fit(X)
    lines = [line for line in capsys.readouterr().err.splitlines() if " pass " in line]
    assert any("largest relative residual" in line and line.endswith(" s left") for line in lines)


# -- the log -----------------------------------------------------------------------------------------------------------

PASS = r"pass \d+(, largest relative residual [\d.e-]+ \(stops at [\d.e-]+\))?(, about \d+ s left)? \([\d.e-]+ s\)"


def test_the_log_has_a_line_a_pass_with_its_seconds(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "gpukpca"):
        passes = KernelPCA(**SETTINGS, checkpoint=tmp_path).fit(X).n_passes_
        KernelPCA(**SETTINGS, checkpoint=tmp_path).fit(X)
    assert {(record.name, record.levelname) for record in caplog.records} == {("gpukpca", "INFO")}
    assert sum(re.fullmatch(PASS, text) is not None for text in caplog.messages) == passes
    for text in (f"checkpoint of pass {passes} written", f"resumed at pass {passes} from {tmp_path}", "block Krylov"):
        assert sum(text in message for message in caplog.messages) >= 1


FITS = {
    "KernelPCA": lambda: KernelPCA(**SETTINGS).fit(X),
    "PCA": lambda: PCA(2, svd_solver="randomized").fit(rows(300, 60)),
    "IncrementalPCA": lambda: IncrementalPCA(2, batch_size=50).fit(X),
    "LocalPCA": lambda: LocalPCA(2, random_state=0).fit(X),
    "ProbabilisticPCA": lambda: ProbabilisticPCA(2, solver="em").fit(X),
    "fit_kernel_pca": lambda: fit_kernel_pca(X, RBF(gamma=0.2), n_components=2),
}


@pytest.mark.parametrize("name", FITS)
def test_every_fit_is_logged_where_logging_is_configured(
    name: str, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    FITS[name]()
    assert not caplog.records
    with caplog.at_level(logging.INFO, "gpukpca"):
        FITS[name]()
    assert caplog.records
    assert capsys.readouterr() == ("", "")


def test_tiles_are_logged_for_debugging_only_and_a_listener_gets_all(caplog: pytest.LogCaptureFixture) -> None:
    events: list[Progress] = []
    with caplog.at_level(logging.DEBUG, "gpukpca"):
        KernelPCA(**SETTINGS, verbose=events.append).fit(X)
        assert listener_from(listener_from(print)) == listener_from(print)
    tiled = [record for record in caplog.records if "tiles" in record.message and "upper" not in record.message]
    assert {record.levelname for record in tiled} == {"DEBUG"}
    assert len(caplog.records) == len(events)
    assert listener_from(0) is None
