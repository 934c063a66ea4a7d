"""Compactions and trimmed batches: written, settled, read back.

Laws: a record and its messages appear together or not at all; only `done` ones can be seen; a
message is stored once a conversation however many records hold it; what comes out is what went
in, byte for byte. All functions run inside a transaction of the caller's.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any

from . import archive_packing
from .archive_packing import exact
from .archive_types import (
    Compaction,
    Known,
    NewCompaction,
    SpanMessage,
    Stage,
    TrimmedBatch,
)
from .errors import ArchiveDamaged, ArchiveFailed
from .heads import KnownHead
from .history import canonical_json
from .hygiene import valid_text

_NEXT_STAGES = {
    Stage.ARCHIVED: {Stage.DONE, Stage.VOID},
    Stage.DONE: {Stage.UNDOING, Stage.UNDONE},
    Stage.UNDOING: {Stage.DONE, Stage.UNDONE},
    Stage.UNDONE: set(),
    Stage.VOID: set(),
}
_HEAD, _MARKER = "head", "marker"

_COMPACTIONS = """
    SELECT c.id, c.number, c.stage, b.created_seconds, c.message_count, c.kept_count,
           b.cleared, c.erased, c.record
    FROM compaction AS c JOIN batch AS b ON b.id = c.id JOIN conversation AS v
      ON v.id = c.conversation_id """


def find_conversation(conn: sqlite3.Connection, cid: str) -> int | None:
    """The conversation's id in the archive, None if nothing of it is on record."""
    row = conn.execute("SELECT id FROM conversation WHERE cid = ?", (exact(cid),)).fetchone()
    return None if row is None else int(row[0])


def touch_conversation(conn: sqlite3.Connection, cid: str, umo: str | None, now: float) -> int:
    """The conversation's id, of a new row if need be; notes that it lives."""
    (found,) = conn.execute(
        """INSERT INTO conversation (cid, umo, touched_seconds) VALUES (?, ?, ?)
           ON CONFLICT (cid) DO UPDATE SET touched_seconds = excluded.touched_seconds,
               umo = CASE excluded.umo WHEN x'' THEN umo ELSE excluded.umo END
           RETURNING id""",
        (exact(cid), exact(umo or ""), now),
    ).fetchone()
    return int(found)


def begin(
    conn: sqlite3.Connection, new: NewCompaction, messages: Sequence[SpanMessage], now: float
) -> int:
    """Archive a span and its record in stage `archived`; returns the record's id."""
    conversation = touch_conversation(conn, new.cid, new.umo, now)
    batch = _new_batch(conn, conversation, "compaction", now, visible=False)
    (number,) = conn.execute(
        "SELECT coalesce(max(number), 0) + 1 FROM compaction WHERE conversation_id = ?",
        (conversation,),
    ).fetchone()
    kept = sum(message.kept for message in messages)
    record = canonical_json(dataclasses.asdict(new))
    conn.execute(
        "INSERT INTO compaction VALUES (?, ?, ?, ?, ?, ?, 0, ?)",
        (batch, conversation, number, Stage.ARCHIVED, len(messages), kept, record),
    )
    hashes = [(new.head_hash, _HEAD, batch), *((h, _MARKER, batch) for h in new.marker_hashes)]
    conn.executemany("INSERT OR IGNORE INTO known VALUES (?, ?, ?)", hashes)
    archive_packing.store(conn, batch, messages)
    return batch


def add_trimmed(
    conn: sqlite3.Connection,
    umo: str,
    cid: str,
    messages: Sequence[SpanMessage],
    reason: str,
    now: float,
) -> int:
    """Archive messages that the host dropped; returns the batch's id."""
    conversation = touch_conversation(conn, cid, umo, now)
    batch = _new_batch(conn, conversation, reason, now, visible=True)
    archive_packing.store(conn, batch, messages)
    return batch


