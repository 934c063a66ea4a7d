"""An event loop of its own thread, so that servers serve while a test simply runs.

Invariant: whatever is started here ends in `close()`; no task outlives its loop.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any


class LoopThread:
    """One event loop in one thread; `run` is called from any other thread."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def run[T](self, work: Coroutine[Any, Any, T], timeout_seconds: float = 30) -> T:
        """Run a coroutine on the loop and wait for its value."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(timeout_seconds)

    def close(self) -> None:
        """Cancel what still runs, stop the loop, join the thread."""
        self.run(self._cancel_all())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10)
        self.loop.close()

    async def _cancel_all(self) -> None:
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.loop.shutdown_asyncgens()


def wait_for[T](
    probe: Callable[[], T | None],
    what: str,
    timeout_seconds: float = 20,
    every_seconds: float = 0.02,
) -> T:
    """Ask until the answer is true; for facts of another process, which sends no event.

    Raises:
        TimeoutError: it never became true; says what was awaited.
    """
    deadline = time.monotonic() + timeout_seconds
    while True:
        if value := probe():
            return value
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout_seconds} s for {what}")
        time.sleep(every_seconds)
