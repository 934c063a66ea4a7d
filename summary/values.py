"""One setting's value: read from a person's word, or mended from whatever a config file holds.

Invariant: neither reader raises, whatever it is given. A word is read strictly (a person can
be told); a stored value is mended where its meaning is plain and is otherwise no value at all.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from typing import Any


class Kind(Enum):
    """What a setting's value is."""

    RATIO = "ratio"
    WHOLE = "whole"
    SWITCH = "switch"
    CHOICE = "choice"
    TEXT = "text"
    JSON = "json"
    LAYERS = "layers"


class RunUse(Enum):
    """What a setting's name is in `/compact run` (spec 5)."""

    NONE = "none"  # an ordinary word
    NAMED = "named"  # an option; a bad value is named in the reply
    WORD = "word"  # an option before a legal value, else an ordinary word


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table: a setting's names, its values and how the panel shows it.

    `low` and `high` bound numbers, both included. `unit` is what a number may be written in:
    `tokens` take k, m and 万, `seconds` take s and 秒. `clamps` moves a person's number into the
    bounds without a word. `layered` settings can differ by platform and session.
    """

    name: str
    kind: Kind
    default: Any
    short: str = ""
    low: float = 0
    high: float = 0
    options: tuple[str, ...] = ()
    unit: str = ""
    run: RunUse = RunUse.NONE
    clamps: bool = False
    layered: bool = False
    panel: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with something typed: a sentence's key, the word, its value, its setting."""

    key: str
    word: str = ""
    value: str = ""
    setting: Setting | None = None


ON_WORDS = frozenset({"on", "true", "yes", "1"})
OFF_WORDS = frozenset({"off", "false", "no", "0"})

_INVISIBLE = dict.fromkeys(map(ord, "\u200b\u200c\u200d\u2060\ufeff"))
# Longer words are no numbers; it also keeps the arithmetic below small.
_LONGEST_NUMBER_CHARS = 32
_NUMBER = re.compile(
    r"(?P<figure>[+-]?(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d*)?) ?(?P<suffix>%|k|m|万|s|秒)?", re.ASCII
)
_FACTORS = {
    "ratio": {"%": Decimal("0.01")},
    "tokens": {"k": Decimal(1000), "m": Decimal(1_000_000), "万": Decimal(10_000)},
    "seconds": {"s": Decimal(1), "秒": Decimal(1)},
}


def plain(word: str) -> str:
    """A word for comparing: half-width, lower case, nothing invisible in it."""
    return unicodedata.normalize("NFKC", word).translate(_INVISIBLE).casefold().strip()


def read_number(word: str, unit: str = "") -> Decimal | None:
    """The number a word stands for, in its unit's base; None if it is none."""
    text = plain(word[: _LONGEST_NUMBER_CHARS + 1])
    match = _NUMBER.fullmatch(text)
    if match is None or len(word) > _LONGEST_NUMBER_CHARS:
        return None
    figure = match["figure"].replace(",", "")
    if not any(character.isdigit() for character in figure):
        return None
    if match["suffix"] is None:
        return Decimal(figure)
    factor = _FACTORS.get(unit, {}).get(match["suffix"])
    return None if factor is None else Decimal(figure) * factor


def read_switch(word: str) -> bool | None:
    """On or off, in any of the words for it."""
    text = plain(word)
    if text in ON_WORDS:
        return True
    return False if text in OFF_WORDS else None


def read_word(setting: Setting, word: str) -> Any | None:
    """The value a person's word means for a setting; None if it is no legal one.

    A JSON value stays the text it is: that is what the config file stores.
    """
    match setting.kind:
        case Kind.RATIO | Kind.WHOLE:
            return _read_bounded(setting, word)
        case Kind.SWITCH:
            return read_switch(word)
        case Kind.CHOICE:
            return plain(word) if plain(word) in setting.options else None
        case Kind.TEXT:
            return word
        case Kind.JSON:
            return word if read_json_object(word) is not None else None
        case Kind.LAYERS:
            return None


def mend(setting: Setting, raw: object) -> Any | None:
    """The usable value in what a config file holds; None if there is none.

    Numbers over their bound become the bound. A whole number below its bound says nothing: an
    emptied number box of the panel sends 0.
    """
    match setting.kind:
        case Kind.RATIO | Kind.WHOLE:
            return _mend_number(setting, raw)
        case Kind.SWITCH:
            return _mend_switch(raw)
        case Kind.CHOICE:
            return read_word(setting, raw) if isinstance(raw, str) else None
        case Kind.TEXT:
            if isinstance(raw, int | float) and not isinstance(raw, bool):
                return _number_text(raw)
            return raw if isinstance(raw, str) else None
        case Kind.JSON:
            if isinstance(raw, Mapping):
                return dict(raw)
            return read_json_object(raw) if isinstance(raw, str) else None
        case Kind.LAYERS:
            return None


def read_json_object(text: str) -> dict[str, Any] | None:
    """The object a JSON text holds; an empty text is an empty object, anything else None."""
    if not text.strip():
        return {}
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def is_as_written(setting: Setting, value: object, raw: object) -> bool:
    """Whether a mended value is just what was stored, so that nothing needs saying."""
    match setting.kind:
        case Kind.RATIO:
            return raw == value  # 0 is as good as 0.0
        case Kind.JSON:
            return isinstance(raw, str)
        case _:
            return type(raw) is type(value) and raw == value


def _read_bounded(setting: Setting, word: str) -> float | int | None:
    number = read_number(word, "ratio" if setting.kind is Kind.RATIO else setting.unit)
    if number is None:
        return None
    if setting.clamps:
        number = min(max(number, Decimal(str(setting.low))), Decimal(str(setting.high)))
    if not Decimal(str(setting.low)) <= number <= Decimal(str(setting.high)):
        return None
    if setting.kind is Kind.RATIO:
        return float(number)
    return int(number) if number == number.to_integral_value() else None


def _mend_number(setting: Setting, raw: object) -> float | int | None:
    number: Decimal | int | float | None = None
    if isinstance(raw, str):
        number = read_number(raw, "ratio" if setting.kind is Kind.RATIO else setting.unit)
    elif isinstance(raw, int | float) and not isinstance(raw, bool):
        number = raw if raw == raw and abs(raw) != math.inf else None
    if number is None:
        return None
    # Bounds come before the conversion: the largest ints fit no float.
    if setting.kind is Kind.RATIO:
        return float(min(max(number, setting.low), setting.high))
    whole = int(min(number, setting.high))
    return whole if whole >= setting.low else None


def _mend_switch(raw: object) -> bool | None:
    if isinstance(raw, bool):
        return raw
    if isinstance(raw, int | float) and raw in (0, 1):
        return bool(raw)
    return read_switch(raw) if isinstance(raw, str) else None


def _number_text(number: int | float) -> str | None:
    try:
        return str(number)
    except ValueError:  # an int too long to be written out
        return None


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON")
