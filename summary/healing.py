"""A compaction whose result another writer replaced with the history from before (spec 3.4).

Invariant: a stored summary is applied again only where the archived span stands again message
by message; what follows it is taken as it is. No model is asked.
"""

from __future__ import annotations

import asyncio
from enum import Enum

from .archive import Archive
from .archive_types import ArchivedMessage, Compaction, Stage
from .commit import uninterrupted
from .history import Stored, dump_history, parse_history, stored_as
from .host import Host, Row
from .records import prefix_messages, same_message
from .units import bind_checkpoints

# So many of the first messages must stand there to tell the old history from a trimmed one that
# happens to begin with the same words.
_TELLING = 3


class Healed(Enum):
    """What was found and done."""

    INTACT = "intact"  # nothing of the old history stands there
    HEALED = "healed"
    UNDONE = "undone"  # the old history came back changed: the compaction counts as undone


async def heal(host: Host, archive: Archive, umo: str, cid: str) -> Healed:
    """Apply the last compaction again if the history from before it was put back."""
    record = await archive.latest(cid)
    if record is None:
        return Healed.INTACT
    messages = await archive.messages(record.id)
    async with host.lock(umo):
        row = await host.read(cid)
        if row is None:
            return Healed.INTACT
        state, new_text = await asyncio.to_thread(_look, record, messages, row, host)
        if state is Healed.HEALED and not await uninterrupted(host.swap(cid, row.text, new_text)):
            return Healed.INTACT  # another writer is at it; the next turn looks again
        if state is Healed.UNDONE:
            await archive.settle(record.id, Stage.UNDONE)
    return state


def _look(
    record: Compaction, messages: tuple[ArchivedMessage, ...], row: Row, host: Host
) -> tuple[Healed, str]:
    stored = parse_history(row.text)
    items = bind_checkpoints(stored, lambda _: 0)
    first = next((n for n, item in enumerate(items) if item.role != "system"), len(items))
    body = items[first:]
    raws = (*record.head_before_raw, *(message.raw for message in messages))
    originals = [m for m in map(stored_as, raws) if not m.is_checkpoint]
    if not originals:
        return Healed.INTACT, ""
    alike = 0
    for mine, item in zip(originals, body, strict=False):
        if not same_message(mine, item.message, host):
            break
        alike += 1
    if alike < min(_TELLING, len(originals)):
        return Healed.INTACT, ""
    if alike < len(originals):
        return Healed.UNDONE, ""
    rest = body[len(originals) :]
    tail = stored[rest[0].position :] if rest else ()
    written: tuple[Stored, ...] = prefix_messages(record.prefix_json)
    return Healed.HEALED, dump_history((*stored[: body[0].position], *written, *tail))
