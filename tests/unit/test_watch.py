"""What becomes of turns: what is dropped is archived, summaries are carried (spec 3.4)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from astrbot_plugin_compact.summary.core_settings import CoreCompression
from astrbot_plugin_compact.summary.errors import ProviderFailed
from astrbot_plugin_compact.summary.heads import ACKNOWLEDGEMENT, HEAD_PREFIX
from astrbot_plugin_compact.summary.turns import Turn
from astrbot_plugin_compact.summary.wakeups import NOTICE
from astrbot_plugin_compact.summary.watch import Watch

from tests.contract.fake_bot import (
    FILLER,
    UMO,
    FakeBot,
    Gate,
    host_summary,
    is_compacted,
    keep_turns,
    model,
    pending,
    seed,
    talk,
)


async def recorded(bot: FakeBot) -> list[str]:
    """The texts of everything in the archive."""
    archive = await bot.service.archive()
    raws: list[str] = []
    for record in await archive.list(bot.host.current[UMO], 99):
        for batch in (record.id, *record.covers_trimmed):
            raws += [message.raw for message in await archive.messages(batch)]
    return [str(json.loads(raw)["content"]) for raw in raws] + await pending(bot)


# --- what the host drops


async def test_what_turn_trimming_drops_is_archived_and_in_the_next_summary(bot: FakeBot) -> None:
    seed(bot, talk(1, 6))

    await bot.turn("M-7", trim=keep_turns(3))
    await bot.looked_through()

    dropped = [m["content"] for m in talk(1, 6)]
    assert await pending(bot) == dropped[:8]
    await bot.compact()
    read = " ".join(request.user for request in model(bot).requests)
    assert all(text.strip() in read for text in dropped[:8])


async def test_what_the_host_s_own_compression_drops_is_archived(bot: FakeBot) -> None:
    seed(bot, talk(1, 6))

    await bot.turn("M-7", trim=host_summary(3))
    await bot.looked_through()

    assert await pending(bot) == [m["content"] for m in talk(1, 6)][:-2]


async def test_trimming_and_compressing_in_one_turn_lose_nothing(bot: FakeBot) -> None:
    seed(bot, talk(1, 8))

    await bot.turn("M-9", trim=lambda messages: host_summary(3)(keep_turns(5)(messages)))
    await bot.looked_through()

    stored = await pending(bot) + bot.texts()
    assert all(m["content"] in stored for m in talk(1, 8))


async def test_what_is_dropped_between_tool_steps_is_archived(bot: FakeBot) -> None:
    """The messages of the turn itself, dropped in the same turn."""
    seed(bot, talk(1, 4))
    step = [
        {"role": "assistant", "content": "M-77 calling"},
        {"role": "user", "content": "M-78 a notice"},
    ]

    await bot.turn("M-5", trim=host_summary(1), steps=[(step, None), ([], host_summary(1))])
    await bot.looked_through()

    stored = " ".join(await pending(bot) + bot.texts())
    assert all(mark in stored for mark in ("M-1 ", "M-4 ", "M-5", "M-77", "M-78"))


STEP = [{"role": "assistant", "content": "calling"}, {"role": "tool", "content": "a result"}]


@pytest.mark.parametrize("turns", [-1, 6])
async def test_in_a_tool_loop_the_model_is_reminded_when_the_summary_goes(
    bot: FakeBot, turns: int
) -> None:
    """Before the host trims by turns where its limit is known, else behind that."""
    seed(bot, talk(1, 6))
    await bot.compact()
    for number in range(7, 10):
        await bot.turn(f"M-{number}")
        await bot.looked_through()
    bot.host.settings = CoreCompression(max_turns=turns)
    seen: list[str] = []

    def trim(messages: list[Any]) -> list[Any]:
        kept = keep_turns(6)(messages)
        seen.append(str(kept))
        return kept

    await bot.turn("M-10", steps=[(STEP, trim)] * 6)
    await bot.looked_through()

    assert ["M-1 " in text for text in seen].count(False) == (0 if turns > 0 else 1)
    assert not any("M-1 " in text for text in bot.texts())
    assert "M-7" in await pending(bot)


@pytest.mark.parametrize(("usage", "is_reminded"), [(6_600, True), (6_500, False), (None, False)])
async def test_in_a_tool_loop_the_model_is_reminded_before_the_host_compresses(
    bot: FakeBot, usage: int | None, is_reminded: bool
) -> None:
    seed(bot, talk(1, 6))
    await bot.compact()
    _, seen = await bot.turn("M-8", usage=usage, steps=[(STEP, None)] * 2)
    assert [m["role"] for m in seen].count("system") == is_reminded
    assert [text for text in bot.texts() if "M-1 " in text] == bot.texts()[:1]


async def test_of_equal_messages_as_many_are_archived_as_are_gone(bot: FakeBot) -> None:
    seed(bot, [{"role": r, "content": c} for r, c in [("user", "好"), ("assistant", "嗯")] * 6])

    await bot.turn("好", trim=keep_turns(2))
    await bot.looked_through()

    assert (await pending(bot)).count("好") + bot.texts().count("好") == 7


async def test_a_turn_that_ends_without_a_reply_is_looked_through_too(bot: FakeBot) -> None:
    seed(bot, talk(1, 6))

    await bot.turn("M-7", trim=keep_turns(3), answers=False)
    await bot.looked_through()

    stored = await pending(bot) + bot.texts()
    assert all(m["content"] in stored for m in talk(1, 6))


async def test_a_trimmed_turn_that_was_not_saved_archives_nothing(bot: FakeBot) -> None:
    seed(bot, talk(1, 6))

    await bot.turn("M-7", trim=keep_turns(3), saves=False)
    await bot.looked_through()

    assert await pending(bot) == []
    assert bot.texts() == [m["content"] for m in talk(1, 6)]


async def test_a_summary_the_archive_does_not_know_is_archived_when_dropped(bot: FakeBot) -> None:
    seed(bot, [*host_summary(0, "M-99")([])[:2], *talk(1, 6)])

    await bot.turn("M-7", trim=keep_turns(2))
    await bot.turn("M-8", trim=keep_turns(2))
    await bot.looked_through()

    assert any("M-99" in text for text in await pending(bot) + bot.texts())


async def test_a_stop_in_the_middle_of_a_trimming_turn_archives_what_is_gone(
    bot: FakeBot,
) -> None:
    """The plugin is reloaded while the model answers; the host saves afterwards."""
    seed(bot, talk(1, 6))

    await bot.turn("M-7", trim=keep_turns(3), during=bot.watch.stop)

    stored = await pending(bot) + bot.texts()
    assert all(m["content"] in stored for m in talk(1, 6))


async def test_a_turn_begun_before_a_reload_is_followed_by_the_new_watch(bot: FakeBot) -> None:
    """Nothing is archived twice, and what is dropped after the reload is archived as well."""
    cid = seed(bot, talk(1, 6))
    old = bot.begun(UMO, cid, talk(1, 6))
    async with bot.host.lock(UMO):
        messages: list[Any] = [*old.contexts, {"role": "user", "content": "M-7"}]
        current = [messages]
        old.agent_begins(lambda: current[0])
        current[0] = keep_turns(4)(messages)
        await bot.watch.stop()
        bot.watch = Watch(bot.service, bot.watch.automatic._notify)
        new = Turn.adopted(old)
        assert new is not None
        bot.watch.follow(new)
        current[0] = keep_turns(2)(current[0])
        bot.host.write(cid, current[0])
    await bot.looked_through()

    stored = await pending(bot) + bot.texts()
    assert sorted(stored) == sorted([*(m["content"] for m in talk(1, 6)), "M-7"])


# --- the summary survives, and dies with its conversation


async def compacted(bot: FakeBot) -> None:
    seed(bot, talk(1, 6))
    await bot.compact()
    assert is_compacted(bot)


async def test_a_summary_in_the_history_is_not_said_twice(bot: FakeBot) -> None:
    await compacted(bot)

    given, _ = await bot.turn("M-8")

    assert given.system_text == ""


async def test_a_summary_that_is_about_to_be_trimmed_is_in_the_system_prompt(bot: FakeBot) -> None:
    await compacted(bot)
    bot.host.settings = CoreCompression(max_turns=2)
    await bot.turn("M-8")

    given, seen = await bot.turn("M-9", trim=keep_turns(2))

    assert not any(HEAD_PREFIX in str(m["content"]) for m in seen)
    assert "M-1" in given.system_text


async def test_a_trimmed_summary_is_known_until_the_next_compaction(bot: FakeBot) -> None:
    await compacted(bot)
    bot.host.settings = CoreCompression(max_turns=2)
    for number in range(8, 13):
        given, seen = await bot.turn(f"M-{number} {FILLER}", trim=keep_turns(2))
        known = given.system_text + " ".join(str(m["content"]) for m in seen)
        assert "M-1" in known
        await bot.looked_through()
    await bot.compact()

    given, _ = await bot.turn("M-13")

    assert "M-1 " in bot.texts()[0]
    assert "M-8" in bot.texts()[0]
    assert given.system_text == ""


async def test_after_a_clearing_nothing_of_it_is_given(bot: FakeBot) -> None:
    await compacted(bot)
    bot.host.settings = CoreCompression(max_turns=2)
    for number in range(8, 12):
        await bot.turn(f"M-{number}", trim=keep_turns(2))

    bot.reset()

    for number in range(20, 23):
        given, _ = await bot.turn(f"M-{number}")
        assert given.system_text == ""
        await bot.looked_through()


async def test_a_clearing_right_after_the_swap_is_heard(slow: FakeBot, gate: Gate) -> None:
    """No turn in between has noted anything."""
    seed(slow, talk(1, 6))
    run = asyncio.create_task(slow.compact())
    await gate.reached.wait()
    gate.open.set()
    await run
    slow.reset()

    await slow.turn("M-20")
    given, _ = await slow.turn("M-21")

    assert given.system_text == ""


async def test_a_history_edited_into_another_one_forgets_the_summary(bot: FakeBot) -> None:
    await compacted(bot)
    await bot.turn("M-8")
    await bot.looked_through()
    seed(bot, talk(30, 32))

    given, _ = await bot.turn("M-33")

    assert given.system_text == ""


async def test_a_request_that_another_plugin_emptied_forgets_nothing(bot: FakeBot) -> None:
    await compacted(bot)
    turn = bot.begun(UMO, bot.host.current[UMO], [])
    async with bot.host.lock(UMO):
        await bot.watch.begin(turn)
    await bot.looked_through()
    bot.host.settings = CoreCompression(max_turns=1)

    given, _ = await bot.turn("M-8", trim=keep_turns(1))

    assert "M-1" in given.system_text


async def test_after_an_undo_the_summary_is_not_given(bot: FakeBot) -> None:
    await compacted(bot)
    await bot.turn("M-8")
    await bot.undo()

    given, _ = await bot.turn("M-9")

    assert given.system_text == ""


async def test_a_queued_request_gets_the_history_as_it_is_now(bot: FakeBot) -> None:
    """Before 4.29.0 a handler's request holds the history it read before the swap."""
    await compacted(bot)

    given, seen = await bot.turn("M-8", contexts=talk(1, 6))

    assert str(seen[0]["content"]).startswith(HEAD_PREFIX)
    assert given.system_text == ""


