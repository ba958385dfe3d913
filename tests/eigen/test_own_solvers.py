"""Solvers answer for themselves: a subclass of `Solver` with `solve` alone gets its defaults."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from gpukpca import KernelPCA
from gpukpca.backend.work import Work
from gpukpca.eigen import BlockKrylov, Dense, EigenResult, Nystrom, Solver, pivoted_cholesky, top_eigh
from gpukpca.exceptions import InvalidParameterError
from gpukpca.gram import CenteredGram, DenseGram, SymmetricOperator


class Minimal(Solver):
    def solve(self, op: Any, p: int, rng: Any, report: Any = None) -> EigenResult:
        return Dense().solve(op, p, rng)


class Roomy(Minimal):
    name = "roomy"

    def workspace_bytes(self, n: int, p: int, item_size: int, on_gpu: bool) -> int:
        return 50 * n * p * item_size


def test_a_class_with_solve_alone_gets_the_defaults():
    solver = Minimal()
    assert solver.name == "Minimal"
    assert (solver.width(100, 7, False), solver.workspace_bytes(100, 7, 8, False)) == (7, 16 * 7 * 100 * 8)
    assert not solver.grows_with_p
    assert solver.work(100, 7, Work(), 8, False) is None


def test_members_that_a_class_has_win_over_the_defaults():
    solver = Roomy()
    assert solver.name == "roomy"
    assert solver.workspace_bytes(10, 2, 8, False) == 8000


def test_a_solver_has_few_members_that_a_plan_or_a_fit_reads():
    members = {"grows_with_p", "name", "solve", "solve_request", "width", "work", "workspace_bytes"}
    assert {name for name in dir(Solver) if not name.startswith("_")} == members


def test_an_estimator_fits_with_a_solver_of_another_class():
    X = np.random.default_rng(0).standard_normal((80, 4))
    own, roomy, dense = (
        KernelPCA(3, kernel="rbf", eigen_solver=solver, gram="tiled").fit(X) for solver in (Minimal(), Roomy(), "dense")
    )
    assert isinstance(own.plan_.solver, Minimal)
    assert "solver    Minimal for 3 components" in str(own.plan_)
    assert roomy.plan_.predicted_bytes - own.plan_.predicted_bytes == (50 - 16) * 80 * 3 * 8  # for the default
    np.testing.assert_array_equal(own.eigenvalues_, dense.eigenvalues_)


def test_classes_without_the_base_class_or_a_method_are_errors_that_name_it():
    class Alone:  # with a dtype it would be an operator of another library
        shape, like = (3, 3), np.empty(0)

        def __matmul__(self, V: Any) -> Any:
            return V

        def solve(self, op: Any, p: int, rng: Any, report: Any = None) -> EigenResult:
            return Dense().solve(op, p, rng)

    class Bare(SymmetricOperator):
        shape, dtype, like = (3, 3), np.dtype("float64"), np.empty(0)

    class Placeless(SymmetricOperator):
        shape = (3, 3)

    class Lazy(Solver):
        pass

    op, X = DenseGram(np.eye(3)), np.eye(5)
    for call, error, text in (
        (lambda: top_eigh(Alone(), 1), InvalidParameterError, r"got Alone;.*based on gpukpca\.gram\.SymmetricOperator"),
        (lambda: CenteredGram(Alone()), InvalidParameterError, "got Alone"),
        (lambda: pivoted_cholesky(Alone(), 1), InvalidParameterError, "got Alone"),
        (lambda: top_eigh(Placeless(), 1), InvalidParameterError, "Placeless must set dtype, like"),
        (lambda: top_eigh(Bare(), 1), NotImplementedError, r"Bare must define to_dense\(\)"),
        (lambda: pivoted_cholesky(Bare(), 1, rng=0), NotImplementedError, r"Bare must define diagonal\(\)"),
        (lambda: top_eigh(op, 1, Alone()), InvalidParameterError, r"based on gpukpca\.eigen\.Solver"),
        (lambda: KernelPCA(1, eigen_solver=Alone()).fit(X), InvalidParameterError, r"based on gpukpca\.eigen\.Solver"),
        (Lazy, TypeError, "abstract.*solve"),
    ):
        with pytest.raises(error, match=text):
            call()


@pytest.mark.parametrize(("n", "p", "is_iteration"), [(50, 10, True), (50, 11, False)])
def test_block_krylov_leaves_many_components_to_the_dense_solver(n, p, is_iteration):
    solver = BlockKrylov()
    assert solver.iterates(n, p) == is_iteration
    assert (solver.with_small_basis(n, p) is not None) == is_iteration
    assert top_eigh(DenseGram(np.diag(np.arange(1.0, n + 1.0))), p, solver, rng=0).solver.startswith(
        "block Krylov" if is_iteration else "dense"
    )


def test_a_plan_changes_no_size_that_the_user_chose():
    for solver in (BlockKrylov(block_size=12), BlockKrylov(max_blocks=5), BlockKrylov(passes=3)):
        assert solver.with_wide_block(1000, 3, False) is None
    wide = BlockKrylov().with_wide_block(1000, 3, False)
    assert wide is not None
    assert wide.width(1000, 3, False) > BlockKrylov().width(1000, 3, False)


def test_landmarks_have_a_name_for_the_plan():
    X = np.zeros((60, 2))
    for solver, name in {
        Nystrom(rank=40): "Nyström (rpcholesky landmarks, rank 40)",
        Nystrom(landmarks=[5, 3, 5]): "Nyström (chosen landmarks, rank 2)",
    }.items():
        assert KernelPCA(2, kernel="rbf", eigen_solver=solver).plan(X).solver_name == name


@dataclass(frozen=True)
class Drawing(Dense):
    drawn: list[float] = field(default_factory=list)

    def solve(self, op: Any, p: int, rng: Any, report: Any = None) -> EigenResult:
        self.drawn.append(float(rng.random()))
        return super().solve(op, p, rng, report)


def test_a_subclass_of_dense_draws_from_the_seed_of_its_call():
    solver, op = Drawing(), DenseGram(np.eye(3))
    for seed in (1, 1, 2):
        top_eigh(op, np.int64(2), solver, rng=seed)
    assert solver.drawn[0] == solver.drawn[1] == np.random.default_rng(1).random()
    assert solver.drawn[2] == np.random.default_rng(2).random()


@pytest.mark.parametrize("rng", ["x", -1, 3.5])
def test_a_wrong_seed_is_an_error_where_nothing_is_drawn(rng):
    with pytest.raises(InvalidParameterError, match="rng="):
        top_eigh(DenseGram(np.eye(3)), 1, "dense", rng=rng)


def test_a_solver_that_returns_no_result_is_named():
    solver = type("Silent", (Solver,), {"solve": lambda self, op, p, rng, report=None: None})()
    with pytest.raises(InvalidParameterError, match="solver Silent returned NoneType; it must return"):
        KernelPCA(2, kernel="rbf", eigen_solver=solver).fit(np.random.default_rng(0).standard_normal((30, 3)))
