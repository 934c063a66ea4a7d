"""What a compaction would do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from astrbot_plugin_compact.summary.heads import gap_marker, is_gap_marker
from astrbot_plugin_compact.summary.history import Stored
from astrbot_plugin_compact.summary.plan import (
    AfterSwap,
    CompactionPlan,
    Layout,
    PlanOptions,
    Skip,
    SkipReason,
    plan_compaction,
)
from astrbot_plugin_compact.summary.units import Item, Unit, bind_checkpoints, group_units
from hypothesis import given

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
    our_head,
    result,
    system,
    talk,
    user,
)

Planned = tuple[History, PlanOptions]


def message(tokens: int, role: str = "user") -> dict[str, Any]:
    """A message of exactly so many tokens."""
    return {"role": role, "content": "词" * ((tokens * 10 + 5) // 6)}


def options(ratio: float = 0.15, **more: Any) -> PlanOptions:
    return PlanOptions(ratio, more.pop("min_messages", 1), **more)


def plan_for(
    messages: Sequence[dict[str, Any]], chosen: PlanOptions, trimmed: Sequence[Unit] = ()
) -> CompactionPlan | Skip:
    return plan_compaction(history(messages).layout, chosen, trimmed, "last")


def planned(messages: Sequence[dict[str, Any]], ratio: float = 0.15, **more: Any) -> CompactionPlan:
    found = plan_for(messages, options(ratio, **more))
    assert isinstance(found, CompactionPlan)
    return found


def skipped(messages: Sequence[dict[str, Any]], ratio: float = 0.15, **more: Any) -> SkipReason:
    found = plan_for(messages, options(ratio, **more))
    assert isinstance(found, Skip)
    return found.reason


def places(items: Sequence[Item]) -> list[int]:
    return [item.position for item in items]


def trimmed_units(*messages: dict[str, Any]) -> tuple[Unit, ...]:
    return group_units(bind_checkpoints(history(messages).stored, ESTIMATE.message)).units


# --- a history taken apart


@given(histories())
def test_a_layout_holds_every_message_once(row: History) -> None:
    layout = row.layout
    head = layout.head.items if layout.head else ()
    talk_items = sorted([*layout.dialog, *layout.markers], key=lambda item: item.position)
    assert [*head, *talk_items] == list(layout.body)
    whole = [item.message for item in (*layout.leading, *layout.body)]
    assert whole == [m for m in row.stored if not m.is_checkpoint]
    assert layout.tokens == sum(ESTIMATE.message(m.data) for m in whole)


@given(histories())
def test_only_leading_system_messages_stay_in_front(row: History) -> None:
    layout = row.layout
    assert all(item.role == "system" for item in layout.leading)
    assert not layout.body or layout.body[0].role != "system"
    front = row.stored[: layout.body_start]
    assert all(m.is_checkpoint or m.role == "system" for m in front)
    assert [m for m in front if m.role == "system"] == [item.message for item in layout.leading]


@given(histories())
def test_markers_are_known_by_a_head_of_ours(row: History) -> None:
    layout = row.layout
    ours = layout.head is not None and layout.head.ours
    for item in layout.dialog:
        assert not (ours and is_gap_marker(item.data))
    for item in layout.markers:
        assert ours
        assert is_gap_marker(item.data)


def test_people_are_told_all_messages_but_checkpoints_and_markers() -> None:
    head, known = our_head("They met.")
    marker = dict(gap_marker("user", "en").data)
    messages = [system("s"), head, assistant("x"), marker, checkpoint(), *talk(2)]
    assert history(messages, known).layout.shown_count == 7
    assert history(messages).layout.shown_count == 8


# --- the cut


def whole_plan(found: Planned) -> tuple[Layout, CompactionPlan | Skip]:
    row, chosen = found
    return row.layout, plan_compaction(row.layout, chosen, (), "last")


@given(histories_and_options())
def test_span_and_tail_are_the_dialog(found: Planned) -> None:
    layout, plan = whole_plan(found)
    if isinstance(plan, CompactionPlan):
        span = sorted((i for unit in plan.span for i in unit.items), key=lambda i: i.position)
        assert (*span, *plan.tail) == layout.dialog
        assert all(item.position < plan.cut for item in span)
        assert all(item.position >= plan.cut for item in plan.tail)
        assert plan.cut == (plan.tail[0].position if plan.tail else len(layout.stored))
        assert plan.span_tokens + plan.tail_tokens == sum(i.tokens for i in layout.dialog)


@given(histories_and_options())
def test_no_tool_result_loses_its_call(found: Planned) -> None:
    layout, plan = whole_plan(found)
    if isinstance(plan, CompactionPlan):
        dialog = [item.message for item in layout.dialog]
        tail = [item.message for item in plan.tail]
        before = [id(dialog[place]) for place in answered_results(dialog)]
        after = [id(tail[place]) for place in answered_results(tail)]
        assert after == [id_ for id_ in before if id_ in set(map(id, tail))]


@given(histories_and_options())
def test_an_unfinished_group_and_what_follows_stays(found: Planned) -> None:
    layout, plan = whole_plan(found)
    unfinished = group_units(layout.dialog).open_group
    if isinstance(plan, CompactionPlan) and unfinished is not None:
        assert set(unfinished.items) <= set(plan.tail)


@given(histories_and_options())
def test_the_newest_request_is_kept_or_in_the_span(found: Planned) -> None:
    layout, plan = whole_plan(found)
    requests = [item for item in layout.dialog if item.role == "user"]
    if isinstance(plan, CompactionPlan) and requests:
        held = {*plan.tail, *(item for unit in plan.span for item in unit.items)}
        assert requests[-1] in held


@given(histories_and_options())
def test_the_tail_is_what_the_ratio_allows(found: Planned) -> None:
    """Rule 4 of the spec's plan, said round by round."""
    layout, plan = whole_plan(found)
    dialog, (_, chosen) = layout.dialog, found
    grouping = group_units(dialog)
    if not isinstance(plan, CompactionPlan) or grouping.open_group is not None:
        return
    total = sum(item.tokens for item in dialog)
    whole = total if chosen.line_tokens is None else min(total, chosen.line_tokens)
    most = len(dialog) if chosen.count_line is None else chosen.count_line // 2

    def fits(start: int) -> bool:
        tokens = sum(item.tokens for item in dialog[start:])
        return tokens <= int(chosen.keep_recent_ratio * whole) and len(dialog) - start <= most

    starts = [
        n for n, item in enumerate(dialog)
        if grouping.cuts[n] and (n == 0 or item.role == "user")
    ]  # fmt: skip
    last = starts[-1]
    tail_start = len(dialog) - len(plan.tail)
    if chosen.keep_recent_ratio == 0:
        assert plan.tail == ()
        assert plan.kept_by_rule == frozenset()
    elif fits(last):
        assert tail_start == min(n for n in starts if fits(n))
        assert plan.kept_by_rule == frozenset()
    elif sum(item.tokens for item in dialog[last:]) * 2 <= whole:
        assert tail_start == last
        assert plan.kept_by_rule == frozenset()
    else:
        ends = [n for n in range(last + 1, len(dialog)) if grouping.cuts[n] and fits(n)]
        assert tail_start == min(ends, default=len(dialog))
        is_kept = dialog[last].role == "user" and dialog[last].tokens * 2 <= whole
        kept = [plan.span[index].items for index in plan.kept_by_rule]
        assert kept == ([(dialog[last],)] if is_kept else [])