# --- a run in flight


async def test_usage_is_capped_while_a_run_is_in_flight(slow: FakeBot, gate: Gate) -> None:
    """Else the host would compress the same text a second time, in the user's turn."""
    seed(slow, talk(1, 20))
    await slow.turn("M-30", usage=6_900)
    await gate.reached.wait()

    given, _ = await slow.turn("M-31")

    assert given.usage_cap == 6_560
    gate.open.set()
    await slow.looked_through()
    given, _ = await slow.turn("M-32")
    assert given.usage_cap is None


async def test_usage_over_95_percent_is_not_capped(slow: FakeBot, gate: Gate) -> None:
    seed(slow, talk(1, 20))
    await slow.turn("M-30", usage=7_700)
    await gate.reached.wait()

    given, _ = await slow.turn("M-31")

    assert given.usage_cap is None
    gate.open.set()


async def test_a_run_is_committed_on_a_history_trimmed_meanwhile(slow: FakeBot, gate: Gate) -> None:
    """A busy group: the host drops the oldest in each of the turns that pass."""
    seed(slow, talk(1, 20))
    await slow.turn("M-30", usage=6_900)
    await gate.reached.wait()
    slow.host.settings = CoreCompression(max_turns=18)
    for number in range(31, 36):
        await slow.turn(f"M-{number}", trim=keep_turns(18))
    gate.open.set()
    await slow.looked_through()

    assert is_compacted(slow)
    texts = slow.texts()
    assert [text for text in texts if text.startswith("M-3")][-5:] == [
        f"M-{n}" for n in range(31, 36)
    ]
    head = texts[0]
    assert all(f"M-{n} " in head for n in range(1, 15))
    assert await pending(slow) == []
    assert len(set(texts)) == len(texts)


