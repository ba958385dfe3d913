"""A fit that runs out of device memory all the same: again as it was, then in half of the memory, then an error.

Host memory that the system promised is there; what a user's own function raises is the user's.
"""

from __future__ import annotations

import gc
import traceback
from collections.abc import Callable
from typing import Any, TypeVar

from gpukpca._typing import Array
from gpukpca.backend.device import free_bytes, is_device_error, release_unused
from gpukpca.decomposition.plan import SHARE_OF_FREE, memory_limit, spelled_bytes
from gpukpca.exceptions import DeviceLostError, MemoryBudgetError

Result = TypeVar("Result")

# Of what may be used: as planned; again, as another program may have come in between; the smaller ways.
SHARES = (1.0, 1.0, 0.5)
# After these nobody looks at the variables of the frames that failed, and what they hold may be most of the memory.
ENDS_WITHOUT_LOCALS = (MemoryError, KeyboardInterrupt, DeviceLostError)


def within_memory(attempt: Callable[[int, tuple[str, ...]], Result], given_limit: Any, like: Array) -> Result:
    """``attempt(limit in bytes, what went wrong before)``, tried again where memory runs out.

    Raises
    ------
    MemoryBudgetError
        The plan does not fit, or no attempt could allocate what it had planned.
    """
    limit = memory_limit(given_limit, like)
    story: tuple[str, ...] = ()
    for share in SHARES:
        allowed = limit if not story else int(share * min(limit, SHARE_OF_FREE * free_bytes(like)))
        try:
            return attempt(allowed, story)
        except MemoryBudgetError:
            if not story:
                raise
            break
        except MemoryError as error:
            if not is_device_error(error):
                raise
            said = str(error).splitlines() or ["no memory"]
            story = (*story, f"memory ran out within {spelled_bytes(allowed)} ({said[0]})")
            forget_locals(error)
        gc.collect()
        release_unused(like)
    raise MemoryBudgetError(
        f"{'; then '.join(story)}. {spelled_bytes(free_bytes(like))} are free now. Something else takes the memory, or "
        "it is in pieces: end other programs, or set a smaller memory_limit."
    ) from None


def forget_locals(error: BaseException) -> None:
    """Drop the variables that an error's tracebacks keep alive: as long as they live, so do their arrays."""
    seen: BaseException | None = error
    while seen is not None:
        traceback.clear_frames(seen.__traceback__)
        seen = seen.__cause__ or seen.__context__
