"""The two ways to a summary behind one face: ours, and AstrBot's own compressor (spec 2.9).

Invariant: `prepare` asks no model, and its value is both what preview prints and what
`summarize` works from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from .errors import CutSummary
from .heads import acknowledgement, head_message
from .history import Message
from .host import Host, Model, ModelInfo, ModelReply
from .plan import CompactionPlan
from .reply import Cut, read_reply
from .templates import choose_language
from .todos import Todo
from .usertext import Speaker, spoken_texts

_FOCUS = {"zh": "重点关注：", "en": "Focus on: "}

# Enough of a conversation's end to know its language by.
_SAMPLE_MESSAGES = 40

OnStep = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Job:
    """What a run is asked for besides the cut; all settings are resolved already.

    `window_tokens` is the summary model's window, the host's fallback where it is unknown.
    `line_tokens` is the compress line E, None if there is none. `speakers` are those of user
    messages by content hash, `todos` those another plugin keeps, `tokens_per_char` is what text
    of this conversation measured, None if nothing was.
    """

    umo: str
    model: ModelInfo
    window_tokens: int
    focus: str = ""
    instruction: str = ""
    template: str = "auto"
    language: str = "auto"
    budget_ratio: float = 0.1
    line_tokens: int | None = None
    timeout_seconds: float = 180
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    admin_ids: frozenset[str] = frozenset()
    speakers: Mapping[str, Speaker] = field(default_factory=dict)
    todos: tuple[Todo, ...] = ()
    tokens_per_char: float | None = None


@dataclass(frozen=True, slots=True)
class Prepared:
    """What an engine makes of a plan before any model is asked.

    `template`, `budget_tokens` and `retain_cap_tokens` are None for an engine without them;
    `after_tokens` is the estimate for the history afterwards. `has_large` is whether one
    message alone is more than the summary model's window holds.
    """

    template: str | None
    language: str
    requests: int
    budget_tokens: int | None
    retain_cap_tokens: int | None
    after_tokens: int | None
    has_large: bool = False
    task: Any = None


def _nothing() -> None:
    """What is to be done by default."""


@dataclass(frozen=True, slots=True)
class Summarized:
    """A summary, the units of `plan.span` to retain (indexes), and what it cost.

    `on_stored` is called once the summary stands in the history.
    """

    summary: str
    retained: frozenset[int]
    requests: int
    input_tokens: int | None
    cached_tokens: int | None
    output_tokens: int | None
    warnings: tuple[tuple[str, Mapping[str, object]], ...] = ()
    on_stored: Callable[[], None] = _nothing


class Engine(Protocol):
    """A way to a summary."""

    name: str
    structured: bool

    def prepare(self, plan: CompactionPlan, job: Job) -> Prepared:
        """Pure, and heavy for a long history: run it in a thread.

        Raises:
            NoRoom: the summary model can hold no conversation at all.
        """
        ...

    async def summarize(
        self, plan: CompactionPlan, prepared: Prepared, job: Job, model: Model, on_step: OnStep
    ) -> Summarized:
        """Ask the model.

        Raises:
            SummaryFailed: no usable summary.
        """
        ...

    def limit_retained(
        self, plan: CompactionPlan, retained: frozenset[int], count_line: int | None, /
    ) -> frozenset[int]:
        """What may stay of the retained units in the history as it is at commit."""
        ...


class BuiltinEngine:
    """AstrBot's `LLMSummaryCompressor` over head summary and span.

    Cut, result checks, commit, archive and undo are ours; budget and picks do not apply.
    """

    name = "builtin"
    structured = False

    def __init__(self, host: Host) -> None:
        self._host = host

    def prepare(self, plan: CompactionPlan, job: Job) -> Prepared:
        """One request; what it will give back cannot be estimated."""
        language = choose_language(job.language, sample_texts(plan))
        return Prepared(None, language, 1, None, None, None)

    async def summarize(
        self, plan: CompactionPlan, prepared: Prepared, job: Job, model: Model, on_step: OnStep
    ) -> Summarized:
        """Let the compressor summarise all it is given; what it gives back whole is retained."""
        on_step(1, 1)
        messages, places = _builtin_input(plan)
        result = await self._host.summarize_builtin(
            model,
            messages,
            self._instruction(job, prepared.language),
            job.timeout_seconds,
            job.extra_body,
        )
        kept = {places[index] for index in result.kept if places[index] is not None}
        retained = frozenset(
            index
            for index, unit in enumerate(plan.span)
            if any(item.position in kept for item in unit.items)
        )
        provider_id = model.info.provider_id
        summary = read_reply(ModelReply(result.summary), provider_id, None)
        if isinstance(summary, Cut):
            raise CutSummary(provider=provider_id)
        return Summarized(
            summary, retained, 1,
            result.input_tokens, result.cached_tokens, result.output_tokens,
        )  # fmt: skip

    def limit_retained(
        self, _plan: CompactionPlan, retained: frozenset[int], _count_line: int | None, /
    ) -> frozenset[int]:
        """Everything: what the compressor keeps is the live request."""
        return retained

    def _instruction(self, job: Job, language: str) -> str:
        instruction = job.instruction or self._host.builtin_instruction
        if not job.focus:
            return instruction
        return f"{instruction.rstrip()}\n{_FOCUS[language]}{job.focus}"


def _builtin_input(plan: CompactionPlan) -> tuple[list[Message], list[int | None]]:
    """The messages to summarise, and the stored position of each (None: not of the span)."""
    messages: list[Message] = []
    places: list[int | None] = []
    if plan.carried is not None:
        messages += [head_message(plan.carried.summary, "en").data, acknowledgement().data]
        places += [None, None]
    head = plan.layout.head
    for item in head.items if head else ():
        messages.append(item.data)
        places.append(None)
    for unit in plan.trimmed:
        for item in unit.items:
            messages.append(item.data)
            places.append(None)
    for item in sorted((i for unit in plan.span for i in unit.items), key=lambda i: i.position):
        messages.append(item.data)
        places.append(item.position)
    return messages, places


def sample_texts(plan: CompactionPlan) -> list[str]:
    """What was said last, to know the dialog's language by."""
    dialog = [item.data for item in plan.layout.dialog]
    trimmed = [item.data for unit in plan.trimmed for item in unit.items]
    return spoken_texts([*trimmed, *dialog], _SAMPLE_MESSAGES)
