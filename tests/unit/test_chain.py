"""The provider chain over a context of the smallest shape; AstrBot's own is a contract test."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from astrbot_plugin_compact.summary.chain import (
    ProviderChoice,
    SkippedLevel,
    is_chat,
    provider_chain,
    provider_id_of,
    resolve_provider,
    session_provider,
)

UMO = "qq:FriendMessage:1"


class ChatProvider:
    def __init__(self, name: str) -> None:
        self.provider_config = {"id": name}

    async def text_chat(self) -> None: ...


class EmbeddingProvider:
    async def get_embedding(self) -> None: ...


@dataclass
class OlderContext:
    """A context of a version whose getter is not async."""

    providers: dict[str, Any] = field(default_factory=dict)
    session: Any = None
    config: Any = None
    provider_manager: Any = None

    def get_provider_by_id(self, provider_id: str) -> Any:
        return self.providers.get(provider_id)

    def get_using_provider(self, umo: str | None = None) -> Any:
        assert umo == UMO
        if isinstance(self.session, Exception):
            raise self.session
        return self.session

    def get_config(self, umo: str | None = None) -> Any:
        assert umo == UMO
        return self.config


class NewerContext(OlderContext):
    """A context whose older getter must not be called in a running loop."""

    async def get_using_provider_async(self, umo: str | None = None) -> Any:
        return OlderContext.get_using_provider(self, umo)

    def get_using_provider(self, umo: str | None = None) -> Any:
        raise AssertionError


@pytest.mark.parametrize("context_type", [OlderContext, NewerContext])
async def test_the_sessions_provider_is_asked_as_the_version_wants(context_type: Any) -> None:
    provider = ChatProvider("a")
    assert await session_provider(context_type(session=provider), UMO) is provider
    assert await session_provider(context_type(), UMO) is None


@pytest.mark.parametrize("context_type", [OlderContext, NewerContext])
async def test_a_session_that_prefers_no_chat_model_is_named(context_type: Any) -> None:
    choice = await provider_chain(context_type(session=ValueError("wrong type")), UMO)
    assert choice == ProviderChoice(None, None, (SkippedLevel("session", "", "not_chat"),))


async def test_the_chain_names_all_it_passed_over() -> None:
    context = OlderContext(
        providers={"vectors": EmbeddingProvider(), "good": ChatProvider("good")},
        config={"provider_settings": {"llm_compress_provider_id": "good"}},
        provider_manager=SimpleNamespace(
            providers_config=[None, {"id": "off", "enable": False}, {"id": "gone", "enable": True}]
        ),
    )
    assert await provider_chain(context, UMO, " vectors ", "off") == ProviderChoice(
        context.providers["good"],
        "core",
        (SkippedLevel("run", "vectors", "not_chat"), SkippedLevel("config", "off", "disabled")),
    )
    skipped = (await provider_chain(context, UMO, "gone", "nowhere")).skipped
    assert [level.reason for level in skipped] == ["missing", "missing"]


async def test_a_run_is_given_a_provider_or_none() -> None:
    good = ChatProvider("good")
    context = OlderContext(providers={"good": good})
    args = SimpleNamespace(provider_id=None, config_provider_id="good")
    assert await resolve_provider(context, UMO, args) is good
    args = SimpleNamespace(provider_id="nowhere", config_provider_id="")
    assert await resolve_provider(context, UMO, args) is None


def test_a_chat_provider_is_one_that_can_chat() -> None:
    assert is_chat(ChatProvider("a"))
    assert not is_chat(EmbeddingProvider())
    assert not is_chat(None)


def test_an_id_is_the_registered_one_or_the_configs() -> None:
    assert provider_id_of(ChatProvider("a")) == "a"
    registered = ChatProvider("a")
    registered.meta = lambda: SimpleNamespace(id="b")  # type: ignore[attr-defined]
    assert provider_id_of(registered) == "b"
    assert provider_id_of(object()) == ""
