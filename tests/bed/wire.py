"""What a strict OpenAI-compatible server accepts, and what a request's text is. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

Message = Mapping[str, Any]

_EMOJI = re.compile("[\u200d\u2600-\u27bf\ufe00-\ufe0f\U0001f000-\U0001faff]")
_IMAGE_TOKENS = 765


def violations(messages: Sequence[Message]) -> list[str]:
    """What a strict server would refuse in these messages; empty if nothing."""
    return [*_tool_faults(messages), *_role_faults(messages), *_empty_faults(messages)]


def message_text(message: Message) -> str:
    """All text of a message: content, tool calls' names and arguments."""
    return "\n".join(_texts(message))


def estimate_tokens(text: str) -> int:
    """Tokens of a text by the host's own rule of thumb."""
    chinese = sum("\u4e00" <= char <= "\u9fff" for char in text)
    emoji = len(_EMOJI.findall(text))
    return int(chinese * 0.6 + emoji * 2 + (len(text) - chinese - emoji) * 0.3)


def request_tokens(body: Mapping[str, Any]) -> int:
    """Tokens of a whole request, tools included."""
    total = sum(
        estimate_tokens(message_text(message)) + _IMAGE_TOKENS * _images(message)
        for message in body.get("messages", [])
    )
    tools = body.get("tools")
    return total + (estimate_tokens(str(tools)) if tools else 0)


def _texts(message: Message) -> Iterator[str]:
    content = message.get("content")
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        for part in content:
            if isinstance(part, dict) and isinstance(part.get("text"), str):
                yield part["text"]
    for each in message.get("tool_calls") or ():
        function = each.get("function", {})
        yield f"{function.get('name')}({function.get('arguments')})"


def _images(message: Message) -> int:
    content = message.get("content")
    parts = content if isinstance(content, list) else []
    return sum(isinstance(part, dict) and part.get("type") == "image_url" for part in parts)


def _tool_faults(messages: Sequence[Message]) -> Iterator[str]:
    waiting: list[str] = []
    for position, message in enumerate(messages):
        if message.get("role") == "tool":
            call_id = message.get("tool_call_id")
            if call_id in waiting:
                waiting.remove(call_id)
            else:
                yield f"message {position}: a tool result for no call ({call_id})"
            continue
        if waiting:
            yield f"message {position}: stands before the results of {waiting}"
            waiting = []
        if message.get("role") == "assistant":
            waiting = [each.get("id") for each in message.get("tool_calls") or ()]
    if waiting:
        yield f"the end: calls without results {waiting}"


def _role_faults(messages: Sequence[Message]) -> Iterator[str]:
    dialog = [(position, each.get("role")) for position, each in enumerate(messages)]
    dialog = [(position, role) for position, role in dialog if role != "system"]
    if not dialog:
        yield "no message but the system's"
        return
    if dialog[0][1] != "user":
        yield f"the first message that is not the system's is of role {dialog[0][1]}"
    if dialog[-1][1] == "assistant":
        yield "the last message is the assistant's"
    for (_, before), (position, role) in pairwise(dialog):
        if role == before and role != "tool":
            yield f"message {position}: a second {role} message in a row"


def _empty_faults(messages: Sequence[Message]) -> Iterator[str]:
    for position, message in enumerate(messages):
        content = message.get("content")
        if isinstance(content, list):
            blank = [part for part in content if _is_blank(part)]
            if blank or not content:
                yield f"message {position}: an empty part or no part"
        elif not content and message.get("role") != "tool" and not message.get("tool_calls"):
            yield f"message {position}: empty content"


def _is_blank(part: object) -> bool:
    if not isinstance(part, dict):
        return True
    return part.get("type") == "text" and not str(part.get("text") or "").strip()
