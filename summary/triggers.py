"""When a turn makes a compaction due, and how long failures put it off (spec 3.1 to 3.3).

Pure arithmetic over what one turn showed. Tokens are those of the last model call, never a sum
over calls; an unknown figure is None.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from enum import Enum

from .lines import CompressLine, CountLine

# After so many turns at the most a failing compaction is tried again.
_LONGEST_WAIT_TURNS = 32


@dataclass(frozen=True, slots=True)
class TurnFacts:
    """What one saved turn showed.

    `usage_tokens` is the usage of its last model call, or the estimate where none was reported.
    `dialog_tokens` and `dialog_messages` are those of the untrimmed dialog: the history at the
    start of the turn and what the turn added. `trimmed` is whether the host trimmed or
    compressed in this turn, `trimmed_by_turns` whether it was its limit of turns.
    """

    usage_tokens: int | None
    dialog_tokens: int
    dialog_messages: int
    trimmed: bool = False
    trimmed_by_turns: bool = False


class Reason(Enum):
    """Why a compaction is due."""

    USAGE = "usage"
    TRIMMED = "trimmed"
    COUNT = "count"


@dataclass(frozen=True, slots=True)
class Due:
    """A compaction is due."""

    reason: Reason


@dataclass(frozen=True, slots=True)
class NotDue:
    """None is."""


def judge(facts: TurnFacts, line: CompressLine | None, count: CountLine | None) -> Due | NotDue:
    """Whether a turn makes a compaction due.

    Usage counts only where enough of it can be compacted: a dialog of less than half the line
    beside a big persona or tool list would be compacted at every turn for nothing.
    """
    if line is not None and facts.dialog_tokens * 2 >= line.tokens:
        reached = facts.usage_tokens is not None and facts.usage_tokens >= line.tokens
        if line.by_usage and reached:
            return Due(Reason.USAGE)
        if facts.trimmed and line.by_usage:
            return Due(Reason.TRIMMED)
    if count is not None and (facts.trimmed_by_turns or facts.dialog_messages >= count.messages):
        return Due(Reason.COUNT)
    return NotDue()


@dataclass(frozen=True, slots=True)
class BackOff:
    """Failed automatic runs in a row, and the judged turns to wait before the next try.

    Failures at turns 1, 3, 7, 15, 31, 63, then every 32: the k-th puts the next try at the
    2^k-th judged turn after it.
    """

    failures: int = 0
    wait_turns: int = 0
    last_failure: str = ""

    def turn_judged(self) -> BackOff:
        """After one more judged turn."""
        return replace(self, wait_turns=max(self.wait_turns - 1, 0))

    @property
    def is_open(self) -> bool:
        """Whether a run may be tried now."""
        return self.wait_turns == 0

    def failed(self, why: str) -> BackOff:
        """After one more failed run."""
        failures = self.failures + 1
        wait = min(2**failures, _LONGEST_WAIT_TURNS) if failures < 16 else _LONGEST_WAIT_TURNS
        return BackOff(failures, wait, why)

    def to_json(self) -> str:
        """As stored."""
        return json.dumps([self.failures, self.wait_turns, self.last_failure])

    @classmethod
    def from_json(cls, text: str | None) -> BackOff:
        """As stored; anything else is no back-off."""
        try:
            failures, wait_turns, last_failure = json.loads(text or '[0, 0, ""]')
            return cls(int(failures), int(wait_turns), str(last_failure))
        except (ValueError, TypeError):
            return cls()
