"""How long a summary may be and how much of a conversation one request holds (spec 2.2).

Laws: no figure is ever negative, and earlier summary, output, fixed text and conversation
together never exceed the summary model's window, whatever the settings. Every division rounds
down: a token less costs nothing, one too many can cost the run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from .cost import MILLI, Cost
from .errors import NoRoom, SettingsError

UNKNOWN_OUTPUT_TOKENS = 4096
LEAST_BUDGET_TOKENS = 1000
# Below so many characters of conversation a request is not worth its fixed text.
LEAST_CAPACITY_CHARS = 4


@dataclass(frozen=True, slots=True)
class Limits:
    """What bounds a compaction, all in tokens but the ratio.

    `line_tokens` is the compress line E, None if there is none; `ratio` the setting
    `summary_budget_ratio`. `window_tokens` and `max_output_tokens` are the summary model's, the
    latter None if unknown. `tail_tokens` stay verbatim behind the summary. `replaced_tokens` is
    what the new head takes the place of, as stored: the span and an earlier head pair;
    `head_tokens` what the new pair costs without a summary in it.
    """

    line_tokens: int | None
    ratio: float
    window_tokens: int
    max_output_tokens: int | None
    tail_tokens: int
    replaced_tokens: int
    head_tokens: int


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits of one compaction.

    `budget_tokens` bounds summary and retained units together; `stated_tokens` is what the
    prompt asks for. `retain_cap_tokens` bounds what the model may pick. `physical_tokens` is
    the most one reply can hold, and the most an earlier summary may take of a request;
    `request_tokens` is a request's output limit.
    """

    window_tokens: int
    physical_tokens: int
    budget_tokens: int
    stated_tokens: int
    retain_cap_tokens: int
    request_tokens: int


def budget_for(limits: Limits, *, content_tokens: int, new_content_tokens: int) -> Budget:
    """The budget of one compaction.

    Args:
        limits: settings, windows, and what is stored now.
        content_tokens: the earlier summary and every rendered unit.
        new_content_tokens: the same without the earlier summary.

    Raises:
        NoRoom: the summary model can hold no summary at all.
        SettingsError: the compress line leaves no room for one.
    """
    physical = _physical(limits)
    line = None if limits.line_tokens is None else max(limits.line_tokens, 0)
    budget = content_tokens if line is None else _share(limits.ratio, line)
    budget = max(min(budget, content_tokens), LEAST_BUDGET_TOKENS)
    if line is not None:
        budget = min(budget, line // 4)
        if budget == 0:
            raise SettingsError(name="compress_tokens", value=line)
    budget = min(budget, physical * 2 // 3)
    if budget == 0:
        raise NoRoom(window=limits.window_tokens)
    retain_cap = min(budget, _share(limits.ratio, new_content_tokens))
    if line is not None:
        # Summary and tail above half the line would make the next turn due again.
        retain_cap = min(retain_cap, line // 2 - limits.tail_tokens - 1)
    return Budget(
        window_tokens=limits.window_tokens,
        physical_tokens=physical,
        budget_tokens=budget,
        stated_tokens=max(min(budget, limits.replaced_tokens - limits.head_tokens - 1), 0),
        retain_cap_tokens=max(retain_cap, 0),
        request_tokens=min((3 * budget + 1) // 2, physical),
    )


def capacity_millitokens(budget: Budget, fixed_text: str, cost: Cost) -> int:
    """What a request has for conversation, labels, to-dos, focus and carried units.

    Raises:
        NoRoom: it would be under four characters.
    """
    room = budget.window_tokens - budget.physical_tokens - budget.request_tokens
    capacity = room * MILLI - cost.of(fixed_text)
    if capacity < LEAST_CAPACITY_CHARS * cost.dearest:
        raise NoRoom(window=budget.window_tokens)
    return capacity


def _physical(limits: Limits) -> int:
    known = limits.max_output_tokens
    written = known if known is not None and known > 0 else UNKNOWN_OUTPUT_TOKENS
    return max(min(written, limits.window_tokens // 4), 0)


def _share(ratio: float, tokens: int) -> int:
    """A share rounded down, of the ratio as it is written: 0.29 of 100 is 29."""
    if not math.isfinite(ratio) or ratio <= 0 or tokens <= 0:
        return 0
    return int(Fraction(str(ratio)) * tokens)
