"""Trims of the host that a commit must know of (spec 2.7, rule 2).

Invariant: a trim is seen only once everything it dropped is in the archive.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from .bounded import Bounded

# Archiving what one turn dropped takes no longer, as far as we wait for it.
_LONGEST_SECONDS = 10.0


class Trims:
    """When the host last trimmed a conversation, and which turns are not looked through yet."""

    def __init__(self) -> None:
        self._seen: Bounded[float] = Bounded(1000)
        self._turns: dict[str, int] = {}
        # How many turns, of whatever conversation, have been looked through.
        self.looked_through = 0
        self._one_more = asyncio.Event()

    @contextmanager
    def turn(self, cid: str) -> Iterator[None]:
        """A turn of the conversation, from its start until what it dropped is archived."""
        self._turns[cid] = self._turns.get(cid, 0) + 1
        try:
            yield
        finally:
            self._turns[cid] -= 1
            if not self._turns[cid]:
                del self._turns[cid]
            self.looked_through += 1
            self._one_more.set()

    def archived(self, cid: str) -> None:
        """The host trimmed, and what it dropped is in the archive."""
        self._seen[cid] = time.monotonic()

    def may_come(self, cid: str) -> bool:
        """Whether a turn has begun whose trim, if any, is not archived yet."""
        return cid in self._turns

    def since(self, cid: str, seconds: float) -> bool:
        """Whether a trim was seen after this moment of the monotonic clock."""
        return self._seen.get(cid, float("-inf")) >= seconds

    async def more_than(self, looked_through: int) -> None:
        """Wait, within bounds, until more turns than these have been looked through."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LONGEST_SECONDS):
                while self.looked_through <= looked_through:
                    self._one_more.clear()
                    await self._one_more.wait()


@dataclass(frozen=True, slots=True)
class TrimsSince:
    """The trims of one conversation since this value was made."""

    trims: Trims = field(default_factory=Trims)
    cid: str = ""
    made_seconds: float = field(default_factory=time.monotonic)

    @property
    def seen(self) -> bool:
        """Whether there was one."""
        return self.trims.since(self.cid, self.made_seconds)

    @property
    def may_come(self) -> bool:
        """Whether a turn is not looked through yet."""
        return self.trims.may_come(self.cid)
