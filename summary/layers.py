"""Settings that differ by platform, by kind of chat or by session (spec 3.6).

Layers, widest first: everywhere, a platform, its groups or its private chats, one session. The
closest one that says something wins; a negative value says nothing and inherits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from .values import Setting, is_as_written, mend, read_number

# What AstrBot's panel calls the template a row was made from.
TEMPLATE_KEY = "__template_key"
SESSION_ROW = "session"
PLATFORM_ROW = "platform"
CHATS = ("all", "groups", "private")
INHERIT = -1

_GROUP_TYPE = "GroupMessage"
_PRIVATE_TYPE = "FriendMessage"


class Source(StrEnum):
    """Where a value in force comes from, widest first."""

    DEFAULT = "default"
    CONFIG = "config"
    PLATFORM = "platform"
    GROUPS = "groups"
    PRIVATE = "private"
    SESSION = "session"
    RUN = "run"


@dataclass(frozen=True, slots=True)
class Layer:
    """What one row sets. `target` is a platform's id or a session's umo; absent names inherit."""

    source: Source
    target: str
    values: Mapping[str, float | int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LineSettings:
    """The layered settings in force in one session, and where each comes from."""

    compress_at: float
    compress_tokens: int
    history_limit: int
    sources: Mapping[str, Source]


def parse_layers(
    raw: object, settings: Sequence[Setting], warn: Callable[[str, object, str], None]
) -> tuple[Layer, ...]:
    """The layers in the rows of `session_overrides`; unusable rows are named and left out.

    Args:
        raw: what the config file holds.
        settings: the layered settings.
        warn: told the key, its value and what was made of it.

    """
    if not isinstance(raw, list | tuple):
        warn("session_overrides", raw, "not a list, ignored")
        return ()
    layers = []
    for index, row in enumerate(raw):
        key = f"session_overrides[{index}]"
        scope = _scope(row)
        if scope is None:
            warn(key, row, "names no session and no platform, ignored")
            continue
        layers.append(Layer(*scope, _row_values(row, settings, key, warn)))
    return tuple(layers)


def layered(
    everywhere: LineSettings,
    layers: Sequence[Layer],
    umo: str,
    *,
    is_group: bool | None = None,
    platform: str | None = None,
) -> LineSettings:
    """The layered settings in force in a session.

    Args:
        everywhere: the values set for all sessions.
        layers: the rows; of two for the same place the later one wins.
        umo: the session, `platform:MessageType:id`.
        is_group: whether it is a group; by default as the umo says.
        platform: the platform's id; by default the umo's.

    """
    places = _places(umo, is_group, platform)
    values: dict[str, Any] = {name: getattr(everywhere, name) for name in everywhere.sources}
    sources = dict(everywhere.sources)
    for place in places:
        for layer in layers:
            if (layer.source, layer.target) == place:
                values.update(layer.values)
                sources.update(dict.fromkeys(layer.values, layer.source))
    return LineSettings(**values, sources=sources)


def write_session_row(
    raw: object, umo: str, changes: Mapping[str, float | int | None], names: Sequence[str]
) -> list[Any]:
    """The rows with one session's values changed; all other rows stay as they are.

    The session's rows become one. A change to None inherits, and a row that only inherits goes.

    Args:
        raw: the rows as stored.
        umo: the session.
        changes: new values by name.
        names: all layered settings, in the panel's order.

    """
    rows = list(raw) if isinstance(raw, list | tuple) else []
    ours = [n for n, row in enumerate(rows) if _scope(row) == (Source.SESSION, umo)]
    place = ours[-1] if ours else len(rows)
    merged: dict[str, Any] = {TEMPLATE_KEY: SESSION_ROW, "session": umo}
    merged |= dict.fromkeys(names, INHERIT)
    for index in ours:
        said = {key: value for key, value in rows[index].items() if not _inherits(value)}
        merged |= said
    merged[TEMPLATE_KEY] = SESSION_ROW
    merged |= {name: INHERIT if value is None else value for name, value in changes.items()}
    kept = [] if all(_inherits(merged[name]) for name in names) else [merged]
    before = [row for n, row in enumerate(rows[:place]) if n not in ours]
    return [*before, *kept, *rows[place + 1 :]]


def _scope(row: object) -> tuple[Source, str] | None:
    """The place a row is for, or None if it names none."""
    if not isinstance(row, Mapping):
        return None
    made_from = row.get(TEMPLATE_KEY) or row.get("template")
    if made_from not in (SESSION_ROW, PLATFORM_ROW):
        made_from = SESSION_ROW if row.get("session") else PLATFORM_ROW
    target = row.get(made_from)
    if not isinstance(target, str) or not target.strip():
        return None
    if made_from == SESSION_ROW:
        return Source.SESSION, target.strip()
    chats = {"groups": Source.GROUPS, "private": Source.PRIVATE}
    named = row.get("chats")
    source = chats.get(named, Source.PLATFORM) if isinstance(named, str) else Source.PLATFORM
    return source, target.strip()


def _row_values(
    row: Mapping[str, Any],
    settings: Sequence[Setting],
    key: str,
    warn: Callable[[str, object, str], None],
) -> dict[str, float | int]:
    values: dict[str, float | int] = {}
    for setting in settings:
        raw = row.get(setting.name, INHERIT)
        if _inherits(raw):
            if isinstance(raw, str):
                warn(f"{key}.{setting.name}", raw, "read as a number, inherited")
            continue
        value = mend(setting, raw)
        if value is None:
            warn(f"{key}.{setting.name}", raw, "no usable value, inherited")
            continue
        if not is_as_written(setting, value, raw):
            warn(f"{key}.{setting.name}", raw, f"read as {value}")
        values[setting.name] = value
    return values


def _inherits(value: object) -> bool:
    if isinstance(value, str):
        number = read_number(value)
        return number is not None and number < 0
    return isinstance(value, int | float) and not isinstance(value, bool) and value < 0


def _places(
    umo: str, is_group: bool | None, platform: str | None
) -> tuple[tuple[Source, str], ...]:
    """The places a session is in, widest first."""
    parts = umo.split(":", 2)
    kind = parts[1] if len(parts) > 1 else ""
    home = parts[0] if platform is None else platform
    if is_group is None:
        side = {_GROUP_TYPE: Source.GROUPS, _PRIVATE_TYPE: Source.PRIVATE}.get(kind)
    else:
        side = Source.GROUPS if is_group else Source.PRIVATE
    places = [(Source.PLATFORM, home), (Source.SESSION, umo)]
    if side is not None:
        places.insert(1, (side, home))
    return tuple(places)
