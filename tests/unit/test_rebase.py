"""The cut of a plan on a history the host trimmed since (spec 2.7, rule 2)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from astrbot_plugin_compact.summary.archive_types import ArchivedMessage, TrimmedBatch
from astrbot_plugin_compact.summary.errors import HistoryChanged
from astrbot_plugin_compact.summary.history import parse_history
from astrbot_plugin_compact.summary.plan import (
    CompactionPlan,
    Layout,
    PlanOptions,
    plan_compaction,
    read_layout,
)
from astrbot_plugin_compact.summary.rebase import Rebased, rebase_trimmed

from tests.contract.fake_bot import host_summary, keep_turns
from tests.contract.fake_host import FakeHost

HOST = FakeHost()
Message = dict[str, Any]


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def assistant(text: str) -> Message:
    return {"role": "assistant", "content": text}


def call(id_: str) -> Message:
    function = {"name": "f", "arguments": "{}"}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"type": "function", "id": id_, "function": function}],
    }


def result(id_: str) -> Message:
    return {"role": "tool", "tool_call_id": id_, "content": f"result {id_}"}


def rounds(first: int, last: int) -> list[Message]:
    return [
        each for n in range(first, last + 1) for each in (user(f"u{n}" * 2), assistant(f"a{n}" * 2))
    ]


def layout(messages: Sequence[Message]) -> Layout:
    stored = parse_history(json.dumps(list(messages)))
    return read_layout(stored, HOST.count_tokens, lambda _: None)


def plan_of(messages: Sequence[Message], ratio: float = 0) -> CompactionPlan:
    plan = plan_compaction(layout(messages), PlanOptions(ratio, 1), (), "")
    assert isinstance(plan, CompactionPlan)
    return plan


def batch(id_: int, *messages: Message) -> TrimmedBatch:
    archived = tuple(
        ArchivedMessage(n, json.dumps(m), m["role"], "", False, None, None)
        for n, m in enumerate(messages)
    )
    return TrimmedBatch(id_, "host_trim", 0.0, archived)


def rebased(
    plan: CompactionPlan,
    now: Sequence[Message],
    *batches: TrimmedBatch,
    retained: frozenset[int] = frozenset(),
) -> Rebased:
    return rebase_trimmed(plan, retained, layout(now), batches, HOST)


def texts(found: Rebased) -> tuple[list[Any], list[Any]]:
    """What is left of the span, and the tail."""
    span = [item.data["content"] for unit in found.plan.span for item in unit.items]
    return span, [item.data["content"] for item in found.plan.tail]


def test_the_end_of_the_span_and_what_followed() -> None:
    now = [*rounds(3, 5), *rounds(6, 7)]
    found = rebased(plan_of(rounds(1, 5)), now, batch(7, *rounds(1, 2)))
    assert texts(found) == (
        [m["content"] for m in rounds(3, 5)],
        [m["content"] for m in rounds(6, 7)],
    )
    assert found.covers == (7,)
    assert found.gone_tokens == sum(HOST.count_tokens(m) for m in rounds(1, 2))


def test_the_first_user_message_may_lead() -> None:
    """AstrBot puts it in front where the rest would not begin with a user's."""
    now = [*rounds(1, 1)[:1], *rounds(4, 5), user("new")]
    found = rebased(plan_of(rounds(1, 5)), now, batch(7, *rounds(1, 3)[1:]))
    assert texts(found) == ([m["content"] for m in rounds(4, 5)], ["new"])
    assert found.plan.cut == 5


@pytest.mark.parametrize("acknowledged", [True, False])
def test_the_host_s_own_summary_may_lead(acknowledged: bool) -> None:
    pair = host_summary(0)([])[: 2 if acknowledged else 1]
    found = rebased(
        plan_of(rounds(1, 5)), [*pair, *rounds(5, 5), user("new")], batch(7, *rounds(1, 4))
    )
    assert texts(found) == ([m["content"] for m in rounds(5, 5)], ["new"])
    assert found.covers == (7,)


def test_a_summary_of_the_host_that_speaks_of_newer_messages_is_not_replaced() -> None:
    now = [*host_summary(0)([])[:2], user("new")]
    dropped = batch(7, *rounds(1, 5), *rounds(6, 6))
    with pytest.raises(HistoryChanged):
        rebased(plan_of(rounds(1, 5)), now, dropped)


def test_newer_messages_dropped_by_turns_wait_for_the_next_summary() -> None:
    found = rebased(plan_of(rounds(1, 5)), rounds(8, 9), batch(7, *rounds(1, 7)))
    assert texts(found) == ([], [m["content"] for m in rounds(8, 9)])
    assert found.covers == ()


def test_a_message_that_is_gone_and_in_no_archive_is_another_writer_s_doing() -> None:
    with pytest.raises(HistoryChanged):
        rebased(plan_of(rounds(1, 5)), rounds(4, 6), batch(7, *rounds(1, 2)))


def test_a_changed_message_is_another_writer_s_doing() -> None:
    now = [*rounds(4, 4)[:1], assistant("something else"), *rounds(5, 6)]
    with pytest.raises(HistoryChanged):
        rebased(plan_of(rounds(1, 5)), now, batch(7, *rounds(1, 3)))


def test_of_equal_messages_as_many_must_be_archived_as_are_gone() -> None:
    same = [user("好"), assistant("嗯")] * 4
    with pytest.raises(HistoryChanged):
        rebased(plan_of(same), [*same[:4], user("new")], batch(7, *same[:2]))
    found = rebased(plan_of(same), [*same[:4], user("new")], batch(7, *same[:4]))
    assert texts(found)[1] == ["new"]


def test_groups_that_the_host_finds_broken_may_be_gone() -> None:
    """It leaves out calls without results and lone results when it trims."""
    history = [*rounds(1, 2), user("u3"), call("1"), user("u4"), result("1"), *rounds(5, 5)]
    now = [user("u3"), user("u4"), *rounds(5, 5), user("new")]
    dropped = batch(7, *rounds(1, 2), call("1"), result("1"))
    found = rebased(plan_of(history), now, dropped)
    assert texts(found) == (["u3", "u4", "u5u5", "a5a5"], ["new"])


def test_retained_units_keep_their_messages_or_are_given_up() -> None:
    plan = plan_of(rounds(1, 5))
    found = rebased(
        plan,
        [*rounds(3, 5), user("new")],
        batch(7, *rounds(1, 2)),
        retained=frozenset({1, 4, 7}),
    )
    kept = [found.plan.span[index].items[0].data["content"] for index in sorted(found.retained)]
    assert kept == ["u3u3", "a4a4"]


@pytest.mark.parametrize("turns", range(1, 12))
def test_whatever_the_host_keeps_by_turns_is_found_again(turns: int) -> None:
    """Span and tail, with newcomers, for every limit."""
    history = [*rounds(1, 6), call("1"), result("1"), assistant("done")]
    plan = plan_of(history, 0.2)
    full = [*history, user("new")]
    now = keep_turns(turns)(full)
    gone = [message for message in full if message not in now]
    found = rebased(plan, now, batch(7, *gone)) if gone else None
    if found is not None:
        left, tail = texts(found)
        assert [*left, *tail][-1] == "new"
        assert len(left) + len(tail) + (found.plan.layout.body[0].data == history[0]) >= len(now)
