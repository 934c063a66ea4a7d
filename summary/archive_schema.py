"""The archive's file: its tables, its one transaction primitive, its errors.

Invariants: every write happens inside `atomic`; a migration and the note that it ran are one
transaction; a file of a newer version is refused and left alone. A released migration is never
edited: a change of the tables is a new function at the end of `MIGRATIONS`.

The tables, and what may be found in them:

conversation   one row a conversation; ids are never used twice
batch          messages archived together: by a compaction, or because the host trimmed them
compaction     the record of a batch that a compaction archived; `record` is canonical JSON
content        a message, stored once a conversation by the hash of its text. Its id is
               `conversation << 32 | n`: a conversation is one range of ids, so that no search
               can leave it
packed         messages of a batch that are not spread over content and entry yet
entry          the place of a content in a batch
known          hashes of the messages we wrote into histories
doomed         contents that lost an entry; `archive_care.tend` deletes those without any
message_index  the words of the contents (see `archive_index`); contentless
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from json import JSONDecodeError

from .errors import ArchiveFailed, ArchiveTooNew

Migration = Callable[[sqlite3.Connection], None]

CONTENT_BITS = 32


@contextlib.contextmanager
def atomic(conn: sqlite3.Connection, mode: str = "IMMEDIATE") -> Iterator[None]:
    """Everything inside is written, or nothing is.

    IMMEDIATE takes the write lock at the start, so that a transaction cannot fail for being
    second after it has read. DEFERRED gives several reads one view.
    """
    conn.execute(f"BEGIN {mode}")
    try:
        yield
        conn.execute("COMMIT")
    except BaseException:
        # SQLite has rolled back by itself after some errors; the first error is the one to tell.
        if conn.in_transaction:
            with contextlib.suppress(sqlite3.Error):
                conn.execute("ROLLBACK")
        raise


@contextlib.contextmanager
def archive_errors() -> Iterator[None]:
    """Turn what the file and the disk may raise into an error for people."""
    try:
        yield
    except (sqlite3.Error, OSError, JSONDecodeError) as exc:
        raise ArchiveFailed(detail=_one_line(exc)) from exc


def expect_known(conn: sqlite3.Connection, known: int | None = None) -> int:
    """The version of the file, if we know it.

    Raises:
        ArchiveTooNew: a newer version of the plugin has written it.
    """
    found = _version(conn)
    newest = len(MIGRATIONS) if known is None else known
    if found > newest:
        raise ArchiveTooNew(found=found, known=newest)
    return found


def migrate(conn: sqlite3.Connection, migrations: Sequence[Migration] | None = None) -> None:
    """Bring the file to the newest version, one transaction a step.

    Raises:
        ArchiveTooNew: a newer version of the plugin has written it.
    """
    steps = MIGRATIONS if migrations is None else migrations
    found = expect_known(conn, len(steps))
    for version, step in enumerate(steps[found:], start=found + 1):
        with atomic(conn):
            # Another process may have opened the file in this moment and been first.
            if _version(conn) >= version:
                continue
            step(conn)
            conn.execute("INSERT INTO migrations VALUES (?, ?)", (version, step.__name__))
            conn.execute(f"PRAGMA user_version = {version}")


def _version(conn: sqlite3.Connection) -> int:
    (version,) = conn.execute("PRAGMA user_version").fetchone()
    return int(version)


def _one_line(exc: Exception) -> str:
    return " ".join(str(exc).split())[:200] or type(exc).__name__


def _records(conn: sqlite3.Connection) -> None:
    # `text` stands before `raw`: a search then reads it without walking through a long raw.
    for statement in (
        "CREATE TABLE migrations (version INTEGER PRIMARY KEY, name TEXT NOT NULL)",
        """CREATE TABLE conversation (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            cid BLOB NOT NULL UNIQUE,
            umo BLOB NOT NULL,
            touched_seconds REAL NOT NULL)""",
        """CREATE TABLE batch (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            conversation_id INTEGER NOT NULL REFERENCES conversation (id),
            reason TEXT NOT NULL,
            created_seconds REAL NOT NULL,
            visible INTEGER NOT NULL,
            cleared INTEGER NOT NULL DEFAULT 0,
            covered_by INTEGER REFERENCES compaction (id) ON DELETE SET NULL)""",
        "CREATE INDEX batch_conversation ON batch (conversation_id, id)",
        "CREATE INDEX batch_covered ON batch (covered_by) WHERE covered_by IS NOT NULL",
        """CREATE TABLE compaction (
            id INTEGER PRIMARY KEY REFERENCES batch (id) ON DELETE CASCADE,
            conversation_id INTEGER NOT NULL REFERENCES conversation (id),
            number INTEGER,
            stage TEXT NOT NULL,
            message_count INTEGER NOT NULL,
            kept_count INTEGER NOT NULL,
            erased INTEGER NOT NULL DEFAULT 0,
            record TEXT NOT NULL,
            UNIQUE (conversation_id, number))""",
        "CREATE INDEX compaction_stage ON compaction (stage)",
        """CREATE TABLE known (
            hash TEXT NOT NULL,
            kind TEXT NOT NULL,
            compaction_id INTEGER NOT NULL REFERENCES compaction (id) ON DELETE CASCADE,
            PRIMARY KEY (hash, kind, compaction_id)) WITHOUT ROWID""",
        "CREATE INDEX known_compaction ON known (compaction_id)",
        """CREATE TABLE content (
            id INTEGER PRIMARY KEY,
            conversation_id INTEGER NOT NULL REFERENCES conversation (id),
            hash BLOB NOT NULL,
            role TEXT NOT NULL,
            indexed INTEGER NOT NULL,
            text TEXT NOT NULL,
            raw BLOB NOT NULL,
            UNIQUE (conversation_id, hash))""",
        """CREATE TABLE entry (
            batch_id INTEGER NOT NULL REFERENCES batch (id) ON DELETE CASCADE,
            position INTEGER NOT NULL,
            content_id INTEGER NOT NULL REFERENCES content (id),
            kept INTEGER NOT NULL,
            speaker TEXT,
            time_seconds REAL,
            PRIMARY KEY (batch_id, position)) WITHOUT ROWID""",
        "CREATE INDEX entry_content ON entry (content_id, batch_id)",
        """CREATE TABLE packed (
            batch_id INTEGER NOT NULL REFERENCES batch (id) ON DELETE CASCADE,
            position INTEGER NOT NULL,
            count INTEGER NOT NULL,
            hash BLOB NOT NULL,
            body BLOB NOT NULL,
            PRIMARY KEY (batch_id, position))""",
        """CREATE TABLE doomed (
            content_id INTEGER PRIMARY KEY REFERENCES content (id) ON DELETE CASCADE)""",
        """CREATE TRIGGER entry_removed AFTER DELETE ON entry BEGIN
            INSERT OR IGNORE INTO doomed VALUES (old.content_id); END""",
    ):
        conn.execute(statement)


def _search(conn: sqlite3.Connection) -> None:
    # `ascii` folds nothing and takes every character above 127 as part of a word: the words are
    # exactly those `archive_index` makes. No places, no sizes, no texts: those are in `content`.
    for statement in (
        """CREATE VIRTUAL TABLE message_index USING fts5 (
            words, content = '', detail = none, columnsize = 0,
            tokenize = "ascii tokenchars '_'")""",
        "CREATE INDEX content_unindexed ON content (conversation_id, id) WHERE indexed = 0",
        "CREATE TABLE fact (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    ):
        conn.execute(statement)


def _turns(conn: sqlite3.Connection) -> None:
    for statement in (
        """CREATE TABLE sample (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            conversation_id INTEGER NOT NULL REFERENCES conversation (id) ON DELETE CASCADE,
            time_seconds REAL NOT NULL,
            tokens INTEGER NOT NULL,
            window_tokens INTEGER)""",
        "CREATE INDEX sample_conversation ON sample (conversation_id, id)",
        """CREATE TABLE speaker (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            conversation_id INTEGER NOT NULL REFERENCES conversation (id) ON DELETE CASCADE,
            message_hash TEXT NOT NULL,
            user_id TEXT NOT NULL,
            nickname TEXT NOT NULL,
            time_seconds REAL NOT NULL)""",
        "CREATE INDEX speaker_conversation ON speaker (conversation_id, id)",
        "CREATE INDEX speaker_message ON speaker (conversation_id, message_hash)",
        """CREATE TABLE state (
            conversation_id INTEGER NOT NULL REFERENCES conversation (id) ON DELETE CASCADE,
            key TEXT NOT NULL,
            value BLOB NOT NULL,
            PRIMARY KEY (conversation_id, key)) WITHOUT ROWID""",
    ):
        conn.execute(statement)


MIGRATIONS: tuple[Migration, ...] = (_records, _search, _turns)
