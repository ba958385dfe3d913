"""The inputs of a fit, and the facts that follow from them whatever the plan is."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gpukpca.algorithms.fields import documented, field_of
from gpukpca.algorithms.kernel_pca.settings import KernelPCASettings, PreimageOptions
from gpukpca.algorithms.kernel_pca.spectrum import Spectrum
from gpukpca.algorithms.resources import Resources
from gpukpca.algorithms.task import Task
from gpukpca.backend import blocking
from gpukpca.backend.limits import SHARE_FOR_TILES, SHARE_OF_FREE
from gpukpca.backend.namespace import from_host, is_memory_map
from gpukpca.data.statistics import total_range
from gpukpca.distributed.rows import ClusterRows
from gpukpca.eigen.request import FIRST_GUESS
from gpukpca.eigen.solver import PlannedSolver
from gpukpca.exceptions import InvalidParameterError
from gpukpca.gram.tiling import tile_edge_for
from gpukpca.kernels import Kernel, Linear, Precomputed
from gpukpca.kernels.base import resolved_on
from gpukpca.kernels.prepared import PreparedRows
from gpukpca.kernels.user_defined import check_square


def resolved_within(kernel: Kernel, X: Any, resources: Resources) -> Kernel:
    """Return the kernel with numbers in place of rules; raise `MemoryBudgetError` where a rule does not fit."""
    if isinstance(kernel, Kernel):
        needed = kernel.rule_bytes(int(X.shape[0]), int(X.shape[1]))
        resources.check(needed, f"{kernel!r} needs, to choose gamma,", "Give gamma as a number")
    return resolved_on(kernel, X)


@documented
@dataclass(frozen=True)
class FitTask(Task):
    """The inputs of a fit of kernel PCA."""

    kernel: Kernel = field_of("", "with numbers in place of rules")
    settings: KernelPCASettings = field_of("", "checked")
    basis: Any = field_of(
        "",
        "the source of the rows of the model: X, or those of a cluster in this process; None for a precomputed kernel",
    )
    template: PreparedRows | None = field_of("", "learned by the kernel from X; None for stored kernels")
    p: int = field_of("", "components to compute; a guess where a share of the variance is requested")
    has_checkpoint: bool = field_of("", "whether the fit writes checkpoints", default=False)

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
    ) -> FitTask:
        """Return the task, with the template of the kernel for a sample of X, by default X."""
        is_on_cluster = isinstance(X, ClusterRows)
        if kernel.stored_only and is_on_cluster:
            raise InvalidParameterError(
                "precomputed kernels and plain callables are stored whole, which a cluster cannot share out. Use a "
                "kernel object or a name, or fit in one process."
            )
        is_matrix = isinstance(kernel, Precomputed)
        if is_matrix:
            check_square(X)
        points = getattr(settings.eigen_solver, "points", None)
        if points is not None and is_on_cluster:  # the fit takes nothing else from the rows in advance
            sample = from_host(points, X.like)
        sample = X if sample is None else sample
        template = None if kernel.stored_only else kernel.template(sample, centered=settings.center)
        n = int(X.shape[0])
        p = min(n, FIRST_GUESS if settings.is_share else int(settings.n_components or n))
        basis = None if is_matrix else X if basis is None else basis
        return cls(X, resources, kernel, settings, basis, template, p, has_checkpoint)

    @cached_property
    def maps_file(self) -> bool:
        """Return whether X is read from its file during the fit."""
        return is_memory_map(self.X) and not self.place.moved

    @property
    def is_read_again(self) -> bool:
        """Return whether a fit in one pass reads rows in memory once more, for eigenvectors and scores."""
        return not self.maps_file and not self.is_on_cluster

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

    def tile_budget(self, needed: int) -> int:
        """Return the bytes that cached tiles may take: a share of what is free, or all of a limit that was set.

        The fit needs so many bytes without them.
        """
        share = 1.0 if self.resources.is_limited else SHARE_FOR_TILES / SHARE_OF_FREE
        all_tiles = self.n**2 * self.item
        limit = self.resources.allowed(max(needed + all_tiles, all_tiles / share))
        return min(limit - needed, int(share * limit))

    @cached_property
    def data_bytes(self) -> int:
        """Return the bytes of X."""
        if self.is_sparse:
            return int(self.X.data.nbytes + self.X.indices.nbytes + self.X.indptr.nbytes)
        return self.stored * self.item

    @cached_property
    def copy_bytes(self) -> int:
        """Return the bytes of the copy of X that the fit keeps, where it keeps one."""
        is_kept = self.place.moved or (self.settings.copies_data and not self.maps_file and not self.is_on_cluster)
        return self.data_bytes if is_kept else 0

    @cached_property
    def row_bytes(self) -> int:
        """Return the bytes of a prepared row."""
        if self.template is None:
            return 0
        if self.is_sparse:  # in float64, and its norm
            return -(-self.data_bytes * 12 // (4 + self.item) // max(self.n, 1)) + 8
        return self.template.row_bytes

    @cached_property
    def preimage(self) -> PreimageOptions | None:
        """Return the options of the pre-image; None also for the linear kernel, which needs no bytes for it."""
        return None if isinstance(self.kernel, Linear) else self.settings.preimage

    @cached_property
    def preimage_landmarks(self) -> int:
        """Return the landmarks of the ridge pre-image; 0: all scores, or another method."""
        if self.preimage is None or self.is_on_cluster:
            return 0
        whole = self.preimage.peak_bytes(self.n, self.d, self.p, self.item, self.on_gpu, 0)
        return self.preimage.landmarks_for(self.n, fits=whole <= self.resources.allowed(whole))

    @cached_property
    def preimage_bytes(self) -> int:
        """Return the bytes of the pre-image after the decomposition."""
        if self.preimage is None:
            return 0
        peak = self.preimage.peak_bytes(self.n, self.d, self.p, self.item, self.on_gpu, self.preimage_landmarks)
        if self.preimage_landmarks:
            return peak
        # A tile of the matrix of the scores is computed in additional memory.
        return peak + self.workers * tile_edge_for(self.n, self.workers, self.on_gpu) ** 2 * self.item

    def components_for(self, solver: PlannedSolver, rank: int = 0) -> int:
        """Return how many eigenpairs a solver computes: all where a share of the variance is requested at once.

        `rank` is the number of columns of a factor of K, where there is one.
        """
        return (rank or self.n) if self.settings.is_share and not solver.grows_with_p else self.p

    def n_kept(self, spectrum: Spectrum) -> int:
        """Return how many components remain: all, or those that are not zero."""
        return spectrum.n_nonzero if self.settings.drops_zeros else len(spectrum.eigenvalues)
