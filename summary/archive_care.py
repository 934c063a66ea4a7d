"""The archive's housekeeping: index, prune, erase, check.

Laws: a content goes when no entry holds it, and with it its words in the index; what is not
settled yet is never erased, because its messages may stand nowhere else; each step is a small
transaction, so that a commit never waits long for housekeeping and a crash loses no work.
"""

# ruff: noqa: S608 - statements are put together from constants alone, values are bound

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Collection

from .archive_index import words_of
from .archive_packing import broken_chunks, exact, from_exact, spread
from .archive_store import find_conversation
from .archive_types import Overview, Sample, Stage, Stats
from .history import CHECKPOINT, canonical_json

_SECONDS_A_DAY = 86_400

# One step: a few hundredths of a second, whatever the messages are like.
_STEP_CONTENTS = 200
_STEP_CHARS = 200_000
_MERGE_PAGES = 500
# 256 MB: SQLite checks that in some tenths of a second.
_WHOLE_PAGES = 65_536
_LARGE_TABLES = {"content", "packed", "message_index", "message_index_data"}

_IS_SETTLED = f"""id NOT IN (
    SELECT id FROM compaction WHERE stage IN ('{Stage.ARCHIVED}', '{Stage.UNDOING}'))"""


def tend(conn: sqlite3.Connection) -> bool:
    """One step of spreading, pruning or indexing; False when there is nothing left to do."""
    return spread(conn, None) or _prune(conn) or _index(conn)


def _prune(conn: sqlite3.Connection) -> bool:
    rows = conn.execute(
        """SELECT c.id, c.text, c.indexed, EXISTS (SELECT 1 FROM entry WHERE content_id = c.id)
           FROM doomed AS d JOIN content AS c ON c.id = d.content_id LIMIT ?""",
        (_STEP_CONTENTS,),
    ).fetchall()
    for content_id, text, is_indexed, is_held in rows:
        if is_held:
            conn.execute("DELETE FROM doomed WHERE content_id = ?", (content_id,))
            continue
        if is_indexed and text:
            # A contentless index must be told again what it was given.
            conn.execute(
                "INSERT INTO message_index (message_index, rowid, words) VALUES ('delete', ?, ?)",
                (content_id, _words(text)),
            )
        conn.execute("DELETE FROM content WHERE id = ?", (content_id,))
    return bool(rows)


def _index(conn: sqlite3.Connection) -> bool:
    rows = conn.execute(
        """SELECT c.id, c.text FROM content AS c WHERE c.indexed = 0 AND EXISTS (
               SELECT 1 FROM entry AS e JOIN batch AS b ON b.id = e.batch_id
               WHERE e.content_id = c.id AND b.visible)
           ORDER BY c.conversation_id DESC, c.id DESC LIMIT ?""",
        (_STEP_CONTENTS,),
    )
    taken = []
    left_chars = _STEP_CHARS
    for content_id, text in rows:
        taken.append((content_id, text))
        left_chars -= len(text)
        if left_chars <= 0:
            break
    for content_id, text in taken:
        conn.execute(
            "INSERT INTO message_index (rowid, words) VALUES (?, ?)", (content_id, _words(text))
        )
        conn.execute("UPDATE content SET indexed = 1 WHERE id = ?", (content_id,))
    return bool(taken)


def _words(text: str) -> str:
    return " ".join(words_of(text))


def forget(conn: sqlite3.Connection, cid: str) -> None:
    """Erase what is on record of a conversation; `tend` deletes the messages."""
    conversation = find_conversation(conn, cid)
    if conversation is not None:
        _forget(conn, conversation)


def _forget(conn: sqlite3.Connection, conversation: int) -> None:
    conn.execute(f"DELETE FROM batch WHERE conversation_id = ? AND {_IS_SETTLED}", (conversation,))
    for table in ("sample", "speaker", "state"):
        conn.execute(f"DELETE FROM {table} WHERE conversation_id = ?", (conversation,))


