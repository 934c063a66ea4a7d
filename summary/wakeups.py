"""Wake-ups of the host: writers that save, at their end, a history read at their beginning.

Invariant: a commit does not overtake a wake-up that runs, within bounds; what one has put back
all the same is healed without a model, or counts as undone (spec 3.4).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from .errors import CompactError, UnreadableHistory
from .healing import Healed, heal
from .history import message_text, parse_history
from .lives import Lives
from .runs import HEAL
from .service import Service
from .threads import in_thread

# A wake-up saves right after its agent is done. We cannot hear it, only look; when these
# seconds are over, commits go on all the same.
_LOOKS_SECONDS = (0.1, 0.2, 0.4, 0.8, 1.5, 2.0, 3.0)
# What AstrBot writes, in the user's role, before a wake-up's result.
NOTICE = "Output your last task result below."


class Wakeups:
    """Scheduled and background wake-ups of all sessions."""

    def __init__(
        self,
        service: Service,
        lives: Lives,
        spawn: Callable[[Coroutine[Any, Any, Any]], asyncio.Task[Any]],
    ) -> None:
        self._service = service
        self._lives = lives
        self._spawn = spawn
        # The hash of the history each one found, by session, in the order they began.
        self._begun: dict[str, list[int]] = {}

    async def begun(self, umo: str) -> None:
        """One has begun in a session: commits wait for its end."""
        self._service.compactions.holds.hold(umo)
        self._begun.setdefault(umo, []).append(hash(await self._text(umo)))

    def ended(self, umo: str) -> None:
        """One has ended and is about to save what it read when it began."""
        begun = self._begun.pop(umo, [])
        before = begun.pop(0) if begun else None
        if begun:
            self._begun[umo] = begun
        self._spawn(self._look_after(umo, before))

    async def _look_after(self, umo: str, before: int | None) -> None:
        try:
            for seconds in _LOOKS_SECONDS:
                await asyncio.sleep(seconds)
                text = await self._text(umo)
                if hash(text) != before and await in_thread(_ends_with_notice, text):
                    break
        finally:
            self._service.compactions.holds.release(umo)
        cid = await self._service.host.current_conversation(umo)
        if cid is not None:
            try:
                await self.heal(umo, cid)
            except CompactError as error:
                self._service.log.warning("after a wake-up in %s: %s", umo, error)

    async def _text(self, umo: str) -> str | None:
        cid = await self._service.host.current_conversation(umo)
        row = await self._service.host.read(cid) if cid is not None else None
        return row.text if row is not None else None

    async def heal(self, umo: str, cid: str) -> Healed:
        """Apply the last compaction again if the history from before it stands there again."""
        service = self._service
        if cid in service.compactions.running:
            return Healed.INTACT
        async with service.compactions.alone(umo, cid, HEAL):
            healed = await heal(service.host, await service.archive(), umo, cid)
        if healed is not Healed.INTACT:
            service.log.info("the history of %s was put back: %s", umo, healed.value)
            self._lives.changed(cid)
        return healed


def _ends_with_notice(text: str | None) -> bool:
    try:
        last = [m for m in parse_history(text) if not m.is_checkpoint][-2:]
    except UnreadableHistory:
        return False
    return len(last) == 2 and message_text(last[0].data) == NOTICE
