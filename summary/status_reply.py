"""The state of a session, as `/compact status` says it.

Pure: the caller fills in what it knows; what it does not know is None and said to be unknown.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from .archive_reply import compacted_text
from .chain import ProviderChoice
from .errors import CompactError, LargeMessage
from .layers import LineSettings, Source
from .replies import Compacted, engine_line, error_reply, provider_line, skipped_lines
from .texts import COMMAND, say
from .wording import bar, byte_size, one_line


@dataclass(frozen=True, slots=True)
class StatusFacts:
    """The state of a session; what is not known is None.

    `line_rule` is `ratio`, `tokens` or `host`, `count_rule` `setting` or `host`. `by_usage` is
    false if usage starts no compaction.
    """

    messages: int
    tokens: int
    dialog_messages: int
    lines: LineSettings
    usage_tokens: int | None = None
    usage_estimated: bool = False
    window_tokens: int | None = None
    line_tokens: int | None = None
    line_rule: str = "host"
    by_usage: bool = True
    count_line: int | None = None
    count_rule: str = "setting"
    auto_compact: bool = True
    running: bool = False
    template: str | None = None
    last: Compacted | None = None
    failures: int = 0
    turns_to_wait: int = 0
    failure: CompactError | None = None
    trimmed_messages: int = 0
    archived_compactions: int = 0
    archived_messages: int = 0
    archive_bytes: int = 0
    archive_problem: str = ""


def status_reply(
    language: str,
    facts: StatusFacts,
    choice: ProviderChoice,
    now: datetime,
    command: str = COMMAND,
) -> str:
    """The state of a session."""
    lines = [
        say(language, "status.title"),
        say(language, "status.running") if facts.running else "",
        say(language, "status.messages", messages=facts.messages, tokens=facts.tokens),
        _usage_line(language, facts),
        _window_line(language, facts),
        _token_line(language, facts, command),
        _count_line(language, facts),
        say(language, "status.auto_on" if facts.auto_compact else "status.auto_off"),
    ]
    lines.append(_wait_line(language, facts, command))
    lines.append(engine_line(language, facts.template))
    lines.append(provider_line(language, choice))
    lines += skipped_lines(language, choice)
    lines += _last_lines(language, facts.last, now)
    if facts.trimmed_messages:
        lines.append(say(language, "status.trimmed", trimmed=facts.trimmed_messages))
    lines.append(_archive_line(language, facts))
    return "\n".join(filter(None, lines))


def _wait_line(language: str, facts: StatusFacts, command: str) -> str:
    """What automatic runs wait for, if they do."""
    turns = facts.turns_to_wait
    if facts.failures and facts.failure:
        # One that is put off on purpose did not fail.
        key = "put_off" if facts.failure.key == LargeMessage.key else "backoff"
        detail = error_reply(language, facts.failure, command).removeprefix("❌ ")
        return say(
            language, f"status.{key}", failures=facts.failures, turns=turns, detail=detail
        )  # fmt: skip
    undone = facts.auto_compact and turns
    return say(language, "status.undone", turns=turns) if undone else ""


def _usage_line(language: str, facts: StatusFacts) -> str:
    usage, line = facts.usage_tokens, facts.line_tokens
    if usage is None:
        return ""
    if not line:
        return say(language, "status.usage_no_line", usage=usage)
    percent = usage * 100 // line
    key = "status.usage_estimated" if facts.usage_estimated else "status.usage"
    return say(language, key, bar=bar(percent), percent=percent, usage=usage, line=line)


def _window_line(language: str, facts: StatusFacts) -> str:
    if facts.window_tokens is None:
        return say(language, "status.window_unknown")
    return say(language, "status.window", window=facts.window_tokens)


def _token_line(language: str, facts: StatusFacts, command: str) -> str:
    if not facts.by_usage:
        return say(language, "status.line_off")
    if facts.line_tokens is None:
        return say(language, "status.line_unknown", command=command)
    sources = facts.lines.sources
    if facts.line_rule == "ratio":
        share = f"{facts.lines.compress_at * 100:g}%"
        rule = say(
            language, "rule.ratio", share=share, source=_source(language, sources["compress_at"])
        )
    elif facts.line_rule == "tokens":
        rule = say(language, "rule.setting", source=_source(language, sources["compress_tokens"]))
    else:
        rule = say(language, "rule.host")
    return say(language, "status.line", line=facts.line_tokens, rule=rule)


def _count_line(language: str, facts: StatusFacts) -> str:
    if facts.count_line is None:
        return say(language, "status.count_off")
    if facts.count_rule == "host":
        rule = say(language, "rule.host")
    else:
        source = _source(language, facts.lines.sources["history_limit"])
        rule = say(language, "rule.setting", source=source)
    return say(
        language, "status.count", messages=facts.dialog_messages, line=facts.count_line, rule=rule
    )


def _last_lines(language: str, last: Compacted | None, now: datetime) -> list[str]:
    if last is None:
        return [say(language, "status.last_none")]
    seconds = int((now - last.when).total_seconds())
    lines = [compacted_text(language, "status.last", last, ago=_ago(language, seconds))]
    if last.undone:
        lines.append(say(language, "status.last_undone", number=str(last.number)))
    return lines


def _archive_line(language: str, facts: StatusFacts) -> str:
    if facts.archive_problem:
        detail = one_line(facts.archive_problem)
        return say(language, "status.archive_broken", detail=detail)
    return say(
        language,
        "status.archive",
        compactions=facts.archived_compactions,
        messages=facts.archived_messages,
        size=byte_size(facts.archive_bytes),
    )


def _source(language: str, source: Source) -> str:
    return say(language, f"source.{source}")


def _ago(language: str, seconds: int) -> str:
    for unit, length in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= length:
            return say(language, f"ago.{unit}", n=seconds // length)
    return say(language, "ago.seconds")
