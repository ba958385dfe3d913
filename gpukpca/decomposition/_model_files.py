"""Save fitted estimators and pipelines to files, and load them."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral
from typing import IO, Any, Protocol

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted

from gpukpca._container import CONTRADICTIONS, Arrays, Header, format_errors, read_container, write_content
from gpukpca._files import plain_target, replaced_whole
from gpukpca._typing import Array, OfRows
from gpukpca.algorithms.fields import field_of
from gpukpca.backend.device import parsed_device
from gpukpca.backend.namespace import is_foreign, is_numpy, is_sparse, to_host
from gpukpca.backend.random import generator
from gpukpca.data.place import Placement, placement_for
from gpukpca.decomposition._base import ArrayTransformer
from gpukpca.decomposition._parameters import check_parameters
from gpukpca.exceptions import GpuKPCAWarning, InvalidParameterError, ModelFormatError, warn_user
from gpukpca.kernels import Kernel
from gpukpca.persistence.checks import check_fit
from gpukpca.persistence.classes import register
from gpukpca.persistence.model_file import (
    CONTRADICTION,
    FACTS,
    KIND,
    Step,
    check_version,
    fit_at,
    naming,
    packed,
    unpacked,
    unpacked_notes,
)

# Parameters that belong to a process or a machine, not to a model, and what scikit-learn's `set_output` and
# `set_fit_request` leave on an estimator.
NOT_KEPT = ("checkpoint", "device", "verbose")
OF_SKLEARN = ("_sklearn_output_config", "_metadata_request", "_skl_callbacks", "__orig_class__")
# The matrix of a precomputed kernel, which new points do not need, rows that a stream holds, what only warns, and the
# notes of another file.
LEFT_OUT = {"X_fit_", "_held", "_set_with_kernel", "notes_"}
# Endings of files that other readers take for pickles.
OF_PICKLES = (".pkl", ".pickle", ".joblib")
# Which steps of a model are scalers.
SHAPES = ([False], [True, False])

# The classes of estimators by name; each registers when its module is imported.
ESTIMATORS: dict[str, Any] = {}


class Saved(ArrayTransformer):
    """Base of the estimators that can be saved and loaded.

    A subclass that readers of files know states the `_result_type` of its fits. It keeps the fit result in `_result`,
    and `_publish(result, place)` sets the attributes that follow from it.
    """

    _result_type: type
    _publish: Callable[..., None]

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        if "_result_type" in vars(cls):
            ESTIMATORS[cls.__name__] = cls

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted estimator to a file that `gpukpca.load` reads, on any machine.

        Parameters
        ----------
        path : str or path
            Such as "model.safetensors"; any name is allowed, with a warning where it is that of a pickle. An existing
            file is replaced, whole: until all is written it stays what it was. A link is replaced and not followed.

        Raises
        ------
        NotFittedError
        InvalidParameterError
            A part of the model is code (a Python function as kernel, a user-defined class of kernel or solver), or is
            infinite; an attribute was added, or was changed after the fit.
        OSError
            A directory, no such folder, no permission, no space.

        Notes
        -----
        A safetensors file: arrays by name, such as ``fit.components``, and one JSON text in its metadata. An array that
        the text names as transposed is stored so. Arrays of a device are written as they are on the host. Not kept:
        `checkpoint`, `device`, `verbose`, a `random_state` that is neither None nor an integer, `set_output`.
        With all samples for a basis, and with a ridge pre-image, the training data are part of the model, and of the
        file. `gpukpca.save` also saves a Pipeline of a StandardScaler and an estimator.
        """
        save(self, path)


@dataclass(frozen=True)
class ScalerFit:
    """The fitted attributes of a StandardScaler."""

    mean: Array | None = field_of("d", "of the columns")
    var: Array | None = field_of("d", "of the columns, over n", "nonnegative")
    scale: Array | None = field_of("d", "divisors of the centered columns", "positive")
    n_samples_seen: Array = field_of(
        "*", "rows, or for every column those without missing entries; sums of weights", "nonnegative", "or integers"
    )

    @classmethod
    def of(cls, scaler: Any) -> ScalerFit:
        """Return the state of a fitted scaler."""
        return cls(scaler.mean_, scaler.var_, scaler.scale_, np.atleast_1d(scaler.n_samples_seen_))

    def publish(self, scaler: Any) -> None:
        """Set the attributes of a scaler."""
        scaler.mean_, scaler.var_, scaler.scale_ = self.mean, self.var, self.scale
        scaler.n_samples_seen_ = self.n_samples_seen if len(self.n_samples_seen) > 1 else self.n_samples_seen[0]


register(ScalerFit)


# -- to a file ---------------------------------------------------------------------------------------------------------


