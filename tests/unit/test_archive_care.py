"""Forgetting, sweeping, pruning, checking."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from astrbot_plugin_compact.summary import archive_care
from astrbot_plugin_compact.summary.archive import Archive, Overview, Sample, Stage, Stats
from astrbot_plugin_compact.summary.errors import ArchiveFailed

from tests.archives import (
    CID,
    UMO,
    change,
    compact,
    found_texts,
    message,
    messages,
    new_compaction,
    rows,
)

DAY = 86_400.0


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "archive.db"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def archive(path: Path, clock: Clock) -> AsyncIterator[Archive]:
    opened = await Archive.open(path, clock=clock)
    yield opened
    await opened.close()


async def fill(archive: Archive, cid: str, word: str) -> None:
    """Something of every kind."""
    await compact(archive, f"{word}一", "共同的话", cid=cid, head_hash=f"head {cid}")
    await archive.add_trimmed(UMO, cid, messages(f"{word}二", "共同的话"))
    await archive.add_sample(cid, UMO, 1.0, 100, 8000)
    await archive.note_speaker(cid, "h", "1", word, 1.0)
    await archive.put_state(cid, "k", word)


async def test_forgetting_erases_one_conversation_and_no_other(archive: Archive) -> None:
    await fill(archive, CID, "苹果")
    await fill(archive, "other", "香蕉")
    await archive.forget(CID)
    assert await archive.list(CID) == ()
    assert await archive.pending_trimmed(CID) == ()
    assert await archive.samples(CID) == ()
    assert await archive.speakers(CID) == {}
    assert await archive.get_state(CID, "k") is None
    assert await archive.search(CID, "苹果") == ()
    assert await archive.stats(CID) == Stats(0, 0, 0, 0)
    known = await archive.knows([f"head {CID}", "head other"])
    assert set(known.heads) == {"head other"}
    assert [o.cid for o in await archive.conversations()] == ["other"]
    assert sorted(await found_texts(archive, "香蕉", "other")) == ["香蕉一", "香蕉二"]
    assert await found_texts(archive, "共同的话", "other") == ["共同的话"]
    assert (await archive.verify()).is_ok


async def test_forgotten_words_are_nowhere_in_the_files(archive: Archive, path: Path) -> None:
    secret = "Xylophon-Qu4gga"
    for n in range(3):
        await compact(archive, f"{secret} {n}", "other words", summary=secret, focus=secret)
        await compact(archive, "kept words", cid="other")
    await archive.note_speaker(CID, "h", "1", secret, 1.0)
    await archive.tended()
    spellings = [secret.encode(), b"xylophon", b"qu4gga"]

    def files() -> bytes:
        return b"".join(p.read_bytes() for p in path.parent.iterdir())

    assert all(spelling in files() for spelling in spellings)
    await archive.forget(CID)
    assert not any(spelling in files() for spelling in spellings)
    assert await found_texts(archive, "kept", "other") == ["kept words"]


async def test_the_file_shrinks_when_something_is_forgotten(archive: Archive) -> None:
    await compact(archive, *(f"{n}" + "长" * 2000 for n in range(300)))
    await archive.tended()
    before = archive.size_bytes()
    await archive.forget(CID)
    assert archive.size_bytes() < before / 4


async def test_a_compaction_in_flight_is_not_forgotten(archive: Archive) -> None:
    await compact(archive, "旧的")
    id_ = await archive.begin(new_compaction(), messages("在途的"))
    await archive.forget(CID)
    assert [m.text for m in await archive.messages(id_)] == ["在途的"]
    await archive.settle(id_, "done")
    assert await found_texts(archive, "在途") == ["在途的"]


async def test_forgetting_what_is_not_there_does_nothing(archive: Archive) -> None:
    await archive.forget("nothing")
    assert await archive.conversations() == ()


async def test_a_forgotten_conversation_can_begin_again(archive: Archive) -> None:
    await compact(archive, "旧的话")
    await archive.tended()
    await archive.forget(CID)
    await compact(archive, "新的话")
    assert [c.number for c in await archive.list(CID)] == [1]
    assert await found_texts(archive, "的话") == ["新的话"]


async def test_a_sweep_erases_deleted_conversations(archive: Archive) -> None:
    await fill(archive, CID, "苹果")
    await fill(archive, "deleted", "香蕉")
    await archive.sweep({CID}, now=1.0, archive_days=0)
    assert [o.cid for o in await archive.conversations()] == [CID]
    assert sorted(await found_texts(archive, "苹果")) == ["苹果一", "苹果二"]


async def test_a_sweep_that_does_not_know_the_conversations_deletes_none(archive: Archive) -> None:
    await fill(archive, CID, "苹果")
    await archive.sweep(None, now=1.0, archive_days=0)
    assert len(await archive.list(CID)) == 1


async def test_a_conversation_noted_after_the_list_was_read_is_not_swept(
    archive: Archive, clock: Clock
) -> None:
    clock.now = 10.0
    await fill(archive, CID, "苹果")
    await archive.sweep(set(), now=9.0, archive_days=0)
    assert len(await archive.list(CID)) == 1
    await archive.sweep(set(), now=11.0, archive_days=0)
    assert await archive.conversations() == ()


async def test_a_sweep_leaves_what_is_not_settled(archive: Archive) -> None:
    id_ = await archive.begin(new_compaction(), messages("在途的"))
    undoing = await compact(archive, "正在撤销的", cid="undoing")
    await archive.settle(undoing, Stage.UNDOING)
    await archive.sweep(set(), now=1000 * DAY, archive_days=1)
    assert [c.id for c in await archive.unsettled()] == [id_, undoing]
    assert [m.text for m in await archive.messages(id_)] == ["在途的"]
    assert [m.text for m in await archive.messages(undoing)] == ["正在撤销的"]


async def test_a_sweep_drops_void_records(archive: Archive, path: Path) -> None:
    id_ = await archive.begin(new_compaction(), messages("话"))
    await archive.settle(id_, "void")
    await archive.sweep(None, now=1.0, archive_days=0)
    assert rows(path, "SELECT count(*) FROM batch") == [(0,)]
    assert await archive.by_id(id_) is None


async def test_for_ever_is_for_ever(archive: Archive) -> None:
    await fill(archive, CID, "苹果")
    await archive.sweep({CID}, now=100_000 * DAY, archive_days=0)
    assert sorted(await found_texts(archive, "苹果")) == ["苹果一", "苹果二"]


async def test_what_is_older_than_archive_days_goes(archive: Archive, clock: Clock) -> None:
    for day, text in ((0, "第零天"), (5, "第五天"), (10, "第十天")):
        clock.now = day * DAY
        await compact(archive, text, head_hash=f"head {day}")
        await archive.add_trimmed(UMO, CID, messages(f"裁掉{text}"))
        await archive.note_speaker(CID, f"h{day}", "1", "小明", clock.now)
    await archive.sweep({CID}, now=11 * DAY, archive_days=7)
    assert [c.number for c in await archive.list(CID)] == [3, 2]
    found = await found_texts(archive, "第 天")
    assert sorted(found) == ["第五天", "第十天", "裁掉第五天", "裁掉第十天"]
    assert set(await archive.speakers(CID)) == {"h5", "h10"}
    assert set((await archive.knows(["head 0", "head 5"])).heads) == {"head 5"}


async def test_the_last_compaction_stays_known_without_its_messages(
    archive: Archive, clock: Clock
) -> None:
    await compact(archive, "早的话", head_hash="head 1")
    id_ = await compact(
        archive, "旧的话", head_hash="head 2", summary_before="以前", head_before_raw=("{}",)
    )
    undone = await compact(archive, "撤销的话", head_hash="head 3")
    await archive.settle(undone, "undone")
    await archive.sweep({CID}, now=100 * DAY, archive_days=7)
    (left,) = await archive.list(CID)
    assert (left.id, left.number, left.erased, left.summary) == (id_, 2, True, "## 目标\n无")
    assert (left.summary_before, left.head_before_raw) == (None, ())
    assert await archive.messages(id_) == ()
    assert await archive.search(CID, "的话") == ()
    assert not await archive.is_recallable(CID)
    assert set((await archive.knows(["head 1", "head 2", "head 3"])).heads) == {"head 2"}
    assert (await archive.verify()).is_ok


async def test_a_message_held_by_a_younger_record_outlives_the_older(
    archive: Archive, clock: Clock
) -> None:
    await compact(archive, "一直在的话", "只有旧的")
    clock.now = 10 * DAY
    await compact(archive, "一直在的话")
    await archive.sweep({CID}, now=11 * DAY, archive_days=7)
    (found,) = await archive.search(CID, "一直在")
    assert found.number == 2
    assert await archive.search(CID, "只有旧的") == ()


async def test_pruning_spares_what_was_archived_again_meanwhile(
    archive: Archive, path: Path
) -> None:
    id_ = await compact(archive, "又来的话")
    await archive.tended()
    change(path, f"DELETE FROM entry WHERE batch_id = {id_}")
    assert rows(path, "SELECT count(*) FROM doomed") == [(1,)]
    again = await compact(archive, "又来的话")
    await archive.tended()
    assert [m.text for m in await archive.messages(again)] == ["又来的话"]
    assert rows(path, "SELECT count(*) FROM doomed") == [(0,)]


async def test_a_pruned_message_leaves_no_words_in_the_index(archive: Archive, path: Path) -> None:
    await compact(archive, "Quagga getZebraName 苹果树")
    await archive.tended()
    assert rows(path, "SELECT count(*) FROM message_index WHERE message_index MATCH 'quagga'") == [
        (1,)
    ]
    await archive.forget(CID)
    for word in ("quagga", "zebra", "getzebraname", "苹果", "树"):
        query = "SELECT count(*) FROM message_index WHERE message_index MATCH ?"
        assert rows(path, query, f'"{word}"') == [(0,)]


async def test_stats_count_what_is_on_record(archive: Archive) -> None:
    await compact(archive, "一", "二")
    await archive.begin(new_compaction(), messages("二", "三"))
    batch = await archive.add_trimmed(UMO, CID, messages("四"))
    await compact(archive, "别处", cid="other")
    size = sum(len(m.raw) for m in messages("一", "二", "四"))
    assert await archive.stats(CID) == Stats(1, 3, 1, size)
    await archive.settle(
        await archive.begin(new_compaction(covers_trimmed=(batch,)), messages("五")), "done"
    )
    assert (await archive.stats(CID)).pending_trimmed == 0


async def test_the_overview_has_the_conversation_touched_last_first(
    archive: Archive, clock: Clock
) -> None:
    clock.now = 1.0
    await compact(archive, "一", cid="a", umo="u:a")
    clock.now = 2.0
    await archive.add_sample("b", "u:b", 2.0, 50, None)
    clock.now = 3.0
    await compact(archive, "二", cid="a", umo="u:a")
    await archive.begin(new_compaction(cid="c", umo="u:c"), messages("三"))
    assert await archive.conversations() == (
        Overview("c", "u:c", 0, None, None),
        Overview("a", "u:a", 2, 3.0, None),
        Overview("b", "u:b", 0, None, Sample(2.0, 50, None)),
    )


async def test_a_sound_archive_is_found_sound(archive: Archive) -> None:
    await compact(archive, *(f"第{n}句" for n in range(1000)))
    health = await archive.verify(limit_seconds=60)
    assert (health.is_ok, health.is_complete, health.checked) == (True, True, 1000)


async def test_a_large_archive_is_checked_without_reading_its_messages_twice(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_care, "_WHOLE_PAGES", 1)
    archive = await Archive.open(path)
    await compact(archive, *(f"第{n}句" for n in range(1000)))
    await archive.tended()
    health = await archive.verify(limit_seconds=60)
    assert (health.is_ok, health.checked) == (True, 1000)
    await archive.close()
    ((page,),) = rows(path, "SELECT rootpage FROM sqlite_master WHERE name = 'known_compaction'")
    with path.open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(b"\x00" * 4096)
    archive = await Archive.open(path)
    assert not (await archive.verify()).is_ok
    await archive.close()


async def test_an_empty_archive_is_sound(archive: Archive) -> None:
    health = await archive.verify()
    assert (health.is_ok, health.is_complete) == (True, True)


async def test_a_check_ends_in_time(archive: Archive) -> None:
    await compact(archive, *(f"第{n}句" for n in range(1000)))
    health = await archive.verify(limit_seconds=0)
    assert (health.is_ok, health.is_complete) == (True, False)


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        ("UPDATE content SET raw = replace(raw, 'user', 'root') WHERE id % 2", "not what was"),
        ("UPDATE content SET raw = raw || x'00' WHERE id % 2", "not what was"),
        ("DELETE FROM entry WHERE position = 1", "has 1 of 2 messages"),
        ("DELETE FROM content WHERE text = '一'", "refers to nothing"),
        ("DELETE FROM batch", "refers to nothing"),
    ],
)
async def test_damage_is_found(archive: Archive, path: Path, damage: str, problem: str) -> None:
    await compact(archive, "一", "二")
    await archive.tended()
    change(path, damage)
    health = await archive.verify()
    assert not health.is_ok
    assert any(problem in sentence for sentence in health.problems)


async def test_a_damaged_record_or_message_is_never_given_back(
    archive: Archive, path: Path
) -> None:
    damaged = await compact(archive, "一", "二")
    sound = await compact(archive, "三")
    change(path, "UPDATE content SET raw = replace(raw, 'user', 'root') WHERE text = '二'")
    with pytest.raises(ArchiveFailed, match="damaged"):
        await archive.messages(damaged)
    assert [m.text for m in await archive.messages(sound)] == ["三"]
    change(path, f"UPDATE compaction SET record = '{{' WHERE id = {damaged}")
    with pytest.raises(ArchiveFailed):
        await archive.list(CID)
    latest = await archive.latest(CID)
    assert latest is not None
    assert latest.id == sound


async def test_other_calls_are_let_in_during_a_check(archive: Archive) -> None:
    await compact(archive, *(f"第{n}句" + "长" * 2000 for n in range(2000)))
    await archive.tended()
    checking = asyncio.create_task(archive.verify(limit_seconds=60))
    await archive.list(CID)
    await archive.begin(new_compaction(), [message("话")])
    assert not checking.done()
    assert (await checking).is_ok