def settle(conn: sqlite3.Connection, compaction_id: int, stage: Stage) -> bool:
    """Bring a record to its next stage; False if it is gone. Twice is the same as once.

    Raises:
        ValueError: this stage cannot follow the one the record has.
    """
    row = conn.execute(
        "SELECT conversation_id, stage, record FROM compaction WHERE id = ?", (compaction_id,)
    ).fetchone()
    if row is None:
        return False
    conversation, current, record = row[0], Stage(row[1]), row[2]
    if stage is current:
        return True
    if stage not in _NEXT_STAGES[current]:
        raise ValueError(f"a compaction goes from {current} not to {stage}")
    conn.execute("UPDATE compaction SET stage = ? WHERE id = ?", (stage, compaction_id))
    visible = stage in (Stage.DONE, Stage.UNDOING)
    conn.execute("UPDATE batch SET visible = ? WHERE id = ?", (visible, compaction_id))
    if stage is Stage.DONE:
        covers = json.dumps(json.loads(record)["covers_trimmed"])
        conn.execute(
            """UPDATE batch SET covered_by = ? WHERE conversation_id = ?
               AND id IN (SELECT value FROM json_each(?))
               AND id NOT IN (SELECT id FROM compaction)""",
            (compaction_id, conversation, covers),
        )
    elif stage is Stage.UNDONE:
        conn.execute("UPDATE batch SET covered_by = NULL WHERE covered_by = ?", (compaction_id,))
    elif stage is Stage.VOID:
        conn.execute("UPDATE compaction SET number = NULL WHERE id = ?", (compaction_id,))
        conn.execute("DELETE FROM known WHERE compaction_id = ?", (compaction_id,))
        conn.execute("DELETE FROM packed WHERE batch_id = ?", (compaction_id,))
    return True


def unsettled(conn: sqlite3.Connection, cid: str | None) -> tuple[Compaction, ...]:
    """Records that a crash or a cancellation left between two stages, oldest first."""
    where = "WHERE c.stage IN (?, ?)"
    if cid is None:
        return _compactions(conn, f"{where} ORDER BY c.id", Stage.ARCHIVED, Stage.UNDOING)
    where += " AND v.cid = ? ORDER BY c.id"
    return _compactions(conn, where, Stage.ARCHIVED, Stage.UNDOING, exact(cid))


def knows(conn: sqlite3.Connection, hashes: Iterable[str]) -> Known:
    """Which of these hashes are of messages we wrote; of any conversation (spec 2.7).

    A head stays known after an undo: a copied thread may still begin with it.
    """
    heads: dict[str, KnownHead] = {}
    markers: set[str] = set()
    rows = conn.execute(
        """SELECT k.hash, k.kind, c.record FROM known AS k JOIN compaction AS c
           ON c.id = k.compaction_id WHERE k.hash IN (SELECT value FROM json_each(?))
           ORDER BY c.id""",
        (json.dumps(list(hashes)),),
    )
    for found, kind, record in rows:
        if kind == _MARKER:
            markers.add(found)
        else:
            fields = json.loads(record)
            heads[found] = KnownHead(fields["summary"], fields["structured"])
    return Known(heads, frozenset(markers))


def latest(conn: sqlite3.Connection, cid: str) -> Compaction | None:
    """The compaction an undo would take back; None after a reset."""
    found = _done(conn, cid, "AND b.cleared = 0 ORDER BY c.id DESC LIMIT 1")
    return found[0] if found else None


def get(conn: sqlite3.Connection, cid: str, number: int) -> Compaction | None:
    """The compaction that people know by this number."""
    found = _done(conn, cid, "AND c.number = ?", _within_sql(number))
    return found[0] if found else None


def by_id(conn: sqlite3.Connection, compaction_id: int) -> Compaction | None:
    """A record in whatever stage."""
    found = _compactions(conn, "WHERE c.id = ?", compaction_id)
    return found[0] if found else None


def number(conn: sqlite3.Connection, compaction_id: int) -> int:
    """The number people know a record by."""
    row = conn.execute("SELECT number FROM compaction WHERE id = ?", (compaction_id,)).fetchone()
    if row is None or row[0] is None:
        raise ArchiveFailed(detail=f"there is no compaction {compaction_id}")
    return int(row[0])


