"""The structured engine: one summary from one or several requests (spec 2.6).

Invariant: the text of every unit was in at least one request that was answered with a usable
summary, or an error is raised; nothing in between is ever returned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from .cache import ChunkCache
from .chunks import Packed, Pick, Progress, pack
from .cost import DEAREST, MILLI, measured_cost
from .errors import (
    ContextTooLong,
    CutSummary,
    EmptySummary,
    NoRoom,
    NotSmaller,
    UnusableSummary,
)
from .host import Model, ModelReply, ModelRequest
from .identifiers import closing_line, split_closing_line, without_imitation
from .prompt import Extras, Wording, system_text, user_text
from .reply import Cut, is_prose_of_length, read_reply
from .retention import Picks, fit_from_latest, read_picks, repeats_units
from .task import PreparedTask, SummaryResult, SummaryTask, prepare, room_for, run_key
from .templates import has_heading, holds_nothing
from .threads import in_thread

OnStep = Callable[[int, int], None]


async def summarize(
    work: SummaryTask | PreparedTask,
    model: Model,
    on_step: OnStep,
    cache: ChunkCache | None = None,
) -> SummaryResult:
    """Ask the model for the summary of a task, in as many requests as it takes.

    Args:
        work: the task, better prepared already.
        model: whom to ask.
        on_step: told before each chunk which it is and how many there will probably be.
        cache: finished chunks of failed runs; this run's are noted there too.

    Raises:
        SummaryFailed: any of its kinds; nothing may be stored then.
        SettingsError: the compress line leaves no room for a summary.
    """
    # Whatever grows with the history runs in a thread: the loop serves other sessions.
    prepared = await in_thread(prepare, work) if isinstance(work, SummaryTask) else work
    if prepared.asked_tokens == 0:
        limits = prepared.task.limits
        least = limits.head_tokens + 1 + prepared.kept_by_rule_tokens
        raise NotSmaller(before=limits.replaced_tokens, after=least)
    run = _Run(prepared, model)
    finished = _Finished(cache, prepared, model)
    progress = prepared.start
    if prepared.requests > 1:
        progress = await finished.resume(progress)
    while True:
        packed = await in_thread(run.next_request, progress)
        on_step(progress.steps + 1, run.expected_steps(progress))
        try:
            answer = await run.answer(packed)
        except ContextTooLong:
            dearer = await in_thread(run.fall_back, progress, packed)
            if dearer is None:
                raise
            progress = await finished.resume(dearer)
            continue
        progress = replace(
            packed.after,
            summary=answer.summary,
            sorts=False,
            carried=answer.kept,
            steps=progress.steps + 1,
        )
        if packed.is_last:
            return replace(await in_thread(run.result, progress), run_key=finished.key)
        await finished.note(progress)


class _Finished:
    """The finished chunks of this run and of failed ones like it.

    The key is made when it is first needed: a run of one request never does.
    """

    def __init__(self, cache: ChunkCache | None, prepared: PreparedTask, model: Model) -> None:
        self._cache = cache
        self._prepared = prepared
        self._info = model.info
        self.key = ""

    async def resume(self, progress: Progress) -> Progress:
        """Where an earlier run came to, if it came further than this one."""
        if self._cache is None:
            return progress
        earlier = self._cache.get(await self._make_key())
        return earlier if earlier is not None and earlier.steps > progress.steps else progress

    async def note(self, progress: Progress) -> None:
        """Note a finished chunk."""
        if self._cache is not None:
            self._cache.put(await self._make_key(), progress)

    async def _make_key(self) -> str:
        self.key = self.key or await in_thread(run_key, self._prepared, self._info)
        return self.key


@dataclass(frozen=True, slots=True)
class _Answer:
    """A usable reply: its summary, and the picks that fit."""

    summary: str
    kept: tuple[Pick, ...]


@dataclass(frozen=True, slots=True)
class _NoHeading:
    """A reply without any of the template's headings, and too short to pass as prose."""


