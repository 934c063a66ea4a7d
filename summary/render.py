"""Units as blocks of plain text for the summary model (spec 2.3).

Laws: one block a unit, in order; whole visible texts of users, assistants and files are in
it, arguments, results and notices up to 200 characters; no reasoning; nothing raises, whatever
a damaged message holds. Each character is looked at a fixed number of times.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from .cost import Cost, count_ascii
from .history import Message, call_name, content_hash, tool_calls
from .hygiene import label_name, safe_copy, shorten
from .units import Item, Unit
from .usertext import Speaker, is_wake_up, read_user_text, visible_text

CountText = Callable[[str], int]

_FILE_TEXT = "File Extract Results of user uploaded files:\n"
# JSON escapes are read back only where the text is short enough to be worth it.
_LONGEST_ARGUMENTS_CHARS = 100_000


@dataclass(frozen=True, slots=True)
class Names:
    """Who and what the messages mean.

    `tools` maps call ids to tool names over the whole history; `speakers` maps the content
    hash of a user message to whoever sent it, for those without a reminder.
    """

    tools: Mapping[str, str] = field(default_factory=dict)
    speakers: Mapping[str, Speaker] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Block:
    """A unit as text. `label` is repeated where the text is cut in pieces."""

    text: str
    label: str
    tokens: int
    ascii_chars: int

    def cost(self, cost: Cost) -> int:
        """Its cost in thousandths of a token."""
        return cost.of_counts(len(self.text), self.ascii_chars)


def make_block(lines: Sequence[tuple[str, str]], count_text: CountText) -> Block:
    """A block of labelled lines; those without text are left out."""
    text = "\n".join(f"{label}{body}" for label, body in lines)
    label = lines[0][0] if lines else ""
    return Block(text, label, count_text(text) if text else 0, count_ascii(text))


def render_unit(unit: Unit, names: Names, count_text: CountText) -> Block:
    """One unit as a block; empty if nothing in it can be read."""
    lines: list[tuple[str, str]] = []
    for item in unit.items:
        lines += _render_item(item, names)
    return make_block(lines, count_text)


def render_units(units: Sequence[Unit], names: Names, count_text: CountText) -> tuple[Block, ...]:
    """A block a unit, in order."""
    return tuple(render_unit(unit, names, count_text) for unit in units)


def arguments_text(call: Mapping[str, object]) -> str:
    """A call's arguments as text, as they were written or as JSON, whole."""
    function = call.get("function")
    arguments = function.get("arguments") if isinstance(function, dict) else None
    if arguments is None:
        return ""
    if not isinstance(arguments, str):
        return _as_json(arguments)
    if "\\u" in arguments and len(arguments) <= _LONGEST_ARGUMENTS_CHARS:
        try:
            return _as_json(json.loads(arguments))
        except (ValueError, RecursionError):
            return arguments
    return arguments


def _render_item(item: Item, names: Names) -> list[tuple[str, str]]:
    message = item.data
    match item.role:
        case "user":
            return _render_user(message, names)
        case "assistant":
            return _render_assistant(message)
        case "tool" | "function":
            return _render_result(message, names)
        case _:
            return _render_system(message)


def _render_user(message: Message, names: Names) -> list[tuple[str, str]]:
    user = read_user_text(message)
    if is_wake_up(user.text):
        return [("通知: ", shorten(safe_copy(user.text)))]
    lines = [
        (_user_label(Speaker("", said.nickname), said.clock), safe_copy(said.text))
        for said in user.group
    ]
    if user.text.strip():
        speaker = user.speaker or _noted_speaker(message, names)
        lines.append((_user_label(speaker, user.clock), safe_copy(user.text)))
    return lines


def _noted_speaker(message: Message, names: Names) -> Speaker | None:
    if not names.speakers:
        return None
    try:
        return names.speakers.get(content_hash(message))
    except (TypeError, ValueError, RecursionError):
        return None


def _user_label(speaker: Speaker | None, clock: str) -> str:
    who = ""
    if speaker is not None:
        nickname, user_id = label_name(speaker.nickname), label_name(speaker.id)
        who = f"{nickname}({user_id})" if nickname and user_id else nickname or user_id
    when = f"({clock})" if clock else ""
    return f"用户[{who}]{when}: " if who else f"用户{when}: "


def _render_assistant(message: Message) -> list[tuple[str, str]]:
    lines: list[tuple[str, str]] = []
    text = _without_thinking(visible_text(message))
    if text.strip():
        lines.append(("助手: ", safe_copy(text)))
    for call in tool_calls(message):
        arguments = shorten(safe_copy(arguments_text(call)))
        lines.append(("调用 ", f"{label_name(call_name(call)) or '?'}({arguments})"))
    return lines


def _without_thinking(text: str) -> str:
    """An answer without a reasoning block some models leave in front of it."""
    start = text.lstrip()
    if start.startswith("<think>"):
        end = start.find("</think>")
        if end >= 0:
            return start[end + len("</think>") :].lstrip()
    return text


def _render_result(message: Message, names: Names) -> list[tuple[str, str]]:
    call_id = message.get("tool_call_id")
    name = names.tools.get(call_id) if isinstance(call_id, str) else None
    if not name:
        own = message.get("name")
        name = own if isinstance(own, str) else ""
    label = f"工具结果({label_name(name)}): " if name.strip() else "工具结果: "
    return [(label, shorten(safe_copy(visible_text(message))))]


def _render_system(message: Message) -> list[tuple[str, str]]:
    text = visible_text(message)
    if not text.strip():
        return []
    if text.startswith(_FILE_TEXT):
        return [("文件: ", safe_copy(text[len(_FILE_TEXT) :]))]
    return [("系统: ", safe_copy(text))]


def _as_json(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):
        return "…"
