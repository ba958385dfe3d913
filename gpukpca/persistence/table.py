"""The fixed table of the classes in model files; no other object is ever made from a file.

A class joins by one entry: its name, and the kinds of the constructor's arguments that tell all of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpukpca.algorithms.kernel_pca.feature_space import FeatureSpace
from gpukpca.algorithms.kernel_pca.linear_axes import LinearAxes
from gpukpca.algorithms.kernel_pca.plan import Plan
from gpukpca.algorithms.kernel_pca.projection import AffineProjection
from gpukpca.algorithms.latent.model import LatentModel
from gpukpca.algorithms.mixture.alternation import ASSIGNMENTS
from gpukpca.algorithms.mixture.component import Cluster
from gpukpca.algorithms.mixture.model import LocalModel
from gpukpca.algorithms.mixture.scaled_rows import RowScaling
from gpukpca.algorithms.pca.incremental import IncrementalState
from gpukpca.algorithms.pca.model import LinearProjection
from gpukpca.algorithms.pca.plan import WORDS, PCAPlan
from gpukpca.algorithms.preimage.distance_constraint import DistanceConstraint
from gpukpca.algorithms.preimage.fixed_point import FixedPoint
from gpukpca.algorithms.preimage.linear import LinearPreimage
from gpukpca.algorithms.preimage.ridge import RidgeRegression, RidgeRule
from gpukpca.backend.namespace import dtype_name
from gpukpca.covariance.moments import Moments
from gpukpca.distributed.gram import ClusterStorage
from gpukpca.eigen import BlockKrylov, Dense, LowRank, Nystrom
from gpukpca.gram.storage import DenseStorage, LowRankStorage, Storage, TiledStorage
from gpukpca.kernels import (
    RBF,
    Cosine,
    Exp,
    Kernel,
    Laplacian,
    Linear,
    Matern,
    Polynomial,
    Power,
    Precomputed,
    Product,
    RationalQuadratic,
    Scale,
    Sigmoid,
    Sum,
)
from gpukpca.kernels.algebra import CombinedRows
from gpukpca.kernels.dot_product import DotRows
from gpukpca.kernels.euclidean_rows import DifferenceRows, EuclideanRows, Geometry, ProductRows, SparseProductRows
from gpukpca.kernels.manhattan import CityBlockRows
from gpukpca.kernels.prepared import PreparedRows
from gpukpca.persistence.kinds import (
    ANY_NUMBER,
    AT_LEAST_ONE,
    COUNT,
    FLAG,
    FREE,
    INTEGER,
    NUMBER,
    POSITIVE,
    TEXT,
    TEXTS,
    Kind,
    floats,
    indices,
    many,
    of,
    one_of,
    rows,
)


@dataclass(frozen=True)
class Entry:
    """The fields of a class in a file, and its construction from them.

    Attributes
    ----------
    cls : class
    kinds : dict
        Of its fields, by name.
    host : tuple of str
        Fields that stay on the host wherever the model computes.
    fields : callable
        ``fields(thing)`` gives them by name; default: the attributes of those names.
    make : callable
        ``make(**fields)``; default: the class.
    shared : bool
        Whether other objects may have the same one. Not for classes whose objects hold others of their kind: a few
        lines could then tell of 2^60 of them.
    former : dict
        Names of fields in files of 0.9 and before.
    """

    cls: type
    kinds: dict[str, Kind]
    host: tuple[str, ...] = ()
    fields: Callable[[Any], dict[str, Any]] | None = None
    make: Callable[..., Any] | None = None
    shared: bool = False
    former: dict[str, str] = field(default_factory=dict)

    def taken(self, thing: Any) -> dict[str, Any]:
        """The fields of an object."""
        return {name: getattr(thing, name) for name in self.kinds} if self.fields is None else self.fields(thing)

    def made(self, fields: dict[str, Any]) -> Any:
        """The object with such fields, which were checked."""
        return (self.make or self.cls)(**fields)


def _kernel(cls: type, **kinds: Kind) -> Entry:
    return Entry(cls, kinds)


def _euclidean_rows(cls: type[EuclideanRows]) -> Entry:
    return Entry(
        cls,
        {"data": NOTHING, "geometry": of(Geometry), "dtype": one_of("float32", "float64")},
        fields=lambda rows: {"data": rows.data, "geometry": rows.geometry, "dtype": dtype_name(rows.dtype)},
        make=lambda data, geometry, dtype: cls(data, geometry, np.dtype(dtype)),
    )


KERNEL = of(Kernel)
STORAGE = of(Storage)
SOLVER = of(Dense, BlockKrylov, LowRank, Nystrom)
AXES = {"components": floats("p", "d"), "mean": floats("d"), "wide_mean": floats("d")}
NOTHING = rows("0", "*")  # of a data set what was learned from it, without its rows

ENTRIES = [
    # kernels: what their parameters may be they check by themselves
    _kernel(Linear),
    _kernel(Polynomial, degree=FREE, gamma=FREE, coef0=FREE),
    _kernel(RBF, gamma=FREE),
    _kernel(Sigmoid, gamma=FREE, coef0=FREE),
    _kernel(Cosine),
    _kernel(Laplacian, gamma=FREE),
    _kernel(Matern, gamma=FREE, nu=ANY_NUMBER),
    _kernel(RationalQuadratic, gamma=FREE, alpha=FREE),
    _kernel(Precomputed),
    _kernel(Sum, k1=KERNEL, k2=KERNEL),
    _kernel(Product, k1=KERNEL, k2=KERNEL),
    _kernel(Scale, k=KERNEL, factor=NUMBER),
    _kernel(Power, k=KERNEL, exponent=COUNT),
    _kernel(Exp, k=KERNEL),
    # what kernels learn from a training set
    Entry(
        Geometry,
        {
            "mean": floats("d").or_none,
            "gamma": POSITIVE,
            "exponent": INTEGER,
            "flat": FLAG,
            "wide": FLAG,
            "varying": indices("*", below="d").or_none,
            "kink": FLAG,
            "spread": POSITIVE.maybe,
        },
        host=("varying",),
    ),
    _euclidean_rows(ProductRows),
    _euclidean_rows(SparseProductRows),
    _euclidean_rows(DifferenceRows),
    Entry(CityBlockRows, {"data": NOTHING, "flat": FLAG}),
    Entry(DotRows, {"data": NOTHING, "factor": NUMBER, "mean": floats("d").or_none, "copied": FLAG}),
    Entry(
        CombinedRows,
        {"parts": many(of(PreparedRows))},
        fields=lambda prepared: {"parts": tuple(prepared.parts)},
        make=lambda parts: CombinedRows(list(parts)),
    ),
    # solvers and plans
    Entry(Dense, {"tol": POSITIVE, "full_spectrum": FLAG}),
    Entry(LowRank, {"tol": POSITIVE}),
    Entry(
        BlockKrylov,
        {
            "tol": POSITIVE,
            "block_size": COUNT.or_none,
            "max_passes": COUNT.or_none,
            "passes": COUNT.or_none,
            "max_blocks": COUNT.or_none,
            "start": floats("*", "*").or_none,
        },
        host=("start",),
    ),
    Entry(Nystrom, {"rank": COUNT.or_none, "landmarks": TEXT, "tol": POSITIVE}),
    Entry(DenseStorage, {"n": COUNT, "workers": COUNT}),
    Entry(ClusterStorage, {"n": COUNT, "workers": COUNT}),
    Entry(
        TiledStorage, {"n": COUNT, "workers": COUNT, "tile_edge": AT_LEAST_ONE, "cached_tiles": COUNT, "panel": COUNT}
    ),
    Entry(LowRankStorage, {"n": COUNT, "workers": COUNT, "rank": COUNT, "source": STORAGE.or_none}),
    Entry(
        Plan,
        {
            "n_samples": COUNT,
            "n_features": COUNT,
            "n_components": COUNT,
            "dtype": TEXT,
            "device": TEXT,
            "kernel": TEXT,
            "solver": SOLVER,
            "solver_reason": TEXT,
            "storage": STORAGE,
            "predicted_bytes": INTEGER,
            "available_bytes": INTEGER,
            "start_landmarks": COUNT,
            "preimage_landmarks": COUNT,
            "bytes_read": COUNT,
            "notes": TEXTS,
            "estimated_seconds": POSITIVE.or_none.maybe,
        },
        former={"residence": "storage"},
    ),
    Entry(
        PCAPlan,
        {
            "n_samples": COUNT,
            "n_features": COUNT,
            "n_components": COUNT,
            "dtype": TEXT,
            "device": TEXT,
            "method": one_of(*WORDS),
            "reason": TEXT,
            "solver": SOLVER.or_none,
            "by_samples": FLAG,
            "workers": COUNT,
            "predicted_bytes": INTEGER,
            "available_bytes": INTEGER,
            "notes": TEXTS,
            "estimated_seconds": POSITIVE.or_none.maybe,
        },
    ),
    # maps of new points, pre-images, what goes on with the next batch
    Entry(
        AffineProjection,
        {
            "basis": rows("m", "d"),
            "projection": floats("m", "p"),
            "offset": floats("p"),
            "mean_weights": floats("m"),
            "mean_norm": NUMBER,
            "template": of(PreparedRows).or_none,
        },
        shared=True,
    ),
    Entry(
        LinearProjection,
        {
            "shift": floats("d"),
            "axes": floats("d", "p"),
            "offset": floats("p"),
            "weights": floats("d").or_none,
            "inverse_roots": floats("p"),
        },
        host=("offset", "inverse_roots"),
    ),
    Entry(LinearAxes, AXES),
    Entry(LinearPreimage, AXES),
    Entry(
        RidgeRule,
        {"kernel": KERNEL, "alpha": POSITIVE, "centered": FLAG, "landmarks": COUNT, "n_jobs": INTEGER.or_none},
    ),
    Entry(
        RidgeRegression,
        {
            "rule": of(RidgeRule),
            "X": floats("n", "d"),
            "scores": floats("n", "p"),
            "kernel": KERNEL,
            "knots": floats("r", "p"),
            "dual_coef": floats("r", "d"),
            "mean": floats("d").or_none,
        },
    ),
    Entry(FeatureSpace, {"kernel": KERNEL, "map": of(AffineProjection), "n_jobs": INTEGER.or_none}),
    Entry(
        FixedPoint,
        {
            "space": of(FeatureSpace),
            "mean": floats("d"),
            "scores": floats("m", "p"),
            "spread": POSITIVE,
            "max_iter": AT_LEAST_ONE,
            "tol": POSITIVE,
        },
        make=FixedPoint.of,
    ),
    Entry(
        DistanceConstraint,
        {
            "space": of(FeatureSpace),
            "mean": floats("d").or_none,
            "scores": floats("m", "p"),
            "norms": floats("m"),
            "diagonal": floats("m"),
            "reach": POSITIVE,
            "n_neighbors": AT_LEAST_ONE,
        },
        make=DistanceConstraint.of,
    ),
    Entry(
        LatentModel,
        {
            "axes": floats("d", "p"),
            "variances": floats("p"),
            "noise": POSITIVE,
            "mean": floats("d"),
            "scale": POSITIVE.maybe,
        },
        host=("variances",),
    ),
    Entry(RowScaling, {"shift": floats("d"), "factor": POSITIVE, "variance": POSITIVE}),
    # without what a fit notes of a cluster on its way
    Entry(
        Cluster,
        {
            "weight": POSITIVE,
            "mean": floats("d"),
            "axes": floats("p", "d"),
            "variances": floats("p"),
            "noise": POSITIVE,
        },
        host=("variances",),
    ),
    Entry(
        LocalModel,
        {"method": one_of(*ASSIGNMENTS), "frame": of(RowScaling), "clusters": many(of(Cluster))},
        fields=lambda model: vars(model) | {"clusters": tuple(model.clusters)},
        make=lambda clusters, **fields: LocalModel(clusters=list(clusters), **fields),
    ),
    Entry(Moments, {"count": COUNT, "mean": floats("d"), "squares": floats("d")}),
    Entry(
        IncrementalState,
        {
            "moments": of(Moments),
            "axes": floats("p", "d"),
            "singular_values": floats("*"),
            "noise": POSITIVE,
            "scale": POSITIVE.maybe,
        },
        host=("singular_values",),
    ),
]


def _storage_of_kind(kind: str, n: int, tile_edge: int, workers: int, **sizes: int) -> Storage:
    """Return the storage that one class of 0.8 described by its kind."""
    if kind == "tiled":
        return TiledStorage(n, workers, tile_edge, sizes["cached_tiles"], sizes["panel"])
    if kind == "factored":
        return LowRankStorage(n, workers, sizes["rank"])
    return DenseStorage(n, workers) if kind == "dense" else ClusterStorage(n, workers)


def _rows_of_flags(
    data: Any, geometry: Geometry, by_product: bool, dtype: str, half_norms: np.ndarray | None
) -> EuclideanRows:
    """Return the rows that one class of 0.9 described by flags."""
    cls = DifferenceRows if not by_product else ProductRows if half_norms is None else SparseProductRows
    return cls(data, geometry, np.dtype(dtype))


BY_NAME = {entry.cls.__name__: entry for entry in ENTRIES}
# Names of classes in files of earlier versions.
BY_NAME |= {
    "Frame": BY_NAME["RowScaling"],
    "LinearMap": BY_NAME["LinearProjection"],
    "Running": BY_NAME["IncrementalState"],
    "DistanceRows": Entry(
        EuclideanRows,
        {
            "data": NOTHING,
            "geometry": of(Geometry),
            "by_product": FLAG,
            "dtype": one_of("float32", "float64"),
            "half_norms": floats("0").or_none,
        },
        make=_rows_of_flags,
    ),
    "MapArrays": BY_NAME["AffineProjection"],
    "Residence": Entry(
        Storage,
        {
            "kind": one_of("dense", "tiled", "factored", "distributed"),
            "n": COUNT,
            "tile_edge": AT_LEAST_ONE,
            "cached_tiles": COUNT,
            "workers": COUNT,
            "panel": COUNT,
            "rank": COUNT,
        },
        make=_storage_of_kind,
    ),
}


def entry_for(thing: Any) -> Entry | None:
    """Return the entry of the exact class of an object; a subclass may hold more than its base writes."""
    entry = BY_NAME.get(type(thing).__name__)
    return entry if entry is not None and type(thing) is entry.cls else None


def join(entry: Entry) -> None:
    """Add the entry of a class from above this room."""
    ENTRIES.append(entry)
    BY_NAME[entry.cls.__name__] = entry
