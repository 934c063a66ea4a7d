"""Every setting, in one table; what the owner wrote becomes one frozen value, once.

The table drives the panel's schema, the words of the commands, `/compact config` and the
tables of the READMEs; a test compares them. Invariant: `Settings.parse` gives usable settings
for any mapping, with one warning for each key whose value it could not take as it was.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .layers import (
    Layer,
    LineSettings,
    Source,
    layered,
    parse_layers,
    write_session_row,
)
from .values import Kind, RunUse, Setting, is_as_written, mend

MOST_MESSAGES = 1_000_000
MOST_TOKENS = 1_000_000_000

SETTINGS: tuple[Setting, ...] = (
    Setting(
        "compress_provider_id",
        Kind.TEXT,
        "",
        short="provider",
        run=RunUse.NAMED,
        panel={"_special": "select_provider"},
    ),
    Setting(
        "keep_recent_ratio",
        Kind.RATIO,
        0.15,
        short="keep",
        high=0.3,
        run=RunUse.NAMED,
        clamps=True,
        panel={"slider": {"min": 0, "max": 0.3, "step": 0.01}},
    ),
    Setting("instruction_text", Kind.TEXT, "", panel={"type": "text"}),
    Setting(
        "min_messages", Kind.WHOLE, 4, short="min", low=1, high=MOST_MESSAGES, run=RunUse.NAMED
    ),
    Setting("show_summary", Kind.SWITCH, True, short="summary", run=RunUse.NAMED),
    Setting(
        "summary_max_chars",
        Kind.WHOLE,
        800,
        short="chars",
        low=1,
        high=MOST_MESSAGES,
        run=RunUse.NAMED,
    ),
    Setting("default_focus", Kind.TEXT, "", short="focus", run=RunUse.NAMED),
    Setting("auto_compact", Kind.SWITCH, True, short="auto", run=RunUse.WORD),
    Setting(
        "compress_at",
        Kind.RATIO,
        0.8,
        short="line",
        high=1,
        run=RunUse.WORD,
        layered=True,
        panel={"slider": {"min": 0, "max": 1, "step": 0.01}},
    ),
    Setting(
        "compress_tokens",
        Kind.WHOLE,
        0,
        short="line",
        high=MOST_TOKENS,
        unit="tokens",
        run=RunUse.WORD,
        layered=True,
    ),
    Setting(
        "history_limit",
        Kind.WHOLE,
        0,
        short="limit",
        high=MOST_MESSAGES,
        run=RunUse.WORD,
        layered=True,
    ),
    Setting(
        "summary_budget_ratio",
        Kind.RATIO,
        0.1,
        short="budget",
        high=0.5,
        run=RunUse.WORD,
        panel={"slider": {"min": 0, "max": 0.5, "step": 0.01}},
    ),
    Setting(
        "engine",
        Kind.CHOICE,
        "structured",
        short="engine",
        options=("structured", "builtin"),
        run=RunUse.WORD,
    ),
    Setting(
        "template",
        Kind.CHOICE,
        "auto",
        short="template",
        options=("auto", "chat", "work"),
        run=RunUse.WORD,
    ),
    Setting(
        "language",
        Kind.CHOICE,
        "auto",
        short="language",
        options=("auto", "zh", "en"),
        run=RunUse.WORD,
    ),
    Setting(
        "notify",
        Kind.CHOICE,
        "private",
        short="notify",
        options=("off", "private", "all"),
        run=RunUse.WORD,
    ),
    Setting("recall_tool", Kind.SWITCH, True, short="recall", run=RunUse.WORD),
    Setting("group_members", Kind.SWITCH, False),
    Setting("max_parallel", Kind.WHOLE, 2, low=1, high=64),
    Setting(
        "summary_timeout",
        Kind.WHOLE,
        180,
        short="timeout",
        low=1,
        high=3600,
        unit="seconds",
        run=RunUse.WORD,
    ),
    Setting("summary_extra_body", Kind.JSON, "", panel={"type": "text"}),
    Setting("archive_days", Kind.WHOLE, 0, high=36_500),
    Setting("session_overrides", Kind.LAYERS, ()),
)

BY_NAME: Mapping[str, Setting] = {setting.name: setting for setting in SETTINGS}
LAYERED: tuple[Setting, ...] = tuple(setting for setting in SETTINGS if setting.layered)
LAYERED_NAMES: tuple[str, ...] = tuple(setting.name for setting in LAYERED)

# As much of a strange value as a log line should carry.
_show = reprlib.Repr()
_show.maxstring = _show.maxother = _show.maxlong = 80


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings in force everywhere. Names and meaning: spec 6 and the panel's hints."""

    compress_provider_id: str = ""
    keep_recent_ratio: float = 0.15
    instruction_text: str = ""
    min_messages: int = 4
    show_summary: bool = True
    summary_max_chars: int = 800
    default_focus: str = ""
    auto_compact: bool = True
    compress_at: float = 0.8
    compress_tokens: int = 0
    history_limit: int = 0
    summary_budget_ratio: float = 0.1
    engine: str = "structured"
    template: str = "auto"
    language: str = "auto"
    notify: str = "private"
    recall_tool: bool = True
    group_members: bool = False
    max_parallel: int = 2
    summary_timeout: int = 180
    summary_extra_body: Mapping[str, Any] = field(default_factory=dict)
    archive_days: int = 0
    session_overrides: tuple[Layer, ...] = ()

    @classmethod
    def parse(cls, raw: Mapping[str, Any], warn: Callable[[str], None]) -> Settings:
        """The settings a config mapping holds; what cannot be used is mended or defaulted.

        Args:
            raw: the mapping; unknown keys are left alone, missing ones take their default.
            warn: told once of each key whose value was not taken as it was.

        """

        def tell(key: str, value: object, outcome: str) -> None:
            warn(f"setting {key}: {_shown(value)} {outcome}")

        values: dict[str, Any] = {}
        for setting in SETTINGS:
            if setting.name not in raw:
                continue
            given = raw[setting.name]
            if setting.kind is Kind.LAYERS:
                values[setting.name] = parse_layers(given, LAYERED, tell)
                continue
            value = mend(setting, given)
            if value is None:
                tell(setting.name, given, f"is no usable value, {setting.default!r} is used")
                continue
            if not is_as_written(setting, value, given):
                tell(setting.name, given, f"is read as {_shown(value)}")
            values[setting.name] = value
        return cls(**values)

    def source(self, name: str) -> Source:
        """Whether a value is the default or the owner's; the file itself holds both alike."""
        return Source.DEFAULT if getattr(self, name) == _DEFAULTS[name] else Source.CONFIG

    def lines(
        self, umo: str, *, is_group: bool | None = None, platform: str | None = None
    ) -> LineSettings:
        """The layered settings in force in a session, and where each comes from (spec 3.6)."""
        everywhere = LineSettings(
            self.compress_at,
            self.compress_tokens,
            self.history_limit,
            {name: self.source(name) for name in LAYERED_NAMES},
        )
        return layered(
            everywhere, self.session_overrides, umo, is_group=is_group, platform=platform
        )


_DEFAULTS = {setting.name: getattr(Settings(), setting.name) for setting in SETTINGS}


@dataclass(frozen=True, slots=True)
class Change:
    """One value to persist, as the config file holds it; None goes back to the default."""

    name: str
    value: Any | None


def apply_set(
    raw: Mapping[str, Any], changes: Sequence[Change], here: str | None = None
) -> dict[str, Any]:
    """The values to put into the config file for these changes; the mapping stays as it is.

    Args:
        raw: the config as it is.
        changes: what to change; of two changes of one name the later one counts.
        here: a session's umo, if the changes are for it alone; then all are of layered settings.

    """
    if here is None:
        return {
            change.name: BY_NAME[change.name].default if change.value is None else change.value
            for change in changes
        }
    values = {change.name: change.value for change in changes}
    rows = write_session_row(raw.get("session_overrides"), here, values, LAYERED_NAMES)
    return {"session_overrides": rows}


def _shown(value: object) -> str:
    try:
        return _show.repr(value)
    except ValueError:  # an int too long to be written out
        return "a number of thousands of digits"
