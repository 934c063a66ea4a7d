"""A plan on a history that the host trimmed meanwhile: nothing is lost, nothing passed over."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from astrbot_plugin_compact.summary.archive import Archive
from astrbot_plugin_compact.summary.archive_types import SpanMessage
from astrbot_plugin_compact.summary.errors import HistoryChanged, NotSmaller
from astrbot_plugin_compact.summary.heads import ACKNOWLEDGEMENT, HEAD_PREFIX
from astrbot_plugin_compact.summary.history import parse_history, stored_as
from astrbot_plugin_compact.summary.plan import CompactionPlan, PlanOptions, plan_compaction
from astrbot_plugin_compact.summary.trims import Trims, TrimsSince
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.unit.histories import (
    assistant,
    call,
    checkpoint,
    history,
    raws,
    result,
    spelled,
    talk,
    user,
)
from tests.unit.runs import UMO, PointedHost, Points, World, new_world

Message = dict[str, Any]

_words = st.sampled_from(["yes", "go on", "word " * 30, "词语" * 40, "word " * 400])
_rounds = st.builds(
    lambda question, steps, answer, record: [
        user(question),
        *(m for n in range(steps) for m in (call(f"c{n}"), result(f"c{n}", "found " * 30))),
        assistant(answer),
        *record,
    ],
    _words,
    st.sampled_from([0, 0, 1, 2]),
    _words,
    st.sampled_from([[], [checkpoint()]]),
)
_histories = st.lists(_rounds, min_size=2, max_size=6).map(
    lambda rounds: [message for messages in rounds for message in messages]
)
_HOST_PAIR = [user(HEAD_PREFIX + "They talked."), assistant(ACKNOWLEDGEMENT)]


def starts_of_rounds(messages: Sequence[Message]) -> list[int]:
    return [n for n, message in enumerate(messages) if message["role"] == "user"]


@pytest.fixture(scope="module")
def runner_and_archive(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[asyncio.Runner, Archive]]:
    """One archive for all examples; each has a conversation of its own."""
    with asyncio.Runner() as runner:
        archive = runner.run(Archive.open(tmp_path_factory.mktemp("archive") / "archive.db"))
        yield runner, archive
        runner.run(archive.close())


@settings(deadline=None)
@given(
    messages=_histories,
    newcomers=st.sampled_from([[], talk(1)]),
    start=st.integers(0, 99),
    lead=st.sampled_from(["nothing", "first request", "pair"]),
    ratio=st.sampled_from([0, 0.15, 0.3]),
)
def test_a_trim_of_the_host_loses_nothing(
    runner_and_archive: tuple[asyncio.Runner, Archive],
    messages: list[Message],
    newcomers: list[Message],
    start: int,
    lead: str,
    ratio: float,
) -> None:
    runner, archive = runner_and_archive
    starts = starts_of_rounds(messages)
    first = starts[start % len(starts)]
    in_front = {"nothing": [], "first request": messages[:1], "pair": _HOST_PAIR}[lead]
    trimmed = [*(in_front if first else []), *messages[first:], *newcomers]
    points = Points()
    world = World(PointedHost(points), archive, points, messages)
    plan = plan_compaction(history(messages).layout, PlanOptions(ratio, 1), (), "")
    assume(isinstance(plan, CompactionPlan))
    runner.run(_commit_after_trim(world, [*messages, *newcomers], trimmed, ratio))


async def _commit_after_trim(
    world: World, whole: list[Message], trimmed: list[Message], ratio: float
) -> None:
    draft = world.draft(ratio)
    trims = Trims()
    draft = replace(draft, trims=TrimsSince(trims, world.cid))
    dropped = parse_history(spelled(_less(whole, trimmed)))
    if dropped:
        batch = [SpanMessage(m.raw, m.role, "") for m in dropped]
        await world.archive.add_trimmed(UMO, world.cid, batch)
    world.host.write(world.cid, trimmed)
    trims.archived(world.cid)
    try:
        done = await world.commit(draft)
    except NotSmaller:
        assert world.host.history(world.cid) == trimmed
        return
    record = await world.archive.by_id(done.id)
    assert record is not None
    archived = [m.raw for m in await world.archive.messages(done.id)]
    row = raws(parse_history(world.text))
    everywhere = Counter([*row, *record.head_before_raw, *archived, *raws(dropped)])
    held = Counter(raws(parse_history(spelled([m for m in whole if not is_checkpoint(m)]))))
    assert held <= everywhere
    # What the summary does not cover is still in the history, or waits for the next one.
    span = Counter(item.message.raw for unit in draft.plan.span for item in unit.items)
    pending = await world.archive.pending_trimmed(world.cid)
    assert held - span <= Counter([*row, *(m.raw for batch in pending for m in batch.messages)])


def is_checkpoint(message: Message) -> bool:
    return message["role"] == "_checkpoint"


def _less(whole: Sequence[Message], kept: Sequence[Message]) -> list[Message]:
    """What of a history is gone, the earliest of equal messages first; no checkpoints."""
    spare = Counter(spelled([message]) for message in kept)
    gone: list[Message] = []
    for message in reversed(whole):
        key = spelled([message])
        if spare[key] > 0:
            spare[key] -= 1
        elif not is_checkpoint(message):
            gone.insert(0, message)
    return gone


# --- by example


async def committed_after(
    tmp_path: Path, messages: list[Message], now: list[Message], dropped: list[Message]
) -> list[Message]:
    """What a commit leaves behind the head of a history that the host trimmed."""
    async with trimmed_world(tmp_path, messages, now, dropped) as world:
        after: list[Message] = world.host.history(world.cid)
    return [m for m in after if not is_checkpoint(m)][1 + (after[1] == _HOST_PAIR[1]) :]


async def pending_after(
    tmp_path: Path, messages: list[Message], now: list[Message], dropped: list[Message]
) -> list[Message]:
    """What of the host's droppings waits for the next compaction."""
    async with trimmed_world(tmp_path, messages, now, dropped) as world:
        batches = await world.archive.pending_trimmed(world.cid)
    return [dict(stored_as(m.raw).data) for batch in batches for m in batch.messages]


