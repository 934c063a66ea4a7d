"""Work that grows with a history, in a thread beside the loop.

Invariant: Python's cycle collector does not run while such work makes its objects, and is as it
was afterwards. A long history becomes some hundred thousand of them, none in a cycle; they would
set off collections of everything the bot holds, and the bot stands still for a third of a second
in each. Reference counts free them all the same.
"""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# So many new objects would be collected at once, or soon be reason to collect everything.
_MANY_OBJECTS = 10_000
# Python itself freezes some hundred at its start.
_FEW_FROZEN = 5_000

_lock = threading.Lock()
_working = 0
_was_enabled = False


async def in_thread[**P, T](work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Do something that takes time in a thread; it must make no reference cycles."""
    return await asyncio.to_thread(uncollected()(work), *args, **kwargs)


def let_go(held: list[object]) -> None:
    """Empty a list in a thread: to free some hundred thousand objects takes its time too."""
    asyncio.get_running_loop().run_in_executor(None, held.clear)


@contextmanager
def uncollected() -> Iterator[None]:
    """No collections meanwhile, whoever else works like this at the same time.

    Also a decorator: `uncollected()(work)`.
    """
    global _working, _was_enabled
    with _lock:
        if not _working:
            _was_enabled = gc.isenabled()
            gc.disable()
        _working += 1
    try:
        yield
    finally:
        with _lock:
            _working -= 1
            if not _working and _was_enabled:
                _pass_over_new_objects()
                gc.enable()


def _pass_over_new_objects() -> None:
    """Have the many objects made meanwhile count as old ones, looked at when all are.

    Not if somebody has put the bot's objects out of the collector's reach: this would undo it.
    """
    if gc.get_count()[0] > _MANY_OBJECTS and gc.get_freeze_count() < _FEW_FROZEN:
        gc.freeze()
        gc.unfreeze()