@pytest.mark.parametrize("keep", [1, 3, 7])
async def test_a_run_is_committed_over_the_host_s_own_summary(
    slow: FakeBot, gate: Gate, keep: int
) -> None:
    """It covers no more than ours does; else the run gives way."""
    seed(slow, talk(1, 20))
    await slow.turn("M-30", usage=6_900)
    await gate.reached.wait()
    await slow.turn("M-31", trim=host_summary(keep, "M-1"))
    gate.open.set()
    await slow.looked_through()

    stored = await recorded(slow) + slow.texts()
    assert "M-31" in stored
    assert all(message["content"] in stored for message in talk(1, 20))
    # Every message is in our summary, or waits for the next one behind the host's.
    covered = "M-1 M-2 " in slow.texts()[0]
    assert covered or len(await pending(slow)) == 43 - keep


async def test_a_history_changed_by_another_writer_is_not_taken_for_trimmed(
    slow: FakeBot, gate: Gate
) -> None:
    seed(slow, talk(1, 20))
    await slow.turn("M-30", usage=6_900)
    await gate.reached.wait()
    edited = talk(5, 20)
    seed(slow, edited)
    gate.open.set()
    await slow.looked_through()

    assert slow.texts() == [m["content"] for m in edited]


async def test_a_trim_is_no_licence_for_another_writer(slow: FakeBot, gate: Gate) -> None:
    """What the user deleted after the trim is in no archive: it must not be summarised back."""
    seed(slow, talk(1, 20))
    await slow.turn("M-30", usage=6_900)
    await gate.reached.wait()
    await slow.turn("M-31", trim=keep_turns(18))
    edited = slow.host.history(slow.host.current[UMO])[6:]
    seed(slow, edited)
    gate.open.set()
    await slow.looked_through()

    assert slow.texts() == [m["content"] for m in edited]


