"""A stored history as text and as messages, exact to the byte.

Invariant: every message keeps the JSON text it was stored with, so that what is kept goes
back as it came, unknown keys, number spelling and escapes included (spec 2.7, habit 1).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from .errors import UnreadableHistory

Message = Mapping[str, Any]

CHECKPOINT = "_checkpoint"
_SPACE = " \t\n\r"
_scan: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder().scan_once  # type: ignore[attr-defined]
# What `json.dumps` puts between messages, so what nearly every row has there.
_USUAL_SEPARATOR = ", {"


class Stored:
    """One element of the stored list: its JSON text, what it says, its role (empty: none).

    Never changed. A frozen dataclass would take three times as long to make, and a history has
    thousands.
    """

    __slots__ = ("data", "raw", "role")

    def __init__(self, raw: str, data: Message) -> None:
        role = data.get("role")
        self.raw = raw
        self.data = data
        self.role: str = role if isinstance(role, str) else ""

    def __repr__(self) -> str:
        return f"Stored({self.raw!r})"

    @property
    def is_checkpoint(self) -> bool:
        """Whether this is one of the host's records and no message."""
        return self.role == CHECKPOINT


def stored(message: Message) -> Stored:
    """A message of our own making, spelled as the host spells its rows (ASCII JSON)."""
    return Stored(json.dumps(message), message)


def stored_as(raw: str) -> Stored:
    """A message from the text it was stored with."""
    return Stored(raw, json.loads(raw))


def iter_history(text: str) -> Iterator[Stored]:
    """The messages of a stored row, one decoded at a time.

    One `json.loads` of a 45 MB row would hold the interpreter for 100 ms even in a thread;
    element by element it is given up in between.

    Raises:
        UnreadableHistory: the text is no JSON list of objects.
    """
    position = _skip(text, 0)
    if text[position : position + 1] != "[":
        raise UnreadableHistory(detail="not a list")
    position = _skip(text, position + 1)
    if text[position : position + 1] == "]":
        _expect_end(text, position + 1)
        return
    while True:
        try:
            data, end = _scan(text, position)
        except (ValueError, RecursionError, StopIteration) as exc:
            raise UnreadableHistory(detail=f"bad JSON at character {position}") from exc
        if not isinstance(data, dict):
            raise UnreadableHistory(detail=f"an element at character {position} is no message")
        yield Stored(text[position:end], data)
        if text.startswith(_USUAL_SEPARATOR, end):
            position = end + len(_USUAL_SEPARATOR) - 1
            continue
        position = _skip(text, end)
        separator = text[position : position + 1]
        if separator == "]":
            _expect_end(text, position + 1)
            return
        if separator != ",":
            raise UnreadableHistory(detail=f"bad JSON at character {position}")
        position = _skip(text, position + 1)


def parse_history(text: str | None) -> tuple[Stored, ...]:
    """All messages of a stored row; an SQL or JSON null is an empty history.

    Raises:
        UnreadableHistory: the text is no JSON list of objects.
    """
    if text is None or text.strip(_SPACE) in {"", "null"}:
        return ()
    return tuple(iter_history(text))


def dump_history(messages: Iterable[Stored]) -> str:
    """The text to store for these messages: each in the spelling it has."""
    return "[" + ", ".join(message.raw for message in messages) + "]"


def canonical_json(value: object) -> str:
    """One spelling for equal JSON values: sorted keys, no spaces, ASCII."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def content_hash(value: object) -> str:
    """The tagged hash a message or a text is known by: of its canonical JSON."""
    return "sha256:" + hashlib.sha256(canonical_json(value).encode("ascii")).hexdigest()


def text_parts(message: Message) -> Iterator[str]:
    """The texts of a message's content, whether it is a string or a list of parts."""
    content = message.get("content")
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        for part in content:
            if isinstance(part, str):
                yield part
            elif isinstance(part, dict) and isinstance(part.get("text"), str):
                yield part["text"]


def message_text(message: Message) -> str:
    """A message's visible text, its parts joined by line breaks."""
    content = message.get("content")
    if isinstance(content, list) and len(content) == 1 and isinstance(content[0], dict):
        content = content[0].get("text")
    return content if isinstance(content, str) else "\n".join(text_parts(message))


def media_url(part: object) -> str:
    """The address of an image or a clip, data included; empty where a part is none."""
    kind = part.get("type") if isinstance(part, dict) else None
    holder = part.get(kind) if isinstance(part, dict) and isinstance(kind, str) else None
    url = holder.get("url") if isinstance(holder, dict) else holder
    return url if isinstance(url, str) and kind != "text" else ""


def tool_calls(message: Message) -> list[dict[str, Any]]:
    """The tool calls of an assistant message that have the shape of one."""
    calls = message.get("tool_calls")
    if not calls or not isinstance(calls, list) or message.get("role") != "assistant":
        return []
    return [call for call in calls if isinstance(call, dict)]


def call_name(call: Mapping[str, Any]) -> str:
    """The name of the tool a call is for; empty if it names none."""
    function = call.get("function")
    name = function.get("name") if isinstance(function, dict) else None
    return name if isinstance(name, str) else ""


def _skip(text: str, position: int) -> int:
    while text[position : position + 1] and text[position] in _SPACE:
        position += 1
    return position


def _expect_end(text: str, position: int) -> None:
    if _skip(text, position) != len(text):
        raise UnreadableHistory(detail=f"text after the list at character {position}")
