"""The choice and the call of a solver."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Literal, get_args

import numpy as np

from gpukpca._rules import CALLABLE, NONE, one_of
from gpukpca._typing import HasProducts, PassReport, SymmetricOperator
from gpukpca.backend.device import is_on_gpu, on_its_device, synchronize
from gpukpca.backend.external import as_operator
from gpukpca.backend.random import Randomness, generator
from gpukpca.eigen.block_krylov import DENSE_SHARE, BlockKrylov
from gpukpca.eigen.dense import Dense
from gpukpca.eigen.krylov_state import Checkpointer
from gpukpca.eigen.request import PairRequest
from gpukpca.eigen.result import EigenResult
from gpukpca.eigen.solver import Solver, normalized
from gpukpca.exceptions import InvalidParameterError

# Up to this n LAPACK on the whole matrix is faster (measured on two cores).
DENSE_UP_TO_CPU = 400
# The same for cuSOLVER, and the share of n from which it is faster: a few thousand columns of a basis take it as long
# as all of n = 10 000, one or two seconds. Beyond an n of this its reduction is bound by memory. Estimated; not yet
# measured on a card.
DENSE_UP_TO_GPU, DENSE_SHARE_GPU, LARGE_GPU = 1000, 40, 20_000

# For solvers that draw nothing: a new generator takes 0.02 ms.
UNUSED = generator(0)

REPORT = one_of(NONE, CALLABLE)

SolverName = Literal["auto", "dense", "randomized", "arpack"]
SOLVER_NAMES = get_args(SolverName)


def choose_solver(n: int, p: int, *, on_gpu: bool = False, tol: float = 0.0) -> Dense | BlockKrylov:
    """Return the solver that "auto" means for p pairs of an operator (n, n); never an approximation.

    It is dense for n up to 400 (1000 on a GPU) or p > n/12 (n/40 on a GPU up to n = 20 000), else block Krylov.
    """
    dense = n <= (DENSE_UP_TO_GPU if on_gpu else DENSE_UP_TO_CPU) or p > most_by_passes(n, on_gpu)
    return Dense(tol=tol) if dense else BlockKrylov(tol=tol)


def most_by_passes(n: int, on_gpu: bool) -> int:
    """Return the most of n components for which passes over the matrix are faster than the dense solver."""
    return n // (DENSE_SHARE_GPU if on_gpu and n <= LARGE_GPU else DENSE_SHARE)


@on_its_device
def top_eigh(
    op: SymmetricOperator | HasProducts,
    p: float | PairRequest,
    solver: SolverName | Solver = "auto",
    *,
    rng: Randomness | np.random.Generator | int | None = None,
    report: PassReport | None = None,
    checkpointer: Checkpointer | None = None,
) -> EigenResult:
    """Compute the largest `p` eigenpairs of a symmetric operator, with a residual for each.

    Parameters
    ----------
    op : gpukpca.gram.SymmetricOperator, sparse matrix, LinearOperator or object with shape, dtype and @, shape (n, n)
        Usually a `CenteredGram`. Of a user-defined class based on `SymmetricOperator` symmetry is trusted; of an object
        of another library it is checked, by entries or by a product with two vectors. Without a method `diagonal` such
        an object has no shares of the trace. Its products are NumPy arrays, with a class of CuPy those of CuPy, else
        those of the library of its attribute `like`, an array of size 0.
    p : int, or float in (0, 1)
        Number of eigenpairs, ``1 <= p <= n``, or a share of the trace: the fewest pairs that hold more than it.
    solver : "auto", "dense", "randomized", "arpack" or a Solver
        "randomized" and "arpack" both mean `BlockKrylov`; "arpack" goes as far as rounding allows. A user-defined
        solver is based on `Solver`.
    rng : numpy.random.Generator, int or None
        Source of the random start; an int is a seed.
    report : callable, optional
        Called after every pass with (passes, most passes, largest relative residual or None, tolerance).
    checkpointer : gpukpca.eigen.krylov_state.Checkpointer, optional
        Takes the state of `BlockKrylov` after every pass, and returns one to resume from; other solvers have none.

    Returns
    -------
    EigenResult
        Its `eigenvalues` (p,) descend by value (not by modulus), in the units of k(x, x); divide by n - 1 for
        variances. Its `eigenvectors` (n, p) have orthonormal columns and fixed signs. Its `residual_norms` (p,) are
        ``||op u - lambda u||_2``; each eigenvalue lies within its residual of a true one.

    Raises
    ------
    InvalidParameterError
        p out of range, an unknown solver, an object that is no operator or not symmetric, or a share of a trace that is
        not known.
    ConvergenceError
        Products are not finite, the dense solver failed, or an iteration needs more pairs than a request allows.

    See Also
    --------
    gpukpca.gram.CenteredGram : The operator of kernel PCA.

    Notes
    -----
    Work is O(n^3) for `Dense`, and (number of passes) x (one product with a block) for `BlockKrylov`. Residuals above
    the tolerance are flagged in `EigenResult.converged`; estimators turn them into a warning.

    Examples
    --------
    >>> import numpy as np
    >>> from gpukpca.eigen import top_eigh
    >>> from gpukpca.gram import CenteredGram, TiledGram
    >>> from gpukpca.kernels import RBF
    >>> X = np.random.default_rng(0).standard_normal((500, 3))
    >>> result = top_eigh(CenteredGram(TiledGram(RBF(gamma=0.1), X)), 3, rng=0)
    >>> result.eigenvectors.shape, bool(result.converged.all())
    ((500, 3), True)

    An operator of SciPy:

    >>> from scipy.sparse import diags_array
    >>> top_eigh(diags_array(np.arange(1000.0)), 2, rng=0).eigenvalues.round(6)
    array([999., 998.])
    """
    op = as_operator(op)
    n = op.shape[0]
    if isinstance(p, float) and 0.0 < p < 1.0:
        p = PairRequest.of_share(p, n)
    max_count = p.max_count if isinstance(p, PairRequest) else p
    if isinstance(max_count, bool) or not isinstance(max_count, (int, np.integer)) or not 1 <= max_count <= n:
        raise InvalidParameterError(
            f"p={p!r} is not allowed; give an integer with 1 <= p <= n = {n}, or a share of the trace below 1."
        )
    request = p if isinstance(p, PairRequest) else PairRequest.of_count(int(p))
    REPORT.check_argument("report", report)
    if checkpointer is not None and not isinstance(checkpointer, Checkpointer):
        raise InvalidParameterError(
            f"checkpointer={checkpointer!r} is not allowed; give an object with resumed(task) and record(state)."
        )
    chosen = as_solver(solver, n, request.first, on_gpu=is_on_gpu(op.like))
    started = time.perf_counter()
    more = {"checkpointer": checkpointer} if checkpointer is not None and chosen.grows_with_p else {}
    random = rng if isinstance(rng, Randomness) else Randomness(rng, "rng")
    # Block Krylov may take over on a device; another class may draw.
    draws = type(chosen) is not Dense or is_on_gpu(op.like)
    rng = random.generator if draws else UNUSED
    if request.is_share:
        result = chosen.solve_request(op, request, rng, report, **more)
    else:
        result = chosen.solve(op, request.max_count, rng, report, **more)
    if not isinstance(result, EigenResult):
        raise InvalidParameterError(
            f"solve of the solver {chosen.name} returned {type(result).__name__}; it must return a "
            "gpukpca.eigen.EigenResult, which EigenResult.of makes from eigenpairs."
        )
    synchronize(result.eigenvalues)
    return replace(result, seconds=time.perf_counter() - started)


def as_solver(solver: SolverName | Solver, n: int, p: int, *, on_gpu: bool) -> Solver:
    """Return the solver for a name or an object."""
    if isinstance(solver, Solver):
        return normalized(solver)  # type: ignore[no-any-return]
    if solver == "auto":
        return choose_solver(n, p, on_gpu=on_gpu)
    if solver == "dense":
        return Dense()
    if solver in ("randomized", "arpack"):
        return BlockKrylov(to_rounding=solver == "arpack")
    raise InvalidParameterError(
        f"solver={solver!r} is not allowed; give one of {', '.join(map(repr, SOLVER_NAMES))} or an object of a "
        "class based on gpukpca.eigen.Solver, such as gpukpca.eigen.BlockKrylov(tol=1e-6)."
    )
