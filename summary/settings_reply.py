"""What is said about settings: those in force, those saved, and what was wrong with a word."""

from __future__ import annotations

import json
from collections.abc import Sequence

from .layers import INHERIT, LineSettings
from .settings import BY_NAME, SETTINGS, Change, Settings
from .texts import COMMAND, say
from .values import Kind, Problem, Setting
from .wording import one_line

_LONGEST_VALUE_CHARS = 80
# A text full of mistakes is not answered with a screen of them.
_MOST_LINES = 8
# Above this a bound is only there to keep numbers sane and nothing to tell people.
_LARGEST_TOLD_BOUND = 10_000


def config_reply(language: str, settings: Settings, lines: LineSettings) -> str:
    """Every setting in force in a session, by both names, and where it comes from."""
    rows = [say(language, "config.title")]
    for setting in SETTINGS:
        if setting.kind is Kind.LAYERS:
            continue
        value = getattr(lines if setting.layered else settings, setting.name)
        source = lines.sources[setting.name] if setting.layered else settings.source(setting.name)
        names = dict.fromkeys(filter(None, (setting.short, setting.name)))
        rows.append(
            say(
                language,
                "config.row",
                names=" · ".join(names),
                value=value_text(language, value),
                source=say(language, f"source.{source}"),
            )
        )
    return "\n".join(rows)


def set_reply(
    language: str, changes: Sequence[Change], *, here: bool = False, unsaved: str | None = None
) -> str:
    """What was persisted. `unsaved` is why the file could not be written, None if it was."""
    title = "set.done_here" if here else "set.done"
    if unsaved is not None:
        title = "set.unsaved"
    lines = [say(language, title, detail=one_line(unsaved or ""))]
    for change in changes:
        value = change.value
        if value is None:
            value = INHERIT if here else BY_NAME[change.name].default
        lines.append(f"- {change.name} = {value_text(language, value, layered=here)}")
    return "\n".join(lines)


def set_refused_reply(language: str, problems: Sequence[Problem], command: str = COMMAND) -> str:
    """Why nothing was persisted."""
    rows = [f"- {problem_text(language, problem, command)}" for problem in problems[:_MOST_LINES]]
    return "\n".join([say(language, "set.refused"), *rows])


def ignored_reply(language: str, errors: Sequence[str]) -> list[str]:
    """A line for each option of a run that was skipped."""
    return [say(language, "args.ignored", problem=error) for error in errors[:_MOST_LINES]]


def problem_text(language: str, problem: Problem, command: str = COMMAND) -> str:
    """One thing wrong with what was typed."""
    return say(
        language,
        problem.key,
        word=one_line(problem.word, _LONGEST_VALUE_CHARS),
        value=one_line(problem.value, _LONGEST_VALUE_CHARS),
        legal=legal_values(language, problem.setting),
        command=command,
    )


def legal_values(language: str, setting: Setting | None) -> str:
    """The values a setting takes; without a setting those of the word `line`."""
    if setting is None:
        return say(language, "legal.line")
    match setting.kind:
        case Kind.RATIO:
            return say(language, "legal.number", low=setting.low, high=setting.high)
        case Kind.WHOLE if setting.high < _LARGEST_TOLD_BOUND:
            return say(language, "legal.whole_to", low=setting.low, high=setting.high)
        case Kind.WHOLE:
            key = "legal.tokens" if setting.unit == "tokens" else "legal.whole"
            return say(language, key, low=setting.low)
        case Kind.SWITCH:
            return "on / off"
        case Kind.CHOICE:
            return " / ".join(setting.options)
        case Kind.JSON:
            return say(language, "legal.json")
        case _:
            is_provider = setting.name == "compress_provider_id"
            return say(language, "legal.provider" if is_provider else "legal.text")


def value_text(language: str, value: object, *, layered: bool = False) -> str:
    """A setting's value in one short line, as it could be typed."""
    if layered and value == INHERIT:
        return say(language, "value.inherit")
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, dict) and value:
        value = json.dumps(value, ensure_ascii=False)
    if isinstance(value, float):
        return f"{value:g}"
    if value is None or value == "" or value == {}:
        return say(language, "value.empty")
    return one_line(str(value), _LONGEST_VALUE_CHARS)
