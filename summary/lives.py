"""Which conversations have a past that must be remembered, held in memory and in the archive.

Invariant: what `get` gives is what the archive says; whoever changes the archive's last
compaction of a conversation calls `reload`. An archive that cannot be read remembers nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from .bounded import Bounded
from .errors import ArchiveFailed
from .history import Message
from .live import Live, note_recent, read_live
from .service import Service


class Lives:
    """The lives of conversations by their id."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._known: Bounded[Live | None] = Bounded(1000)

    async def get(self, cid: str) -> Live | None:
        """The conversation's past, None if it has none to remember."""
        if cid in self._known:
            return self._known[cid]
        return await self.reload(cid)

    async def reload(self, cid: str) -> Live | None:
        """The same, read anew."""
        try:
            archive = await self._service.archive()
            live = await read_live(archive, cid, await archive.latest(cid))
        except ArchiveFailed:
            return None
        self._known[cid] = live
        return live

    async def remember(self, cid: str, messages: Sequence[Message]) -> None:
        """Note how a conversation's history ends now, if it has a past."""
        live = await self.get(cid)
        if live is None:
            return
        ended = live.ended_with(messages)
        if ended.recent == live.recent:
            return
        self._known[cid] = ended
        await note_recent(await self._service.archive(), cid, ended)

    async def clear(self, cid: str) -> None:
        """The conversation was cleared: its past dies."""
        archive = await self._service.archive()
        await archive.mark_cleared(cid)
        await note_recent(archive, cid, None)
        self._known[cid] = None