def save(model: Any, path: str | os.PathLike[str], notes: dict[str, Any] | None = None) -> None:
    """Save a model, or a pipeline of a scaler and a model; `gpukpca.load` reads it.

    Parameters
    ----------
    model : fitted estimator with a method `save`, or Pipeline of two steps, a StandardScaler and such an estimator
    path : str or path
        Any name, such as "model.safetensors"; a warning says that a name of pickles (.pkl, .pickle, .joblib) misleads.
        An existing file is replaced, as by `numpy.save`, and only once all is written.
    notes : dict, optional
        Values of the caller, which `load` gives back as `notes_`: text to numbers, text, None, arrays, and tuples,
        lists and dictionaries of those.

    Raises
    ------
    InvalidParameterError
        A model or a value that a file cannot hold.
    OSError
        The file cannot be written; nothing has changed then.

    See Also
    --------
    load : Read the file.

    Examples
    --------
    >>> import numpy as np
    >>> import gpukpca
    >>> X = np.arange(12.0).reshape(6, 2) ** 2
    >>> gpukpca.save(gpukpca.PCA(1).fit(X), "model.safetensors")
    >>> gpukpca.load("model.safetensors").transform(X[:1]).shape
    (1, 1)
    """
    target = plain_target(path)
    if target.suffix.lower() in OF_PICKLES:
        warn_user(
            f"the file {target.name} is no pickle, as its name says: gpukpca.load reads it, pickle and joblib do not. "
            f"Name it {target.with_suffix('.safetensors').name}.",
            GpuKPCAWarning,
        )
    with replaced_whole(target) as (file,):
        write_model(file, model, notes)


def write_model(file: IO[bytes], model: Any, notes: dict[str, Any] | None = None) -> None:
    """Write what `save` saves to an open binary file."""
    steps = model.steps if type(model) is Pipeline else [(None, model)]
    if [type(step) is StandardScaler for _, step in steps] not in SHAPES:
        raise InvalidParameterError(
            "a file holds an estimator of gpukpca, or a Pipeline of two steps, a StandardScaler and such an estimator."
        )
    header, arrays = packed([_step_of(name, step) for name, step in steps], notes or {})
    try:
        twins = _estimators(header, arrays)
    except ModelFormatError as error:  # better no file than one that cannot be read
        raise InvalidParameterError(f"this model cannot be saved: {error}.") from error
    # What was changed after the fit would be lost without a word.
    for (_, step), (_, twin) in zip(steps, twins, strict=True):
        _check_same(step, twin)
    write_content(file, KIND, header, arrays)


def _step_of(name: str | None, model: Any) -> Step:
    """Return what a file holds of an estimator or a scaler."""
    cls = type(model)
    if hasattr(model, "fit"):
        check_is_fitted(model)
    if cls is StandardScaler:
        result: Any = ScalerFit.of(model)
    elif cls is ESTIMATORS.get(cls.__name__):
        result = model._result
    else:
        raise InvalidParameterError(
            f"{cls.__name__} is no class of gpukpca that a file holds; only {', '.join(sorted(ESTIMATORS))} itself can "
            "be saved, no subclass of it. Of a search save its best_estimator_."
        )
    parameters = {key: value for key, value in model.get_params(deep=False).items() if key not in NOT_KEPT}
    if "random_state" in parameters:
        seed = parameters["random_state"]  # a fit has changed the state of a generator
        parameters["random_state"] = int(seed) if isinstance(seed, Integral) else None
    return Step(cls.__name__, name, parameters, _facts(model), result)


def _facts(model: Any) -> dict[str, Any]:
    """Return the attributes of a fitted estimator that are facts."""
    return {name: value for name, value in vars(model).items() if name in FACTS}


def _check_same(model: Any, twin: Any) -> None:
    """Raise where an estimator has attributes that its file does not give back."""
    known, wanted = {*model.get_params(deep=False), *OF_SKLEARN}, vars(twin)
    wrong = sorted(set(vars(model)) - known - LEFT_OUT - set(wanted))
    fitted = [name for name in sorted(set(wanted) - known) if name.endswith("_")]
    wrong += [name for name in fitted if not _is_same(vars(model).get(name), wanted[name])]
    if wrong:
        raise InvalidParameterError(
            f"{type(model).__name__} cannot be saved: {', '.join(wrong)} was added or changed after the fit, and a "
            "file holds the result of the fit. Fit again, or give what you changed to gpukpca.save in `notes`."
        )


def _is_same(a: Any, b: Any) -> bool:
    """Return whether two attributes have the same numbers."""
    if is_sparse(a) and is_sparse(b):
        return a is b or (a.shape == b.shape and (a != b).nnz == 0)
    if is_numpy(a) or is_foreign(a):
        return a is b or (is_numpy(b) and np.array_equal(to_host(a), b, equal_nan=b.dtype.kind == "f"))
    if isinstance(b, float) and math.isnan(b):
        return isinstance(a, float) and math.isnan(a)
    if b is None or isinstance(b, (int, float, np.number, str, tuple, dict, Kernel)):
        return bool(a == b)
    return type(a) is type(b)


# -- from a file -------------------------------------------------------------------------------------------------------


class FittedModel(Protocol):
    """An estimator of the library, or a pipeline of a scaler and one, for type checkers: `isinstance` says which."""

    n_features_in_: int
    notes_: dict[str, Any]
    transform: OfRows[...]

    def __getattr__(self, name: str, /) -> Any:
        """Return what only some of them have."""


