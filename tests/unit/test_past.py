"""Which past a history goes on from, and which is dead (spec 3.4, 3.5)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from astrbot_plugin_compact.summary import compaction
from astrbot_plugin_compact.summary.archive import Compaction
from astrbot_plugin_compact.summary.errors import EmptyAfterUndo, HistoryCleared
from astrbot_plugin_compact.summary.healing import Healed
from astrbot_plugin_compact.summary.history import Stored
from astrbot_plugin_compact.summary.plan import Skip
from astrbot_plugin_compact.summary.runs import Preview
from astrbot_plugin_compact.summary.wakeups import NOTICE

from tests.contract.fake_bot import (
    FILLER,
    UMO,
    FakeBot,
    Gate,
    arguments,
    host_summary,
    is_compacted,
    keep_turns,
    model,
    pending,
    seed,
    talk,
)


async def trimmed(bot: FakeBot) -> None:
    """A conversation of which the host has dropped M-1 to M-4."""
    seed(bot, talk(1, 6))
    await bot.turn("M-7", trim=keep_turns(2))
    await bot.looked_through()
    assert any("M-1 " in text for text in await pending(bot))


async def preview_of(bot: FakeBot) -> Preview:
    choice = await bot.service.host.choose(UMO, "", "carrying")
    order = await bot.service.order(UMO, arguments(bot), "manual", choice)
    preview = await bot.service.compactions.preview(order)
    assert isinstance(preview, Preview)
    return preview


def texts(messages: list[dict[str, str]]) -> list[str]:
    return [message["content"] for message in messages]


async def test_what_waited_before_a_clearing_is_in_no_summary_of_what_others_filled_in(
    bot: FakeBot,
) -> None:
    await trimmed(bot)
    bot.reset()
    seed(bot, talk(30, 36))

    await bot.compact()

    assert "M-30 " in model(bot).requests[-1].user
    assert "M-1 " not in model(bot).requests[-1].user
    assert await pending(bot) == []


async def test_a_preview_neither_shows_nor_buries_it(bot: FakeBot) -> None:
    await trimmed(bot)
    waiting, before = await pending(bot), bot.host.history(bot.host.current[UMO])
    seed(bot, talk(30, 36))

    preview = await preview_of(bot)

    assert preview.plan.trimmed == ()
    assert await pending(bot) == waiting
    seed(bot, before)
    assert (await preview_of(bot)).plan.trimmed


async def test_what_an_undo_put_back_lives_on(bot: FakeBot) -> None:
    """The host dropped it, a summary covered it, an undo took that back: it waits again.

    All that was said since is edited away: what is left, only the undo has put there.
    """
    seed(bot, talk(1, 6))
    await bot.turn(f"M-7 {FILLER * 9}", trim=host_summary(1))
    await bot.looked_through()
    await bot.compact()
    await bot.turn("M-8")
    await bot.looked_through()
    await bot.undo()
    pair = bot.host.history(bot.host.current[UMO])[:2]
    seed(bot, [*pair, *talk(20, 21)])

    await bot.compact()

    assert "M-1 " in model(bot).requests[-1].user


async def test_what_was_dropped_and_put_back_lives_on(bot: FakeBot) -> None:
    """Long after it was dropped; nothing of the latest turns is left."""
    await trimmed(bot)
    for number in range(8, 14):
        await bot.turn(f"M-{number} {FILLER}", trim=keep_turns(2))
        await bot.looked_through()
    seed(bot, talk(2, 3))

    await bot.compact()

    assert "M-1 " in model(bot).requests[-1].user


def job(number: int) -> list[dict[str, Any]]:
    """What AstrBot appends after a scheduled job, in a turn no plugin sees."""
    return [
        {"role": "user", "content": NOTICE},
        {"role": "assistant", "content": f"Job {number % 2} is done."},
    ]


def tools(count: int) -> list[dict[str, Any]]:
    """A turn of so many tool steps."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Look everywhere!"}]
    for number in range(count):
        call = {"id": f"c{number}", "type": "function", "function": {"name": "f", "arguments": ""}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": "nothing"})
    return [*messages, {"role": "assistant", "content": "There is nothing."}]


@pytest.mark.parametrize("in_a_turn", [False, True], ids=["run", "turn"])
@pytest.mark.parametrize(
    "added", [[m for n in range(7) for m in job(n)], tools(9)], ids=["jobs", "tool steps"]
)
async def test_what_was_said_without_us_does_not_hide_the_past(
    bot: FakeBot, added: list[dict[str, Any]], in_a_turn: bool
) -> None:
    """Scheduled jobs, or all turns while the plugin was off."""
    await trimmed(bot)
    cid = bot.host.current[UMO]
    seed(bot, [*bot.host.history(cid), *added])
    if in_a_turn:
        await bot.turn(f"M-8 {FILLER}")
        await bot.looked_through()

    await bot.compact()

    assert "M-1 " in model(bot).requests[-1].user


async def test_the_middle_of_a_history_tells_too(bot: FakeBot) -> None:
    """Neither end is one that it ever had while we looked."""
    roles = ("user", "assistant")
    seed(bot, [{"role": roles[n % 2], "content": f"M-{n}"} for n in range(60)])
    await bot.turn("M-60", trim=keep_turns(25))
    await bot.looked_through()
    assert await pending(bot)
    cid = bot.host.current[UMO]
    seed(bot, [*bot.host.history(cid), *tools(20)])

    assert (await preview_of(bot)).plan.trimmed


async def test_an_edit_of_the_last_rounds_does_not_hide_the_past(bot: FakeBot) -> None:
    seed(bot, talk(1, 20))
    await bot.turn("M-21", trim=keep_turns(15))
    await bot.looked_through()
    cid = bot.host.current[UMO]
    seed(bot, bot.host.history(cid)[:6])

    await bot.compact()

    assert "M-1 " in model(bot).requests[-1].user


async def test_the_same_job_before_and_after_a_clearing_ties_nothing(bot: FakeBot) -> None:
    seed(bot, talk(1, 6))
    await bot.compact()
    cid = bot.host.current[UMO]
    seed(bot, [*bot.host.history(cid), *job(0)])
    await bot.turn("M-8")
    await bot.looked_through()
    bot.reset()
    seed(bot, job(0))

    given, seen = await bot.turn("M-9")
    await bot.looked_through()

    assert "M-1" not in given.system_text + str(seen)
    await bot.turn(f"M-10 {FILLER * 9}")
    await bot.compact()
    assert "M-1 " not in model(bot).requests[-1].user


FACT = {"role": "user", "content": "Remember that the user likes tea."}


@pytest.mark.parametrize(
    "plugin",
    [
        lambda made: [FACT, *made],
        lambda made: [{"role": "system", "content": "Today is fine."}, *made],
        lambda made: [*made, {**FACT, "_no_save": True}],
    ],
    ids=["said", "system", "not saved"],
)
async def test_what_a_plugin_puts_into_each_request_ties_nothing(
    bot: FakeBot, plugin: Callable[[list[Any]], list[Any]]
) -> None:
    seed(bot, talk(1, 6))
    await bot.compact()
    await bot.turn("M-8", plugin=plugin)
    await bot.looked_through()
    bot.reset()

    for number in (9, 10):
        given, seen = await bot.turn(f"M-{number}", plugin=plugin)
        await bot.looked_through()
        assert "M-1" not in given.system_text + str([m for m in seen if "M-10" not in str(m)])


async def test_a_plugin_that_rewrites_each_request_does_not_hide_the_summary(bot: FakeBot) -> None:
    seed(bot, talk(1, 6))
    await bot.compact()
    await bot.turn("M-8", trim=keep_turns(1))
    await bot.looked_through()

    given, _ = await bot.turn(
        "M-9", plugin=lambda made: [{**m, "content": f"> {m['content']}"} for m in made]
    )

    assert "M-1" in given.system_text


async def test_an_undo_never_leaves_an_empty_history(slow: FakeBot, gate: Gate) -> None:
    """It would count as cleared, and what the host had trimmed be lost to the next summary."""
    seed(slow, talk(1, 20))
    await slow.turn("M-30", usage=6_900)
    await gate.reached.wait()
    await slow.turn("M-31", trim=keep_turns(1))
    trims = slow.service.compactions.trims
    await trims.more_than(trims.looked_through)
    gate.open.set()
    await slow.looked_through()
    assert is_compacted(slow)
    history = slow.host.history(slow.host.current[UMO])
    last = next(n for n, m in enumerate(history) if str(m["content"]).startswith("M-31"))
    cid = seed(slow, history[:last])
    before = slow.host.rows[cid].text

    with pytest.raises(EmptyAfterUndo):
        await slow.undo()

    assert slow.host.rows[cid].text == before
    given, seen = await slow.turn("M-32")
    assert "M-1 " in given.system_text + str(seen)


@pytest.mark.parametrize(
    ("checkpoint", "lives"), [("again-1", True), ("new-1", False), ("", False)]
)
async def test_a_round_that_is_had_again_ends_no_past(
    bot: FakeBot, checkpoint: str, lives: bool
) -> None:
    """Its history is empty as after /reset where it was the only round left."""
    seed(bot, talk(1, 6))
    await bot.compact()
    seed(bot, [])

    given, _ = await bot.turn("M-9", checkpoint_id=checkpoint)
    await bot.looked_through()

    assert ("M-1" in given.system_text) is lives
    given, _ = await bot.turn("M-10")
    assert ("M-1" in given.system_text) is lives


async def test_a_summary_corrected_by_hand_is_the_one_that_counts(bot: FakeBot) -> None:
    """The old one is neither given to the chat's model nor to the next summary's."""
    seed(bot, talk(1, 6))
    await bot.compact()
    cid = bot.host.current[UMO]
    history = bot.host.history(cid)
    history[0] = {**history[0], "content": history[0]["content"].replace("M-1", "M-ONE")}
    seed(bot, [*history, *talk(8, 9)])

    given, _ = await bot.turn(f"M-10 {FILLER * 9}")
    await bot.looked_through()
    await bot.compact()

    assert given.system_text == ""
    assert given.recallable
    assert "M-ONE" in model(bot).requests[-1].user
    assert "M-1 " not in model(bot).requests[-1].user


async def test_what_a_wake_up_did_not_put_back_lives_on(bot: FakeBot) -> None:
    seed(bot, talk(1, 6))
    await bot.compact()
    for number in range(8, 16):
        await bot.turn(f"M-{number}")
        await bot.looked_through()
    cid = seed(bot, [*talk(1, 4), *talk(40, 40)])
    assert await bot.watch.wakeups.heal(UMO, cid) is Healed.UNDONE

    await bot.compact()

    assert "M-5 " in model(bot).requests[-1].user


@pytest.mark.parametrize(
    "changed",
    [{"contexts": talk(40, 46)}, {"plugin": lambda _: talk(40, 46)}],
    ids=["made by a plugin", "changed by a plugin"],
)
async def test_a_request_with_other_messages_that_was_not_saved_buries_nothing(
    bot: FakeBot, changed: dict[str, Any]
) -> None:
    await trimmed(bot)
    await bot.turn("M-50", saves=False, **changed)
    await bot.looked_through()

    await bot.turn(f"M-8 {FILLER}")
    await bot.looked_through()
    await bot.compact()

    assert "M-1 " in model(bot).requests[-1].user


async def test_a_run_over_trimmed_messages_takes_in_no_other_history(
    slow: FakeBot, gate: Gate
) -> None:
    """All it read was dropped and archived; what stands there now was never a part of it."""
    seed(slow, talk(1, 20))
    await slow.turn("M-30", usage=6_900)
    await gate.reached.wait()
    await slow.turn("M-31", trim=keep_turns(1))
    trims = slow.service.compactions.trims
    await trims.more_than(trims.looked_through)
    assert await pending(slow)
    slow.reset()
    seed(slow, talk(40, 46))
    gate.open.set()
    await slow.looked_through()

    assert slow.texts() == texts(talk(40, 46))


async def test_a_past_buried_while_it_is_read_is_in_no_summary(
    bot: FakeBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    await trimmed(bot)
    bot.reset()
    seed(bot, talk(30, 36))
    archive = await bot.service.archive()
    latest = archive.latest

    async def buried_first(cid: str) -> Compaction | None:
        await archive.mark_cleared(cid)
        return await latest(cid)

    monkeypatch.setattr(archive, "latest", buried_first)
    await bot.compact()

    assert "M-30 " in model(bot).requests[-1].user
    assert "M-1 " not in model(bot).requests[-1].user


async def test_a_run_whose_trimmed_part_was_buried_meanwhile_gives_way(
    slow: FakeBot, gate: Gate
) -> None:
    await trimmed(slow)
    run = asyncio.create_task(slow.compact())
    await gate.reached.wait()
    cid = slow.host.current[UMO]
    await (await slow.service.archive()).mark_cleared(cid)
    seed(slow, [*slow.host.history(cid), *talk(40, 40)])
    before = slow.texts()
    gate.open.set()

    with pytest.raises(HistoryCleared):
        await run
    assert slow.texts() == before


async def test_there_is_nothing_to_wait_for_in_an_empty_history(bot: FakeBot) -> None:
    await trimmed(bot)
    gate = Gate()
    turn = asyncio.create_task(bot.turn("M-8", during=gate))
    await gate.reached.wait()
    bot.reset()

    async with asyncio.timeout(1):
        assert isinstance(await bot.compact(), Skip)
    gate.open.set()
    await turn


async def test_a_run_waits_for_a_turn_that_makes_its_history_look_foreign(
    bot: FakeBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """AstrBot's own summary is all that is left, and nobody has looked at that turn yet."""
    await trimmed(bot)
    gates = [Gate(), Gate(), Gate()]
    turns = [
        # All of them wait for the session: each is looked through when the last is over.
        asyncio.create_task(bot.turn(f"M-8 {FILLER * 9}", during=gates[0])),
        asyncio.create_task(bot.turn("M-9", trim=host_summary(1), during=gates[1])),
        asyncio.create_task(bot.turn(f"M-10 {FILLER * 9}", during=gates[2])),
    ]
    for gate in gates[:2]:
        await gate.reached.wait()
        gate.open.set()
    await gates[2].reached.wait()
    stages: list[str] = []
    bot.service.compactions.subscribe(lambda progress: stages.append(progress.stage))
    monkeypatch.setattr(compaction, "PATIENCE_SECONDS", 0.01)
    run = asyncio.create_task(bot.compact())
    await asyncio.sleep(0.1)
    asked_before, told_before = len(model(bot).requests), list(stages)
    gates[2].open.set()
    await asyncio.gather(*turns, run)

    assert asked_before == 0
    assert told_before == ["wait"]
    assert "M-1 " in model(bot).requests[-1].user
    assert "M-8 " in model(bot).requests[-1].user + " ".join(await pending(bot))


async def test_a_turn_looked_through_late_does_not_undo_what_a_later_one_noted(
    bot: FakeBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    await trimmed(bot)
    dump = bot.host.dump

    def slowly(messages: Sequence[Any]) -> list[Stored]:
        if messages and messages[-1]["content"].startswith("re: M-8"):
            time.sleep(0.2)
        return dump(messages)

    monkeypatch.setattr(bot.host, "dump", slowly)
    await bot.turn("M-8", trim=host_summary(3))
    await bot.turn(f"M-9 {FILLER * 9}", trim=host_summary(1, "later"))
    await bot.looked_through()

    await bot.compact()
    assert "M-1 " in model(bot).requests[-1].user


async def test_a_queue_of_turns_does_not_put_off_their_looking_through(bot: FakeBot) -> None:
    """A busy group: whenever a turn ends, two others wait for the session already."""

    async def model_works() -> None:
        await asyncio.sleep(0.03)

    def say(number: int) -> asyncio.Task[Any]:
        return asyncio.create_task(bot.turn(f"M-{number}", during=model_works))

    turns = [say(number) for number in range(3)]
    while len(turns) < 40:
        await turns[-3]
        turns.append(say(len(turns)))
    behind = len(turns) - bot.service.compactions.trims.looked_through
    await asyncio.gather(*turns)
    await bot.looked_through()

    assert behind <= 10


async def test_the_end_of_a_turn_is_what_the_runner_holds_last(bot: FakeBot) -> None:
    """AstrBot puts a new list in the place of the old one where it trims."""
    lists = [[{"role": "user", "content": "M-1"}]]
    turn = bot.begun(UMO, bot.host.current[UMO], [])
    turn.agent_begins(lambda: lists[-1])
    lists.append([{"role": "user", "content": "M-2"}])

    assert turn.final is lists[-1]