# --- wake-ups


async def test_an_old_history_put_back_is_healed_without_a_model_call(bot: FakeBot) -> None:
    old = talk(1, 6)
    await compacted(bot)
    seed(bot, [*old, *talk(40, 60)])

    # The put-back history is over the line; what is left of it after the healing need not be.
    await bot.turn("M-61", usage=6_900)
    await bot.looked_through()

    texts = bot.texts()
    assert is_compacted(bot)
    assert sum(text.startswith("M-1 ") for text in texts) == 0
    assert "M-61" in texts
    assert len(model(bot).requests) == 1


async def test_an_older_history_put_back_counts_as_undone_and_loses_nothing(bot: FakeBot) -> None:
    """The wake-up read the history before the last two rounds of the span were said."""
    await compacted(bot)
    span_end = 5
    seed(bot, [*talk(1, span_end - 1), *talk(40, 40)])

    await bot.turn("M-41")
    await bot.looked_through()

    state = await bot.compression.status(UMO)
    assert state.last is not None
    assert state.last.undone
    stored = " ".join(await pending(bot) + bot.texts())
    assert all(f"M-{n} " in stored for n in range(1, span_end + 1))


async def test_a_commit_waits_for_a_wake_up(slow: FakeBot, gate: Gate) -> None:
    seed(slow, talk(1, 20))
    await slow.watch.wakeups.begun(UMO)
    await slow.turn("M-30", usage=6_900)
    await gate.reached.wait()
    gate.open.set()
    while not slow.service.compactions.holds.waiting:  # noqa: ASYNC110 (a counter, no event)
        await asyncio.sleep(0)
    assert not is_compacted(slow)

    slow.watch.wakeups.ended(UMO)
    seed(slow, [*talk(1, 20), {"role": "user", "content": NOTICE}, *talk(50, 50)[1:]])
    await slow.looked_through()

    assert is_compacted(slow)
    assert slow.texts()[-2:] == [NOTICE, talk(50, 50)[1]["content"]]