def sweep(
    conn: sqlite3.Connection, existing: Collection[str] | None, now: float, archive_days: int
) -> None:
    """Erase deleted conversations, and what is older than `archive_days` (0: keep for ever).

    Args:
        conn: the archive.
        existing: the host's conversations, None if they are not known.
        now: when `existing` was read; a conversation noted since then is not taken for deleted.
        archive_days: how long messages are kept.
    """
    if existing is not None:
        alive = {exact(cid) for cid in existing}
        rows = conn.execute(
            "SELECT id, cid FROM conversation WHERE touched_seconds < ?", (now,)
        ).fetchall()
        for conversation, cid in rows:
            if cid not in alive:
                _forget(conn, conversation)
    conn.execute(
        "DELETE FROM batch WHERE id IN (SELECT id FROM compaction WHERE stage = ?)", (Stage.VOID,)
    )
    if archive_days > 0:
        _erase_older(conn, now - archive_days * _SECONDS_A_DAY)


def _erase_older(conn: sqlite3.Connection, limit_seconds: float) -> None:
    # A conversation's last compaction keeps its record without the messages: the head summary
    # in the history must still be known as ours.
    last = f"""SELECT max(id) FROM compaction WHERE stage = '{Stage.DONE}'
               GROUP BY conversation_id"""
    conn.execute(
        f"""DELETE FROM batch WHERE created_seconds < ? AND {_IS_SETTLED}
            AND id NOT IN ({last})""",
        (limit_seconds,),
    )
    rows = conn.execute(
        f"""SELECT id, record FROM compaction WHERE erased = 0 AND id IN ({last}) AND id IN (
                SELECT id FROM batch WHERE created_seconds < ?)""",
        (limit_seconds,),
    ).fetchall()
    for compaction, record in rows:
        fields = json.loads(record) | {"head_before_raw": [], "summary_before": None}
        conn.execute(
            "UPDATE compaction SET erased = 1, record = ? WHERE id = ?",
            (canonical_json(fields), compaction),
        )
        for table in ("entry", "packed"):
            conn.execute(f"DELETE FROM {table} WHERE batch_id = ?", (compaction,))
    conn.execute("DELETE FROM speaker WHERE time_seconds < ?", (limit_seconds,))


def drop_empty(conn: sqlite3.Connection) -> None:
    """Delete conversations of which nothing is left."""
    conn.execute(
        """DELETE FROM conversation WHERE
               NOT EXISTS (SELECT 1 FROM batch WHERE conversation_id = conversation.id)
           AND NOT EXISTS (SELECT 1 FROM content WHERE conversation_id = conversation.id)
           AND NOT EXISTS (SELECT 1 FROM sample WHERE conversation_id = conversation.id)
           AND NOT EXISTS (SELECT 1 FROM speaker WHERE conversation_id = conversation.id)
           AND NOT EXISTS (SELECT 1 FROM state WHERE conversation_id = conversation.id)"""
    )


def merge(conn: sqlite3.Connection) -> bool:
    """One step of merging the index; until then it still holds the words of what was erased."""
    before = conn.total_changes
    conn.execute(
        "INSERT INTO message_index (message_index, rank) VALUES ('merge', ?)", (-_MERGE_PAGES,)
    )
    return conn.total_changes - before > 1


def shrink(conn: sqlite3.Connection) -> None:
    """Give free pages back to the disk and empty the log. Not inside a transaction."""
    conn.execute("PRAGMA incremental_vacuum").fetchall()
    conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def stats(conn: sqlite3.Connection, cid: str) -> Stats:
    """How much is on record of a conversation."""
    values = (find_conversation(conn, cid),)
    (compactions,) = conn.execute(
        f"""SELECT count(*) FROM compaction WHERE conversation_id = ?
            AND stage IN ('{Stage.DONE}', '{Stage.UNDOING}')""",
        values,
    ).fetchone()
    # Records of the host are no messages to people, but they take their room.
    found, raw_bytes = conn.execute(
        f"""SELECT count(nullif(role, '{CHECKPOINT}')), coalesce(sum(length(raw)), 0)
            FROM content WHERE conversation_id = ?""",
        values,
    ).fetchone()
    (trimmed,) = conn.execute(
        f"""SELECT count(DISTINCT c.id) FROM batch AS b
              JOIN entry AS e ON e.batch_id = b.id
              JOIN content AS c ON c.id = e.content_id
            WHERE b.conversation_id = ? AND b.covered_by IS NULL AND b.cleared = 0
              AND b.id NOT IN (SELECT id FROM compaction) AND c.role != '{CHECKPOINT}'""",
        values,
    ).fetchone()
    return Stats(compactions, found, trimmed, raw_bytes)


