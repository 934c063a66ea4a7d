"""Messages of a batch: packed when they are archived, spread over the tables afterwards.

Spreading costs several times what reading the history does, and a commit is waited for; so the
commit writes a few chunks, and `archive_care.tend` spreads them when the session goes on.

Laws: a message stands in a chunk or in an entry, never in both or neither; both give back the
same bytes; a chunk or content that is not what was archived is never given back. All functions
run inside a transaction of the caller's.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any

from .archive_schema import CONTENT_BITS
from .archive_types import ArchivedMessage, SpanMessage, Stage
from .archiving import as_read
from .errors import ArchiveDamaged
from .hygiene import valid_text

# Spreading a chunk is one step of housekeeping: a few milliseconds.
_CHUNK_MESSAGES = 500
_CHUNK_CHARS = 1 << 18


def exact(text: str) -> bytes:
    """A text as bytes that give it back, lone surrogates and NUL included."""
    return text.encode("utf-8", "surrogatepass")


def from_exact(stored: bytes) -> str:
    """The text that `exact` was given."""
    return stored.decode("utf-8", "surrogatepass")


def store(conn: sqlite3.Connection, batch: int, messages: Sequence[SpanMessage]) -> None:
    """Write the messages of a batch, packed."""
    for start, end in _chunks(messages):
        body = _pack(messages[start:end])
        conn.execute(
            "INSERT INTO packed VALUES (?, ?, ?, ?, ?)",
            (batch, start, end - start, hashlib.sha256(body).digest(), body),
        )


def is_packed(conn: sqlite3.Connection, cid: str) -> bool:
    """Whether anything of a conversation is left to spread."""
    return _next_chunk(conn, cid) is not None


def spread(conn: sqlite3.Connection, cid: str | None) -> bool:
    """Spread one chunk, of this conversation or of any; False if there is none."""
    row = _next_chunk(conn, cid)
    if row is None:
        return False
    owner, batch, position, digest, body = row
    _spread(conn, owner, batch, position, _unpack(batch, digest, body))
    conn.execute("DELETE FROM packed WHERE batch_id = ? AND position = ?", (batch, position))
    return True


def _next_chunk(conn: sqlite3.Connection, cid: str | None) -> tuple[Any, ...] | None:
    # What is not settled yet stays packed: if it becomes void, it is gone without a trace.
    # So does a damaged chunk, which must not keep the ones behind it from their place.
    rows = conn.execute(
        """SELECT b.conversation_id, p.batch_id, p.position, p.hash, CAST(p.body AS BLOB)
           FROM packed AS p JOIN batch AS b ON b.id = p.batch_id
             JOIN conversation AS v ON v.id = b.conversation_id
             LEFT JOIN compaction AS c ON c.id = b.id
           WHERE c.stage IS NOT ? AND v.cid = coalesce(?, v.cid)
           ORDER BY p.batch_id, p.position""",
        (Stage.ARCHIVED, None if cid is None else exact(cid)),
    )
    return next((row for row in rows if hashlib.sha256(row[4]).digest() == row[3]), None)


def read(conn: sqlite3.Connection, batch: int) -> tuple[ArchivedMessage, ...]:
    """The messages of a batch, as stored and in their order.

    Raises:
        ArchiveDamaged: one is not what was archived; none is given, lest it be put back.
    """
    found = list(_read_spread(conn, batch))
    chunks = conn.execute(
        "SELECT position, hash, CAST(body AS BLOB) FROM packed WHERE batch_id = ?", (batch,)
    )
    for start, digest, body in chunks:
        for position, message in enumerate(_unpack(batch, digest, body), start):
            found.append(_archived(position, message))
    return tuple(sorted(found, key=lambda message: message.position))


def broken_chunks(conn: sqlite3.Connection) -> tuple[str, ...]:
    """Chunks that are not what was archived. There are some only until the next step."""
    rows = conn.execute("SELECT batch_id, position, hash, CAST(body AS BLOB) FROM packed")
    return tuple(
        f"messages from {position} of batch {batch} are not what was archived"
        for batch, position, digest, body in rows
        if hashlib.sha256(body).digest() != digest
    )


def _read_spread(conn: sqlite3.Connection, batch: int) -> Iterator[ArchivedMessage]:
    rows = conn.execute(
        """SELECT c.hash, CAST(c.raw AS BLOB), e.position, c.role, c.text, e.kept, e.speaker,
             e.time_seconds
           FROM entry AS e JOIN content AS c ON c.id = e.content_id
           WHERE e.batch_id = ? ORDER BY e.position""",
        (batch,),
    )
    for digest, raw, position, role, text, kept, speaker, time_seconds in rows:
        _expect_same(digest, raw, batch)
        yield ArchivedMessage(
            position, from_exact(raw), role, text, bool(kept), speaker, time_seconds
        )


def _archived(position: int, message: SpanMessage) -> ArchivedMessage:
    return ArchivedMessage(
        position,
        message.raw,
        message.role,
        message.text or "",
        message.kept,
        message.speaker,
        message.time_seconds,
    )


def _chunks(messages: Sequence[SpanMessage]) -> Iterator[tuple[int, int]]:
    """Where to part the messages: many small ones a chunk, a large one alone."""
    start = chars = 0
    for position, message in enumerate(messages):
        size = len(message.raw)
        if position > start and (
            chars + size > _CHUNK_CHARS or position - start >= _CHUNK_MESSAGES
        ):
            yield start, position
            start, chars = position, 0
        chars += size
    if messages:
        yield start, len(messages)


def _pack(messages: Sequence[SpanMessage]) -> bytes:
    """A line of JSON with what is not in the raws, column by column; then all raws.

    Columns of what few messages have hold only those, by their number.
    """
    raws = "".join([message.raw for message in messages])
    body = exact(raws)
    sizes = [len(message.raw) for message in messages]
    if len(body) != len(raws):
        sizes = [len(exact(message.raw)) for message in messages]
    roles = [message.role for message in messages]
    valid = {role: valid_text(role) for role in set(roles)}
    numbered = list(enumerate(messages))
    columns = {
        "bytes": sizes,
        "roles": [valid[role] for role in roles],
        "kept": [n for n, message in numbered if message.kept],
        "texts": {n: valid_text(m.text) for n, m in numbered if m.text is not None},
        "speakers": {n: valid_text(m.speaker) for n, m in numbered if m.speaker is not None},
        "times": {n: m.time_seconds for n, m in numbered if m.time_seconds is not None},
    }
    return json.dumps(columns).encode() + b"\n" + body


def _unpack(batch: int, digest: bytes, body: bytes) -> list[SpanMessage]:
    _expect_same(digest, body, batch)
    line = body.index(b"\n")
    columns = json.loads(body[:line])
    if isinstance(columns, list):
        return _unpack_rows(columns, body, line + 1)
    kept = frozenset(columns["kept"])
    messages: list[SpanMessage] = []
    at = line + 1
    for n, (size, role) in enumerate(zip(columns["bytes"], columns["roles"], strict=True)):
        raw = from_exact(body[at : at + size])
        at += size
        text, speaker = columns["texts"].get(str(n)), columns["speakers"].get(str(n))
        if text is None:
            text, named = as_read(raw)
            text, speaker = valid_text(text), speaker or (valid_text(named) if named else None)
        messages.append(
            SpanMessage(raw, role, text, n in kept, speaker, columns["times"].get(str(n)))
        )
    return messages


def _unpack_rows(rows: Sequence[Any], body: bytes, raw_at: int) -> list[SpanMessage]:
    """What an earlier version packed: a row a message, all raws, and all texts behind them."""
    text_at = raw_at + sum(raw_bytes for raw_bytes, *_ in rows)
    messages = []
    for raw_bytes, text_bytes, role, kept, speaker, time_seconds in rows:
        raw = from_exact(body[raw_at : raw_at + raw_bytes])
        text = body[text_at : text_at + text_bytes].decode()
        messages.append(SpanMessage(raw, role, text, kept, speaker, time_seconds))
        raw_at, text_at = raw_at + raw_bytes, text_at + text_bytes
    return messages


def _expect_same(digest: bytes, stored: bytes, batch: int) -> None:
    if hashlib.sha256(stored).digest() != digest:
        raise ArchiveDamaged(detail=f"a message of batch {batch} is damaged")


def _spread(
    conn: sqlite3.Connection,
    conversation: int,
    batch: int,
    position: int,
    messages: Sequence[SpanMessage],
) -> None:
    first = conversation << CONTENT_BITS
    (last,) = conn.execute(
        "SELECT coalesce(max(id), ?) FROM content WHERE id BETWEEN ? AND ?",
        (first, first, first + (1 << CONTENT_BITS) - 1),
    ).fetchone()
    raws = [exact(message.raw) for message in messages]
    digests = [hashlib.sha256(raw).digest() for raw in raws]
    # A content that is there already leaves its new id unused; an empty text needs no index.
    conn.executemany(
        """INSERT INTO content (id, conversation_id, hash, role, indexed, text, raw)
           VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (conversation_id, hash) DO NOTHING""",
        (
            (id_, conversation, digest, message.role, not message.text, message.text, raw)
            for id_, (message, digest, raw) in enumerate(
                zip(messages, digests, raws, strict=True), last + 1
            )
        ),
    )
    conn.executemany(
        """INSERT INTO entry (batch_id, position, content_id, kept, speaker, time_seconds)
           SELECT ?, ?, id, ?, ?, ? FROM content WHERE conversation_id = ? AND hash = ?""",
        (
            (batch, n, message.kept, message.speaker, message.time_seconds, conversation, digest)
            for n, (message, digest) in enumerate(zip(messages, digests, strict=True), position)
        ),
    )