async def test_what_a_wake_up_has_put_back_is_healed_without_a_turn(bot: FakeBot) -> None:
    """It read the history before the swap and was noted only after it."""
    await compacted(bot)
    await bot.watch.wakeups.begun(UMO)
    bot.watch.wakeups.ended(UMO)
    seed(bot, [*talk(1, 6), {"role": "user", "content": NOTICE}, *talk(50, 50)[1:]])

    await bot.looked_through()

    assert is_compacted(bot)
    assert bot.texts()[-2:] == [NOTICE, talk(50, 50)[1]["content"]]
    assert len(model(bot).requests) == 1


# --- the cost in the turn


class Counted(list[Any]):
    """A history that counts how many of its messages were looked at."""

    looked = 0

    def __iter__(self) -> Any:
        for each in super().__iter__():
            Counted.looked += 1
            yield each

    def __getitem__(self, key: Any) -> Any:
        got = super().__getitem__(key)
        Counted.looked += len(got) if isinstance(key, slice) else 1
        return got

    def __reversed__(self) -> Any:
        for each in super().__reversed__():
            Counted.looked += 1
            yield each


async def test_the_request_hook_looks_at_as_few_messages_of_a_long_history(bot: FakeBot) -> None:
    """Whatever its length, and whether the summary stands in it or was trimmed away."""
    await compacted(bot)
    head = bot.host.history(bot.host.current[UMO])
    bot.host.settings = CoreCompression(max_turns=4)
    for front in (head, []):
        looked: list[int] = []
        for rounds in (100, 5_000):
            history = Counted([*front, *talk(1, 1) * rounds, *head[-2:]])
            turn = bot.begun(UMO, bot.host.current[UMO], history)
            Counted.looked = 0
            async with bot.host.lock(UMO):
                await bot.watch.begin(turn)
                looked.append(Counted.looked)
            await bot.watch.stop()
        assert looked[1] <= looked[0] + 4


# --- failures


async def test_a_failed_run_leaves_the_history_and_is_put_off(bot: FakeBot) -> None:
    seed(bot, talk(1, 20))
    model(bot).failure = ProviderFailed(provider="x", detail="429")

    attempts = []
    for number in range(1, 33):
        before = len(model(bot).requests)
        await bot.turn(f"M-{number + 100}", usage=6_900)
        await bot.looked_through()
        if len(model(bot).requests) > before:
            attempts.append(number)

    assert attempts == [1, 3, 7, 15, 31]
    assert len(bot.texts()) == 40 + 64


async def test_a_run_whose_whole_span_was_trimmed_meanwhile_is_committed(
    slow: FakeBot, gate: Gate
) -> None:
    """The new history is bigger than what the host has left, and smaller than what was said."""
    seed(slow, talk(1, 20))
    await slow.turn("M-30", usage=6_900)
    await gate.reached.wait()
    await slow.turn("M-31", trim=keep_turns(1))
    gate.open.set()
    await slow.looked_through()

    assert is_compacted(slow)
    assert "M-31" in slow.texts()
    assert "M-1 " in slow.texts()[0]
    assert slow.watch.automatic._backoffs[slow.host.current[UMO]].failures == 0


