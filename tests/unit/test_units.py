"""Messages grouped into units, and where a dialog may be cut."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from astrbot_plugin_compact.summary.history import Stored
from astrbot_plugin_compact.summary.units import (
    Grouping,
    Item,
    UnitKind,
    bind_checkpoints,
    group_units,
    tool_names,
)
from hypothesis import given

from tests.unit.histories import (
    ESTIMATE,
    History,
    answered_results,
    assistant,
    call,
    checkpoint,
    histories,
    history,
    result,
    system,
    user,
)


def items_of(*messages: dict[str, Any]) -> tuple[Item, ...]:
    return bind_checkpoints(history(messages).stored, ESTIMATE.message)


def group(*messages: dict[str, Any]) -> Grouping:
    return group_units(items_of(*messages))


def shape(*messages: dict[str, Any]) -> list[tuple[list[int], str]]:
    """The positions in each unit, and its kind."""
    return [
        ([item.position for item in unit.items], unit.kind.value) for unit in group(*messages).units
    ]


# --- checkpoints


@given(histories())
def test_a_checkpoint_belongs_to_the_message_it_follows(row: History) -> None:
    items = bind_checkpoints(row.stored, ESTIMATE.message)
    whole = [stored for item in items for stored in item.as_stored]
    leading = next((n for n, m in enumerate(row.stored) if not m.is_checkpoint), len(row.stored))
    assert whole == list(row.stored[leading:])
    assert all(row.stored[item.position] is item.message for item in items)


def test_a_checkpoint_before_the_first_message_belongs_to_none() -> None:
    (item,) = items_of(checkpoint("lost"), user("hi"), checkpoint("a"), checkpoint("b"))
    assert [c.data["content"]["id"] for c in item.checkpoints] == ["a", "b"]


def test_a_checkpoint_costs_nothing() -> None:
    (item,) = items_of(user("a word or two"), checkpoint("x" * 1_000))
    assert item.tokens == ESTIMATE.message(user("a word or two"))


# --- units


@given(histories())
def test_the_units_are_the_dialog(row: History) -> None:
    items = bind_checkpoints(row.stored, ESTIMATE.message)
    units = group_units(items).units
    assert sorted((i for u in units for i in u.items), key=lambda i: i.position) == list(items)
    assert [unit.first for unit in units] == sorted(unit.first for unit in units)
    assert sum(unit.tokens for unit in units) == sum(item.tokens for item in items)


@given(histories())
def test_only_a_tool_group_has_several_messages(row: History) -> None:
    for unit in group_units(bind_checkpoints(row.stored, ESTIMATE.message)).units:
        roles = [item.role for item in unit.items]
        match unit.kind:
            case UnitKind.TOOL_GROUP:
                assert roles == ["assistant", *["tool"] * (len(roles) - 1)]
                assert len(roles) > 1
            case UnitKind.BROKEN_GROUP:
                assert roles == ["assistant", *["tool"] * (len(roles) - 1)]
            case UnitKind.LONE_RESULT:
                assert roles == ["tool"]
            case UnitKind.MESSAGE:
                assert len(roles) == 1
                assert roles != ["tool"]


@given(histories())
def test_a_result_is_in_the_unit_of_the_call_it_answers(row: History) -> None:
    messages = [m for m in row.stored if not m.is_checkpoint]
    items = bind_checkpoints(messages, ESTIMATE.message)
    together = {
        item.position
        for unit in group_units(items).units
        if unit.role == "assistant"
        for item in unit.items[1:]
    }
    assert together == set(answered_results(messages))


def test_a_group_is_complete_with_the_last_result() -> None:
    assert shape(user("?"), call("c1", "c2"), result("c2"), result("c1"), assistant("!")) == [
        ([0], "message"),
        ([1, 2, 3], "tool_group"),
        ([4], "message"),
    ]


def test_a_group_without_a_result_is_broken() -> None:
    assert shape(call("c1", "c2"), result("c1"), assistant("!")) == [
        ([0, 1], "broken_group"),
        ([2], "message"),
    ]


def test_calls_of_one_id_wait_for_as_many_results() -> None:
    # Gemini names no ids: AstrBot uses the tool's name, and a tool can be called twice at once.
    both = [call("look_up", "look_up"), result("look_up"), result("look_up")]
    assert shape(*both) == [([0, 1, 2], "tool_group")]
    assert shape(*both[:2]) == [([0, 1], "broken_group")]


def test_a_result_given_twice_stays_with_its_call() -> None:
    assert shape(call("c1"), result("c1"), result("c1"), assistant("!")) == [
        ([0, 1, 2], "tool_group"),
        ([3], "message"),
    ]


def test_an_id_used_again_belongs_to_the_newest_call() -> None:
    assert shape(call("c1"), result("c1"), call("c1"), result("c1")) == [
        ([0, 1], "tool_group"),
        ([2, 3], "tool_group"),
    ]


def test_a_result_after_the_next_answer_is_alone() -> None:
    assert shape(call("c1"), assistant("never mind"), result("c1")) == [
        ([0], "broken_group"),
        ([1], "message"),
        ([2], "lone_result"),
    ]


def test_what_stands_between_call_and_result_is_a_unit_of_its_own() -> None:
    assert shape(call("c1"), user("hurry"), checkpoint(), system("file"), result("c1")) == [
        ([0, 4], "tool_group"),
        ([1], "message"),
        ([3], "message"),
    ]


@pytest.mark.parametrize("call_id", [None, "", 5, ["c1"]])
def test_a_call_without_a_usable_id_is_never_answered(call_id: object) -> None:
    unnamed = {"role": "assistant", "tool_calls": [{"id": call_id}]}
    answer = {"role": "tool", "tool_call_id": call_id, "content": "x"}
    assert shape(unnamed, answer, {"role": "tool", "content": "x"}) == [
        ([0], "broken_group"),
        ([1], "lone_result"),
        ([2], "lone_result"),
    ]


# --- cuts


@given(histories())
def test_a_cut_parts_no_unit_and_every_other_place_is_one(row: History) -> None:
    items = bind_checkpoints(row.stored, ESTIMATE.message)
    grouping = group_units(items)
    offsets = {item.position: offset for offset, item in enumerate(items)}
    inside = {
        offset
        for unit in grouping.units
        for offset in range(offsets[unit.first] + 1, offsets[unit.items[-1].position] + 1)
    }
    assert grouping.cuts == tuple(offset not in inside for offset in range(len(items) + 1))


@given(histories())
def test_a_cut_makes_no_orphan(row: History) -> None:
    messages = [m for m in row.stored if not m.is_checkpoint]
    cuts = group_units(bind_checkpoints(messages, ESTIMATE.message)).cuts
    answered = set(answered_results(messages))
    for cut in (n for n, allowed in enumerate(cuts) if allowed):
        after = {cut + place for place in answered_results(messages[cut:])}
        assert after == {place for place in answered if place >= cut}


def test_nothing_can_be_cut_twice_as_well() -> None:
    assert group().cuts == (True,)
    assert group(user("a"), user("b")).cuts == (True, True, True)


# --- the group still open at the end


@given(histories())
def test_the_open_group_is_the_last_one_and_misses_a_result(row: History) -> None:
    grouping = group_units(bind_checkpoints(row.stored, ESTIMATE.message))
    answers = [unit for unit in grouping.units if unit.role == "assistant"]
    if grouping.open_group is not None:
        assert grouping.open_group is answers[-1]
        assert grouping.open_group.kind is UnitKind.BROKEN_GROUP
    elif answers:
        assert answers[-1].kind is not UnitKind.BROKEN_GROUP


def open_positions(messages: Sequence[dict[str, Any]]) -> list[int] | None:
    found = group(*messages).open_group
    return None if found is None else [item.position for item in found.items]


def test_a_group_is_open_until_its_last_result_or_the_next_answer() -> None:
    begun = [user("?"), call("c1", "c2"), result("c1")]
    assert open_positions(begun) == [1, 2]
    assert open_positions([*begun, user("well?"), checkpoint()]) == [1, 2]
    assert open_positions([*begun, result("c2")]) is None
    assert open_positions([*begun, assistant("stopped")]) is None
    assert open_positions([]) is None


# --- names


def test_a_tool_is_known_by_the_latest_call_of_its_id() -> None:
    def named(call_id: object, name: str) -> dict[str, Any]:
        return {"role": "assistant", "tool_calls": [{"id": call_id, "function": {"name": name}}]}

    items = items_of(named("c1", "old"), named("c2", "other"), named("c1", "new"), named(3, "x"))
    assert tool_names(items) == {"c1": "new", "c2": "other"}


@given(histories())
def test_names_are_found_in_any_history(row: History) -> None:
    names = tool_names(bind_checkpoints(row.stored, ESTIMATE.message))
    assert all(isinstance(text, str) for pair in names.items() for text in pair)


def test_an_item_says_what_is_stored() -> None:
    message, record = Stored("{}", {}), Stored("[]", {"role": "_checkpoint"})
    (item,) = bind_checkpoints([message, record], lambda _: 3)
    assert (item.as_stored, item.role, item.tokens) == ((message, record), "", 3)
