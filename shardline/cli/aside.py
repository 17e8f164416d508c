"""Work on a thread of its own, so that Ctrl-C and SIGTERM stop it only where it looks up.

Python raises in the main thread, between any two of its instructions: also between making a file
and remembering that it has to be taken away again.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from shardline.errors import CancelledError

if TYPE_CHECKING:
    from collections.abc import Callable

    from shardline.execution.executor import Cancellation

Result = TypeVar("Result")
Part = TypeVar("Part")


def run_aside(work: Callable[[], Result], cancellation: Cancellation) -> Result:
    """Do work on another thread; a signal cancels it, and is raised when it has ended."""
    with ThreadPoolExecutor(1, thread_name_prefix="shardline-aside") as pool:
        begun = pool.submit(work)
        try:
            return begun.result()
        except BaseException:
            if not begun.done():
                cancellation.cancel()
            raise


def stoppable(
    progress: Callable[[Part, int], None], cancellation: Cancellation
) -> Callable[[Part, int], None]:
    """A progress function that ends the work which calls it when that was cancelled."""

    def tell(part: Part, position: int) -> None:
        if cancellation.asked:
            raise CancelledError("stopped as asked")
        progress(part, position)

    return tell
