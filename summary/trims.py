"""Trims of the host that a commit must know of (spec 2.7, rule 2).

Invariant: a trim is seen only once everything it dropped is in the archive.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from .bounded import Bounded


class Trims:
    """When the host last trimmed a conversation, and which turns are not looked through yet."""

    def __init__(self) -> None:
        self._seen: Bounded[float] = Bounded(1000)
        self._turns: dict[str, int] = {}

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

    def archived(self, cid: str) -> None:
        """The host trimmed, and what it dropped is in the archive."""
        self._seen[cid] = time.monotonic()

    def may_come(self, cid: str) -> bool:
        """Whether a turn has begun whose trim, if any, is not archived yet."""
        return cid in self._turns

    def since(self, cid: str, seconds: float) -> bool:
        """Whether a trim was seen after this moment of the monotonic clock."""
        return self._seen.get(cid, float("-inf")) >= seconds
