"""Compactions from the order to the outcome."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from astrbot_plugin_compact.summary import compaction
from astrbot_plugin_compact.summary.archive import Archive
from astrbot_plugin_compact.summary.archive_types import SpanMessage, Stage
from astrbot_plugin_compact.summary.compaction import Compactions
from astrbot_plugin_compact.summary.engines import Job
from astrbot_plugin_compact.summary.errors import (
    ArchiveFailed,
    Busy,
    BusyOtherwise,
    CompactError,
    EmptySummary,
    HistoryChanged,
    HistoryCleared,
    LargeMessage,
    NoConversation,
    NoRoom,
    NotSmaller,
    NotSmallerAtAll,
    ProviderFailed,
    UnreadableHistory,
    Voided,
)
from astrbot_plugin_compact.summary.history import content_hash, parse_history
from astrbot_plugin_compact.summary.plan import PlanOptions, Skip, SkipReason
from astrbot_plugin_compact.summary.runs import HEAL, UNDO, Order, Outcome, Preview, Progress
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.contract.fake_host import ScriptedModel
from tests.unit.histories import (
    History,
    assistant,
    checkpoint,
    histories_and_options,
    raws,
    system,
    talk,
    user,
)
from tests.unit.runs import HEAD, SUMMARY, UMO, PlainEngine, PointedHost, Points, World, new_world

HISTORY = [system("persona"), *talk(3), checkpoint("a"), *talk(2), checkpoint("b")]


@dataclass
class Runs:
    """Compactions in a world, with an engine and a model to script."""

    world: World
    compactions: Compactions
    engine: PlainEngine = field(default_factory=PlainEngine)
    model: ScriptedModel = field(default_factory=ScriptedModel)
    events: list[Progress] = field(default_factory=list)

    def order(self, **changes: Any) -> Order:
        """What is asked for unless a test says otherwise."""
        model = self.model
        order = Order(
            umo=UMO,
            cid=self.world.cid,
            trigger="manual",
            engine=self.engine,
            job=Job(umo=UMO, model=model.info, window_tokens=128_000),
            model=model,
            keep_recent_ratio=0.3,
            min_messages=4,
        )
        return replace(order, **changes)

    async def run(self, *steps: Any, **changes: Any) -> Outcome | Skip:
        """Run an order; the model does these steps."""
        self.model.then(*steps)
        outcome = await self.compactions.run(self.order(**changes), self.events.append)
        self.model.assert_done()
        return outcome

    @property
    def stages(self) -> list[str]:
        """The stages told so far."""
        return [event.stage for event in self.events]


@pytest_asyncio.fixture
async def runs(tmp_path: Path) -> AsyncIterator[Runs]:
    async with new_world(tmp_path, HISTORY) as world:
        yield in_world(world)


def in_world(world: World) -> Runs:
    async def archive() -> Archive:
        return world.pointed_archive

    return Runs(world, Compactions(world.host, archive))


def waiting_model(gate: asyncio.Event, asked: asyncio.Event) -> Any:
    """A step that says it was asked and waits for the gate."""

    async def step(_request: Any) -> str:
        asked.set()
        await gate.wait()
        return SUMMARY

    return step


# --- a run


async def test_a_run_compacts_and_tells_of_it(runs: Runs) -> None:
    outcome = await runs.run(SUMMARY)
    assert isinstance(outcome, Outcome)
    assert outcome.summary == SUMMARY
    assert outcome.provider_id == "scripted"
    assert outcome.committed.number == 1
    assert runs.world.host.history(runs.world.cid)[1]["content"] == HEAD
    assert runs.stages == ["start", "step", "done"]
    assert runs.events[0].steps == 1
    assert (runs.events[1].step, runs.events[1].steps) == (1, 1)
    assert runs.events[2].outcome is outcome
    assert {(e.umo, e.cid, e.trigger) for e in runs.events} == {(UMO, runs.world.cid, "manual")}
    assert runs.compactions.running == {}


async def test_a_large_message_is_for_those_who_may(runs: Runs) -> None:
    runs.engine.has_large = True
    before = runs.world.host.history(runs.world.cid)
    with pytest.raises(LargeMessage) as refused:
        await runs.run(may_take_large=False)
    assert refused.value.fields == {"requests": 7}
    assert (runs.world.host.history(runs.world.cid), runs.stages) == (before, [])
    assert isinstance(await runs.run(SUMMARY, may_take_large=True), Outcome)


async def test_the_record_says_what_the_run_was(runs: Runs) -> None:
    job = replace(runs.order().job, focus="the budget")
    outcome = await runs.run(SUMMARY, job=job, trigger="auto")
    assert isinstance(outcome, Outcome)
    record = await runs.world.archive.by_id(outcome.committed.id)
    assert record is not None
    assert (record.trigger, record.engine, record.template) == ("auto", "plain", "work")
    assert (record.provider_id, record.model, record.focus) == ("scripted", "model-a", "the budget")
    assert (record.requests, record.structured, record.language) == (1, True, "en")


async def test_only_the_span_is_sent(runs: Runs) -> None:
    await runs.run(SUMMARY)
    (request,) = runs.model.requests
    assert "question 2" in request.user
    assert request.user.count("question 0") == 2
    assert request.user.count("question 1") == 1


async def test_a_second_run_at_once_has_nothing_to_do(runs: Runs) -> None:
    await runs.run(SUMMARY, min_messages=1)
    before = runs.world.text
    skipped = await runs.run(min_messages=1)
    assert isinstance(skipped, Skip)
    assert skipped.reason is SkipReason.NOTHING_NEW
    assert runs.world.text == before
    assert runs.stages == ["start", "step", "done"]


async def test_who_asks_for_it_gets_an_unchanged_history_compacted_again(runs: Runs) -> None:
    await runs.run(SUMMARY, keep_recent_ratio=0.3, min_messages=1)
    outcome = await runs.run("!", keep_recent_ratio=0, min_messages=1, explicit=True)
    assert isinstance(outcome, Outcome)
    assert outcome.committed.number == 2


async def test_a_new_message_makes_the_next_run_worth_it(runs: Runs) -> None:
    await runs.run(SUMMARY)
    text = runs.world.host.history(runs.world.cid)
    runs.world.host.write(runs.world.cid, [*text, *talk(3)])
    outcome = await runs.run("They met again.")
    assert isinstance(outcome, Outcome)
    record = await runs.world.archive.by_id(outcome.committed.id)
    assert record is not None
    assert record.summary_before == SUMMARY


async def test_the_engine_has_the_last_word_on_what_is_retained(runs: Runs) -> None:
    runs.engine.keep, runs.engine.most = [0, 1, 2], 1
    outcome = await runs.run(SUMMARY)
    assert isinstance(outcome, Outcome)
    assert outcome.committed.kept_messages == 1


async def test_what_the_host_trimmed_is_covered_once(runs: Runs) -> None:
    world = runs.world
    lost = [SpanMessage(m.raw, m.role, "x") for m in parse_history('[{"role": "user"}]')]
    batch = await world.archive.add_trimmed(UMO, world.cid, lost)
    outcome = await runs.run(SUMMARY)
    assert isinstance(outcome, Outcome)
    assert await world.archive.pending_trimmed(world.cid) == ()
    record = await world.archive.by_id(outcome.committed.id)
    assert record is not None
    assert record.covers_trimmed == (batch,)


REMINDER = "<system_reminder>User ID: 42, Nickname: Ann</system_reminder>"


async def test_the_archive_knows_who_said_what_and_when(runs: Runs) -> None:
    world = runs.world
    parts = [{"type": "text", "text": text} for text in ("reminded", REMINDER)]
    once, twice, both = user("said once"), user("said twice"), user("said by both")
    for message, user_id, seconds in [
        (once, "7", 1.0), (twice, "7", 2.0), (twice, "7", 3.0), (both, "7", 4.0), (both, "8", 5.0)
    ]:  # fmt: skip
        await world.archive.note_speaker(
            world.cid, content_hash(message), user_id, f"nick{user_id}", seconds
        )
    world.host.write(world.cid, [user(parts), once, twice, both, assistant("answer"), *HISTORY])
    outcome = await runs.run(SUMMARY)
    assert isinstance(outcome, Outcome)
    archived = await world.archive.messages(outcome.committed.id)
    assert [(m.text, m.speaker, m.time_seconds) for m in archived[:5]] == [
        ("reminded", "Ann(42)", None),
        ("said once", "nick7(7)", 1.0),
        ("said twice", "nick7(7)", None),
        ("said by both", None, None),
        ("answer", None, None),
    ]


async def test_a_head_of_another_conversation_is_known_here(runs: Runs) -> None:
    """The web chat copies a conversation's history into threads of it."""
    await runs.run(SUMMARY)
    copied = runs.world.host.history(runs.world.cid)
    cid = runs.world.host.add(UMO, [*copied, *talk(3)])
    layout, row = await runs.compactions.layout(cid)
    assert layout.head is not None
    assert (layout.head.summary, layout.head.ours) == (SUMMARY, True)
    assert row.cid == cid


