"""Putting a summary in place of what it covers: planned → summarised → archived → done.

Invariant: the stored history changes in one compare-and-set or not at all; what it replaces was
in the archive before; no other writer is ever overwritten (spec 2.7). A record that does not
reach `done` becomes `void`, and one that a crash leaves at `archived` is settled at the next
start by looking at the history.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

from .archive import Archive
from .archive_types import Compaction, NewCompaction, SpanMessage, Stage
from .compose import Composed, compose, counted, new_checkpoint
from .errors import HistoryChanged, HistoryCleared, NotSmaller, UnreadableHistory
from .heads import head_text, text_hash
from .history import Stored, dump_history, message_text, parse_history
from .host import Host, Row
from .plan import AfterSwap, CompactionPlan, Layout
from .units import Item, Unit

# A turn that is just ending frees the lock in this time; beyond it, say that we wait.
_PATIENCE_SECONDS = 0.5


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
    as it is now.
    """

    row: Row
    plan: CompactionPlan
    summary: str
    retained: frozenset[int]
    facts: RunFacts
    read: Callable[[Sequence[Stored]], Layout]
    limit_retained: Callable[[CompactionPlan, frozenset[int]], frozenset[int]]


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
    async with announced(host.lock(draft.row.umo), on_wait):
        for _ in range(2):
            await stands()
            row = await host.read(draft.row.cid)
            ready = await asyncio.to_thread(_prepare, draft, row, host)
            await stands()
            committed = await uninterrupted(_archive_and_swap(ready, host, archive))
            if committed is not None:
                return committed
    raise HistoryChanged


@asynccontextmanager
async def announced(lock: AbstractAsyncContextManager[None], on_wait: Callable[[], None]) -> Any:
    """Hold a lock; if it is not free at once, `on_wait` is called while we wait."""
    handle = asyncio.get_running_loop().call_later(_PATIENCE_SECONDS, on_wait)
    try:
        async with lock:
            handle.cancel()
            yield
    finally:
        handle.cancel()


async def uninterrupted[T](work: Coroutine[Any, Any, T]) -> T:
    """Finish `work` even if we are cancelled meanwhile.

    Between archive and settling the outcome must be known, however often one is cancelled. A
    swap that was done is reported as done: only a run that wrote nothing ends as cancelled.
    """
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as exc:
            cancelled = exc
    result = task.result()
    if result is None and cancelled is not None:
        raise cancelled
    return result


@dataclass(frozen=True, slots=True, eq=False)
class _Ready:
    """All that the two writes need, worked out in a thread."""

    row: Row
    new_text: str
    record: NewCompaction
    span: tuple[SpanMessage, ...]
    kept_messages: int


def _prepare(draft: Draft, row: Row | None, host: Host) -> _Ready:
    """Check the history as it is now and put the new one together."""
    if row is None or row.umo != draft.row.umo:
        raise HistoryCleared
    plan = draft.plan
    if row.text != draft.row.text:
        plan = rebase(draft.plan, draft.read(parse_history(row.text)), host)
    retained = draft.limit_retained(plan, draft.retained)
    items = sorted(
        (item for index in retained for item in plan.span[index].items),
        key=lambda item: item.position,
    )
    language = draft.facts.language
    composed = compose(plan, items, draft.summary, language, new_checkpoint())
    messages = composed.messages
    tokens_after = sum(host.count_tokens(m.data) for m in messages if not m.is_checkpoint)
    if tokens_after >= plan.layout.tokens:
        raise NotSmaller(before=plan.layout.tokens, after=tokens_after)
    earlier = plan.earlier
    record = NewCompaction(
        **asdict(draft.facts),
        cid=row.cid,
        umo=row.umo,
        summary_before=earlier.summary if earlier else None,
        summary=draft.summary,
        messages_before=plan.layout.shown_count,
        messages_after=counted(messages),
        tokens_before=plan.layout.tokens,
        tokens_after=tokens_after,
        head_hash=text_hash(head_text(draft.summary, language)),
        head_before_raw=_raw_head(plan.layout),
        prefix_json=_prefix_json(composed, items, plan, host),
    )
    span = _span_messages(plan, {id(item) for item in items})
    return _Ready(row, dump_history(messages), record, span, len(items))


async def _archive_and_swap(ready: _Ready, host: Host, archive: Archive) -> Committed | None:
    """Archive, swap, settle; None if another writer was faster."""
    record = ready.record
    begun = await archive.begin(record, ready.span)
    try:
        swapped = await host.swap(ready.row.cid, ready.row.text, ready.new_text)
    except Exception:
        # Whether it happened is unknown. If looking fails too, the next start looks.
        await settle_unfinished(host, archive, ready.row.cid)
        raise
    await archive.settle(begun, Stage.DONE if swapped else Stage.VOID)
    if not swapped:
        return None
    settled = await archive.by_id(begun)
    return Committed(
        begun,
        (settled.number if settled else None) or 0,
        record.messages_before,
        record.messages_after,
        record.tokens_before,
        record.tokens_after,
        ready.kept_messages,
    )


