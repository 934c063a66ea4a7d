"""The commands on what was compacted: undo, show, history, search, forget (spec 4.2)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from .archive_reply import SearchHit, history_reply, search_reply, show_reply
from .archive_types import Compaction, Found, Stage
from .args import is_confirmation, parse_number
from .automatic import Automatic
from .errors import UnreadableHistory
from .permissions import Caller
from .replies import Compacted
from .runs import FORGET, UNDO
from .service import Service
from .texts import say
from .undo import undo
from .wording import local_time

Speak = Callable[[str], Awaitable[None]]

_LISTED = 20
_FOUND = 10


class ArchiveCommands:
    """Each method takes caller, body and language, and gives the reply."""

    def __init__(self, service: Service, automatic: Automatic) -> None:
        self._service = service
        self._automatic = automatic

    async def undo(self, caller: Caller, _body: str, language: str, speak: Speak) -> str:
        """Take the last compaction back."""
        service = self._service
        cid = await service.conversation(caller.umo)
        archive = await service.archive()
        said: list[asyncio.Task[None]] = []

        def wait() -> None:
            said.append(asyncio.ensure_future(speak(say(language, "waiting"))))

        try:
            async with service.compactions.alone(caller.umo, cid, UNDO):
                undone = await undo(service.host, archive, caller.umo, cid, wait)
        finally:
            await asyncio.gather(*said)
        done = say(
            language,
            "undo.done",
            number=str(undone.number),
            before=undone.messages_before,
            after=undone.messages_after,
        )
        turns = await self._automatic.undone(cid)
        if not service.settings.auto_compact:
            return done
        return f"{done}\n{say(language, 'undo.auto', turns=turns, command=caller.command)}"

    async def show(self, caller: Caller, body: str, language: str, _speak: Speak) -> str:
        """A summary in full: the last one, or the one whose number is given."""
        cid = await self._service.conversation(caller.umo)
        archive = await self._service.archive()
        if not body.strip():
            record = await archive.latest(cid)
            if record is None:
                cleared = await archive.list(cid, 1)
                key = "show.none_since" if cleared else "show.none"
                return say(language, key, command=caller.command)
        else:
            number = parse_number(body)
            record = await archive.get(cid, number) if number is not None else None
            if record is None:
                shown = body.strip().removeprefix("#")[:20]
                return say(language, "show.unknown", number=shown, command=caller.command)
        when = local_time(record.created_seconds)
        return show_reply(language, record.number or 0, when, record.summary)

    async def history(self, caller: Caller, _body: str, language: str, _speak: Speak) -> str:
        """The compactions of this conversation, newest first."""
        cid = await self._service.conversation(caller.umo)
        archive = await self._service.archive()
        records = await archive.list(cid, _LISTED)
        older = (await archive.stats(cid)).compactions - len(records)
        return history_reply(language, [compacted(record) for record in records], max(older, 0))

    async def search(self, caller: Caller, body: str, language: str, _speak: Speak) -> str:
        """Archived messages of this conversation that hold the words."""
        if not body.strip():
            return say(language, "search.empty", command=caller.command)
        cid = await self._service.conversation(caller.umo)
        archive = await self._service.archive()
        found = await archive.search(cid, body, _FOUND + 1)
        hits = [_hit(hit) for hit in found[:_FOUND]]
        return search_reply(language, body, hits, more=len(found) > _FOUND)

    async def forget(self, caller: Caller, body: str, language: str, _speak: Speak) -> str:
        """Erase this conversation's archive, once confirmed."""
        service = self._service
        cid = await service.conversation(caller.umo)
        archive = await service.archive()
        stats = await archive.stats(cid)
        if not stats.compactions and not stats.messages:
            return say(language, "forget.nothing")
        sizes: dict[str, object] = {
            "compactions": stats.compactions,
            "messages": stats.messages,
            "summary": await self._what_becomes_of_the_summary(cid, language, stats.compactions),
        }
        if not is_confirmation(body):
            return say(language, "forget.ask", command=caller.command, **sizes)
        async with service.compactions.alone(caller.umo, cid, FORGET):
            await archive.forget(cid)
        return say(language, "forget.done", **sizes).rstrip()

    async def _what_becomes_of_the_summary(self, cid: str, language: str, compactions: int) -> str:
        try:
            layout, _ = await self._service.compactions.layout(cid)
        except UnreadableHistory:
            return ""  # the archive is erased all the same
        if layout.head is not None:
            return say(language, "forget.head")
        return say(language, "forget.carried") if compactions else ""


def compacted(record: Compaction) -> Compacted:
    """A record as status and history show it."""
    return Compacted(
        number=record.number or 0,
        trigger=record.trigger,
        before_messages=record.messages_before,
        after_messages=record.messages_after,
        before_tokens=record.tokens_before,
        after_tokens=record.tokens_after,
        when=local_time(record.created_seconds),
        undone=record.stage is Stage.UNDONE,
    )


def _hit(found: Found) -> SearchHit:
    when = local_time(found.time_seconds) if found.time_seconds else None
    return SearchHit(found.number, when, found.speaker or found.role, found.snippet)
