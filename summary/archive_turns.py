"""What is noted turn by turn: usage samples, speakers, small state of a conversation.

Invariant: each of the three stays bounded a conversation, however long it lasts.
All functions run inside a transaction of the caller's.
"""

# ruff: noqa: S608 - statements are put together from constants alone, values are bound

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from itertools import pairwise

from .archive_packing import exact, from_exact
from .archive_store import touch_conversation
from .archive_types import Sample, Speaker
from .hygiene import valid_text

_SAMPLES = 2000
_SPEAKERS = 20_000

_OF_CID = "conversation_id = (SELECT id FROM conversation WHERE cid = ?)"


def add_sample(conn: sqlite3.Connection, cid: str, umo: str, sample: Sample, now: float) -> None:
    """Note the usage of a turn; the last 2,000 of a conversation are kept."""
    conversation = touch_conversation(conn, cid, umo, now)
    conn.execute(
        "INSERT INTO sample (conversation_id, time_seconds, tokens, window_tokens)"
        " VALUES (?, ?, ?, ?)",
        (conversation, sample.time_seconds, sample.tokens, sample.window_tokens),
    )
    _keep_last(conn, "sample", conversation, _SAMPLES)


def samples(conn: sqlite3.Connection, cid: str) -> tuple[Sample, ...]:
    """The samples of a conversation, oldest first."""
    rows = conn.execute(
        f"SELECT time_seconds, tokens, window_tokens FROM sample WHERE {_OF_CID} ORDER BY id",
        (exact(cid),),
    )
    return tuple(Sample(*row) for row in rows)


def growth(conn: sqlite3.Connection, cid: str, turns: int) -> int | None:
    """The largest growth in tokens from one turn to the next over the last `turns` turns.

    None with fewer than two samples. What shrank, by a compaction for one, did not grow: 0.
    """
    rows = conn.execute(
        f"SELECT tokens FROM sample WHERE {_OF_CID} ORDER BY id DESC LIMIT ?",
        (exact(cid), turns + 1),
    )
    tokens: list[int] = [row[0] for row in rows]
    if len(tokens) < 2:
        return None
    return max(0, *(later - earlier for later, earlier in pairwise(tokens)))


def note_speaker(
    conn: sqlite3.Connection, cid: str, message_hash: str, speaker: Speaker, now: float
) -> None:
    """Note who said the user message of this hash."""
    conversation = touch_conversation(conn, cid, None, now)
    conn.execute(
        "INSERT INTO speaker (conversation_id, message_hash, user_id, nickname, time_seconds)"
        " VALUES (?, ?, ?, ?, ?)",
        (
            conversation,
            message_hash,
            valid_text(speaker.user_id),
            valid_text(speaker.nickname),
            speaker.time_seconds,
        ),
    )
    _keep_last(conn, "speaker", conversation, _SPEAKERS)


def speakers(
    conn: sqlite3.Connection, cid: str, hashes: Iterable[str] | None
) -> dict[str, tuple[Speaker, ...]]:
    """Who said the messages of these hashes (None: of all), each time it was said, in order.

    Two people may say the same words: the n-th message of a hash belongs to the n-th speaker.
    """
    wanted = "" if hashes is None else "AND message_hash IN (SELECT value FROM json_each(?))"
    values = () if hashes is None else (json.dumps(list(hashes)),)
    rows = conn.execute(
        f"""SELECT message_hash, user_id, nickname, time_seconds FROM speaker
            WHERE {_OF_CID} {wanted} ORDER BY id""",
        (exact(cid), *values),
    )
    found: dict[str, list[Speaker]] = {}
    for message_hash, *fields in rows:
        found.setdefault(message_hash, []).append(Speaker(*fields))
    return {message_hash: tuple(said) for message_hash, said in found.items()}


def get_state(conn: sqlite3.Connection, cid: str, key: str) -> str | None:
    """A value put there by `put_state`."""
    row = conn.execute(
        f"SELECT value FROM state WHERE {_OF_CID} AND key = ?", (exact(cid), key)
    ).fetchone()
    return None if row is None else from_exact(row[0])


def put_state(conn: sqlite3.Connection, cid: str, key: str, value: str | None, now: float) -> None:
    """Remember a value for a conversation; None forgets it."""
    conversation = touch_conversation(conn, cid, None, now)
    if value is None:
        conn.execute("DELETE FROM state WHERE conversation_id = ? AND key = ?", (conversation, key))
    else:
        conn.execute(
            "INSERT OR REPLACE INTO state VALUES (?, ?, ?)", (conversation, key, exact(value))
        )


def _keep_last(conn: sqlite3.Connection, table: str, conversation: int, count: int) -> None:
    conn.execute(
        f"""DELETE FROM {table} WHERE conversation_id = :conversation AND id <= (
            SELECT id FROM {table} WHERE conversation_id = :conversation
            ORDER BY id DESC LIMIT 1 OFFSET :count)""",
        {"conversation": conversation, "count": count},
    )
