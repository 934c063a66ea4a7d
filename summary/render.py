"""Units as blocks of plain text for the summary model (spec 2.3).

Laws: one block a unit, in order; whole visible texts of users, assistants and files are in
it, arguments, results and notices up to 200 characters; no reasoning; nothing raises, whatever
a damaged message holds. Each character is looked at a fixed number of times.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .cost import Cost
from .history import Message, call_name, content_hash, tool_calls
from .hygiene import CUT_CHARS, label_name, safe_copies, shorten
from .units import Item, Unit
from .usertext import Speaker, is_wake_up, only_text, read_user_text, visible_text

_FILE_TEXT = "File Extract Results of user uploaded files:\n"
# JSON escapes are read back only where the text is short enough to be worth it.
_LONGEST_ARGUMENTS_CHARS = 100_000
# Of a text that is cut in the end no more is looked at.
_ENOUGH_CHARS = 10 * CUT_CHARS


@dataclass(frozen=True, slots=True)
class Names:
    """Who and what the messages mean.

    `tools` maps call ids to tool names over the whole history; `speakers` maps the content
    hash of a user message to whoever sent it, for those without a reminder.
    """

    tools: Mapping[str, str] = field(default_factory=dict)
    speakers: Mapping[str, Speaker] = field(default_factory=dict)


@dataclass(slots=True)
class Block:
    """A unit as text. `label` is repeated where the text is cut in pieces.

    Never changed, and not frozen for the reason `history.Stored` is not.
    """

    text: str
    label: str = ""

    def cost(self, cost: Cost) -> int:
        """Its cost in thousandths of a token."""
        return cost.of(self.text)


# A line to be: its label, what follows it and is still to be made fit to be sent, whether that
# is cut, and how the line ends. A plain tuple, because a history makes thousands.
_Line = tuple[str, str, bool, str]


def render_units(units: Sequence[Unit], names: Names) -> tuple[Block, ...]:
    """A block a unit, in order; empty where nothing can be read."""
    lines: list[_Line] = []
    ends: list[int] = []
    for unit in units:
        for item in unit.items:
            _add_item(lines, item, names)
        ends.append(len(lines))
    bodies = safe_copies([body for _, body, _, _ in lines])
    texts = [
        f"{label}{shorten(body) if is_cut else body}{end}"
        for (label, _, is_cut, end), body in zip(lines, bodies, strict=True)
    ]
    starts = [0, *ends]
    return tuple(
        [
            Block("\n".join(texts[start:end]), lines[start][0] if start < end else "")
            for start, end in zip(starts, ends, strict=False)
        ]
    )


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


def _add_item(lines: list[_Line], item: Item, names: Names) -> None:
    message = item.message.data
    match item.message.role:
        case "user":
            _add_user(lines, message, names)
        case "assistant":
            _add_assistant(lines, message)
        case "tool" | "function":
            _add_result(lines, message, names)
        case _:
            _add_system(lines, message)


def _add_user(lines: list[_Line], message: Message, names: Names) -> None:
    text = only_text(message)
    if text is not None and not names.speakers and not is_wake_up(text):
        # As most are, so it is said at once.
        if text and not text.isspace():
            lines.append(("用户: ", text, False, ""))
        return
    user = read_user_text(message)
    if is_wake_up(user.text):
        lines.append(("通知: ", user.text, True, ""))
        return
    lines += [
        (_user_label(Speaker("", said.nickname), said.clock), said.text, False, "")
        for said in user.group
    ]
    if user.text and not user.text.isspace():
        speaker = user.speaker or _noted_speaker(message, names)
        lines.append((_user_label(speaker, user.clock), user.text, False, ""))


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


def _add_assistant(lines: list[_Line], message: Message) -> None:
    text = _without_thinking(visible_text(message))
    if text and not text.isspace():
        lines.append(("助手: ", text, False, ""))
    for call in tool_calls(message):
        name = label_name(call_name(call)) or "?"
        lines.append((f"调用 {name}(", _enough_of(arguments_text(call)), True, ")"))


def _enough_of(text: str) -> str:
    """As much of a text that will be cut as decides about its beginning."""
    start = text[:_ENOUGH_CHARS]
    # What follows a data URI moves up once that has become a placeholder.
    return text if "ata:" in start or "ATA:" in start else start


def _without_thinking(text: str) -> str:
    """An answer without a reasoning block some models leave in front of it."""
    start = text.lstrip() if "<" in text else ""
    if start.startswith("<think>"):
        end = start.find("</think>")
        if end >= 0:
            return start[end + len("</think>") :].lstrip()
    return text


def _add_result(lines: list[_Line], message: Message, names: Names) -> None:
    call_id = message.get("tool_call_id")
    name = names.tools.get(call_id) if isinstance(call_id, str) else None
    if not name:
        own = message.get("name")
        name = own if isinstance(own, str) else ""
    label = f"工具结果({label_name(name)}): " if name.strip() else "工具结果: "
    lines.append((label, _enough_of(visible_text(message)), True, ""))


def _add_system(lines: list[_Line], message: Message) -> None:
    text = visible_text(message)
    if not text or text.isspace():
        return
    if text.startswith(_FILE_TEXT):
        lines.append(("文件: ", text[len(_FILE_TEXT) :], False, ""))
    else:
        lines.append(("系统: ", text, False, ""))


def _as_json(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):
        return "…"
