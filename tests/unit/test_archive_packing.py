"""Messages packed by a commit and spread afterwards: the same bytes at every moment."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from astrbot_plugin_compact.summary import archive_care, archive_packing, archive_store
from astrbot_plugin_compact.summary.archive import Archive, SpanMessage, Stage
from astrbot_plugin_compact.summary.archive_schema import migrate
from astrbot_plugin_compact.summary.archive_types import ArchivedMessage
from astrbot_plugin_compact.summary.archiving import to_archive
from astrbot_plugin_compact.summary.errors import ArchiveDamaged, ArchiveFailed
from astrbot_plugin_compact.summary.history import stored
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.archives import (
    CID,
    UMO,
    any_text,
    change,
    compact,
    found_texts,
    messages,
    new_compaction,
    rows,
)

REMINDER = {
    "type": "text",
    "text": "<system_reminder>User ID: 42, Nickname: Ann</system_reminder>",
}

# What a row of JSON may hold where a message should be.
odd_messages = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "tool", "system", "_checkpoint", 7, None])},
    optional={
        "content": st.recursive(
            st.none() | st.booleans() | st.floats() | any_text,
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(st.sampled_from(["type", "text", "x"]), inner, max_size=3)
            ),
            max_leaves=6,
        ),
        "tool_calls": st.lists(st.none() | any_text, max_size=2),
    },
)

spans = st.lists(
    st.builds(
        SpanMessage,
        raw=any_text,
        role=any_text,
        text=any_text,
        kept=st.booleans(),
        speaker=st.none() | any_text,
        time_seconds=st.none() | st.floats(allow_nan=False, allow_infinity=False),
    ),
    max_size=8,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "archive.db"


@pytest.fixture
def conn() -> Iterator[sqlite3.Connection]:
    """The tables without the thread, so that nothing happens but what is called."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as opened:
        migrate(opened)
        yield opened


