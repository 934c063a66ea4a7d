"""Automatic runs: queued when due, put off after failures, never two for one conversation.

Invariant: at most `max_parallel` runs ask a model at once over all sessions; the others wait and
are judged again when their turn comes (spec 2, 3.3).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

from .args import CompactArgs, ParseResult, build_compact_args
from .bounded import Bounded
from .errors import (
    ArchiveFailed,
    Busy,
    CompactError,
    HistoryCleared,
    NoConversation,
    NoProvider,
    Voided,
)
from .plan import Skip
from .runs import Outcome, Progress
from .service import Service
from .triggers import BackOff, Due, NotDue

_BACKOFF = "backoff"
TRIGGER = "auto"

Notify = Callable[[str, bool, Outcome], Awaitable[None]]


class Automatic:
    """Decides about due turns and runs what is due."""

    def __init__(self, service: Service, notify: Notify) -> None:
        self._service = service
        self._notify = notify
        self._backoffs: Bounded[BackOff] = Bounded(1000)
        self._queued: set[str] = set()
        # When a conversation was last compacted or cleared, on the monotonic clock.
        self._settled: Bounded[float] = Bounded(1000)
        # The judged turns since it was compacted, where we saw that.
        self._turns: Bounded[int] = Bounded(1000)
        self._active = 0
        self._slot_free = asyncio.Condition()
        self._no_provider_said = False
        self._ending: set[asyncio.Task[None]] = set()
        service.compactions.subscribe(self._heard)

    def is_settled_since(self, cid: str, started_seconds: float) -> bool:
        """Whether a conversation was compacted or cleared after this moment."""
        return self._settled.get(cid, 0.0) >= started_seconds

    def turn_counted(self, cid: str) -> None:
        """Note that one more turn is judged."""
        if cid in self._turns:
            self._turns[cid] += 1

    def turns_since_run(self, cid: str) -> int | None:
        """The judged turns since the last compaction; None if we saw none."""
        return self._turns.get(cid)

    async def cleared(self, cid: str) -> None:
        """The conversation was cleared: what failed before is forgotten."""
        self._settled[cid] = time.monotonic()
        self._turns.pop(cid, None)
        await self._put(cid, BackOff())

    async def undone(self, cid: str) -> int:
        """A compaction was taken back; how many judged turns the next run waits."""
        try:
            now = (await self.backoff(cid)).undone()
            await self._put(cid, now)
        except ArchiveFailed as error:
            self._service.log.warning("the wait of %s cannot be stored: %s", cid, error)
            now = self._backoffs[cid] = BackOff().undone()
        return now.wait_turns

    async def backoff(self, cid: str) -> BackOff:
        """The conversation's back-off."""
        if cid not in self._backoffs:
            archive = await self._service.archive()
            self._backoffs[cid] = BackOff.from_json(await archive.get_state(cid, _BACKOFF))
        return self._backoffs[cid]

    async def turn_judged(self, cid: str, verdict: Due | NotDue) -> bool:
        """Note one more judged turn; whether a run shall be started for it."""
        before = await self.backoff(cid)
        now = before.turn_judged()
        if now != before:
            await self._put(cid, now)
        return (
            isinstance(verdict, Due)
            and now.is_open
            and cid not in self._queued
            and cid not in self._service.compactions.running
        )

    async def run(
        self,
        umo: str,
        cid: str,
        *,
        is_private: bool,
        still_due: Callable[[], Awaitable[bool]],
        chat_id: str = "",
    ) -> None:
        """Wait for a slot, look again, compact, say so; never raises but a cancellation.

        `chat_id` is the chat provider picked for the turn, empty for the session's.
        """
        self._queued.add(cid)
        try:
            async with self._slot():
                if not await still_due():
                    return
                result = await self._compact(umo, cid, chat_id)
        except (Voided, HistoryCleared, NoConversation, Busy):
            return  # no attempt of its own: it neither counts nor resets
        except CompactError as error:
            await self._failed(umo, cid, error)
            return
        finally:
            self._queued.discard(cid)
        if not isinstance(result, Skip):
            self._no_provider_said = False
            await self._notify(umo, is_private, result)

    @asynccontextmanager
    async def _slot(self) -> AsyncIterator[None]:
        """One of `max_parallel` places, by the setting as it is when one becomes free."""
        async with self._slot_free:
            await self._slot_free.wait_for(
                lambda: self._active < self._service.settings.max_parallel
            )
            self._active += 1
        try:
            yield
        finally:
            self._active -= 1
            async with self._slot_free:
                self._slot_free.notify()

    async def settle(self) -> None:
        """Wait for what a finished run still writes."""
        await asyncio.gather(*self._ending, return_exceptions=True)

    async def _compact(self, umo: str, cid: str, chat_id: str) -> Outcome | Skip:
        service = self._service
        args = self._args(umo)
        choice = await service.host.choose(umo, args.provider_id, args.config_provider_id, chat_id)
        order = await service.order(umo, args, TRIGGER, choice, chat_id)
        if order.cid != cid:
            raise Voided  # the session has switched to another conversation meanwhile
        may_take_large = (await self.backoff(cid)).may_take_large
        return await service.compactions.run(replace(order, may_take_large=may_take_large))

    def _args(self, umo: str) -> CompactArgs:
        settings = self._service.settings
        return build_compact_args(ParseResult({}, "", []), settings, settings.lines(umo))

    async def _failed(self, umo: str, cid: str, error: CompactError) -> None:
        no_provider = isinstance(error, NoProvider)
        if not (no_provider and self._no_provider_said):
            self._service.log.warning("automatic compaction of %s failed: %s", umo, error)
        self._no_provider_said = no_provider
        try:
            await self._put(cid, (await self.backoff(cid)).failed(error))
        except ArchiveFailed as archive_error:
            # Without an archive nothing is compacted; the back-off holds in memory.
            self._backoffs[cid] = self._backoffs.get(cid, BackOff()).failed(archive_error)

    async def _put(self, cid: str, backoff: BackOff) -> None:
        self._backoffs[cid] = backoff
        archive = await self._service.archive()
        text = backoff.to_json() if backoff != BackOff() else None
        await archive.put_state(cid, _BACKOFF, text)

    def _heard(self, progress: Progress) -> None:
        """A run of any kind succeeded: turns from before are history, failures forgotten."""
        if progress.stage != "done":
            return
        self._settled[progress.cid] = time.monotonic()
        self._turns[progress.cid] = 0
        task = asyncio.ensure_future(self._forgive(progress.cid))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _forgive(self, cid: str) -> None:
        try:
            if await self.backoff(cid) != BackOff():
                await self._put(cid, BackOff())
        except ArchiveFailed as error:
            self._service.log.warning("the back-off of %s cannot be stored: %s", cid, error)