@given(histories_and_options())
def test_the_same_history_gives_the_same_plan(found: Planned) -> None:
    layout, plan = whole_plan(found)
    _, again = whole_plan(found)
    if isinstance(plan, Skip):
        assert again == plan
    else:
        assert isinstance(again, CompactionPlan)
        assert (again.cut, again.tail, again.kept_by_rule) == (
            plan.cut,
            plan.tail,
            plan.kept_by_rule,
        )
        assert [u.items for u in again.span] == [u.items for u in plan.span]
    assert layout.stored == found[0].stored


@given(histories_and_options())
def test_nothing_is_done_for_a_reason(found: Planned) -> None:
    layout, plan = whole_plan(found)
    few = len(layout.dialog) < found[1].min_messages
    if isinstance(plan, Skip):
        assert plan.reason.value.startswith("too_few") is few
        assert few or plan.reason is SkipReason.NO_SPAN
        assert plan.messages == len(layout.dialog)
        assert plan.tokens == sum(item.tokens for item in layout.dialog)
    else:
        assert not few
        assert len(plan.span) > len(plan.kept_by_rule)


# --- the tail, by example


def test_whole_rounds_are_kept_while_they_fit() -> None:
    rounds = [message(50), message(50, "assistant")] * 10
    assert len(planned(rounds, 0.3).tail) == 6
    assert len(planned(rounds, 0.29).tail) == 4
    assert len(planned(rounds, 0.1).tail) == 2


def test_the_line_makes_the_tail_smaller() -> None:
    rounds = [message(50), message(50, "assistant")] * 10
    assert len(planned(rounds, 0.2, line_tokens=500).tail) == 2
    assert len(planned(rounds, 0.2, line_tokens=5_000).tail) == 4


def test_the_count_line_makes_the_tail_shorter() -> None:
    rounds = [message(50), message(50, "assistant")] * 10
    assert len(planned(rounds, 0.3, count_line=12).tail) == 6
    assert len(planned(rounds, 0.3, count_line=11).tail) == 4


def test_the_last_round_is_kept_though_it_does_not_fit() -> None:
    rounds = [message(100), message(100, "assistant")] * 2
    assert places(planned(rounds, 0.1).tail) == [2, 3]
    assert places(planned(rounds, 0.1, count_line=2).tail) == [2, 3]


def test_of_a_round_over_half_the_end_is_kept_and_the_request_by_rule() -> None:
    long_round = [message(10), message(10, "assistant"), message(40), message(500, "assistant")]
    plan = planned([*long_round, message(30, "assistant"), message(30, "assistant")], 0.1)
    assert places(plan.tail) == [4, 5]
    assert [places(plan.span[index].items) for index in plan.kept_by_rule] == [[2]]


