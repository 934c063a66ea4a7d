"""A compaction whose result another writer replaced with the history from before (spec 3.4).

Invariant: a stored summary is applied again only where the archived span stands again message
by message; what follows it is taken as it is. No model is asked.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import Enum

from .archive import Archive
from .archive_types import ArchivedMessage, Compaction, SpanMessage, Stage
from .archiving import to_archive
from .commit import uninterrupted
from .history import Message, Stored, dump_history, parse_history, stored_as
from .host import Host, Row
from .live import note_end
from .records import prefix_messages, same_message
from .threads import in_thread
from .units import bind_checkpoints

# So many different messages, and half of all, must stand there again to tell the old history
# from another one that begins with the same words.
_TELLING = 3
# The state of a conversation that names the compaction another writer has undone.
REPLACED = "replaced"


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
        found = await in_thread(_look, record, messages, row, host)
        if found.state is Healed.HEALED and not await uninterrupted(
            host.swap(cid, row.text, found.new_text)
        ):
            return Healed.INTACT  # another writer is at it; the next turn looks again
        if found.state is Healed.UNDONE:
            # What did not come back must not go with the record: it waits for the next summary.
            await note_end(archive, cid, found.history)
            if found.missing:
                await archive.add_trimmed(umo, cid, found.missing, "replaced")
            await archive.settle(record.id, Stage.UNDONE)
            await archive.put_state(cid, REPLACED, str(record.id))
    return found.state


@dataclass(frozen=True, slots=True)
class _Found:
    """What stands in the row: the text to write if it can be healed.

    Else `history` is what stands there and `missing` what it lacks.
    """

    state: Healed
    new_text: str = ""
    history: tuple[Message, ...] = ()
    missing: tuple[SpanMessage, ...] = ()


def _look(
    record: Compaction, messages: tuple[ArchivedMessage, ...], row: Row, host: Host
) -> _Found:
    stored = parse_history(row.text)
    items = bind_checkpoints(stored, lambda _: 0)
    first = next((n for n, item in enumerate(items) if item.role != "system"), len(items))
    body = items[first:]
    raws = (*record.head_before_raw, *(message.raw for message in messages))
    originals = [m for m in map(stored_as, raws) if not m.is_checkpoint]
    alike = 0
    for mine, item in zip(originals, body, strict=False):
        if not same_message(mine, item.message, host):
            break
        alike += 1
    if originals and alike == len(originals):
        rest = body[len(originals) :]
        tail = stored[rest[0].position :] if rest else ()
        written: tuple[Stored, ...] = prefix_messages(record.prefix_json)
        return _Found(Healed.HEALED, dump_history((*stored[: body[0].position], *written, *tail)))
    telling = {host.canonical(message.data) for message in originals[:alike]}
    if alike * 2 < len(originals) or len(telling) < _TELLING:
        return _Found(Healed.INTACT)
    present = Counter(host.canonical(message.data) for message in stored)
    missing: list[SpanMessage] = []
    for message in originals[alike:]:
        key = host.canonical(message.data)
        if present[key] > 0:
            present[key] -= 1
        else:
            missing.append(to_archive(message, {}))
    history = tuple(message.data for message in stored)
    return _Found(Healed.UNDONE, history=history, missing=tuple(missing))
