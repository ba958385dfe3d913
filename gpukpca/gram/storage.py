"""Storages of K: each states its bytes and its line in a plan, and builds its operator."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any

from gpukpca._formatting import pluralize
from gpukpca._typing import Array, SymmetricOperator
from gpukpca.backend.namespace import cast, namespace_of
from gpukpca.backend.parallel import TileReport
from gpukpca.data.rows import map_rows
from gpukpca.data.slicing import shifted_rows
from gpukpca.data.statistics import exact_means, feature_bounds
from gpukpca.gram.dense import DenseGram
from gpukpca.gram.devices import DevicesGram
from gpukpca.gram.half_tiles import in_halves
from gpukpca.gram.low_rank import LowRankGram
from gpukpca.gram.product import gram_matrix
from gpukpca.gram.tiled import TiledGram, shifted_gram
from gpukpca.gram.tiling import full_cache_bytes, shares_of, tiles_within, upper_tiles
from gpukpca.kernels.base import Kernel
from gpukpca.kernels.prepared import PreparedRows
from gpukpca.kernels.user_defined import Precomputed, training_matrix

# The largest entry of float32 rows of a twin: their squares, and sums of them, are then within the range of the type.
TWIN_RANGE = (1e-15, 1e15)


@dataclass(frozen=True)
class StorageInput:
    """The rows that an operator of K is built from.

    The `kernel` has numbers in place of rules. X (n, d) is an array, a CSR matrix or on a cluster. `template` is
    ``kernel.template(X, centered=True)``; None: not computed yet. One without centering makes K itself. `others` are
    arrays of size 0 on the devices that share the work with that of X.
    """

    kernel: Kernel
    X: Any
    template: PreparedRows | None = None
    n_jobs: int | None = None
    report: TileReport | None = None
    others: tuple[Array, ...] = ()


def twin_source(source: StorageInput, center: bool) -> StorageInput | None:
    """Return the input of an operator that makes nearly the same K from float32 rows; None beyond their range."""
    kernel, X = source.kernel, source.X
    xp = namespace_of(X)
    is_moved = kernel.moves_rows == "always" or (kernel.moves_rows == "centered" and center)
    rows = shifted_rows(X, exact_means(X), 1.0, xp.float32) if is_moved else cast(X, xp.float32)
    low, high = feature_bounds(rows)
    if not TWIN_RANGE[0] < max(float(xp.max(high)), -float(xp.min(low))) < TWIN_RANGE[1]:
        return None
    return replace(source, X=rows, template=kernel.template(rows, centered=center))


@dataclass(frozen=True)
class Storage(ABC):
    """A way to hold the kernel matrix of n rows: its bytes, its line in a plan, and its operator.

    A subclass defines `build` and ``__str__``; the other members have defaults. `gpukpca.KernelPCA` takes the class as
    `gram`.

    Attributes
    ----------
    n : int
        Rows of the data.
    workers : int
        Threads, or machines of a cluster.

    See Also
    --------
    SymmetricOperator : The operator that `build` returns.

    Examples
    --------
    A storage of the caller, which evaluates K once and prints its line.

    >>> import numpy as np
    >>> from gpukpca import KernelPCA
    >>> from gpukpca.gram import DenseGram, Storage, gram_matrix
    >>> class Square(Storage):
    ...     def build(self, source):
    ...         return DenseGram(gram_matrix(source.kernel, source.X))
    ...     def __str__(self):
    ...         return f"square of {self.n} rows"
    >>> X = np.random.default_rng(0).standard_normal((50, 3))
    >>> print(KernelPCA(2, kernel="rbf", gram=Square).fit(X).plan_.storage)
    square of 50 rows
    """

    n: int
    workers: int
    # CUDA devices that share the tiles.
    devices = 1

    def bytes_held(self, item_size: int) -> int:
        """Return the bytes of K that stay in memory: by default those of the square matrix."""
        return self.n * self.n * item_size

    @abstractmethod
    def build(self, source: StorageInput) -> SymmetricOperator:
        """Return the operator of K, for use inside a `CenteredGram`."""

    @abstractmethod
    def __str__(self) -> str:
        """Return the line of the plan."""

    @property
    def rank_bound(self) -> int:
        """Return the most eigenvalues of K that are not zero."""
        return self.n

    @property
    def tiles(self) -> int:
        """Return the number of pieces in which K is computed."""
        return 1

    @property
    def entries(self) -> int:
        """Return how many entries are evaluated to compute all of K once."""
        return full_cache_bytes(self.n, 1, 1)

    @property
    def recomputed_tiles(self) -> int:
        """Return how many pieces every further pass recomputes."""
        return 0

    @property
    def is_fully_cached(self) -> bool:
        """Return whether further passes evaluate no tile."""
        return self.recomputed_tiles == 0


@dataclass(frozen=True)
class DenseStorage(Storage):
    """The square matrix."""

    def build(self, source: StorageInput) -> DenseGram:
        kernel, X, n_jobs = source.kernel, source.X, source.n_jobs
        if isinstance(kernel, Precomputed):
            return DenseGram(training_matrix(X), n_jobs=n_jobs)
        if kernel.stored_only:
            return DenseGram(gram_matrix(kernel, X, n_jobs=n_jobs), n_jobs=n_jobs)
        op = shifted_gram(kernel, X, source.template, cached_tiles=0, n_jobs=n_jobs, report=source.report)
        return DenseGram(op.to_dense(), n_jobs=n_jobs, rounding=op.rounding, rows=op.rows)

    def __str__(self) -> str:
        return f"dense: the square matrix, {self.n} x {self.n}"


@dataclass(frozen=True)
class GivenStorage(Storage):
    """A precomputed kernel matrix that is known by its products, and not stored."""

    def bytes_held(self, item_size: int) -> int:
        return 0

    def build(self, source: StorageInput) -> SymmetricOperator:
        op: SymmetricOperator = source.X.op
        return op

    def __str__(self) -> str:
        return f"given: products with a matrix, {self.n} x {self.n}"


@dataclass(frozen=True)
class TiledStorage(Storage):
    """The upper triangle in square tiles; every pass recomputes the tiles that are not cached.

    `panel` is the number of tile columns whose rows are held together while X is read from a file; 0 holds all rows.
    A twin in float16 is one of `halves`.
    """

    tile_edge: int
    cached_tiles: int
    panel: int = 0
    halves: bool = False

    @classmethod
    def within(cls, budget: int, n: int, item_size: int, workers: int, tile_edge: int, panel: int = 0) -> TiledStorage:
        """Return the storage whose cache takes at most `budget` bytes; nothing is cached for a negative one."""
        return cls(n, workers, tile_edge, tiles_within(budget, n, tile_edge, item_size), panel)

    @property
    def tiles(self) -> int:
        return upper_tiles(self.n, self.tile_edge)

    @property
    def entries(self) -> int:
        return full_cache_bytes(self.n, self.tile_edge, 1)

    @property
    def recomputed_tiles(self) -> int:
        return max(0, self.tiles - self.cached_tiles)

    @property
    def type_of_twin(self) -> str:
        """Return the type of the tiles of a twin."""
        return "float16" if self.halves else "float32"

    def bytes_held(self, item_size: int) -> int:
        item_size = 2 if self.halves else item_size
        if self.is_fully_cached:
            return self.entries * item_size
        return self.cached_tiles * self.tile_edge**2 * item_size

    @property
    def rows_read(self) -> int:
        """Return the rows of X that a pass reads from its file: those up to the end of every panel."""
        width = self.panel * self.tile_edge
        return sum(min(start + width, self.n) for start in range(0, self.n, width)) if width else 0

    def build(self, source: StorageInput) -> TiledGram:
        sizes: dict[str, Any] = {"tile_edge": self.tile_edge, "cached_tiles": self.cached_tiles, "panel": self.panel}
        how: dict[str, Any] = {"n_jobs": source.n_jobs, "report": source.report}
        return shifted_gram(source.kernel, source.X, source.template, **sizes, **how)

    def twin_of(self, base: Any, source: StorageInput, center: bool) -> TiledGram | None:
        """Return the twin of the operator of K that `source` made; None beyond the range of float32."""
        if self.halves:
            return in_halves(base)
        narrow = twin_source(source, center)
        return None if narrow is None else self.build(narrow)

    def __str__(self) -> str:
        cached = "all" if self.is_fully_cached else str(self.cached_tiles)
        return f"tiled: {pluralize(self.tiles, 'upper tile')} of edge {self.tile_edge}, {cached} cached"


@dataclass(frozen=True)
class DevicesStorage(TiledStorage):
    """Upper tiles on several devices, as many cached as the smallest of them allows; bytes are those of one device."""

    devices: int = 1

    @classmethod
    def sharing(cls, devices: int, budget: int, n: int, item_size: int, workers: int, tile_edge: int) -> DevicesStorage:
        """Return the storage whose caches take at most `budget` bytes of each device."""
        one = TiledStorage.within(budget, n, item_size, workers, tile_edge)
        cached = sum(min(one.cached_tiles, share) for share in shares_of(one.tiles, devices))
        return cls(n, workers, tile_edge, cached, devices=devices)

    @property
    def cached(self) -> int:
        """Return the most tiles that a device caches."""
        return -(-self.cached_tiles // self.devices)

    def bytes_held(self, item_size: int) -> int:
        return self.cached * self.tile_edge**2 * item_size

    def build(self, source: StorageInput) -> DevicesGram:
        return DevicesGram.of(source, self.tile_edge, self.cached)

    def __str__(self) -> str:
        shares = " + ".join(map(str, shares_of(self.tiles, self.devices)))
        return f"{super().__str__()}; {self.devices} devices: {shares} tiles"


@dataclass(frozen=True)
class LowRankStorage(Storage):
    """A factor of K: K = F Fᵀ with the features F (n, rank) of the kernel."""

    rank: int

    @property
    def rank_bound(self) -> int:
        return self.rank

    def bytes_held(self, item_size: int) -> int:
        return self.n * self.rank * item_size

    def build(self, source: StorageInput) -> SymmetricOperator:
        template = source.template or source.kernel.template(source.X, centered=True)
        F = map_rows(source.X, source.kernel.features, template, width=self.rank)
        return LowRankGram(F, n_jobs=source.n_jobs)

    def __str__(self) -> str:
        return f"factored: K = F Fᵀ, F {self.n} x {self.rank}"


@dataclass(frozen=True)
class LandmarkStorage(Storage):
    """A Nyström factor F (n, rank): in memory, or its rows are computed, added up and forgotten.

    `source` computes the columns of K where all rows are candidates for landmarks. Without it landmarks are chosen
    among `sample` rows; 0: F is exact, by points that span the feature space. F stays in memory with `keeps_factor`. It
    is multiplied once more with `with_vectors`, for eigenvectors and scores. The norm of K - F Fᵀ is bounded from the
    rows in so many `slots`.
    """

    rank: int
    sample: int
    source: Storage | None = None
    with_vectors: bool = False
    keeps_factor: bool = False
    slots: int = 0

    @property
    def is_exact(self) -> bool:
        """Return whether F misses nothing of K but rounding."""
        return not self.sample

    @property
    def rank_bound(self) -> int:
        return self.rank

    def bytes_held(self, item_size: int) -> int:
        return self.n * self.rank * item_size if self.keeps_factor else 8 * self.rank**2

    def build(self, source: StorageInput) -> SymmetricOperator:
        """Return the operator of K whose columns F is made of."""
        if self.source is None:
            return shifted_gram(source.kernel, source.X, source.template, cached_tiles=0, n_jobs=source.n_jobs)
        return self.source.build(source)

    def __str__(self) -> str:
        if self.keeps_factor:
            return f"factored: K {'=' if self.is_exact else '≈'} F Fᵀ, F {self.n} x {self.rank}"
        if self.is_exact:
            return f"streamed: K = F Fᵀ, rows of F ({self.n} x {self.rank}) are added up"
        return f"streamed: K ≈ F Fᵀ, rows of F are added up; {self.rank} landmarks of {pluralize(self.sample, 'row')}"


# The storages that model files hold.
STORED = (DenseStorage, GivenStorage, TiledStorage, DevicesStorage, LowRankStorage, LandmarkStorage)
