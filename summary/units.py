"""Messages grouped into the units that move together (spec 0, 2.1, 2.3).

Laws: the items of all units, sorted by position, give the dialog back; a tool group holds an
assistant message with calls and the results found for it; a cut is offered only where no group
spans across it, so a call can never be parted from a result it has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import Any

from .history import CHECKPOINT, Message, Stored, call_name, tool_calls

CountTokens = Callable[[Message], int]


@dataclass(slots=True, eq=False)
class Item:
    """A message with the checkpoints that follow it; `position` is its place in the stored list.

    Never changed once it is given out, and not frozen for the reason `Stored` is not.
    """

    position: int
    message: Stored
    checkpoints: tuple[Stored, ...]
    tokens: int

    @property
    def role(self) -> str:
        """The message's role."""
        return self.message.role

    @property
    def data(self) -> Message:
        """The message itself."""
        return self.message.data

    @property
    def as_stored(self) -> tuple[Stored, ...]:
        """The message and its checkpoints, in stored order."""
        return (self.message, *self.checkpoints)


class UnitKind(Enum):
    """What a unit is made of."""

    MESSAGE = "message"
    TOOL_GROUP = "tool_group"
    BROKEN_GROUP = "broken_group"  # a call without all of its results
    LONE_RESULT = "lone_result"


@dataclass(slots=True, eq=False)
class Unit:
    """What is kept or replaced as one: a tool group, or any other single message.

    Never changed, and not frozen for the reason `Stored` is not.
    """

    items: tuple[Item, ...]
    kind: UnitKind

    @property
    def first(self) -> int:
        """The position of its first message."""
        return self.items[0].position

    @property
    def tokens(self) -> int:
        """Tokens of its messages as stored."""
        items = self.items
        return items[0].tokens if len(items) == 1 else sum([item.tokens for item in items])

    @property
    def role(self) -> str:
        """The role of its first message."""
        return self.items[0].role

    @property
    def is_contiguous(self) -> bool:
        """Whether no other message stands between its own."""
        items = self.items
        return len(items) == 1 or all(
            before.position + len(before.checkpoints) + 1 == after.position
            for before, after in pairwise(items)
        )


@dataclass(frozen=True, slots=True)
class Grouping:
    """The units of a dialog and where it may be cut.

    `cuts[n]` says whether the dialog may be parted before its n-th item (0 to its length).
    `open_group` is the unit still waiting for results at the end, if any.
    """

    units: tuple[Unit, ...]
    cuts: tuple[bool, ...]
    open_group: Unit | None


def bind_checkpoints(messages: Iterable[Stored], count: CountTokens) -> tuple[Item, ...]:
    """The messages without checkpoints, each holding those that follow it.

    A checkpoint before the first message belongs to none and is dropped, as the host does.
    """
    items: list[Item] = []
    for position, message in enumerate(messages):
        if message.role != CHECKPOINT:
            items.append(Item(position, message, (), count(message.data)))
        elif items:
            items[-1].checkpoints += (message,)
    return tuple(items)


def group_units(items: Sequence[Item]) -> Grouping:
    """Group a dialog's items in one pass.

    A group takes the results of its calls until another assistant message comes: no provider
    accepts a result after that, and a damaged history stays cuttable. It is complete with one
    result a call; calls may share an id (AstrBot names those of Gemini after their tool).
    """
    units: list[Unit] = []
    groups: list[_Group] = []
    current: _Group | None = None
    cuts = [True] * (len(items) + 1)
    for offset, item in enumerate(items):
        message = item.message
        kind = UnitKind.MESSAGE
        if message.role == "assistant":
            current = None
            if calls := tool_calls(message.data):
                current = _Group(len(units), [item], offset, _awaited(calls))
                groups.append(current)
        elif message.role == "tool":
            call_id = message.data.get("tool_call_id")
            if current and isinstance(call_id, str) and call_id and call_id in current.waiting:
                current.waiting[call_id] -= 1
                cuts[current.last + 1 : offset + 1] = [False] * (offset - current.last)
                current.items.append(item)
                current.last = offset
                continue
            kind = UnitKind.LONE_RESULT
        units.append(Unit((item,), kind))
    for group in groups:
        units[group.place] = Unit(tuple(group.items), group.kind)
    is_open = current is not None and current.kind is UnitKind.BROKEN_GROUP
    return Grouping(
        tuple(units), tuple(cuts), units[current.place] if current and is_open else None
    )


def _awaited(calls: Iterable[Mapping[str, Any]]) -> Counter[str]:
    # A call without an id can never be answered: "" keeps its group broken.
    ids = (call.get("id") for call in calls)
    return Counter(name if isinstance(name, str) else "" for name in ids)


def tool_names(items: Iterable[Item]) -> Mapping[str, str]:
    """The tool each call id was for; of an id used twice, the latest."""
    return {
        call["id"]: call_name(call)
        for item in items
        if item.message.role == "assistant"
        for call in tool_calls(item.data)
        if isinstance(call.get("id"), str)
    }


@dataclass(slots=True, eq=False)
class _Group:
    """A tool group while it is being collected.

    `place` is its index among the units, `last` the offset of its newest item, `waiting` how
    many results each call id still needs.
    """

    place: int
    items: list[Item]
    last: int
    waiting: Counter[str]

    @property
    def kind(self) -> UnitKind:
        broken = any(missing > 0 for missing in self.waiting.values())
        return UnitKind.BROKEN_GROUP if broken else UnitKind.TOOL_GROUP
