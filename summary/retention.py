"""Units the summary model may keep verbatim: numbering, reading its picks, limits (spec 2.5).

Laws: reading is total, any text gives a result; a number counts only inside the last retain
block and only if it was offered; limits drop whole units from the earliest and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from .cost import Cost
from .units import Unit, UnitKind

_WHOLE = (UnitKind.MESSAGE, UnitKind.TOOL_GROUP)

_NAME = r"(?:保留原文|keep\s{1,4}verbatim)"
# Marks models put in front: headings, lists, quotes, bold.
_MARKS = r"[\s#＃*＊\->＞•·_`]{0,16}"
_HEADING = re.compile(
    rf"{_MARKS}[【\[［〔「（(]\s{{0,4}}{_NAME}\s{{0,4}}[】\]］〕」）)](?P<rest>.*)",
    re.IGNORECASE | re.DOTALL,
)
_BARE_HEADING = re.compile(rf"{_MARKS}{_NAME}(?P<rest>.*)", re.IGNORECASE | re.DOTALL)
# Nothing but numbers, words for none, spaces and punctuation. No two branches share a
# character, so that matching stays linear.
_NUMBERS_ONLY = re.compile(r"(?:[\W\d_]++|无|没有|無|沒有|none|nothing|n/?a)*+", re.IGNORECASE)
_SIZE_NOTE = re.compile(r"[〔（(\[［]\s?[约~≈]?\s?\d{1,9}\s?tokens?\s?[〕）)\]］]", re.IGNORECASE)
_MARKED_NUMBER = re.compile(r"[#＃]\s{0,4}(\d{1,9})(?!\d)")
# A pick with the reason for it.
_PICK_LINE = re.compile(r"[\s*•\->＞·_`]{0,16}[#＃](\d{1,9})[\s:：,，、。;；*_`(（〔\-—–]")
# What the numbered units of the conversation begin with.
_UNIT_LABEL = re.compile(r"#\d{1,9}〔约 \d{1,9} token〕")
_ECHOED_UNITS = 3
_NUMBER = re.compile(r"(?<!\d)(\d{1,9})(?!\d)")


@dataclass(frozen=True, slots=True)
class Picks:
    """A reply read: the summary without any retain block, and the numbers picked.

    `has_block` is whether there was a retain block; `readable` whether it named numbers or
    held no words.
    """

    summary: str
    numbers: frozenset[int]
    has_block: bool
    readable: bool


class Weighed(Protocol):
    """Anything that weighs tokens in a history."""

    @property
    def tokens(self) -> int:
        """Tokens as stored."""
        ...


def number_label(number: int, tokens: int) -> str:
    """What a numbered unit is opened with."""
    return f"#{number}〔约 {tokens} token〕"


def label_cost(label: str, cost: Cost) -> int:
    """The cost of a number's label; but for its three marks it is ASCII."""
    return cost.of_counts(len(label), len(label) - 3)


def can_be_kept(unit: Unit, retain_cap_tokens: int) -> bool:
    """Whether a unit is whole and small enough to be offered.

    A group with other messages between its own is not: with those taken out, a marker in their
    place would part the calls from the results behind it.
    """
    whole = unit.kind in _WHOLE and unit.is_contiguous
    return whole and retain_cap_tokens > 0 and unit.tokens <= retain_cap_tokens


def read_picks(reply: str, offered: Collection[int]) -> Picks:
    """Read a reply: whatever is no retain block is the summary."""
    kept: list[str] = []
    block: list[str] | None = None
    in_block = False
    for line in reply.split("\n"):
        rest = _after_heading(line)
        # Once there is a block, a line that names no units only talks of one.
        if rest is not None and (block is None or _numbers(rest) or _is_numbers(rest)):
            numbers, summary = _split_rest(rest)
            block, in_block = [numbers], summary is None
            if summary is not None:
                kept.append(summary)
        elif in_block and block is not None and (_is_numbers(line) or _is_pick(line, offered)):
            block.append(line)
        else:
            in_block = False
            kept.append(line)
    summary_text = "\n".join(kept).strip()
    if block is None:
        return Picks(summary_text, frozenset(), has_block=False, readable=False)
    text = "\n".join(block)
    named = _numbers(text)
    readable = bool(named) or _is_numbers(text)
    return Picks(summary_text, named & frozenset(offered), has_block=True, readable=readable)


def fit_from_latest[T: Weighed](units: Sequence[T], limit_tokens: int) -> tuple[T, ...]:
    """The units, in stored order, that remain when the earliest are dropped until they fit."""
    left = limit_tokens
    start = len(units)
    while start > 0 and units[start - 1].tokens <= left:
        start -= 1
        left -= units[start].tokens
    return tuple(units[start:])


def apply_count_rule(
    retained: Sequence[Unit], other_messages: int, count_line: int | None
) -> tuple[Unit, ...]:
    """The retained units a count line allows: after the swap at most half of it is dialog.

    Args:
        retained: in stored order.
        other_messages: dialog messages of tail and newcomers, as re-read at the commit.
        count_line: the count line, None if there is none.
    """
    if count_line is None:
        return tuple(retained)
    left = count_line // 2 - other_messages
    start = len(retained)
    while start > 0 and len(retained[start - 1].items) <= left:
        start -= 1
        left -= len(retained[start].items)
    return tuple(retained[start:])


def _after_heading(line: str) -> str | None:
    """What follows a retain heading on its line; None if the line has none."""
    found = _HEADING.match(line)
    if found is not None:
        return found["rest"]
    bare = _BARE_HEADING.match(line)
    # Without brackets it is a heading only if nothing but numbers follows.
    if bare is not None and _is_numbers(bare["rest"]):
        return bare["rest"]
    return None


def _split_rest(rest: str) -> tuple[str, str | None]:
    """The numbers of a heading's line, and the summary if a model put it on the same line."""
    cut = rest.find("## ")
    if cut >= 0 and _is_numbers(rest[:cut]):
        return rest[:cut], rest[cut:]
    return rest, None


def _is_numbers(text: str) -> bool:
    return _NUMBERS_ONLY.fullmatch(_SIZE_NOTE.sub(" ", text)) is not None


def _is_pick(line: str, offered: Collection[int]) -> bool:
    found = _PICK_LINE.match(line)
    return found is not None and int(found[1]) in offered


def repeats_units(summary: str) -> bool:
    """Whether a summary is the conversation it was asked for, said again."""
    return len(_UNIT_LABEL.findall(summary)) >= _ECHOED_UNITS


def _numbers(block: str) -> frozenset[int]:
    """The numbers a block names. Beside words only marked ones count: "3 条都不留" picks none."""
    plain = _SIZE_NOTE.sub(" ", block)
    found = _MARKED_NUMBER.findall(plain)
    if not found and _NUMBERS_ONLY.fullmatch(plain):
        found = _NUMBER.findall(plain)
    return frozenset(int(digits) for digits in found)
