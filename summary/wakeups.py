"""Wake-ups of the host: writers that save, at their end, a history read at their beginning.

Invariant: a commit does not overtake a wake-up that runs, within bounds; what one has put back
all the same is healed without a model, or counts as undone (spec 3.4).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from .errors import CompactError
from .healing import Healed, heal
from .lives import Lives
from .service import Service

# A wake-up saves right after its agent is done; we cannot see it, only look. After the first
# seconds commits go on.
_LOOKS_SECONDS = (0.3, 0.7, 2.0, 5.0)
_RELEASED_AFTER_LOOKS = 2


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

    def begun(self, umo: str) -> None:
        """One has begun in a session: commits wait for its end."""
        self._service.compactions.holds.hold(umo)

    def ended(self, umo: str) -> None:
        """One has ended and is about to save what it read when it began."""
        self._spawn(self._look_after(umo))

    async def _look_after(self, umo: str) -> None:
        held = True
        try:
            for look, seconds in enumerate(_LOOKS_SECONDS, 1):
                await asyncio.sleep(seconds)
                cid = await self._service.host.current_conversation(umo)
                if cid is None or await self.heal(umo, cid) is not Healed.INTACT:
                    break
                if held and look == _RELEASED_AFTER_LOOKS:
                    held = False
                    self._service.compactions.holds.release(umo)
        except CompactError as error:
            self._service.log.warning("after a wake-up in %s: %s", umo, error)
        finally:
            if held:
                self._service.compactions.holds.release(umo)

    async def heal(self, umo: str, cid: str) -> Healed:
        """Apply the last compaction again if the history from before it stands there again."""
        service = self._service
        if cid in service.compactions.running:
            return Healed.INTACT
        async with service.compactions.alone(umo, cid, "heal"):
            healed = await heal(service.host, await service.archive(), umo, cid)
        if healed is not Healed.INTACT:
            service.log.info("the history of %s was put back: %s", umo, healed.value)
            self._lives.changed(cid)
        return healed