@asynccontextmanager
async def trimmed_world(
    tmp_path: Path, messages: list[Message], now: list[Message], dropped: list[Message]
) -> AsyncIterator[World]:
    """A compaction committed after the host trimmed, what it dropped in the archive."""
    async with new_world(tmp_path, messages) as world:
        trims = Trims()
        draft = replace(world.draft(0.3), trims=TrimsSince(trims, world.cid))
        batch = [SpanMessage(m.raw, m.role, "") for m in parse_history(spelled(dropped))]
        await world.archive.add_trimmed(UMO, world.cid, batch)
        world.host.write(world.cid, now)
        trims.archived(world.cid)
        await world.commit(draft)
        yield world


async def test_of_rounds_alike_the_last_one_is_the_tail(tmp_path: Path) -> None:
    alike = [user("yes " * 90), assistant("word " * 40)]
    kept = await committed_after(tmp_path, [*alike, *alike], [alike[0], *alike], [alike[1]])
    assert kept == alike


async def test_after_a_trim_the_tail_and_newcomers_stay(tmp_path: Path) -> None:
    whole = talk(6)
    kept = await committed_after(tmp_path, whole, [*whole[4:], *talk(1, 2)], whole[:4])
    assert kept == [*whole[10:], *talk(1, 2)]


async def test_what_the_summary_does_not_cover_waits_for_the_next(tmp_path: Path) -> None:
    whole = [user("word " * 400), assistant("!"), *talk(5)]
    pending = await pending_after(tmp_path, whole, [whole[0], *whole[11:]], [*whole[1:11]])
    assert pending == whole[1:11]


async def test_what_the_summary_covers_is_covered(tmp_path: Path) -> None:
    whole = [user("word " * 400), assistant("!"), *talk(5)]
    assert await pending_after(tmp_path, whole, [whole[0], *whole[6:]], whole[1:6]) == []


async def test_a_host_summary_of_more_than_ours_stays(tmp_path: Path) -> None:
    whole = [user("word " * 400), assistant("!"), *talk(5)]
    pair = [user(HEAD_PREFIX + "They talked. " * 99), assistant(ACKNOWLEDGEMENT)]
    kept = await committed_after(tmp_path, whole, [*pair, whole[11]], whole[:11])
    assert kept == [*pair, whole[11]]


async def test_a_host_summary_of_what_ours_covers_goes(tmp_path: Path) -> None:
    whole = [user("word " * 400), assistant("!"), *talk(5)]
    pair = [user(HEAD_PREFIX + "They talked. " * 99), assistant(ACKNOWLEDGEMENT)]
    kept = await committed_after(tmp_path, whole, [*pair, *whole[8:]], whole[:8])
    assert kept == whole[8:]


async def test_a_message_that_is_gone_and_not_archived_fails_the_run(tmp_path: Path) -> None:
    whole = talk(6)
    with pytest.raises(HistoryChanged):
        await committed_after(tmp_path, whole, whole[4:], whole[:3])


async def test_an_edit_besides_the_trim_fails_the_run(tmp_path: Path) -> None:
    whole = talk(6)
    edited = [whole[4], assistant("edited"), *whole[6:]]
    with pytest.raises(HistoryChanged):
        await committed_after(tmp_path, whole, edited, whole[:4])
