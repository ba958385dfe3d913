"""KernelPCA of batches: fits of iterables and of sets that are read by slices, and `partial_fit`."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from gpukpca._typing import Array, ArrayLike, Stream, Vector
from gpukpca.algorithms.inputs import CountedRows, check_place, counted_rows, rows_that_count, weights_of_batches
from gpukpca.algorithms.kernel_pca.batches import STORED_ONLY, fit_batches, fit_next_batch, plan_batches, rows_needed
from gpukpca.algorithms.kernel_pca.model import KernelPCAFit
from gpukpca.algorithms.kernel_pca.settings import is_nystrom
from gpukpca.algorithms.plan import Plan
from gpukpca.algorithms.resources import Resources
from gpukpca.backend.namespace import is_foreign
from gpukpca.data.batches import BatchedRows, is_set, is_stream
from gpukpca.data.distinct import DistinctRows, first_of_each, stacked
from gpukpca.data.place import Placement
from gpukpca.data.slicing import place_of, take_rows
from gpukpca.decomposition._base import KernelPCAAttributes, OnlyWhere
from gpukpca.decomposition._batches import add_batches, batches_in_slices, repeated
from gpukpca.decomposition._kernels import check_same_kernel, is_stored_only, kernel_from
from gpukpca.decomposition._session import FitSession, fit_session, fit_tools, settings_of
from gpukpca.decomposition._validation import new_data, weighted_data
from gpukpca.exceptions import GpuKPCAWarning, InvalidParameterError, RankWarning, warn_user


def _needs_all_rows(estimator: Any, what: str = "partial_fit") -> tuple[str, str]:
    """Return why an estimator cannot fit rows that are read once, and by which parameter; empty where it can."""
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
    """Add to KernelPCA the fits that read each row once."""

    eigen_solver: Any
    preimage: Any
    checkpoint: Any
    fit_inverse_transform: bool
    projection_: Array
    eigenvalues_: Array
    transform: Callable[..., Array]
    _publish: Callable[..., None]
    _resources: Callable[[Placement], Resources]
    _result: KernelPCAFit

    @OnlyWhere(lambda estimator: _needs_all_rows(estimator)[0], AttributeError)
    def partial_fit(self, X: ArrayLike | Stream, y: Any = None, sample_weight: Vector | None = None) -> Self:
        """Add one batch of rows to the fit, or begin one; ``eigen_solver=Nystrom(...)`` alone.

        After `fit` rows are added to those of the fit. Without one, batches are held until as many of their rows differ
        as there are landmarks. These rows choose the landmarks, unless they are points, and what the kernel takes from
        the data. Later batches change neither. Their order and sizes do not matter beyond rounding.

        Parameters
        ----------
        X : array, CSR matrix or data frame, shape (b, d); or an iterable of such batches
            An array is one batch. Those of an iterable, such as `Batches`, are added in turn: all, or none on an error.
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
        return add_batches(self, X, sample_weight, self._add)

    def _add(self, X: Any, sample_weight: Any = None) -> Self:
        """Add one batch."""
        with fit_session(self, X) as session:
            return session.retry(lambda attempt: self._fit_batch(X, attempt, sample_weight))

    def _fit_batch(self, X: Any, session: FitSession, sample_weight: Any) -> Any:
        """Hold the first batches, fit them, or add one to those before."""
        held: DistinctRows | None = vars(self).get("_held")
        before: KernelPCAFit | None = vars(self).get("_result") if held is None else None
        if before is not None and before.stream is None:
            before = None
            warn_user(
                "partial_fit begins a new stream: another solver had fitted the model, and that fit is dropped.",
                GpuKPCAWarning,
            )
        if before is None:
            self._begin(X, held, session, sample_weight)
            return self
        check_same_kernel(kernel_from(self), before.kernel)
        _, (data, weights, _) = self._following(X, self.projection_, sample_weight)
        place = Placement(before.map.like, self.eigenvalues_[:0])
        with session.on(place, data) as resources:
            settings = settings_of(self, before.kernel)
            fit = fit_next_batch(before, place.to_work(data), settings, resources, weights)
        self._publish(fit, place, session.budget.failures)
        return self

    def _following(self, X: Any, first: Array, sample_weight: Any) -> tuple[Any, CountedRows]:
        """Return a batch in the library of the `first` rows or results, and its rows that count."""
        check_place("the batch", X if is_foreign(X) else np.empty(0), "the first one", place_of(first))
        data = new_data(self, X, first, "partial_fit", counts=rows_that_count(sample_weight))
        return data, counted_rows(data, sample_weight, is_batch=True)

    def _begin(self, X: Any, held: DistinctRows | None, session: FitSession, sample_weight: Any) -> None:
        """Fit the `held` rows and a batch where enough of them differ, else hold both."""
        kernel = kernel_from(self)
        if held is None:
            every, counted = weighted_data(self, X, sample_weight, kernel, is_batch=True)
            rows = counted.rows
        else:
            every, counted = self._following(X, held.rows, sample_weight)
            rows = stacked([held.rows, counted.rows])
            counted = counted._replace(rows=take_rows(rows, len(held), int(rows.shape[0])))  # of the type of the first
        needed = rows_needed(kernel, settings_of(self, kernel))
        if len(first_of_each(rows, needed)[0]) >= needed:
            self._fit_first(counted, every, held, session)
            vars(self).pop("_held", None)
            return
        more = DistinctRows.of(counted.rows, counted.weights, counted.numbers, int(every.shape[0]))
        for name in RESULTS & vars(self).keys():
            delattr(self, name)
        self._held: DistinctRows = more if held is None else held.joined(more)

    def _fit_first(self, counted: CountedRows, every: Any, held: DistinctRows | None, session: FitSession) -> None:
        """Fit rows that were held, and those that count of `every` row of a batch."""
        data, weights, numbers = counted
        place, b = session.place(data), int(data.shape[0])
        batches = BatchedRows(lambda: iter([place.to_work(data)]), data[:0, :], [b])
        weights = np.ones(b) if held is not None and weights is None else weights
        rows: dict[str, Any] = {"held": held, "numbers": numbers, "every": every}
        with session.on(place, data) as resources:
            fit = self._fit_of_batches(batches, resources, weights, once=True, **rows)
        self._publish(fit, place, session.budget.failures)

    if not TYPE_CHECKING:  # which then finds names that are no attributes

        def __getattr__(self, name: str) -> Any:
            """Fit the rows that are held where a result is read."""
            held: DistinctRows | None = vars(self).get("_held")
            if held is None or name not in RESULTS or "_result" in vars(self):
                return object.__getattribute__(self, name)  # raises its own error
            if why := _needs_all_rows(self)[0]:
                raise AttributeError(why)
            warn_user(
                "the batches so far have fewer different rows than landmarks are to be chosen: each of them is one. "
                "Further batches change this result.",
                RankWarning,
                rows=len(held),
            )
            none, twin = CountedRows(take_rows(held.rows, 0, 0), None), copy.copy(self)
            twin.random_state = copy.deepcopy(self.random_state)  # so that reading changes no later fit
            with fit_session(twin, held.rows) as session:
                session.retry(lambda attempt: twin._fit_first(none, held.rows, held, attempt))
            vars(self).update({key: value for key, value in vars(twin).items() if key in RESULTS})
            return object.__getattribute__(self, name)

    def _streams(self, container: Any) -> bool:
        """Return whether `fit` reads a container batch by batch."""
        return is_stream(container) or (is_nystrom(self.eigen_solver) and is_set(container))

    def _fit_stream(self, container: Any, session: FitSession, wants_scores: bool, sample_weight: Any) -> Array | None:
        """Make one attempt with an iterable of batches, or a set that is read by slices; return scores or None."""
        self._check_streams(container)
        container = repeated(container, "fit_transform") if wants_scores else container
        if session.budget.failures and isinstance(container, Iterator):
            raise session.budget.error()  # the attempt before has used up batches
        batches = batches_in_slices(self, container, sample_weight)
        weights = weights_of_batches(container, sample_weight, batches)
        with session.on(batches.place, batches.like) as resources:
            fit = self._fit_of_batches(batches, resources, weights, once=isinstance(container, Iterator))
        self._publish(fit, batches.place, session.budget.failures)
        return self.transform(container) if wants_scores else None

    def _plan_stream(self, X: Any) -> Plan:
        """Return the plan of a fit of batches, or of a set that is read by slices."""
        self._check_streams(X)
        batches, kernel = batches_in_slices(self, repeated(X, "plan, with the fit after it,")), kernel_from(self)
        resources, has_checkpoint = self._resources(batches.place), self.checkpoint is not None
        return plan_batches(batches, kernel, settings_of(self, kernel), resources, has_checkpoint)

    def _fit_of_batches(
        self, batches: Any, resources: Resources, weights: np.ndarray | None, **how: Any
    ) -> KernelPCAFit:
        kernel = kernel_from(self)
        how |= fit_tools(self, batches, kernel, weights)
        return fit_batches(batches, kernel, settings_of(self, kernel), resources, weights=weights, **how)

    def _check_streams(self, container: Any) -> None:
        """Raise `InvalidParameterError` where the parameters do not suit a container that is read batch by batch."""
        what = "an iterable of batches" if is_stream(container) else "a set that is read by slices"
        why, argument = _needs_all_rows(self, what)
        if why:
            raise InvalidParameterError(why, argument=argument)