def load(path: str | os.PathLike[str], device: str | None = None) -> FittedModel:
    """Return the fitted estimator that ``model.save(path)`` wrote.

    Parameters
    ----------
    path : str or path
        Its name does not matter, only what is in it.
    device : None, "auto", "cpu", "cuda" or "cuda:N"
        The estimator's parameter `device`. None: new points are computed on the host, wherever the model was fitted.
        "cuda": what they need goes to the GPU now.

    Returns
    -------
    KernelPCA, PCA, IncrementalPCA, ProbabilisticPCA, BayesianPCA or LocalPCA; a Pipeline of a StandardScaler and one
        Its arrays are NumPy arrays and share nothing with the file. `notes_` holds the notes of `save`, by default
        none; a later fit leaves them.

    Raises
    ------
    ModelFormatError
        No model file, damaged, cut off, with parts of other types, shapes or ranges, with a CSR matrix whose column
        indices do not ascend in every row, or written by a newer version.
    OSError
        No such file, a directory, no permission.
    MemoryBudgetError
        A file that is too large for the free memory.
    InvalidParameterError, DeviceUnavailableError
        About `device`.

    See Also
    --------
    save : Write the file.

    Notes
    -----
    Safe for files from anywhere: nothing in them is run, objects are made from a fixed table of classes, and memory and
    time are of the order of the file. The numbers are not proved to be those of a fit.
    Cost: one reading of the file and its SHA-256 digest.

    Examples
    --------
    >>> import numpy as np
    >>> import gpukpca
    >>> X = np.random.default_rng(0).standard_normal((50, 4))
    >>> model = gpukpca.KernelPCA(2, kernel="rbf").fit(X)
    >>> model.save("model.safetensors")
    >>> again = gpukpca.load("model.safetensors")
    >>> bool((again.transform(X) == model.transform(X)).all())
    True
    >>> gpukpca.save(model, "model.safetensors", notes={"data": "random", "rows": 50})
    >>> gpukpca.load("model.safetensors").notes_
    {'data': 'random', 'rows': 50}
    """
    parsed_device(device)
    with naming(path) as path:
        model, notes = restored(*read_container(path, KIND), device)
    model.notes_ = notes
    return model


def load_with_notes(path: str | os.PathLike[str], device: str | None = None) -> tuple[FittedModel, dict[str, Any]]:
    """Return the estimator of `load`, and its notes."""
    model = load(path, device)
    return model, model.notes_


def restored(header: Header, arrays: Arrays, device: str | None = None) -> tuple[Any, dict[str, Any]]:
    """Return the fitted estimator of a header and arrays, checked, and the notes.

    What the estimator needs for new points goes to `device`.
    """
    with format_errors(CONTRADICTION, *CONTRADICTIONS):
        check_version(header)
        steps = _estimators(header, arrays)
        estimator = steps[-1][1]
        generator(getattr(estimator, "random_state", None))
        check_parameters(estimator)
        check_fit(estimator._result)
        notes = unpacked_notes(header, arrays)
    estimator.set_params(device=device)
    place = placement_for(
        device, next(value for name in estimator._origins if (value := vars(estimator).get(name)) is not None)
    )
    # The file was checked on the host first: a device would hold what is refused.
    if place.moved:
        facts = _facts(estimator)
        estimator._publish(fit_at(header, arrays, place.work), place)
        vars(estimator).update(facts)
    return estimator if len(steps) == 1 else Pipeline(steps), notes


def _estimators(header: Header, arrays: Arrays) -> list[tuple[str | None, Any]]:
    """Return the names and the fitted estimators of a file on the host: one, or a scaler and one."""
    with format_errors(CONTRADICTION, *CONTRADICTIONS):
        steps = unpacked(header, arrays, [*ESTIMATORS, "StandardScaler"])
        if [step.kind == "StandardScaler" for step in steps] not in SHAPES:
            raise ModelFormatError("its steps are no estimator, and no StandardScaler and an estimator")
        return [(step.name, _estimator(step)) for step in steps]


def _estimator(step: Step) -> Any:
    """Return a fitted estimator, on the host."""
    cls, facts = StandardScaler if step.kind == "StandardScaler" else ESTIMATORS[step.kind], step.facts
    if unknown := sorted(set(step.parameters) - (set(cls().get_params(deep=False)) - set(NOT_KEPT))):
        raise ModelFormatError(f"{step.kind} has no parameter {', '.join(unknown)[:200]}")
    if type(step.fit) is not (ScalerFit if cls is StandardScaler else cls._result_type):
        raise ModelFormatError(f"{step.kind} has a fit of {type(step.fit).__name__}")
    model, host = cls(**step.parameters), np.empty(0)
    vars(model).update(facts)
    if cls is StandardScaler:
        step.fit.publish(model)
    else:
        model._publish(step.fit, Placement(host, host))
    if missing := sorted(set(_facts(model)) - set(facts)):
        raise ModelFormatError(f"{step.kind} lacks {', '.join(missing)}")
    vars(model).update(facts)
    return model
