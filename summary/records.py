"""What a compaction leaves on record, and what a record says of the history.

Invariant: the archived messages are exactly those between the replaced head and the cut, as they
were stored; with the head before them and the rest behind, they are the history of before.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from functools import partial
from itertools import dropwhile

from .archive import Archive
from .archive_types import Compaction, SpanMessage, Stage
from .compose import Composed
from .errors import UnreadableHistory
from .heads import text_hash
from .history import Stored, message_text, parse_history, stored_as
from .host import Host, Row
from .plan import AfterSwap, CompactionPlan, Layout
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


def prefix_json(
    composed: Composed, retained: Sequence[Item], plan: CompactionPlan, host: Host
) -> str:
    """The written prefix and what `after_swap` tells of the dialog behind it, as JSON."""
    dialog = [*retained, *plan.tail]
    return json.dumps(
        {
            "messages": [message.raw for message in composed.prefix],
            "dialog_messages": len(dialog),
            "last_message": last_message(dialog, host),
        }
    )


def raw_head(layout: Layout) -> tuple[str, ...]:
    """The head summary as stored, checkpoints included."""
    if layout.head is None:
        return ()
    return tuple(message.raw for item in layout.head.items for message in item.as_stored)


def span_messages(plan: CompactionPlan, kept: set[int]) -> tuple[SpanMessage, ...]:
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
    happened shows the other way round. A record is void only where nothing is lost by that: its
    messages stand in the history, or the owner has cleared it.
    """
    unfinished = await archive.unsettled(cid)
    for record in unfinished:
        row = await host.read(record.cid)
        messages = await archive.messages(record.id)
        stage = await asyncio.to_thread(_stage_of, record, [m.raw for m in messages], row, host)
        await archive.settle(record.id, stage)
    return len(unfinished)


def _stage_of(record: Compaction, raws: Sequence[str], row: Row | None, host: Host) -> Stage:
    gone = Stage.VOID if record.stage is Stage.ARCHIVED else Stage.UNDONE
    try:
        stored = parse_history(row.text) if row is not None else ()
    except UnreadableHistory:
        stored = ()
    messages = (message for message in stored if not message.is_checkpoint)
    talk = list(dropwhile(lambda message: message.role == "system", messages))
    if not talk:
        return gone
    archived = map(stored_as, (*record.head_before_raw, *raws))
    originals = [message for message in archived if not message.is_checkpoint]
    same = map(partial(same_message, host=host), originals, talk)
    if originals and len(originals) <= len(talk) and all(same):
        return gone
    if text_hash(message_text(talk[0].data)) == record.head_hash:
        return Stage.DONE
    return Stage.DONE if originals and gone is Stage.VOID else gone