def conversations(conn: sqlite3.Connection) -> tuple[Overview, ...]:
    """Every conversation on record, the one last touched first."""
    rows = conn.execute(
        f"""SELECT v.id, v.cid, v.umo, count(c.id), max(b.created_seconds)
            FROM conversation AS v
              LEFT JOIN compaction AS c ON c.conversation_id = v.id
                AND c.stage IN ('{Stage.DONE}', '{Stage.UNDOING}')
              LEFT JOIN batch AS b ON b.id = c.id
            GROUP BY v.id ORDER BY v.touched_seconds DESC, v.id DESC"""
    ).fetchall()
    found = []
    for conversation, cid, umo, compactions, last_seconds in rows:
        row = conn.execute(
            """SELECT time_seconds, tokens, window_tokens FROM sample
               WHERE conversation_id = ? ORDER BY id DESC LIMIT 1""",
            (conversation,),
        ).fetchone()
        sample = None if row is None else Sample(*row)
        found.append(Overview(from_exact(cid), from_exact(umo), compactions, last_seconds, sample))
    return tuple(found)


def broken_pages(conn: sqlite3.Connection) -> tuple[str, ...]:
    """What SQLite itself finds wrong with the file; of a large one, without its messages.

    Those are compared with their hashes instead, as far as the time allows.
    """
    (pages,) = conn.execute("PRAGMA page_count").fetchone()
    checks = ["5"]
    if pages > _WHOLE_PAGES:
        tables = conn.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        checks = [name for (name,) in tables if name not in _LARGE_TABLES]
    rows = [row for check in checks for row in conn.execute(f"PRAGMA quick_check({check})")]
    return tuple(row[0] for row in rows if row[0] != "ok")


def broken_records(conn: sqlite3.Connection) -> tuple[str, ...]:
    """References to nothing, and compactions whose messages are not all there."""
    dangling = conn.execute("PRAGMA foreign_key_check").fetchmany(5)
    problems = [
        f"a row of {table} refers to nothing in {parent}" for table, _, parent, _ in dangling
    ]
    rows = conn.execute(
        """SELECT id, message_count, (SELECT count(*) FROM entry WHERE batch_id = compaction.id)
             + (SELECT coalesce(sum(count), 0) FROM packed WHERE batch_id = compaction.id) AS held
           FROM compaction
           WHERE stage <> ? AND erased = 0 AND held <> message_count LIMIT 5""",
        (Stage.VOID,),
    )
    problems += [f"compaction {id_} has {held} of {count} messages" for id_, count, held in rows]
    return (*problems, *broken_chunks(conn))


def count_contents(conn: sqlite3.Connection) -> int:
    """The number of messages on record."""
    (count,) = conn.execute("SELECT count(*) FROM content").fetchone()
    return int(count)


def broken_contents(
    conn: sqlite3.Connection, before: int | None
) -> tuple[int, int | None, tuple[str, ...]]:
    """Compare some messages with their hashes, from the newest back.

    Args:
        conn: the archive.
        before: the id to go on below, None to start.

    Returns:
        How many were compared, the id to go on below (None: that was all), and what was wrong.
    """
    rows = conn.execute(
        """SELECT id, hash, CAST(raw AS BLOB) FROM content WHERE ? IS NULL OR id < ?
           ORDER BY id DESC LIMIT ?""",
        (before, before, _STEP_CONTENTS),
    )
    checked = 0
    problems = []
    left_bytes = _STEP_CHARS * 10
    for content_id, digest, raw in rows:
        checked += 1
        if hashlib.sha256(raw).digest() != digest:
            problems.append(f"message {content_id} is not what was archived")
        left_bytes -= len(raw)
        before = content_id
        if left_bytes <= 0:
            break
    return checked, before if checked else None, tuple(problems)
