"""Which model summarises, asked of a real AstrBot with real providers (spec 5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import pytest
from astrbot.core.provider.provider import Provider
from astrbot.core.utils.llm_metadata import LLM_METADATAS
from astrbot_plugin_compact.compressor import (
    AstrBotHost,
    ProviderChoice,
    SkippedLevel,
    core_compression_settings,
    model_info,
    provider_chain,
    provider_id_of,
    resolve_provider,
)

from tests.contract.core import Core
from tests.contract.dialects import Chat

UMO = "qq:FriendMessage:1"


@dataclass(frozen=True)
class Args:
    provider_id: str | None = None
    config_provider_id: str | None = ""


async def _add(core: Core, provider_id: str, **settings: Any) -> Any:
    config = Chat().provider("http://127.0.0.1:9", **settings)
    return await core.add_provider(**{**config, "id": provider_id})


async def _add_embedding(core: Core, provider_id: str) -> None:
    await core.add_provider(
        id=provider_id,
        type="openai_embedding",
        provider_type="embedding",
        embedding_api_key="k",
        embedding_api_base="http://127.0.0.1:9/v1",
        embedding_dimensions=8,
    )


def _set_core(core: Core, **values: Any) -> None:
    """Write AstrBot's own compression settings where this version keeps them."""
    old_names = {
        "provider_id": "llm_compress_provider_id",
        "instruction": "llm_compress_instruction",
        "max_turns": "max_context_length",
        "fallback_max_tokens": "fallback_max_context_tokens",
    }
    runner = core.config.get("agent_runner")
    if runner:
        runner["config"]["compression"].update(values)
    else:
        old = {old_names[name]: value for name, value in values.items()}
        core.config["provider_settings"].update(old)


def _chosen(choice: ProviderChoice) -> tuple[Any, ...]:
    name = provider_id_of(choice.provider) if choice.provider else None
    return name, choice.level, choice.skipped


class TestChain:
    async def test_the_first_named_wins(self, core: Core) -> None:
        for name in ("session", "run", "config", "core"):
            await _add(core, name)
        _set_core(core, provider_id="core")
        chain = [await provider_chain(core.context, UMO, "run", "config")]
        chain.append(await provider_chain(core.context, UMO, "", "config"))
        chain.append(await provider_chain(core.context, UMO, None, None))
        _set_core(core, provider_id="")
        chain.append(await provider_chain(core.context, UMO))
        assert [_chosen(choice) for choice in chain] == [
            ("run", "run", ()),
            ("config", "config", ()),
            ("core", "core", ()),
            ("session", "session", ()),
        ]

    async def test_a_level_that_cannot_be_used_is_passed_over_and_named(self, core: Core) -> None:
        await _add(core, "session")
        await _add(core, "off", enable=False)
        await _add_embedding(core, "vectors")
        _set_core(core, provider_id="vectors")
        choice = await provider_chain(core.context, UMO, "nowhere", "off")
        skipped = (
            SkippedLevel("run", "nowhere", "missing"),
            SkippedLevel("config", "off", "disabled"),
            SkippedLevel("core", "vectors", "not_chat"),
        )
        assert _chosen(choice) == ("session", "session", skipped)

    async def test_spaces_around_an_id_do_not_count(self, core: Core) -> None:
        await _add(core, "first")
        await _add(core, "second")
        assert _chosen(await provider_chain(core.context, UMO, " second ", ""))[:2] == (
            "second",
            "run",
        )

    async def test_without_any_model_there_is_none(self, core: Core) -> None:
        assert _chosen(await provider_chain(core.context, UMO, "", "")) == (None, None, ())

    async def test_a_run_is_given_the_provider_itself(self, core: Core) -> None:
        assert await resolve_provider(core.context, UMO, Args()) is None
        first, second = await _add(core, "first"), await _add(core, "second")
        assert isinstance(first, Provider)
        assert await resolve_provider(core.context, UMO, Args()) is first
        assert await resolve_provider(core.context, UMO, Args("second")) is second
        assert await resolve_provider(core.context, UMO, Args(None, "second")) is second


