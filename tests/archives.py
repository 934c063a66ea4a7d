"""Archives to test with: records, messages, connections that fail or wait on demand."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from astrbot_plugin_compact.summary.archive import Archive, NewCompaction, SpanMessage
from hypothesis import strategies as st

# Any text a Python string can be. Joined from a list, because `st.text` leaves half pairs out.
any_text = st.lists(
    st.characters(exclude_categories=()) | st.sampled_from("\ud83d\udfff\x00\u2028🗜"), max_size=40
).map("".join)

CID = "conversation-1"
UMO = "webchat:FriendMessage:webchat!astrbot!1"


def new_compaction(**fields: Any) -> NewCompaction:
    """A record; what a test does not care about is filled in."""
    defaults: dict[str, Any] = {
        "cid": CID,
        "umo": UMO,
        "trigger": "manual",
        "engine": "structured",
        "template": "work",
        "language": "zh",
        "provider_id": "provider",
        "model": "model",
        "focus": "",
        "messages_before": 12,
        "messages_after": 4,
        "tokens_before": 3000,
        "tokens_after": 400,
        "requests": 1,
        "input_tokens": 2900,
        "cached_tokens": None,
        "output_tokens": 350,
        "duration_seconds": 2.5,
        "summary_before": None,
        "summary": "## 目标\n无",
        "head_hash": "sha256:head",
        "structured": True,
    }
    return NewCompaction(**defaults | fields)


def message(text: str, role: str = "user", **fields: Any) -> SpanMessage:
    """A message as a host stores it."""
    return SpanMessage(json.dumps({"role": role, "content": text}), role, text, **fields)


def messages(*texts: str) -> tuple[SpanMessage, ...]:
    """User messages with these texts."""
    return tuple(message(text) for text in texts)


async def compact(archive: Archive, *texts: str, **fields: Any) -> int:
    """A done compaction of these texts."""
    id_ = await archive.begin(new_compaction(**fields), messages(*texts))
    assert await archive.settle(id_, "done")
    return id_


async def found_texts(archive: Archive, words: str, cid: str = CID, limit: int = 10) -> list[str]:
    """What a search finds, best first; the texts must be short enough for a snippet."""
    return [found.snippet for found in await archive.search(cid, words, limit)]


def rows(path: Path, query: str, *values: Any) -> list[tuple[Any, ...]]:
    """Look into the file past the archive."""
    conn = sqlite3.connect(path)
    try:
        return conn.execute(query, values).fetchall()
    finally:
        conn.close()


def change(path: Path, *statements: str) -> None:
    """Change the file past the archive."""
    conn = sqlite3.connect(path)
    try:
        for statement in statements:
            conn.execute(statement)
        conn.commit()
    finally:
        conn.close()


def everything(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """All rows of all tables, the index's own excepted."""
    tables = rows(path, "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
    names = [name for (name,) in tables if not name.startswith("message_index")]
    return {name: sorted(rows(path, f"SELECT * FROM {name}"), key=repr) for name in names}


class FailingConnection(sqlite3.Connection):
    """A connection whose n-th statement from `fail_at(n)` on finds the disk broken."""

    left: int | None = None
    fired = False

    @classmethod
    def fail_at(cls, statement: int) -> None:
        """Count down from here."""
        cls.left, cls.fired = statement, False

    @classmethod
    def heal(cls) -> bool:
        """No more failures; whether there was one."""
        cls.left = None
        return cls.fired

    def _count(self) -> None:
        cls = type(self)
        if cls.left is None:
            return
        cls.left -= 1
        if cls.left == 0:
            cls.left, cls.fired = None, True
            raise sqlite3.OperationalError("disk I/O error")

    def execute(self, *args: Any) -> sqlite3.Cursor:  # type: ignore[override]
        """As usual, unless it is its turn to fail."""
        self._count()
        return super().execute(*args)

    def executemany(self, sql: str, values: Iterable[Any], /) -> sqlite3.Cursor:
        """As usual, unless it is its turn to fail."""
        self._count()
        return super().executemany(sql, self._counted(values))

    def _counted(self, values: Iterable[Any]) -> Iterable[Any]:
        for value in values:
            self._count()
            yield value


class BrokenIndex(sqlite3.Connection):
    """A connection that can write everything but the search index while `is_broken`."""

    is_broken = False

    def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:  # type: ignore[override]
        """As usual, the index excepted."""
        if self.is_broken and sql.startswith("INSERT INTO message_index"):
            raise sqlite3.OperationalError("disk I/O error")
        return super().execute(sql, *args)


class GatedConnection(sqlite3.Connection):
    """A connection that stops before the statement that begins with `stop_before`."""

    stop_before: str | None = None
    reached = threading.Event()
    gate = threading.Event()

    @classmethod
    def shut(cls, statement: str) -> None:
        """Stop at the next such statement."""
        cls.reached.clear()
        cls.gate.clear()
        cls.stop_before = statement

    @classmethod
    def open_gate(cls) -> None:
        """Go on, and stop no more."""
        cls.stop_before = None
        cls.gate.set()

    def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:  # type: ignore[override]
        """As usual, but wait at the gate."""
        self._wait(sql)
        return super().execute(sql, *args)

    def executemany(self, sql: str, values: Iterable[Any], /) -> sqlite3.Cursor:
        """As usual, but wait at the gate."""
        self._wait(sql)
        return super().executemany(sql, values)

    def _wait(self, sql: str) -> None:
        if self.stop_before is not None and sql.startswith(self.stop_before):
            self.reached.set()
            self.gate.wait()


class SmallDisk(sqlite3.Connection):
    """A connection to a file that may not grow beyond 240 kB."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        super().execute("PRAGMA max_page_count = 60")


class ReadOnlyAfterOpening(sqlite3.Connection):
    """A connection whose file system turns read-only."""

    locked = False

    def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:  # type: ignore[override]
        """As usual, but nothing can be written once `locked`."""
        if self.locked and sql.startswith("BEGIN"):
            super().execute("PRAGMA query_only = ON")
        return super().execute(sql, *args)
