"""Commits that wait because another writer has read a history and will save it (spec 3.4).

Invariant: nobody waits longer than the bound; a writer that takes longer is healed afterwards.
"""

from __future__ import annotations

import asyncio
import contextlib
import time

_LONGEST_SECONDS = 30.0


class Holds:
    """The writers at work, by session."""

    def __init__(self, longest_seconds: float = _LONGEST_SECONDS) -> None:
        self._longest_seconds = longest_seconds
        # When each began; they are alike, so whichever ends takes the oldest away.
        self._begun: dict[str, list[float]] = {}
        self._released = asyncio.Event()
        # How many commits wait.
        self.waiting = 0

    def hold(self, umo: str) -> None:
        """A writer has begun in a session."""
        self._begun.setdefault(umo, []).append(time.monotonic())

    def release(self, umo: str) -> None:
        """One has ended."""
        begun = self._begun.get(umo, [])
        if begun:
            begun.pop(0)
        if not begun:
            self._begun.pop(umo, None)
        self._released.set()

    async def free(self, umo: str) -> None:
        """Wait, within bounds, until none is at work."""
        while begun := self._begun.get(umo):
            left = begun[0] + self._longest_seconds - time.monotonic()
            if left <= 0:
                self.release(umo)
                continue
            self._released.clear()
            self.waiting += 1
            try:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._released.wait(), left)
            finally:
                self.waiting -= 1