class TestLimits:
    async def test_the_owners_window_comes_first_then_what_is_known_of_the_model(
        self, core: Core, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        known: Any = {"limit": {"context": 64_000, "output": 4_000}}
        monkeypatch.setitem(LLM_METADATAS, "model-a", known)
        _set_core(core, fallback_max_tokens=9_000)
        told = await _add(core, "told", max_context_tokens=8_000)
        known_only = await _add(core, "known", max_context_tokens=0)
        strange = await _add(core, "strange", model="nobody-knows")
        infos = [model_info(core.context, UMO, p) for p in (told, known_only, strange)]
        assert [(i.provider_id, i.window_tokens, i.max_output_tokens) for i in infos] == [
            ("told", 8_000, 4_000),
            ("known", 64_000, 4_000),
            ("strange", 9_000, None),
        ]
        assert infos[2].model == "nobody-knows"

    async def test_a_model_nobody_knows_without_a_fallback_has_no_window(self, core: Core) -> None:
        _set_core(core, fallback_max_tokens=0)
        strange = await _add(core, "strange", model="nobody-knows")
        assert model_info(core.context, UMO, strange).window_tokens is None

    @pytest.mark.parametrize(
        ("modalities", "uses_tools"),
        [(None, True), ([], True), (["text"], False), (["text", "tool_use"], True)],
    )
    async def test_a_model_uses_tools_unless_its_owner_says_otherwise(
        self, core: Core, modalities: Any, uses_tools: bool
    ) -> None:
        provider = await _add(core, "a", modalities=modalities)
        assert model_info(core.context, UMO, provider).uses_tools is uses_tools


class TestHost:
    async def test_it_chooses_along_the_chain(self, core: Core) -> None:
        first = await _add(core, "first")
        choice = await AstrBotHost(core.context).choose(UMO, "nowhere", "first")
        assert choice == ProviderChoice(
            first, "config", (SkippedLevel("run", "nowhere", "missing"),)
        )

    async def test_a_chat_model_is_told_by_id_or_by_session(self, core: Core) -> None:
        host = AstrBotHost(core.context)
        assert await host.chat_model(UMO) is None
        await _add(core, "first", max_context_tokens=8_000)
        await _add(core, "second", max_context_tokens=9_000)
        await _add_embedding(core, "vectors")
        infos = [await host.chat_model(UMO, name) for name in ("", "second", "nowhere", "vectors")]
        assert [info and info.window_tokens for info in infos] == [8_000, 9_000, 8_000, 8_000]

    async def test_a_model_of_a_provider_carries_its_limits(self, core: Core) -> None:
        provider = await _add(core, "first", max_context_tokens=8_000)
        assert AstrBotHost(core.context).model(UMO, provider).info.window_tokens == 8_000

    async def test_admins_are_those_of_the_configuration(self, core: Core) -> None:
        core.config["admins_id"] = ["astrbot", 1001]
        assert AstrBotHost(core.context).admin_ids(UMO) == {"astrbot", "1001"}

    def test_the_compressors_own_instruction_is_known(self) -> None:
        host = AstrBotHost(cast(Any, None))
        assert "summary of key takeaways" in host.builtin_instruction


class TestCoreSettings:
    async def test_they_are_read_where_this_version_keeps_them(self, core: Core) -> None:
        _set_core(core, provider_id="p", instruction="be brief", max_turns=7)
        settings = core_compression_settings(core.context, UMO)
        assert (settings.provider_id, settings.instruction) == ("p", "be brief")
        assert (settings.max_turns, settings.local) == (7, True)

    async def test_what_nobody_set_is_astrbots_default(self, core: Core) -> None:
        settings = core_compression_settings(core.context, UMO)
        assert settings.fallback_window_tokens == 128_000
        assert settings.keep_recent_ratio == 0.15
        assert settings.strategy == "llm_compress"
        assert settings.max_turns in (-1, 50)