async def test_a_queued_request_s_old_history_is_not_judged(bot: FakeBot) -> None:
    """Its forty messages are over the count line; the history it was given is not."""
    seed(bot, talk(1, 20))
    await bot.compact()
    bot.host.settings = CoreCompression(max_turns=15)

    await bot.turn("M-30", contexts=talk(1, 20), usage=500)
    await bot.looked_through()

    assert len(model(bot).requests) == 1


async def test_an_archive_that_fails_disturbs_no_turn(bot: FakeBot, tmp_path: Path) -> None:
    await compacted(bot)
    await bot.service.stop()
    (tmp_path / "archive.db").write_bytes(b"no archive" * 1_000)
    bot.watch.lives.changed(bot.host.current[UMO])

    given, _ = await bot.turn("M-8", trim=keep_turns(1))
    await bot.looked_through()

    assert given.system_text == ""
    assert bot.texts()[-1] == "re: M-8"


async def test_what_was_dropped_before_a_clearing_is_not_in_a_later_summary(bot: FakeBot) -> None:
    """The clearing and the next turn come between the turn's end and its looking through."""
    seed(bot, talk(1, 6))

    async def clear_and_talk() -> None:
        bot.reset()
        await bot.turn("M-20")

    bot.host.interfere("read", clear_and_talk)

    await bot.turn("M-7", trim=keep_turns(3))
    await bot.looked_through()

    assert bot.texts() == ["M-20", "re: M-20"]
    assert await pending(bot) == []


# --- other plugins


async def pending_texts(bot: FakeBot) -> list[str]:
    archive = await bot.service.archive()
    cid = await bot.service.conversation(UMO)
    return [m.text for batch in await archive.pending_trimmed(cid) for m in batch.messages]


@pytest.mark.parametrize("is_compacted_before", [False, True])
async def test_what_a_plugin_takes_out_of_a_request_is_archived(
    bot: FakeBot, is_compacted_before: bool
) -> None:
    seed(bot, talk(1, 6))
    if is_compacted_before:
        await bot.compact()
    before = [text for text in bot.texts() if not text.startswith(HEAD_PREFIX)]
    before = [text for text in before if text != ACKNOWLEDGEMENT]
    await bot.turn("one", plugin=lambda _: [])
    await bot.looked_through()
    assert bot.texts() == ["one", "re: one"]
    assert await pending_texts(bot) == before
    await bot.turn("two", plugin=lambda messages: messages[1:])
    await bot.looked_through()
    assert await pending_texts(bot) == [*before, "one"]


@pytest.mark.parametrize("copies", [False, True], ids=["as they are", "copies"])
async def test_what_a_plugin_had_put_in_is_not_archived_when_it_takes_it_out(
    bot: FakeBot, copies: bool
) -> None:
    """A text of its own in each request, as memories and prompts are, the last one taken out."""

    def plugin(made: list[Any]) -> list[Any]:
        rest = [m for m in made if not m["content"].startswith("memory")]
        rest = [dict(message) for message in rest] if copies else rest
        return [{"role": "user", "content": f"memory {len(made)}"}, *rest]

    seed(bot, talk(1, 3))
    for number in range(4, 8):
        await bot.turn(f"M-{number}", plugin=plugin)
        await bot.looked_through()
    assert await pending_texts(bot) == []

    # What others say is theirs, also where it is the same: as many as it put in are let go.
    await bot.turn("memory 12", plugin=plugin)
    await bot.looked_through()
    await bot.turn("M-9", plugin=lambda made: [m for m in made if "memory" not in m["content"]])
    await bot.looked_through()
    assert await pending_texts(bot) == ["memory 12", "re: memory 12"]


async def test_of_a_history_rewritten_in_every_turn_the_words_said_are_archived_once(
    bot: FakeBot,
) -> None:
    def plugin(made: list[Any]) -> list[Any]:
        return [{**m, "content": f"> {m['content']}"} for m in made]

    seed(bot, talk(1, 2))
    said = [message["content"] for message in talk(1, 2)]
    for number in range(3, 7):
        await bot.turn(f"M-{number}", plugin=plugin)
        await bot.looked_through()
        if number > 3:
            said += [f"M-{number - 1}", f"re: M-{number - 1}"]
    assert await pending_texts(bot) == said


