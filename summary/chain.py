"""Which model summarises: the first usable one of four levels (spec 5).

Invariant: a level that names a provider is never passed over in silence; it is either used or
in `skipped` with the reason.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any, Literal

from .core_settings import CoreCompression, core_compression

Level = Literal["run", "config", "core", "session"]
Reason = Literal["missing", "not_chat", "disabled"]


@dataclass(frozen=True, slots=True)
class SkippedLevel:
    """A level that names a provider which cannot be used."""

    level: Level
    provider_id: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class ProviderChoice:
    """The provider a compaction would use, where it was found, and what was passed over."""

    provider: Any | None
    level: Level | None
    skipped: tuple[SkippedLevel, ...] = ()


async def provider_chain(
    context: Any,
    umo: str,
    run_provider_id: str | None = None,
    config_provider_id: str | None = None,
    chat_provider_id: str = "",
) -> ProviderChoice:
    """The first usable of: the run's provider, the plugin's, AstrBot's own, the session's.

    `chat_provider_id` is the one picked for this message, where the chat has such a choice: it
    stands for the session's.
    """
    named: tuple[tuple[Level, str | None], ...] = (
        ("run", run_provider_id),
        ("config", config_provider_id),
        ("core", core_compression_settings(context, umo).provider_id),
    )
    skipped: list[SkippedLevel] = []
    for level, name in named:
        provider_id = (name or "").strip()
        if not provider_id:
            continue
        provider = context.get_provider_by_id(provider_id)
        if is_chat(provider):
            return ProviderChoice(provider, level, tuple(skipped))
        skipped.append(SkippedLevel(level, provider_id, _reason(context, provider_id, provider)))
    picked = context.get_provider_by_id(chat_provider_id) if chat_provider_id else None
    try:
        provider = picked if is_chat(picked) else await session_provider(context, umo)
    except ValueError:
        skipped.append(SkippedLevel("session", "", "not_chat"))
        provider = None
    return ProviderChoice(provider, "session" if provider else None, tuple(skipped))


async def resolve_provider(context: Any, umo: str, args: Any) -> Any | None:
    """The provider for a run with these `CompactArgs`, or None."""
    choice = await provider_chain(context, umo, args.provider_id, args.config_provider_id)
    return choice.provider


async def session_provider(context: Any, umo: str) -> Any | None:
    """The session's chat provider, or None.

    Raises:
        ValueError: the session prefers a provider that is none for chat.

    """
    getter = getattr(context, "get_using_provider_async", None)
    if inspect.iscoroutinefunction(getter):
        provider = await getter(umo=umo)
    else:
        provider = context.get_using_provider(umo=umo)
    return provider if is_chat(provider) else None


def core_compression_settings(context: Any, umo: str) -> CoreCompression:
    """The host's own compression settings for a session."""
    return core_compression(context.get_config(umo=umo))


def provider_id_of(provider: Any) -> str:
    """The id a provider is known by."""
    try:
        return str(provider.meta().id)
    except (ValueError, KeyError, AttributeError):  # of a type that was never registered
        return str(getattr(provider, "provider_config", {}).get("id", ""))


def is_chat(provider: object) -> bool:
    """Whether a provider is one for chat. Those of plugins need not share a base class."""
    return callable(getattr(provider, "text_chat", None))


def _reason(context: Any, provider_id: str, provider: object) -> Reason:
    if provider is not None:
        return "not_chat"
    configs = getattr(getattr(context, "provider_manager", None), "providers_config", None)
    for config in configs if isinstance(configs, list) else ():
        if isinstance(config, dict) and config.get("id") == provider_id:
            return "missing" if config.get("enable", True) else "disabled"
    return "missing"