def newest(conn: sqlite3.Connection, cid: str, limit: int) -> tuple[Compaction, ...]:
    """The done compactions, newest first."""
    return _done(conn, cid, "ORDER BY c.id DESC LIMIT ?", _within_sql(limit))


def pending_trimmed(conn: sqlite3.Connection, cid: str) -> tuple[TrimmedBatch, ...]:
    """What the host dropped since the last reset and no compaction covers yet, oldest first.

    Batches with a damaged message are left out; `archive_care` tells of them.
    """
    rows = conn.execute(
        """SELECT b.id, b.reason, b.created_seconds FROM batch AS b JOIN conversation AS v
           ON v.id = b.conversation_id WHERE v.cid = ? AND b.covered_by IS NULL
           AND b.cleared = 0 AND b.id NOT IN (SELECT id FROM compaction) ORDER BY b.id""",
        (exact(cid),),
    ).fetchall()
    batches: list[TrimmedBatch] = []
    for id_, reason, created in rows:
        # What is damaged cannot be summarised any more, and must not stop what can be.
        with contextlib.suppress(ArchiveDamaged):
            batches.append(TrimmedBatch(id_, reason, created, archive_packing.read(conn, id_)))
    return tuple(batches)


def mark_cleared(conn: sqlite3.Connection, cid: str) -> None:
    """The conversation was reset: nothing from before is undone, summarised or recalled again."""
    conn.execute(
        """UPDATE batch SET cleared = 1 WHERE cleared = 0
           AND conversation_id = (SELECT id FROM conversation WHERE cid = ?)""",
        (exact(cid),),
    )


def is_recallable(conn: sqlite3.Connection, cid: str) -> bool:
    """Whether recall could find anything in this conversation."""
    row = conn.execute(
        """SELECT 1 FROM batch AS b JOIN conversation AS v ON v.id = b.conversation_id
           WHERE v.cid = ? AND b.visible AND b.cleared = 0
           AND (EXISTS (SELECT 1 FROM entry AS e WHERE e.batch_id = b.id)
             OR EXISTS (SELECT 1 FROM packed AS p WHERE p.batch_id = b.id)) LIMIT 1""",
        (exact(cid),),
    ).fetchone()
    return row is not None


def _within_sql(value: int) -> int:
    """A number that somebody typed, kept in the range that SQLite takes."""
    return max(0, min(value, 2**63 - 1))


def _done(conn: sqlite3.Connection, cid: str, rest: str, *values: Any) -> tuple[Compaction, ...]:
    where = f"WHERE v.cid = ? AND c.stage IN (?, ?) {rest}"
    return _compactions(conn, where, exact(cid), Stage.DONE, Stage.UNDOING, *values)


def _compactions(conn: sqlite3.Connection, where: str, *values: Any) -> tuple[Compaction, ...]:
    return tuple(_compaction(*row) for row in conn.execute(_COMPACTIONS + where, values))


def _compaction(
    id_: int,
    number: int | None,
    stage: str,
    created_seconds: float,
    message_count: int,
    kept_count: int,
    cleared: int,
    erased: int,
    record: str,
) -> Compaction:
    fields = json.loads(record)
    for name in ("marker_hashes", "head_before_raw", "covers_trimmed"):
        fields[name] = tuple(fields[name])
    return Compaction(
        **fields,
        id=id_,
        number=number,
        stage=Stage(stage),
        created_seconds=created_seconds,
        message_count=message_count,
        kept_count=kept_count,
        cleared=bool(cleared),
        erased=bool(erased),
    )


def _new_batch(
    conn: sqlite3.Connection, conversation: int, reason: str, now: float, *, visible: bool
) -> int:
    (batch,) = conn.execute(
        """INSERT INTO batch (conversation_id, reason, created_seconds, visible)
           VALUES (?, ?, ?, ?) RETURNING id""",
        (conversation, valid_text(reason), now, visible),
    ).fetchone()
    return int(batch)
