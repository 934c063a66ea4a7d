"""What a compaction will do, decided before any model is asked (spec 2.1).

Pure: the same history and settings give the same plan; preview prints it and a run executes it.
Laws: head, span and tail in stored order are the whole history; only units move; the tail
begins where no tool group spans across; a dialog's unfinished tool group stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from .errors import NotSmaller, NotSmallerAtAll
from .heads import FindHead, Head, KnownHead, candidate_hash, find_head, is_gap_marker
from .history import Stored
from .units import CountTokens, Grouping, Item, Unit, bind_checkpoints, group_units


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """What the plan depends on besides the history.

    `line_tokens` is the compress line E and `count_line` the count line, each None if there is
    none. `previous` is what the last swap left, None if there was none or if the caller gave an
    option of its own, which makes an unchanged history worth compacting again.
    """

    keep_recent_ratio: float
    min_messages: int
    line_tokens: int | None = None
    count_line: int | None = None
    previous: AfterSwap | None = None


@dataclass(frozen=True, slots=True)
class AfterSwap:
    """A dialog right after a swap: its head, its length and its last message (canonical hash)."""

    head_hash: str
    dialog_messages: int
    last_message: str


class SkipReason(Enum):
    """Why there is nothing to do."""

    TOO_FEW = "too_few"
    TOO_FEW_MORE = "too_few_more"  # beside a summary
    NO_SPAN = "no_span"
    NOTHING_NEW = "nothing_new"


@dataclass(frozen=True, slots=True)
class Skip:
    """Nothing to do, with the numbers said to people. `messages` are dialog messages."""

    reason: SkipReason
    messages: int
    min_messages: int
    tokens: int


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """A history taken apart.

    `leading` are the system messages in front, `body` all others, `dialog` what of the body the
    spec calls dialog messages. `stored` is everything, checkpoints and gap markers included;
    positions count in it.
    """

    stored: tuple[Stored, ...]
    leading: tuple[Item, ...]
    body: tuple[Item, ...]
    head: Head | None
    dialog: tuple[Item, ...]
    markers: tuple[Item, ...]
    tokens: int

    @property
    def body_start(self) -> int:
        """The position where head or span begins, after the leading system messages."""
        return self.body[0].position if self.body else len(self.stored)

    @property
    def shown_count(self) -> int:
        """The number of messages said to people: all but checkpoints and gap markers."""
        head = len(self.head.items) if self.head else 0
        return len(self.leading) + head + len(self.dialog)


@dataclass(frozen=True, slots=True, eq=False)
class CompactionPlan:
    """The cut. `span` are the units to replace, `tail` the messages kept verbatim.

    `cut` is the position in `layout.stored` where the tail begins; `kept_by_rule` are indexes
    into `span` of units retained whatever the model picks; `trimmed` are units the host dropped
    earlier, which the summary covers too. `carried` is our last summary if the host dropped the
    head that held it.
    """

    layout: Layout
    span: tuple[Unit, ...]
    tail: tuple[Item, ...]
    cut: int
    kept_by_rule: frozenset[int]
    trimmed: tuple[Unit, ...] = ()
    carried: KnownHead | None = None

    @property
    def earlier(self) -> KnownHead | None:
        """The earlier summary to fold in: the head's, the carried one, or both in their order."""
        head = self.layout.head
        if head is None:
            return self.carried
        if self.carried is None:
            return KnownHead(head.summary, head.structured)
        return KnownHead(f"{self.carried.summary}\n\n{head.summary}", structured=False)

    @property
    def span_tokens(self) -> int:
        """Tokens of the span as stored, head summary not included."""
        return sum(unit.tokens for unit in self.span)

    @property
    def tail_tokens(self) -> int:
        """Tokens of the tail as stored."""
        return sum(item.tokens for item in self.tail)


def read_layout(stored: Sequence[Stored], count: CountTokens, find: FindHead) -> Layout:
    """Take a history apart. `find` asks what the archive knows of a head's hash."""
    items = bind_checkpoints(stored, count)
    first = next((n for n, item in enumerate(items) if item.role != "system"), len(items))
    rest = items[first:]
    wanted = candidate_hash(rest)
    head = find_head(rest, find(wanted) if wanted is not None else None)
    talk = rest[len(head.items) :] if head else rest
    # Without a head of ours there are no markers of ours either.
    ours = head is not None and head.ours
    markers = tuple(item for item in talk if ours and is_gap_marker(item.data))
    dialog = tuple(item for item in talk if not (ours and is_gap_marker(item.data)))
    return Layout(
        tuple(stored), items[:first], rest, head, dialog, markers, sum(i.tokens for i in items)
    )


