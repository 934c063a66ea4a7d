"""The values that go into the archive and come out of it.

Invariant: `raw` is the JSON text a message was stored with and comes out as it went in, whatever
characters it holds; texts for looking and searching are made valid UTF-8 (spec 4.1, CASES 17).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from .heads import KnownHead


class Stage(StrEnum):
    """How far a compaction came.

    archived ─→ done ─→ undone        done ⇄ undoing, while an undo writes the history
             └→ void
    """

    ARCHIVED = "archived"
    DONE = "done"
    UNDOING = "undoing"
    UNDONE = "undone"
    VOID = "void"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCompaction:
    """What is known of a compaction when its span is archived.

    Message counts are shown counts, token counts the host's estimates, `input_tokens`,
    `cached_tokens` and `output_tokens` what the providers reported (None: nothing reported).
    `head_hash` is the hash of the head summary we write, `marker_hashes` those of the gap
    markers. `head_before_raw` is the replaced head as stored and `prefix_json` how the written
    prefix is put together; both are opaque here and belong to undo. `covers_trimmed` are the
    host-trimmed batches this summary covers.

    Released fields stay, and a new one needs a default: records on disk do not have it.
    """

    cid: str
    umo: str
    trigger: str
    engine: str
    template: str | None
    language: str
    provider_id: str
    model: str
    focus: str
    messages_before: int
    messages_after: int
    tokens_before: int
    tokens_after: int
    requests: int
    input_tokens: int | None
    cached_tokens: int | None
    output_tokens: int | None
    duration_seconds: float
    summary_before: str | None
    summary: str
    head_hash: str
    marker_hashes: tuple[str, ...] = ()
    structured: bool
    head_before_raw: tuple[str, ...] = ()
    prefix_json: str = ""
    covers_trimmed: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction(NewCompaction):
    """A compaction on record.

    `number` is the one shown to people (#12), counted per conversation; None once void.
    `cleared` is whether the conversation was reset after it, `erased` whether its messages are
    gone because of their age: neither can be undone.
    """

    id: int
    number: int | None
    stage: Stage
    created_seconds: float
    message_count: int
    kept_count: int
    cleared: bool
    erased: bool


@dataclass(slots=True)
class SpanMessage:
    """A message to archive. `text` is what may be searched, empty for checkpoints.

    None leaves text and speaker to be read off the raw when the message is first looked for.
    Never changed, and not frozen for the reason `history.Stored` is not.
    """

    raw: str
    role: str
    text: str | None
    kept: bool = False
    speaker: str | None = None
    time_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class ArchivedMessage:
    """A message on record, at its place in a compaction or a trimmed batch."""

    position: int
    raw: str
    role: str
    text: str
    kept: bool
    speaker: str | None
    time_seconds: float | None


@dataclass(frozen=True, slots=True)
class TrimmedBatch:
    """Messages the host dropped by itself in one turn (spec 3.4)."""

    id: int
    reason: str
    created_seconds: float
    messages: tuple[ArchivedMessage, ...]


@dataclass(frozen=True, slots=True)
class Known:
    """Which of the hashes asked for belong to messages we wrote.

    `heads` are head summaries by hash, `markers` the hashes of gap markers.
    """

    heads: Mapping[str, KnownHead]
    markers: frozenset[str]


@dataclass(frozen=True, slots=True)
class Found:
    """A message that a search found.

    `number` is the newest compaction that holds it, None for one the host trimmed and no
    compaction covers yet. `hits` are the places of the words in `snippet`, as (start, end).
    `is_exact` is false where only part of the query is in the message.
    """

    message_id: int
    number: int | None
    role: str
    speaker: str | None
    time_seconds: float | None
    snippet: str
    hits: tuple[tuple[int, int], ...]
    rank: int
    is_exact: bool


@dataclass(frozen=True, slots=True)
class Recalled:
    """A message given back to the model, word for word; `is_cut` if only a part of it fits."""

    number: int | None
    role: str
    speaker: str | None
    time_seconds: float | None
    text: str
    is_cut: bool


@dataclass(frozen=True, slots=True)
class Sample:
    """The usage of one turn; `window_tokens` is None where the window is unknown."""

    time_seconds: float
    tokens: int
    window_tokens: int | None


@dataclass(frozen=True, slots=True)
class Speaker:
    """Who said a user message."""

    user_id: str
    nickname: str
    time_seconds: float


@dataclass(frozen=True, slots=True)
class Stats:
    """The size of a conversation's archive; `raw_bytes` is the JSON of its messages."""

    compactions: int
    messages: int
    pending_trimmed: int
    raw_bytes: int


@dataclass(frozen=True, slots=True)
class Overview:
    """A conversation that has anything on record, for the page."""

    cid: str
    umo: str
    compactions: int
    last_compaction_seconds: float | None
    last_sample: Sample | None


@dataclass(frozen=True, slots=True)
class Health:
    """What a check of the file found.

    `problems` are sentences for the log, empty if all is well. `checked` of `total` messages
    were compared with their hashes before the time was up.
    """

    checked: int
    total: int
    problems: tuple[str, ...]

    @property
    def is_ok(self) -> bool:
        """Whether nothing wrong was seen."""
        return not self.problems

    @property
    def is_complete(self) -> bool:
        """Whether everything was looked at."""
        return self.checked >= self.total
