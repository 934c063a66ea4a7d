"""One question to a chat provider: bounded, mapped to our reply and our errors.

Invariant: whatever a provider does, the caller gets a `ModelReply`, one of our errors with the
provider's words, or its own cancellation; and the provider is left as it was.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Mapping
from typing import Any, ClassVar
from weakref import WeakSet

from .errors import ContextTooLong, ProviderFailed, SummaryFailed, SummaryTimeout
from .host import ModelInfo, ModelReply, ModelRequest
from .refusals import is_too_long, status_of, wants_completion_tokens
from .twin import Twin, WouldForgetError, twin_of
from .wire import (
    MAX_COMPLETION_TOKENS,
    Dialect,
    dialect_of,
    limit_key,
    model_reply,
    provider_config,
    request_body,
)
from .wording import one_line

_SHORTEST_KEY_CHARS = 8
# Providers whose server wants the newer key. Kept by object: a reloaded provider is asked anew.
_wants_newer_key: WeakSet[Any] = WeakSet()


class ProviderModel:
    """`summary.host.Model` over a chat provider of the host.

    `empty_output` is what the host raises for a reply without text, reasoning and calls.
    """

    empty_output: ClassVar[type[Exception]]

    def __init__(self, provider: Any, info: ModelInfo) -> None:
        self.provider = provider
        self.dialect = dialect_of(cls.__name__ for cls in type(provider).__mro__)
        self._info = info

    @property
    def info(self) -> ModelInfo:
        """Name and limits."""
        return self._info

    async def ask(self, request: ModelRequest) -> ModelReply:
        """Ask once (see `Model.ask`)."""
        contexts = [{"role": "user", "content": request.user}]
        if request.system:
            contexts.insert(0, {"role": "system", "content": request.system})
        return await self.send(
            contexts,
            max_tokens=request.max_tokens,
            timeout_seconds=request.timeout_seconds,
            extra_body=request.extra_body,
        )

    async def send(
        self,
        contexts: list[dict[str, Any]],
        *,
        max_tokens: int | None,
        timeout_seconds: float,
        extra_body: Mapping[str, Any],
    ) -> ModelReply:
        """Send one request, twice only if the server wants the limit under its newer key."""
        try:
            return await self._send(contexts, max_tokens, timeout_seconds, extra_body)
        except ProviderFailed as failure:
            # Remembered before the second request, so there is no third.
            if not self._learned_newer_key(failure):
                raise
        return await self._send(contexts, max_tokens, timeout_seconds, extra_body)

    def _learned_newer_key(self, failure: ProviderFailed) -> bool:
        cause = failure.__cause__
        if (
            self.dialect is not Dialect.OPENAI
            or self.provider in _wants_newer_key
            or not wants_completion_tokens(status_of(cause), str(cause))
        ):
            return False
        _wants_newer_key.add(self.provider)
        return True

    async def _send(
        self,
        contexts: list[dict[str, Any]],
        max_tokens: int | None,
        timeout_seconds: float,
        extra_body: Mapping[str, Any],
    ) -> ModelReply:
        try:
            config = self._config(max_tokens, extra_body)
            async with twin_of(
                self.provider, self.dialect, config, max_tokens, timeout_seconds
            ) as twin:
                return await self._exchange(twin, contexts, max_tokens, timeout_seconds)
        except Exception as exc:  # a provider raises whatever its SDK or its author likes
            # The source turns to forgetting while it handles the refusal.
            forgets = isinstance(exc, WouldForgetError)
            cause = (exc.__context__ or exc) if forgets else exc
            raise self._failure(cause, forgets, timeout_seconds) from cause

    async def _exchange(
        self,
        twin: Twin,
        contexts: list[dict[str, Any]],
        max_tokens: int | None,
        timeout_seconds: float,
    ) -> ModelReply:
        text_chat = twin.provider.text_chat
        kwargs: dict[str, Any] = {"contexts": contexts}
        if "request_max_retries" in inspect.signature(text_chat).parameters:
            kwargs["request_max_retries"] = 1
        try:
            async with asyncio.timeout(timeout_seconds):
                response = await text_chat(**kwargs)
        except self.empty_output:
            # The limit was spent before the first visible word, or there was none.
            return model_reply(None, twin.raw, max_tokens)
        if response is None or response.role == "err":
            raise _ReplyError(getattr(response, "completion_text", "no reply"))
        raw = twin.raw if twin.raw is not None else response.raw_completion
        return model_reply(response, raw, max_tokens)

    def _failure(
        self, cause: BaseException, forgets: bool, timeout_seconds: float
    ) -> SummaryFailed:
        provider_id = self._info.provider_id
        words = self._without_keys(str(cause) or type(cause).__name__)
        if isinstance(cause, TimeoutError) or "Timeout" in type(cause).__name__:
            return SummaryTimeout(provider=provider_id, seconds=timeout_seconds)
        too_long = forgets or is_too_long(status_of(cause), words)
        failure = ContextTooLong if too_long else ProviderFailed
        return failure(provider=provider_id, detail=one_line(words))

    def _config(self, max_tokens: int | None, extra_body: Mapping[str, Any]) -> dict[str, Any]:
        own_config = getattr(self.provider, "provider_config", {})
        own_body = own_config.get("custom_extra_body")
        own_body = own_body if isinstance(own_body, dict) else {}
        key = limit_key(self.dialect, own_body, extra_body)
        # Only objects of the OpenAI sources are asked for: others need not be hashable.
        if self.dialect is Dialect.OPENAI and self.provider in _wants_newer_key:
            key = MAX_COMPLETION_TOKENS
        limit = (key, max_tokens) if max_tokens is not None else None
        body = request_body(self.dialect, own_body, extra_body, limit)
        return provider_config(self.dialect, own_config, self.info.model, body)

    def _without_keys(self, words: str) -> str:
        get_keys = getattr(self.provider, "get_keys", list)
        for key in get_keys():
            if isinstance(key, str) and len(key) >= _SHORTEST_KEY_CHARS:
                words = words.replace(key, "***")
        return words


class _ReplyError(Exception):
    """A reply whose text is an error."""
