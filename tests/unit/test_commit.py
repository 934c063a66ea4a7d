"""A summary put in place of what it covers, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from astrbot_plugin_compact.summary import commit as commit_module
from astrbot_plugin_compact.summary.archive import Archive
from astrbot_plugin_compact.summary.archive_types import Compaction, Stage
from astrbot_plugin_compact.summary.commit import Committed, Draft
from astrbot_plugin_compact.summary.errors import (
    ArchiveDamaged,
    ArchiveFailed,
    CompactError,
    ErasedSince,
    HistoryChanged,
    HistoryCleared,
    NotSmaller,
    UnreadableHistory,
    Voided,
)
from astrbot_plugin_compact.summary.heads import ACKNOWLEDGEMENT, KnownHead, text_hash
from astrbot_plugin_compact.summary.history import Stored, dump_history, parse_history
from astrbot_plugin_compact.summary.plan import (
    CompactionPlan,
    PlanOptions,
    plan_compaction,
    read_layout,
)
from astrbot_plugin_compact.summary.rebase import rebase
from astrbot_plugin_compact.summary.records import (
    after_swap,
    last_message,
    prefix_messages,
    same_message,
    settle_unfinished,
)
from astrbot_plugin_compact.summary.undo import undo
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.archives import change
from tests.contract.fake_host import FakeHost
from tests.unit.histories import (
    ESTIMATE,
    History,
    answered_results,
    assistant,
    call,
    checkpoint,
    histories,
    histories_and_options,
    history,
    raws,
    result,
    spelled,
    system,
    talk,
    user,
)
from tests.unit.runs import HEAD, SUMMARY, UMO, PointedHost, Points, World, new_world

HISTORY = [system("persona"), *talk(2), checkpoint("a"), *talk(2), checkpoint("b"), *talk(1)]

# Every place a clean run passes, in order. What breaks is broken at each of them.
LOOKING = [
    "before lock",
    "after lock",
    "stands",
    "before read",
    "after read",
    "stands (2)",
    "before begin",
]
WRITING = ["after begin", "before number", "after number", "stands (3)", "before swap"]
WRITTEN = ["after swap", "before settle", "after settle"]
LEAVING = ["before unlock"]
POINTS = [*LOOKING, *WRITING, *WRITTEN, *LEAVING]


@pytest_asyncio.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with new_world(tmp_path, HISTORY) as made:
        yield made


async def only_record(world: World) -> Compaction | None:
    """The one record there is, in whatever stage."""
    found = [await world.archive.by_id(id_) for id_ in range(1, 4)]
    (record,) = [record for record in found if record is not None] or [None]
    return record


def boom() -> None:
    raise RuntimeError("boom")


def disk_full() -> None:
    raise ArchiveFailed(detail="disk full")


# --- a clean run


async def test_a_commit_passes_these_points(world: World) -> None:
    await world.commit(world.draft())
    assert world.points.passed == POINTS


async def test_the_row_is_head_and_tail_and_its_usage_is_forgotten(world: World) -> None:
    before = parse_history(world.text)
    await world.commit(world.draft(0.3))
    after = parse_history(world.text)
    assert raws(after[:1]) == raws(before[:1])
    assert after[1].data["content"] == HEAD
    assert raws(after[4:]) == raws(before[-2:])
    assert world.host.rows[world.cid].token_usage == 0


async def test_the_span_is_archived_as_it_was_stored(world: World) -> None:
    before = parse_history(world.text)
    done = await world.commit(world.draft(0.3, keep=[0]))
    archived = await world.archive.messages(done.id)
    assert [m.raw for m in archived] == raws(before[1:-2])
    assert [m.kept for m in archived] == [True, *[False] * 9]
    assert [bool(m.text) for m in archived] == [not m.is_checkpoint for m in before[1:-2]]


async def test_the_numbers_said_are_true(world: World) -> None:
    before = parse_history(world.text)
    done = await world.commit(world.draft(0.3, keep=[0]))
    after = parse_history(world.text)
    assert (done.number, done.kept_messages) == (1, 1)
    assert (done.messages_before, done.messages_after) == (11, 6)
    assert done.tokens_before == sum(ESTIMATE.message(m.data) for m in before)
    assert done.tokens_after == sum(ESTIMATE.message(m.data) for m in after)
    record = await world.archive.latest(world.cid)
    assert record is not None
    assert (record.id, record.number, record.stage) == (done.id, 1, Stage.DONE)
    assert (record.summary, record.summary_before) == (SUMMARY, None)
    assert (record.head_hash, record.head_before_raw) == (text_hash(HEAD), ())
    assert (record.messages_before, record.messages_after) == (11, 6)
    assert (record.message_count, record.kept_count) == (10, 1)
    assert prefix_messages(record.prefix_json)[0].data["content"] == HEAD


async def test_the_replaced_head_is_remembered_as_stored(world: World) -> None:
    await world.commit(world.draft())
    world.host.write(world.cid, [*world.host.history(world.cid), *talk(3)])
    head = parse_history(world.text)[1:4]
    done = await world.commit(world.draft())
    record = await world.archive.by_id(done.id)
    assert record is not None
    assert list(record.head_before_raw) == raws(head)
    assert record.summary_before == SUMMARY
    assert done.number == 2


async def test_what_the_swap_left_is_known_to_the_next_plan(world: World) -> None:
    await world.commit(world.draft(0.3, keep=[0]))
    record = await world.archive.latest(world.cid)
    assert record is not None
    head = KnownHead(SUMMARY, True)
    layout = read_layout(parse_history(world.text), ESTIMATE.message, {record.head_hash: head}.get)
    left = after_swap(record)
    assert left.head_hash == text_hash(HEAD)
    assert left.dialog_messages == len(layout.dialog) == 3
    assert left.last_message == last_message(layout.dialog, world.host)
    assert last_message((), world.host) == ""


# --- a fault at every await


async def settled_outcome(world: World) -> Any:
    """Run with what is armed, then as the next start would; what must hold in any case."""
    before = world.text
    outcome = await world.outcome(world.commit(world.draft(0.3)))
    assert world.points.armed == []
    assert not world.host.is_locked(UMO)
    changed = world.text != before
    assert changed == isinstance(outcome, Committed)
    assert changed == (world.host.history(world.cid)[1]["content"] == HEAD)
    await settle_unfinished(world.host, world.archive)
    assert await world.archive.unsettled() == ()
    record = await only_record(world)
    if changed:
        assert record is not None
        assert (record.stage, record.number) == (Stage.DONE, outcome.number)
        archived = [m.raw for m in await world.archive.messages(record.id)]
        after = raws(parse_history(world.text))
        assert [after[0], *archived, *after[4:]] == raws(parse_history(before))
    else:
        assert record is None or record.stage is Stage.VOID
    return outcome


@pytest.mark.parametrize("point", [*LOOKING, *WRITING])
async def test_a_fault_before_the_swap_leaves_the_row_alone(world: World, point: str) -> None:
    world.points.arm(point, disk_full if "begin" in point or "number" in point else boom)
    outcome = await settled_outcome(world)
    assert isinstance(outcome, ArchiveFailed | RuntimeError)


@pytest.mark.parametrize("point", WRITTEN)
async def test_a_swap_that_happened_is_done_whatever_follows(world: World, point: str) -> None:
    world.points.arm(point, disk_full if "settle" in point else boom)
    assert isinstance(await settled_outcome(world), Committed)


@pytest.mark.parametrize("times", [1, 2, 5])
@pytest.mark.parametrize("point", [*LOOKING, *WRITING])
async def test_a_cancellation_before_the_swap_leaves_the_row_alone(
    world: World, point: str, times: int
) -> None:
    world.points.arm(point, lambda: world.cancel(times))
    outcome = await settled_outcome(world)
    # Once the swap is asked for, it is seen through.
    if point == "before swap":
        assert isinstance(outcome, Committed)
    else:
        assert isinstance(outcome, asyncio.CancelledError)


@pytest.mark.parametrize("times", [1, 2, 5])
@pytest.mark.parametrize("point", [*WRITTEN, *LEAVING])
async def test_a_cancellation_after_the_swap_comes_too_late(
    world: World, point: str, times: int
) -> None:
    world.points.arm(point, lambda: world.cancel(times))
    assert isinstance(await settled_outcome(world), Committed)


async def test_a_cancellation_that_came_too_late_is_over(world: World) -> None:
    async def run() -> int:
        await world.commit(world.draft())
        task = asyncio.current_task()
        assert task is not None
        return task.cancelling()

    world.points.arm("after swap", lambda: world.cancel(3))
    assert await world.outcome(run()) == 0


async def test_a_swap_nobody_can_tell_of_is_settled_by_looking(world: World) -> None:
    """The row was written, the connection broke, and it is still broken when we look."""

    def break_down() -> None:
        world.points.arm("before read (2)", boom)
        boom()

    world.points.arm("after swap", break_down)
    outcome = await world.outcome(world.commit(world.draft()))
    assert isinstance(outcome, RuntimeError)
    (unsettled,) = await world.archive.unsettled()
    assert await settle_unfinished(world.host, world.archive) == 1
    record = await world.archive.by_id(unsettled.id)
    assert record is not None
    assert record.stage is Stage.DONE


# --- other writers


def write(world: World, messages: Sequence[dict[str, Any]]) -> Callable[[], None]:
    return lambda: world.host.write(world.cid, messages)


@pytest.mark.parametrize("point", ["before read", "before begin", "after begin", "before swap"])
async def test_newcomers_are_taken_along(world: World, point: str) -> None:
    new = [*HISTORY, user("one more thing"), checkpoint("c")]
    draft = world.draft(0.3)
    world.points.arm(point, write(world, new))
    done = await world.commit(draft)
    after = world.host.history(world.cid)
    assert after[4:] == [*talk(1), user("one more thing"), checkpoint("c")]
    assert done.messages_after == 6
    assert [r.stage for r in await world.archive.list(world.cid)] == [Stage.DONE]


async def test_a_race_lost_once_is_run_again(world: World) -> None:
    world.points.arm("before swap", write(world, [*HISTORY, user("faster")]))
    done = await world.commit(world.draft())
    assert world.points.passed.count("before swap (2)") == 1
    assert world.host.history(world.cid)[-1] == user("faster")
    assert done.number == 1
    first, second = await world.archive.by_id(1), await world.archive.by_id(2)
    assert first is not None
    assert second is not None
    assert (first.stage, second.stage) == (Stage.VOID, Stage.DONE)


async def test_a_race_lost_twice_is_given_up(world: World) -> None:
    world.points.arm("before swap", write(world, [*HISTORY, user("faster")]))
    world.points.arm("before swap (2)", write(world, [*HISTORY, user("faster"), user("again")]))
    with pytest.raises(HistoryChanged):
        await world.commit(world.draft())
    assert world.host.history(world.cid) == [*HISTORY, user("faster"), user("again")]
    assert await world.archive.unsettled() == ()
    assert await world.archive.list(world.cid) == ()


@pytest.mark.parametrize("point", POINTS[: POINTS.index("after swap")])
@pytest.mark.parametrize("cleared", [[], None])
async def test_a_cleared_history_stays_clear(
    world: World, point: str, cleared: list[Any] | None
) -> None:
    draft = world.draft()
    world.points.arm(point, lambda: world.host.write(world.cid, cleared))
    with pytest.raises(HistoryCleared):
        await world.commit(draft)
    assert world.host.rows[world.cid].text in (None, "[]")
    assert await world.archive.list(world.cid) == ()
    assert await world.archive.unsettled() == ()


@pytest.mark.parametrize("point", POINTS[: POINTS.index("after swap")])
async def test_a_deleted_conversation_stays_deleted(world: World, point: str) -> None:
    draft = world.draft()
    world.points.arm(point, lambda: world.host.delete(world.cid))
    with pytest.raises(HistoryCleared):
        await world.commit(draft)
    assert world.host.rows == {}
    assert await world.archive.list(world.cid) == ()


async def test_a_conversation_of_another_session_is_another_row(world: World) -> None:
    draft = world.draft()
    world.host.rows[world.cid] = replace(world.host.rows[world.cid], umo="qq:FriendMessage:8")
    with pytest.raises(HistoryCleared):
        await world.commit(draft)


async def test_a_row_that_became_unreadable_is_left_alone(world: World) -> None:
    draft = world.draft()
    world.host.write(world.cid, "[{")
    with pytest.raises(UnreadableHistory):
        await world.commit(draft)
    assert world.text == "[{"


@pytest.mark.parametrize("point", ["stands", "stands (2)", "stands (3)"])
async def test_a_run_called_off_writes_nothing(world: World, point: str) -> None:
    def called_off() -> None:
        raise Voided

    before = world.text
    world.points.arm(point, called_off)
    with pytest.raises(Voided):
        await world.commit(world.draft())
    assert world.text == before
    assert await world.archive.unsettled() == ()
    assert await world.archive.list(world.cid) == ()


async def test_a_history_that_would_not_get_smaller_is_left_alone(tmp_path: Path) -> None:
    async with new_world(tmp_path, talk(2, words=1)) as small:
        before = small.text
        with pytest.raises(NotSmaller) as failed:
            await small.commit(small.draft())
        assert small.text == before
        assert failed.value.fields["before"] == small.draft().plan.layout.tokens
        assert await only_record(small) is None


async def test_the_commit_waits_for_a_turn_and_says_so(world: World) -> None:
    draft, told = world.draft(), asyncio.Event()
    async with world.host.lock(UMO):
        commit = asyncio.ensure_future(world.commit(draft, on_wait=told.set))
        await asyncio.wait_for(told.wait(), 5)
        assert not commit.done()
        world.host.write(world.cid, [*HISTORY, user("of that turn")])
    await commit
    assert world.host.history(world.cid)[-1] == user("of that turn")


async def test_a_free_lock_is_not_worth_a_word(world: World) -> None:
    told: list[None] = []
    await world.commit(world.draft(), on_wait=lambda: told.append(None))
    assert told == []


async def test_a_long_commit_is_no_wait(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_module, "PATIENCE_SECONDS", 0.05)
    told: list[None] = []

    async def take_long() -> None:
        later = asyncio.Event()
        asyncio.get_running_loop().call_later(0.1, later.set)
        await later.wait()

    world.points.arm("before begin", take_long)
    await world.commit(world.draft(), on_wait=lambda: told.append(None))
    assert told == []


# --- rebase

HOST = FakeHost()


def layout_now(messages: Sequence[Stored], row: History) -> Any:
    return read_layout(messages, ESTIMATE.message, row.known.get)


@st.composite
def plans(draw: st.DrawFn) -> tuple[History, CompactionPlan]:
    row, options = draw(histories_and_options())
    plan = plan_compaction(row.layout, options, (), "last")
    assume(isinstance(plan, CompactionPlan))
    assert isinstance(plan, CompactionPlan)
    return row, plan


@given(plans(), histories())
def test_whatever_follows_the_cut_is_taken_as_it_is_now(
    planned: tuple[History, CompactionPlan], other: History
) -> None:
    row, plan = planned
    now = layout_now([*row.stored[: plan.cut], *other.stored], row)
    try:
        moved = rebase(plan, now, HOST)
    except HistoryChanged:
        # Only if the newcomers begin with the results of a call in the span.
        dialog = [item.message for item in now.dialog]
        rest = [m for m in dialog if m in other.stored]
        answered = {id(dialog[place]) for place in answered_results(dialog)}
        alone = {id(rest[place]) for place in answered_results(rest)}
        assert {id(m) for m in rest} & answered > alone
        return
    assert [raws([i.message for i in u.items]) for u in moved.span] == [
        raws([i.message for i in u.items]) for u in plan.span
    ]
    rest = [m for m in other.stored if not m.is_checkpoint]
    markers = {id(marker.message) for marker in now.markers}
    assert [item.message for item in moved.tail] == [m for m in rest if id(m) not in markers]
    assert raws(moved.layout.stored[moved.cut :]) == raws(rest_from_first_message(other))


def rest_from_first_message(row: History) -> Sequence[Stored]:
    first = next((n for n, m in enumerate(row.stored) if not m.is_checkpoint), len(row.stored))
    return row.stored[first:]


@given(plans(), st.data())
def test_any_change_before_the_cut_is_a_changed_history(
    planned: tuple[History, CompactionPlan], data: st.DataObject
) -> None:
    row, plan = planned
    body = [item.position for item in plan.layout.body if item.position < plan.cut]
    assume(body)
    place = data.draw(st.sampled_from(body), label="place")
    intruder = parse_history(spelled([user("a word of somebody else")]))[0]
    messages = list(row.stored)
    match data.draw(st.sampled_from(["edited", "put in", "taken out"]), label="change"):
        case "edited":
            messages[place] = intruder
        case "put in":
            messages.insert(place, intruder)
        case _:
            del messages[place]
            assume(raws(body_of(messages))[: len(body)] != raws(body_of(row.stored))[: len(body)])
    with pytest.raises((HistoryChanged, HistoryCleared)):
        rebase(plan, layout_now(messages, row), HOST)


def body_of(messages: Sequence[Stored]) -> list[Stored]:
    return [m for m in messages if not m.is_checkpoint]


@given(plans(), st.sampled_from([[], [checkpoint()], [system("only this")]]))
def test_an_empty_history_is_a_cleared_one(
    planned: tuple[History, CompactionPlan], left: list[dict[str, Any]]
) -> None:
    row, plan = planned
    with pytest.raises(HistoryCleared):
        rebase(plan, layout_now(history(left).stored, row), HOST)


@given(plans())
def test_an_unchanged_history_gives_the_same_plan(planned: tuple[History, CompactionPlan]) -> None:
    row, plan = planned
    moved = rebase(plan, layout_now(row.stored, row), HOST)
    assert moved.cut == plan.cut
    assert [i.message for i in moved.tail] == [i.message for i in plan.tail]
    assert [[i.message for i in u.items] for u in moved.span] == [
        [i.message for i in u.items] for u in plan.span
    ]


def test_checkpoints_may_come_and_go() -> None:
    row = history([*talk(2), checkpoint("a"), *talk(2)])
    plan = plan_of(row)
    now = history([*talk(1), checkpoint("x"), *talk(2)[2:], *talk(2), checkpoint("y")])
    assert rebase(plan, now.layout, HOST).span_tokens == plan.span_tokens


def test_a_history_cut_short_is_a_changed_one() -> None:
    row = history(talk(3))
    with pytest.raises(HistoryChanged):
        rebase(plan_of(row), history(talk(3)[:-1]).layout, HOST)


def test_what_the_host_writes_back_differently_is_the_same_message() -> None:
    row = history([user("a", extra=1), call("c1", content=""), result("c1"), *talk(3)])
    plan = plan_of(row)
    now = history([user("a"), call("c1", content=""), result("c1"), *talk(3)])
    assert rebase(plan, now.layout, HOST).span[0].items[0].data == user("a")


def test_results_that_came_late_keep_the_cut_from_parting_them() -> None:
    row = history([*talk(2), call("c1"), assistant("stopped")])
    plan = replace(plan_of(row), cut=5, tail=row.layout.dialog[5:], span=plan_of(row).span[:5])
    now = history([*talk(2), call("c1"), result("c1")])
    with pytest.raises(HistoryChanged):
        rebase(plan, now.layout, HOST)


def plan_of(row: History) -> CompactionPlan:
    plan = plan_compaction(row.layout, PlanOptions(0, 1), (), "")
    assert isinstance(plan, CompactionPlan)
    return plan


DEEP = 900


@pytest.mark.parametrize("depth", [50, DEEP, 20_000])
def test_messages_nested_without_end_are_compared_all_the_same(depth: int) -> None:
    def nested(spaces: str) -> Stored:
        raw = (
            '{"role": "user", "content": "x",' + spaces + '"x": ' + "[" * depth + "]" * depth + "}"
        )
        with contextlib.suppress(UnreadableHistory):
            return parse_history(f"[{raw}]")[0]
        return Stored(raw, {"role": "user", "content": raw})

    assert same_message(nested(" "), nested(" "), HOST)
    assert isinstance(same_message(nested(" "), nested("  "), HOST), bool)


# --- what was left unfinished

TALK = [*talk(4), checkpoint("a")]
HEAD_PAIR = [user(HEAD), assistant(ACKNOWLEDGEMENT)]


async def left_unfinished(world: World) -> int:
    """A record as a crash before the swap leaves it; the row is as it was."""

    def break_down() -> None:
        world.points.arm("before read (2)", boom)
        boom()

    world.points.arm("before swap", break_down)
    assert isinstance(await world.outcome(world.commit(world.draft())), RuntimeError)
    (record,) = await world.archive.unsettled()
    return record.id


async def settled_stage(world: World, record_id: int) -> Stage:
    assert await settle_unfinished(world.host, world.archive, world.cid) == 1
    record = await world.archive.by_id(record_id)
    assert record is not None
    return record.stage


AS_BEFORE = HISTORY
MORE = [*HISTORY, *talk(1)]
REWRITTEN = [system("another persona"), *HEAD_PAIR, *talk(1)]
BARE = [user([{"type": "text", "text": HEAD}]), assistant("Hi.")]
TRIMMED = HISTORY[5:]
EDITED = [system("persona"), user("edited"), *HISTORY[2:]]


@pytest.mark.parametrize(
    ("row", "stage"),
    [
        (AS_BEFORE, Stage.VOID),
        (MORE, Stage.VOID),
        (REWRITTEN, Stage.DONE),
        (BARE, Stage.DONE),
        ([], Stage.VOID),
        (None, Stage.VOID),
        ([system("persona")], Stage.VOID),
        # Void would erase messages that may stand nowhere else.
        (TRIMMED, Stage.DONE),
        (EDITED, Stage.DONE),
    ],
    ids=range(9),
)
async def test_a_compaction_left_unfinished_is_settled_by_looking(
    world: World, row: list[dict[str, Any]] | None, stage: Stage
) -> None:
    record_id = await left_unfinished(world)
    world.host.write(world.cid, row)
    assert await settled_stage(world, record_id) is stage
    assert bool(await world.archive.messages(record_id)) == (stage is Stage.DONE)


@pytest.mark.parametrize(
    ("row", "stage"),
    [
        (AS_BEFORE, Stage.UNDONE),
        (MORE, Stage.UNDONE),
        (REWRITTEN, Stage.DONE),
        ([], Stage.UNDONE),
        (TRIMMED, Stage.UNDONE),
    ],
    ids=range(5),
)
async def test_an_undo_left_unfinished_is_settled_by_looking(
    world: World, row: list[dict[str, Any]], stage: Stage
) -> None:
    record_id = (await world.commit(world.draft())).id
    await world.archive.settle(record_id, Stage.UNDOING)
    world.host.write(world.cid, row)
    assert await settled_stage(world, record_id) is stage
    assert await world.archive.messages(record_id)


async def test_the_record_of_a_deleted_conversation_is_void(world: World) -> None:
    record_id = await left_unfinished(world)
    world.host.delete(world.cid)
    assert await settled_stage(world, record_id) is Stage.VOID


async def test_a_summary_like_the_one_before_does_not_hide_what_happened(world: World) -> None:
    await world.commit(world.draft())
    world.host.write(world.cid, [*world.host.history(world.cid), *talk(3)])
    world.points.passed.clear()
    assert await settled_stage(world, await left_unfinished(world)) is Stage.VOID


async def test_an_unreadable_row_settles_nothing(world: World) -> None:
    record_id = await left_unfinished(world)
    world.host.write(world.cid, "[{")
    assert await settle_unfinished(world.host, world.archive) == 0
    world.host.write(world.cid, HISTORY)
    assert await settled_stage(world, record_id) is Stage.VOID


async def test_damaged_messages_settle_nothing_and_stop_nothing(
    world: World, tmp_path: Path
) -> None:
    record_id = await left_unfinished(world)
    change(tmp_path / "archive.db", "UPDATE packed SET hash = x'00'")
    assert await settle_unfinished(world.host, world.archive) == 0
    (record,) = await world.archive.unsettled()
    assert (record.id, record.stage) == (record_id, Stage.ARCHIVED)


# --- what cannot be put back any more


async def refused_undo(world: World) -> CompactError:
    before = world.text
    with pytest.raises(CompactError) as refused:
        await undo(world.host, world.archive, UMO, world.cid, lambda: None)
    assert world.text == before
    return refused.value


async def test_a_compaction_whose_messages_were_too_old_is_not_undone(world: World) -> None:
    await world.commit(world.draft())
    await world.archive.sweep(None, time.time() + 3 * 86_400, 1)
    error = await refused_undo(world)
    assert (type(error), error.fields) == (ErasedSince, {"number": 1})


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM packed",
        "UPDATE packed SET hash = x'00'",
        "UPDATE compaction SET message_count = message_count + 1",
    ],
)
async def test_a_compaction_of_which_messages_are_missing_is_not_undone(
    world: World, tmp_path: Path, sql: str
) -> None:
    await left_unfinished(world)
    change(tmp_path / "archive.db", "UPDATE compaction SET stage = 'done'", sql)
    assert isinstance(await refused_undo(world), ArchiveDamaged)


async def test_another_conversations_records_are_left_alone(world: World) -> None:
    await left_unfinished(world)
    assert await settle_unfinished(world.host, world.archive, "another") == 0
    assert len(await world.archive.unsettled()) == 1


# --- any history


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
    planned=histories_and_options(),
    picks=st.lists(st.booleans(), min_size=1, max_size=5),
    newcomers=st.sampled_from([[], talk(1)]),
)
def test_archive_and_row_hold_every_message_and_undo_gives_them_back(
    runner_and_archive: tuple[asyncio.Runner, Archive],
    planned: tuple[History, PlanOptions],
    picks: list[bool],
    newcomers: list[dict[str, Any]],
) -> None:
    row, options = planned
    plan = plan_compaction(row.layout, options, (), "")
    assume(isinstance(plan, CompactionPlan))
    assert isinstance(plan, CompactionPlan)
    keep = [n for n in range(len(plan.span)) if picks[n % len(picks)]]
    runner, archive = runner_and_archive
    points = Points()
    world = World(PointedHost(points), archive, points, row.text)
    runner.run(_compact_and_undo(world, world.draft_of(plan, row.known, keep), newcomers))


async def _compact_and_undo(world: World, draft: Draft, newcomers: list[dict[str, Any]]) -> None:
    joined = [*draft.plan.layout.stored, *history(newcomers).stored]
    world.host.write(world.cid, dump_history(joined))
    try:
        done = await world.commit(draft)
    except NotSmaller:
        assert raws(parse_history(world.text)) == raws(joined)
        return
    record = await world.archive.by_id(done.id)
    assert record is not None
    archived = [m.raw for m in await world.archive.messages(done.id)]
    after, written = parse_history(world.text), prefix_messages(record.prefix_json)
    start = draft.plan.layout.body_start
    assert raws(after[:start]) == raws(joined[:start])
    assert raws(after[start : start + len(written)]) == raws(written)
    tail = raws(after[start + len(written) :])
    assert [*record.head_before_raw, *archived, *tail] == raws(joined[start:])
    await undo(world.host, world.archive, UMO, world.cid, lambda: None)
    assert raws(parse_history(world.text)) == raws(joined)
