"""What a person typed after `/compact`: options, focus, or settings to persist (spec 5).

Natural words, no flags. Invariant: any text parses. In `run` and `preview` what is no option
is focus, and no word is lost but options, their values and bad values, which are named; `set`
does all it was told or nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .layers import INHERIT, LineSettings, Source
from .settings import BY_NAME, LAYERED_NAMES, SETTINGS, Change, Settings
from .settings_reply import problem_text
from .values import Kind, Problem, RunUse, Setting, plain, read_number, read_word

SUBCOMMANDS = (
    "run",
    "preview",
    "status",
    "config",
    "set",
    "undo",
    "show",
    "history",
    "search",
    "forget",
    "help",
)
# One word for two settings: a share of the window or a number of tokens.
LINE = "line"
HERE = "here"
DEFAULT = "default"
_CONFIRMATIONS = frozenset({"yes", "confirm", "确认", "是"})

# A line of a few tokens would compact at every turn: `80` is more likely to be meant as 80 %.
_LEAST_LINE_TOKENS = 100

_QUOTES = {
    '"': '"',
    "'": "'",
    "“": "”",
    "‘": "’",
    "「": "」",
    "『": "』",
    "＂": "＂",
    "＇": "＇",
}

# Every word that can stand for a setting; `line` stands for two and is not among them.
_WORDS: Mapping[str, Setting] = {
    word: setting
    for setting in SETTINGS
    for word in (setting.short, setting.name)
    if word and word != LINE and setting.kind is not Kind.LAYERS
}
_UNSET = Settings()
_RUN_WORDS = frozenset(
    {word for word, setting in _WORDS.items() if setting.run is not RunUse.NONE} | {LINE}
)


@dataclass(frozen=True, slots=True)
class Word:
    """One word as typed, without the quotes it stood in. Quoted words name no option."""

    text: str
    quoted: bool = False


@dataclass(frozen=True, slots=True)
class ParseResult:
    """Options by long name, the focus, and what was wrong, worded.

    `problems` are the values behind `errors`.
    """

    overrides: dict[str, Any]
    focus: str
    errors: list[str]
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class CompactArgs:
    """All a run or a preview is told: its options over the session's over the general settings.

    `focus` is this run's free text; `default_focus` the run's option or the setting.
    `provider_id` is the run's provider, `config_provider_id` the setting's. `given` holds the
    long names that were options of this run.
    """

    focus: str = ""
    keep_recent_ratio: float = _UNSET.keep_recent_ratio
    provider_id: str = ""
    min_messages: int = _UNSET.min_messages
    show_summary: bool = _UNSET.show_summary
    summary_max_chars: int = _UNSET.summary_max_chars
    default_focus: str = _UNSET.default_focus
    config_provider_id: str = _UNSET.compress_provider_id
    instruction_text: str = _UNSET.instruction_text
    auto_compact: bool = _UNSET.auto_compact
    compress_at: float = _UNSET.compress_at
    compress_tokens: int = _UNSET.compress_tokens
    history_limit: int = _UNSET.history_limit
    summary_budget_ratio: float = _UNSET.summary_budget_ratio
    engine: str = _UNSET.engine
    template: str = _UNSET.template
    language: str = _UNSET.language
    notify: str = _UNSET.notify
    recall_tool: bool = _UNSET.recall_tool
    summary_timeout: int = _UNSET.summary_timeout
    summary_extra_body: Mapping[str, Any] = field(default_factory=dict)
    sources: Mapping[str, Source] = field(default_factory=dict)
    given: frozenset[str] = frozenset()
    errors: tuple[str, ...] = ()

    @property
    def effective_focus(self) -> str:
        """What the summary shall stress: this run's words, else the default focus."""
        return self.focus or self.default_focus

    @property
    def has_request(self) -> bool:
        """Whether the run was told anything at all."""
        return bool(self.given or self.focus)


@dataclass(frozen=True, slots=True)
class SetRequest:
    """What `/compact set` shall persist; `here` is whether for this session alone."""

    changes: tuple[Change, ...]
    here: bool = False


@dataclass(frozen=True, slots=True)
class SetRefused:
    """Why `/compact set` persists nothing."""

    problems: tuple[Problem, ...]


def known_override_keys() -> frozenset[str]:
    """Every word that is an option of a run, short and long names alike."""
    return _RUN_WORDS


def split_subcommand(text: str) -> tuple[str, str]:
    """The sub-command a text begins with and the rest; `run` and all of it if there is none."""
    words = text.split(maxsplit=1)
    if not words or words[0] not in SUBCOMMANDS:
        return "run", text.strip()
    return words[0], words[1].strip() if len(words) > 1 else ""


def parse_compact_overrides(body: str, language: str = "zh") -> ParseResult:
    """Options and focus of `run` and `preview`; never raises.

    Args:
        body: the text after the sub-command.
        language: what `errors` are worded in.

    """
    words = split_words(body)
    overrides: dict[str, Any] = {}
    focus: list[str] = []
    problems: list[Problem] = []
    index = 0
    while index < len(words):
        word = words[index]
        name = _option_name(word, _RUN_WORDS)
        value = words[index + 1] if index + 1 < len(words) else None
        index += 1
        if name is None:
            focus.append(word.text)
            continue
        changes = _read_option(name, value.text) if value is not None else None
        if changes is not None:
            overrides.update(changes)
            index += 1
        elif name == LINE or _WORDS[name].run is RunUse.WORD:
            focus.append(word.text)
        elif value is None or _option_name(value, _RUN_WORDS) is not None:
            problems.append(Problem("args.missing", word.text, setting=_WORDS[name]))
        else:
            problems.append(Problem("args.bad", word.text, value.text, _WORDS[name]))
            index += 1
    errors = [problem_text(language, problem) for problem in problems]
    return ParseResult(overrides, " ".join(filter(None, focus)), errors, tuple(problems))