class _Run:
    """One run's requests and what they have cost."""

    def __init__(self, prepared: PreparedTask, model: Model) -> None:
        self._prepared = prepared
        self._task = prepared.task
        self._budget = prepared.budget
        self._model = model
        self._cost = measured_cost(prepared.task.tokens_per_char)
        self._fell_back = False
        self._extras = Extras()
        self._room = 0
        self._requests = 0
        self._tokens: dict[str, int] = {}
        # What the reported input tokens were reported for.
        self._measured_chars = 0
        self._warnings: dict[str, Mapping[str, object]] = {}

    def next_request(self, progress: Progress) -> Packed:
        """What the next request holds, by what text has cost so far."""
        self._extras, self._room = room_for(self._task, self._budget, self._cost)
        return pack(self._prepared.candidates, progress, self._room, self._cost)

    def expected_steps(self, progress: Progress) -> int:
        """How many chunks there will be in all, as far as can be said."""
        if progress == self._prepared.start and not self._fell_back:
            return self._prepared.requests
        left = self._cost.of(progress.front) + sum(
            candidate.block.cost(self._cost)
            for candidate in self._prepared.candidates[progress.index :]
        )
        return progress.steps + max(1, -(-left // self._room))

    def fall_back(self, progress: Progress, refused: Packed) -> Progress | None:
        """Where to go on after a context-length error; None if nothing can be made smaller."""
        if self._fell_back:
            return None
        self._fell_back, self._cost = True, DEAREST
        physical = self._budget.physical_tokens * MILLI
        # A summary of this run obeyed its limit; one from elsewhere may only have seemed small.
        if progress.steps == 0 and self._cost.of(progress.summary) > physical:
            progress = replace(progress, summary="", front=progress.summary)
        try:
            packed = self.next_request(progress)
        except NoRoom:
            return None
        if (packed.earlier, packed.transcript) == (refused.earlier, refused.transcript):
            return None
        self._warn("warning.context_fallback", provider=self._model.info.provider_id)
        return progress

    async def answer(self, packed: Packed) -> _Answer:
        """Ask for one chunk until the reply is a summary, each kind of retry once.

        Raises:
            SummaryFailed: it is none, or the provider failed.
        """
        halved = demands = False
        while True:
            answer = self._read(await self._ask(packed, halved, demands), packed, demands)
            if isinstance(answer, Cut):
                if halved:
                    raise CutSummary(provider=self._model.info.provider_id)
                halved = True
            elif isinstance(answer, _NoHeading):
                if demands:
                    raise UnusableSummary(
                        provider=self._model.info.provider_id, detail="no headings"
                    )
                demands = True
            else:
                return answer

    def result(self, progress: Progress) -> SummaryResult:
        """The result after the last chunk, identifiers it left out appended."""
        task = self._task
        picked = frozenset(pick.index for pick in progress.carried)
        retained = picked | task.kept_by_rule
        kept_tokens = sum(task.units[index].tokens for index in retained)
        line = closing_line(
            units=task.units,
            kept=(*task.kept, *(task.units[index] for index in sorted(retained))),
            summary=progress.summary,
            earlier=split_closing_line(task.earlier or "")[1],
            language=task.language,
            room_tokens=self._budget.stated_tokens
            - task.count_text(progress.summary)
            - kept_tokens,
            count_text=task.count_text,
        )
        return SummaryResult(
            summary=f"{progress.summary}\n\n{line}" if line else progress.summary,
            retained=retained,
            requests=self._requests,
            input_tokens=self._tokens.get("input"),
            cached_tokens=self._tokens.get("cached"),
            output_tokens=self._tokens.get("output"),
            warnings=tuple(self._warnings.items()),
        )

    async def _ask(self, packed: Packed, halved: bool, demands: bool) -> ModelReply:
        budget, task, asked = self._budget, self._task, self._prepared.asked_tokens
        wording = Wording(
            template=task.template,
            language=task.language,
            stated_tokens=max(asked // 2, 1) if halved else asked,
            retain_cap_tokens=budget.retain_cap_tokens,
            merges=bool(packed.earlier),
            sorts=packed.sorts,
            offers=bool(packed.offered),
            demands=demands,
        )
        system = system_text(wording)
        user = user_text(wording, packed.earlier, packed.transcript, self._extras)
        limit = budget.request_tokens
        if halved:
            # The limit goes to the physical one, as far as the window holds it.
            spare = budget.window_tokens - -(-self._cost.of(system + user) // MILLI)
            limit = max(limit, min(budget.physical_tokens, spare))
        self._requests += 1
        reply = await self._model.ask(
            ModelRequest(
                system=system,
                user=user,
                max_tokens=limit,
                timeout_seconds=task.timeout_seconds,
                extra_body=dict(task.extra_body),
            )
        )
        self._note_usage(reply, len(system) + len(user))
        return reply

    def _read(
        self, reply: ModelReply, packed: Packed, demanded: bool
    ) -> _Answer | Cut | _NoHeading:
        provider_id, template = self._model.info.provider_id, self._task.template
        text = read_reply(reply, provider_id, template)
        if isinstance(text, Cut):
            return text
        picks = read_picks(text, packed.offered)
        summary = without_imitation(picks.summary)
        if holds_nothing(summary, template):
            raise EmptySummary(provider=provider_id)
        if repeats_units(summary):
            raise UnusableSummary(provider=provider_id, detail="the conversation again")
        tokens = self._task.count_text(summary)
        # As the next request's earlier summary it would take room that is not its own.
        if not packed.is_last and tokens > self._budget.physical_tokens:
            return Cut()
        if not has_heading(summary, template):
            if not demanded or not is_prose_of_length(tokens, self._prepared.asked_tokens):
                return _NoHeading()
            self._warn("warning.no_headings", provider=provider_id)
        return _Answer(summary, self._kept(picks, packed, tokens))

    def _kept(self, picks: Picks, packed: Packed, summary_tokens: int) -> tuple[Pick, ...]:
        if packed.offered and not picks.has_block:
            self._warn("warning.keep_missing", provider=self._model.info.provider_id)
        elif packed.offered and not picks.readable:
            self._warn("warning.keep_unreadable", provider=self._model.info.provider_id)
        chosen = [packed.offered[number] for number in sorted(picks.numbers)]
        left = self._budget.stated_tokens - summary_tokens - self._prepared.kept_by_rule_tokens
        return fit_from_latest(chosen, min(self._budget.retain_cap_tokens, left))

    def _note_usage(self, reply: ModelReply, sent_chars: int) -> None:
        for name, count in (
            ("input", reply.input_tokens),
            ("cached", reply.cached_tokens),
            ("output", reply.output_tokens),
        ):
            if count is not None:
                self._tokens[name] = self._tokens.get(name, 0) + count
        if reply.input_tokens is not None and not self._fell_back:
            self._measured_chars += sent_chars
            self._cost = measured_cost(self._tokens["input"] / self._measured_chars)

    def _warn(self, key: str, **fields: object) -> None:
        self._warnings.setdefault(key, fields)
