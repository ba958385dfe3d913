"""A fit that runs out of device memory all the same: again as it was, then in half of the memory, then an error.

Host memory that the system promised is there; what a user's own function raises is the user's.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any, TypeVar

from gpukpca._typing import Array
from gpukpca.backend.device import free_bytes, hidden_memory, is_out_of_device_memory, release_unused
from gpukpca.backend.limits import SHARE_OF_FREE
from gpukpca.decomposition.plan import format_bytes, memory_limit
from gpukpca.exceptions import DeviceLostError, MemoryBudgetError

Result = TypeVar("Result")

# Of what may be used: as planned; again, as another program may have come in between; the smaller ways.
SHARES = (1.0, 1.0, 0.5)
# After these nobody looks at the variables of the frames that failed, and what they hold may be most of the memory.
ENDS_WITHOUT_LOCALS = (MemoryError, KeyboardInterrupt, DeviceLostError)


class MemoryBudget:
    """What an attempt may allocate, and what became of those before it.

    Attributes
    ----------
    story : tuple of str
        What went wrong so far.
    like : anything
        Tells where it is computed, once that is known.
    share : float
        Of what may be used, after a failure.
    """

    def __init__(self, given: Any, like: Any) -> None:
        self.story: tuple[str, ...] = ()
        self._given, self.like = given, like
        self.share, self._allowed = SHARES[0], 0

    def limit(self, like: Array) -> int:
        """Return the bytes where `like` lives; after a failure no more than what is free now, if that is known."""
        self.like = like
        allowed = memory_limit(self._given, like)
        if self.story:
            is_unknown = self._given is not None and hidden_memory(like)
            allowed = int(self.share * (allowed if is_unknown else min(allowed, SHARE_OF_FREE * free_bytes(like))))
        self._allowed = allowed
        return allowed

    def spent(self, error: BaseException) -> None:
        """Note a failure, and let go of all that it holds."""
        within = f" within {format_bytes(self._allowed)}" if self._allowed else ""
        self.story = (*self.story, f"memory ran out{within} ({(str(error).splitlines() or ['no reason given'])[0]})")
        clear_traceback_frames(error)
        release_unused(self.like)

    def refusal(self) -> MemoryBudgetError:
        """The end of the story."""
        return MemoryBudgetError(
            f"{'; then '.join(self.story)}. {format_bytes(free_bytes(self.like))} are free now. Something else takes "
            "the memory, or it is in pieces: end other programs, or set a smaller memory_limit."
            f"{hidden_memory(self.like)}"
        )


def retry_on_oom(attempt: Callable[[MemoryBudget], Result], given_limit: Any, X: Any) -> Result:
    """The first attempt that finds the memory it wants.

    Raises
    ------
    MemoryBudgetError
        The plan does not fit, or no attempt could allocate what it had planned.
    """
    budget = MemoryBudget(given_limit, X)
    for share in SHARES:
        budget.share = share
        try:
            return attempt(budget)
        except MemoryBudgetError:
            if not budget.story:
                raise
            break
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_device_memory(error, budget.like):
                raise
            budget.spent(error)
    raise budget.refusal()


def clear_traceback_frames(error: BaseException) -> None:
    """Drop the variables that an error's tracebacks keep alive: as long as they live, so do their arrays."""
    seen: BaseException | None = error
    while seen is not None:
        traceback.clear_frames(seen.__traceback__)
        seen = seen.__cause__ or seen.__context__
