"""Compactions on record: stages, numbers, what can be seen when, byte for byte."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from astrbot_plugin_compact.summary.archive import (
    Archive,
    ArchivedMessage,
    SpanMessage,
    Stage,
)
from astrbot_plugin_compact.summary.heads import KnownHead
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.archives import (
    CID,
    UMO,
    any_text,
    compact,
    found_texts,
    message,
    messages,
    new_compaction,
    rows,
)

WEIRD_IDS = {
    "empty": "",
    "quotes": "a'b\"c`d",
    "sql": "x'); DROP TABLE content; --",
    "emoji": "会话🗜️",
    "long": "c" * 10_000,
    "nul": "a\x00b",
    "half a pair": "a\ud83db",
    "like": "%_*?",
    "break": "a\nb\u2028c",
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "archive.db"


@pytest.fixture
async def archive(path: Path) -> AsyncIterator[Archive]:
    opened = await Archive.open(path, clock=lambda: 1000.0)
    yield opened
    await opened.close()


async def raws(archive: Archive, batch_id: int) -> list[str]:
    return [m.raw for m in await archive.messages(batch_id)]


async def test_a_done_compaction_reads_as_it_was_written(archive: Archive) -> None:
    new = new_compaction(
        focus="重点 \ud83d",
        summary="摘要\x00 \udfff 🗜️",
        summary_before="旧\ud800",
        head_before_raw=('{"role": "user"}', '{"role": "assistant"}'),
        prefix_json='{"messages": []}',
        marker_hashes=("sha256:m1", "sha256:m2"),
        covers_trimmed=(7,),
        input_tokens=None,
        cached_tokens=0,
    )
    id_ = await archive.begin(new, [message("一", kept=True), message("二")])
    await archive.settle(id_, Stage.DONE)
    found = await archive.latest(CID)
    assert found is not None
    fields = dataclasses.asdict(found)
    assert {name: fields[name] for name in dataclasses.asdict(new)} == dataclasses.asdict(new)
    assert (found.id, found.number, found.stage) == (id_, 1, Stage.DONE)
    assert (found.created_seconds, found.message_count, found.kept_count) == (1000.0, 2, 1)
    assert (found.cleared, found.erased) == (False, False)


async def test_messages_come_back_in_order_with_what_is_known_of_them(archive: Archive) -> None:
    span = [
        SpanMessage('{"role":"user","content":"你好"}', "user", "你好", True, "小明(1)", 5.0),
        SpanMessage('{"role": "_checkpoint"}', "_checkpoint", ""),
        SpanMessage('{"role":"assistant"}', "assistant", "", time_seconds=6.5),
    ]
    id_ = await archive.begin(new_compaction(), span)
    assert await archive.messages(id_) == tuple(
        ArchivedMessage(n, m.raw, m.role, m.text, m.kept, m.speaker, m.time_seconds)
        for n, m in enumerate(span)
    )


@settings(
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.lists(st.tuples(any_text, st.text(), st.booleans())))
async def test_whatever_goes_in_comes_out(
    archive: Archive, span: list[tuple[str, str, bool]]
) -> None:
    given_messages = [SpanMessage(raw, "user", text, kept) for raw, text, kept in span]
    id_ = await archive.begin(new_compaction(), given_messages)
    await archive.settle(id_, "done")
    stored = await archive.messages(id_)
    assert [(m.raw, m.kept) for m in stored] == [(m.raw, m.kept) for m in given_messages]


async def test_half_pairs_and_nul_in_a_raw_come_back_exactly(archive: Archive) -> None:
    raw = '"ok \ud83d end \udfff \x00 \u2028 🗜️"'
    id_ = await archive.begin(new_compaction(), [SpanMessage(raw, "user", raw, speaker="\udfff")])
    (stored,) = await archive.messages(id_)
    assert stored.raw == raw
    stored.text.encode("utf-8")
    assert "\x00" not in stored.text
    assert stored.speaker == "\ufffd"


async def test_a_message_said_twice_comes_back_twice(archive: Archive) -> None:
    id_ = await compact(archive, "ok", "再来", "ok")
    assert await raws(archive, id_) == [m.raw for m in messages("ok", "再来", "ok")]


async def test_an_archived_record_shows_nowhere_but_as_unsettled(archive: Archive) -> None:
    id_ = await archive.begin(new_compaction(), messages("密码是芝麻"))
    assert await archive.latest(CID) is None
    assert await archive.get(CID, 1) is None
    assert await archive.list(CID) == ()
    assert await archive.search(CID, "芝麻") == ()
    assert await archive.recall(CID, "芝麻") == ()
    assert not await archive.is_recallable(CID)
    assert (await archive.stats(CID)).compactions == 0
    assert [c.id for c in await archive.unsettled()] == [id_]
    assert [c.id for c in await archive.unsettled(CID)] == [id_]
    assert await archive.unsettled("another") == ()


async def test_a_void_record_leaves_nothing_to_find(archive: Archive, path: Path) -> None:
    id_ = await archive.begin(new_compaction(), messages("密码是芝麻"))
    await archive.settle(id_, Stage.VOID)
    assert await archive.list(CID) == ()
    assert await archive.search(CID, "芝麻") == ()
    assert await archive.unsettled() == ()
    await archive.tended()
    assert rows(path, "SELECT count(*) FROM content") == [(0,)]


async def test_a_void_record_keeps_what_another_record_holds(archive: Archive) -> None:
    first = await compact(archive, "共同的话")
    void = await archive.begin(new_compaction(), messages("共同的话", "多余的话"))
    await archive.settle(void, Stage.VOID)
    await archive.tended()
    assert await raws(archive, first) == [m.raw for m in messages("共同的话")]
    assert await found_texts(archive, "共同") == ["共同的话"]
    assert (await archive.stats(CID)).messages == 1


async def test_an_undone_record_is_no_longer_seen_but_loses_nothing(archive: Archive) -> None:
    first = await compact(archive, "第一段")
    second = await compact(archive, "第二段")
    await archive.settle(second, Stage.UNDONE)
    latest = await archive.latest(CID)
    assert latest is not None
    assert latest.id == first
    assert await found_texts(archive, "第二段") == []
    await archive.tended()
    assert await raws(archive, second) == [m.raw for m in messages("第二段")]


async def test_an_undo_in_progress_is_unsettled_and_still_seen(archive: Archive) -> None:
    id_ = await compact(archive, "第一段")
    await archive.settle(id_, Stage.UNDOING)
    assert [c.stage for c in await archive.unsettled()] == [Stage.UNDOING]
    latest = await archive.latest(CID)
    assert latest is not None
    assert latest.id == id_
    assert await found_texts(archive, "第一段") == ["第一段"]
    await archive.settle(id_, Stage.DONE)
    assert await archive.unsettled() == ()


async def test_settling_twice_is_settling_once(archive: Archive) -> None:
    id_ = await compact(archive, "话")
    assert await archive.settle(id_, "done")
    assert [c.id for c in await archive.list(CID)] == [id_]


@pytest.mark.parametrize(
    ("path_to", "then"),
    [
        ([], Stage.UNDONE),
        (["done"], Stage.VOID),
        (["done"], Stage.ARCHIVED),
        (["void"], Stage.DONE),
        (["done", "undone"], Stage.DONE),
    ],
)
async def test_a_stage_that_cannot_follow_is_refused(
    archive: Archive, path_to: list[str], then: Stage
) -> None:
    id_ = await archive.begin(new_compaction(), messages("话"))
    for stage in path_to:
        await archive.settle(id_, stage)
    with pytest.raises(ValueError, match="a compaction goes from"):
        await archive.settle(id_, then)


async def test_settling_what_is_gone_says_so(archive: Archive) -> None:
    id_ = await compact(archive, "话")
    await archive.forget(CID)
    assert not await archive.settle(id_, Stage.UNDONE)


async def test_numbers_count_per_conversation_and_skip_no_void_one(archive: Archive) -> None:
    await compact(archive, "一")
    void = await archive.begin(new_compaction(), messages("二"))
    await archive.settle(void, Stage.VOID)
    third = await compact(archive, "三")
    other = await compact(archive, "四", cid="other")
    assert [c.number for c in await archive.list(CID)] == [2, 1]
    assert await archive.number(third) == 2
    assert await archive.number(other) == 1
    found = await archive.get(CID, 2)
    assert found is not None
    assert found.id == third


@pytest.mark.parametrize("number", [0, -1, 3, 10**30, -(10**30)])
async def test_a_number_there_is_not_finds_nothing(archive: Archive, number: int) -> None:
    await compact(archive, "一")
    assert await archive.get(CID, number) is None


async def test_the_list_is_newest_first_and_limited(archive: Archive) -> None:
    ids = [await compact(archive, f"第{n}段") for n in range(5)]
    assert [c.id for c in await archive.list(CID, 2)] == ids[:2:-1]
    assert [c.id for c in await archive.list(CID, 10**30)] == ids[::-1]


async def test_three_compactions_store_each_message_once(archive: Archive, path: Path) -> None:
    texts = [f"第{n}句" for n in range(30)]
    for end in (10, 20, 30):
        await compact(archive, *texts[:end])
    await archive.tended()
    assert rows(path, "SELECT count(*) FROM content") == [(30,)]
    assert (await archive.stats(CID)).messages == 30


async def test_checkpoints_are_no_messages(archive: Archive) -> None:
    record = SpanMessage('{"role": "_checkpoint"}', "_checkpoint", "")
    await compact(archive, "一", "二")
    await archive.settle(await archive.begin(new_compaction(), [record]), Stage.DONE)
    await archive.add_trimmed(UMO, CID, [*messages("三", "四", "五"), record])
    stats = await archive.stats(CID)
    assert (stats.messages, stats.pending_trimmed) == (5, 3)


async def test_the_archive_grows_with_what_was_said(tmp_path: Path) -> None:
    """Twenty compactions that keep one long message do not store it twenty times."""
    sizes = []
    for rounds in (20, 40):
        archive = await Archive.open(tmp_path / f"{rounds}.db")
        for n in range(rounds):
            kept = message("长" * 50_000, kept=True)
            id_ = await archive.begin(new_compaction(), [kept, message(f"{n} " + "话" * 5000)])
            await archive.settle(id_, "done")
            await archive.tended()
        await archive.close()
        sizes.append((tmp_path / f"{rounds}.db").stat().st_size)
    said = [300_000 + 30_000 * rounds for rounds in (20, 40)]
    assert sizes[1] - sizes[0] < 2 * (said[1] - said[0])
    assert sizes[0] < 3 * said[0]


async def test_heads_are_known_in_any_conversation(archive: Archive) -> None:
    await compact(archive, "一", head_hash="h1", summary="摘要一", structured=True)
    await compact(archive, "二", cid="other", head_hash="h2", summary="摘要二", structured=False)
    known = await archive.knows(["h1", "h2", "h3", "'; --"])
    assert known.heads == {"h1": KnownHead("摘要一", True), "h2": KnownHead("摘要二", False)}
    assert known.markers == frozenset()


async def test_markers_are_known_apart_from_heads(archive: Archive) -> None:
    await compact(archive, "一", head_hash="h1", marker_hashes=("m1", "m1", "m2"))
    known = await archive.knows(["h1", "m1"])
    assert (set(known.heads), known.markers) == ({"h1"}, {"m1"})


@pytest.mark.parametrize(
    ("stages", "is_known"),
    [([], True), (["done"], True), (["done", "undone"], True), (["void"], False)],
)
async def test_a_head_is_known_unless_its_record_is_void(
    archive: Archive, stages: list[str], is_known: bool
) -> None:
    id_ = await archive.begin(new_compaction(head_hash="h"), messages("一"))
    for stage in stages:
        await archive.settle(id_, stage)
    assert bool((await archive.knows(["h"])).heads) is is_known


async def test_trimmed_messages_are_pending_and_can_be_searched(archive: Archive) -> None:
    first = await archive.add_trimmed(UMO, CID, messages("被裁掉的话"))
    second = await archive.add_trimmed(UMO, CID, messages("后来的话"), reason="host_compress")
    pending = await archive.pending_trimmed(CID)
    assert [(b.id, b.reason) for b in pending] == [(first, "host_trim"), (second, "host_compress")]
    assert [m.raw for b in pending for m in b.messages] == [
        m.raw for m in messages("被裁掉的话", "后来的话")
    ]
    (found,) = await archive.search(CID, "裁掉")
    assert (found.number, found.snippet) == (None, "被裁掉的话")
    assert await archive.is_recallable(CID)


async def test_a_done_compaction_covers_the_trimmed_batches_it_names(archive: Archive) -> None:
    covered = await archive.add_trimmed(UMO, CID, messages("被裁掉的话"))
    left = await archive.add_trimmed(UMO, CID, messages("后来的话"))
    id_ = await archive.begin(new_compaction(covers_trimmed=(covered,)), messages("一"))
    assert len(await archive.pending_trimmed(CID)) == 2
    await archive.settle(id_, "done")
    assert [b.id for b in await archive.pending_trimmed(CID)] == [left]
    (found,) = await archive.search(CID, "裁掉")
    assert found.number == 1
    await archive.settle(id_, "undone")
    assert [b.id for b in await archive.pending_trimmed(CID)] == [covered, left]


async def test_a_void_compaction_covers_nothing(archive: Archive) -> None:
    batch = await archive.add_trimmed(UMO, CID, messages("被裁掉的话"))
    id_ = await archive.begin(new_compaction(covers_trimmed=(batch,)), messages("一"))
    await archive.settle(id_, "void")
    assert [b.id for b in await archive.pending_trimmed(CID)] == [batch]


async def test_a_compaction_covers_no_batch_of_another_conversation(archive: Archive) -> None:
    other = await archive.add_trimmed(UMO, "other", messages("别处的话"))
    id_ = await archive.begin(new_compaction(covers_trimmed=(other,)), messages("一"))
    await archive.settle(id_, "done")
    assert [b.id for b in await archive.pending_trimmed("other")] == [other]


async def test_after_a_reset_nothing_is_undone_or_recalled_from_before(archive: Archive) -> None:
    id_ = await compact(archive, "密码是芝麻")
    await archive.add_trimmed(UMO, CID, messages("裁掉的芝麻"))
    await archive.mark_cleared(CID)
    assert await archive.latest(CID) is None
    assert await archive.pending_trimmed(CID) == ()
    assert await archive.recall(CID, "芝麻") == ()
    assert not await archive.is_recallable(CID)
    (listed,) = await archive.list(CID)
    assert (listed.id, listed.cleared) == (id_, True)
    assert sorted(await found_texts(archive, "芝麻")) == ["密码是芝麻", "裁掉的芝麻"]


async def test_what_is_said_after_a_reset_is_recalled(archive: Archive) -> None:
    await compact(archive, "旧的芝麻")
    await archive.mark_cleared(CID)
    await compact(archive, "新的芝麻")
    assert [r.text for r in await archive.recall(CID, "芝麻")] == ["新的芝麻"]


async def test_a_run_in_flight_at_a_reset_cannot_be_undone_afterwards(archive: Archive) -> None:
    id_ = await archive.begin(new_compaction(), messages("话"))
    await archive.mark_cleared(CID)
    await archive.settle(id_, "done")
    assert await archive.latest(CID) is None


@pytest.mark.parametrize("cid", WEIRD_IDS.values(), ids=WEIRD_IDS.keys())
async def test_ids_of_any_shape_are_ids(archive: Archive, cid: str) -> None:
    umo = f"qq:{cid}"
    await compact(archive, "别人的话", cid="plain")
    id_ = await compact(archive, "我的话", cid=cid, umo=umo)
    latest = await archive.latest(cid)
    assert latest is not None
    assert (latest.id, latest.cid, latest.umo) == (id_, cid, umo)
    assert await found_texts(archive, "的话", cid) == ["我的话"]
    await archive.put_state(cid, "key", "1")
    assert await archive.get_state(cid, "key") == "1"
    assert {(o.cid, o.umo) for o in await archive.conversations()} == {(cid, umo), ("plain", UMO)}
    await archive.forget(cid)
    assert await archive.list(cid) == ()
    assert await found_texts(archive, "的话", "plain") == ["别人的话"]


async def test_everything_is_there_after_closing_and_opening(path: Path) -> None:
    archive = await Archive.open(path)
    id_ = await compact(archive, "部署服务器")
    await archive.close()
    archive = await Archive.open(path)
    assert await raws(archive, id_) == [m.raw for m in messages("部署服务器")]
    assert await found_texts(archive, "部署") == ["部署服务器"]
    await archive.close()
