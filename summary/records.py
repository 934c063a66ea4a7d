"""What a compaction leaves on record, and what a record says of the history.

Invariant: the archived messages are exactly those between the replaced head and the cut, as they
were stored; with the head before them and the rest behind, they are the history of before.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import dropwhile

from .archive import Archive
from .archive_types import ArchivedMessage, Compaction, SpanMessage, Stage
from .archiving import Noted, to_archive
from .compose import Composed
from .errors import ArchiveDamaged, UnreadableHistory
from .heads import text_hash
from .history import Stored, message_text, parse_history, stored_as
from .host import Host, Row
from .live import end_hashes
from .plan import AfterSwap, CompactionPlan, Layout
from .threads import in_thread
from .units import Item


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
    return tuple(map(stored_as, json.loads(record_prefix_json)["messages"]))


def last_message(items: Sequence[Item], host: Host) -> str:
    """The hash the last dialog message is compared by, empty if there is none."""
    return text_hash(host.canonical(items[-1].data)) if items else ""


def prefix_json(composed: Composed, after: Layout, host: Host) -> str:
    """The written prefix and what `after_swap` tells of the history behind it, as JSON."""
    return json.dumps(
        {
            "messages": [message.raw for message in composed.prefix],
            "dialog_messages": len(after.dialog),
            "last_message": last_message(after.dialog, host),
            "recent": sorted(end_hashes([message.data for message in composed.messages])),
        }
    )


def raw_head(layout: Layout) -> tuple[str, ...]:
    """The head summary as stored, checkpoints included."""
    if layout.head is None:
        return ()
    return tuple(message.raw for item in layout.head.items for message in item.as_stored)


def span_messages(plan: CompactionPlan, kept: set[int], noted: Noted) -> tuple[SpanMessage, ...]:
    """Everything between head and cut as stored: checkpoints and markers too, for undo."""
    layout = plan.layout
    markers = {id(marker) for marker in layout.markers}
    span: list[SpanMessage] = []
    for item in layout.body[len(layout.head.items) if layout.head else 0 :]:
        if item.position >= plan.cut:
            break
        message = item.message
        if id(item) in markers:
            span.append(SpanMessage(message.raw, message.role, ""))
        elif noted:
            span.append(to_archive(message, noted, kept=id(item) in kept))
        else:
            # Reading it would keep the commit waiting; the archive does that afterwards.
            span.append(SpanMessage(message.raw, message.role, None, id(item) in kept))
        span += [SpanMessage(each.raw, each.role, None) for each in item.checkpoints]
    return tuple(span)


async def settle_unfinished(host: Host, archive: Archive, cid: str | None = None) -> int:
    """Settle what was left between archive and swap; how many records that were.

    `cid` names one conversation, None is all of them.

    A swap that happened shows: the history begins with the head summary it wrote. An undo that
    happened shows the other way round. A record is void only where nothing is lost by that: its
    messages stand in the history, or the owner has cleared it. An unreadable history tells
    nothing, nor do damaged messages; what they left stays for a later look.
    """
    settled = 0
    for record in await archive.unsettled(cid):
        row = await host.read(record.cid)
        try:
            messages = await archive.messages(record.id)
            stage = await in_thread(_stage_of, record, messages, row, host)
        except (UnreadableHistory, ArchiveDamaged):
            continue
        settled += await archive.settle(record.id, stage)
    return settled


def _stage_of(
    record: Compaction, messages: Sequence[ArchivedMessage], row: Row | None, host: Host
) -> Stage:
    gone = Stage.VOID if record.stage is Stage.ARCHIVED else Stage.UNDONE
    stored = _without_checkpoints(parse_history(row.text if row else None))
    talk = list(dropwhile(lambda message: message.role == "system", stored))
    if not talk:
        return gone
    raws = (*record.head_before_raw, *(message.raw for message in messages))
    originals = _without_checkpoints(map(stored_as, raws))
    same = map(partial(same_message, host=host), originals, talk)
    if originals and len(originals) <= len(talk) and all(same):
        return gone
    if text_hash(message_text(talk[0].data)) == record.head_hash:
        return Stage.DONE
    return Stage.DONE if originals and gone is Stage.VOID else gone


def _without_checkpoints(messages: Iterable[Stored]) -> list[Stored]:
    return [message for message in messages if not message.is_checkpoint]
