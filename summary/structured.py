"""Our own engine behind the common face of `engines` (spec 2.2 to 2.6)."""

from __future__ import annotations

from .budget import Limits
from .cache import ChunkCache
from .engine import summarize
from .engines import Job, OnStep, Prepared, Summarized, sample_texts
from .heads import acknowledgement, head_message
from .host import Host, Model
from .plan import CompactionPlan, not_smaller
from .retention import apply_count_rule
from .task import PreparedTask, SummaryTask, prepare
from .templates import choose_language, choose_template
from .todos import find_todos
from .units import group_units, tool_names


class StructuredEngine:
    """Sections, a budget, units kept verbatim, as many requests as the model's window needs."""

    name = "structured"
    structured = True

    def __init__(self, host: Host) -> None:
        self._host = host
        self._cache = ChunkCache()

    def prepare(self, plan: CompactionPlan, job: Job) -> Prepared:
        """Render, count and budget; no model is asked.

        Raises:
            NoRoom, SettingsError: there is no room for a summary at all.
        """
        task = self._task(plan, job)
        prepared = prepare(task)
        limits, budget = task.limits, prepared.budget
        return Prepared(
            template=task.template,
            language=task.language,
            requests=prepared.requests,
            budget_tokens=budget.budget_tokens,
            retain_cap_tokens=budget.retain_cap_tokens,
            after_tokens=plan.layout.tokens
            - limits.replaced_tokens
            + limits.head_tokens
            + prepared.kept_by_rule_tokens
            + min(prepared.asked_tokens, prepared.content_tokens),
            has_large=prepared.has_large,
            task=prepared,
        )

    async def summarize(
        self, plan: CompactionPlan, prepared: Prepared, _job: Job, model: Model, on_step: OnStep
    ) -> Summarized:
        """Ask the model, in one request where the history fits."""
        task: PreparedTask = prepared.task
        if task.asked_tokens == 0:
            # Said in the figures people know: those of the whole history.
            raise not_smaller(plan, plan.layout.tokens, (prepared.after_tokens or 0) + 1)
        result = await summarize(task, model, on_step, self._cache)
        first = len(plan.trimmed)
        return Summarized(
            summary=result.summary,
            retained=frozenset(index - first for index in result.retained if index >= first),
            requests=result.requests,
            input_tokens=result.input_tokens,
            cached_tokens=result.cached_tokens,
            output_tokens=result.output_tokens,
            warnings=result.warnings,
            # Who takes it back wants another summary, not the chunks of this one.
            on_stored=lambda: self._cache.forget(result.run_key),
        )

    def limit_retained(
        self, plan: CompactionPlan, retained: frozenset[int], count_line: int | None, /
    ) -> frozenset[int]:
        """The picks that the count line allows; what is kept by rule stays (spec 2.5)."""
        by_rule = retained & plan.kept_by_rule
        picked = sorted(retained - by_rule)
        others = len(plan.tail) + sum(len(plan.span[index].items) for index in by_rule)
        allowed = apply_count_rule([plan.span[index] for index in picked], others, count_line)
        return by_rule | frozenset(picked[len(picked) - len(allowed) :])

    def _task(self, plan: CompactionPlan, job: Job) -> SummaryTask:
        layout, head, earlier = plan.layout, plan.layout.head, plan.earlier
        language = choose_language(job.language, sample_texts(plan))
        count = self._host.count_tokens
        empty_head = [head_message("", language), acknowledgement()]
        first = len(plan.trimmed)
        return SummaryTask(
            units=(*plan.trimmed, *plan.span),
            limits=Limits(
                line_tokens=job.line_tokens,
                ratio=job.budget_ratio,
                window_tokens=job.window_tokens,
                max_output_tokens=job.model.max_output_tokens,
                tail_tokens=plan.tail_tokens,
                replaced_tokens=plan.span_tokens + (head.tokens if head else 0),
                head_tokens=sum(count(message.data) for message in empty_head),
            ),
            template=choose_template(job.template, job.umo, job.admin_ids),
            language=language,
            count_text=self._host.count_text,
            trimmed_count=first,
            kept_by_rule=frozenset(index + first for index in plan.kept_by_rule),
            kept=group_units(plan.tail).units,
            earlier=earlier.summary if earlier else None,
            earlier_structured=earlier.structured if earlier else True,
            tool_names=tool_names(layout.body),
            speakers=job.speakers,
            focus=job.focus,
            instruction=job.instruction,
            todos=job.todos
            or find_todos(i.data for i in reversed(layout.body) if i.role == "assistant"),
            extra_body=job.extra_body,
            timeout_seconds=job.timeout_seconds,
            tokens_per_char=job.tokens_per_char,
        )
