"""AstrBot's own compression settings, wherever the version keeps them.

Newer versions hold them under `agent_runner.config.compression`, older ones flat in
`provider_settings`; the newer place wins where both are there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_MISSING = object()


@dataclass(frozen=True, slots=True)
class CoreCompression:
    """What AstrBot is told about its own compression; a default is its reading of nothing.

    `max_turns` below 1 means that it does not trim by turns. `fallback_window_tokens` is the
    window of a model nobody knows, None if the owner gave it none. `local` is whether the
    session is answered by AstrBot's own agent: other runners keep no history here.
    """

    provider_id: str = ""
    instruction: str = ""
    keep_recent_ratio: float = 0.15
    strategy: str = "truncate_by_turns"
    max_turns: int = -1
    trim_turns: int = 1
    fallback_window_tokens: int | None = 128_000
    local: bool = True


def core_compression(config: object) -> CoreCompression:
    """Read the settings from AstrBot's configuration of a session."""
    runner = _section(config, "agent_runner")
    old = _section(config, "provider_settings")
    new = _section(_section(runner, "config"), "compression")

    def setting(new_key: str, old_key: str) -> object:
        return new.get(new_key, old.get(old_key, _MISSING))

    runner_type = runner.get("runner_type", old.get("agent_runner_type", "local"))
    defaults = CoreCompression()
    max_turns = _int(setting("max_turns", "max_context_length"))
    window = _int(setting("fallback_max_tokens", "fallback_max_context_tokens"))
    return CoreCompression(
        provider_id=_text(setting("provider_id", "llm_compress_provider_id"))
        or _text(old.get("llm_compress_provider_id")),
        instruction=_text(setting("instruction", "llm_compress_instruction")),
        keep_recent_ratio=_ratio(
            setting("keep_recent_ratio", "llm_compress_keep_recent_ratio"),
            defaults.keep_recent_ratio,
        ),
        strategy=_text(setting("overflow_strategy", "context_limit_reached_strategy"))
        or defaults.strategy,
        max_turns=defaults.max_turns if max_turns is None else max_turns,
        trim_turns=max(1, _int(setting("trim_turns", "dequeue_context_length")) or 1),
        fallback_window_tokens=_window(window, defaults.fallback_window_tokens),
        local=runner_type == "local",
    )


def _window(tokens: int | None, default: int | None) -> int | None:
    if tokens is None:
        return default
    return tokens if tokens > 0 else None


def _section(config: object, name: str) -> Mapping[str, Any]:
    section = config.get(name) if isinstance(config, Mapping) else None
    return section if isinstance(section, Mapping) else {}


def _text(value: object) -> str:
    return value.strip() if isinstance(value, str) else ""


def _int(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return int(value)
    except (ValueError, OverflowError):
        return None


def _ratio(value: object, default: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return default
    try:
        ratio = float(value)
    except ValueError:
        return default
    return min(max(ratio, 0.0), 0.3) if ratio == ratio else default
