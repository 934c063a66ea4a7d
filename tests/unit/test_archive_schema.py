"""Migrations: from every released version, one transaction a step, and the transaction itself."""

# ruff: noqa: ASYNC240 - nothing else runs in these loops that could be held up

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from astrbot_plugin_compact.summary.archive import Archive, Speaker
from astrbot_plugin_compact.summary.archive_schema import (
    MIGRATIONS,
    archive_errors,
    atomic,
    migrate,
)
from astrbot_plugin_compact.summary.errors import ArchiveFailed, ArchiveTooNew

from tests.archives import CID, UMO, compact, everything, found_texts, rows

RELEASED = sorted(Path(__file__).parent.parent.glob("data/archive_*.sql"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "archive.db"


def connect(path: Path) -> closing[sqlite3.Connection]:
    return closing(sqlite3.connect(path, isolation_level=None))


def schema(path: Path) -> set[tuple[str, str, str]]:
    found = rows(path, "SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL")
    return {(kind, name, " ".join(sql.split())) for kind, name, sql in found}


async def fresh_schema(folder: Path) -> set[tuple[str, str, str]]:
    archive = await Archive.open(folder / "fresh.db")
    await archive.close()
    return schema(folder / "fresh.db")


def test_the_newest_version_is_among_the_released_ones() -> None:
    assert [p.stem for p in RELEASED][-1] == f"archive_{len(MIGRATIONS)}"


@pytest.mark.parametrize("released", RELEASED, ids=lambda p: p.stem)
async def test_an_archive_of_any_released_version_is_read_and_written(
    path: Path, released: Path
) -> None:
    with connect(path) as conn:
        conn.executescript(released.read_text("utf-8"))
    archive = await Archive.open(path)
    latest = await archive.latest(CID)
    assert latest is not None
    assert (latest.number, latest.summary_before, latest.umo) == (1, "旧", UMO)
    assert latest.head_before_raw == ('{"role": "user", "content": "\\u65e7"}',)
    stored = await archive.messages(latest.id)
    assert [(m.role, m.kept, m.speaker) for m in stored] == [
        ("user", True, "小明(1)"),
        ("_checkpoint", False, None),
        ("assistant", False, None),
    ]
    assert stored[1].raw == '{"role": "_checkpoint", "content": {"id": "1"}}'
    assert await found_texts(archive, "预算") == ["下周要交预算表"]
    assert await found_texts(archive, "app/main.py") == ["edit src/app/main.py"]
    assert await found_texts(archive, "裁掉") == ["被裁掉的话"]
    assert await archive.pending_trimmed(CID) == ()
    assert len(await archive.unsettled()) == 1
    known = await archive.knows(["sha256:head", "sha256:marker"])
    assert (set(known.heads), known.markers) == ({"sha256:head"}, {"sha256:marker"})
    assert [s.tokens for s in await archive.samples(CID)] == [5000]
    assert await archive.speakers(CID) == {"sha256:message": (Speaker("1", "小明", 1749999999.5),)}
    assert await archive.get_state(CID, "back-off") == '{"failures": 1}'
    assert (await archive.verify()).is_ok
    await compact(archive, "新的话")
    assert await found_texts(archive, "新的") == ["新的话"]
    await archive.close()
    assert schema(path) == await fresh_schema(path.parent)


@pytest.mark.parametrize("steps", range(len(MIGRATIONS) + 1))
async def test_a_file_left_between_two_migrations_is_brought_to_the_end(
    path: Path, steps: int
) -> None:
    with connect(path) as conn:
        migrate(conn, MIGRATIONS[:steps])
    archive = await Archive.open(path)
    await compact(archive, "预算表")
    assert await found_texts(archive, "预算") == ["预算表"]
    await archive.close()
    assert schema(path) == await fresh_schema(path.parent)
    names = rows(path, "SELECT version, name FROM migrations ORDER BY version")
    assert names == [(n, step.__name__) for n, step in enumerate(MIGRATIONS, start=1)]


async def test_a_migration_that_fails_half_way_leaves_the_version_before_it(path: Path) -> None:
    archive = await Archive.open(path)
    await compact(archive, "话")
    await archive.close()
    before = schema(path), everything(path)

    def failing(conn: sqlite3.Connection) -> None:
        conn.execute("CREATE TABLE half (x)")
        conn.execute("DELETE FROM content")
        raise sqlite3.OperationalError("database or disk is full")

    def working(conn: sqlite3.Connection) -> None:
        conn.execute("CREATE TABLE whole (x)")

    with connect(path) as conn, pytest.raises(sqlite3.OperationalError):
        migrate(conn, (*MIGRATIONS, failing))
    assert (schema(path), everything(path)) == before
    with connect(path) as conn:
        migrate(conn, (*MIGRATIONS, working))
        migrate(conn, (*MIGRATIONS, working))
    assert rows(path, "PRAGMA user_version") == [(len(MIGRATIONS) + 1,)]


def test_a_step_that_another_process_was_first_to_take_is_not_taken_twice(path: Path) -> None:
    class Second(sqlite3.Connection):
        """A connection that another one overtakes after it has read the version."""

        is_overtaken = False

        def execute(self, sql: str, *args: object) -> sqlite3.Cursor:  # type: ignore[override]
            if sql.startswith("BEGIN") and not self.is_overtaken:
                self.is_overtaken = True
                with connect(path) as first:
                    migrate(first)
            return super().execute(sql, *args)  # type: ignore[arg-type]

    with closing(sqlite3.connect(path, isolation_level=None, factory=Second)) as conn:
        migrate(conn)
    assert len(rows(path, "SELECT * FROM migrations")) == len(MIGRATIONS)


def test_the_migrations_before_a_failing_one_stay(path: Path) -> None:
    def failing(conn: sqlite3.Connection) -> None:
        raise sqlite3.OperationalError("no")

    with connect(path) as conn, pytest.raises(sqlite3.OperationalError):
        migrate(conn, (MIGRATIONS[0], failing))
    assert rows(path, "SELECT name FROM migrations") == [(MIGRATIONS[0].__name__,)]


def test_a_newer_file_is_refused_with_both_versions(path: Path) -> None:
    with connect(path) as conn:
        migrate(conn)
        with pytest.raises(ArchiveTooNew) as caught:
            migrate(conn, MIGRATIONS[:1])
    assert caught.value.fields == {"found": len(MIGRATIONS), "known": 1}


def raise_after(conn: sqlite3.Connection, error: type[BaseException]) -> None:
    conn.execute("INSERT INTO t VALUES (1)")
    raise error


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, sqlite3.IntegrityError])
def test_a_transaction_that_raises_leaves_nothing_behind(
    path: Path, error: type[BaseException]
) -> None:
    with connect(path) as conn:
        conn.execute("CREATE TABLE t (x)")
        with pytest.raises(error), atomic(conn):
            raise_after(conn, error)
        assert not conn.in_transaction
        with atomic(conn):
            conn.execute("INSERT INTO t VALUES (2)")
        assert conn.execute("SELECT x FROM t").fetchall() == [(2,)]


@pytest.mark.parametrize(
    "error", [sqlite3.OperationalError("disk\n  I/O error"), OSError(28, "No space left")]
)
def test_errors_of_file_and_disk_are_told_in_one_line(error: Exception) -> None:
    with pytest.raises(ArchiveFailed) as caught, archive_errors():
        raise error
    assert caught.value.__cause__ is error
    detail = str(caught.value.fields["detail"])
    assert detail
    assert "\n" not in detail


def test_other_errors_pass_unchanged() -> None:
    with pytest.raises(KeyError), archive_errors():
        raise KeyError