def plan_compaction(
    layout: Layout,
    options: PlanOptions,
    trimmed: Sequence[Unit],
    last_message: str,
    carried: KnownHead | None = None,
) -> CompactionPlan | Skip:
    """Decide the cut, or say why there is nothing to do.

    Args:
        layout: the history.
        options: ratios and lines in force.
        trimmed: units the host trimmed away since the last compaction, oldest first.
        last_message: canonical hash of the last dialog message, empty if there is none.
        carried: our last summary if its head was trimmed away.
    """
    dialog = layout.dialog
    tokens = sum(item.tokens for item in dialog)
    if len(dialog) < options.min_messages:
        reason = SkipReason.TOO_FEW_MORE if layout.head else SkipReason.TOO_FEW
        return Skip(reason, len(dialog), options.min_messages, tokens)
    here = AfterSwap(layout.head.text_hash if layout.head else "", len(dialog), last_message)
    if options.previous == here and not trimmed:
        return Skip(SkipReason.NOTHING_NEW, len(dialog), options.min_messages, tokens)
    grouping = group_units(dialog)
    offset, live_request = _tail_start(dialog, grouping, options, tokens)
    cut = dialog[offset].position if offset < len(dialog) else len(layout.stored)
    span = tuple(unit for unit in grouping.units if unit.first < cut)
    if not span and not trimmed:
        return Skip(SkipReason.NO_SPAN, len(dialog), options.min_messages, tokens)
    kept = frozenset(
        index
        for index, unit in enumerate(span)
        if live_request is not None and unit.first == dialog[live_request].position
    )
    if span and len(kept) == len(span) and not trimmed:
        return Skip(SkipReason.NO_SPAN, len(dialog), options.min_messages, tokens)
    return CompactionPlan(layout, span, dialog[offset:], cut, kept, tuple(trimmed), carried)


def not_smaller(plan: CompactionPlan, before: int, after: int) -> NotSmaller:
    """The error for a plan that would not make its history smaller, in tokens of the whole."""
    kind = NotSmaller if plan.tail else NotSmallerAtAll
    return kind(before=before, after=after)


def _tail_start(
    dialog: Sequence[Item], grouping: Grouping, options: PlanOptions, tokens: int
) -> tuple[int, int | None]:
    """The offset where the tail begins, and that of the live request, to keep if before it."""
    line = options.line_tokens
    whole = tokens if line is None else min(tokens, line)
    start, live_request = len(dialog), None
    if options.keep_recent_ratio > 0 and dialog:
        limit = int(options.keep_recent_ratio * whole)
        most = options.count_line // 2 if options.count_line is not None else None
        start = _whole_rounds(dialog, grouping.cuts, limit, most)
        if start == len(dialog):
            start, live_request = _last_round(dialog, grouping.cuts, whole, limit, most)
    if grouping.open_group is not None:
        first = grouping.open_group.first
        unfinished = next(n for n, item in enumerate(dialog) if item.position == first)
        start = min(start, unfinished)
    return start, live_request


def _whole_rounds(
    dialog: Sequence[Item], cuts: Sequence[bool], limit: int, most: int | None
) -> int:
    """Where the whole rounds from the end that fit begin; the dialog's length if none does."""
    start, used = len(dialog), 0
    for offset in range(len(dialog) - 1, -1, -1):
        used += dialog[offset].tokens
        if used > limit or (most is not None and len(dialog) - offset > most):
            break
        if _starts_round(dialog, cuts, offset):
            start = offset
    return start


def _last_round(
    dialog: Sequence[Item], cuts: Sequence[bool], whole: int, limit: int, most: int | None
) -> tuple[int, int | None]:
    """Keep the last round though it does not fit, or as much of it as is sensible."""
    begin = next(n for n in range(len(dialog) - 1, -1, -1) if _starts_round(dialog, cuts, n))
    if sum(item.tokens for item in dialog[begin:]) * 2 <= whole:
        return begin, None
    start, used = len(dialog), 0
    for offset in range(len(dialog) - 1, begin, -1):
        used += dialog[offset].tokens
        if used > limit or (most is not None and len(dialog) - offset > most):
            break
        if cuts[offset]:
            start = offset
    # A dialog whose request the host trimmed away begins with the oldest answer, no live request.
    if dialog[begin].role != "user" or dialog[begin].tokens * 2 > whole:
        return start, None
    return start, begin


def _starts_round(dialog: Sequence[Item], cuts: Sequence[bool], offset: int) -> bool:
    # A dialog that does not begin with a user's message begins with a round all the same.
    return cuts[offset] and (dialog[offset].role == "user" or offset == 0)
