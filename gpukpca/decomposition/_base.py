"""Base of all estimators: types of fitted attributes, results, pickles and copies, methods behind a flag."""

from __future__ import annotations

import copy
import io
import pickle
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning as SklearnConvergenceWarning
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from gpukpca import exceptions
from gpukpca._typing import Array, ArrayLike, Held, Stream, of_rows
from gpukpca._version import __version__
from gpukpca.algorithms.fields import attributes_of
from gpukpca.algorithms.inputs import new_scores
from gpukpca.algorithms.plan import Plan
from gpukpca.algorithms.slots import NormBound
from gpukpca.backend.device import device_context
from gpukpca.backend.namespace import dtype_name, is_cupy, is_foreign, is_numpy, move, overflow_allowed, to_host
from gpukpca.data.place import Placement
from gpukpca.decomposition._callbacks import CallbackSupportMixin
from gpukpca.decomposition._validation import new_data
from gpukpca.exceptions import VersionWarning, warn_user
from gpukpca.kernels import Kernel

# Where a pickle keeps the version that wrote it.
VERSION = "_gpukpca_version"
Method = TypeVar("Method")


class ConvergenceWarning(exceptions.ConvergenceWarning, SklearnConvergenceWarning):
    """Warning of eigenpairs with residuals above the tolerance; filters of scikit-learn's class apply too."""


exceptions.raise_as(exceptions.ConvergenceWarning, ConvergenceWarning)


class KernelPCAAttributes(Generic[Held]):
    """The attributes of a fitted `KernelPCA`."""

    device_: str
    eigenvalues_: Held
    eigenvectors_: Held
    explained_variance_: Held
    explained_variance_ratio_: Held
    total_variance_: float
    residual_norms_: Held
    converged_: bool
    gap_: float | None
    n_passes_: int
    n_products_: int
    solver_seconds_: float
    projection_: Held
    offset_: Held
    kernel_: Kernel
    gamma_: float
    X_fit_: Held
    certificate_: float
    total_variance_interval_: tuple[float, float]
    landmarks_: NDArray[np.integer[Any]]
    n_samples_seen_: int | float
    X_transformed_fit_: Held
    dual_coef_: Held
    plan_: Plan
    solver_: str
    fallbacks_: tuple[str, ...]

    @property
    def norm_bound_(self) -> float | None:
        """Return what every eigenvalue of Nyström may be too small by; `norm_bound_info_` says how sure that is."""
        return self.norm_bound_info_.value

    @property
    def norm_bound_info_(self) -> NormBound:
        """Return the bound with the rows that it comes from, its failure probability, and the reason for none."""
        if (fit := getattr(self, "_result", None)) is None or (bound := fit.norm_bound) is None:
            raise AttributeError("norm_bound_ belongs to a fitted model with eigen_solver Nystrom.")
        return bound


class AxesAttributes(Generic[Held]):
    """The attributes of a fitted estimator with principal axes."""

    device_: str
    components_: Held
    explained_variance_: Held
    explained_variance_ratio_: Held
    total_variance_: float
    noise_variance_: float
    mean_: Held
    n_components_: int


class PCAAttributes(AxesAttributes[Held]):
    """The attributes of a fitted `PCA`."""

    singular_values_: Held
    scale_: Held | None
    residual_norms_: Held
    converged_: bool
    n_samples_: int | float
    plan_: Plan
    solver_: str
    fallbacks_: tuple[str, ...]


class IncrementalPCAAttributes(AxesAttributes[Held]):
    """The attributes of a fitted `IncrementalPCA`."""

    singular_values_: Held
    var_: Held
    n_samples_seen_: int | float
    batch_size_: int


class LatentAttributes(AxesAttributes[Held]):
    """The attributes of a fitted `ProbabilisticPCA` or `BayesianPCA`."""

    loadings_: Held
    n_samples_: int | float
    n_iter_: int
    log_likelihoods_: Held
    converged_: bool
    solver_: str
    fallbacks_: tuple[str, ...]


class LocalPCAAttributes(Generic[Held]):
    """The attributes of a fitted `LocalPCA`."""

    device_: str
    weights_: Held
    means_: Held
    components_: Held
    explained_variance_: Held
    noise_variance_: Held
    labels_: Array
    n_clusters_: int
    n_components_: int
    n_iter_: int
    converged_: bool
    log_likelihoods_: Held
    errors_: Held
    bic_: dict[tuple[int, int], float]
    fallbacks_: tuple[str, ...]


