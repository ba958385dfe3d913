"""A share of the trace: the solvers count the same pairs as the spectrum does, and no more work than for as many."""

from __future__ import annotations

import numpy as np
import pytest

from gpukpca.eigen import BlockKrylov, Dense, top_eigh
from gpukpca.eigen.krylov_state import KrylovState, KrylovTask
from gpukpca.eigen.request import NeedsDense, PairRequest
from gpukpca.exceptions import InvalidParameterError
from tests import oracle, tolerances
from tests.conftest import Namespace
from tests.each import each
from tests.operators import Operator

N = 240
STEPS = np.arange(1.0, N + 1)
# Eigenvalues, descending.
SPECTRA = {
    "fast": np.exp(-STEPS / 3.0),
    "slow": STEPS**-1.5,
    "one": np.append(1.0, np.zeros(N - 1)),
    "rank 12": np.append(np.linspace(2.0, 1.0, 12), np.zeros(N - 12)),
    "cluster at the edge": np.concatenate([np.full(30, 1.0), np.full(N - 30, 1e-3)]),
    "flat": np.linspace(1.2, 0.8, N),
}
SOLVERS = {
    "dense": lambda tol: Dense(),
    "krylov": lambda tol: BlockKrylov(tol=tol),
    "krylov or dense": lambda tol: BlockKrylov(tol=tol, or_dense=True),
}


def counted(values: np.ndarray, share: float) -> int:
    """Return the fewest eigenvalues that hold more than the share of their sum."""
    return int(np.searchsorted(np.cumsum(values) / np.sum(values), share, side="right")) + 1


@each("name", SOLVERS)
@each("of", SPECTRA)
def test_a_share_of_the_trace_is_that_of_the_spectrum(xp: Namespace, of: str, name: str) -> None:
    values = SPECTRA[of]
    A = oracle.with_spectrum(values, 3)
    solver = SOLVERS[name](tolerances.ITERATIVE_TOL * tolerances.eps("float64"))
    for share in (0.05, 0.5, 0.93):
        request = PairRequest.of_share(share, N)
        p = counted(values, share)
        eigen = top_eigh(Operator(A, xp), request, solver, rng=0)
        U = xp.host(eigen.eigenvectors)
        assert U.shape == (N, p)
        assert eigen.converged.all()
        np.testing.assert_allclose(xp.host(eigen.eigenvalues), values[:p], atol=1e-12)
        np.testing.assert_allclose(U.T @ U, np.eye(p), atol=1e-12)
        np.testing.assert_allclose(A @ U, U * values[:p], atol=1e-10)


def test_a_share_takes_as_many_passes_as_its_number_of_pairs() -> None:
    A = oracle.with_spectrum(SPECTRA["fast"], 3)
    share, number = Operator(A), Operator(A)
    found = top_eigh(share, PairRequest.of_share(0.95, N), BlockKrylov(), rng=0)
    p = found.eigenvalues.shape[0]
    assert p < 16
    assert top_eigh(number, p, BlockKrylov(block_size=20), rng=0).n_passes == found.n_passes == share.passes
    assert share.columns_multiplied == number.columns_multiplied


def test_a_block_widens_with_the_number_of_pairs() -> None:
    values = np.append(np.linspace(2.0, 1.0, 40), np.zeros(N - 40))
    A = oracle.with_spectrum(values, 5)
    found = top_eigh(Operator(A), PairRequest.of_share(0.99, N, first=4), BlockKrylov(), rng=0)
    assert found.eigenvalues.shape[0] == counted(values, 0.99)
    assert found.converged.all()
    assert found.n_passes <= 9


@pytest.mark.parametrize("takes_over", [True, False])
def test_the_dense_solver_takes_over_where_the_rate_says_so(takes_over: bool) -> None:
    """Of a flat spectrum few pairs take more passes than LAPACK is worth; of a fast one they do not."""
    n, p = 500, 3
    values = np.linspace(1.2, 0.8, n) if takes_over else np.exp(-np.arange(n) / 3.0)
    op, solver = Operator(oracle.with_spectrum(values, 3)), BlockKrylov(tol=1e-13, or_dense=True)
    found = top_eigh(op, p, solver, rng=0)
    assert found.solver.startswith("dense") == takes_over
    assert op.passes <= solver.patience(n, p, False)
    np.testing.assert_allclose(found.eigenvalues, values[:p], atol=1e-12)


