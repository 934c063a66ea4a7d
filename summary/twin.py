"""A copy of a chat provider for one request: what it changes, the chat's own never sees.

Invariants: of one request at most one copy per key goes out; the source is never left to
shorten the messages and ask again; what the copy opened is closed with it.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from .wire import Dialect

_RESOURCES = {
    Dialect.OPENAI: ("chat", "completions"),
    Dialect.RESPONSES: ("responses",),
    Dialect.ANTHROPIC: ("messages",),
}


class WouldForgetError(Exception):
    """The source is about to drop the first messages and ask again."""


class Twin:
    """The copy, and the last raw reply it got where that can be seen."""

    def __init__(self, provider: Any) -> None:
        self.provider: Any = copy.copy(provider)
        self.raw: object = None
        self.opened_clients: list[Any] = []
        self._failed: dict[object, Exception] = {}

    def watch(self, resource_path: tuple[str, ...], timeout_seconds: float) -> None:
        """Give the copy its own client, without retries, and see what comes back."""
        client = self.provider.client.with_options(timeout=timeout_seconds, max_retries=0)
        resource: Any = client
        for name in resource_path:
            resource = getattr(resource, name)
        create = resource.create

        async def watched(*args: Any, **kwargs: Any) -> Any:
            # A source repeats a request it believes it has repaired. There is nothing in ours
            # to repair, so only another key can help.
            if client.api_key in self._failed:
                raise self._failed[client.api_key]
            try:
                self.raw = await create(*args, **kwargs)
            except Exception as exc:
                self._failed[client.api_key] = exc
                raise
            return self.raw

        resource.create = watched
        self.provider.client = client

    def bound_gemini(self, max_tokens: int | None, timeout_seconds: float) -> None:
        """Bound output and time where every version reads them; note clients of further keys."""
        prepare = getattr(self.provider, "_prepare_query_config", None)
        if prepare is not None:

            async def bounded(*args: Any, **kwargs: Any) -> Any:
                config = await prepare(*args, **kwargs)
                limits: dict[str, Any] = {"http_options": {"timeout": int(timeout_seconds * 1000)}}
                if max_tokens is not None:
                    limits["max_output_tokens"] = max_tokens
                return type(config).model_validate({**dict(config), **limits})

            self.provider.__dict__["_prepare_query_config"] = bounded
        init_client = getattr(self.provider, "_init_client", None)
        if init_client is not None:

            def noted() -> None:
                init_client()
                self.opened_clients.append(self.provider.__dict__["_http_client"])

            self.provider.__dict__["_init_client"] = noted


@asynccontextmanager
async def twin_of(
    provider: Any,
    dialect: Dialect,
    config: dict[str, Any],
    max_tokens: int | None,
    timeout_seconds: float,
) -> AsyncIterator[Twin]:
    """A twin with its own configuration, for the time of one request."""
    twin = Twin(provider)
    twin.provider.provider_config = config
    twin.provider.pop_record = _refuse_to_forget
    if dialect is Dialect.ANTHROPIC:
        twin.provider.thinking_config = {}
    if dialect is Dialect.GEMINI:
        twin.bound_gemini(max_tokens, timeout_seconds)
    elif dialect in _RESOURCES and hasattr(getattr(provider, "client", None), "with_options"):
        twin.watch(_RESOURCES[dialect], timeout_seconds)
    try:
        yield twin
    finally:
        for client in twin.opened_clients:
            await client.aclose()


async def _refuse_to_forget(_context: list[Any]) -> None:
    raise WouldForgetError
