"""Watching turns: what the host dropped is archived, what is due is compacted (spec 3).

Invariants: hooks only take notes; a task of the turn waits for its end, so no reply is ever
delayed. No message that stood in a history at the start of a turn is lost, whatever the host
does in it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Any

from .archive_types import SpanMessage
from .automatic import Automatic, Notify
from .bounded import Bounded
from .compaction import Progress
from .errors import CompactError
from .heads import is_acknowledgement, is_gap_marker, may_be_head
from .healing import Healed, heal
from .history import Message, content_hash, message_text, parse_history
from .lines import HOST_THRESHOLD, CountLine, count_line
from .live import Live
from .lives import Lives
from .service import Service
from .triggers import Due, NotDue, TurnFacts, judge
from .turns import Additions, Turn

# Above this the host would compress all the same: better it does than the model refuses.
_CAP_UP_TO = 0.95
# After a wake-up ends, the host saves what it read before; look again after these seconds.
_LOOKS_SECONDS = (0.5, 2.0, 6.0)
_CHECKPOINT = "_checkpoint"


class Watch:
    """The plugin's eyes on every turn."""

    def __init__(self, service: Service, notify: Notify) -> None:
        self._service = service
        self.lives = Lives(service)
        self.automatic = Automatic(service, notify)
        self._tasks: set[asyncio.Task[Any]] = set()
        # The last known usage of a conversation, for requests whose own is unknown.
        self._usage: Bounded[int] = Bounded(1000)
        service.compactions.subscribe(self._heard)

    async def stop(self) -> None:
        """End what waits; what is being archived is finished first."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.automatic.settle()

    # In the turn

    async def begin(self, turn: Turn) -> Additions:
        """Note a turn's start and say what its request is given (spec 3.4)."""
        self._spawn(self._after(turn))
        live = await self.lives.get(turn.cid)
        history = turn.history
        if live is None:
            return Additions()
        chat = await self._service.host.chat_model(turn.umo, turn.provider_id)
        window = chat.window_tokens if chat else None
        given = Additions(
            usage_cap=self._usage_cap(turn, window),
            recallable=self._service.settings.recall_tool and chat is not None and chat.uses_tools,
        )
        if live.record_id and live.has_head(history):
            about_to_go = self._will_trim(turn, window)
            return replace(given, system_text=live.as_system_text() if about_to_go else "")
        if live.record_id and (now := await self._current(turn, live)) is not None:
            return replace(given, contexts=now)
        if not history or not live.covers(history):
            await self.lives.clear(turn.cid)
            await self.automatic.cleared(turn.cid)
            return Additions()
        return replace(given, system_text=live.as_system_text())

    def woken(self, umo: str) -> None:
        """A scheduled or background wake-up runs in a session: commits wait for its end."""
        self._service.compactions.hold(umo)

    def woken_ended(self, umo: str) -> None:
        """It ended and is about to save what it read when it began."""
        self._spawn(self._look_after(umo))

    # After the turn

    async def _after(self, turn: Turn) -> None:
        """Once the turn was saved: archive what is gone, note its figures, judge it."""
        async with self._service.host.lock(turn.umo):
            pass
        try:
            await self._notice(turn)
        except CompactError as error:
            self._service.log.warning("a turn of %s could not be noted: %s", turn.umo, error)

    async def _notice(self, turn: Turn) -> None:
        if turn.was_trimmed:
            await self._archive_dropped(turn)
        host = self._service.host
        added = await asyncio.to_thread(self._added, turn)
        history = turn.history
        await self.lives.remember(turn.cid, [*history[-16:], *added])
        await self._note_figures(turn, added)
        live = await self.lives.get(turn.cid)
        if live is not None and live.record_id and not live.has_head(history):
            await self._heal(turn.umo, turn.cid)
        if not self._is_judged(turn, added):
            return
        chat = await host.chat_model(turn.umo, turn.provider_id)
        lines = self._service.settings.lines(turn.umo)
        line = await self._service.compress_line(turn.cid, lines, chat)
        facts = await asyncio.to_thread(self._facts, turn, added, live)
        self._usage[turn.cid] = facts.usage_tokens or 0
        count = self._count_line(turn, live)
        verdict = judge(facts, line, count)
        if await self.automatic.turn_judged(turn.cid, verdict):
            self._start(turn, verdict)

    async def _archive_dropped(self, turn: Turn) -> None:
        """Archive the messages the host dropped in this turn and did save without."""
        row = await self._service.host.read(turn.cid)
        if row is None or turn.messages is None or turn.begun is None:
            return
        final = {id(message) for message in turn.messages()}
        gone = [m for m in turn.begun[: turn.begun_length] if id(m) not in final]
        live = await self.lives.get(turn.cid)
        spans = await asyncio.to_thread(self._as_spans, gone, row.text, live)
        if spans:
            archive = await self._service.archive()
            await archive.add_trimmed(turn.umo, turn.cid, spans)
            await self.lives.reload(turn.cid)

    def _as_spans(
        self, gone: Sequence[object], row_text: str | None, live: Live | None
    ) -> list[SpanMessage]:
        """What is really gone: in the runner's list no more, and not in what was saved."""
        saved: dict[str, int] = {}
        for message in parse_history(row_text):
            if not message.is_checkpoint:
                key = content_hash(message.data)
                saved[key] = saved.get(key, 0) + 1
        spans: list[SpanMessage] = []
        dumped = self._service.host.dump(gone)
        ours = _ours([message.data for message in dumped], live)
        for index, message in enumerate(dumped):
            if index in ours or (message.role == "system" and not spans):
                continue  # not said by anyone: the prompt, or what stands in front of all
            key = content_hash(message.data)
            if saved.get(key, 0) > 0:
                saved[key] -= 1
                continue
            text = "" if message.is_checkpoint else message_text(message.data)
            spans.append(SpanMessage(message.raw, message.role, text))
        return spans

    def _added(self, turn: Turn) -> list[Message]:
        """The messages this turn added, as they were saved."""
        if turn.messages is None or turn.begun is None:
            return []
        old = {id(message) for message in turn.begun[: max(turn.begun_length - 1, 0)]}
        new = [m for m in turn.messages() if id(m) not in old]
        return [m.data for m in self._service.host.dump(new) if not m.is_checkpoint]

    async def _note_figures(self, turn: Turn, added: Sequence[Message]) -> None:
        archive = await self._service.archive()
        now = time.time()
        if turn.usage_tokens:
            chat = await self._service.host.chat_model(turn.umo, turn.provider_id)
            window = chat.window_tokens if chat else None
            await archive.add_sample(turn.cid, turn.umo, now, turn.usage_tokens, window)
            await asyncio.to_thread(self._measure, turn, added)
        said = next((m for m in added if m.get("role") == "user"), None)
        if said is not None and turn.user_id:
            await archive.note_speaker(
                turn.cid, content_hash(said), turn.user_id, turn.nickname, now
            )

    def _measure(self, turn: Turn, added: Sequence[Message]) -> None:
        """What a character of this conversation costs, by the input tokens just reported."""
        sent = [*turn.contexts, *added[:-1]]
        if not turn.input_tokens or any(_has_media(message) for message in sent):
            return
        chars = turn.system_chars + turn.tools_chars()
        chars += sum(len(message_text(m)) + len(str(m.get("tool_calls") or "")) for m in sent)
        if chars:
            self._service.tokens_per_char[turn.cid] = turn.input_tokens / chars

    def _is_judged(self, turn: Turn, added: Sequence[Message]) -> bool:
        if not self._service.settings.auto_compact:
            return False
        # A tool that answered the user by itself ends a turn without a final reply.
        spoke = turn.answered or bool(added and added[-1].get("role") == "tool")
        return (
            spoke
            and not turn.failed
            and turn.cid not in self._service.compactions.running
            and not self.automatic.is_settled_since(turn.cid, turn.started_seconds)
        )

    def _facts(self, turn: Turn, added: Sequence[Message], live: Live | None) -> TurnFacts:
        """The turn's figures; the dialog is the untrimmed one."""
        host = self._service.host
        messages = [m for m in (*turn.history, *added) if m.get("role") != _CHECKPOINT]
        ours = _ours(messages, live)
        dialog = [message for index, message in enumerate(messages) if index not in ours]
        tokens = sum(host.count_tokens(message) for message in dialog)
        usage = turn.usage_tokens
        if not usage:
            usage = tokens + int(0.3 * (turn.system_chars + turn.tools_chars()))
            usage += host.count_text(live.summary) if live else 0
        trimmed = turn.was_trimmed
        by_turns = trimmed and self._exceeds_turns(turn, len(added))
        return TurnFacts(usage, tokens, len(dialog), trimmed, by_turns)

    def _count_line(self, turn: Turn, live: Live | None) -> CountLine | None:
        head = 2 if live is not None and live.record_id else 0
        markers = sum(1 for message in turn.history[:200] if is_gap_marker(message))
        limit = self._service.settings.lines(turn.umo).history_limit
        turns = self._service.host.core(turn.umo).max_turns
        return count_line(limit, turns, turn.begin_dialogs, head, markers)

    def _exceeds_turns(self, turn: Turn, added: int) -> bool:
        turns = self._service.host.core(turn.umo).max_turns
        if turns is None or turns <= 0:
            return False
        messages = sum(1 for m in turn.contexts if m.get("role") not in (_CHECKPOINT, "system"))
        return (messages + added) // 2 > turns

    # Starting a run

    def _start(self, turn: Turn, _verdict: Due | NotDue) -> None:
        async def still_due() -> bool:
            return (
                self._service.settings.auto_compact
                and turn.cid not in self._service.compactions.running
                and not self.automatic.is_settled_since(turn.cid, turn.started_seconds)
            )

        task = self._spawn(
            self.automatic.run(turn.umo, turn.cid, is_private=turn.is_private, still_due=still_due)
        )
        turn.own(task)

    # Living with other writers

    def _usage_cap(self, turn: Turn, window: int | None) -> int | None:
        """What the request's usage is capped at while a run of ours is in flight."""
        if turn.cid not in self._service.compactions.running:
            return None
        usage = self._usage.get(turn.cid)
        if window is None or usage is None or usage >= _CAP_UP_TO * window:
            return None
        return int(HOST_THRESHOLD * window)

    def _will_trim(self, turn: Turn, window: int | None) -> bool:
        """Whether the host is about to drop the head summary in this request."""
        usage = turn.stored_usage_tokens
        over = window is not None and usage > HOST_THRESHOLD * window
        return over or self._exceeds_turns(turn, 1)

    async def _current(self, turn: Turn, live: Live) -> list[Message] | None:
        """The history as it is now, if the request holds one from before our swap."""
        row = await self._service.host.read(turn.cid)
        if row is None:
            return None
        stored = await asyncio.to_thread(parse_history, row.text)
        messages = [message.data for message in stored]
        return messages if live.has_head(messages) else None

    async def _look_after(self, umo: str) -> None:
        """After a wake-up: has it put an old history back over a compaction?"""
        try:
            for seconds in _LOOKS_SECONDS:
                await asyncio.sleep(seconds)
                cid = await self._service.host.current_conversation(umo)
                if cid is not None and await self._heal(umo, cid) is not Healed.INTACT:
                    break
        finally:
            self._service.compactions.release(umo)

    async def _heal(self, umo: str, cid: str) -> Healed:
        if cid in self._service.compactions.running:
            return Healed.INTACT
        async with self._service.compactions.alone(umo, cid, "heal"):
            healed = await heal(self._service.host, await self._service.archive(), umo, cid)
        if healed is not Healed.INTACT:
            self._service.log.info("history of %s was put back: %s", umo, healed.value)
            await self.lives.reload(cid)
        return healed

    # Tasks

    def _heard(self, progress: Progress) -> None:
        if progress.stage == "done":
            self._spawn(self._remember_end(progress.cid))

    async def _remember_end(self, cid: str) -> None:
        """After a swap: know the conversation by how it ends now."""
        await self.lives.reload(cid)
        row = await self._service.host.read(cid)
        if row is not None:
            stored = await asyncio.to_thread(parse_history, row.text)
            await self.lives.remember(cid, [message.data for message in stored])

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._service.log.error("a background task failed", exc_info=error)


def _ours(messages: Sequence[Message], live: Live | None) -> set[int]:
    """Where head summaries, their acknowledgements and gap markers stand.

    The host's own head is one by its acknowledgement; ours by its hash.
    """
    found: set[int] = set()
    for index, message in enumerate(messages):
        if live is not None and live.record_id and is_gap_marker(message):
            found.add(index)
        elif may_be_head(message):
            answered = index + 1 < len(messages) and is_acknowledgement(messages[index + 1])
            if answered or (live is not None and live.is_head(message)):
                found |= {index, index + 1} if answered else {index}
    return found


def _has_media(message: Message) -> bool:
    content = message.get("content")
    return isinstance(content, list) and any(
        isinstance(part, dict) and part.get("type") not in ("text", "think") for part in content
    )