def build_compact_args(
    result: ParseResult, settings: Settings, lines: LineSettings | None = None
) -> CompactArgs:
    """A run's arguments: its options over the session's layers over the settings.

    Args:
        result: the parsed options.
        settings: the settings in force everywhere.
        lines: the layered settings of the session; without it those in force everywhere.

    """
    lines = settings.lines("") if lines is None else lines
    values: dict[str, Any] = {
        name: getattr(settings, name)
        for name in BY_NAME
        if name in CompactArgs.__dataclass_fields__
    }
    values |= {name: getattr(lines, name) for name in LAYERED_NAMES}
    values |= {name: v for name, v in result.overrides.items() if name != "compress_provider_id"}
    given = frozenset(result.overrides)
    return CompactArgs(
        **values,
        focus=result.focus,
        provider_id=result.overrides.get("compress_provider_id", ""),
        config_provider_id=settings.compress_provider_id,
        sources={**lines.sources, **dict.fromkeys(given, Source.RUN)},
        given=given,
        errors=tuple(result.errors),
    )


def parse_compact_args(
    text: str, settings: Settings | None = None, language: str = "zh"
) -> CompactArgs:
    """A run's arguments from all that follows the command's name, sub-command included or not."""
    subcommand, body = split_subcommand(text)
    if subcommand not in {"run", "preview"}:
        body = text
    return build_compact_args(parse_compact_overrides(body, language), settings or Settings())


def parse_set(body: str) -> SetRequest | SetRefused:
    """What `/compact set` shall persist: pairs of a name and a value, then perhaps `here`."""
    words = split_words(body)
    here = len(words) > 1 and _is_here(words)
    pairs = words[:-1] if here else words
    if not pairs:
        return SetRefused((Problem("set.empty"),))
    changes: list[Change] = []
    problems: list[Problem] = []
    for index in range(0, len(pairs), 2):
        word = pairs[index]
        name = _option_name(word, _WORDS.keys() | {LINE})
        if name is None:
            # From here on names and values cannot be told apart.
            known = word.text.lower() == "session_overrides"
            problems.append(Problem("set.overrides" if known else "set.unknown", word.text))
            break
        setting = BY_NAME["compress_at"] if name == LINE else _WORDS[name]
        shown = None if name == LINE else setting
        if index + 1 == len(pairs):
            problems.append(Problem("args.missing", word.text, setting=shown))
            break
        if here and not setting.layered:
            problems.append(Problem("set.not_here", word.text))
            continue
        value = pairs[index + 1]
        read = _read_set_value(name, value, here)
        if read is None:
            problems.append(Problem("args.bad", word.text, value.text, shown))
            continue
        changes += (Change(*item) for item in read.items())
    return SetRefused(tuple(problems)) if problems else SetRequest(tuple(changes), here)


def is_confirmation(body: str) -> bool:
    """Whether the text after `/compact forget` confirms it."""
    return plain(body) in _CONFIRMATIONS


def parse_number(body: str) -> int | None:
    """The record's number after `/compact show`, with or without `#`; None if it is none."""
    number = read_number(plain(body).removeprefix("#"))
    return int(number) if number is not None and number == int(number) > 0 else None


def split_words(text: str) -> tuple[Word, ...]:
    """The words of a text. A quote opens one only at its start and closes it only at its end."""
    words: list[Word] = []
    position = 0
    # Where each closing quote comes next: no text is searched twice for the same one.
    ends: dict[str, int] = {}
    while position < len(text):
        if text[position].isspace():
            position += 1
            continue
        end = -1
        if (closer := _QUOTES.get(text[position])) is not None:
            end = ends.get(closer, 0)
            if 0 <= end <= position:
                end = ends[closer] = text.find(closer, position + 1)
        if end >= 0 and (end + 1 == len(text) or text[end + 1].isspace()):
            words.append(Word(text[position + 1 : end], quoted=True))
            position = end + 1
            continue
        start = position
        while position < len(text) and not text[position].isspace():
            position += 1
        words.append(Word(text[start:position]))
    return tuple(words)


def _option_name(word: Word, known: frozenset[str] | set[str]) -> str | None:
    name = plain(word.text)
    return name if not word.quoted and name in known else None


def _read_option(name: str, word: str) -> dict[str, Any] | None:
    """What an option sets, by long name; None if the value is not legal."""
    if name == LINE:
        return _read_line(word)
    setting = _WORDS[name]
    value = read_word(setting, word)
    return None if value is None else {setting.name: value}


def _read_line(word: str) -> dict[str, Any] | None:
    """`0.6` is a share of the window and clears the tokens, `60k` are tokens, `0` clears both."""
    number = read_number(word, "ratio")
    if number is not None and 0 <= number <= 1:
        return {"compress_at": float(number), "compress_tokens": 0}
    tokens = read_word(BY_NAME["compress_tokens"], word)
    if tokens is None or tokens < _LEAST_LINE_TOKENS:
        return None
    return {"compress_tokens": tokens}


def _read_set_value(name: str, value: Word, here: bool) -> dict[str, Any] | None:
    """Values to persist by long name, None for "as by default"; None at all if not legal."""
    back = not value.quoted and plain(value.text) == DEFAULT
    if back or (here and read_number(value.text) == INHERIT):
        names = ("compress_at", "compress_tokens") if name == LINE else (_WORDS[name].name,)
        return dict.fromkeys(names)
    return _read_option(name, value.text)


def _is_here(words: Sequence[Word]) -> bool:
    # After an even number of words `here` cannot be the value of the name before it.
    return len(words) % 2 == 1 and not words[-1].quoted and plain(words[-1].text) == HERE
