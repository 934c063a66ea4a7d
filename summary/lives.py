"""Which conversations have a past that must be remembered, held in memory and in the archive.

Invariant: what `get` gives is what the archive says; whoever changes the archive's last
compaction of a conversation calls `changed`. An archive that cannot be read remembers nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from .bounded import Bounded
from .errors import ArchiveFailed
from .history import Message
from .live import Live, bury, note_end, read_live
from .service import Service


class Lives:
    """The lives of conversations by their id."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._known: Bounded[Live | None] = Bounded(1000)
        # How often each was declared changed: what was read before that is not kept.
        self._changes: Bounded[int] = Bounded(1000)

    async def get(self, cid: str) -> Live | None:
        """The conversation's past, None if it has none to remember."""
        if cid in self._known:
            return self._known[cid]
        changes = self._changes.get(cid, 0)
        try:
            archive = await self._service.archive()
            live = await read_live(archive, cid, await archive.latest(cid))
        except ArchiveFailed:
            return None
        if self._changes.get(cid, 0) == changes:
            self._known[cid] = live
        return live

    def changed(self, cid: str) -> None:
        """What is known of the conversation no longer holds."""
        self._changes[cid] = self._changes.get(cid, 0) + 1
        self._known.pop(cid, None)

    async def remember(self, cid: str, *ends: Sequence[Message]) -> None:
        """Note how a conversation's history begins and ends now: as these lists do."""
        await note_end(await self._service.archive(), cid, *ends)
        self.changed(cid)

    async def clear(self, cid: str) -> None:
        """The conversation was cleared: its past dies."""
        await bury(await self._service.archive(), cid)
        self.changed(cid)
