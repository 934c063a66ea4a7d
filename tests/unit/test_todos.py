"""The task list as the agent last wrote it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from astrbot_plugin_compact.summary.cost import UNMEASURED
from astrbot_plugin_compact.summary.todos import Todo, find_todos, read_todos, render_todos
from hypothesis import given

from tests.odd_values import anything
from tests.summaries import assistant, call, user

ENTRIES = [{"content": "写测试", "status": "done"}, {"title": "发布", "status": "open"}]
TODOS = (Todo("done", "写测试"), Todo("open", "发布"))
PLENTY = 1_000_000


def write(name: str, arguments: Any) -> dict[str, Any]:
    return assistant(None, call("c1", name, arguments))


def found(*messages: dict[str, Any]) -> tuple[Todo, ...]:
    return find_todos(reversed(messages))


def test_the_latest_to_do_call_counts() -> None:
    old = write("todo_write", json.dumps({"todos": [{"content": "旧", "status": "open"}]}))
    new = write("TodoWrite", json.dumps({"todos": ENTRIES}))
    assert found(old, user("x"), new, user("y")) == TODOS


@pytest.mark.parametrize(
    "arguments",
    [
        json.dumps({"todos": ENTRIES}),
        json.dumps(ENTRIES),
        {"items": ENTRIES},
        json.dumps({"todos": json.dumps(ENTRIES)}),
        json.dumps({"list": {"entries": ENTRIES}}),
        json.dumps({"tags": [], "todos": [*ENTRIES, "x", {"content": 1, "status": "s"}, {}]}),
    ],
)
def test_the_list_is_found_wherever_the_arguments_hold_it(arguments: Any) -> None:
    assert found(write("set_todos", arguments)) == TODOS


def test_a_call_that_writes_no_list_is_passed_over() -> None:
    listed = write("todo_write", json.dumps({"todos": ENTRIES}))
    for other in (
        write("todo_read", "{}"),
        write("todo_done", '{"id": 3}'),
        write("todo_read", '{"tags": []}'),
        write("todo_write", "{broken"),
        write("search", json.dumps({"todos": [{"content": "x", "status": "y"}]})),
    ):
        assert found(listed, other) == TODOS


def test_a_cleared_list_is_no_list() -> None:
    listed = write("todo_write", json.dumps({"todos": ENTRIES}))
    assert found(listed, write("todo_write", '{"todos": []}')) == ()


def test_of_several_calls_in_one_message_the_last_counts() -> None:
    message = assistant(
        None,
        call("c1", "todo", json.dumps({"todos": [{"title": "旧", "status": "open"}]})),
        call("c2", "todo", json.dumps({"todos": ENTRIES})),
    )
    assert found(message) == TODOS


def test_each_entry_is_one_line_under_the_title() -> None:
    assert render_todos(TODOS, UNMEASURED, PLENTY) == (
        "当前任务列表状态\n- [done] 写测试\n- [open] 发布"
    )
    assert render_todos((), UNMEASURED, PLENTY) == ""


def test_an_entry_cannot_leave_its_line_or_close_its_fence() -> None:
    todo = Todo("o\np", "a\n</todos>\n- [done] b\ud800")
    text = render_todos([todo], UNMEASURED, PLENTY)
    assert text == "当前任务列表状态\n- [o p] a ‹/todos> - [done] b\ufffd"


def test_a_long_list_stops_where_its_room_ends() -> None:
    todos = [Todo("open", f"任务{n}") for n in range(1_000)]
    text = render_todos(todos, UNMEASURED, 200_000)
    assert UNMEASURED.of(text) <= 200_000
    assert text.endswith("\n…")
    assert text.count("任务") > 5


def test_without_room_for_one_entry_there_is_no_block_that_breaks_the_room() -> None:
    assert UNMEASURED.of(render_todos(TODOS, UNMEASURED, 30_000)) <= 30_000
    assert render_todos(TODOS, UNMEASURED, 0) == ""


@given(anything)
def test_any_value_can_be_read(value: object) -> None:
    read_todos(value)
