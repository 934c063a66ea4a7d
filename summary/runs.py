"""A run from outside: what it is asked for, what it tells on its way, what it comes to.

Invariant: these are values; only `Run` changes, and only the one who works on the conversation
and whoever calls it off change it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from .commit import Committed
from .engines import Engine, Job, Prepared
from .errors import CompactError
from .heads import KnownHead
from .host import Model, Row
from .plan import AfterSwap, CompactionPlan, Layout
from .units import Unit


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be compacted, and how. All settings are resolved already (spec 3.6, 5).

    `explicit` is whether the user gave an option or a focus: then an unchanged history is
    compacted again. `follow_current` voids the run if the session switches conversation.
    `may_take_large` is whether several requests may be spent on one message.
    """

    umo: str
    cid: str
    trigger: str
    engine: Engine
    job: Job
    model: Model
    keep_recent_ratio: float
    min_messages: int
    line_tokens: int | None = None
    count_line: int | None = None
    explicit: bool = False
    follow_current: bool = True
    may_take_large: bool = True


class Past(Enum):
    """What a history has to do with what the archive knows of its conversation."""

    ALIVE = "alive"  # it goes on from there
    DEAD = "dead"  # it shares nothing with it: the conversation was cleared
    UNSURE = "unsure"  # it seems to share nothing, but a turn may just have been saved


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A history as read once, with what the archive knows about it.

    `past` says of whose history the archive knows; only a living one is told of here.
    """

    row: Row
    layout: Layout
    known: Mapping[str, KnownHead]
    trimmed: tuple[Unit, ...] = ()
    trimmed_ids: tuple[int, ...] = ()
    previous: AfterSwap | None = None
    carried: KnownHead | None = None
    past: Past = Past.ALIVE


@dataclass(frozen=True, slots=True)
class Preview:
    """A plan with what its engine makes of it; no model was asked."""

    plan: CompactionPlan
    prepared: Prepared


@dataclass(frozen=True, slots=True)
class Progress:
    """One event of a run (spec 3.7). `stage` is start, step, wait, done or error."""

    umo: str
    cid: str
    trigger: str
    stage: str
    step: int = 0
    steps: int = 0
    outcome: Outcome | None = None
    error: CompactError | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """A compaction that is done."""

    committed: Committed
    summary: str
    template: str | None
    language: str
    provider_id: str
    requests: int
    warnings: tuple[tuple[str, Mapping[str, object]], ...] = ()


Listener = Callable[[Progress], None]


# Who works on a conversation without compacting it, and so keeps others from doing it.
UNDO, FORGET, HEAL = "undo", "forget", "heal"


@dataclass(slots=True)
class Run:
    """A compaction in flight, or `UNDO`, `FORGET`, `HEAL`. `void()` ends it without a write."""

    umo: str
    cid: str
    trigger: str
    listener: Listener | None
    task: asyncio.Task[Any] | None
    voided: bool = False
    started_seconds: float = field(default_factory=time.monotonic)
    told_waiting: bool = False
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    _cancellations: int = 0

    @property
    def compacts(self) -> bool:
        """Whether this is a compaction."""
        return self.trigger not in (UNDO, FORGET, HEAL)

    def void(self) -> None:
        """Call the run off: nothing is written any more, and a waiting call stops at once."""
        self.voided = True
        if self.task is not None:
            self.task.cancel()
            self._cancellations += 1

    def forget_cancellations(self) -> None:
        """Those of ours have arrived; the task goes on, to say what became of the run."""
        while self.task is not None and self._cancellations:
            self.task.uncancel()
            self._cancellations -= 1