# --- a preview


async def test_a_preview_asks_no_model_and_tells_nobody(runs: Runs) -> None:
    before = runs.world.text
    preview = await runs.compactions.preview(runs.order())
    assert isinstance(preview, Preview)
    assert preview.prepared.requests == 1
    assert runs.model.requests == []
    assert runs.events == []
    assert runs.world.text == before


async def test_a_run_does_what_the_preview_said(runs: Runs) -> None:
    preview = await runs.compactions.preview(runs.order())
    assert isinstance(preview, Preview)
    await runs.run(SUMMARY)
    tail = [item.data for item in preview.plan.tail]
    assert runs.world.host.history(runs.world.cid)[4:6] == tail


async def test_a_preview_of_nothing_says_why(runs: Runs) -> None:
    skipped = await runs.compactions.preview(runs.order(min_messages=99))
    assert isinstance(skipped, Skip)
    assert skipped.reason is SkipReason.TOO_FEW


async def test_a_preview_may_be_asked_for_during_a_run(runs: Runs) -> None:
    gate, asked = asyncio.Event(), asyncio.Event()
    run = asyncio.ensure_future(runs.run(waiting_model(gate, asked)))
    await asked.wait()
    assert isinstance(await runs.compactions.preview(runs.order()), Preview)
    gate.set()
    assert isinstance(await run, Outcome)


