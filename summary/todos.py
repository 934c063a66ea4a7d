"""The task list as the agent last wrote it, for the work template (spec 2.4)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .cost import Cost
from .history import Message, call_name, tool_calls
from .hygiene import safe_copy, shorten

TITLE = "当前任务列表状态"

_TITLE_KEYS = ("title", "content")
# Of an empty list only its key can say that it is the task list.
_LIST_WORDS = ("todo", "task", "item")
_DEEPEST = 3


@dataclass(frozen=True, slots=True)
class Todo:
    """One entry of a task list."""

    status: str
    title: str


def find_todos(newest_first: Iterable[Message]) -> tuple[Todo, ...]:
    """The list the latest to-do call wrote; empty if there was none or it cleared the list.

    A call that only reads or names single entries is passed over.
    """
    for message in newest_first:
        for call in reversed(tool_calls(message)):
            if "todo" not in call_name(call).lower():
                continue
            found = read_todos(_arguments(call))
            if found is not None:
                return found
    return ()


def read_todos(value: object) -> tuple[Todo, ...] | None:
    """The task list in a call's arguments or a plugin's answer; None if it holds none."""
    cleared = False
    for key, entries in _lists("", value, _DEEPEST):
        todos = tuple(filter(None, map(_todo, entries)))
        if todos:
            return todos
        cleared = cleared or (not entries and any(word in key.lower() for word in _LIST_WORDS))
    return () if cleared else None


def render_todos(todos: Iterable[Todo], cost: Cost, room_millitokens: int) -> str:
    """One line an entry under a title, as many as there is room for; empty without entries."""
    lines = [TITLE]
    left = room_millitokens - cost.of(TITLE + "\n…\n")
    for todo in todos:
        title = " ".join(safe_copy(todo.title).split())
        line = f"- [{shorten(' '.join(safe_copy(todo.status).split()), 40)}] {shorten(title)}"
        left -= cost.of(line + "\n")
        if left < 0:
            lines.append("…")
            break
        lines.append(line)
    return "\n".join(lines) if lines[1:] not in ([], ["…"]) else ""


def _arguments(call: Mapping[str, Any]) -> object:
    function = call.get("function")
    arguments = function.get("arguments") if isinstance(function, dict) else None
    return _decoded(arguments) if isinstance(arguments, str) else arguments


def _decoded(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _lists(key: str, value: object, depth: int) -> Iterator[tuple[str, list[Any]]]:
    """The lists in a value with their keys; models also send a list as JSON in a string."""
    if depth == 0:
        return
    if isinstance(value, list):
        yield key, value
    elif isinstance(value, dict):
        for inner_key, inner in value.items():
            yield from _lists(str(inner_key), inner, depth - 1)
    elif isinstance(value, str) and value.lstrip().startswith(("[", "{")):
        yield from _lists(key, _decoded(value), depth - 1)


def _todo(entry: object) -> Todo | None:
    if not isinstance(entry, dict):
        return None
    status = entry.get("status")
    title = next((t for key in _TITLE_KEYS if isinstance(t := entry.get(key), str) and t), None)
    return Todo(status, title) if isinstance(status, str) and title else None
