"""The history a compaction writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
from astrbot_plugin_compact.summary.compose import (
    Composed,
    compose,
    new_checkpoint,
)
from astrbot_plugin_compact.summary.heads import (
    ACKNOWLEDGEMENT,
    KnownHead,
    gap_marker,
    head_text,
    is_gap_marker,
    text_hash,
)
from astrbot_plugin_compact.summary.history import Stored, dump_history, parse_history
from astrbot_plugin_compact.summary.plan import (
    CompactionPlan,
    PlanOptions,
    plan_compaction,
    read_layout,
)
from astrbot_plugin_compact.summary.units import Item
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.unit.histories import (
    ESTIMATE,
    answered_results,
    assistant,
    call,
    checkpoint,
    histories_and_options,
    history,
    our_head,
    raws,
    result,
    system,
    talk,
    user,
)

SUMMARY = "## 目标\n把报告写完"
FRESH = new_checkpoint()


@dataclass(frozen=True)
class Case:
    """A plan carried out, with some of its units retained."""

    plan: CompactionPlan
    retained: tuple[Item, ...]
    composed: Composed

    @property
    def old(self) -> tuple[Stored, ...]:
        """The history before."""
        return self.plan.layout.stored

    @property
    def new(self) -> tuple[Stored, ...]:
        """The history after."""
        return self.composed.messages


def carried_out(plan: CompactionPlan, picks: Sequence[bool], language: str = "en") -> Case:
    # No other unit is ever offered to a model.
    chosen = [
        unit
        for index, unit in enumerate(plan.span)
        if index in plan.kept_by_rule
        or (picks and picks[index % len(picks)] and unit.is_contiguous)
    ]
    items = sorted((i for unit in chosen for i in unit.items), key=lambda item: item.position)
    return Case(plan, tuple(items), compose(plan, items, SUMMARY, language, FRESH))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    row, chosen = draw(histories_and_options())
    plan = plan_compaction(row.layout, chosen, (), "last")
    assume(isinstance(plan, CompactionPlan))
    assert isinstance(plan, CompactionPlan)
    picks = draw(st.lists(st.booleans(), max_size=7))
    return carried_out(plan, picks, draw(st.sampled_from(["zh", "en"])))


def case(
    messages: Sequence[dict[str, Any]],
    keep: Sequence[int] = (),
    ratio: float = 0,
    known: dict[str, KnownHead] | None = None,
) -> Case:
    """A history compacted, with the units that begin at these positions retained."""
    layout = history(messages, known).layout
    plan = plan_compaction(layout, PlanOptions(ratio, 1), (), "last")
    assert isinstance(plan, CompactionPlan)
    return carried_out(plan, [unit.first in keep for unit in plan.span])


def roles(messages: Sequence[Stored]) -> str:
    """A history in short: a small letter for a message of ours, | for a checkpoint."""
    letters = {"user": "U", "assistant": "A", "tool": "T", "system": "S", "_checkpoint": "|"}
    ours = {ACKNOWLEDGEMENT, head_text(SUMMARY, "en"), head_text(SUMMARY, "zh")}
    text = ""
    for message in messages:
        letter = letters.get(message.role, "X")
        content = message.data.get("content")
        mine = message is FRESH or is_gap_marker(message.data)
        text += letter.lower() if mine or (isinstance(content, str) and content in ours) else letter
    return text


def without_checkpoints(messages: Sequence[Stored]) -> list[Stored]:
    return [m for m in messages if not m.is_checkpoint]


# --- laws


@given(cases())
def test_kept_messages_are_the_stored_ones_in_their_order(found: Case) -> None:
    old_places = {id(m): place for place, m in enumerate(found.old)}
    kept = [m for m in found.new if id(m) in old_places]
    assert [old_places[id(m)] for m in kept] == sorted(old_places[id(m)] for m in kept)
    expected = [*found.retained, *found.plan.tail]
    bodies = [m for m in kept if not m.is_checkpoint][len(found.plan.layout.leading) :]
    markers = [item.message for item in found.plan.layout.markers]
    assert [m for m in bodies if m not in markers] == [item.message for item in expected]


@given(cases())
def test_what_is_not_kept_is_ours(found: Case) -> None:
    old = set(map(id, found.old))
    ours = [m for m in found.new if id(m) not in old]
    head, *others = ours
    assert head.data["content"] in (head_text(SUMMARY, "zh"), head_text(SUMMARY, "en"))
    assert all(
        m is FRESH or m.data.get("content") == ACKNOWLEDGEMENT or is_gap_marker(m.data)
        for m in others
    )
    assert others.count(FRESH) == 1


@given(cases())
def test_a_stored_row_reads_back_to_the_byte(found: Case) -> None:
    again = parse_history(dump_history(found.new))
    assert raws(again) == raws(found.new)


@given(cases())
def test_leading_system_messages_head_retained_checkpoint_tail(found: Case) -> None:
    layout = found.plan.layout
    assert found.composed.leading == layout.stored[: layout.body_start]
    assert found.composed.prefix[0].role == "user"
    assert found.composed.prefix[-1] is FRESH
    assert not any(m.is_checkpoint for m in found.composed.prefix[:-1])


@given(cases())
def test_the_tail_stays_as_it_is(found: Case) -> None:
    assert found.composed.rest == found.old[found.plan.cut :]


@given(cases())
def test_because_of_us_no_equal_roles_are_neighbours(found: Case) -> None:
    old = without_checkpoints(found.old)
    were = {(id(one), id(other)) for one, other in pairwise(old)}
    for one, other in pairwise(without_checkpoints(found.new)):
        if one.role == other.role and one.role in ("user", "assistant"):
            assert (id(one), id(other)) in were


@given(cases())
def test_because_of_us_no_user_follows_a_result(found: Case) -> None:
    old = without_checkpoints(found.old)
    were = {(id(one), id(other)) for one, other in pairwise(old)}
    for one, other in pairwise(without_checkpoints(found.new)):
        if one.role == "tool" and other.role == "user":
            assert (id(one), id(other)) in were


@given(cases())
def test_the_next_request_finds_an_answer_before_it(found: Case) -> None:
    """Unless the history ended so before."""
    sided = [m for m in found.new if m.role in ("user", "assistant", "tool")]
    if sided[-1].role != "assistant":
        old, new = without_checkpoints(found.old), without_checkpoints(found.new)
        assert old[old.index(sided[-1]) :] == new[new.index(sided[-1]) :]


@given(cases())
def test_the_first_message_is_a_users(found: Case) -> None:
    talk_of = [m for m in without_checkpoints(found.new) if m.role != "system"]
    assert talk_of[0].role == "user"


@given(cases())
def test_no_result_loses_its_call(found: Case) -> None:
    old, new = without_checkpoints(found.old), without_checkpoints(found.new)
    kept = set(map(id, new))
    before = [id(old[place]) for place in answered_results(old)]
    after = {id(new[place]) for place in answered_results(new)}
    assert {id_ for id_ in before if id_ in kept} <= after


@given(cases())
def test_no_more_markers_than_joints_that_need_one(found: Case) -> None:
    """A marker stands between two kept messages, or after the last one."""
    ours = set(map(id, found.new)) - set(map(id, found.old))
    markers = [m for m in found.new if id(m) in ours and is_gap_marker(m.data)]
    sided = [m for m in found.new if m.role in ("user", "assistant", "tool")]
    for marker in markers:
        place = sided.index(marker)
        assert id(sided[place - 1]) not in ours
        assert place + 1 == len(sided) or id(sided[place + 1]) not in ours


@given(cases())
def test_it_is_read_as_it_was_written(found: Case) -> None:
    head = found.composed.prefix[0].data["content"]
    known = {text_hash(head): KnownHead(SUMMARY, True)}
    layout = read_layout(found.new, ESTIMATE.message, known.get)
    assert layout.head is not None
    assert layout.head.summary == SUMMARY
    dialog = [item.message for item in layout.dialog]
    kept = [item.message for item in (*found.retained, *found.plan.tail)]
    # What a user typed to the letter of a marker, or of the acknowledgement, counts as one.
    assert [m for m in dialog if m in kept] == dialog
    for message in kept:
        if message not in dialog:
            assert is_gap_marker(message.data) or message is layout.head.items[1].message


# --- by example


def test_nothing_kept_is_a_pair_and_a_checkpoint() -> None:
    assert roles(case(talk(3)).new) == "ua|"


def test_a_tail_of_whole_rounds_follows_the_pair() -> None:
    assert roles(case(talk(6), ratio=0.2).new) == "ua|UA"


def test_an_answer_after_the_head_takes_the_acknowledgements_place() -> None:
    assert roles(case(talk(3), keep=[3]).new) == "uA|"
    group = [user("?"), call("c1"), result("c1"), assistant("!"), *talk(2)]
    assert roles(case(group, keep=[1]).new) == "uATa|"


@pytest.mark.parametrize(
    ("keep", "expected"),
    [
        ([0], "uaUa|"),
        ([0, 2], "uaUaUa|"),
        ([0, 1], "uaUA|"),
        ([1, 3], "uAuA|"),
        ([0, 3], "uaUA|"),
        ([1, 2], "uAUa|"),
        ([0, 1, 2, 3], "uaUAUA|"),
    ],
)
def test_a_marker_stands_where_an_answer_or_a_request_stood(keep: list[int], expected: str) -> None:
    assert roles(case([*talk(2), *talk(1)], keep=keep).new) == expected


def test_a_result_is_answered_before_the_next_request() -> None:
    messages = [user("?"), call("c1"), result("c1"), assistant("!"), *talk(3)]
    assert roles(case(messages, keep=[0, 1]).new) == "uaUATa|"
    assert roles(case(messages, keep=[0, 1, 4]).new) == "uaUATaUa|"
    assert roles(case(messages, keep=[0, 1], ratio=0.3).new) == "uaUATa|UA"


def test_a_history_that_ends_in_a_result_ends_so_afterwards() -> None:
    messages = [*talk(2), user("?"), call("c1"), result("c1")]
    assert roles(case(messages, keep=[5]).new) == "uAT|"


def test_a_live_request_retained_waits_for_its_answer() -> None:
    assert roles(case([*talk(2), user("?")], keep=[4]).new) == "uaU|"


def test_neighbours_of_old_stay_neighbours() -> None:
    messages = [*talk(1), user("one"), user("two"), *talk(1)]
    assert roles(case(messages, keep=[2, 3]).new) == "uaUUa|"


def test_a_message_taken_out_from_between_leaves_a_marker() -> None:
    file = system("a file")
    messages = [user("one"), file, user("two"), *talk(1)]
    assert roles(case(messages, keep=[0, 2]).new) == "uaUaUa|"
    assert roles(case(messages, keep=[0, 1, 2]).new) == "uaUSUa|"


def test_a_message_of_an_unknown_role_that_stays_needs_no_marker() -> None:
    messages = [user("one"), {"role": "developer", "content": "x"}, user("two"), *talk(1)]
    assert roles(case(messages, keep=[0, 1, 2]).new) == "uaUXUa|"


def test_leading_system_messages_and_their_checkpoints_stay_in_front() -> None:
    messages = [checkpoint("lost"), system("s"), checkpoint("a"), checkpoint("b"), *talk(2)]
    composed = case(messages).composed
    assert roles(composed.leading) == "|S||"
    assert roles(composed.messages) == "|S||ua|"


def test_checkpoints_of_retained_units_are_left_out() -> None:
    messages = [m for n in range(3) for m in (*talk(1), checkpoint(str(n)))]
    assert roles(case(messages, keep=[0, 1]).new) == "uaUA|"


def test_old_markers_go_and_new_ones_come() -> None:
    head, known = our_head("They met.")
    marker = dict(gap_marker("assistant", "zh").data)
    kept = [user("one"), marker, user("two"), assistant("!")]
    messages = [head, assistant(ACKNOWLEDGEMENT), *kept, *talk(2, 2)]
    assert roles(case(messages, keep=[2, 4], known=known).new) == "uaUaUa|"
    assert roles(case(messages, keep=[2, 4, 5], known=known).new) == "uaUaUA|"


def test_a_marker_in_the_tail_stays_where_it_is() -> None:
    head, known = our_head("They met.")
    marker = dict(gap_marker("assistant", "zh").data)
    kept = [user("short"), marker, checkpoint("fresh"), *talk(1, 1)]
    messages = [head, assistant(ACKNOWLEDGEMENT), *talk(1, 90), *kept]
    assert roles(case(messages, ratio=0.3, known=known).new) == "ua|Ua|UA"
    plan = case(messages, ratio=0.3, known=known).plan
    assert [item.role for item in plan.tail] == ["user", "user", "assistant"]


def test_the_fresh_checkpoint_is_one_of_its_own() -> None:
    one, other = new_checkpoint(), new_checkpoint()
    assert one.is_checkpoint
    assert one.raw != other.raw