def test_a_request_over_half_goes_into_the_span() -> None:
    plan = planned([message(10), message(10, "assistant"), message(500), message(5, "assistant")])
    assert places(plan.tail) == [3]
    assert plan.kept_by_rule == frozenset()


def test_one_request_and_many_tool_calls_keep_the_request() -> None:
    steps = [m for n in range(22) for m in (call(f"c{n}"), result(f"c{n}", "word " * 20))]
    plan = planned([user("do all of it"), *steps, assistant("done")])
    assert [places(plan.span[index].items) for index in plan.kept_by_rule] == [[0]]
    assert plan.tail[0].role == "assistant"


def test_a_dialog_without_a_request_keeps_nothing_by_rule() -> None:
    # The host trimmed head and request away: the first group is the oldest, no live request.
    steps = [m for n in range(9) for m in (call(f"c{n}"), result(f"c{n}", "word " * 50))]
    plan = planned(steps)
    assert plan.kept_by_rule == frozenset()
    assert plan.tail


def test_a_group_is_never_parted_by_the_ratio() -> None:
    group = [call("c1", "c2"), result("c1", "word " * 90), result("c2", "word")]
    plan = planned([*talk(1, words=10), user("?"), *group, assistant("!")], 0.3)
    assert places(plan.tail) == [6]


def test_a_request_inside_a_group_starts_no_round() -> None:
    held_up = [call("c1"), user("hurry"), result("c1"), assistant("there")]
    plan = planned([*talk(6), user("?"), *held_up])
    assert places(plan.tail) == [12, 13, 14, 15, 16]


def test_without_a_ratio_only_an_unfinished_group_stays() -> None:
    assert planned(talk(3), 0).tail == ()
    begun = [call("c1", "c2"), result("c1"), user("well?")]
    assert places(planned([*talk(3), user("?"), *begun], 0).tail) == [7, 8, 9]


def test_a_checkpoint_at_the_cut_stays_with_the_message_it_follows() -> None:
    messages = [m for n in range(6) for m in (*talk(1), checkpoint(str(n)))]
    plan = planned(messages, 0.2)
    assert plan.cut == 15
    assert plan.layout.stored[plan.cut - 1].is_checkpoint


def test_system_messages_inside_are_content() -> None:
    plan = planned([system("persona"), *talk(3), system("a file"), *talk(3)])
    assert [unit.role for unit in plan.span].count("system") == 1
    assert places(plan.layout.leading) == [0]


# --- nothing to do


def test_few_messages_are_left_alone() -> None:
    assert skipped(talk(1), min_messages=4) is SkipReason.TOO_FEW
    assert skipped([], min_messages=1) is SkipReason.TOO_FEW
    head, known = our_head("They met.")
    layout = history([system("s"), head, assistant("x"), checkpoint(), user("a")], known).layout
    few = plan_compaction(layout, options(min_messages=3), (), "last")
    assert few == Skip(SkipReason.TOO_FEW_MORE, 2, 3, sum(i.tokens for i in layout.dialog))


def test_a_tail_that_is_everything_leaves_nothing_to_do() -> None:
    assert skipped([call("c1"), user("?")]) is SkipReason.NO_SPAN
    answered = [user("?"), call("c1", content="word " * 9), result("c2", "word " * 9)]
    assert skipped(answered) is SkipReason.NO_SPAN


def test_what_the_host_trimmed_is_worth_a_compaction_alone() -> None:
    plan = plan_for([call("c1"), user("?")], options(), trimmed_units(*talk(1)))
    assert isinstance(plan, CompactionPlan)
    assert plan.span == ()
    assert [unit.role for unit in plan.trimmed] == ["user", "assistant"]


def test_an_unchanged_history_is_left_alone() -> None:
    head, known = our_head("They met.")
    layout = history([head, *talk(4)], known).layout
    assert layout.head is not None
    previous = AfterSwap(layout.head.text_hash, 8, "last")
    same = options(previous=previous)

    def reason(changed: PlanOptions, last: str = "last", trimmed: Sequence[Unit] = ()) -> object:
        found = plan_compaction(layout, changed, trimmed, last)
        return found.reason if isinstance(found, Skip) else None

    assert reason(same) is SkipReason.NOTHING_NEW
    assert reason(replace(same, previous=None)) is None
    assert reason(same, last="another") is None
    assert reason(same, trimmed=trimmed_units(*talk(1))) is None
    for change in ({"head_hash": ""}, {"dialog_messages": 7}, {"last_message": ""}):
        assert reason(replace(same, previous=replace(previous, **change))) is None


@pytest.mark.parametrize("role", ["user", "assistant", "tool", "developer", ""])
def test_messages_without_tokens_can_be_planned_for(role: str) -> None:
    empty = [{"role": role, "content": ""}] * 6
    found = plan_for(empty, options())
    assert isinstance(found, Skip | CompactionPlan)


def test_a_plan_knows_nothing_of_the_order_it_was_asked_in() -> None:
    stored: tuple[Stored, ...] = history(talk(5)).stored
    layout = history(talk(5)).layout
    plan_compaction(layout, options(), (), "last")
    assert [m.raw for m in layout.stored] == [m.raw for m in stored]
