"""What goes into which request: as much as fits, in order, nothing left out (spec 2.6).

Laws: the slices of all requests, one after another, are the text of every unit; a request
never costs more than its room; every request takes at least one character, so there is an end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from .cost import Cost
from .render import Block
from .retention import fit_from_latest, number_label

# A continuation's header may take so much of a piece, as a divisor.
_HEADER_SHARE = 4


@dataclass(frozen=True, slots=True)
class Pick:
    """A unit the model may keep or kept: its number, its index and its tokens as stored."""

    number: int
    index: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Candidate:
    """A unit of the input: its text, its tokens as stored, whether it can be kept whole."""

    block: Block
    tokens: int
    keepable: bool


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run has come: what the next request starts from.

    `summary` is the earlier summary or the last request's; `sorts` is whether its sections are
    not ours. `front` is what is left of an earlier summary too long for one request. `index`
    and `offset` say where in the units the next request begins.
    """

    summary: str = ""
    sorts: bool = False
    front: str = ""
    index: int = 0
    offset: int = 0
    carried: tuple[Pick, ...] = ()
    next_number: int = 1
    steps: int = 0


@dataclass(frozen=True, slots=True)
class Slice:
    """Which characters of a unit's text a request holds."""

    index: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Packed:
    """The variable texts of one request, what it offers, and where the next one begins."""

    earlier: str
    sorts: bool
    transcript: str
    offered: Mapping[int, Pick]
    slices: tuple[Slice, ...]
    after: Progress
    is_last: bool


def pack(units: Sequence[Candidate], progress: Progress, room: int, cost: Cost) -> Packed:
    """The next request. `room` is what it holds, in thousandths of a token.

    Picks of the last request go along verbatim; the earliest of them are dropped where they
    would take more than half, for then some unit might never fit.
    """
    builder = _Builder(cost, room)
    end = cost.fitting_end(progress.front, 0, room)
    front = progress.front[:end]
    builder.left -= cost.of(front)
    builder.carry(units, progress.carried)
    at = replace(progress, front=progress.front[end:], carried=())
    if not at.front:
        at = builder.take(units, at)
    return Packed(
        earlier="\n".join(filter(None, (progress.summary, front))),
        sorts=progress.sorts,
        transcript="\n".join(builder.lines),
        offered=builder.offered,
        slices=tuple(builder.slices),
        after=at,
        is_last=not at.front and not any(units[n].block.text for n in range(at.index, len(units))),
    )


def count_requests(units: Sequence[Candidate], progress: Progress, room: int, cost: Cost) -> int:
    """How many requests it takes from here, if the model picks nothing."""
    count = 1
    while not (packed := pack(units, progress, room, cost)).is_last:
        progress = packed.after
        count += 1
    return count


class _Builder:
    """A request being filled."""

    def __init__(self, cost: Cost, room: int) -> None:
        self.cost = cost
        self.half = room // 2
        self.left = room
        self.lines: list[str] = []
        self.slices: list[Slice] = []
        self.offered: dict[int, Pick] = {}

    def carry(self, units: Sequence[Candidate], carried: Sequence[Pick]) -> None:
        """Put in the units picked before, verbatim and under their old numbers."""
        priced = [_Priced(pick, self._price(units[pick.index], pick.number)) for pick in carried]
        for fitting in fit_from_latest(priced, min(self.half, self.left - self.half)):
            unit = units[fitting.pick.index]
            self._add(number_label(fitting.pick.number, unit.tokens) + unit.block.text)
            self.offered[fitting.pick.number] = fitting.pick

    def take(self, units: Sequence[Candidate], at: Progress) -> Progress:
        """Put in new units while they fit; where the next request begins."""
        index, offset, number = at.index, at.offset, at.next_number
        while index < len(units):
            unit = units[index]
            price = self._price(unit, number)
            if not unit.block.text:
                index += 1
            elif offset == 0 and price <= self.half:
                if price > self.left:
                    break
                self._take_whole(index, unit, number)
                number += unit.keepable
                index += 1
            else:
                end = self._take_piece(index, unit.block, offset)
                if end is None:
                    break
                index, offset = (index, end) if end < len(unit.block.text) else (index + 1, 0)
        return replace(at, index=index, offset=offset, next_number=number)

    def _take_whole(self, index: int, unit: Candidate, number: int) -> None:
        label = number_label(number, unit.tokens) if unit.keepable else ""
        self._add(label + unit.block.text)
        self.slices.append(Slice(index, 0, len(unit.block.text)))
        if unit.keepable:
            self.offered[number] = Pick(number, index, unit.tokens)

    def _take_piece(self, index: int, block: Block, start: int) -> int | None:
        """Put in the next piece of a unit too big to stand whole.

        Returns where the piece ends; None if there is no room for one of full size, which the
        next request will have.
        """
        header = f"{block.label.rstrip(' :')}(续): " if start else ""
        if self.cost.of(header) > self.half // _HEADER_SHARE:
            header = ""
        room = min(self.half, self.left) - self.cost.of(header + "\n")
        end = self.cost.fitting_end(block.text, start, room)
        if end == start or (end < len(block.text) and self.left < self.half):
            return None
        self._add(header + block.text[start:end])
        self.slices.append(Slice(index, start, end))
        return end

    def _price(self, unit: Candidate, number: int) -> int:
        label = self.cost.of(number_label(number, unit.tokens)) if unit.keepable else 0
        return unit.block.cost(self.cost) + label + self.cost.of("\n")

    def _add(self, line: str) -> None:
        self.lines.append(line)
        self.left -= self.cost.of(line + "\n")


@dataclass(frozen=True, slots=True)
class _Priced:
    """A pick weighed by what it costs in a request."""

    pick: Pick
    tokens: int