# --- not done


@pytest.mark.parametrize(
    "error",
    [
        ProviderFailed(provider="scripted", detail="429"),
        EmptySummary(provider="scripted"),
        RuntimeError("a fault of ours"),
    ],
    ids=["provider", "empty", "ours"],
)
async def test_a_failed_run_changes_nothing_and_says_so(runs: Runs, error: Exception) -> None:
    before = runs.world.text
    with pytest.raises(type(error)):
        await runs.run(error)
    assert runs.world.text == before
    assert runs.stages == ["start", "step", "error"]
    told = runs.events[-1].error
    assert told is error or (type(told) is CompactError and isinstance(error, RuntimeError))
    assert runs.compactions.running == {}
    assert await runs.world.archive.unsettled() == ()


async def test_a_summary_that_saves_nothing_is_not_kept(runs: Runs) -> None:
    before = runs.world.text
    with pytest.raises(NotSmaller) as kept:
        await runs.run(SUMMARY * 1_000)
    with pytest.raises(NotSmallerAtAll):  # which does not advise to keep nothing
        await runs.run(SUMMARY * 1_000, keep_recent_ratio=0)
    assert type(kept.value) is NotSmaller
    assert runs.world.text == before


async def test_a_missing_conversation_is_said_before_anything_starts(runs: Runs) -> None:
    with pytest.raises(NoConversation):
        await runs.run(cid="gone")
    assert runs.events == []