@pytest.mark.parametrize("share", [0.3, 0.5])
def test_two_clusters_wider_than_a_block_are_complete(share: float) -> None:
    """The Krylov space of a block closes with as many members of each cluster as the block has columns."""
    values = np.repeat([1.0, 0.9, 0.0], [14, 20, N - 34])
    op = Operator(oracle.with_spectrum(values, 3))
    found = top_eigh(op, PairRequest.of_share(share, N // 5, first=4), BlockKrylov(), rng=0)
    assert found.converged.all()
    np.testing.assert_allclose(found.eigenvalues, values[: counted(values, share)], atol=1e-12)


def test_a_share_whose_pairs_become_fewer_after_a_probe_is_complete() -> None:
    spectrum = np.repeat([1.0, 0.5, 0.0], [60, 60, 280])
    p = counted(spectrum, 0.71)
    found = top_eigh(
        Operator(oracle.with_spectrum(spectrum, 3)), PairRequest.of_share(0.71, 80, 4), BlockKrylov(), rng=1
    )
    assert found.eigenvalues.shape == (p,)


def test_a_share_beyond_the_bound_of_its_request_is_an_error() -> None:
    op = Operator(oracle.with_spectrum(SPECTRA["flat"], 3))
    with pytest.raises(NeedsDense, match="more than 20 pairs are needed"):
        top_eigh(op, PairRequest.of_share(0.5, 20, first=8), BlockKrylov(), rng=0)


def test_an_iteration_ends_once_its_values_show_that_many_pairs_are_needed() -> None:
    values = SPECTRA["slow"]
    op, most = Operator(oracle.with_spectrum(values, 3)), 20
    assert counted(values, 0.9) > most
    with pytest.raises(NeedsDense, match="more than 20 pairs are needed"):
        top_eigh(op, PairRequest.of_share(0.9, most, first=8), BlockKrylov(), rng=0)
    assert op.passes <= 7


def test_an_iteration_ends_where_a_cluster_alone_has_more_pairs_than_the_bound() -> None:
    op = Operator(oracle.with_spectrum(np.repeat([5.0, 0.0], [100, N - 100]), 3))
    with pytest.raises(NeedsDense, match="more than 40 pairs are needed"):
        top_eigh(op, PairRequest.of_share(0.9, 40, first=16), BlockKrylov(), rng=0)
    assert op.passes <= 7


@pytest.mark.parametrize("passes", [3, 5, 9])
def test_fixed_passes_reach_a_share(passes: int) -> None:
    values = 0.9 ** np.arange(N)
    op = Operator(oracle.with_spectrum(values, 3))
    found = top_eigh(op, PairRequest.of_share(0.95, N, first=8), BlockKrylov(passes=passes), rng=0)
    assert op.passes == found.n_passes == passes
    assert float(np.sum(found.eigenvalues)) > 0.95 * float(np.sum(values))
    assert found.eigenvalues.shape[0] >= counted(values, 0.95)


class LastState:
    """The last state of an iteration."""

    state: KrylovState | None = None

    def resumed(self, task: KrylovTask) -> KrylovState | None:
        return self.state

    def record(self, state: KrylovState) -> None:
        self.state = state


@pytest.mark.parametrize("passes", [None, 12])
@pytest.mark.parametrize("requests", [(0.8, 0.95), (0.95, 0.8), (5, 0.95), (0.95, 5)])
def test_the_end_of_another_request_is_a_start(requests: tuple[float, ...], passes: int | None) -> None:
    values = 0.9 ** np.arange(N)
    op, last = Operator(oracle.with_spectrum(values, 3)), LastState()
    for size in requests:
        p = counted(values, size) if size < 1 else int(size)
        request = PairRequest.of_share(size, N, first=12) if size < 1 else PairRequest.of_count(p)
        found = top_eigh(op, request, BlockKrylov(passes=passes), rng=0, checkpointer=last)
        np.testing.assert_allclose(found.eigenvalues, values[:p], atol=1e-12)
    before = op.passes
    top_eigh(op, request, BlockKrylov(passes=passes), rng=0, checkpointer=last)
    assert op.passes == before


def test_a_number_is_a_share_of_the_trace() -> None:
    op = Operator(oracle.with_spectrum(SPECTRA["slow"], 3))
    for solver in ("dense", "randomized"):
        assert len(top_eigh(op, 0.7, solver, rng=0).eigenvalues) == counted(SPECTRA["slow"], 0.7)
    for wrong in (0.0, 1.0, -0.5, float("nan")):
        with pytest.raises(InvalidParameterError, match="a share of the trace below 1"):
            top_eigh(op, wrong)


def test_a_request_counts() -> None:
    assert PairRequest.of_share(0.5, 5).count(np.zeros(3), 0.0) == 1
    assert PairRequest.of_count(5).count(np.ones(3), 3.0) is None
