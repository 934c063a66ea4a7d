"""Taking a compaction back: its messages in front of what came since (spec 4.2).

Invariant: only a history that still begins with what the compaction wrote is touched, in one
compare-and-set, and all it held is in it afterwards: the originals as stored, then the talk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .archive import Archive
from .archive_types import ArchivedMessage, Compaction, Stage
from .commit import attempt_twice, surely_swap, uninterrupted
from .errors import (
    ArchiveDamaged,
    ArchiveFailed,
    CannotUndo,
    ClearedSince,
    EmptyAfterUndo,
    ErasedSince,
    HistoryCleared,
    NothingToUndo,
)
from .heads import is_gap_marker
from .history import Message, Stored, dump_history, parse_history, stored_as
from .host import Host, Row
from .live import note_end
from .records import prefix_messages, same_message, settle_unfinished
from .threads import in_thread
from .units import bind_checkpoints


@dataclass(frozen=True, slots=True)
class Undone:
    """An undo that is done; the message counts are shown counts."""

    number: int
    messages_before: int
    messages_after: int


async def undo(
    host: Host, archive: Archive, umo: str, cid: str, on_wait: Callable[[], None]
) -> Undone:
    """Take the last compaction of a conversation back.

    Raises:
        NothingToUndo, CannotUndo: nothing was changed, for the reason given.
        HistoryMoved, ArchiveFailed: nothing was changed.
    """
    await settle_unfinished(host, archive, cid)
    record = await archive.latest(cid)
    if record is None:
        for cleared in await archive.list(cid, 1):
            raise ClearedSince(number=cleared.number or 0)
        raise NothingToUndo
    number = record.number or 0
    if record.erased:
        raise ErasedSince(number=number)
    messages = await archive.messages(record.id)
    if len(messages) != record.message_count:
        # Putting fewer back would lose the others and the summary of them too.
        raise ArchiveDamaged(detail=f"#{number} has {len(messages)} of {record.message_count}")

    async def attempt() -> Undone | None:
        row = await host.read(cid)
        if row is None:
            raise HistoryCleared
        restored = await in_thread(_restore, record, messages, row, host)
        return await uninterrupted(_swap(record, row, restored, host, archive))

    return await attempt_twice(host.lock(umo), on_wait, attempt)


async def _swap(
    record: Compaction, row: Row, restored: _Restored, host: Host, archive: Archive
) -> Undone | None:
    """Write it; None if another writer was faster."""
    await archive.settle(record.id, Stage.UNDOING)
    await note_end(archive, record.cid, restored.history)
    # If this fails, the record stays `undoing`: the next run or start looks at the history.
    swapped = await surely_swap(host, row, restored.new_text)
    try:
        await archive.settle(record.id, Stage.UNDONE if swapped else Stage.DONE)
    except ArchiveFailed:
        if not swapped:
            raise
    if not swapped:
        return None
    return Undone(record.number or 0, restored.before, restored.after)


@dataclass(frozen=True, slots=True)
class _Restored:
    new_text: str
    history: tuple[Message, ...]
    before: int
    after: int


def _restore(
    record: Compaction, messages: Sequence[ArchivedMessage], row: Row, host: Host
) -> _Restored:
    """The history as it would be without the compaction."""
    number = record.number or 0
    stored = parse_history(row.text)
    items = bind_checkpoints(stored, lambda _: 0)
    leading = next((n for n, item in enumerate(items) if item.role != "system"), len(items))
    body = items[leading:]
    if not body:
        raise ClearedSince(number=number)
    written = prefix_messages(record.prefix_json)
    ours = [message for message in written if not message.is_checkpoint]
    if len(body) < len(ours) or not all(
        same_message(mine, item.message, host) for mine, item in zip(ours, body, strict=False)
    ):
        raise CannotUndo(number=number)
    start = body[0].position
    last = body[len(ours) - 1]
    rest = stored[last.position + 1 :]
    fresh = {_checkpoint_id(message) for message in written if message.is_checkpoint}
    # Our own checkpoint goes; others behind the last message of ours belong to the talk.
    rest = tuple(m for m in rest if not (m.is_checkpoint and _checkpoint_id(m) in fresh))
    originals = [stored_as(raw) for raw in record.head_before_raw]
    originals += [stored_as(message.raw) for message in messages]
    restored = (*stored[:start], *originals, *rest)
    if all(message.is_checkpoint or message.role == "system" for message in restored):
        # An empty history is a cleared one: what AstrBot had trimmed would be lost with it.
        raise EmptyAfterUndo(number=number)
    history = tuple(message.data for message in restored)
    return _Restored(dump_history(restored), history, _shown(stored), _shown(restored))


def _checkpoint_id(message: Stored) -> object:
    content = message.data.get("content")
    return content.get("id") if isinstance(content, dict) else None


def _shown(stored: Sequence[Stored]) -> int:
    return sum(1 for m in stored if not m.is_checkpoint and not is_gap_marker(m.data))
