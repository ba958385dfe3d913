"""What estimators share: a fit that changes nothing when it fails, rows kept for speed, methods that need a flag."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sklearn.exceptions import NotFittedError

from gpukpca._typing import Array
from gpukpca.kernels import Kernel
from gpukpca.kernels.base import Rows


class TrainingRows:
    """The basis made ready for the kernel, kept for speed; pickles keep only what was learned from the training set.

    With landmarks for a basis, mean and flatness cannot be learned again from what the model holds.
    """

    def __init__(self, rows: Rows | None, template: Rows | None) -> None:
        self._rows = rows
        self._template = template

    def get(self, kernel: Kernel, X: Array) -> Rows:
        """The rows, made again where a pickle left them out."""
        if self._rows is None:
            self._rows = kernel.prepare(X, like=self._template, centered=True)
        return self._rows

    def __getstate__(self) -> dict[str, Any]:
        return {"_rows": None, "_template": self._template}

    def __deepcopy__(self, memo: dict[int, Any]) -> TrainingRows:
        return TrainingRows(None, self._template)


class WhenEnabled:
    """A method that exists only with ``fit_inverse_transform=True``, and says so otherwise."""

    def __init__(self, method: Any) -> None:
        self.method = method
        self.__doc__ = method.__doc__

    def __get__(self, estimator: Any, owner: Any = None) -> Any:
        if estimator is None:
            return self.method
        if not estimator.fit_inverse_transform:
            raise NotFittedError(
                "The fit_inverse_transform parameter was not set to True when instantiating, so the inverse transform "
                "is not available. Create the estimator with fit_inverse_transform=True and fit it again."
            )
        return self.method.__get__(estimator, owner)


@contextmanager
def unchanged_on_error(estimator: Any) -> Iterator[None]:
    """Put the attributes back on any exception, KeyboardInterrupt and MemoryError included."""
    before = copy.copy(vars(estimator))
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise
