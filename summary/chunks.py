"""What goes into which request: as much as fits, in order, nothing left out (spec 2.6).

Laws: the slices of all requests, one after another, are the text of every unit; a request
never costs more than its room; every request takes at least one character, so there is an end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from .cost import Cost
from .render import Block
from .retention import fit_from_latest, label_cost, number_label

# A continuation's header may take so much of a piece, as a divisor.
_HEADER_SHARE = 4


@dataclass(slots=True)
class Pick:
    """A unit the model may keep or kept: its number, its index and its tokens as stored.

    Never changed, and not frozen for the reason `history.Stored` is not; nor is the next one.
    """

    number: int
    index: int
    tokens: int


@dataclass(slots=True)
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


# Which characters of a unit's text a request holds: the unit's index, start and end. A plain
# tuple, because a history makes thousands.
Slice = tuple[int, int, int]


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
    if not progress.front and _fits_whole(units, room, cost):
        return 1
    count = 1
    while not (packed := pack(units, progress, room, cost)).is_last:
        progress = packed.after
        count += 1
    return count


def _fits_whole(units: Sequence[Candidate], room: int, cost: Cost) -> bool:
    """Whether one request surely holds all units; the usual case, decided without packing."""
    # A label has at most a few dozen characters, a break one.
    extra = cost.of(number_label(10**9, 10**9) + "\n")
    texts = [unit.block.text for unit in units]
    lengths = list(map(len, texts))
    if max(lengths, default=0) * cost.dearest + extra > room // 2:
        return False
    left = room - extra * len(texts)
    # Only where the dearest price is too much must it be known what there is of each kind.
    return sum(lengths) * cost.dearest <= left or cost.of("".join(texts)) <= left


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
        priced = []
        for pick in carried:
            label = number_label(pick.number, pick.tokens)
            priced.append(_Priced(pick, label, self._price(units[pick.index].block.text, label)))
        for fitting in fit_from_latest(priced, min(self.half, self.left - self.half)):
            block = units[fitting.pick.index].block
            self._add(fitting.label + block.text, fitting.tokens)
            self.offered[fitting.pick.number] = fitting.pick

    def take(self, units: Sequence[Candidate], at: Progress) -> Progress:
        """Put in new units while they fit; where the next request begins."""
        index, offset, number = at.index, at.offset, at.next_number
        # Where all of them fit, their single prices are of no interest.
        all_fit = offset == 0 and _fits_whole(units[index:], self.left, self.cost)
        while index < len(units):
            unit = units[index]
            block = unit.block
            text = block.text
            if not text:
                index += 1
                continue
            label = number_label(number, unit.tokens) if unit.keepable else ""
            price = 0 if all_fit else self._price(text, label)
            if offset == 0 and price <= self.half:
                if price > self.left:
                    break
                self._add(label + text, price)
                self.slices.append((index, 0, len(text)))
                if unit.keepable:
                    self.offered[number] = Pick(number, index, unit.tokens)
                    number += 1
                index += 1
            else:
                end = self._take_piece(index, block, offset)
                if end is None:
                    break
                index, offset = (index, end) if end < len(text) else (index + 1, 0)
        return replace(at, index=index, offset=offset, next_number=number)

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
        piece = header + block.text[start:end]
        self._add(piece, self.cost.of(piece + "\n"))
        self.slices.append((index, start, end))
        return end

    def _price(self, text: str, label: str) -> int:
        """What a whole unit costs with its label and its line break."""
        labelled = label_cost(label, self.cost) if label else 0
        return self.cost.of(text) + labelled + self.cost.ascii_millitokens

    def _add(self, line: str, price: int) -> None:
        self.lines.append(line)
        self.left -= price


@dataclass(frozen=True, slots=True)
class _Priced:
    """A pick weighed by what it costs in a request."""

    pick: Pick
    label: str
    tokens: int
