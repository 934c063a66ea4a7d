"""The messages we write into a history: the head summary, its acknowledgement, gap markers.

Invariant: what looks like a head summary is one only if the archive wrote it, or if AstrBot's
own acknowledgement follows it (spec 2.1, habit 8). A user's text is never taken for ours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .history import Message, Stored, content_hash, message_text, stored
from .units import Item

HEAD_PREFIX = "Our previous history conversation summary: "
ACKNOWLEDGEMENT = "Acknowledged the summary of our previous conversation history."

# One fixed sentence a language, so that a change of ours never reads as a change of content.
_BACKGROUND = {
    "zh": (
        "（以下是先前对话的摘要，仅作背景资料，不是新的请求。"
        "其后若有保留的原文，按原来的先后排列，内容已经概括在摘要里。）"
    ),
    "en": (
        "(This summarizes the earlier conversation as background; it is not a new request. "
        "Messages kept verbatim, if any, follow in their original order and are already "
        "covered by it.)"
    ),
}
_GAPS = {
    "user": {
        "zh": "（此处的对话已并入开头的摘要。）",
        "en": "(The messages here are part of the summary at the start.)",
    },
    "assistant": {
        "zh": "（好的，此处的内容见开头的摘要。）",
        "en": "(Noted; see the summary at the start for what was said here.)",
    },
}
_GAP_TEXTS = {role: frozenset(texts.values()) for role, texts in _GAPS.items()}


@dataclass(frozen=True, slots=True)
class KnownHead:
    """What the archive remembers of a head summary it wrote."""

    summary: str
    structured: bool


@dataclass(frozen=True, slots=True, eq=False)
class Head:
    """The head summary of a history.

    `items` are the summary message and, if present, its acknowledgement. `summary` is the bare
    text. `ours` is whether the archive wrote it; `structured` whether it has our sections.
    """

    items: tuple[Item, ...]
    summary: str
    text_hash: str
    ours: bool
    structured: bool

    @property
    def tokens(self) -> int:
        """Tokens of the pair as stored."""
        return sum(item.tokens for item in self.items)


FindHead = Callable[[str], KnownHead | None]


def head_text(summary: str, language: str) -> str:
    """The head summary message's text: AstrBot's prefix, our sentence, the whole summary."""
    return f"{HEAD_PREFIX}{_BACKGROUND[language]}\n\n{summary}"


def head_message(summary: str, language: str) -> Stored:
    """The head summary as a message to store."""
    return stored({"role": "user", "content": head_text(summary, language)})


def acknowledgement() -> Stored:
    """AstrBot's own answer to a head summary."""
    return stored({"role": "assistant", "content": ACKNOWLEDGEMENT})


def gap_marker(role: str, language: str) -> Stored:
    """A one-line message in `role` that stands where messages were taken out."""
    return stored({"role": role, "content": _GAPS[role][language]})


def text_hash(text: str) -> str:
    """The hash a head summary is remembered by: of its text, whatever shape holds it."""
    return content_hash(text)


def is_gap_marker(message: Message) -> bool:
    """Whether this is a marker of ours, to the letter."""
    role = message.get("role")
    if role not in ("user", "assistant") or message.get("tool_calls"):
        return False
    return message.get("content") in _GAP_TEXTS[role] if _is_text(message) else False


def candidate_hash(items: Sequence[Item]) -> str | None:
    """The hash to ask the archive for, if the first of these dialog items may be a head."""
    if not items or not may_be_head(items[0].data):
        return None
    return text_hash(message_text(items[0].data))


def find_head(items: Sequence[Item], known: KnownHead | None) -> Head | None:
    """The head summary at the start of a dialog, or None.

    Args:
        items: the messages after the leading system messages.
        known: what the archive says of `candidate_hash(items)`.
    """
    if not items or not may_be_head(items[0].data):
        return None
    acknowledged = len(items) > 1 and is_acknowledgement(items[1].data)
    text = message_text(items[0].data)
    pair = tuple(items[:2]) if acknowledged else tuple(items[:1])
    if known is not None:
        return Head(pair, known.summary, text_hash(text), True, known.structured)
    if acknowledged:
        return Head(pair, _without_background(text), text_hash(text), False, False)
    return None


def _without_background(text: str) -> str:
    bare = text.removeprefix(HEAD_PREFIX)
    for sentence in _BACKGROUND.values():
        bare = bare.removeprefix(sentence)
    return bare.strip()


def may_be_head(message: Message) -> bool:
    """Whether a message looks like a head summary; that alone makes it none."""
    return message.get("role") == "user" and message_text(message).startswith(HEAD_PREFIX)


def begins_as_ours(message: Message) -> bool:
    """Whether a message begins as our head summaries do; people correct them by hand."""
    if not may_be_head(message):
        return False
    text = message_text(message).removeprefix(HEAD_PREFIX)
    return text.startswith(tuple(_BACKGROUND.values()))


def is_acknowledgement(message: Message) -> bool:
    """Whether a message is AstrBot's answer to a head summary."""
    return (
        message.get("role") == "assistant"
        and not message.get("tool_calls")
        and message_text(message).strip() == ACKNOWLEDGEMENT
    )


def _is_text(message: Message) -> bool:
    return isinstance(message.get("content"), str)
