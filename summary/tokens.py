"""Token estimates equal to the host's, read off raw messages.

Law: for every message the host can load, `Estimator.message` is what the host's counter says
of it; for any other it is a sane figure, and never an exception. The host binds a message to
its model first and looks at each character in Python; that is some fifteen times the work.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from .history import CHECKPOINT, Message

# Kinds of characters: CJK, one of a block with emoji, one of a block with very few of them.
_CJK, _MAYBE, _HARDLY = 1, 2, 3
_VERY_FEW = 2


@dataclass(frozen=True, slots=True)
class Estimator:
    """The host's rates: tokens a CJK character, an emoji, another character, an image, a clip.

    `emoji_pattern` is a class of characters, each an emoji; None where the host counts none.
    """

    cjk: float = 0.6
    other: float = 0.3
    emoji: float = 2.0
    emoji_pattern: re.Pattern[str] | None = None
    image: int = 765
    audio: int = 500

    def text(self, text: str) -> int:
        """Tokens of a text, rounded down as the host rounds."""
        if text.isascii():
            return int(len(text) * self.other)
        pattern = self.emoji_pattern
        table, few = _kinds_of_high_bytes(pattern)
        kinds = text.encode("utf-16-le", "surrogatepass")[1::2].translate(table)
        cjk = kinds.count(_CJK)
        emoji = 0
        # Most texts have no character that could be an emoji; many have a dash or a quotation
        # mark, whose block has but one of them.
        if pattern and _MAYBE in kinds:
            emoji = len(pattern.findall(text))
        elif _HARDLY in kinds:
            emoji = sum(map(text.count, few))
        # The host's own order of operations: another one rounds differently.
        others = (len(text) - cjk - emoji) * self.other
        return int(cjk * self.cjk + emoji * self.emoji + others)

    def message(self, message: Message) -> int:
        """Tokens of one message; 0 for a checkpoint, which no model sees."""
        if message.get("role") == CHECKPOINT:
            return 0
        content = message.get("content")
        total = 0
        if isinstance(content, str):
            total = self.text(content)
        elif isinstance(content, list) and len(content) == 1:
            total = self._part(content[0])
        elif isinstance(content, list):
            for part in content:
                total += self._part(part)
        calls = message.get("tool_calls")
        if calls and isinstance(calls, list):
            typed = all(map(_is_typed_call, calls))
            total += sum(self._call(call, typed) for call in calls)
        return total

    def _part(self, part: object) -> int:
        if isinstance(part, str):
            return self.text(part)
        if not isinstance(part, dict):
            return 0
        kind = part.get("type")
        if kind == "image_url":
            return self.image
        if kind in ("audio_url", "input_audio"):
            return self.audio
        text = part.get("think" if kind == "think" else "text")
        return self.text(text) if isinstance(text, str) else 0

    def _call(self, call: object, typed: bool) -> int:
        try:
            return self.text(json.dumps(_as_dumped(call) if typed else call))
        except (TypeError, ValueError, RecursionError):
            return 0


@lru_cache(maxsize=8)
def _kinds_of_high_bytes(emoji_pattern: re.Pattern[str] | None) -> tuple[bytes, str]:
    """A table from a UTF-16 unit's high byte to its kind, and the emoji of `_HARDLY` blocks."""
    table = bytearray(256)
    few = ""
    if emoji_pattern is not None:
        plane = "".join(map(chr, (*range(0xD800), *range(0xE000, 0x10000))))
        found = emoji_pattern.findall(plane)
        counts = Counter(ord(emoji) >> 8 for emoji in found)
        for high_byte, count in counts.items():
            table[high_byte] = _HARDLY if count <= _VERY_FEW else _MAYBE
        few = "".join(emoji for emoji in found if table[ord(emoji) >> 8] == _HARDLY)
        # Whatever lies beyond that plane is spelled with surrogates.
        for high_byte in range(0xD8, 0xE0):
            table[high_byte] = _MAYBE
    # U+4E00 to U+9FFF are exactly the units with these high bytes; no emoji is among them.
    for high_byte in range(0x4E, 0xA0):
        table[high_byte] = _CJK
    return bytes(table), few


def _is_typed_call(call: object) -> bool:
    """Whether the host loads the call as its own type, and so dumps it without other keys."""
    if not isinstance(call, dict) or not isinstance(call.get("id"), str):
        return False
    function = call.get("function")
    return (
        call.get("type", "function") == "function"
        and isinstance(function, dict)
        and isinstance(function.get("name"), str)
        and "arguments" in function
        and isinstance(function["arguments"], str | None)
        and isinstance(call.get("extra_content"), dict | None)
    )


def _as_dumped(call: Any) -> dict[str, Any]:
    function = call["function"]
    dumped = {
        "type": "function",
        "id": call["id"],
        "function": {"name": function["name"], "arguments": function["arguments"]},
    }
    if call.get("extra_content") is not None:
        dumped["extra_content"] = call["extra_content"]
    return dumped
