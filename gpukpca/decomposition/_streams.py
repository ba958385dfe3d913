"""`KernelPCA.partial_fit`, and what fits that read each row once require."""

from __future__ import annotations

import copy
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from gpukpca._typing import ArrayLike, Stream, Vector
from gpukpca.algorithms.inputs import check_no_weights, counted_for
from gpukpca.algorithms.kernel_pca.batches import STORED_ONLY, fit_next_batch, rows_needed
from gpukpca.algorithms.kernel_pca.model import KernelPCAFit
from gpukpca.algorithms.kernel_pca.settings import is_nystrom, rows_to_check
from gpukpca.data.batches import BatchedRows, is_converted, is_set, is_stream
from gpukpca.data.distinct import DistinctRows, first_of_each, stacked
from gpukpca.data.frequencies import CountedRows
from gpukpca.data.place import Placement, comes_in_batches
from gpukpca.data.slicing import take_rows
from gpukpca.decomposition._base import KernelPCAAttributes, OnlyWhere
from gpukpca.decomposition._batches import add_batches, checked_batch
from gpukpca.decomposition._kernel_fits import fit_of_batches
from gpukpca.decomposition._kernels import check_same_kernel, is_stored_only, kernel_from
from gpukpca.decomposition._session import FitSession, fit_in_session, settings_of
from gpukpca.exceptions import GpuKPCAWarning, InvalidParameterError, RankWarning, warn_user


def _needs_all_rows(estimator: Any, what: str = "partial_fit") -> tuple[str, str]:
    """Return why rows that are read once cannot be fitted, and which parameter says so."""
    if not is_nystrom(estimator.eigen_solver):
        return (
            f"{what} needs eigen_solver=gpukpca.Nystrom(rank=...), which reads each row once and bounds its error; "
            f"eigen_solver={estimator.eigen_solver!r} needs all rows at once."
        ), "eigen_solver"
    if estimator.preimage is not None or estimator.fit_inverse_transform:
        return (
            f"{what} learns no pre-image, which needs all rows at once. Set preimage=None and "
            "fit_inverse_transform=False."
        ), "preimage"
    if is_stored_only(estimator.kernel):
        return STORED_ONLY, "kernel"
    return "", ""


# What a fit sets.
RESULTS = {"_result", *KernelPCAAttributes.__annotations__}


class WithStreams:
    """Add to KernelPCA `partial_fit`, and the results of rows that it holds."""

    @OnlyWhere(lambda estimator: _needs_all_rows(estimator)[0], AttributeError)
    def partial_fit(self, X: ArrayLike | Stream, y: Any = None, sample_weight: Vector | None = None) -> Self:
        """Add one batch of rows to the fit, or begin one; ``eigen_solver=Nystrom(...)`` alone.

        After `fit` rows are added to those of the fit. Without one, batches are held until as many of their rows differ
        as there are landmarks. These rows choose the landmarks, unless they are points, and what the kernel takes from
        the data. Later batches change neither. Their order and sizes do not matter beyond rounding.

        Parameters
        ----------
        X : array, CSR matrix or data frame, shape (b, d); or an iterable of such batches
            An array is one batch. Those of an iterable, such as `Batches`, or the slices of a set, are added
            in turn: all, or none on an error.
        y : ignored
        sample_weight : array, shape (b,), optional
            How often each row of one batch counts; see `fit`. `n_samples_seen_` is their sum.

        Returns
        -------
        KernelPCA
            The estimator itself, which transforms new points after every batch. It has no `eigenvectors_`.

        Raises
        ------
        InvalidParameterError
            The kernel has changed since the first batch; a landmark is no row of the first batch.
        AttributeError
            The solver, the pre-image or the kernel needs all rows at once.

        Warns
        -----
        RankWarning
            A result is read while rows are held: it is that of the rows so far, all of which are landmarks. Further
            batches begin with the held rows again.
        PrecisionWarning
            The landmarks miss a larger share of the last rows than of the first: the stream leaves them.
        UserWarning
            Another solver had fitted the model. That fit is dropped: a stream begins.

        Notes
        -----
        Cost: b r kernel values and 2 b r² operations for r landmarks, and r³ for the eigenpairs. Memory: r² + r d, and
        the batch. `certificate_` holds for all rows so far, and grows where the stream leaves the landmarks. A model
        that is saved and loaded takes further batches.

        Examples
        --------
        >>> import numpy as np
        >>> from gpukpca import KernelPCA, Nystrom
        >>> X = np.random.default_rng(0).standard_normal((900, 3)) * [3.0, 2.0, 1.0]
        >>> model = KernelPCA(2, kernel="rbf", gamma=0.02, eigen_solver=Nystrom(rank=100), random_state=0)
        >>> for batch in np.split(X, 3):
        ...     model = model.partial_fit(batch)
        >>> model.n_samples_seen_, model.transform(X[:5]).shape
        (900, (5, 2))
        """
        return add_batches(self, X, sample_weight, partial(_add, self))

    if not TYPE_CHECKING:  # which then finds names that are no attributes

        def __getattr__(self, name: str) -> Any:
            """Fit the rows that are held where a result is read."""
            if name in RESULTS and "_held" in vars(self) and "_result" not in vars(self):
                _fit_held(self)
            return object.__getattribute__(self, name)  # raises its own error