def rebase(plan: CompactionPlan, now: Layout, host: Host) -> CompactionPlan:
    """The same cut on the history as it is now; what came after the cut is taken as it is.

    Raises:
        HistoryCleared: the history is empty.
        HistoryChanged: head summary or span are no longer the snapshot's.
    """
    if not now.body:
        raise HistoryCleared
    before = [item for item in plan.layout.body if item.position < plan.cut]
    if len(now.body) < len(before):
        raise HistoryChanged
    moved: dict[int, Item] = {}
    for old, new in zip(before, now.body, strict=False):
        if not same_message(old.message, new.message, host):
            raise HistoryChanged
        moved[old.position] = new
    rest = now.body[len(before) :]
    cut = rest[0].position if rest else len(now.stored)
    markers = {marker.position for marker in now.markers}
    span = tuple(
        Unit(tuple(moved[item.position] for item in unit.items), unit.kind) for unit in plan.span
    )
    tail = tuple(item for item in rest if item.position not in markers)
    return replace(plan, layout=now, span=span, tail=tail, cut=cut)


def same_message(left: Stored, right: Stored, host: Host) -> bool:
    """Whether two stored messages are one for the host; the cheap comparisons come first."""
    if left.raw == right.raw or left.data == right.data:
        return True
    return host.canonical(left.data) == host.canonical(right.data)


def after_swap(record: Compaction) -> AfterSwap:
    """What a recorded swap left, for the next plan's "nothing new"."""
    kept = json.loads(record.prefix_json)
    return AfterSwap(record.head_hash, kept["dialog_messages"], kept["last_message"])


def prefix_messages(record_prefix_json: str) -> tuple[Stored, ...]:
    """The messages a recorded swap wrote before the tail."""
    return tuple(Stored(raw, json.loads(raw)) for raw in json.loads(record_prefix_json)["messages"])


def last_message(items: Sequence[Item], host: Host) -> str:
    """The hash the last dialog message is compared by, empty if there is none."""
    return text_hash(host.canonical(items[-1].data)) if items else ""


def _prefix_json(
    composed: Composed, retained: Sequence[Item], plan: CompactionPlan, host: Host
) -> str:
    dialog = [*retained, *plan.tail]
    return json.dumps(
        {
            "messages": [message.raw for message in composed.prefix],
            "dialog_messages": len(dialog),
            "last_message": last_message(dialog, host),
        }
    )


def _raw_head(layout: Layout) -> tuple[str, ...]:
    if layout.head is None:
        return ()
    return tuple(message.raw for item in layout.head.items for message in item.as_stored)


def _span_messages(plan: CompactionPlan, kept: set[int]) -> tuple[SpanMessage, ...]:
    """Everything between head and cut as stored: checkpoints and markers too, for undo."""
    markers = {id(marker) for marker in plan.layout.markers}
    head = {id(item) for item in plan.layout.head.items} if plan.layout.head else set()
    span: list[SpanMessage] = []
    for item in plan.layout.body:
        if item.position >= plan.cut or id(item) in head:
            continue
        text = "" if id(item) in markers else message_text(item.data)
        span.append(SpanMessage(item.message.raw, item.role, text, id(item) in kept, None, None))
        span += [SpanMessage(c.raw, c.role, "", False, None, None) for c in item.checkpoints]
    return tuple(span)


async def settle_unfinished(host: Host, archive: Archive, cid: str | None = None) -> int:
    """Settle what was left between archive and swap; how many records that were.

    `cid` names one conversation, None is all of them.

    A swap that happened shows: the history begins with the head summary it wrote. An undo that
    happened shows the other way round.
    """
    unfinished = await archive.unsettled(cid)
    for record in unfinished:
        row = await host.read(record.cid)
        stands = row is not None and await asyncio.to_thread(_begins_with, row, record.head_hash)
        gone = Stage.VOID if record.stage is Stage.ARCHIVED else Stage.UNDONE
        await archive.settle(record.id, Stage.DONE if stands else gone)
    return len(unfinished)


def _begins_with(row: Row, head_hash: str) -> bool:
    try:
        stored = parse_history(row.text)
    except UnreadableHistory:
        return False
    first = next((m for m in stored if not m.is_checkpoint and m.role != "system"), None)
    return first is not None and text_hash(message_text(first.data)) == head_hash
