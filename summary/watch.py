"""Watching turns: what the host dropped is archived, what is due is compacted (spec 3).

Invariants: hooks only take notes; a task of the turn waits for its end, so no reply is ever
delayed. No message that stood in a history at the start of a turn is lost, whatever the host
does in it.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Any
from weakref import WeakValueDictionary

from .automatic import Automatic, Notify
from .bounded import Bounded
from .dropped import PutIn, dropped, stored_added, stored_final, withheld
from .errors import CompactError
from .facts import tokens_per_char, turn_count_line, turn_facts, was_answered
from .healing import Healed
from .history import Message, content_hash, parse_history
from .lines import HOST_THRESHOLD
from .live import Live, covered
from .lives import Lives
from .service import Service
from .threads import in_thread
from .triggers import Due, NotDue, TurnFacts, judge
from .turns import Additions, Turn, reported_tokens
from .wakeups import Wakeups

# Above this the host would compress all the same: better it does than the model refuses.
_CAP_UP_TO = 0.95
# Where the host estimates by itself, our own last figure is a turn old: allow for its growth.
_ESTIMATED_THRESHOLD = 0.7


class Watch:
    """The plugin's eyes on every turn."""

    def __init__(self, service: Service, notify: Notify) -> None:
        self._service = service
        self.lives = Lives(service)
        self.automatic = Automatic(service, notify)
        self.wakeups = Wakeups(service, self.lives, self._spawn)
        self._tasks: set[asyncio.Task[Any]] = set()
        # Turns whose dropped messages are not archived yet, by identity, and the number of turns
        # that are not noted yet, by conversation.
        self._turns: dict[int, Turn] = {}
        self._unnoted: Counter[str] = Counter()
        # The last known usage of a conversation, for requests whose own is unknown.
        self._usage: Bounded[int] = Bounded(1000)
        # When a turn last found a conversation empty: what was dropped before, the user cleared.
        self._emptied: Bounded[float] = Bounded(1000)
        self._put_in: Bounded[PutIn] = Bounded(1000)
        self._archiving = asyncio.Lock()
        self._in_order: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        service.compactions.on_ended.append(self._worked_on)

    async def stop(self) -> None:
        """End what waits; what is being archived is finished first.

        Turns in flight may end after us: what was dropped in them so far is archived now.
        """
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for turn in tuple(self._turns.values()):
            try:
                await self._record(turn, saved=False)
            except CompactError as error:
                self._service.log.warning("what a turn dropped is not archived: %s", error)
        await self.automatic.settle()

    # In the turn

    async def begin(self, turn: Turn) -> Additions:
        """Note a turn's start and say what its request is given (spec 3.4)."""
        self.follow(turn)
        if not turn.stored and not await self._is_said_again(turn):
            self._emptied[turn.cid] = turn.started_seconds
            async with self._archiving:
                pass  # what is being archived from before is cleared below
        try:
            given = await self._given(turn)
        except CompactError as error:
            self._service.log.warning("a request of %s is given nothing: %s", turn.umo, error)
            return Additions()
        turn.is_reminded = bool(given.system_text)
        return given

    async def tool_answered(self, turn: Turn) -> None:
        """Give the turn's next model call the summary if the host has dropped it or will.

        AstrBot trims before every call of a tool loop, and saves no system prompt.
        """
        turn.tool_answered()
        try:
            await self._remind(turn)
        except CompactError as error:
            self._service.log.warning("a request of %s is given nothing: %s", turn.umo, error)

    async def _remind(self, turn: Turn) -> None:
        live = await self.lives.get(turn.cid)
        if turn.is_reminded or live is None or not live.summary:
            return
        host = self._service.host
        if live.has_head([message.data for message in host.dump(turn.first_said)]):
            chat = await host.chat_model(turn.umo, turn.provider_id)
            usage, window = reported_tokens(turn.usage()), chat.window_tokens if chat else None
            is_full = bool(usage and window and usage > HOST_THRESHOLD * window)
            if not is_full and not turn.will_exceed(host.core(turn.umo).max_turns):
                return
        turn.reminded(added=host.add_to_prompt(turn.final, live.as_system_text()))

    async def _given(self, turn: Turn) -> Additions:
        # Asked before anything is read: what a turn notes meanwhile is not in what we read.
        others_unnoted = self._unnoted[turn.cid] > 1
        live = await self.lives.get(turn.cid)
        is_running = turn.cid in self._service.compactions.running
        if live is None and not is_running:
            return Additions()
        chat = await self._service.host.chat_model(turn.umo, turn.provider_id)
        window = chat.window_tokens if chat else None
        given = Additions(usage_cap=self._usage_cap(turn, window) if is_running else None)
        if live is None:
            return given
        uses_tools = chat is not None and chat.uses_tools
        given = replace(given, recallable=self._service.settings.recall_tool and uses_tools)
        history = turn.stored
        if live.record_id and live.has_head(history):
            about_to_go = self._will_trim(turn, window)
            return replace(given, system_text=live.as_system_text() if about_to_go else "")
        if turn.is_handler_request and live.record_id:
            now = await self._current(turn)
            if live.has_head(now):
                return replace(given, contexts=now)
        if live.covers(history) if history else await self._is_said_again(turn):
            return replace(given, system_text=live.as_system_text())
        # A plugin's request may hold another history: look before this one is forgotten.
        now = await self._current(turn)
        if now and (live.has_head(now) or live.covers(now)):
            return given
        archive = await self._service.archive()
        if now and await covered(archive, turn.cid, live, now):
            return replace(given, system_text=live.as_system_text())
        if now and others_unnoted:
            return given  # a turn that has just ended knows more than we do; the next one looks
        await self.lives.clear(turn.cid)
        await self.automatic.cleared(turn.cid)
        return Additions()

    async def _is_said_again(self, turn: Turn) -> bool:
        """Whether an empty history is but for its only round, which is had again."""
        try:
            return bool(turn.checkpoint_id) and await self._service.host.is_said_again(
                turn.checkpoint_id
            )
        except CompactError:
            return False

    def follow(self, turn: Turn) -> None:
        """Look the turn through once it is over."""
        if id(turn) not in self._turns:
            self._turns[id(turn)] = turn
            self._unnoted[turn.cid] += 1
            self._spawn(self._after(turn))

    # After the turn

    async def _after(self, turn: Turn) -> None:
        """Once the turn was saved: archive what is gone, note its figures, judge it."""
        try:
            await self._look_through(turn)
            self._turns.pop(id(turn), None)
            await self._notice(turn)
        except CompactError as error:
            self._service.log.warning("a turn of %s could not be noted: %s", turn.umo, error)

    async def _look_through(self, turn: Turn) -> None:
        service = self._service
        in_order = self._in_order.setdefault(turn.cid, asyncio.Lock())
        try:
            with service.compactions.trims.turn(turn.cid):
                # Each waits in the place it has from its start, behind those queued by then.
                async with service.host.lock(turn.umo):
                    pass
                # One after another as they ended: what a later one notes is to stand.
                async with in_order:
                    await self._record(turn, saved=True)
        except CompactError as error:
            service.log.warning("what AstrBot dropped is not archived: %s", error)
        finally:
            self._unnoted[turn.cid] -= 1
            self._unnoted += Counter()  # those at zero go

    async def _record(self, turn: Turn, *, saved: bool) -> None:
        """Note the history's ends, and archive the messages the host dropped in this turn.

        `saved` is whether it had the time to save; else what it dropped is gone soon.
        """
        final = await in_thread(stored_final, turn, self._service.host)
        # What a plugin put into a request is not always saved: then the old end stands.
        ends = [turn.stored, final]
        if turn.is_handler_request:
            ends.append(await self._current(turn))
        await self.lives.remember(turn.cid, *ends)
        await self._archive_gone(turn, saved=saved)
        if saved and turn.put_in:
            await in_thread(self._put_in_of(turn.cid).note, turn)
            turn.withheld = turn.put_in = ()

    async def _archive_gone(self, turn: Turn, *, saved: bool) -> None:
        if not turn.was_trimmed and not turn.withheld:
            return
        row = await self._service.host.read(turn.cid)
        if row is None or not await in_thread(parse_history, row.text):
            return  # deleted or cleared, by the user
        gone = [message for message in turn.gone if id(message) not in turn.archived]
        text = (row.text or "") if saved else None
        live = await self.lives.get(turn.cid)
        host = self._service.host
        archive = await self._service.archive()
        noted = await archive.speakers(turn.cid)
        spans = []
        if saved and turn.withheld:
            put_in = self._put_in_of(turn.cid)
            spans += await in_thread(withheld, turn, row.text or "", live, noted, host, put_in)
        if turn.was_trimmed:
            spans += await in_thread(dropped, turn, gone, text, live, noted, host)
        async with self._archiving:
            if spans and self._emptied.get(turn.cid, 0.0) <= turn.started_seconds:
                await archive.add_trimmed(turn.umo, turn.cid, spans)
                turn.archived.update(map(id, gone))
                self.lives.changed(turn.cid)
        self._service.compactions.trims.archived(turn.cid)

    def _put_in_of(self, cid: str) -> PutIn:
        self._put_in[cid] = known = self._put_in.get(cid) or PutIn()
        return known

    async def _notice(self, turn: Turn) -> None:
        host = self._service.host
        stored = await in_thread(stored_added, turn, host)
        added = [message.data for message in stored]
        await self._service.note_begin_dialogs(turn.cid, turn.begin_dialogs)
        await self._note_figures(turn, added)
        live = await self.lives.get(turn.cid)
        headless = live is not None and live.record_id and not live.has_head(turn.stored)
        if headless and await self.wakeups.heal(turn.umo, turn.cid) is Healed.HEALED:
            return  # what this turn showed was the history from before the compaction
        if not self._is_judged(turn, added):
            return
        facts = await in_thread(turn_facts, turn, added, live, host)
        self.automatic.turn_counted(turn.cid)
        self._usage[turn.cid] = facts.usage_tokens or 0
        verdict = await self._judge(turn, facts, live)
        if await self.automatic.turn_judged(turn.cid, verdict) and isinstance(verdict, Due):
            self._start(turn, facts, live)

    async def _judge(self, turn: Turn, facts: TurnFacts, live: Live | None) -> Due | NotDue:
        """Judge a turn by the settings as they are now."""
        host = self._service.host
        chat = await host.chat_model(turn.umo, turn.provider_id)
        lines = self._service.settings.lines(turn.umo)
        line = await self._service.compress_line(turn.cid, lines, chat)
        count = turn_count_line(turn, live, lines.history_limit, host)
        return judge(facts, line, count, self.automatic.turns_since_run(turn.cid))

    async def _note_figures(self, turn: Turn, added: Sequence[Message]) -> None:
        archive = await self._service.archive()
        now = time.time()
        if turn.usage_tokens:
            chat = await self._service.host.chat_model(turn.umo, turn.provider_id)
            window = chat.window_tokens if chat else None
            await archive.add_sample(turn.cid, turn.umo, now, turn.usage_tokens, window)
            cost = await in_thread(tokens_per_char, turn, added)
            if cost is not None:
                self._service.tokens_per_char[turn.cid] = cost
        said = next((m for m in added if m.get("role") == "user"), None)
        if said is not None and turn.user_id:
            known_by = await in_thread(content_hash, said)
            await archive.note_speaker(turn.cid, known_by, turn.user_id, turn.nickname, now)

    def _is_judged(self, turn: Turn, added: Sequence[Message]) -> bool:
        return (
            self._service.settings.auto_compact
            and was_answered(turn, added)
            and turn.cid not in self._service.compactions.running
            and not self.automatic.is_settled_since(turn.cid, turn.started_seconds)
        )

    def _start(self, turn: Turn, facts: TurnFacts, live: Live | None) -> None:
        async def still_due() -> bool:
            if not (
                self._service.settings.auto_compact
                and turn.cid not in self._service.compactions.running
                and not self.automatic.is_settled_since(turn.cid, turn.started_seconds)
            ):
                return False
            # Settings and history may have changed while the run waited for its turn.
            now = facts
            if not facts.trimmed:
                layout, _ = await self._service.compactions.layout(turn.cid)
                tokens = sum(item.tokens for item in layout.dialog)
                now = replace(facts, dialog_tokens=tokens, dialog_messages=len(layout.dialog))
            return isinstance(await self._judge(turn, now, live), Due)

        task = self._spawn(
            self.automatic.run(
                turn.umo,
                turn.cid,
                is_private=turn.is_private,
                still_due=still_due,
                chat_id=turn.provider_id,
            )
        )
        turn.own(task)

    # Living with the host

    def _usage_cap(self, turn: Turn, window: int | None) -> int | None:
        """What the request's usage is capped at while a run of ours is in flight."""
        usage = turn.stored_usage_tokens or self._usage.get(turn.cid)
        if window is None or usage is None or usage >= _CAP_UP_TO * window:
            return None
        return int(HOST_THRESHOLD * window)

    def _will_trim(self, turn: Turn, window: int | None) -> bool:
        """Whether the host is about to drop the head summary in this request."""
        usage, limit = turn.stored_usage_tokens, HOST_THRESHOLD
        if not usage:
            usage, limit = self._usage.get(turn.cid, 0), _ESTIMATED_THRESHOLD
        if window is not None and usage > limit * window:
            return True
        return turn.exceeds(self._service.host.core(turn.umo).max_turns, 1)

    async def _current(self, turn: Turn) -> list[Message]:
        """The history as it is now; the request holds another one."""
        row = await self._service.host.read(turn.cid)
        if row is None:
            return []
        stored = await in_thread(parse_history, row.text)
        return [message.data for message in stored]

    # Tasks

    def _worked_on(self, cid: str) -> None:
        """A compaction, an undo, a healing: what was known of the conversation is old."""
        self.lives.changed(cid)
        self._usage.pop(cid, None)

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._service.log.error("a background task failed", exc_info=error)
