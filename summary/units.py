"""Messages grouped into the units that move together (spec 0, 2.1, 2.3).

Laws: the items of all units, sorted by position, give the dialog back; a tool group holds an
assistant message with calls and the results found for it; a cut is offered only where no group
spans across it, so a call can never be parted from a result it has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from .history import Message, Stored, call_name, tool_calls

CountTokens = Callable[[Message], int]


@dataclass(frozen=True, slots=True, eq=False)
class Item:
    """A message with the checkpoints that follow it; `position` counts within its list."""

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


@dataclass(frozen=True, slots=True, eq=False)
class Unit:
    """What is kept or replaced as one: a tool group, or any other single message."""

    items: tuple[Item, ...]
    kind: UnitKind

    @property
    def first(self) -> int:
        """The position of its first message."""
        return self.items[0].position

    @property
    def tokens(self) -> int:
        """Tokens of its messages as stored."""
        return sum(item.tokens for item in self.items)

    @property
    def role(self) -> str:
        """The role of its first message."""
        return self.items[0].role


@dataclass(frozen=True, slots=True)
class Grouping:
    """The units of a dialog and where it may be cut.

    `cuts[p]` says whether the dialog may be parted before position `p` (0 to its length).
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
    pending: list[Stored] = []
    current: Stored | None = None
    for message in messages:
        if message.is_checkpoint:
            pending.append(message)
            continue
        if current is not None:
            items.append(Item(len(items), current, tuple(pending), count(current.data)))
        current, pending = message, []
    if current is not None:
        items.append(Item(len(items), current, tuple(pending), count(current.data)))
    return tuple(items)


def group_units(items: Sequence[Item]) -> Grouping:
    """Group a dialog in one pass; positions are counted from the first item given.

    A group takes results until all are there or another assistant message comes: no provider
    accepts a result after that, and a damaged history stays cuttable.
    """
    members: list[list[Item]] = []
    waiting: dict[str, int] = {}
    is_group: list[bool] = []
    is_complete: list[bool] = []
    open_index: int | None = None
    blocked = [False] * (len(items) + 1)
    for offset, item in enumerate(items):
        if item.role == "assistant":
            waiting, open_index = {}, None
            calls = tool_calls(item.data)
            ids = [call["id"] for call in calls if isinstance(call.get("id"), str)]
            members.append([item])
            is_group.append(bool(calls))
            is_complete.append(not calls)
            if calls:
                open_index = len(members) - 1
                waiting = dict.fromkeys(ids, open_index)
                # A call without an id can never be answered: the group stays broken.
                if len(ids) < len(calls):
                    waiting[""] = open_index
            continue
        call_id = item.data.get("tool_call_id") if item.role == "tool" else None
        if isinstance(call_id, str) and call_id and call_id in waiting:
            index = waiting.pop(call_id)
            for position in range(members[index][-1].position - items[0].position + 1, offset + 1):
                blocked[position] = True
            members[index].append(item)
            if not waiting:
                is_complete[index] = True
                open_index = None
            continue
        members.append([item])
        is_group.append(False)
        is_complete.append(item.role != "tool")
    units = tuple(
        Unit(tuple(group), _kind(group[0], grouped, complete))
        for group, grouped, complete in zip(members, is_group, is_complete, strict=True)
    )
    open_group = units[open_index] if open_index is not None else None
    return Grouping(units, tuple(not shut for shut in blocked), open_group)


def tool_names(items: Iterable[Item]) -> Mapping[str, str]:
    """The tool each call id was for; of an id used twice, the latest."""
    return {
        call["id"]: call_name(call)
        for item in items
        for call in tool_calls(item.data)
        if isinstance(call.get("id"), str)
    }


def _kind(first: Item, grouped: bool, complete: bool) -> UnitKind:
    if grouped:
        return UnitKind.TOOL_GROUP if complete else UnitKind.BROKEN_GROUP
    return UnitKind.LONE_RESULT if first.role == "tool" else UnitKind.MESSAGE
