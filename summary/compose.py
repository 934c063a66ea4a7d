"""The history after a compaction, put together from kept messages and ours (spec 2.7).

Laws: kept messages are the stored ones, text for text and in their order; because of us no two
user and no two assistant messages become neighbours, no tool result is followed by a user where
an answer stood, and the first message is the user's.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from .heads import acknowledgement, gap_marker, head_message, is_gap_marker
from .history import CHECKPOINT, Stored, stored
from .plan import CompactionPlan
from .units import Item

# Roles that a provider sees as one side of the talk; system messages belong to neither.
_SIDES = {"user": "user", "assistant": "assistant", "tool": "assistant"}


@dataclass(frozen=True, slots=True, eq=False)
class Composed:
    """A new history: `prefix` is what we wrote before the tail, leading messages not included."""

    leading: tuple[Stored, ...]
    prefix: tuple[Stored, ...]
    rest: tuple[Stored, ...]

    @property
    def messages(self) -> tuple[Stored, ...]:
        """The whole history."""
        return (*self.leading, *self.prefix, *self.rest)

    @property
    def prefix_json(self) -> str:
        """The prefix as the archive keeps it for undo: a JSON list of the stored messages."""
        return "[" + ", ".join(message.raw for message in self.prefix) + "]"


def new_checkpoint() -> Stored:
    """A fresh checkpoint; AstrBot's regenerate and edit delete back to the one before a turn."""
    return stored({"role": CHECKPOINT, "content": {"id": f"compact-{uuid.uuid4()}"}})


def compose(
    plan: CompactionPlan, retained: Sequence[Item], summary: str, language: str, checkpoint: Stored
) -> Composed:
    """The history with the span replaced.

    Args:
        plan: the cut, made on the history as it is now.
        retained: span messages kept verbatim, in stored order.
        summary: the summary's text, whole.
        language: `zh` or `en`, for our own sentences.
        checkpoint: the fresh checkpoint to put before the tail.
    """
    layout = plan.layout
    prefix = [head_message(summary, language)]
    first = _first_sided([*retained, *plan.tail])
    answered = first is not None and _SIDES[first.role] == "assistant"
    if not answered:
        prefix.append(acknowledgement())
    side = "user" if answered else "assistant"
    last: Item | None = None
    for item in retained:
        prefix += _joint(side, last, item, plan, language)
        prefix.append(item.message)
        if item.role in _SIDES:
            side, last = _SIDES[item.role], item
    if not plan.tail:
        # The next message will be a user's; if the dialog did end so, that is not our doing.
        ended_so = last is not None and layout.body[-1] is last
        if side == "user" and not ended_so and last is not None:
            prefix.append(gap_marker("assistant", language))
        prefix.append(checkpoint)
        return Composed(layout.stored[: layout.body_start], tuple(prefix), ())
    prefix += _joint(side, last, _first_sided(plan.tail), plan, language)
    prefix.append(checkpoint)
    return Composed(
        layout.stored[: layout.body_start], tuple(prefix), _tail_messages(plan, language)
    )


def _tail_messages(plan: CompactionPlan, language: str) -> tuple[Stored, ...]:
    """The tail as stored; a marker of an earlier compaction in it is set anew."""
    tail = plan.layout.stored[plan.cut :]
    if not any(marker.position >= plan.cut for marker in plan.layout.markers):
        return tail
    messages: list[Stored] = []
    previous: Item | None = None
    for item in plan.tail:
        if previous is not None:
            messages += _joint(_SIDES[previous.role], previous, item, plan, language)
        messages += item.as_stored
        if item.role in _SIDES:
            previous = item
    return tuple(messages)


def _joint(
    side: str, before: Item | None, after: Item | None, plan: CompactionPlan, language: str
) -> list[Stored]:
    """The gap marker needed between what stands and `after`, if any."""
    next_side = _SIDES.get(after.role) if after is not None else None
    if before is None or after is None or next_side is None:
        return []
    if _were_neighbours(before, after, plan):
        return []
    if after.role == "tool":
        return []  # a lone result: nothing put before it would make it less lone
    if before.role == "tool":
        # After a result an assistant goes on; a user there is refused by strict servers.
        return [gap_marker("assistant", language)] if next_side == "user" else []
    if next_side != side:
        return []
    return [gap_marker("user" if side == "assistant" else "assistant", language)]


def _were_neighbours(before: Item, after: Item, plan: CompactionPlan) -> bool:
    between = plan.layout.stored[before.position + 1 : after.position]
    return all(message.is_checkpoint or message.role == "system" for message in between)


def _first_sided(items: Sequence[Item]) -> Item | None:
    return next((item for item in items if item.role in _SIDES), None)


def read_prefix(text: str) -> tuple[dict[str, object], ...]:
    """The messages of a stored `prefix_json`."""
    return tuple(json.loads(text))


def counted(messages: Sequence[Stored]) -> int:
    """The shown count of a history we composed: all but checkpoints and gap markers."""
    return sum(1 for m in messages if not m.is_checkpoint and not is_gap_marker(m.data))
