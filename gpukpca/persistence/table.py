"""The fixed table of the classes in model files; no other object is ever made from a file.

A class joins by one entry: its name, and the kinds of the constructor's arguments that determine all of it. The fields
of a dataclass state their kinds by their types and shapes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from typing import Any

import numpy as np

from gpukpca.algorithms.kernel_pca.feature_space import FeatureSpace
from gpukpca.algorithms.kernel_pca.linear_axes import LinearAxes
from gpukpca.algorithms.kernel_pca.plan import Plan
from gpukpca.algorithms.kernel_pca.projection import AffineProjection
from gpukpca.algorithms.latent.model import LatentModel
from gpukpca.algorithms.mixture.assignment import ASSIGNMENTS
from gpukpca.algorithms.mixture.cluster import Cluster
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
    former: dict[str, str] = dataclasses.field(default_factory=dict)

    def taken(self, thing: Any) -> dict[str, Any]:
        """The fields of an object."""
        return {name: getattr(thing, name) for name in self.kinds} if self.fields is None else self.fields(thing)

    def made(self, fields: dict[str, Any]) -> Any:
        """The object with such fields, which were checked."""
        return (self.make or self.cls)(**fields)


def _kernel(cls: type[Kernel]) -> Entry:
    return Entry(cls, {name: PARAMETERS.get(name, FREE) for name in signature(cls).parameters})


def _euclidean_rows(cls: type[EuclideanRows]) -> Entry:
    return Entry(
        cls,
        {"data": NOTHING, "geometry": of(Geometry), "dtype": one_of("float32", "float64")},
        fields=lambda rows: {"data": rows.data, "geometry": rows.geometry, "dtype": dtype_name(rows.dtype)},
        make=lambda data, geometry, dtype: cls(data, geometry, np.dtype(dtype)),
    )


KERNEL = of(Kernel)
SIMPLE_KERNELS = (Linear, Polynomial, RBF, Sigmoid, Cosine, Laplacian, Matern, RationalQuadratic, Precomputed)
COMBINED_KERNELS = (Sum, Product, Scale, Power, Exp)
# Parameters of kernels; the values of the others are checked by the kernels alone.
PARAMETERS = {"k": KERNEL, "k1": KERNEL, "k2": KERNEL, "factor": NUMBER, "exponent": COUNT, "nu": ANY_NUMBER}
SOLVER = of(Dense, BlockKrylov, LowRank, Nystrom)
OF_PLANS = {"predicted_bytes": INTEGER, "available_bytes": INTEGER, "estimated_seconds": POSITIVE.or_none.maybe}
NOTHING = rows("0", "*")  # of a data set what was learned from it, without its rows
# Types of fields, as dataclasses write them.
BY_TYPE = {"int": COUNT, "float": POSITIVE, "bool": FLAG, "str": TEXT, "tuple[str, ...]": TEXTS}
BY_TYPE |= {
    cls.__name__: of(cls)
    for cls in (AffineProjection, FeatureSpace, Kernel, Moments, PreparedRows, RidgeRule, RowScaling, Storage)
}


def _data(
    cls: type,
    kinds: dict[str, Kind] | None = None,
    *,
    without: tuple[str, ...] = (),
    host: tuple[str, ...] = (),
    **options: Any,
) -> Entry:
    """Return the entry of a dataclass: type and shape of a field state its kind, unless `kinds` does.

    The fields `without` are not in files; those of the type np.ndarray stay on the host.
    """
    fields, kinds = [field for field in dataclasses.fields(cls) if field.name not in without], kinds or {}
    host += tuple(field.name for field in fields if str(field.type).startswith("np.ndarray"))
    return Entry(cls, {field.name: kinds.get(field.name) or _kind(field) for field in fields}, host, **options)


def _kind(field: dataclasses.Field[Any]) -> Kind:
    """Return the kind that a field of a dataclass states: the shape of an array, or a type."""
    name, _, optional = str(field.type).partition(" | ")
    shape = field.metadata.get("shape")
    kind = floats(*shape) if shape else BY_TYPE[name]
    return kind.or_none if optional else kind


ENTRIES = [
    *map(_kernel, (*SIMPLE_KERNELS, *COMBINED_KERNELS)),
    # what kernels learn from a training set
    _data(
        Geometry,
        {
            "mean": floats("d").or_none,
            "exponent": INTEGER,
            "varying": indices("*", below="d").or_none,
            "spread": POSITIVE.maybe,
        },
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
    _data(Dense),
    _data(LowRank),
    _data(BlockKrylov, {"start": floats("*", "*").or_none}, host=("start",)),
    _data(Nystrom, {"landmarks": TEXT}),
    _data(DenseStorage),
    _data(ClusterStorage),
    _data(TiledStorage, {"tile_edge": AT_LEAST_ONE}),
    _data(LowRankStorage),
    _data(Plan, {"solver": SOLVER, **OF_PLANS}, former={"residence": "storage"}),
    _data(PCAPlan, {"method": one_of(*WORDS), "solver": SOLVER.or_none, **OF_PLANS}),
    # maps of new points, pre-images, what goes on with the next batch
    _data(AffineProjection, {"basis": rows("m", "d"), "mean_norm": NUMBER}, without=("rows",), shared=True),
    _data(LinearProjection),
    _data(LinearAxes, {"rest": floats("d").or_none.maybe}),
    _data(LinearPreimage, {"rest": floats("d").or_none.maybe}),
    _data(RidgeRule, {"n_jobs": INTEGER.or_none}),
    _data(RidgeRegression),
    _data(FeatureSpace, {"n_jobs": INTEGER.or_none}, without=("landmarks", "axes")),
    _data(FixedPoint, {"max_iter": AT_LEAST_ONE}, without=("points", "slope"), make=FixedPoint.of),
    _data(DistanceConstraint, {"n_neighbors": AT_LEAST_ONE}, without=("points",), make=DistanceConstraint.of),
    _data(LatentModel, {"scale": POSITIVE.maybe}),
    _data(RowScaling),
    # without what a fit notes of a cluster on its way
    _data(Cluster, without=("reseeded", "fallbacks")),
    Entry(
        LocalModel,
        {"method": one_of(*ASSIGNMENTS), "frame": of(RowScaling), "clusters": many(of(Cluster))},
        fields=lambda model: vars(model) | {"clusters": tuple(model.clusters)},
        make=lambda clusters, **fields: LocalModel(clusters=list(clusters), **fields),
    ),
    _data(Moments, {"mean": floats("d"), "squares": floats("d")}),
    _data(IncrementalState, {"singular_values": floats("*"), "scale": POSITIVE.maybe}),
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
