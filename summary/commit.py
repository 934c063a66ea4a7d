"""Putting a summary in place of what it covers: planned → summarised → archived → done.

Invariant: the stored history changes in one compare-and-set or not at all; what it replaces was
in the archive before; no other writer is ever overwritten (spec 2.7). A record that does not
reach `done` becomes `void`, and one that a crash leaves at `archived` is settled at the next
start by looking at the history.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from .archive import Archive
from .archive_types import NewCompaction, SpanMessage, Stage, TrimmedBatch
from .archiving import Noted
from .compose import compose, new_checkpoint
from .errors import (
    ArchiveFailed,
    HistoryChanged,
    HistoryCleared,
    Voided,
)
from .heads import KnownHead, head_text, text_hash
from .history import Stored, dump_history, parse_history
from .host import Host, Row
from .live import is_dead, read_live
from .plan import CompactionPlan, Layout, not_smaller, read_layout
from .rebase import rebase, rebase_trimmed
from .records import prefix_json, raw_head, span_messages
from .threads import in_thread
from .trims import TrimsSince

# So many turns that trim may end between our attempts.
_MOST_TURNS_BETWEEN = 8
# A turn that is just ending frees the lock in this time; beyond it, say that we wait.
PATIENCE_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """What a run knows of itself for the record; the fields are those of `NewCompaction`."""

    trigger: str
    engine: str
    structured: bool
    template: str | None
    language: str
    provider_id: str
    model: str
    focus: str
    requests: int
    input_tokens: int | None
    cached_tokens: int | None
    output_tokens: int | None
    duration_seconds: float
    covers_trimmed: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Draft:
    """A summary that waits to be committed.

    `row` and `plan` are the snapshot it was made from, `retained` indexes into `plan.span`.
    `read` takes a history apart, `limit_retained` applies the count rule of 2.5 to the history
    as it is now. `trims` tells of the host's trimming since the snapshot, `noted` who
    said what.
    """

    row: Row
    plan: CompactionPlan
    summary: str
    retained: frozenset[int]
    facts: RunFacts
    read: Callable[[Sequence[Stored]], Layout]
    limit_retained: Callable[[CompactionPlan, frozenset[int]], frozenset[int]]
    trims: TrimsSince = field(default_factory=TrimsSince)
    noted: Noted = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Committed:
    """A compaction that is done, in true numbers.

    The message counts are shown counts; `kept_messages` are those of the retained units.
    """

    id: int
    number: int
    messages_before: int
    messages_after: int
    tokens_before: int
    tokens_after: int
    kept_messages: int


async def commit(
    draft: Draft,
    host: Host,
    archive: Archive,
    *,
    stands: Callable[[], Coroutine[Any, Any, None]],
    on_wait: Callable[[], None],
) -> Committed:
    """Lock, check, archive, swap; once more from the start if another writer was faster.

    Args:
        draft: the summary and what it was made from.
        host: the chat host.
        archive: where the replaced messages go first.
        stands: raises a `HistoryMoved` if the run has been called off meanwhile.
        on_wait: called once if a running turn holds the session lock.

    Raises:
        HistoryMoved, NotSmaller, ArchiveFailed: nothing was changed.
    """
    runner = asyncio.current_task()
    cancelled_before = runner.cancelling() if runner else 0

    async def still_stands() -> None:
        await stands()
        if runner and runner.cancelling() > cancelled_before:
            raise Voided

    async def attempt() -> Committed | None:
        await stands()
        row = await host.read(draft.row.cid)
        if row is not None and row.text != draft.row.text:
            await _expect_alive(draft, row, archive)
        try:
            ready = await in_thread(_prepare, draft, row, host)
        except HistoryChanged:
            ready = await _prepare_after_trim(draft, row, host, archive)
        await stands()
        return await uninterrupted(_archive_and_swap(ready, host, archive, still_stands))

    for _ in range(_MOST_TURNS_BETWEEN):
        try:
            return await attempt_twice(host.lock(draft.row.umo), on_wait, attempt)
        except _TrimMayCome as pending:
            # Whoever looks the turn through waits for the lock we have just let go.
            await draft.trims.trims.more_than(pending.looked_through)
    raise HistoryChanged


async def attempt_twice[T](
    lock: AbstractAsyncContextManager[None],
    on_wait: Callable[[], None],
    attempt: Callable[[], Awaitable[T | None]],
) -> T:
    """Hold the lock and try, once more if that gave None; `on_wait` is called if it is not free.

    Raises:
        HistoryChanged: another writer was faster, twice.
    """
    done: T | None = None
    handle = asyncio.get_running_loop().call_later(PATIENCE_SECONDS, on_wait)
    try:
        async with lock:
            handle.cancel()
            for _ in range(2):
                done = await attempt()
                if done is not None:
                    break
    except asyncio.CancelledError:
        if done is None:
            raise
        _forget_cancellations(1)  # it came while the lock was let go, when all was done
    finally:
        handle.cancel()
    if done is None:
        raise HistoryChanged
    return done


async def uninterrupted[T](work: Coroutine[Any, Any, T]) -> T:
    """Finish `work` even if we are cancelled meanwhile.

    Between archive and settling the outcome must be known, however often one is cancelled. A
    swap that was done is reported as done: only a run that wrote nothing ends as cancelled.
    """
    task = asyncio.ensure_future(work)
    cancellations: list[asyncio.CancelledError] = []
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as exc:
            cancellations.append(exc)
    failure = task.exception()
    if cancellations and (failure is not None or not task.result()):
        raise cancellations[-1] from failure
    _forget_cancellations(len(cancellations))
    return task.result()


def _forget_cancellations(count: int) -> None:
    """Tell our task that so many cancellations of it were dealt with and are not passed on."""
    task = asyncio.current_task()
    if task is not None:
        for _ in range(count):
            task.uncancel()


@dataclass(frozen=True, slots=True, eq=False)
class _Ready:
    """All that the two writes need, worked out in a thread."""

    row: Row
    new_text: str
    record: NewCompaction
    span: tuple[SpanMessage, ...]
    kept_messages: int


class _TrimMayCome(Exception):
    """The history has changed, and a turn that may have trimmed it is not looked through yet."""

    def __init__(self, looked_through: int) -> None:
        super().__init__(looked_through)
        self.looked_through = looked_through


async def _prepare_after_trim(
    draft: Draft, row: Row | None, host: Host, archive: Archive
) -> _Ready:
    """The same if the host trimmed the history since the snapshot.

    Raises:
        HistoryChanged: it did not, or somebody else wrote too.
    """
    if draft.trims.seen:
        batches = await archive.pending_trimmed(draft.row.cid)
        since = [batch for batch in batches if batch.id not in draft.facts.covers_trimmed]
        with contextlib.suppress(HistoryChanged):
            return await in_thread(_prepare, draft, row, host, since)
    if draft.trims.may_come:
        raise _TrimMayCome(draft.trims.trims.looked_through)
    raise HistoryChanged


async def _expect_alive(draft: Draft, row: Row, archive: Archive) -> None:
    """Look whether trimmed messages still belong to the history as it is now.

    What is in the history ties a plan to it. What the host dropped does not.

    Raises:
        HistoryCleared: the conversation was cleared, and another history stands there.
    """
    covers = draft.facts.covers_trimmed
    if not covers and not draft.trims.seen:
        return
    pending = {batch.id for batch in await archive.pending_trimmed(row.cid)}
    if not pending.issuperset(covers):
        raise HistoryCleared
    live = await read_live(archive, row.cid, await archive.latest(row.cid))
    if live is None:
        return
    stored = await in_thread(parse_history, row.text)
    if await is_dead(archive, row.cid, live, [message.data for message in stored]):
        # An empty one is clear; any other may be what is left after a trim nobody has seen yet.
        if stored and draft.trims.may_come:
            raise _TrimMayCome(draft.trims.trims.looked_through)
        raise HistoryCleared


def _prepare(
    draft: Draft, row: Row | None, host: Host, trimmed: Sequence[TrimmedBatch] | None = None
) -> _Ready:
    """Check the history as it is now and put the new one together.

    `trimmed` is what the host dropped since the snapshot, None if it is not known to have
    trimmed.
    """
    if row is None or row.umo != draft.row.umo:
        raise HistoryCleared
    plan, retained, covers = draft.plan, draft.retained, draft.facts.covers_trimmed
    gone_tokens = 0
    if row.text != draft.row.text:
        now = draft.read(parse_history(row.text))
        if trimmed is None:
            plan = rebase(plan, now, host)
        else:
            rebased = rebase_trimmed(plan, retained, now, trimmed, host)
            plan, retained, covers = rebased.plan, rebased.retained, (*covers, *rebased.covers)
            gone_tokens = rebased.gone_tokens
    retained = draft.limit_retained(plan, retained)
    items = sorted(
        (item for index in retained for item in plan.span[index].items),
        key=lambda item: item.position,
    )
    language = draft.facts.language
    composed = compose(plan, items, draft.summary, language, new_checkpoint())
    head_hash = text_hash(head_text(draft.summary, language))
    known = {head_hash: KnownHead(draft.summary, draft.facts.structured)}
    # What is said of the new history is what its next reader will find.
    after = read_layout(composed.messages, host.count_tokens, known.get)
    # What the host has dropped of the span meanwhile is summarised all the same.
    before_tokens = plan.layout.tokens + gone_tokens
    if after.tokens >= before_tokens:
        raise not_smaller(plan, before_tokens, after.tokens)
    earlier = draft.plan.earlier
    record = NewCompaction(
        **asdict(replace(draft.facts, covers_trimmed=covers)),
        cid=row.cid,
        umo=row.umo,
        summary_before=earlier.summary if earlier else None,
        summary=draft.summary,
        messages_before=plan.layout.shown_count,
        messages_after=after.shown_count,
        tokens_before=plan.layout.tokens,
        tokens_after=after.tokens,
        head_hash=head_hash,
        head_before_raw=raw_head(plan.layout),
        prefix_json=prefix_json(composed, after, host),
    )
    span = span_messages(plan, {id(item) for item in items}, draft.noted)
    return _Ready(row, dump_history(composed.messages), record, span, len(items))


async def _archive_and_swap(
    ready: _Ready, host: Host, archive: Archive, stands: Callable[[], Awaitable[None]]
) -> Committed | None:
    """Archive, swap, settle; None if another writer was faster."""
    record = ready.record
    begun = await archive.begin(record, ready.span)
    number = await archive.number(begun)
    try:
        # Archiving a long history takes its time: whoever called the run off then is heard.
        await stands()
    except Exception:
        await archive.settle(begun, Stage.VOID)
        raise
    # If this fails, the record stays `archived`: the next run or start looks at the history.
    swapped = await surely_swap(host, ready.row, ready.new_text)
    try:
        await archive.settle(begun, Stage.DONE if swapped else Stage.VOID)
    except ArchiveFailed:
        if not swapped:
            raise
        # Done is done, whatever becomes of the record; the next run or start settles it.
    if not swapped:
        return None
    return Committed(
        begun,
        number,
        record.messages_before,
        record.messages_after,
        record.tokens_before,
        record.tokens_after,
        ready.kept_messages,
    )


async def surely_swap(host: Host, row: Row, new_text: str) -> bool:
    """Swap; where the host fails at it, look whether the row was written all the same."""
    try:
        return await host.swap(row.cid, row.text, new_text)
    except Exception:
        now = await host.read(row.cid)
        if now is None or now.text != new_text:
            raise
        return True
