"""Putting a summary in place of what it covers: planned → summarised → archived → done.

Invariant: the stored history changes in one compare-and-set or not at all; what it replaces was
in the archive before; no other writer is ever overwritten (spec 2.7). A record that does not
reach `done` becomes `void`, and one that a crash leaves at `archived` is settled at the next
start by looking at the history.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass, replace
from typing import Any

from .archive import Archive
from .archive_types import NewCompaction, SpanMessage, Stage
from .compose import compose, counted, new_checkpoint
from .errors import (
    ArchiveFailed,
    HistoryChanged,
    HistoryCleared,
    NotSmaller,
    Voided,
)
from .heads import head_text, text_hash
from .history import Stored, dump_history, parse_history
from .host import Host, Row
from .plan import CompactionPlan, Layout
from .records import prefix_json, raw_head, same_message, span_messages
from .units import Item, Unit, group_units

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
    runner = asyncio.current_task()
    cancelled_before = runner.cancelling() if runner else 0

    async def still_stands() -> None:
        await stands()
        if runner and runner.cancelling() > cancelled_before:
            raise Voided

    async def attempt() -> Committed | None:
        await stands()
        row = await host.read(draft.row.cid)
        ready = await asyncio.to_thread(_prepare, draft, row, host)
        await stands()
        return await uninterrupted(_archive_and_swap(ready, host, archive, still_stands))

    return await attempt_twice(host.lock(draft.row.umo), on_wait, attempt)


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
    handle = asyncio.get_running_loop().call_later(_PATIENCE_SECONDS, on_wait)
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
        head_before_raw=raw_head(plan.layout),
        prefix_json=prefix_json(composed, items, plan, host),
    )
    span = span_messages(plan, {id(item) for item in items})
    return _Ready(row, dump_history(messages), record, span, len(items))


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
    # Results that came in late may belong to a call before the cut.
    offset = sum(item.position < cut for item in now.dialog)
    if not group_units(now.dialog).cuts[offset]:
        raise HistoryChanged
    return replace(plan, layout=now, span=span, tail=tail, cut=cut)