async def test_an_unreadable_row_is_said_before_anything_starts(runs: Runs) -> None:
    runs.world.host.write(runs.world.cid, '{"role": "user"}')
    with pytest.raises(UnreadableHistory):
        await runs.run()
    assert runs.events == []


async def test_an_engine_without_room_is_said_before_anything_starts(runs: Runs) -> None:
    def no_room(*_: Any) -> Any:
        raise NoRoom(window=1_000)

    runs.engine.prepare = no_room  # type: ignore[method-assign]
    with pytest.raises(NoRoom):
        await runs.run()
    assert runs.events == []


async def test_without_an_archive_no_model_is_asked(runs: Runs) -> None:
    async def closed() -> Archive:
        raise ArchiveFailed(detail="closed")

    runs.compactions = Compactions(runs.world.host, closed)
    with pytest.raises(ArchiveFailed):
        await runs.run()
    assert runs.model.requests == []


async def test_a_switched_conversation_is_left_alone(runs: Runs) -> None:
    def switch(_: Any) -> str:
        runs.world.host.add(UMO, [])
        return SUMMARY

    before = runs.world.text
    with pytest.raises(HistoryCleared):
        await runs.run(switch)
    assert runs.world.text == before


async def test_a_run_the_page_started_does_not_mind_a_switch(runs: Runs) -> None:
    runs.world.host.add(UMO, [])
    assert isinstance(await runs.run(SUMMARY, follow_current=False), Outcome)


async def test_a_change_of_the_span_meanwhile_fails_the_run(runs: Runs) -> None:
    def edit(_: Any) -> str:
        runs.world.host.write(runs.world.cid, [*HISTORY[:2], user("edited"), *HISTORY[3:]])
        return SUMMARY

    with pytest.raises(HistoryChanged):
        await runs.run(edit)
    assert runs.world.host.history(runs.world.cid)[2] == user("edited")


async def test_what_an_earlier_run_left_unfinished_is_settled_first(runs: Runs) -> None:
    def disk_full() -> None:
        raise ArchiveFailed(detail="disk full")

    runs.world.points.arm("before settle", disk_full)
    await runs.run(SUMMARY)
    (left,) = await runs.world.archive.unsettled()
    skipped = await runs.run(min_messages=1)
    assert isinstance(skipped, Skip)
    assert skipped.reason is SkipReason.NOTHING_NEW
    record = await runs.world.archive.by_id(left.id)
    assert record is not None
    assert record.stage is Stage.DONE


# --- one at a time


async def test_a_second_run_meanwhile_is_refused_and_asks_no_model(runs: Runs) -> None:
    gate, asked = asyncio.Event(), asyncio.Event()
    first = asyncio.ensure_future(runs.run(waiting_model(gate, asked)))
    await asked.wait()
    with pytest.raises(Busy):
        await runs.compactions.run(runs.order())
    gate.set()
    assert isinstance(await first, Outcome)
    assert len(runs.model.requests) == 1


async def test_of_two_runs_begun_in_one_moment_one_is_made(runs: Runs) -> None:
    runs.model.then(SUMMARY)
    order = runs.order()
    both = await asyncio.gather(
        *(runs.compactions.run(order) for _ in range(2)), return_exceptions=True
    )
    assert sorted(type(outcome).__name__ for outcome in both) == ["Busy", "Outcome"]
    runs.model.assert_done()


async def test_another_conversation_may_run_meanwhile(runs: Runs) -> None:
    other = runs.world.host.add("qq:FriendMessage:8", HISTORY)
    gate, asked = asyncio.Event(), asyncio.Event()
    first = asyncio.ensure_future(runs.run(waiting_model(gate, asked)))
    await asked.wait()
    runs.model.then(SUMMARY)
    outcome = await runs.compactions.run(runs.order(umo="qq:FriendMessage:8", cid=other))
    assert isinstance(outcome, Outcome)
    gate.set()
    await first