def _add(model: Any, X: Any, sample_weight: Any = None) -> Any:
    """Return the model with one batch more."""
    fit_in_session(model, X, lambda session: _fit_batch(model, X, session, sample_weight))
    return model


def _fit_batch(model: Any, X: Any, session: FitSession, sample_weight: Any) -> None:
    """Hold the first batches, fit them, or add one to those before."""
    held: DistinctRows | None = vars(model).get("_held")
    before: KernelPCAFit | None = vars(model).get("_result") if held is None else None
    if before is not None and before.stream is None:
        before = None
        warn_user(
            "partial_fit begins a new stream: another solver had fitted the model, and that fit is dropped.",
            GpuKPCAWarning,
        )
    kernel = kernel_from(model)
    if before is not None:
        check_same_kernel(kernel, before.kernel)
    first: Any = held.rows if held is not None else None if before is None else model.projection_
    counts = rows_to_check(model.eigen_solver if first is None else None, sample_weight)
    every = checked_batch(model, X, first, counts=counts)
    counted = counted_for(kernel, every, sample_weight, is_batch=True)
    if before is None:
        _begin(model, counted, every, held, session)
        return
    place = Placement(before.map.like, model.eigenvalues_[:0])
    with session.on(place, counted.rows) as resources:
        batch, settings = place.to_work(counted.rows), settings_of(model, before.kernel)
        fit = fit_next_batch(before, batch, settings, resources, counted.weights)
    model._publish(fit, place, session.budget.failures)


def _begin(model: Any, counted: CountedRows, every: Any, held: DistinctRows | None, session: FitSession) -> None:
    """Fit the `held` rows with a batch where enough of them differ, else hold both."""
    kernel, rows = kernel_from(model), counted.rows
    if held is not None:
        rows = stacked([held.rows, rows])
        counted = counted._replace(rows=take_rows(rows, len(held), int(rows.shape[0])))  # of the type of the first
    needed = rows_needed(kernel, settings_of(model, kernel))
    if len(first_of_each(rows, needed)[0]) >= needed:
        _fit_first(model, counted, every, held, session)
        vars(model).pop("_held", None)
        return
    more = DistinctRows.of(counted.rows, counted.weights, counted.numbers, int(every.shape[0]))
    for name in RESULTS & vars(model).keys():
        delattr(model, name)
    model._held = more if held is None else held.joined(more)


def _fit_first(model: Any, counted: CountedRows, every: Any, held: DistinctRows | None, session: FitSession) -> None:
    """Fit rows that were held, and those that count of `every` row of a batch."""
    data, weights, numbers = counted
    place, b = session.place(data), int(data.shape[0])
    batches = BatchedRows(lambda: iter([place.to_work(data)]), data[:0, :], [b])
    weights = np.ones(b) if held is not None and weights is None else weights
    with session.on(place, data) as resources:
        how: dict[str, Any] = {"once": True, "held": held, "numbers": numbers, "every": every}
        fit = fit_of_batches(model, batches, resources, weights, **how)
    model._publish(fit, place, session.budget.failures)


def _fit_held(model: Any) -> None:
    """Set the results of the rows that are held, which are held on."""
    held = model._held
    if why := _needs_all_rows(model)[0]:
        raise AttributeError(why)
    warn_user(
        "the batches so far have fewer different rows than landmarks are to be chosen: each of them is one. "
        "Further batches change this result.",
        RankWarning,
        rows=len(held),
    )
    # On a copy: the model goes on holding its rows, and the next batch begins with them again.
    none, twin = CountedRows(take_rows(held.rows, 0, 0), None), copy.copy(model)
    twin.random_state = copy.deepcopy(model.random_state)  # so that reading changes no later fit
    fit_in_session(twin, held.rows, lambda session: _fit_first(twin, none, held.rows, held, session))
    vars(model).update({key: value for key, value in vars(twin).items() if key in RESULTS})


def reads_batches(model: Any, X: Any, sample_weight: Any = None) -> bool:
    """Return whether `KernelPCA.fit` reads X batch by batch; raise where the parameters do not suit that."""
    what = "an iterable of batches" if is_stream(X) else ""
    in_slices = is_converted(X) or comes_in_batches(X)
    if is_nystrom(model.eigen_solver) and in_slices and (is_set(X) or not _needs_all_rows(model)[0]):
        what = "a set that is read by slices"
    why, argument = _needs_all_rows(model, what) if what else ("", "")
    if why:
        raise InvalidParameterError(why, argument=argument)
    check_no_weights(X, sample_weight)
    return bool(what)
