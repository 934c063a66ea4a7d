"""What a structured summary is made from, and what it comes to (spec 2.2 to 2.6).

Invariant: a task is a value; all its text is prepared before the first request, so that preview
and run see the same figures.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .budget import Budget, Limits, budget_for, capacity_millitokens
from .chunks import Candidate, Progress, count_requests
from .cost import Cost, measured_cost
from .errors import NoRoom
from .history import canonical_json
from .host import ModelInfo
from .hygiene import safe_copy
from .prompt import Extras, Wording, extra_text, fixed_text, make_extras
from .render import Names, render_units
from .retention import can_be_kept
from .templates import Language, Template, has_heading
from .todos import Todo, render_todos
from .units import Unit
from .usertext import Speaker

# A task list may take so much of a request, as a divisor; the conversation needs the rest.
_TODO_SHARE = 4
_BATCH_CHARS = 200_000


@dataclass(frozen=True, slots=True, eq=False)
class SummaryTask:
    """Everything a run is given.

    `units` are the ones to summarise in stored order, those the host trimmed away in front;
    `kept_by_rule` are indexes of units that stay verbatim whatever the model picks. `kept` are
    units outside of these that stay. `earlier` is the earlier summary's bare text.
    `tokens_per_char` is what this conversation's turns measured, None if nothing was.
    """

    units: tuple[Unit, ...]
    limits: Limits
    template: Template
    language: Language
    count_text: Callable[[str], int]
    trimmed_count: int = 0
    kept_by_rule: frozenset[int] = frozenset()
    kept: tuple[Unit, ...] = ()
    earlier: str | None = None
    earlier_structured: bool = True
    tool_names: Mapping[str, str] = field(default_factory=dict)
    speakers: Mapping[str, Speaker] = field(default_factory=dict)
    focus: str = ""
    instruction: str = ""
    todos: tuple[Todo, ...] = ()
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    timeout_seconds: float = 180.0
    tokens_per_char: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class PreparedTask:
    """A task with its texts and figures; no model was asked.

    `content_tokens` are those of the whole input, `requests` how many it will probably take,
    `has_large` is whether one unit alone is more than the summary model's window holds.
    """

    task: SummaryTask
    candidates: tuple[Candidate, ...]
    budget: Budget
    start: Progress
    content_tokens: int
    requests: int
    has_large: bool

    @property
    def kept_by_rule_tokens(self) -> int:
        """Tokens of the units kept by rule."""
        return sum(self.task.units[index].tokens for index in self.task.kept_by_rule)

    @property
    def asked_tokens(self) -> int:
        """What the prompt asks for: beside the units kept by rule the result is still smaller."""
        limits = self.task.limits
        room = limits.replaced_tokens - limits.head_tokens - 1 - self.kept_by_rule_tokens
        return max(min(self.budget.stated_tokens, room), 0)


Warning_ = tuple[str, Mapping[str, object]]


@dataclass(frozen=True, slots=True)
class SummaryResult:
    """A summary fit to be stored.

    `summary` includes the closing line of identifiers; `retained` are indexes into the task's
    units, those kept by rule included. Token counts are sums over `requests`, None where the
    provider never reported one. `warnings` are sentence keys with their values. `run_key` is
    what finished chunks of it are kept under, empty if none are.
    """

    summary: str
    retained: frozenset[int]
    requests: int
    input_tokens: int | None
    cached_tokens: int | None
    output_tokens: int | None
    warnings: tuple[Warning_, ...]
    run_key: str = ""


def prepare(task: SummaryTask) -> PreparedTask:
    """Render, count and budget a task: all the work that needs no model. Linear, no I/O.

    Raises:
        NoRoom: the summary model's window cannot hold a request.
        SettingsError: the compress line leaves no room for a summary.
    """
    blocks = render_units(task.units, Names(task.tool_names, task.speakers))
    earlier = safe_copy(task.earlier or "").strip()
    earlier_tokens = task.count_text(earlier) if earlier else 0
    new_tokens = count_in_batches([block.text for block in blocks], task.count_text)
    content = earlier_tokens + new_tokens
    budget = budget_for(task.limits, content_tokens=content, new_content_tokens=new_tokens)
    candidates = tuple(
        Candidate(
            block,
            unit.tokens,
            index >= task.trimmed_count
            and index not in task.kept_by_rule
            and can_be_kept(unit, budget.retain_cap_tokens),
        )
        for index, (unit, block) in enumerate(zip(task.units, blocks, strict=True))
    )
    too_long = earlier_tokens > budget.physical_tokens
    start = Progress(
        summary="" if too_long else earlier,
        front=earlier if too_long else "",
        sorts=bool(earlier)
        and not (task.earlier_structured and has_heading(earlier, task.template)),
    )
    cost = measured_cost(task.tokens_per_char)
    _, room = room_for(task, budget, cost)
    requests = count_requests(candidates, start, room, cost)
    window = budget.window_tokens
    has_large = requests > 1 and any(
        block.cost(cost) > room and task.count_text(block.text) > window for block in blocks
    )
    return PreparedTask(task, candidates, budget, start, content, requests, has_large)


def wording_for(task: SummaryTask, budget: Budget) -> Wording:
    """The longest wording a request of this task can have."""
    return Wording(
        template=task.template,
        language=task.language,
        stated_tokens=budget.stated_tokens,
        retain_cap_tokens=budget.retain_cap_tokens,
        merges=True,
        sorts=not task.earlier_structured,
        offers=True,
        demands=True,
    )


def room_for(task: SummaryTask, budget: Budget, cost: Cost) -> tuple[Extras, int]:
    """The extras of every request, and what is left beside them, in thousandths of a token.

    Raises:
        NoRoom: less than four characters of conversation would fit.
    """
    capacity = capacity_millitokens(budget, fixed_text(wording_for(task, budget)), cost)
    todos = task.todos if task.template == "work" else ()
    extras = make_extras(
        task.instruction, task.focus, render_todos(todos, cost, capacity // _TODO_SHARE)
    )
    room = capacity - cost.of(extra_text(extras, task.language))
    if room < 4 * cost.dearest:
        raise NoRoom(window=budget.window_tokens)
    return extras, room


def count_in_batches(texts: Sequence[str], count_text: Callable[[str], int]) -> int:
    """Tokens of all texts; counted many at a time, for a count has its price too."""
    total = chars = start = 0
    for end, text in enumerate(texts, 1):
        chars += len(text)
        if chars >= _BATCH_CHARS or end == len(texts):
            total += count_text("\n".join(texts[start:end]))
            start, chars = end, 0
    return total


def run_key(prepared: PreparedTask, info: ModelInfo) -> str:
    """What a run is known by: messages, template, language, budget, focus, instruction, model."""
    task = prepared.task
    digest = hashlib.sha256()
    for candidate in prepared.candidates:
        text = candidate.block.text
        facts = f"{len(text)} {candidate.tokens} {candidate.keepable} {text}"
        digest.update(facts.encode("utf-8", "surrogatepass"))
    known = [
        task.earlier or "",
        task.earlier_structured,
        task.template,
        task.language,
        repr(prepared.budget),
        task.focus,
        task.instruction,
        info.provider_id,
        info.model,
    ]
    digest.update(canonical_json(known).encode())
    return digest.hexdigest()
