"""Copies of messages that the host can load and any chat model accepts (spec 2.9).

Laws: one copy a message, in order; all of its visible text is in the copy, as valid UTF-8; no
copy is empty; no data URI and no reasoning goes along; a tool call stands as one only with all
of its results right behind it, else as text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from .history import Message, call_name, tool_calls

Copy = dict[str, Any]

EMPTY = "(empty)"
OPENING = "(The conversation begins.)"
_UNSENDABLE = re.compile("[\x00\ud800-\udfff]")
_IMAGE_TYPES = ("image_url", "image", "input_image")
_AUDIO_TYPES = ("audio_url", "input_audio", "audio")


def valid_text(text: str) -> str:
    """The text as valid UTF-8 without NUL."""
    return _UNSENDABLE.sub("\ufffd", text)


def sendable(messages: Sequence[Message]) -> list[Copy]:
    """A copy of each message, in order."""
    copies: list[Copy] = []
    leading = True
    while len(copies) < len(messages):
        position = len(copies)
        message = messages[position]
        leading = leading and message.get("role") == "system"
        end = _group_end(messages, position)
        if end is not None:
            copies.append(_call_copy(message))
            copies.extend(_result_copy(result) for result in messages[position + 1 : end])
        else:
            copies.append(_text_copy(message, leading))
    return copies


def alternating(contexts: Sequence[Mapping[str, Any]]) -> list[Copy]:
    """The request's messages opened by a user, neighbours of one role merged.

    Strict servers refuse equal neighbours, and Gemini's source drops a leading answer.
    """
    merged: list[Copy] = []
    for context in contexts:
        message = dict(context)
        previous = merged[-1] if merged else None
        role = message.get("role")
        if role == "assistant" and (previous is None or previous["role"] == "system"):
            merged.append({"role": "user", "content": OPENING})
        elif previous is not None and role in ("user", "assistant") and previous["role"] == role:
            texts = [text for text in (previous["content"], message["content"]) if text]
            previous.update(message, content="\n\n".join(texts))
            continue
        merged.append(message)
    return merged


def _group_end(messages: Sequence[Message], start: int) -> int | None:
    """Where the tool group starting here ends, if it is one that any provider accepts."""
    calls = tool_calls(messages[start])
    if not calls or len(calls) != len(messages[start]["tool_calls"]):
        return None
    if not all(_is_sendable(call) for call in calls):
        return None
    end = start + 1
    answered: list[str] = []
    while end < len(messages) and messages[end].get("role") == "tool":
        call_id = messages[end].get("tool_call_id")
        answered.append(call_id if isinstance(call_id, str) else "")
        end += 1
    ids = [call["id"] for call in calls]
    complete = len(set(ids)) == len(ids) == len(answered) and set(ids) == set(answered)
    return end if complete else None


def _is_sendable(call: Mapping[str, Any]) -> bool:
    """Whether a call has an id, a name and a JSON object as arguments: some sources decode them."""
    call_id = call.get("id")
    function = call.get("function")
    arguments = function.get("arguments") if isinstance(function, dict) else None
    if not call_name(call) or not isinstance(arguments, str):
        return False
    if not isinstance(call_id, str) or not call_id or valid_text(call_id) != call_id:
        return False
    try:
        return isinstance(json.loads(arguments), dict)
    except (ValueError, RecursionError):
        return False


def _call_copy(message: Message) -> Copy:
    calls = []
    for call in tool_calls(message):
        function = {
            "name": valid_text(call_name(call)),
            "arguments": valid_text(call["function"]["arguments"]),
        }
        copy: Copy = {"type": "function", "id": call["id"], "function": function}
        extra = call.get("extra_content")
        # Thought signatures; ASCII whatever the provider, so anything else is not worth a refusal.
        if isinstance(extra, dict) and not _UNSENDABLE.search(_as_text(extra)):
            copy["extra_content"] = extra
        calls.append(copy)
    return {"role": "assistant", "content": _visible(message) or None, "tool_calls": calls}


def _result_copy(message: Message) -> Copy:
    content = _visible(message) or EMPTY
    return {"role": "tool", "tool_call_id": message["tool_call_id"], "content": content}


def _text_copy(message: Message, leading: bool) -> Copy:
    text = _visible(message)
    role = message.get("role")
    if role == "system" and leading:
        return {"role": "system", "content": text or EMPTY}
    if role == "assistant":
        called = [
            valid_text(f"[called {call_name(call)}] {_as_text(call.get('function'))}")
            for call in tool_calls(message)
        ]
        return {"role": "assistant", "content": "\n".join(filter(None, [text, *called])) or EMPTY}
    # A system message in the middle would replace the instructions or be dropped.
    label = "" if role == "user" else f"[{valid_text(str(role))}] "
    return {"role": "user", "content": label + (text or EMPTY)}


def _visible(message: Message) -> str:
    content = message.get("content")
    if isinstance(content, list):
        text = "\n".join(filter(None, map(_part_text, content)))
    else:
        text = valid_text(_as_text(content))
    # Blank text counts as none: a block of spaces is refused too.
    return text if text.strip() else ""


def _part_text(part: object) -> str:
    if not isinstance(part, dict):
        return valid_text(_as_text(part))
    kind = part.get("type")
    if kind == "think":
        return ""
    if kind in _IMAGE_TYPES:
        return "[Image]"
    if kind in _AUDIO_TYPES:
        return "[Audio]"
    text = part.get("text")
    return valid_text(text if isinstance(text, str) else f"[{kind}]")


def _as_text(value: object) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False, default=str)