@settings(
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(spans)
async def test_a_message_reads_the_same_before_and_after_it_is_spread(
    path: Path, span: list[SpanMessage]
) -> None:
    archive = await Archive.open(path)
    id_ = await archive.begin(new_compaction(), span)
    packed = await archive.messages(id_)
    assert [(m.raw, m.kept, m.time_seconds) for m in packed] == [
        (m.raw, m.kept, m.time_seconds) for m in span
    ]
    await archive.settle(id_, "done")
    await archive.tended()
    assert rows(path, "SELECT count(*) FROM packed") == [(0,)]
    spread = await archive.messages(id_)
    # Texts belong to raws: of a raw that was there before, the first text stands.
    assert [(m.position, m.raw, m.kept, m.speaker, m.time_seconds) for m in spread] == [
        (m.position, m.raw, m.kept, m.speaker, m.time_seconds) for m in packed
    ]
    await archive.close()


def test_a_batch_half_packed_and_half_spread_reads_in_order(
    conn: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_packing, "_CHUNK_MESSAGES", 3)
    texts = [f"第{n}句" for n in range(10)]
    id_ = archive_store.begin(conn, new_compaction(), messages(*texts), 1.0)
    archive_store.settle(conn, id_, Stage.DONE)
    left = []
    for _ in range(5):
        chunks = conn.execute("SELECT position, count FROM packed ORDER BY position").fetchall()
        left.append(chunks)
        assert [m.text for m in archive_packing.read(conn, id_)] == texts
        assert archive_packing.is_packed(conn, CID) is bool(chunks)
        assert archive_packing.spread(conn, CID) is bool(chunks)
    whole = [(0, 3), (3, 3), (6, 3), (9, 1)]
    assert left == [whole[n:] for n in range(5)]


def test_only_the_conversation_asked_for_is_spread(conn: sqlite3.Connection) -> None:
    for cid in ("other", CID):
        id_ = archive_store.begin(conn, new_compaction(cid=cid), messages("话"), 1.0)
        archive_store.settle(conn, id_, Stage.DONE)
    assert archive_packing.spread(conn, CID)
    assert not archive_packing.spread(conn, CID)
    assert archive_packing.is_packed(conn, "other")
    assert archive_packing.spread(conn, None)
    assert not archive_packing.spread(conn, None)


def test_packed_messages_too_old_to_keep_are_erased_too(conn: sqlite3.Connection) -> None:
    id_ = archive_store.begin(conn, new_compaction(), messages("话"), 1.0)
    archive_store.settle(conn, id_, Stage.DONE)
    archive_care.sweep(conn, None, 1000 * 86_400.0, 7)
    assert archive_packing.read(conn, id_) == ()
    assert not archive_packing.is_packed(conn, CID)


def test_packed_messages_can_be_recalled(conn: sqlite3.Connection) -> None:
    id_ = archive_store.begin(conn, new_compaction(), messages("话"), 1.0)
    assert not archive_store.is_recallable(conn, CID)
    archive_store.settle(conn, id_, Stage.DONE)
    assert archive_store.is_recallable(conn, CID)
    archive_packing.spread(conn, CID)
    assert archive_store.is_recallable(conn, CID)


async def test_chunks_are_bounded_in_size_and_a_large_message_stands_alone(path: Path) -> None:
    archive = await Archive.open(path)
    span = [SpanMessage("r" * size, "user", "") for size in (10, 900_000, 10, 150_000, 150_000)]
    await archive.begin(new_compaction(), span)
    assert rows(path, "SELECT position, count FROM packed ORDER BY position") == [
        *((0, 1), (1, 1), (2, 2), (4, 1))
    ]
    await archive.close()


async def test_what_is_not_settled_is_not_spread(path: Path) -> None:
    archive = await Archive.open(path)
    await archive.begin(new_compaction(), messages("在途的话"))
    await archive.tended()
    assert await archive.search(CID, "在途") == ()
    assert rows(path, "SELECT count(*) FROM packed") == [(1,)]
    assert rows(path, "SELECT count(*) FROM content") == [(0,)]
    await archive.close()


@pytest.mark.parametrize("stage", ["undoing", "undone"])
async def test_what_was_undone_is_spread_and_so_stored_once(path: Path, stage: str) -> None:
    archive = await Archive.open(path)
    for _ in range(3):
        id_ = await compact(archive, "同样的话")
        await archive.settle(id_, stage)
    await archive.tended()
    assert rows(path, "SELECT count(*) FROM packed") == [(0,)]
    assert rows(path, "SELECT count(*) FROM content") == [(1,)]
    await archive.close()


async def test_a_conversation_is_spread_before_it_is_searched(path: Path) -> None:
    archive = await Archive.open(path)
    for cid in ("other", CID):
        await archive.begin(new_compaction(cid=cid), messages("密码是芝麻"))
    await archive.close()
    # As after a crash between a commit and its housekeeping.
    change(path, "UPDATE compaction SET stage = 'done'", "UPDATE batch SET visible = 1")
    archive = await Archive.open(path)
    assert await found_texts(archive, "芝麻") == ["密码是芝麻"]
    assert len(await archive.recall("other", "芝麻")) == 1
    await archive.close()


async def test_trimmed_messages_are_packed_and_read_alike(path: Path) -> None:
    archive = await Archive.open(path)
    await archive.add_trimmed(UMO, CID, messages("一", "二"))
    for _ in range(2):
        (batch,) = await archive.pending_trimmed(CID)
        assert [m.text for m in batch.messages] == ["一", "二"]
        await archive.tended()
    await archive.close()


async def test_a_damaged_chunk_is_found_and_never_given_back(path: Path) -> None:
    archive = await Archive.open(path)
    id_ = await archive.begin(new_compaction(), messages("一"))
    change(path, "UPDATE packed SET body = replace(body, 'user', 'root')")
    with pytest.raises(ArchiveFailed, match="damaged"):
        await archive.messages(id_)
    assert any("not what was archived" in p for p in (await archive.verify()).problems)
    await archive.close()


def damage(path: Path, text: str) -> None:
    change(path, f"UPDATE packed SET body = replace(CAST(body AS TEXT), '{text}', 'rotten')")


async def test_a_damaged_chunk_is_in_nobody_elses_way(path: Path) -> None:
    archive = await Archive.open(path)
    await archive.begin(new_compaction(cid="hit"), messages("ripe apples"))
    damage(path, "ripe")
    await archive.settle(1, "done")
    await archive.settle(await archive.begin(new_compaction(), messages("密码是芝麻")), "done")
    await archive.tended()
    assert await found_texts(archive, "芝麻") == ["密码是芝麻"]
    assert await found_texts(archive, "apples", cid="hit") == []
    assert (await archive.stats("hit")).compactions == 1
    await archive.forget(CID)
    assert rows(path, "SELECT text FROM content") == []
    with pytest.raises(ArchiveDamaged):
        await archive.messages(1)
    assert not (await archive.verify()).is_ok
    await archive.forget("hit")
    assert (await archive.verify()).is_ok
    await archive.close()


async def test_a_damaged_trimmed_batch_does_not_stop_the_others(path: Path) -> None:
    archive = await Archive.open(path)
    await archive.add_trimmed(UMO, CID, messages("ripe apples"))
    await archive.tended()
    await archive.add_trimmed(UMO, CID, messages("梨"))
    change(path, "UPDATE content SET raw = replace(raw, 'ripe', 'rotten')")
    (batch,) = await archive.pending_trimmed(CID)
    assert [m.text for m in batch.messages] == ["梨"]
    await archive.close()


async def test_a_lost_chunk_is_found(path: Path) -> None:
    archive = await Archive.open(path)
    await archive.begin(new_compaction(), messages("一"))
    change(path, "DELETE FROM packed")
    assert any("has 0 of 1" in p for p in (await archive.verify()).problems)
    await archive.close()


@settings(
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.lists(odd_messages, max_size=6))
async def test_what_is_read_afterwards_is_what_would_have_been_archived(
    path: Path, history: list[dict[str, Any]]
) -> None:
    said = [{"role": "user", "content": [{"type": "text", "text": "hi"}, REMINDER]}, *history]
    given_messages = [to_archive(stored(message), {}) for message in said]
    unread = [SpanMessage(each.raw, each.role, None, each.kept) for each in given_messages]
    archive = await Archive.open(path)
    read = [
        await archive.messages(await archive.begin(new_compaction(), span))
        for span in (given_messages, unread)
    ]
    assert read[0] == read[1]
    assert read[1][0].speaker == "Ann(42)"
    await archive.close()


def test_what_cannot_be_read_is_kept_and_not_searched(conn: sqlite3.Connection) -> None:
    raw = "[" * 100_000
    id_ = archive_store.begin(conn, new_compaction(), [SpanMessage(raw, "user", None)], 1.0)
    archive_store.settle(conn, id_, Stage.DONE)
    for _ in range(2):
        (read,) = archive_packing.read(conn, id_)
        assert (read.raw, read.text, read.speaker) == (raw, "", None)
        archive_packing.spread(conn, CID)


def test_what_an_earlier_version_packed_is_read(conn: sqlite3.Connection) -> None:
    id_ = archive_store.begin(conn, new_compaction(), messages("x", "y"), 1.0)
    archive_store.settle(conn, id_, Stage.DONE)
    rows_ = [(2, 6, "user", True, "小明(1)", 5.0), (3, 0, "_checkpoint", False, None, None)]
    body = json.dumps(rows_).encode() + b"\n" + b"{}[1]" + "你好".encode()
    conn.execute("UPDATE packed SET body = ?, hash = ?", (body, hashlib.sha256(body).digest()))
    expected = (
        ArchivedMessage(0, "{}", "user", "你好", True, "小明(1)", 5.0),
        ArchivedMessage(1, "[1]", "_checkpoint", "", False, None, None),
    )
    assert archive_packing.read(conn, id_) == expected
    archive_packing.spread(conn, CID)
    assert archive_packing.read(conn, id_) == expected
