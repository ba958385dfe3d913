"""The method `plan` of estimators: the plan of a fit of data, or of data of which the shape alone is known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sklearn.base import clone

from gpukpca._formatting import format_need
from gpukpca._typing import ArrayLike, Stream
from gpukpca.algorithms.plan import Plan
from gpukpca.algorithms.resources import Resources
from gpukpca.backend.device import device_context
from gpukpca.backend.namespace import item_size, overflow_allowed
from gpukpca.data.batches import is_set
from gpukpca.data.place import Placement, by_routes
from gpukpca.data.shapes import DataShape, planned_shape
from gpukpca.decomposition._kernels import kernel_from
from gpukpca.decomposition._parameters import check_parameters


class WithPlan:
    """Add the method `plan` to an estimator with `_plan`."""

    def plan(self, X: ArrayLike | Stream | tuple[int, int], dtype: Any = None) -> Plan:
        """Return the plan of `fit` for X, with its predicted memory; nothing is fitted.

        Parameters
        ----------
        X : array, CSR matrix, data frame, or what else `fit` takes, shape (n, d); or the tuple (n, d)
            The tuple stands for dense rows in memory that need not exist. Nothing of size n is allocated. An iterable
            of batches is read as `fit` reads it first: by `PCA` once, by `KernelPCA` up to the rows that choose
            landmarks.
        dtype : "float32", "float64" or dtype, optional
            The precision of the fit, with a tuple alone. None: float64.

        Returns
        -------
        Plan
            ``print(plan)`` shows it. With a share for n_components the plan is for the first guess.

        Raises
        ------
        MemoryBudgetError
            Nothing fits into the memory allowed.
        InvalidParameterError, ValueError, TypeError
            As in `fit`; a shape or a dtype that is not allowed; an iterator, which `plan` would use up.

        Notes
        -----
        Cost: a few sweeps over X; of a memory map, a set of zarr or HDF5, and a tuple over 1000 rows at most. Those of
        a tuple are random, with features of variance 1: in float32 the ratio of the distances to the bandwidth of the
        kernel decides about products in float64. Rules for gamma need data and change no bytes; the plan of a tuple
        names the rule.

        Examples
        --------
        >>> from gpukpca import PCA, KernelPCA
        >>> plan = KernelPCA(10, kernel="rbf", memory_limit="64GiB").plan((1_000_000, 100), dtype="float32")
        >>> plan.solver.name, plan.fits
        ('block Krylov', True)
        >>> PCA(10, memory_limit="1GiB").plan((10_000_000, 100)).method
        'covariance_eigh'
        """
        with device_context(X), overflow_allowed():
            check_parameters(self)
            twin: Any = clone(self)
            data = planned_shape(X, dtype)
            plan: Plan = by_routes(lambda: twin._plan(data), twin.device, data)
            if is_set(X) and plan.kernel and not plan.is_approximate:
                held = format_need(plan.n_samples * plan.n_features * item_size(plan.dtype))
                plan = replace(plan, notes=(*plan.notes, f"the set is read whole, {held} more"))
            return _with_rule_of_gamma(twin, plan) if isinstance(data, DataShape) and plan.kernel else plan

    def _resources(self: Any, place: Placement) -> Resources:
        """Return the resources of a fit that is planned for a place."""
        return Resources.at(place, self.memory_limit, self.n_jobs)


def _with_rule_of_gamma(estimator: Any, plan: Plan) -> Plan:
    """Return the plan of a shape, which names the kernel's rule in place of its number."""
    kernel = kernel_from(estimator)
    if not kernel.rule_bytes(plan.n_samples, plan.n_features):
        return plan
    note = "the rule for gamma needs data, and changes no bytes"
    return replace(plan, kernel=repr(kernel), notes=(*plan.notes, note))
