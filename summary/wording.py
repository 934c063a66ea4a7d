"""Numbers, times and foreign text in the form people read them.

Invariant: what comes out is one valid UTF-8 text whatever goes in, and no number says more
than is true: shortened ones round to nearest, percentages saved round down.
"""

from __future__ import annotations

import re
import unicodedata
from datetime import UTC, datetime

CUT_MARK = "…"

_UNSAFE = re.compile(r"[\ud800-\udfff\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_SECRET = re.compile(
    r"\b(?:sk|pk|rk|xai|gsk|AIza)[-_]?[A-Za-z0-9_-]{12,}|(?<=Bearer )\S+|(?<=[?&]key=)[^&\s\"']+"
)
# How far a cut looks back for the start of what looks like one character.
_LONGEST_CLUSTER_CHARS = 16
_JOINER = "\u200d"


def visible(text: str) -> str:
    """A text safe to send: lone surrogates and control characters become a replacement mark."""
    return _UNSAFE.sub("\ufffd", text)


def cut(text: str, max_chars: int) -> str:
    """The first `max_chars` characters and a mark that there is more; a short text whole.

    A character made of several code points (an accent, a joined emoji, a flag) is not split.
    """
    text = visible(text)
    if len(text) <= max_chars:
        return text
    end = max_chars
    while end > 0 and max_chars - end < _LONGEST_CLUSTER_CHARS and _continues(text, end):
        end -= 1
    if end == 0 or _continues(text, end):
        end = max_chars
    return text[:end].rstrip() + CUT_MARK


def one_line(text: str, max_chars: int = 200) -> str:
    """A foreign text as one short line without keys in it, for the end of a sentence."""
    return cut(_SECRET.sub(CUT_MARK, " ".join(text.split())), max_chars)


def short_number(number: int) -> str:
    """`950`, `31.2k`, `1.2M`."""
    if abs(number) < 1_000:
        return str(number)
    if abs(number) < 999_950:
        return f"{number / 1_000:.1f}".removesuffix(".0") + "k"
    return f"{number / 1_000_000:.1f}".removesuffix(".0") + "M"


def percent_saved(before: int, after: int) -> int:
    """How much smaller `after` is, in whole percent, rounded down."""
    return max(before - after, 0) * 100 // before if before > 0 else 0


def bar(percent: int, cells: int = 5) -> str:
    """A usage bar; more than all of it is a full bar."""
    filled = min(max(percent, 0) * cells // 100, cells)
    return "▓" * filled + "░" * (cells - filled)


def local_time(seconds: float) -> datetime:
    """A time on the clock of the machine the bot runs on."""
    return datetime.fromtimestamp(seconds, UTC).astimezone()


def byte_size(count: int) -> str:
    """`812 B`, `1.2 MB`."""
    size, unit = float(count), "B"
    for bigger in ("KB", "MB", "GB"):
        if size < 1_000:
            break
        size, unit = size / 1_000, bigger
    return f"{size:.1f}".removesuffix(".0") + f" {unit}"


def _continues(text: str, position: int) -> bool:
    """Whether the code point at `position` belongs to the character before it."""
    here, before = text[position], text[position - 1]
    if here == _JOINER or before == _JOINER:
        return True
    if unicodedata.category(here) in {"Mn", "Me", "Mc"} or "\U0001f3fb" <= here <= "\U0001f3ff":
        return True
    if not _is_flag_letter(here) or not _is_flag_letter(before):
        return False
    first = position
    while first > 0 and _is_flag_letter(text[first - 1]):
        first -= 1
    return (position - first) % 2 == 1


def _is_flag_letter(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"
