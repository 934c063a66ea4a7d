"""The cut of a plan on the history as it is now (spec 2.7, rule 2).

Invariant: every message of the span is still there, or the host trimmed it and it is in the
archive; what the summary does not cover stays in the history or waits there for the next one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from .archive_types import TrimmedBatch
from .errors import HistoryChanged, HistoryCleared
from .heads import is_acknowledgement, is_gap_marker, may_be_head
from .history import CHECKPOINT, Stored, message_text, stored_as, tool_calls
from .host import Host
from .plan import CompactionPlan, Layout
from .records import same_message
from .units import Item, Unit, group_units


@dataclass(frozen=True, slots=True, eq=False)
class Rebased:
    """A plan on the history as it is now, what it retains, and the batches it covers.

    `gone_tokens` are those of the span's messages that the host has dropped meanwhile.
    """

    plan: CompactionPlan
    retained: frozenset[int]
    covers: tuple[int, ...]
    gone_tokens: int


def rebase(plan: CompactionPlan, now: Layout, host: Host) -> CompactionPlan:
    """The same cut on the history as it is now; what came after the cut is taken as it is.

    Raises:
        HistoryCleared: the history is empty.
        HistoryChanged: head summary or span are no longer the snapshot's.
    """
    if not now.body:
        raise HistoryCleared
    before = [item for item in plan.layout.body if item.position < plan.cut]
    if len(now.body) < len(before):
        raise HistoryChanged
    moved: dict[int, Item] = {}
    for old, new in zip(before, now.body, strict=False):
        if not same_message(old.message, new.message, host):
            raise HistoryChanged
        moved[old.position] = new
    rest = now.body[len(before) :]
    cut = rest[0].position if rest else len(now.stored)
    markers = {marker.position for marker in now.markers}
    span = tuple(
        Unit(tuple(moved[item.position] for item in unit.items), unit.kind) for unit in plan.span
    )
    tail = tuple(item for item in rest if item.position not in markers)
    # Results that came in late may belong to a call before the cut.
    offset = sum(item.position < cut for item in now.dialog)
    if not group_units(now.dialog).cuts[offset]:
        raise HistoryChanged
    return replace(plan, layout=now, span=span, tail=tail, cut=cut)


def rebase_trimmed(
    plan: CompactionPlan,
    retained: frozenset[int],
    now: Layout,
    batches: Sequence[TrimmedBatch],
    host: Host,
) -> Rebased:
    """The same cut after trims: what leads, then the end of the span, then what followed it.

    What leads is nothing, the first user message, or the host's own summary with or without its
    acknowledgement.

    Args:
        plan: the plan of the summary.
        retained: indexes into its span.
        now: the history as it is.
        batches: what the host dropped since the plan was made.
        host: the chat host.

    Raises:
        HistoryChanged: it was not (only) trimming.
    """
    old = [item for item in plan.layout.body if item.position < plan.cut]
    behind = [item for item in plan.layout.body if item.position >= plan.cut]
    found = [
        (lead, moved)
        for lead in _leads(old, now.body, host)
        for moved in _alignments(old, now.body, lead, plan, host)
    ]
    # Rounds may be alike word for word: where the old tail follows, the cut is the old one.
    found.sort(key=lambda each: not _begins(now.body[each[0] + len(each[1]) :], behind, host))
    for lead, moved in found:
        covers = _covered(old, moved, lead, now.body, batches, host)
        if covers is not None:
            return _moved(plan, retained, now, moved, lead, covers)
    raise HistoryChanged


def _begins(items: Sequence[Item], with_items: Sequence[Item], host: Host) -> bool:
    pairs = zip(with_items, items, strict=False)
    return len(items) >= len(with_items) and all(
        same_message(one.message, other.message, host) for one, other in pairs
    )


def _leads(old: Sequence[Item], body: Sequence[Item], host: Host) -> list[int]:
    """How many messages may stand in front of the kept end, the most first."""
    if not body:
        return [0]
    first = next((item for item in old if item.role == "user"), None)
    is_first = first is not None and same_message(first.message, body[0].message, host)
    has_pair = may_be_head(body[0].data) and len(body) > 1 and is_acknowledgement(body[1].data)
    if may_be_head(body[0].data) and not is_first:
        # A summary that was not there before: it may not stay behind ours.
        return [2] if has_pair else [1]
    if not is_first:
        return [0]
    return [2, 1, 0] if has_pair else [1, 0]


def _alignments(
    old: Sequence[Item], body: Sequence[Item], lead: int, plan: CompactionPlan, host: Host
) -> list[dict[int, Item]]:
    """Where the kept end of the span may stand now, by old position: the longest first."""
    found: list[dict[int, Item]] = []
    rest = body[lead:]
    for start, item in enumerate(old):
        # The cheap comparison first: a history has many places and few that fit.
        if not rest or message_text(item.data) != message_text(rest[0].data):
            continue
        # What the host looks at for its pairs goes on behind the cut.
        kept = [each for each in _valid([*old[start:], *plan.tail]) if each.position < plan.cut]
        pairs = list(zip(kept, rest, strict=False))
        if len(pairs) == len(kept) and all(
            same_message(a.message, b.message, host) for a, b in pairs
        ):
            found.append({a.position: b for a, b in pairs})
    found.append({})
    return found


def _valid(items: Sequence[Item]) -> list[Item]:
    """What the host leaves of these messages: no call without results, no lone result."""
    valid: list[Item] = []
    pending: list[Item] = []
    for item in items:
        if item.role == "tool":
            if pending:
                pending.append(item)
            continue
        if len(pending) > 1:
            valid += pending
        pending = []
        if tool_calls(item.data):
            pending = [item]
        else:
            valid.append(item)
    return valid + pending if len(pending) > 1 else valid


def _covered(
    old: Sequence[Item],
    moved: dict[int, Item],
    lead: int,
    body: Sequence[Item],
    batches: Sequence[TrimmedBatch],
    host: Host,
) -> tuple[int, ...] | None:
    """The batches that this summary covers; None if a message is gone and not in them."""
    leading = [item.message for item in body[:lead]]
    gone = Counter(
        host.canonical(item.data)
        for item in old
        if item.position not in moved and not _is_ours_or(item, leading, host)
    )
    covers: list[int] = []
    is_host_summary = lead > 0 and not any(
        same_message(item.message, leading[0], host) for item in old
    )
    for batch in batches:
        messages = [stored_as(m.raw) for m in batch.messages if m.role != CHECKPOINT]
        dropped = Counter(host.canonical(message.data) for message in messages)
        if dropped <= gone:
            covers.append(batch.id)
        elif is_host_summary:
            return None  # its summary speaks of messages that ours does not know
        gone -= dropped
    return None if gone else tuple(covers)


def _is_ours_or(item: Item, leading: Sequence[Stored], host: Host) -> bool:
    """Whether a message need not be in the archive: it leads, or nobody said it."""
    return (
        may_be_head(item.data)
        or is_acknowledgement(item.data)
        or is_gap_marker(item.data)
        or any(same_message(item.message, each, host) for each in leading)
    )


def _moved(
    plan: CompactionPlan,
    retained: frozenset[int],
    now: Layout,
    moved: dict[int, Item],
    lead: int,
    covers: tuple[int, ...],
) -> Rebased:
    span: list[Unit] = []
    indexes: dict[int, int] = {}
    for index, unit in enumerate(plan.span):
        items = tuple(moved[item.position] for item in unit.items if item.position in moved)
        if len(items) == len(unit.items):
            indexes[index] = len(span)
        if items:
            span.append(Unit(items, unit.kind))
    rest = now.body[lead + len(moved) :]
    cut = rest[0].position if rest else len(now.stored)
    offset = sum(item.position < cut for item in now.dialog)
    if not group_units(now.dialog).cuts[offset]:
        raise HistoryChanged
    markers = {marker.position for marker in now.markers}
    return Rebased(
        replace(
            plan,
            layout=now,
            span=tuple(span),
            tail=tuple(item for item in rest if item.position not in markers),
            cut=cut,
            kept_by_rule=frozenset(indexes[i] for i in plan.kept_by_rule if i in indexes),
        ),
        frozenset(indexes[index] for index in retained if index in indexes),
        covers,
        max(plan.span_tokens - sum(unit.tokens for unit in span), 0),
    )