async def test_who_works_alone_keeps_runs_away(runs: Runs) -> None:
    async with runs.compactions.alone(UMO, runs.world.cid, UNDO):
        with pytest.raises(BusyOtherwise):
            await runs.run()
        assert not runs.compactions.is_compacting(runs.world.cid)
    assert isinstance(await runs.run(SUMMARY), Outcome)


async def test_a_run_waits_for_a_healing_that_nobody_asked_for(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with runs.compactions.alone(UMO, runs.world.cid, HEAL):
        run = asyncio.ensure_future(runs.run(SUMMARY))
        await asyncio.sleep(0.05)
        assert not run.done()
    async with asyncio.timeout(5):
        assert isinstance(await run, Outcome)

    monkeypatch.setattr(compaction, "_HEAL_SECONDS", 0.01)
    async with runs.compactions.alone(UMO, runs.world.cid, HEAL):
        with pytest.raises(BusyOtherwise):
            await runs.run()


# --- called off


async def test_a_run_called_off_while_the_model_works_writes_nothing(runs: Runs) -> None:
    asked = asyncio.Event()
    run = asyncio.ensure_future(runs.run(waiting_model(asyncio.Event(), asked)))
    await asked.wait()
    before, calls = runs.world.text, list(runs.world.points.passed)
    runs.compactions.running[runs.world.cid].void()
    with pytest.raises(Voided):
        await run
    assert runs.world.text == before
    assert runs.world.points.passed == calls
    assert isinstance(runs.events[-1].error, Voided)
    assert runs.compactions.running == {}


async def test_a_model_that_answers_a_cancellation_comes_too_late(runs: Runs) -> None:
    asked = asyncio.Event()

    async def stubborn(_: Any) -> str:
        asked.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return SUMMARY

    before = runs.world.text
    run = asyncio.ensure_future(runs.run(stubborn))
    await asked.wait()
    runs.compactions.running[runs.world.cid].void()
    with pytest.raises(Voided):
        await run
    assert runs.world.text == before


async def test_who_ran_it_can_go_on_after_a_run_called_off(runs: Runs) -> None:
    asked = asyncio.Event()

    async def run() -> int:
        with pytest.raises(Voided):
            await runs.run(waiting_model(asyncio.Event(), asked))
        async with asyncio.timeout(5):
            await asyncio.sleep(0)
        task = asyncio.current_task()
        assert task is not None
        return task.cancelling()

    task = asyncio.ensure_future(run())
    await asked.wait()
    for _ in range(2):
        runs.compactions.running[runs.world.cid].void()
    assert await task == 0


@pytest.mark.parametrize("point", ["before lock", "after read (2)", "before begin", "after begin"])
async def test_a_run_called_off_before_the_swap_writes_nothing(runs: Runs, point: str) -> None:
    def void() -> None:
        runs.compactions.running[runs.world.cid].void()

    before = runs.world.text
    runs.world.points.arm(point, void)
    assert isinstance(await runs.world.outcome(runs.run(SUMMARY)), Voided)
    assert runs.world.text == before
    assert runs.world.points.armed == []
    assert await runs.world.archive.list(runs.world.cid) == ()


@pytest.mark.parametrize("point", ["after swap", "before settle", "before unlock"])
async def test_a_run_called_off_after_the_swap_is_done(runs: Runs, point: str) -> None:
    async def void() -> None:
        runs.compactions.running[runs.world.cid].void()
        await asyncio.sleep(0)

    runs.world.points.arm(point, void)
    assert isinstance(await runs.world.outcome(runs.run(SUMMARY)), Outcome)
    assert runs.stages[-1] == "done"
    assert runs.world.points.armed == []


async def test_a_cancelled_run_is_cancelled_and_says_so(runs: Runs) -> None:
    asked = asyncio.Event()
    run = asyncio.ensure_future(runs.run(waiting_model(asyncio.Event(), asked)))
    await asked.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert isinstance(runs.events[-1].error, Voided)
    assert runs.compactions.running == {}


async def test_stop_ends_every_run_and_waits_for_it(runs: Runs) -> None:
    asked = asyncio.Event()
    run = asyncio.ensure_future(runs.run(waiting_model(asyncio.Event(), asked)))
    await asked.wait()
    await runs.compactions.stop()
    assert run.done()
    assert isinstance(run.exception(), Voided)


async def test_stop_lets_a_swap_be_finished(runs: Runs) -> None:
    swapped, go_on = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        swapped.set()
        await go_on.wait()

    runs.world.points.arm("after swap", hold)
    run = asyncio.ensure_future(runs.run(SUMMARY))
    await swapped.wait()
    stop = asyncio.ensure_future(runs.compactions.stop())
    await asyncio.sleep(0)
    assert not stop.done()
    go_on.set()
    await stop
    assert isinstance(run.result(), Outcome)
    assert await runs.world.archive.unsettled() == ()


# --- listeners


async def test_all_listeners_hear_of_every_run(runs: Runs) -> None:
    heard: list[str] = []
    end = runs.compactions.subscribe(lambda event: heard.append(event.stage))
    await runs.run(SUMMARY)
    assert heard == runs.stages == ["start", "step", "done"]
    end()
    runs.world.host.write(runs.world.cid, HISTORY)
    await runs.run(SUMMARY, explicit=True)
    assert heard == ["start", "step", "done"]


async def test_a_listener_that_fails_is_no_part_of_the_run(
    runs: Runs, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(event: Progress) -> None:
        raise ValueError(event.stage)

    heard: list[str] = []
    runs.compactions.subscribe(fail)
    runs.compactions.subscribe(lambda event: heard.append(event.stage))
    with caplog.at_level(logging.ERROR):
        assert isinstance(await runs.run(SUMMARY), Outcome)
    assert heard == runs.stages == ["start", "step", "done"]
    assert len(caplog.records) == 3


async def test_a_commit_that_waits_for_a_turn_tells_so(runs: Runs) -> None:
    told = asyncio.Event()
    runs.compactions.subscribe(lambda event: told.set() if event.stage == "wait" else None)
    async with runs.world.host.lock(UMO):
        run = asyncio.ensure_future(runs.run(SUMMARY))
        await asyncio.wait_for(told.wait(), 5)
    assert isinstance(await run, Outcome)
    assert runs.stages == ["start", "step", "wait", "done"]


# --- any history


@pytest.fixture(scope="module")
def runner_and_archive(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One archive for all examples; each has a conversation of its own."""
    with asyncio.Runner() as runner:
        archive = runner.run(Archive.open(tmp_path_factory.mktemp("archive") / "archive.db"))
        yield runner, archive
        runner.run(archive.close())


@settings(deadline=None)
@given(planned=histories_and_options(), keep=st.lists(st.integers(0, 9), max_size=3))
def test_right_after_a_run_there_is_nothing_to_do(
    runner_and_archive: tuple[asyncio.Runner, Archive],
    planned: tuple[History, PlanOptions],
    keep: list[int],
) -> None:
    runner, archive = runner_and_archive
    points = Points()
    runs = in_world(World(PointedHost(points), archive, points, planned[0].text))
    runner.run(_run_twice(runs, planned[1], keep))


async def _run_twice(runs: Runs, options: PlanOptions, keep: list[int]) -> None:
    asked = {
        "keep_recent_ratio": options.keep_recent_ratio,
        "min_messages": options.min_messages,
        "line_tokens": options.line_tokens,
        "count_line": options.count_line,
    }
    preview = await runs.compactions.preview(runs.order(**asked))
    before = runs.world.text
    if isinstance(preview, Skip):
        assert isinstance(await runs.run(**asked), Skip)
        assert runs.world.text == before
        return
    runs.engine.keep = [index for index in keep if index < len(preview.plan.span)]
    runs.model.then("x")
    try:
        await runs.run(**asked)
    except NotSmaller:
        assert raws(parse_history(runs.world.text)) == raws(parse_history(before))
        return
    after = runs.world.text
    assert isinstance(await runs.run(**asked), Skip)
    assert runs.world.text == after
