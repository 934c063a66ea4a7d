"""Compactions: snapshot → plan → summarise → commit → report, one at a time a conversation.

Command, background run, page and other plugins all end here (habit 2). Invariant: whatever
happens in between, the stored history is the old one or the new one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from .archive import Archive
from .commit import PATIENCE_SECONDS, Draft, RunFacts, commit
from .engines import Prepared
from .errors import (
    ArchiveFailed,
    Busy,
    BusyOtherwise,
    CompactError,
    HistoryCleared,
    LargeMessage,
    NoConversation,
    Voided,
)
from .heads import KnownHead, candidate_hash
from .history import Stored, parse_history
from .holds import Holds
from .host import Host, Row
from .live import bury, is_dead, read_live
from .plan import (
    CompactionPlan,
    Layout,
    PlanOptions,
    Skip,
    plan_compaction,
    read_layout,
)
from .records import after_swap, last_message, settle_unfinished
from .runs import HEAL, Listener, Order, Outcome, Past, Preview, Progress, Run, Snapshot
from .threads import in_thread, let_go
from .trims import Trims, TrimsSince
from .units import Unit, bind_checkpoints, group_units

# So long a command waits for a healing.
_HEAL_SECONDS = 2.0

_log = logging.getLogger(__name__)


class Compactions:
    """Runs compactions. `running` holds what is done to conversations now, one thing to each."""

    def __init__(self, host: Host, archive: Callable[[], Awaitable[Archive]]) -> None:
        self._host = host
        self._archive = archive
        self.running: dict[str, Run] = {}
        self._listeners: list[Listener] = []
        # Called with the conversation whenever somebody has ended working on one.
        self.on_ended: list[Callable[[str], None]] = []
        self.holds = Holds()
        self.trims = Trims()

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with every `Progress`; the value returned ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def preview(self, order: Order) -> Preview | Skip:
        """The plan a run would execute now.

        Raises:
            NotAvailable, SummaryFailed, ArchiveFailed: as a run would, before its model call.
        """
        return await self._prepare(await self._snapshot(order.cid), order)

    async def _prepare(self, snapshot: Snapshot, order: Order) -> Preview | Skip:
        plan = await in_thread(self._plan, snapshot, order)
        if isinstance(plan, Skip):
            return plan
        return Preview(plan, await in_thread(order.engine.prepare, plan, order.job))

    async def stop(self) -> None:
        """End all runs without a write and wait until they have ended."""
        runs = tuple(self.running.values())
        for run in runs:
            run.void()
        tasks = [run.task for run in runs if run.task not in (None, asyncio.current_task())]
        await asyncio.gather(*filter(None, tasks), return_exceptions=True)

    async def layout(self, cid: str) -> tuple[Layout, Row]:
        """A conversation's history taken apart, and its row.

        An archive that cannot be read knows no head: the history is told as it stands.

        Raises:
            NoConversation, UnreadableHistory
        """
        row, stored = await self._read(cid)
        try:
            known = await self._known(stored)
        except ArchiveFailed:
            known = {}
        count = self._host.count_tokens
        return await in_thread(read_layout, stored, count, known.get), row

    async def run(self, order: Order, listener: Listener | None = None) -> Outcome | Skip:
        """Compact. `listener` is told this run's progress, besides the subscribers.

        Raises:
            CompactError: not done; the stored history is untouched.
        """
        async with self.alone(order.umo, order.cid, order.trigger, listener) as run:
            return await self._run(run, order)

    def is_compacting(self, cid: str) -> bool:
        """Whether a conversation is being compacted now."""
        return cid in self.running and self.running[cid].compacts

    @asynccontextmanager
    async def alone(
        self, umo: str, cid: str, trigger: str, listener: Listener | None = None
    ) -> AsyncIterator[Run]:
        """Be the only one who works on a conversation.

        Raises:
            Busy: another one does.
        """
        other = self.running.get(cid)
        if other is not None and other.trigger == HEAL:
            # Nobody asked for it, and it is short unless a turn has begun.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(other.ended.wait(), _HEAL_SECONDS)
        # No await between look and entry: two commands at once make one run.
        if (other := self.running.get(cid)) is not None:
            raise Busy if other.compacts else BusyOtherwise
        run = Run(umo, cid, trigger, listener, asyncio.current_task())
        self.running[cid] = run
        try:
            yield run
        finally:
            del self.running[cid]
            run.ended.set()
            for ended in self.on_ended:
                ended(cid)

    async def _run(self, run: Run, order: Order) -> Outcome | Skip:
        started = False
        try:
            await settle_unfinished(self._host, await self._archive(), order.cid)
            trims = TrimsSince(self.trims, order.cid)
            snapshot = await self._sure_snapshot(run)
            if snapshot.past is Past.DEAD:
                await bury(await self._archive(), order.cid)
            ready = await self._prepare(snapshot, order)
            if isinstance(ready, Skip):
                return ready
            _expect_allowed(ready.prepared, order)
            started = True
            self._tell(run, "start", steps=ready.prepared.requests)
            outcome = await self._summarize_and_commit(run, order, snapshot, ready, trims)
        except asyncio.CancelledError:
            if started:
                self._tell(run, "error", error=Voided())
            if run.voided:
                run.forget_cancellations()
                raise Voided from None
            raise
        except Exception as exc:
            # Whoever was told of the start is told of the end, also where nobody foresaw it.
            if started:
                error = exc if isinstance(exc, CompactError) else CompactError()
                self._tell(run, "error", error=error)
            raise
        self._tell(run, "done", outcome=outcome)
        held: list[object] = [snapshot, ready]
        del snapshot, ready
        let_go(held)
        return outcome

    async def _summarize_and_commit(
        self,
        run: Run,
        order: Order,
        snapshot: Snapshot,
        ready: Preview,
        trims: TrimsSince,
    ) -> Outcome:
        plan, prepared = ready.plan, ready.prepared
        began = time.monotonic()
        result = await order.engine.summarize(
            plan, prepared, order.job, order.model, lambda i, n: self._tell(run, "step", i, n)
        )
        info = order.model.info
        facts = RunFacts(
            trigger=order.trigger,
            engine=order.engine.name,
            structured=order.engine.structured,
            template=prepared.template,
            language=prepared.language,
            provider_id=info.provider_id,
            model=info.model,
            focus=order.job.focus,
            requests=result.requests,
            input_tokens=result.input_tokens,
            cached_tokens=result.cached_tokens,
            output_tokens=result.output_tokens,
            duration_seconds=time.monotonic() - began,
            covers_trimmed=snapshot.trimmed_ids,
        )

        def read(stored: Sequence[Stored]) -> Layout:
            return read_layout(stored, self._host.count_tokens, snapshot.known.get)

        def limit(now: CompactionPlan, retained: frozenset[int]) -> frozenset[int]:
            return order.engine.limit_retained(now, retained, order.count_line)

        async def stands() -> None:
            if run.voided:
                raise Voided
            if order.follow_current:
                current = await self._host.current_conversation(order.umo)
                if current != order.cid:
                    raise HistoryCleared

        archive = await self._archive()
        noted = await archive.speakers(order.cid)
        draft = Draft(
            snapshot.row, plan, result.summary, result.retained, facts, read, limit, trims, noted
        )
        await self.holds.free(order.umo)
        committed = await commit(
            draft,
            self._host,
            archive,
            stands=stands,
            on_wait=lambda: self._tell_waiting(run),
        )
        result.on_stored()
        return Outcome(
            committed, result.summary, prepared.template, prepared.language,
            info.provider_id, result.requests, result.warnings,
        )  # fmt: skip

    async def _sure_snapshot(self, run: Run) -> Snapshot:
        """A snapshot once it is known whether the past lives.

        A turn under way may have to end for that, and be looked through; the commit would wait
        for it too. There is nothing to know of an empty history.
        """
        seen = self.trims.looked_through
        snapshot = await self._snapshot(run.cid)
        if snapshot.past is not Past.UNSURE or not snapshot.layout.stored:
            return snapshot
        waiting = asyncio.get_running_loop().call_later(PATIENCE_SECONDS, self._tell_waiting, run)
        try:
            while snapshot.past is Past.UNSURE and snapshot.layout.stored:
                if self.trims.may_come(run.cid):
                    await self.trims.more_than(seen)
                seen = self.trims.looked_through
                snapshot = await self._snapshot(run.cid)
        finally:
            waiting.cancel()
        return snapshot

    async def _snapshot(self, cid: str) -> Snapshot:
        # A turn that is not looked through yet has saved what the archive does not know.
        in_turn = self.trims.may_come(cid)
        row, stored = await self._read(cid)
        known = await self._known(stored)
        layout = await in_thread(read_layout, stored, self._host.count_tokens, known.get)
        archive = await self._archive()
        # Read before the past, and only with it: what arrives later may be of another history.
        batches = await archive.pending_trimmed(cid)
        latest = await archive.latest(cid)
        live = await read_live(archive, cid, latest)
        batches = batches if live is not None else ()
        messages = [message.data for message in stored]
        if live and await is_dead(archive, cid, live, messages):
            now = await self._host.read(cid)
            is_same = now is not None and now.text == row.text
            is_sure = is_same and not in_turn and not self.trims.may_come(cid)
            return Snapshot(row, layout, known, past=Past.DEAD if is_sure else Past.UNSURE)
        raws = [message.raw for batch in batches for message in batch.messages]
        trimmed = await in_thread(self._trimmed_units, raws)
        return Snapshot(
            row,
            layout,
            known,
            trimmed,
            tuple(batch.id for batch in batches),
            after_swap(latest) if latest else None,
            live.carried(messages) if live else None,
        )

    async def _read(self, cid: str) -> tuple[Row, tuple[Stored, ...]]:
        row = await self._host.read(cid)
        if row is None:
            raise NoConversation
        return row, await in_thread(parse_history, row.text)

    async def _known(self, stored: Sequence[Stored]) -> dict[str, KnownHead]:
        talk = [m for m in stored if not m.is_checkpoint and m.role != "system"][:2]
        wanted = candidate_hash(bind_checkpoints(talk, lambda _: 0))
        if wanted is None:
            return {}
        return dict((await (await self._archive()).knows([wanted])).heads)

    def _trimmed_units(self, raws: Sequence[str]) -> tuple[Unit, ...]:
        messages = parse_history("[" + ",".join(raws) + "]")
        return group_units(bind_checkpoints(messages, self._host.count_tokens)).units

    def _plan(self, snapshot: Snapshot, order: Order) -> CompactionPlan | Skip:
        layout = snapshot.layout
        options = PlanOptions(
            order.keep_recent_ratio,
            order.min_messages,
            order.line_tokens,
            order.count_line,
            None if order.explicit else snapshot.previous,
        )
        return plan_compaction(
            layout,
            options,
            snapshot.trimmed,
            last_message(layout.dialog, self._host),
            snapshot.carried,
        )

    def _tell_waiting(self, run: Run) -> None:
        if not run.told_waiting:
            run.told_waiting = True
            self._tell(run, "wait")

    def _tell(
        self,
        run: Run,
        stage: str,
        step: int = 0,
        steps: int = 0,
        *,
        outcome: Outcome | None = None,
        error: CompactError | None = None,
    ) -> None:
        event = Progress(run.umo, run.cid, run.trigger, stage, step, steps, outcome, error)
        for listener in (run.listener, *self._listeners):
            if listener is not None:
                _call(listener, event)


def _expect_allowed(prepared: Prepared, order: Order) -> None:
    if prepared.has_large and not order.may_take_large:
        raise LargeMessage(requests=prepared.requests)


def _call(listener: Listener, event: Progress) -> None:
    # Others listen too, and what they do with an event is no part of a run.
    try:
        listener(event)
    except Exception:
        _log.exception("A listener failed at %s of a compaction", event.stage)
