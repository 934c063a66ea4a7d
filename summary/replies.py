"""Whole replies, built from plain values (spec 5).

Pure: a caller fills in what it knows and sends the text; every number shown is one it gave.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from .chain import ProviderChoice, SkippedLevel, provider_id_of
from .errors import CompactError
from .plan import Skip
from .texts import COMMAND, say
from .wording import cut, one_line, percent_saved

_SEPARATOR = " · "
# Others are the model's own affair: the log has them all.
_SHOWN_WARNINGS = frozenset({"warning.no_headings", "warning.context_fallback"})


@dataclass(frozen=True, slots=True)
class DoneFacts:
    """A compaction that was done. Messages are shown counts; `template` None: none was used."""

    before_messages: int
    after_messages: int
    before_tokens: int
    after_tokens: int
    provider: str
    template: str | None
    kept_messages: int
    requests: int
    number: int
    summary: str | None = None
    max_chars: int = 800
    warnings: tuple[tuple[str, Mapping[str, object]], ...] = ()


@dataclass(frozen=True, slots=True)
class KeptPart:
    """Messages that stay and why: `system`, `recent`, `open` or `request`."""

    reason: str
    messages: int
    tokens: int


@dataclass(frozen=True, slots=True)
class PreviewFacts:
    """What a run would do.

    `kept` says which messages the kept ones are, `keep_ratio` the setting that kept the recent
    ones. With the builtin engine `template`, `after_tokens` and the budgets are None.
    """

    before_messages: int
    kept_messages: int
    archived_messages: int
    before_tokens: int
    after_tokens: int | None
    template: str | None
    budget_tokens: int | None
    retain_tokens: int | None
    requests: int
    trimmed_messages: int = 0
    focus: str = ""
    kept: tuple[KeptPart, ...] = ()
    keep_ratio: float = 0.0
    has_earlier: bool = False


@dataclass(frozen=True, slots=True)
class Compacted:
    """A compaction as status and history show it."""

    number: int
    trigger: str
    before_messages: int
    after_messages: int
    before_tokens: int
    after_tokens: int
    when: datetime
    undone: bool = False


def start_reply(language: str, requests: int) -> str:
    """The line before the first model call."""
    return say(language, "start.requests" if requests > 1 else "start", requests=requests)


def done_reply(language: str, facts: DoneFacts, command: str = COMMAND) -> str:
    """The block after a compaction."""
    details = [
        say(
            language,
            "done.tokens",
            before=facts.before_tokens,
            after=facts.after_tokens,
            percent=percent_saved(facts.before_tokens, facts.after_tokens),
        ),
        say(language, f"template.{facts.template}") if facts.template else "",
        say(language, "done.kept", kept=facts.kept_messages),
        say(language, "done.requests", requests=facts.requests),
        f"#{facts.number}",
    ]
    lines = [
        say(
            language,
            "done",
            before=facts.before_messages,
            after=facts.after_messages,
            provider=one_line(facts.provider),
        ),
        _SEPARATOR.join(filter(None, details)),
    ]
    lines += [
        f"⚠️ {say(language, key, **fields)}"
        for key, fields in facts.warnings
        if key in _SHOWN_WARNINGS
    ]
    if facts.summary is not None:
        lines += [say(language, "done.summary"), cut(facts.summary.strip(), facts.max_chars)]
    lines.append(say(language, "done.undo", command=command))
    return "\n".join(lines)


def notice(language: str, facts: DoneFacts) -> str:
    """The one line in the chat after an automatic compaction."""
    return say(
        language,
        "notice",
        before=facts.before_messages,
        after=facts.after_messages,
        before_tokens=facts.before_tokens,
        after_tokens=facts.after_tokens,
    )


def skip_reply(language: str, skip: Skip, command: str = COMMAND) -> str:
    """Why there is nothing to do, with the numbers."""
    return say(
        language,
        f"skip.{skip.reason.value}",
        messages=skip.messages,
        min_messages=skip.min_messages,
        tokens=skip.tokens,
        command=command,
    )


def error_reply(language: str, error: CompactError, command: str = COMMAND) -> str:
    """Why a compaction was not done. Words of a provider are shortened to one line."""
    fields = {
        name: one_line(value) if isinstance(value, str) else value
        for name, value in error.fields.items()
    }
    return say(language, error.key, **{"command": command, **fields}).rstrip(" :：")


def skipped_lines(language: str, choice: ProviderChoice) -> list[str]:
    """A line for each level of the provider chain that was skipped; the last says what came."""
    lines = [_skipped(language, level) for level in choice.skipped]
    if lines and choice.provider is not None:
        used = one_line(provider_id_of(choice.provider))
        lines[-1] += say(language, "provider.instead", provider=used)
    elif lines:
        lines[-1] += say(language, "provider.none_left")
    return lines


def provider_line(language: str, choice: ProviderChoice) -> str:
    """The model that would be used, and the level that names it."""
    if choice.provider is None:
        return say(language, "provider.none")
    used = one_line(provider_id_of(choice.provider))
    level = say(language, f"level.{choice.level}")
    return say(language, "provider.chosen", provider=used, level=level)


def engine_line(language: str, template: str | None) -> str:
    """The template, or that the builtin engine has none."""
    return say(language, f"template.{template}" if template else "engine.builtin")


def preview_reply(language: str, facts: PreviewFacts, choice: ProviderChoice) -> str:
    """The plan of a run."""
    lines = [
        say(language, "preview.title"),
        say(
            language,
            "preview.messages",
            before=facts.before_messages,
            archived=facts.archived_messages,
            kept=facts.kept_messages,
        ),
    ]
    if facts.kept:
        parts = [
            say(
                language,
                f"kept.{part.reason}",
                messages=part.messages,
                tokens=part.tokens,
                ratio=facts.keep_ratio,
            )
            for part in facts.kept
        ]
        lines.append(say(language, "preview.kept", parts=_SEPARATOR.join(parts)))
    if facts.has_earlier:
        lines.append(say(language, "preview.earlier"))
    if facts.trimmed_messages:
        lines.append(say(language, "preview.trimmed", trimmed=facts.trimmed_messages))
    key = "preview.tokens_now" if facts.after_tokens is None else "preview.tokens"
    lines.append(say(language, key, before=facts.before_tokens, after=facts.after_tokens))
    lines.append(engine_line(language, facts.template))
    if facts.budget_tokens is not None:
        budget, retain = facts.budget_tokens, facts.retain_tokens
        requests = facts.requests
        lines.append(
            say(language, "preview.budget", budget=budget, retain=retain, requests=requests)
        )
    lines.append(provider_line(language, choice))
    if facts.focus:
        lines.append(say(language, "preview.focus", focus=one_line(facts.focus)))
    return "\n".join([*lines, *skipped_lines(language, choice)])


def _skipped(language: str, skipped: SkippedLevel) -> str:
    return say(
        language,
        "provider.skipped" if skipped.provider_id else "provider.skipped_unnamed",
        provider=one_line(skipped.provider_id),
        level=say(language, f"level.{skipped.level}"),
        why=say(language, f"provider.{skipped.reason}"),
    )
