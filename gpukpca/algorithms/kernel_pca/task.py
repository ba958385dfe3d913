"""The inputs of a fit, and the facts that follow from them whatever the plan is."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np

from gpukpca.algorithms.kernel_pca.settings import KernelPCASettings, PreimageMethod, numbered_landmarks
from gpukpca.algorithms.kernel_pca.spectrum import Spectrum
from gpukpca.algorithms.resources import Resources
from gpukpca.algorithms.task import Task
from gpukpca.backend import blocking
from gpukpca.backend.device import is_unshared
from gpukpca.backend.limits import SHARE_FOR_TILES, SHARE_OF_FREE
from gpukpca.backend.namespace import from_host, is_memory_map, item_size
from gpukpca.data.frequencies import Frequencies
from gpukpca.data.statistics import total_range
from gpukpca.distributed.rows import ClusterRows
from gpukpca.eigen.landmark_choice import LandmarkChoice
from gpukpca.eigen.request import FIRST_GUESS
from gpukpca.eigen.solver import PlannedSolver
from gpukpca.exceptions import InvalidParameterError
from gpukpca.gram.tiling import dense_row_bytes, tile_edge_for
from gpukpca.kernels import Kernel, Linear, Precomputed
from gpukpca.kernels.prepared import PreparedRows
from gpukpca.kernels.user_defined import check_square

# Monomials are written down where they are few, or few relative to the samples. Measured with n / 2 of them, tiles are
# three times as fast and take half the memory.
MONOMIALS_PAY, FEW_MONOMIALS = 8, 200
# Features up to which the small eigenproblem of a factor is solved whole.
LARGEST_SMALL_PROBLEM = 2000


def explicit_features(kernel: Kernel, settings: KernelPCASettings, n: int, d: int) -> int:
    """Return the columns of an exact factor of K for dense rows, where features are fewer than samples; else 0."""
    if not (settings.solver == "auto" and settings.gram == "auto"):
        return 0
    count = kernel.feature_count(d) or 0
    few = max(n // MONOMIALS_PAY, min(n - 1, FEW_MONOMIALS))
    return count if count <= (n - 1 if isinstance(kernel, Linear) else few) else 0


def is_spanned(kernel: Kernel, settings: KernelPCASettings, n: int, d: int) -> bool:
    """Return whether points that span the feature space make an exact factor of K for dense rows (n, d).

    Its columns are then at most the rank of a `Nystrom` solver, or of the solver "auto" fewer than the rows. Only of
    the linear kernel: polynomials through points lose the digits of data with an offset.
    """
    requested = 0 if settings.n_components is None or settings.is_share else int(settings.n_components)
    if not isinstance(kernel, Linear) or not max(1, requested) <= d <= LARGEST_SMALL_PROBLEM:
        return False
    if (nystrom := settings.nystrom) is not None:
        choice = LandmarkChoice.of(nystrom, n, max(1, requested))
        return not choice.is_given and d <= choice.rank
    return explicit_features(kernel, settings, n, d) > 0


class LandmarkPool(NamedTuple):
    """The rows (m, d) in memory among which landmarks are chosen, and their numbers among all rows; None for points."""

    rows: Any
    numbers: np.ndarray | None


@dataclass(eq=False)
class FitTask(Task):
    """The inputs of a fit of kernel PCA.

    Attributes
    ----------
    kernel : Kernel
        With numbers in place of rules.
    settings : KernelPCASettings
    basis : array or Rows, optional
        The source of the rows of the model: X, or those of a cluster in this process; None for a precomputed kernel.
    template : PreparedRows, optional
        Learned by the kernel from X; None for stored kernels.
    p : int
        Components to compute; a guess where a share of the variance is requested.
    has_checkpoint : bool
        Whether the fit writes checkpoints.
    sample : array or Rows, optional
        The rows that the template is of; None: all.
    weights : array, shape (n,), optional
        How often each row counts, on the host; None: once.
    numbers : array, shape (n,), optional
        Of the rows, among those that were given with weights; None: the same.
    every : array or Rows, optional
        All rows that were given with weights, where they are; None: X.
    """

    kernel: Kernel
    settings: KernelPCASettings
    basis: Any
    template: PreparedRows | None
    p: int
    has_checkpoint: bool = False
    sample: Any = None
    weights: np.ndarray | None = None
    numbers: np.ndarray | None = None
    every: Any = None

    @classmethod
    def of(
        cls,
        X: Any,
        kernel: Kernel,
        settings: KernelPCASettings,
        resources: Resources,
        *,
        has_checkpoint: bool = False,
        basis: Any = None,
        sample: Any = None,
        weights: np.ndarray | None = None,
        **more: Any,
    ) -> FitTask:
        """Return the task, with the template of the kernel for a sample of X, by default X."""
        is_on_cluster = isinstance(X, ClusterRows)
        if kernel.stored_only and is_on_cluster:
            raise InvalidParameterError(
                "precomputed kernels and plain callables are stored whole, which a cluster cannot share out. Use a "
                "kernel object or a name, or fit in one process."
            )
        if kernel.stored_only and (numbers := more.get("numbers")) is not None:
            settings = settings.among(numbers)
        is_matrix = isinstance(kernel, Precomputed)
        if is_matrix:
            check_square(X)
        n = int(X.shape[0])
        p = min(n, FIRST_GUESS if settings.is_share else int(settings.n_components or n))
        basis = None if is_matrix else X if basis is None else basis
        task = cls(X, resources, kernel, settings, basis, None, p, has_checkpoint, weights=weights, **more)
        if weights is not None and task.preimage is not None and not task.preimage.takes_weights:
            raise InvalidParameterError(
                f"sample_weight is not taken by {task.preimage.options}, the pre-image of repeated rows. Use "
                'preimage="fixed_point", or a kernel "linear".',
                argument="sample_weight",
            )
        if kernel.stored_only:
            return task
        if is_on_cluster and (settings.nystrom or task.is_spanned):  # where other rows are read once
            points = LandmarkChoice.of(settings.nystrom, n, p).points if settings.nystrom else None
            sample = X.sample() if points is None else from_host(points, X.like)
        task.template = kernel.template(X if sample is None else sample, centered=settings.center)
        task.sample = sample
        return task

    @cached_property
    def frequencies(self) -> Frequencies | None:
        """Return the weights of the rows where the fit computes."""
        return None if self.weights is None else Frequencies.of(self.weights, self.place.work)

    @property
    def weight_sum(self) -> float | None:
        """Return Σ w."""
        return None if self.frequencies is None else self.frequencies.count

    def numbers_of(self, rows: np.ndarray) -> np.ndarray:
        """Return the numbers that rows of the task have among all that were given."""
        return rows if self.numbers is None else self.numbers[rows]

    @cached_property
    def is_spanned(self) -> bool:
        """Return whether sums over an exact factor, by points that span the feature space, solve the problem."""
        sums = self.is_on_cluster or self.settings.nystrom or self.device_rows is not None
        return bool(sums) and not self.is_sparse and is_spanned(self.kernel, self.settings, self.n, self.d)

    @property
    def is_given(self) -> bool:
        """Return whether K is an operator that the user passed."""
        return isinstance(self.kernel, Precomputed) and self.is_batched

    @cached_property
    def maps_file(self) -> bool:
        """Return whether X is read from its file, or batch by batch, during the fit."""
        return self.is_batched or (is_memory_map(self.X) and not self.place.moved)

    @property
    def gives_scores(self) -> bool:
        """Return whether rows are multiplied once more for eigenvectors and scores: those in memory.

        Those of a file or a cluster where a pre-image needs them; of a file too where landmarks are numbers of rows.
        """
        if self.preimage is not None:
            return not self.is_batched
        is_file = self.maps_file and not numbered_landmarks(self.settings.solver)
        return not (is_file or self.is_batched or self.is_on_cluster)

    def is_constant(self) -> bool:
        """Return whether all rows of the data are the same; a kernel matrix shows that by itself."""
        return isinstance(self.kernel, Precomputed) or total_range(self.basis) == 0.0

    @cached_property
    def empty_template(self) -> PreparedRows | None:
        """Return the template without rows; that of a kernel of the user may hold all of them."""
        return None if self.template is None else self.template.slice(0, 0)

    @cached_property
    def multiplies_on_gpu(self) -> bool:
        """Return whether blocks are multiplied on GPUs: that of the fit, or those of the workers of a cluster."""
        return self.X.on_gpu if self.is_on_cluster else self.on_gpu

    @cached_property
    def multiplications(self) -> float:
        return self.n**2 / 2 * (self.d + blocking.KERNEL_VALUE)

    @cached_property
    def workers(self) -> int:
        """Return the number of threads, or of machines of a cluster."""
        return len(self.X.cluster.workers) if self.is_on_cluster else super().workers

    @cached_property
    def usual_edge(self) -> int:
        """Return the edge of a tile where nothing is timed, and memory is enough."""
        return tile_edge_for(self.n, self.workers, self.on_gpu, dense_row_bytes(self.kernel, self.X))

    def tile_budget(self, needed: int) -> int:
        """Return the bytes that cached tiles may take: all of a limit that was set or cards of one's own, or a share.

        The fit needs so many bytes without them.
        """
        may_fill = self.resources.is_limited or all(map(is_unshared, (self.place.work, *self.place.others)))
        share = 1.0 if may_fill else SHARE_FOR_TILES / SHARE_OF_FREE
        all_tiles = self.n**2 * self.item
        limit = self.resources.allowed(max(needed + all_tiles, all_tiles / share))
        return min(limit - needed, int(share * limit))

    @cached_property
    def data_bytes(self) -> int:
        """Return the bytes of X."""
        indices = int(self.X.indices.nbytes + self.X.indptr.nbytes) if self.is_sparse else 0
        return self.stored * self.item + indices

    @cached_property
    def copy_bytes(self) -> int:
        """Return the bytes of the copy of X that the fit keeps, where it keeps one, or those of a batch."""
        if self.is_batched:  # and two that `BatchedRows.slice` holds
            return 2 * super().copy_bytes
        is_kept = self.place.moved or (self.settings.copies_data and not self.maps_file and not self.is_on_cluster)
        return self.data_bytes if is_kept else 0

    @cached_property
    def row_bytes(self) -> int:
        """Return the bytes of a prepared row."""
        if self.template is None:
            return 0
        if self.is_sparse:  # in float64 with its indices, and its norm
            return 12 * -(-self.stored // max(self.n, 1)) + 16
        return self.template.row_bytes * self.item // item_size(self.X.dtype)

    @cached_property
    def preimage(self) -> PreimageMethod | None:
        """Return the method of the pre-image; None also for the linear kernel, which needs no bytes for it."""
        return None if isinstance(self.kernel, Linear) else self.settings.preimage

    @cached_property
    def preimage_landmarks(self) -> int:
        """Return the landmarks of the ridge pre-image; 0: all scores, or another method."""
        if self.preimage is None or self.is_on_cluster:
            return 0
        whole = self.preimage.peak_bytes(self.n, self.n, self.d, self.p, self.item, self.on_gpu, 0)
        return self.preimage.landmarks_for(self.n, fits=whole <= self.resources.allowed(whole))

    def preimage_bytes(self, basis: int) -> int:
        """Return the bytes of the pre-image after the decomposition, with so many rows in the basis."""
        if self.preimage is None:
            return 0
        sizes = self.d, self.p, self.item, self.on_gpu
        peak = self.preimage.peak_bytes(self.n, basis, *sizes, self.preimage_landmarks)
        if self.preimage_landmarks:
            return peak
        # A tile of the matrix of the scores is computed in additional memory.
        return peak + self.workers * tile_edge_for(self.n, self.workers, self.on_gpu) ** 2 * self.item

    def components_for(self, solver: PlannedSolver, rank: int = 0) -> int:
        """Return how many eigenpairs a solver computes: all where a share of the variance is requested at once.

        `rank` is the number of columns of a factor of K, where there is one.
        """
        return (rank or self.n) if self.settings.is_share and not solver.grows_with_p else self.p

    def check_rank(self, rank: int) -> None:
        """Raise `InvalidParameterError` where there are more components than landmarks."""
        n_components = self.settings.n_components
        if isinstance(n_components, Integral) and rank < self.p:
            raise InvalidParameterError(
                f"n_components={n_components} needs at least as many landmarks, and rank={rank} was given to "
                "Nystrom; raise the rank."
            )

    def n_kept(self, spectrum: Spectrum) -> int:
        """Return how many components remain: all, or those that are not zero."""
        return spectrum.n_nonzero if self.settings.drops_zeros else len(spectrum.eigenvalues)
