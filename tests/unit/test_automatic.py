"""Automatic runs: few at once, judged again when their turn comes, failures counted (spec 3)."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from astrbot_plugin_compact.summary.errors import ProviderFailed
from astrbot_plugin_compact.summary.runs import Outcome, Progress

from tests.contract.fake_bot import FILLER, UMO, CarryingModel, FakeBot, model, new_bot
from tests.unit.test_watch import Gate, is_compacted, seed, talk

OVER = 6_900


async def due(bot: FakeBot, umo: str = UMO) -> None:
    """A turn that reaches the line."""
    await bot.turn("M-90", umo=umo, usage=OVER)


def backoff_of(bot: FakeBot) -> Any:
    return bot.watch.automatic.backoff(bot.host.current[UMO])


async def test_no_more_than_two_run_at_once_and_all_are_done(tmp_path: Path) -> None:
    gate = Gate(2)
    model = CarryingModel(gate)
    async with new_bot(tmp_path, model) as bot:
        umos = [f"qq:FriendMessage:{number}" for number in range(50)]
        for umo in umos:
            bot.host.add(umo, talk(1, 20))
        await asyncio.gather(*(due(bot, umo) for umo in umos))
        await gate.reached.wait()
        gate.open.set()
        await bot.looked_through()

        assert model.most_at_once == 2
        assert len(model.requests) == 50
        assert all(bot.texts(umo)[0].startswith("Our previous") for umo in umos)
        assert sorted(bot.notices) == sorted(umos)


async def test_who_waited_is_judged_again(tmp_path: Path) -> None:
    """By hand it was compacted meanwhile: nothing is left to do."""
    gate = Gate()
    model = CarryingModel(gate)
    async with new_bot(tmp_path, model, max_parallel=1) as bot:
        first, second = "qq:FriendMessage:1", UMO
        for umo in (first, second):
            bot.host.add(umo, talk(1, 20))
        await due(bot, first)
        await gate.reached.wait()
        await due(bot, second)
        by_hand = asyncio.create_task(bot.compact(second))
        gate.open.set()
        await by_hand
        await bot.looked_through()

        assert isinstance(by_hand.result(), Outcome)
        assert len(model.requests) == 2


async def test_who_waited_is_not_run_once_it_is_switched_off(tmp_path: Path) -> None:
    gate = Gate()
    model = CarryingModel(gate)
    async with new_bot(tmp_path, model, max_parallel=1) as bot:
        for umo in ("qq:FriendMessage:1", UMO):
            bot.host.add(umo, talk(1, 20))
        await due(bot, "qq:FriendMessage:1")
        await gate.reached.wait()
        await due(bot)
        bot.service.settings = replace(bot.service.settings, auto_compact=False)
        gate.open.set()
        await bot.looked_through()

        assert len(model.requests) == 1
        assert not is_compacted(bot)


async def test_a_session_that_switched_while_it_waited_is_left_alone(tmp_path: Path) -> None:
    """The other conversation was not due."""
    gate = Gate()
    model = CarryingModel(gate)
    async with new_bot(tmp_path, model, max_parallel=1) as bot:
        bot.host.add("qq:FriendMessage:1", talk(1, 20))
        bot.host.add(UMO, talk(1, 20))
        await due(bot, "qq:FriendMessage:1")
        await gate.reached.wait()
        await due(bot)
        bot.host.add(UMO, talk(50, 70))
        gate.open.set()
        await bot.looked_through()

        assert len(model.requests) == 1
        assert bot.texts() == [m["content"] for m in talk(50, 70)]


async def test_a_missing_provider_counts_and_is_warned_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with new_bot(tmp_path, CarryingModel(), compress_tokens=3_000) as bot:
        bot.host.add(UMO, talk(1, 20))
        bot.host.session_model = None
        bot.host.models = {}
        with caplog.at_level(logging.WARNING):
            for number in range(1, 8):
                await bot.turn(f"M-{number}", usage=OVER)
                await bot.looked_through()

        assert (await backoff_of(bot)).failures == 3
        assert sum("NoProvider" in record.getMessage() for record in caplog.records) == 1


async def test_what_was_called_off_neither_counts_nor_resets(tmp_path: Path) -> None:
    gate = Gate()
    model = CarryingModel(gate)
    async with new_bot(tmp_path, model) as bot:
        bot.host.add(UMO, talk(1, 20))
        await due(bot)
        await gate.reached.wait()
        bot.service.compactions.running[bot.host.current[UMO]].void()
        await bot.looked_through()

        assert (await backoff_of(bot)).failures == 0
        assert not is_compacted(bot)


async def test_a_success_by_hand_forgets_failures_and_a_failure_by_hand_does_not(
    tmp_path: Path,
) -> None:
    model = CarryingModel()
    async with new_bot(tmp_path, model) as bot:
        bot.host.add(UMO, talk(1, 20))
        model.failure = ProviderFailed(provider="x", detail="429")
        await due(bot)
        await bot.looked_through()
        with pytest.raises(ProviderFailed):
            await bot.compact()
        assert (await backoff_of(bot)).failures == 1

        model.failure = None
        await bot.compact()
        await bot.watch.automatic.settle()

        assert (await backoff_of(bot)).failures == 0


async def test_failures_are_remembered_over_a_restart(tmp_path: Path) -> None:
    model = CarryingModel()
    model.failure = ProviderFailed(provider="x", detail="429")
    async with new_bot(tmp_path, model) as bot:
        bot.host.add(UMO, talk(1, 20))
        host = bot.host
        await due(bot)
        await bot.looked_through()
    async with new_bot(tmp_path, model, host) as bot:
        for _ in range(2):
            await due(bot)
            await bot.looked_through()

    assert len(model.requests) == 2


async def test_after_an_undo_the_next_runs_wait_also_over_a_restart(tmp_path: Path) -> None:
    summarizer = CarryingModel()
    async with new_bot(tmp_path, summarizer) as bot:
        bot.host.add(UMO, talk(1, 20))
        host = bot.host
        assert await bot.watch.automatic.undone(bot.host.current[UMO]) == 8
        for _ in range(4):
            await due(bot)
            await bot.looked_through()
    async with new_bot(tmp_path, summarizer, host) as bot:
        for _ in range(3):
            await due(bot)
            await bot.looked_through()
        assert len(summarizer.requests) == 0
        await due(bot)
        await bot.looked_through()
        assert len(summarizer.requests) == 1
        assert (await backoff_of(bot)).failures == 0


async def test_a_low_count_line_is_reached_again_only_after_some_turns(tmp_path: Path) -> None:
    async with new_bot(tmp_path, CarryingModel(), history_limit=3, min_messages=2) as bot:
        bot.host.add(UMO, talk(1, 3))
        runs = []
        for number in range(4, 12):
            await bot.turn(f"M-{number} {FILLER * 2}")
            await bot.looked_through()
            runs.append(len(model(bot).requests))
    assert runs == [1, 1, 2, 2, 3, 3, 4, 4]


async def test_a_clearing_forgets_failures(tmp_path: Path) -> None:
    model = CarryingModel()
    model.failure = ProviderFailed(provider="x", detail="429")
    async with new_bot(tmp_path, model) as bot:
        bot.host.add(UMO, talk(1, 20))
        await due(bot)
        await bot.looked_through()
        bot.reset()
        await bot.turn("M-1")
        await bot.looked_through()
        seed(bot, [*talk(1, 20), *bot.host.history(bot.host.current[UMO])])
        await due(bot)
        await bot.looked_through()

        assert len(model.requests) == 2


async def test_everyone_hears_of_a_run_and_a_nothing_to_do_is_silent(tmp_path: Path) -> None:
    model = CarryingModel()
    async with new_bot(tmp_path, model) as bot:
        bot.host.add(UMO, talk(1, 1))
        heard: list[Progress] = []
        end = bot.compression.subscribe(heard.append)
        await bot.compact()
        assert heard == []

        seed(bot, talk(1, 20))
        await due(bot)
        await bot.looked_through()
        assert [progress.stage for progress in heard] == ["start", "step", "done"]
        assert {progress.trigger for progress in heard} == {"auto"}

        model.failure = ProviderFailed(provider="x", detail="429")
        seed(bot, talk(1, 20))
        with pytest.raises(ProviderFailed):
            await bot.compact()
        assert [progress.stage for progress in heard][-1] == "error"
        end()
        model.failure = None
        await bot.compact()
        assert [progress.stage for progress in heard][-1] == "error"


async def test_a_stop_ends_runs_and_what_waits(tmp_path: Path) -> None:
    gate = Gate()
    async with new_bot(tmp_path, CarryingModel(gate), max_parallel=1) as bot:
        for umo in ("qq:FriendMessage:1", UMO):
            bot.host.add(umo, talk(1, 20))
        await due(bot, "qq:FriendMessage:1")
        await gate.reached.wait()
        await due(bot)

        await bot.watch.stop()
        await bot.service.stop()

        assert bot.service.compactions.running == {}
        assert not is_compacted(bot)
