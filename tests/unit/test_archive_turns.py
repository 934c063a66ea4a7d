"""Samples, speakers, small state: bounded, and each conversation's own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from astrbot_plugin_compact.summary import archive_turns
from astrbot_plugin_compact.summary.archive import Archive, Sample, Speaker

from tests.archives import CID, UMO


@pytest.fixture
async def archive(tmp_path: Path) -> AsyncIterator[Archive]:
    opened = await Archive.open(tmp_path / "archive.db")
    yield opened
    await opened.close()


async def sample(archive: Archive, *tokens: int, cid: str = CID) -> None:
    for time, count in enumerate(tokens):
        await archive.add_sample(cid, UMO, float(time), count, 8000)


async def test_samples_come_back_oldest_first(archive: Archive) -> None:
    await archive.add_sample(CID, UMO, 2.0, 100, 8000)
    await archive.add_sample(CID, UMO, 1.0, 200, None)
    assert await archive.samples(CID) == (Sample(2.0, 100, 8000), Sample(1.0, 200, None))
    assert await archive.samples("other") == ()


async def test_the_last_samples_of_each_conversation_are_kept(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert archive_turns._SAMPLES == 2000
    monkeypatch.setattr(archive_turns, "_SAMPLES", 3)
    await sample(archive, 1, 2, 3, cid="other")
    await sample(archive, 10, 20, 30, 40, 50)
    assert [s.tokens for s in await archive.samples(CID)] == [30, 40, 50]
    assert [s.tokens for s in await archive.samples("other")] == [1, 2, 3]


@pytest.mark.parametrize(
    ("tokens", "turns", "growth"),
    [
        ((), 10, None),
        ((500,), 10, None),
        ((500, 400), 10, 0),
        ((500, 700, 300, 450), 10, 200),
        ((100, 900, 1000, 1100), 2, 100),
        ((100, 900, 1000, 1100), 3, 800),
    ],
)
async def test_growth_is_the_largest_step_up_of_the_last_turns(
    archive: Archive, tokens: tuple[int, ...], turns: int, growth: int | None
) -> None:
    await sample(archive, *tokens)
    assert await archive.growth(CID, turns) == growth


async def test_speakers_of_the_same_words_are_told_apart_by_their_order(archive: Archive) -> None:
    await archive.note_speaker(CID, "ok", "1", "小明", 1.0)
    await archive.note_speaker(CID, "hi", "1", "小明", 2.0)
    await archive.note_speaker(CID, "ok", "2", "小红", 3.0)
    await archive.note_speaker("other", "ok", "3", "别人", 4.0)
    expected = {
        "ok": (Speaker("1", "小明", 1.0), Speaker("2", "小红", 3.0)),
        "hi": (Speaker("1", "小明", 2.0),),
    }
    assert await archive.speakers(CID) == expected
    assert await archive.speakers(CID, ["ok", "unknown"]) == {"ok": expected["ok"]}
    assert await archive.speakers(CID, []) == {}


async def test_the_last_speakers_are_kept(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_turns, "_SPEAKERS", 2)
    for n in range(4):
        await archive.note_speaker(CID, f"h{n}", "1", "小明", float(n))
    assert set(await archive.speakers(CID)) == {"h2", "h3"}


async def test_a_nickname_of_any_characters_is_noted_as_valid_text(archive: Archive) -> None:
    await archive.note_speaker(CID, "h", "\udfff", "小\ud83d明\x00\n[assistant]", 1.0)
    ((speaker,),) = (await archive.speakers(CID)).values()
    (speaker.user_id + speaker.nickname).encode("utf-8")
    assert "\x00" not in speaker.nickname


async def test_state_is_put_replaced_and_forgotten(archive: Archive) -> None:
    assert await archive.get_state(CID, "back-off") is None
    await archive.put_state(CID, "back-off", '{"failures": 1}')
    await archive.put_state(CID, "back-off", '{"failures": 2, "t": "\ud83d"}')
    await archive.put_state("other", "back-off", "x")
    assert await archive.get_state(CID, "back-off") == '{"failures": 2, "t": "\ud83d"}'
    assert await archive.get_state(CID, "another key") is None
    await archive.put_state(CID, "back-off", None)
    assert await archive.get_state(CID, "back-off") is None
    assert await archive.get_state("other", "back-off") == "x"


async def test_a_session_stays_known_when_a_later_note_does_not_name_it(archive: Archive) -> None:
    await archive.add_sample(CID, UMO, 1.0, 100, None)
    await archive.put_state(CID, "k", "v")
    (overview,) = await archive.conversations()
    assert (overview.umo, overview.last_sample) == (UMO, Sample(1.0, 100, None))
