"""The archive's file under failure: a broken disk, a crash, a cancellation, a file that is none."""

# ruff: noqa: ASYNC220, ASYNC240 - nothing else runs in these loops that could be held up

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from astrbot_plugin_compact.summary.archive import Archive
from astrbot_plugin_compact.summary.errors import ArchiveFailed, ArchiveTooNew

from tests.archives import (
    CID,
    UMO,
    BrokenIndex,
    FailingConnection,
    GatedConnection,
    ReadOnlyAfterOpening,
    SmallDisk,
    change,
    compact,
    everything,
    found_texts,
    messages,
    new_compaction,
    rows,
)

Operation = Callable[[Archive], Awaitable[object]]

WRITES: dict[str, Operation] = {
    "begin": lambda a: a.begin(
        new_compaction(head_hash="h2", marker_hashes=("m",)), messages("共同的话", "新的话")
    ),
    "settle done": lambda a: a.settle(2, "done"),
    "settle void": lambda a: a.settle(2, "void"),
    "settle undone": lambda a: a.settle(1, "undone"),
    "add_trimmed": lambda a: a.add_trimmed(UMO, CID, messages("共同的话", "裁掉的话")),
    "add_sample": lambda a: a.add_sample(CID, UMO, 1.0, 100, 8000),
    "note_speaker": lambda a: a.note_speaker(CID, "h", "1", "小明", 1.0),
    "put_state": lambda a: a.put_state(CID, "k", "v"),
    "mark_cleared": lambda a: a.mark_cleared(CID),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "archive.db"


async def prepare(path: Path) -> None:
    """A file with a done record (1), an archived one (2) that covers a trimmed batch (3)."""
    archive = await Archive.open(path, clock=lambda: 5.0)
    await compact(archive, "共同的话", "第一段")
    await archive.begin(new_compaction(covers_trimmed=(3,)), messages("共同的话", "第二段"))
    await archive.add_trimmed(UMO, CID, messages("第三段"))
    await archive.tended()
    await archive.close()


@pytest.mark.parametrize("name", WRITES)
async def test_a_write_that_fails_at_any_statement_changes_nothing_and_can_be_repeated(
    tmp_path: Path, name: str
) -> None:
    prepared, reference = tmp_path / "prepared.db", tmp_path / "reference.db"
    await prepare(prepared)
    shutil.copy(prepared, reference)
    archive = await Archive.open(reference, clock=lambda: 5.0)
    await WRITES[name](archive)
    await archive.tended()
    await archive.close()
    expected = everything(reference)

    failures = 0
    for statement in range(1, 100):
        path = Path(shutil.copy(prepared, tmp_path / f"{statement}.db"))
        archive = await Archive.open(path, clock=lambda: 5.0, factory=FailingConnection)
        await archive.tended()
        before = everything(path)
        FailingConnection.fail_at(statement)
        try:
            await WRITES[name](archive)
        except ArchiveFailed:
            assert everything(path) == before
            failures += 1
            await WRITES[name](archive)
        finally:
            await archive.close()
            fired = FailingConnection.heal()
        archive = await Archive.open(path, clock=lambda: 5.0)
        await archive.tended()
        await archive.close()
        assert everything(path) == expected
        if not fired:
            break
    else:
        pytest.fail("a write of a hundred statements")
    assert failures >= 3, "at least BEGIN, a statement, and COMMIT"


async def test_housekeeping_that_fails_is_done_later(path: Path) -> None:
    await prepare(path)
    for statement in range(1, 100):
        archive = await Archive.open(path, factory=FailingConnection)
        await archive.tended()
        id_ = await archive.begin(new_compaction(), messages(f"句子{statement}号"))
        FailingConnection.fail_at(statement)
        try:
            await archive.settle(id_, "done")
            await archive.tended()
        except ArchiveFailed:
            await archive.settle(id_, "done")
        fired = FailingConnection.heal()
        await archive.tended()
        assert await found_texts(archive, f"句子{statement}号") == [f"句子{statement}号"]
        await archive.close()
        if not fired:
            break
    assert rows(path, "SELECT count(*) FROM content WHERE indexed = 0 AND text <> '第二段'") == [
        (0,)
    ]


async def test_every_compaction_is_indexed_without_being_asked(path: Path) -> None:
    archive = await Archive.open(path, factory=GatedConnection)
    for n in range(3):
        GatedConnection.shut("INSERT INTO message_index (rowid")
        await compact(archive, f"第{n}段")
        assert await asyncio.to_thread(GatedConnection.reached.wait, 30)
        GatedConnection.open_gate()
    await archive.close()


async def test_an_index_that_cannot_be_written_warns_and_is_made_later(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    archive = await Archive.open(path, factory=BrokenIndex)
    BrokenIndex.is_broken = True
    try:
        await compact(archive, "预算表")
        assert await found_texts(archive, "预算") == ["预算表"]
        assert await found_texts(archive, "预算") == ["预算表"]
    finally:
        BrokenIndex.is_broken = False
    assert [r.levelname for r in caplog.records] == ["WARNING"]
    assert rows(path, "SELECT indexed FROM content") == [(0,)]
    await compact(archive, "会议")
    await archive.tended()
    assert rows(path, "SELECT indexed FROM content") == [(1,), (1,)]
    await archive.close()


async def test_forgetting_that_fails_half_way_is_finished_by_the_next_call(path: Path) -> None:
    prepared = path.with_name("prepared.db")
    await prepare(prepared)
    for statement in range(1, 200):
        shutil.copy(prepared, path)
        archive = await Archive.open(path, factory=FailingConnection)
        await archive.tended()
        FailingConnection.fail_at(statement)
        try:
            await archive.forget(CID)
        except ArchiveFailed:
            await archive.forget(CID)
        fired = FailingConnection.heal()
        assert await archive.list(CID) == ()
        # What is not settled stays.
        assert [m.text for m in await archive.messages(2)] == ["共同的话", "第二段"]
        assert (await archive.verify()).is_ok
        assert rows(path, "SELECT count(*) FROM content") == [(0,)]
        await archive.close()
        if not fired:
            break
    else:
        pytest.fail("never done")


async def test_a_full_disk_fails_with_its_reason_and_loses_nothing(path: Path) -> None:
    archive = await Archive.open(path, factory=SmallDisk)
    kept = await compact(archive, "旧的话")
    await archive.tended()
    before = everything(path)
    with pytest.raises(ArchiveFailed, match="full"):
        await archive.begin(new_compaction(), messages("大" * 200_000))
    assert everything(path) == before
    assert [m.text for m in await archive.messages(kept)] == ["旧的话"]
    assert await archive.begin(new_compaction(), messages("小")) > kept
    await archive.close()


async def test_a_file_that_turned_read_only_can_still_be_read(path: Path) -> None:
    await prepare(path)
    archive = await Archive.open(path, factory=ReadOnlyAfterOpening)
    await archive.tended()
    ReadOnlyAfterOpening.locked = True
    try:
        with pytest.raises(ArchiveFailed, match="readonly"):
            await archive.begin(new_compaction(), messages("话"))
        assert [c.number for c in await archive.list(CID)] == [1]
        assert await found_texts(archive, "第一段") == ["第一段"]
    finally:
        ReadOnlyAfterOpening.locked = False
        await archive.close()


@pytest.mark.parametrize(
    "content",
    [b"no database at all, but long enough to be read as the header of one " * 40, b"\x00" * 9000],
    ids=["text", "zeros"],
)
async def test_a_file_that_is_no_archive_is_refused_and_left_alone(
    path: Path, content: bytes
) -> None:
    path.write_bytes(content)
    with pytest.raises(ArchiveFailed) as caught:
        await Archive.open(path)
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == content


async def test_a_torn_file_never_raises_anything_but_archive_failed(path: Path) -> None:
    archive = await Archive.open(path)
    await compact(archive, *(f"第{n}句话" + "长" * 500 for n in range(200)))
    await archive.tended()
    await archive.close()
    whole = path.read_bytes()
    for pages in range(1, len(whole) // 4096, 7):
        path.write_bytes(whole[: pages * 4096])
        try:
            archive = await Archive.open(path)
        except ArchiveFailed:
            continue
        operations: tuple[Operation, ...] = (
            lambda a: a.messages(1),
            lambda a: a.search(CID, "第七"),
            lambda a: a.begin(new_compaction(), messages("话")),
        )
        for operation in operations:
            with contextlib.suppress(ArchiveFailed):
                await operation(archive)
        with contextlib.suppress(ArchiveFailed):
            assert not (await archive.verify()).is_ok
        await archive.close()


async def test_a_folder_in_the_place_of_the_file_is_refused(path: Path) -> None:
    path.mkdir()
    with pytest.raises(ArchiveFailed):
        await Archive.open(path)


async def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    with pytest.raises(ArchiveFailed):
        await Archive.open(tmp_path / "data" / "archive.db")


async def test_an_archive_of_a_newer_version_is_refused_and_left_alone(path: Path) -> None:
    await prepare(path)
    change(path, "PRAGMA journal_mode = DELETE", "PRAGMA user_version = 99")
    before = path.read_bytes()
    with pytest.raises(ArchiveTooNew) as caught:
        await Archive.open(path)
    assert caught.value.fields["found"] == 99
    assert path.read_bytes() == before


async def test_new_files_are_private_to_their_user(tmp_path: Path) -> None:
    path = tmp_path / "plugin" / "archive.db"
    archive = await Archive.open(path)
    await compact(archive, "话")
    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in [path.parent, *path.parent.iterdir()]}
    await archive.close()
    assert modes == {
        "plugin": 0o700,
        "archive.db": 0o600,
        "archive.db-wal": 0o600,
        "archive.db-shm": 0o600,
    }


LARGE = "x" * 6_000_000


async def test_a_commit_does_not_wait_for_the_log_to_be_written_back(path: Path) -> None:
    archive = await Archive.open(path)
    id_ = await archive.begin(new_compaction(), messages(LARGE))
    assert path.stat().st_size < len(LARGE)
    await archive.settle(id_, "done")
    await archive.tended()
    await archive.latest(CID)  # whatever was asked for before this is done
    assert path.stat().st_size > len(LARGE)
    await archive.close()


async def test_a_turn_has_a_large_log_written_back_afterwards(path: Path) -> None:
    archive = await Archive.open(path)
    await archive.begin(new_compaction(), messages(LARGE))
    await archive.add_sample(CID, UMO, 1.0, 10, None)
    await archive.latest(CID)
    assert path.stat().st_size > len(LARGE)
    await archive.close()


async def test_writing_into_a_file_that_was_replaced_is_refused(path: Path) -> None:
    await prepare(path)
    archive = await Archive.open(path)
    path.rename(path.with_name("moved.db"))
    with pytest.raises(ArchiveFailed):
        await archive.begin(new_compaction(), messages("话"))
    path.write_bytes(b"")
    with pytest.raises(ArchiveFailed, match="replaced"):
        await archive.begin(new_compaction(), messages("话"))
    await archive.close()


async def test_a_closed_archive_says_so(path: Path) -> None:
    archive = await Archive.open(path)
    await archive.close()
    with pytest.raises(ArchiveFailed, match="closed"):
        await archive.begin(new_compaction(), messages("话"))
    with pytest.raises(ArchiveFailed, match="closed"):
        await archive.list(CID)


async def test_closing_waits_for_what_was_asked_before(path: Path) -> None:
    archive = await Archive.open(path)
    begun = asyncio.create_task(archive.begin(new_compaction(), messages("话")))
    await asyncio.sleep(0)
    await archive.close()
    id_ = await begun
    archive = await Archive.open(path)
    assert [m.text for m in await archive.messages(id_)] == ["话"]
    await archive.close()


async def test_two_archives_on_one_file_see_each_other(path: Path) -> None:
    first, second = await Archive.open(path), await Archive.open(path)
    ids = await asyncio.gather(*(compact(a, f"话{n}") for n in range(10) for a in (first, second)))
    assert len(set(ids)) == 20
    assert [c.number for c in await first.list(CID, 100)] == list(range(20, 0, -1))
    await first.close()
    await second.close()


@pytest.fixture
async def gated(path: Path) -> AsyncIterator[Archive]:
    archive = await Archive.open(path, factory=GatedConnection)
    await archive.tended()
    yield archive
    GatedConnection.open_gate()
    await archive.close()


async def stopped_at_gate(archive: Archive, texts: tuple[str, ...]) -> asyncio.Task[int]:
    """A `begin` that stands between two of its statements."""
    GatedConnection.shut("INSERT INTO packed")
    task = asyncio.create_task(archive.begin(new_compaction(), messages(*texts)))
    assert await asyncio.to_thread(GatedConnection.reached.wait, 30)
    return task


async def test_a_cancelled_write_that_has_begun_is_finished_first(gated: Archive) -> None:
    task = await stopped_at_gate(gated, ("一", "二"))
    for _ in range(3):
        task.cancel()
        for _ in range(10):
            await asyncio.sleep(0)
        assert not task.done()
    GatedConnection.open_gate()
    with pytest.raises(asyncio.CancelledError):
        await task
    (record,) = await gated.unsettled()
    assert [m.text for m in await gated.messages(record.id)] == ["一", "二"]


async def test_a_cancelled_write_whose_turn_has_not_come_is_never_done(gated: Archive) -> None:
    first = await stopped_at_gate(gated, ("一",))
    second = asyncio.create_task(gated.begin(new_compaction(), messages("二")))
    await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    GatedConnection.open_gate()
    id_ = await first
    assert [c.id for c in await gated.unsettled()] == [id_]


async def test_a_cancelled_write_that_fails_ends_in_the_cancellation(gated: Archive) -> None:
    task = await stopped_at_gate(gated, ("一",))
    gated._file._path.rename(gated._file._path.with_name("moved.db"))
    second = asyncio.create_task(gated.put_state(CID, "k", "v"))
    await asyncio.sleep(0)
    task.cancel()
    GatedConnection.open_gate()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(ArchiveFailed):
        await second


async def test_a_cancelled_read_returns_at_once(gated: Archive) -> None:
    blocked = await stopped_at_gate(gated, ("一",))
    reading = asyncio.create_task(gated.list(CID))
    await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    GatedConnection.open_gate()
    await blocked


CHILD = """
import asyncio, importlib.machinery, importlib.util, sys
spec = importlib.machinery.ModuleSpec("plugin", None, is_package=True)
spec.submodule_search_locations = [sys.argv[1]]
sys.modules["plugin"] = importlib.util.module_from_spec(spec)
sys.modules["astrbot_plugin_compact"] = sys.modules["plugin"]
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from tests.archives import CID, UMO, Archive, message, new_compaction

async def main():
    archive = await Archive.open(Path(sys.argv[2]))
    say = lambda *words: print(*words, flush=True)
    for n in range(10_000):
        span = [message(f"run {n} message {k} " + "x" * 300) for k in range(20)]
        say("begin", n)
        id_ = await archive.begin(new_compaction(focus=str(n)), span)
        say("begun", id_)
        stage = ("done", "void")[n % 3 == 2]
        await archive.settle(id_, stage)
        say(stage, id_)
        if n % 4 == 3:
            await archive.add_trimmed(UMO, CID, span[:5])
        if n % 5 == 4:
            say("forgetting")
            await archive.forget(CID)
            say("forgot", id_)

asyncio.run(main())
"""


@pytest.mark.parametrize("seed", range(12))
async def test_after_kill_9_every_acknowledged_step_is_there_and_no_half_one(
    path: Path, seed: int
) -> None:
    root = str(Path(__file__).resolve().parents[2])
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, root, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    lines = [next(child.stdout).split() for _ in range(random.Random(seed).randint(1, 60))]
    child.send_signal(signal.SIGKILL)
    lines += [line.split() for line in child.stdout if line.endswith("\n")]
    child.wait()
    child.stdout.close()

    archive = await Archive.open(path)
    health = await archive.verify()
    assert (health.is_ok, health.is_complete) == (True, True), health
    said = [(word, int(id_)) for word, *ids in lines for id_ in ids]
    forgotten = max((id_ for word, id_ in said if word == "forgot"), default=0)
    begun = {id_ for word, id_ in said if word == "begun" and id_ > forgotten}
    done = {id_ for word, id_ in said if word == "done" and id_ > forgotten}
    records = {c.id: c for c in [*await archive.list(CID, 1000), *await archive.unsettled()]}
    # The child may have been one step, or the forgetting, ahead of what it could still say.
    unsaid = [c for id_, c in records.items() if id_ not in begun]
    assert len(unsaid) <= 1
    was_forgetting = lines[-1] == ["forgetting"]
    assert done <= records.keys() or (was_forgetting and not records)
    for record in records.values():
        stored = await archive.messages(record.id)
        assert [m.text[:24].split()[1] for m in stored] == [record.focus] * 20
    await archive.tended()
    assert (await archive.verify()).is_ok
    await archive.close()
