"""When a turn makes a compaction due, and how long failures put it off (spec 3.1 to 3.3).

Pure arithmetic over what one turn showed. Tokens are those of the last model call, never a sum
over calls; an unknown figure is None.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from .errors import CompactError, LargeMessage
from .lines import CompressLine, CountLine

# After so many turns at the most a failing compaction is tried again.
_LONGEST_WAIT_TURNS = 32
# By number of messages a conversation is compacted again at the second turn, by that of AstrBot's
# limit of turns at the third: what AstrBot trims meanwhile is archived, and the summary known.
_REST_TURNS = {"setting": 2, "host": 3}
# So long a message that takes several requests is put off.
_LARGE_WAIT_TURNS = 8
# So long none follows an undo.
_UNDONE_WAIT_TURNS = 8


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


def judge(
    facts: TurnFacts,
    line: CompressLine | None,
    count: CountLine | None,
    turns_since_run: int | None = None,
) -> Due | NotDue:
    """Whether a turn makes a compaction due.

    Usage counts only where enough of it can be compacted: a dialog of less than half the line
    beside a big persona or tool list would be compacted at every turn for nothing. So would one
    whose last round and a new one reach the count line: there every few turns must do.

    Args:
        facts: what the turn showed.
        line: the compress line.
        count: the count line.
        turns_since_run: the judged turns since the last compaction, this one included; None if
            there was none or it is not known.
    """
    if line is not None and facts.dialog_tokens * 2 >= line.tokens:
        reached = facts.usage_tokens is not None and facts.usage_tokens >= line.tokens
        if line.by_usage and reached:
            return Due(Reason.USAGE)
        if facts.trimmed and line.by_usage:
            return Due(Reason.TRIMMED)
    if count is None:
        return NotDue()
    rested = turns_since_run is None or turns_since_run >= _REST_TURNS[count.source]
    if rested and (facts.trimmed_by_turns or facts.dialog_messages >= count.messages):
        return Due(Reason.COUNT)
    return NotDue()


@dataclass(frozen=True, slots=True)
class BackOff:
    """Failed automatic runs in a row, and the judged turns to wait before the next try.

    Failures at turns 1, 3, 7, 15, 31, 63, then every 32: the k-th puts the next try at the
    2^k-th judged turn after it. A message that is only put off has a wait of its own.
    `last_key` and `last_fields` are the last error's sentence.
    """

    failures: int = 0
    wait_turns: int = 0
    last_key: str = ""
    last_fields: Mapping[str, object] = field(default_factory=dict)

    def turn_judged(self) -> BackOff:
        """After one more judged turn."""
        return replace(self, wait_turns=max(self.wait_turns - 1, 0))

    @property
    def is_open(self) -> bool:
        """Whether a run may be tried now."""
        return self.wait_turns == 0

    @property
    def may_take_large(self) -> bool:
        """Whether a run may spend several requests on one message.

        Right after such a message it must not (CASES 15); but it would stand in the way of
        every later run, so the next try does.
        """
        return self.last_key == LargeMessage.key

    def failed(self, error: CompactError) -> BackOff:
        """After one more failed run."""
        failures = self.failures + 1
        if isinstance(error, LargeMessage):
            return BackOff(failures, _LARGE_WAIT_TURNS, error.key, error.fields)
        wait = min(2**failures, _LONGEST_WAIT_TURNS) if failures < 16 else _LONGEST_WAIT_TURNS
        return BackOff(failures, wait, error.key, error.fields)

    def undone(self) -> BackOff:
        """After a compaction was taken back: nobody wants the next one at once."""
        return replace(self, wait_turns=max(self.wait_turns, _UNDONE_WAIT_TURNS))

    def to_json(self) -> str:
        """As stored."""
        known = [self.failures, self.wait_turns, self.last_key, dict(self.last_fields)]
        return json.dumps(known, default=str)

    @classmethod
    def from_json(cls, text: str | None) -> BackOff:
        """As stored; anything else is no back-off."""
        try:
            failures, wait_turns, key, fields = json.loads(text or '[0, 0, "", {}]')
            return cls(int(failures), int(wait_turns), str(key), dict(fields))
        except (ValueError, TypeError):
            return cls()
