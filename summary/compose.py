"""The history after a compaction, put together from kept messages and ours (spec 2.7).

Laws: kept messages are the stored ones, text for text and in their order; because of us no two
user and no two assistant messages become neighbours, no tool result is followed by a user where
an answer stood, and the first message is the user's.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from .heads import acknowledgement, gap_marker, head_message
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


def new_checkpoint() -> Stored:
    """A fresh checkpoint; AstrBot's regenerate and edit delete back to the one before a turn."""
    return stored({"role": CHECKPOINT, "content": {"id": f"compact-{uuid.uuid4()}"}})


def compose(
    plan: CompactionPlan, retained: Sequence[Item], summary: str, language: str, checkpoint: Stored
) -> Composed:
    """The history with the span replaced.

    What follows the cut stays as it is; a marker of an earlier compaction in it stands between
    the same two messages as before.

    Args:
        plan: the cut, made on the history as it is now.
        retained: span messages kept verbatim, in stored order.
        summary: the summary's text, whole.
        language: `zh` or `en`, for our own sentences.
        checkpoint: the fresh checkpoint to put before the tail.
    """
    layout = plan.layout
    places = {item.position for item in retained}
    sided = [item for item in retained if item.role in _SIDES]
    following = next(
        (item for item in layout.body if item.position >= plan.cut and item.role in _SIDES), None
    )
    first = sided[0] if sided else following
    prefix = [head_message(summary, language)]
    if first is None or _SIDES[first.role] == "user":
        prefix.append(acknowledgement())
    last: Item | None = None
    for item in retained:
        if item.role in _SIDES:
            prefix += _joint(last, item, plan, places, language)
            last = item
        prefix.append(item.message)
    prefix += _joint(last, following, plan, places, language)
    prefix.append(checkpoint)
    return Composed(layout.stored[: layout.body_start], tuple(prefix), layout.stored[plan.cut :])


def _joint(
    before: Item | None, after: Item | None, plan: CompactionPlan, kept: set[int], language: str
) -> list[Stored]:
    """The gap marker needed between two kept messages, if any.

    Where nothing follows, the next message will be a user's.
    """
    if before is None:
        return []
    end = after.position if after is not None else len(plan.layout.stored)
    if _are_untouched(plan, kept, before.position + 1, end):
        return []
    next_role = after.role if after is not None else "user"
    if before.role == "tool":
        # After a result an assistant goes on; a user there is refused by strict servers.
        return [gap_marker("assistant", language)] if next_role == "user" else []
    if before.role != next_role:
        return []  # nor before a lone result: nothing would make it less lone
    return [gap_marker("user" if next_role == "assistant" else "assistant", language)]


def _are_untouched(plan: CompactionPlan, kept: set[int], begin: int, end: int) -> bool:
    """Whether no message of these positions is taken out."""
    return all(
        position in kept or position >= plan.cut or plan.layout.stored[position].is_checkpoint
        for position in range(begin, end)
    )
