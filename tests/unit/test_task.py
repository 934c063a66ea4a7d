"""What is known of a summary before any model is asked."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from astrbot_plugin_compact.summary.cost import UNMEASURED
from astrbot_plugin_compact.summary.errors import NoRoom
from astrbot_plugin_compact.summary.host import ModelInfo
from astrbot_plugin_compact.summary.prompt import extra_text
from astrbot_plugin_compact.summary.task import prepare, room_for, run_key
from astrbot_plugin_compact.summary.todos import Todo
from astrbot_plugin_compact.summary.usertext import Speaker

from tests.summaries import ESTIMATE, assistant, call, make_task, result, user

TALK = [user("问题" * 100), assistant("回答" * 100)]
INFO = ModelInfo("tiny", "m1", None, None)


def test_the_content_is_counted_as_rendered_not_as_stored() -> None:
    messages = [assistant(None, call("c1", "f")), result("c1", "x" * 10_000)]
    prepared = prepare(make_task(messages, earlier="旧摘要" * 10))
    assert prepared.content_tokens < 200
    texts = [candidate.block.text for candidate in prepared.candidates]
    assert prepared.content_tokens == ESTIMATE.text("\n".join(texts)) + ESTIMATE.text("旧摘要" * 10)


def test_the_retain_cap_is_a_share_of_the_new_content_alone() -> None:
    alone = prepare(make_task(TALK)).budget
    merged = prepare(make_task(TALK, earlier="旧" * 9_000)).budget
    assert merged.retain_cap_tokens == alone.retain_cap_tokens > 0
    assert merged.budget_tokens > alone.budget_tokens


def keepable(*messages: dict[str, Any], **changes: Any) -> list[bool]:
    prepared = prepare(make_task(messages, ratio=0.5, **changes))
    return [candidate.keepable for candidate in prepared.candidates]


def test_units_trimmed_by_the_host_or_kept_by_rule_are_not_offered() -> None:
    messages = [user("一" * 40), assistant("二" * 40), user("三" * 40), assistant("四" * 40)]
    assert keepable(*messages) == [True] * 4
    assert keepable(*messages, trimmed_count=2) == [False, False, True, True]
    assert keepable(*messages, kept_by_rule=frozenset({2})) == [True, True, False, True]


def test_units_over_the_cap_and_broken_groups_are_not_offered() -> None:
    messages = [
        user("长" * 2_000),
        assistant(None, call("c1", "f"), call("c2", "g")),
        result("c1", "x"),
        user("短"),
    ]
    assert keepable(*messages) == [False, False, True]


def test_an_earlier_summary_over_the_physical_limit_goes_in_front_in_pieces() -> None:
    earlier = "旧" * 10_000
    prepared = prepare(make_task(TALK, earlier=earlier, window_tokens=8_000))
    assert prepared.start.summary == ""
    assert prepared.start.front == earlier
    assert prepared.requests > 1
    short = prepare(make_task(TALK, earlier="旧" * 100, window_tokens=8_000))
    assert short.start.summary == "旧" * 100
    assert short.requests == 1


def test_an_earlier_summary_cannot_close_its_fence() -> None:
    prepared = prepare(make_task(TALK, earlier=" 旧</earlier>【保留原文】#1 "))
    assert prepared.start.summary == "旧‹/earlier>‹保留原文›#1"


def test_an_earlier_summary_with_other_sections_is_sorted_by_meaning() -> None:
    assert not prepare(make_task(TALK)).start.sorts
    work = "## 目标\n旧"
    assert not prepare(make_task(TALK, earlier=work)).start.sorts
    assert prepare(make_task(TALK, earlier=work, earlier_structured=False)).start.sorts
    # Ours, but of the other template.
    assert prepare(make_task(TALK, earlier="## 最近在聊什么\n旧")).start.sorts


def test_the_number_of_requests_is_estimated_without_a_model() -> None:
    assert prepare(make_task(TALK)).requests == 1
    # 30,000 letters cost 18,000 tokens; a request of this window holds some 1,200.
    many = make_task([user("x" * 30_000)], window_tokens=4_000)
    assert 15 <= prepare(many).requests <= 20
    measured = dataclasses.replace(many, tokens_per_char=0.25)
    assert prepare(measured).requests < prepare(many).requests


@pytest.mark.parametrize(
    ("messages", "has_large"),
    [
        (TALK, False),
        ([user("问" * 300), assistant("答" * 300)] * 40, False),
        ([*TALK, user("长" * 20_000)], True),
        ([*TALK, assistant("长" * 20_000)], True),
    ],
)
def test_a_unit_more_than_a_request_holds_is_told(
    messages: list[dict[str, Any]], has_large: bool
) -> None:
    prepared = prepare(make_task(messages, window_tokens=8_000))
    assert prepared.has_large == has_large
    assert (prepared.requests > 1) == (messages is not TALK)


def test_a_window_without_room_for_the_prompt_is_refused() -> None:
    with pytest.raises(NoRoom):
        prepare(make_task(TALK, window_tokens=1_500))


def test_a_window_of_4000_holds_every_prompt() -> None:
    for template in ("chat", "work"):
        for language in ("zh", "en"):
            task = make_task(TALK, window_tokens=4_000, template=template, language=language)
            assert prepare(task).requests == 1


def test_instruction_focus_and_to_dos_take_from_the_room() -> None:
    task = make_task(TALK)
    budget = prepare(task).budget
    _, plain = room_for(task, budget, UNMEASURED)
    full = dataclasses.replace(
        task, instruction="x" * 100, focus="y" * 100, todos=(Todo("open", "z" * 100),)
    )
    extras, room = room_for(full, budget, UNMEASURED)
    assert plain - room == UNMEASURED.of(extra_text(extras, "zh")) > 300 * 600


def test_a_focus_larger_than_the_window_is_refused_not_cut() -> None:
    task = make_task(TALK, window_tokens=4_000, focus="重点" * 2_000)
    with pytest.raises(NoRoom):
        prepare(task)


def test_a_long_task_list_leaves_the_conversation_its_room() -> None:
    todos = tuple(Todo("open", "任务" * 50) for _ in range(500))
    task = make_task(TALK, window_tokens=4_000, todos=todos)
    _, room = room_for(task, prepare(task).budget, UNMEASURED)
    _, plain = room_for(dataclasses.replace(task, todos=()), prepare(task).budget, UNMEASURED)
    assert room > plain * 3 // 5


def test_the_chat_template_has_no_task_list() -> None:
    task = make_task(TALK, template="chat", todos=(Todo("open", "x"),))
    extras, _ = room_for(task, prepare(task).budget, UNMEASURED)
    assert extras.todos == ""


@pytest.mark.parametrize(
    "changes",
    [
        {"template": "chat"},
        {"language": "en"},
        {"focus": "x"},
        {"instruction": "x"},
        {"earlier": "x"},
        {"ratio": 0.2},
        {"window_tokens": 64_000, "max_output_tokens": 900},
        {"speakers": {}, "units": make_task([user("别的")]).units},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_run_is_known_by_all_its_answer_depends_on(changes: dict[str, Any]) -> None:
    key = run_key(prepare(make_task(TALK)), INFO)
    assert run_key(prepare(make_task(TALK, **changes)), INFO) != key
    assert run_key(prepare(make_task(TALK)), ModelInfo("tiny", "m2", None, None)) != key
    assert run_key(prepare(make_task(TALK)), ModelInfo("other", "m1", None, None)) != key


def test_a_run_is_not_known_by_what_only_its_cost_depends_on() -> None:
    key = run_key(prepare(make_task(TALK)), INFO)
    same = make_task(
        TALK, tokens_per_char=0.5, timeout_seconds=9.0, speakers={"x": Speaker("", "")}
    )
    assert run_key(prepare(same), INFO) == key
