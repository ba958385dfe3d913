"""Settings of kernel PCA, checked."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from gpukpca._former import former_parameters
from gpukpca._rules import FLAG, NONE, SHARE, Rule, check_attributes, integer, one_of, word
from gpukpca._typing import Array
from gpukpca.algorithms.fields import field_of, record
from gpukpca.algorithms.kernel_pca.feature_space import FeatureSpace
from gpukpca.algorithms.resources import Resources
from gpukpca.backend import blocking
from gpukpca.backend.work import Work
from gpukpca.data.frequencies import rows_that_count
from gpukpca.eigen import BlockKrylov, Dense, Nystrom
from gpukpca.eigen.landmarks import checked_landmarks, given_points, is_given
from gpukpca.eigen.solve import choose_solver, most_by_passes
from gpukpca.eigen.solver import TOLERANCE, Solver, normalized
from gpukpca.exceptions import InvalidParameterError
from gpukpca.gram.storage import DenseStorage, Storage
from gpukpca.kernels.base import Kernel, resolved_on
from gpukpca.kernels.user_defined import check_symmetry

EigenSolverName = Literal["auto", "dense", "randomized", "arpack", "nystrom"]
EigenSolver = EigenSolverName | Solver | Nystrom
GramStorageName = Literal["auto", "dense", "tiled"]
GramStorage = GramStorageName | type[Storage]

# Copies of the basis of a pre-image: its rows, prepared and centered, these once more where kernel values are
# distances. Panels of its entries that are in float64 at once, in bytes an entry.
BASIS_COPIES, PANEL_BYTES = 5, 3 * 8

EIGEN_SOLVERS = get_args(EigenSolverName)
RULES = {
    "n_components": one_of(
        NONE,
        integer(at_least=1),
        SHARE,
        message="{name}={value!r} is not allowed; give None (all), an integer >= 1, or a fraction of the variance "
        "strictly between 0 and 1.",
    ),
    "solver": Rule(
        "a name or a solver object",
        lambda value: value in EIGEN_SOLVERS if isinstance(value, str) else isinstance(value, (Solver, Nystrom)),
        EIGEN_SOLVERS,
        "{name}={value!r} is not a solver; give a name or an object such as gpukpca.eigen.BlockKrylov(tol=1e-6). A "
        "user-defined class is based on gpukpca.eigen.Solver.",
        "{name}={value!r} is not known; give one of {known}, or a solver object.{near}",
    ),
    "tol": replace(TOLERANCE, message="{name}={value!r} is not allowed; it must be {text}."),
    "max_passes": one_of(NONE, integer(at_least=1)),
    "passes": one_of(NONE, integer(at_least=0)),
    "gram": one_of(
        word(*get_args(GramStorageName)),
        Rule("a class", lambda value: isinstance(value, type) and issubclass(value, Storage)),
        text='"auto", "dense", "tiled" or a class based on gpukpca.gram.Storage',
    ),
    "center": FLAG,
    "remove_zeros": FLAG,
    "copies_data": FLAG,
    "preimage": Rule(
        "None or an object such as gpukpca.algorithms.preimage.ridge.RidgeMethod",
        lambda value: value is None or isinstance(value, PreimageMethod),
    ),
}


class PreimageMethod(ABC):
    """A method for pre-images, the base class of all: its bytes, its work, and the pre-image that it learns.

    Attributes
    ----------
    options : str
        The class of its options.
    needs : str
        What a kernel must have that it does not suit.
    takes_weights : bool
        Whether the map is the same for rows with weights and for repeated ones.
    """

    options: ClassVar[str]
    needs: ClassVar[str] = ""
    takes_weights: ClassVar[bool] = False

    @staticmethod
    def suits(kernel: Kernel) -> bool:
        """Return whether the kernel has pre-images by this method; those of a matrix have none."""
        return True

    def peak_bytes(self, n: int, basis: int, d: int, p: int, item: int, on_gpu: bool, landmarks: int) -> int:
        """Return the bytes that the fit allocates for n rows and a basis of so many, which are fewer with Nyström."""
        # The basis, prepared and centered, its scores, and panels of it in float64.
        panel = min(basis * d, blocking.PANEL_ENTRIES.on(on_gpu))
        return BASIS_COPIES * basis * (d + p) * item + PANEL_BYTES * panel

    @abstractmethod
    def learn(self, X: Array, space: FeatureSpace, scores: Array, landmarks: int) -> Any:
        """Return the pre-image of training rows X (n, d) with scores (n, p)."""

    def landmarks_for(self, n: int, fits: bool) -> int:
        """Return the landmarks for n rows, 0 for none, given whether an n x n matrix fits into memory."""
        return 0

    def fit_work(self, n: int, d: int, p: int, landmarks: int) -> Work:
        """Return the work of the fit; none where points are computed when they are mapped back."""
        return Work()


@former_parameters(eigen_solver="solver")
@record(kw_only=True)
class KernelPCASettings:
    """The parameters of a fit, checked.

    See Also
    --------
    fit_kernel_pca : Takes it as `settings`.

    Examples
    --------
    >>> import numpy as np
    >>> from gpukpca.algorithms import KernelPCASettings, fit_kernel_pca
    >>> from gpukpca.kernels import RBF
    >>> X = np.random.default_rng(0).standard_normal((100, 3))
    >>> fit = fit_kernel_pca(X, RBF(gamma=0.1), 2, settings=KernelPCASettings(solver="dense"))
    >>> fit.plan.solver.name
    'dense'
    """

    n_components: int | float | None = field_of("", "a number, a share of the variance, or all", default=None)
    solver: EigenSolver = field_of("", "a name or a solver object; see `KernelPCA`", default="auto")
    tol: float = field_of("", "0 is the default of the dtype", default=0.0)
    max_passes: int | None = field_of("", "the most passes of block Krylov", default=None)
    passes: int | None = field_of("", "the exact number of passes of block Krylov", default=None)
    gram: GramStorage = field_of("", '"auto", "dense", "tiled" or a class based on `Storage`', default="auto")
    center: bool = field_of("", "False: eigenpairs of K itself, not of the centered matrix", default=True)
    remove_zeros: bool = field_of(
        "", "whether to leave out components without variance; with all components they always are", default=False
    )
    copies_data: bool = field_of("", "whether the fit keeps a copy of the data", default=True)
    preimage: PreimageMethod | None = field_of("", "the method of the pre-image", default=None)

    def __post_init__(self) -> None:
        check_attributes(self, RULES.items())
        # The object of the user may change later, and is never written to.
        object.__setattr__(self, "solver", normalized(self.solver))

    @property
    def drops_zeros(self) -> bool:
        """Return whether components without variance are left out."""
        return self.n_components is None or self.remove_zeros

    @property
    def is_share(self) -> bool:
        """Return whether `n_components` is a share of the variance."""
        return isinstance(self.n_components, (float, np.floating))

    @property
    def share(self) -> float:
        """Return the share of the variance; 0 where a number of components is given."""
        return float(self.n_components or 0.0) if self.is_share else 0.0

    def among(self, numbers: np.ndarray) -> KernelPCASettings:
        """Return the settings with landmarks that are positions among the rows with these numbers."""
        if not (landmarks := numbered_landmarks(self.solver)):
            return self
        places = np.searchsorted(numbers, landmarks)
        if not np.array_equal(numbers[np.minimum(places, len(numbers) - 1)], landmarks):
            raise InvalidParameterError(
                "a landmark is a row of weight 0, which a fit by a function of two rows leaves out, or no row at all; "
                "give it a weight, or other landmarks.",
                argument="sample_weight",
            )
        solver: Any = self.solver
        return replace(self, solver=replace(solver, landmarks=places.tolist()))

    @property
    def nystrom(self) -> Nystrom | None:
        """Return the options of the approximation by landmarks; None where the user did not request it."""
        requested = self.solver
        if isinstance(requested, Nystrom):
            return requested
        return Nystrom(tol=self.tol) if isinstance(requested, str) and requested == "nystrom" else None

    @property
    def gram_text(self) -> str:
        """Return the parameter `gram` as a message shows it."""
        return f'gram="{self.gram}"' if isinstance(self.gram, str) else f"gram={self.gram.__name__}"

    def storage_for(self, n: int, workers: int) -> Storage:
        """Return the storage of the class that the user gave, for n rows; the square matrix without one."""
        if isinstance(self.gram, str):
            return DenseStorage(n, workers)
        try:
            return self.gram(n, workers)
        except TypeError as error:
            raise InvalidParameterError(f"{self.gram_text} cannot be made of n and workers: {error}.") from error

    def solver_for(self, n: int, p: int, on_gpu: bool) -> tuple[Any, str]:
        """Return the solver object for p of n components and the reason for it."""
        tol, requested = self.tol, self.solver
        to_rounding = isinstance(requested, str) and requested == "arpack"
        iterative = BlockKrylov(tol=tol, max_passes=self.max_passes, passes=self.passes, to_rounding=to_rounding)
        if not isinstance(requested, str):
            return requested, "solver object given"
        if requested != "auto":
            return Dense(tol=tol) if requested == "dense" else iterative, "requested"
        count = f"p = {p}" + (", where a share of the variance begins," if self.is_share else "")
        if isinstance(choose_solver(n, p, on_gpu=on_gpu), BlockKrylov):
            return iterative, f"{count} is small compared with n = {n}"
        is_large = p > most_by_passes(n, on_gpu)
        return Dense(tol=tol), f"{count} is large compared with n = {n}" if is_large else f"n = {n} is small"


def is_nystrom(eigen_solver: Any) -> bool:
    """Return whether a solver, or its name, is the approximation by landmarks."""
    return isinstance(eigen_solver, Nystrom) or (isinstance(eigen_solver, str) and eigen_solver == "nystrom")


def numbered_landmarks(eigen_solver: Any) -> list[int]:
    """Return the rows that a user gave as landmarks, by number; empty where they are points or a rule chooses them."""
    if not is_given(eigen_solver) or given_points(eigen_solver) is not None:
        return []
    return checked_landmarks(eigen_solver.landmarks).tolist()  # type: ignore[no-any-return]


def rows_to_check(eigen_solver: Any, sample_weight: Any) -> np.ndarray | None:
    """Return which rows must be finite: those that count, and landmarks of any weight; see `rows_that_count`."""
    return rows_that_count(sample_weight, numbered_landmarks(eigen_solver))


def resolved_within(
    kernel: Kernel, X: Any, resources: Resources, shown: Any = None, weights: np.ndarray | None = None
) -> Kernel:
    """Return the kernel with numbers in place of rules; raise where a rule does not fit, or values are not symmetric.

    The values are those of some rows `shown`, by default of X. The rules count rows as `weights` (n,) say.
    """
    if isinstance(kernel, Kernel) and (needed := kernel.rule_bytes(int(X.shape[0]), int(X.shape[1]))):
        resources.check(needed, f"{kernel!r} needs, to choose gamma,", [[("gamma as a number", 0)]])
    kernel = resolved_on(kernel, X, weights)
    check_symmetry(kernel, X if shown is None else shown)
    return kernel