@pytest.mark.parametrize(
    "plugin",
    [
        lambda messages: [dict(message) for message in messages],
        lambda messages: messages,
        lambda messages: [{"role": "user", "content": "extra"}, *messages],
    ],
)
async def test_a_plugin_that_takes_nothing_out_archives_nothing(bot: FakeBot, plugin: Any) -> None:
    seed(bot, talk(1, 6))
    await bot.turn("one", plugin=plugin)
    await bot.looked_through()
    assert await pending_texts(bot) == []

    # Copies are the talk all the same.
    await bot.turn("two", plugin=lambda made: [m for m in made if "M-1 " not in m["content"]])
    await bot.looked_through()
    assert await pending_texts(bot) == [talk(1, 1)[0]["content"]]


def picture(last: str) -> dict[str, Any]:
    url = "data:image/jpeg;base64," + "A" * 600 + last
    return {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}


@pytest.mark.parametrize(
    ("taken", "left"),
    [
        ({"role": "user", "content": "好"}, {"role": "user", "content": "好"}),
        (picture("B"), picture("C")),
        (
            {"role": "user", "content": "x" * 500 + "B" + "x" * 500},
            {"role": "user", "content": "x" * 500 + "C" + "x" * 500},
        ),
    ],
    ids=["equal", "pictures", "long texts"],
)
async def test_what_a_plugin_takes_out_is_archived_though_one_like_it_stays(
    bot: FakeBot, taken: dict[str, Any], left: dict[str, Any]
) -> None:
    said = {"role": "assistant", "content": "I see."}
    seed(bot, [taken, said, left, said, *talk(1, 2)])

    await bot.turn("M-3", plugin=lambda made: made[1:])
    await bot.looked_through()

    archive = await bot.service.archive()
    batches = await archive.pending_trimmed(bot.host.current[UMO])
    assert [json.loads(m.raw) for batch in batches for m in batch.messages] == [taken]


async def test_texts_that_a_plugin_parts_otherwise_are_the_same(bot: FakeBot) -> None:
    parts = [{"type": "text", "text": "M-1"}, {"type": "text", "text": "and more"}]
    seed(bot, [{"role": "user", "content": parts}, *talk(2, 2)[1:], *talk(3, 4)])
    joined = {"role": "user", "content": "M-1\nand more"}

    await bot.turn("M-5", plugin=lambda made: [joined, *made[1:]])
    await bot.looked_through()

    assert await pending_texts(bot) == []


async def test_a_picture_that_a_plugin_replaces_is_archived(bot: FakeBot) -> None:
    said = {"role": "assistant", "content": "I see."}
    seed(bot, [picture("B"), said, *talk(1, 2)])

    await bot.turn("M-3", plugin=lambda made: [picture("C"), *made[1:]])
    await bot.looked_through()

    archive = await bot.service.archive()
    batches = await archive.pending_trimmed(bot.host.current[UMO])
    assert [json.loads(m.raw) for batch in batches for m in batch.messages] == [picture("B")]


async def test_the_count_line_that_is_shown_is_the_one_that_is_judged_by(bot: FakeBot) -> None:
    """A persona's begin dialogs count for AstrBot, and so does our summary."""
    bot.host.settings = CoreCompression(max_turns=20)
    cid = seed(bot, talk(1, 6))
    persona = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Meow"}]
    turn = bot.begun(UMO, cid, [*persona, *talk(1, 6)], begin_dialogs=2)
    said = [{"role": "user", "content": "M-7"}, {"role": "assistant", "content": "re: M-7"}]
    turn.agent_begins(lambda: [*turn.contexts, *said])
    turn.answered = True
    bot.watch.follow(turn)
    await bot.looked_through()

    before = await bot.compression.status(UMO)
    assert before.count_line == 40 - 4 - 2
    bot.service._known_begin_dialogs.clear()  # as a restart does
    assert (await bot.compression.status(UMO)).count_line == 40 - 4 - 2
    await bot.compact()
    assert (await bot.compression.status(UMO)).count_line == 40 - 4 - 2 - 2