class ArrayTransformer(CallbackSupportMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Base of the estimators, whose arrays may live on a device; stands after other bases."""

    n_features_in_: int
    feature_names_in_: NDArray[np.object_]
    # Whether `fit` takes Dask arrays, whose rows stay on the workers of a client.
    _on_cluster = True
    # The fit result, and the attributes that say where new points are computed: the first that the model has.
    _result: Any
    _origins: tuple[str, ...] = ("components_",)

    if TYPE_CHECKING:

        @of_rows
        def fit_transform(self, X: ArrayLike | Stream, y: Any = None) -> Array:
            """Fit, and return the scores of X."""

        def set_output(self, *, transform: Literal["default", "pandas", "polars"] | None = None) -> Any:
            """Return the estimator, whose results may then be data frames."""

    @property
    def _dtype_out(self) -> str:
        """Return the dtype of the results of a fitted estimator."""
        return dtype_name(self.components_.dtype)

    @property
    def _n_features_out(self) -> int:
        """Return the number of columns of `transform`."""
        return int(self.n_components_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        tags.array_api_support = True
        return tags

    @property
    def _like(self) -> Array:
        """Return an array of the fit where it computes."""
        like: Array = self._result.components
        return like

    def _answer(self, X: Any, method: str, work: Callable[[Array], Any], **how: Any) -> Any:
        """Return ``work(rows)`` of new rows, checked as `new_data` does, where the fit computes."""
        check_is_fitted(self)
        Y = new_data(self, X, getattr(self, self._origins[-1]), method, **how)
        with device_context(self._like), overflow_allowed():
            return work(Y)

    def _of_scores(self, X: Any, work: Callable[[Array], Any]) -> Any:
        """Return ``work(scores)`` of scores of new points, checked, where the fit computes."""
        check_is_fitted(self)
        with device_context(self._like), overflow_allowed():
            return work(new_scores(X, self._n_features_out, self._like, least=1))

    def _output(self, result: Array, X: Any) -> Array:
        """Return a result in the library of the input; on the host if scikit-learn makes a data frame of it."""
        default = output_of_transform(self) == "default"
        return move(result, X) if default and is_foreign(X) else to_host(result)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state of a pickle: the version, and arrays of a CUDA device as NumPy arrays for any machine."""
        state: dict[str, Any] = super().__getstate__()
        return with_host_arrays(state) | {VERSION: __version__}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take the state of a pickle, and warn where another version wrote it."""
        written = state.pop(VERSION, "0.7.0 or older")
        if written != __version__:
            warn_user(
                f"this pickle of {type(self).__name__} was written by gpukpca {written}, and this is gpukpca "
                f"{__version__}: it may fail, or give other numbers. Fit again, or keep models with save, which "
                "gpukpca.load reads in later versions.",
                VersionWarning,
            )
        super().__setstate__(state)

    # Without these two, `copy` would take the state of a pickle, whose arrays are on the host.
    def __copy__(self) -> Any:
        """Return a copy that shares the arrays."""
        twin = type(self).__new__(type(self))
        twin.__dict__.update(self.__dict__)
        return twin

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """Return a copy on the same device."""
        twin = memo[id(self)] = type(self).__new__(type(self))
        twin.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return twin


def publish(
    estimator: Any,
    fit: Any,
    place: Placement,
    retries: tuple[str, ...] = (),
    *,
    without: tuple[str, ...] = (),
    optional: tuple[str, ...] = (),
    properties: tuple[str, ...] = (),
    **others: Any,
) -> None:
    """Set `_result` and the fitted attributes: fields and some `properties` of a fit, every array where the data are.

    The fields named `without` are no attributes. An `optional` attribute is deleted where its field is None, and so is
    one of the `others`, which are set as they are. `retries` are attempts that ran out of memory.
    """
    fitted = vars(estimator)
    values = attributes_of(fit, *without) | {f"{name}_": getattr(fit, name) for name in properties}
    if place.moved:
        values = {name: place.to_origin(value) if hasattr(value, "shape") else value for name, value in values.items()}
    optional = (*others, *(f"{name}_" for name in optional))
    for name, value in (values | others).items():
        if value is not None or name not in optional:
            fitted[name] = value
        else:
            fitted.pop(name, None)
    if (fallbacks := getattr(fit, "fallbacks", None)) is not None:
        estimator.fallbacks_ = (*place.notes, *retries, *fallbacks)
    fitted.pop("notes_", None)  # of the file of another fit
    estimator._result = fit


def output_of_transform(estimator: Any) -> str:
    """Return "default", or the kind of data frame that scikit-learn's `set_output` names."""
    return getattr(estimator, "_sklearn_output_config", {}).get("transform") or get_config()["transform_output"]


def with_host_arrays(state: Any) -> Any:
    """Return a copy with NumPy arrays for those of a device; without any, the object.

    Arrays on the host are shared with the copy. One that holds the numbers of an array of the device takes its place.
    """
    if "cupy" not in sys.modules:
        return state
    # Of every array of numbers, by its `id`: itself, so that no other gets this number, and its twin on the host.
    known, on_device = dict[int, tuple[Any, np.ndarray]](), dict[int, bool]()

    class Writer(pickle.Pickler):
        def persistent_id(self, thing: Any) -> int | None:
            if not is_cupy(thing) and not (is_numpy(thing) and thing.dtype != object):
                return None
            if (number := id(thing)) not in known:
                on_device[number], host = is_cupy(thing), to_host(thing)
                others = [known[one][1] for one in known if on_device[one] != on_device[number]]
                equal = (one for one in others if one.dtype == host.dtype and np.array_equal(one, host))
                known[number] = thing, next(equal, host)
            return number

    class Reader(pickle.Unpickler):
        def persistent_load(self, number: int) -> np.ndarray:
            return known[number][1]

    buffer = io.BytesIO()
    Writer(buffer).dump(state)
    return Reader(io.BytesIO(buffer.getbuffer())).load() if any(on_device.values()) else state


class OnlyWhere:
    """Descriptor of a method that an estimator has only with some parameters.

    Parameters
    ----------
    missing : callable
        From the estimator to what is missing, and what to set; empty where the method is there.
    error : class
        Raised with that text; scikit-learn takes an estimator with an AttributeError for one without the method.
    """

    def __init__(self, missing: Callable[[Any], str], error: type[Exception] = NotFittedError) -> None:
        self.missing = missing
        self.error = error

    def __call__(self, method: Method) -> Method:
        """Take the decorated method."""
        self.method: Any = method
        self.__doc__ = method.__doc__
        return cast(Method, self)

    def __get__(self, estimator: Any, owner: Any = None) -> Any:
        if estimator is None:
            return self.method
        if why := self.missing(estimator):
            raise self.error(why)
        return self.method.__get__(estimator, owner)
