"""What the plugin relies on in a chat model, for each of AstrBot's sources and a real server."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from astrbot.core.provider.entities import LLMResponse
from astrbot_plugin_compact.compressor import AstrBotModel
from astrbot_plugin_compact.summary.errors import (
    ContextTooLong,
    ProviderFailed,
    SummaryTimeout,
)
from astrbot_plugin_compact.summary.host import ModelInfo, ModelReply, ModelRequest

from tests.contract.api_server import ApiServer, Drop, Late, Silence, running_server
from tests.contract.core import make_provider
from tests.contract.dialects import Anthropic, Chat, Gemini, Responses, Speech

HAS_RESPONSES = importlib.util.find_spec(
    "astrbot.core.provider.sources.openai_responses_source"
)  # since 4.26
SPEECHES: list[Speech] = [Chat(), Anthropic(), Gemini(), *([Responses()] if HAS_RESPONSES else [])]
REQUEST = ModelRequest("be brief", "the transcript", max_tokens=50, timeout_seconds=20)
KEY = "key-of-the-owner"


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with running_server() as running:
        yield running
        running.assert_done()


@dataclass
class Bench:
    """Providers of one API, their server and the models over them."""

    server: ApiServer
    speech: Any
    providers: list[Any] = field(default_factory=list)

    def model(self, **settings: Any) -> AstrBotModel:
        config = self.speech.provider(self.server.url, **settings)
        self.providers.append(make_provider(**config))
        info = ModelInfo(config["id"], config["model"], 8_000, 4_096)
        return AstrBotModel(self.providers[-1], info)

    async def ask(
        self, *steps: Any, request: ModelRequest = REQUEST, **settings: Any
    ) -> ModelReply:
        self.server.script(*steps)
        return await self.model(**settings).ask(request)

    @property
    def limits(self) -> list[Any]:
        return [self.speech.limit_in(seen.body) for seen in self.server.seen]

    @property
    def body(self) -> dict[str, Any]:
        (seen,) = self.server.seen
        return seen.body


@asynccontextmanager
async def _bench(server: ApiServer, speech: Speech) -> AsyncIterator[Bench]:
    bench = Bench(server, speech)
    yield bench
    for provider in bench.providers:
        await provider.terminate()


@pytest.fixture(params=SPEECHES, ids=lambda speech: speech.name)
async def bench(request: pytest.FixtureRequest, server: ApiServer) -> AsyncIterator[Bench]:
    async with _bench(server, request.param) as bench:
        yield bench


@pytest.fixture
async def chat(server: ApiServer) -> AsyncIterator[Bench]:
    async with _bench(server, Chat()) as bench:
        yield bench


@pytest.fixture
async def anthropic(server: ApiServer) -> AsyncIterator[Bench]:
    async with _bench(server, Anthropic()) as bench:
        yield bench


@pytest.fixture
async def gemini(server: ApiServer) -> AsyncIterator[Bench]:
    async with _bench(server, Gemini()) as bench:
        yield bench


class TestAnyModel:
    async def test_the_limit_reaches_the_wire(self, bench: Bench) -> None:
        await bench.ask(bench.speech.reply("fine"))
        assert bench.limits == [50]

    async def test_the_texts_reach_the_wire_once(self, bench: Bench) -> None:
        await bench.ask(bench.speech.reply("fine"))
        wire = str(bench.body)
        assert wire.count("be brief") == wire.count("the transcript") == 1

    async def test_the_reply_is_text_and_usage(self, bench: Bench) -> None:
        assert await bench.ask(bench.speech.reply("fine")) == ModelReply(
            "fine", input_tokens=10, cached_tokens=4, output_tokens=5
        )

    async def test_usage_that_is_not_reported_is_unknown(self, bench: Bench) -> None:
        reply = await bench.ask(bench.speech.reply("fine", usage=None))
        assert (reply.input_tokens, reply.cached_tokens, reply.output_tokens) == (None,) * 3

    async def test_a_reply_cut_at_its_limit_says_so(self, bench: Bench) -> None:
        reply = await bench.ask(bench.speech.cut())
        assert (reply.text, reply.cut) == ("half a", True)

    async def test_a_whole_reply_as_long_as_the_limit_is_not_cut(self, bench: Bench) -> None:
        reply = await bench.ask(bench.speech.reply("fine", usage=(10, 0, 50)))
        assert not reply.cut

    async def test_a_reply_without_a_word_counts_as_cut(self, bench: Bench) -> None:
        reply = await bench.ask(bench.speech.empty())
        assert (reply.text, reply.cut) == ("", True)

    async def test_a_tool_call_is_no_cut_but_a_tool_call(self, bench: Bench) -> None:
        reply = await bench.ask(bench.speech.tool_call())
        assert (reply.tool_call, reply.cut) == (True, False)

    async def test_reasoning_alone_is_told(self, bench: Bench) -> None:
        reply = await bench.ask(bench.speech.reasoning())
        assert (reply.text, reply.reasoning_only) == ("", True)

    async def test_a_context_over_the_window_is_refused_after_one_request(
        self, bench: Bench
    ) -> None:
        with pytest.raises(ContextTooLong) as caught:
            await bench.ask(bench.speech.error(*bench.speech.too_long))
        assert bench.speech.too_long[1][:40] in str(caught.value.fields["detail"])
        assert len(bench.server.seen) == 1

    @pytest.mark.parametrize("status", [401, 429, 500, 503, 529])
    async def test_a_refusal_is_said_in_the_providers_words_after_one_request(
        self, bench: Bench, status: int
    ) -> None:
        with pytest.raises(ProviderFailed) as caught:
            await bench.ask(bench.speech.error(status, "no more today"))
        assert not isinstance(caught.value, ContextTooLong)
        if not (bench.speech.name == "gemini" and status == 429):  # the source hides the words
            assert "no more today" in str(caught.value.fields["detail"])
        assert caught.value.fields["provider"] == f"{bench.speech.name}-a"
        assert len(bench.server.seen) == 1

    async def test_the_words_hold_no_key(self, bench: Bench) -> None:
        with pytest.raises(ProviderFailed) as caught:
            await bench.ask(bench.speech.error(401, f"bad key: {KEY}"))
        assert "bad key: ***" in str(caught.value.fields["detail"])

    async def test_a_dropped_connection_is_a_failure_after_one_request(self, bench: Bench) -> None:
        with pytest.raises(ProviderFailed) as caught:
            await bench.ask(Drop())
        assert caught.value.fields["detail"]
        assert len(bench.server.seen) == 1

    async def test_a_model_that_does_not_answer_is_left_at_the_limit(self, bench: Bench) -> None:
        silence = Silence()
        with pytest.raises(SummaryTimeout) as caught:
            await bench.ask(silence, request=replace(REQUEST, timeout_seconds=1.0))
        assert caught.value.fields == {"provider": f"{bench.speech.name}-a", "seconds": 1.0}
        await asyncio.wait_for(silence.left.wait(), 5)

    async def test_the_time_limit_is_ours_and_not_the_providers(self, bench: Bench) -> None:
        # No source takes less than a second for its own limit.
        assert (await bench.ask(Late(1.3, bench.speech.reply("fine")), timeout=1)).text == "fine"

    async def test_a_cancelled_request_ends_as_cancelled(self, bench: Bench) -> None:
        silence = Silence()
        task = asyncio.create_task(bench.ask(silence))
        await asyncio.wait_for(silence.asked.wait(), 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(silence.left.wait(), 5)

    async def test_another_key_is_tried_when_the_first_is_refused(self, bench: Bench) -> None:
        if bench.speech.keys_tried == 1:
            with pytest.raises(ProviderFailed):
                await bench.ask(bench.speech.error(429, "slow down"), key=["key-1", "key-2"])
            return
        reply = await bench.ask(
            bench.speech.error(429, "slow down"), bench.speech.reply("fine"), key=["key-1", "key-2"]
        )
        assert reply.text == "fine"
        used = {bench.speech.key_in(seen.headers) for seen in bench.server.seen}
        assert used == {"key-1", "key-2"}

    async def test_the_chat_never_sees_what_a_summary_asked_for(self, bench: Bench) -> None:
        model = bench.model(custom_extra_body={"temperature": 0.5}, key=["key-1", "key-2"])
        provider: Any = model.provider
        before = dict(vars(provider)), repr(provider.provider_config)
        key = provider.get_current_key()
        refusals = [bench.speech.error(429, "slow down")] * bench.speech.keys_tried
        bench.server.script(*refusals)
        with pytest.raises(ProviderFailed):
            await model.ask(REQUEST)
        assert (dict(vars(provider)), repr(provider.provider_config)) == before
        assert provider.get_current_key() == key
        bench.server.script(bench.speech.reply("still there"))
        response = await provider.text_chat(prompt="hello")
        assert response.completion_text == "still there"
        assert bench.limits[-1] != 50

    async def test_the_owners_extra_body_goes_along_and_never_the_limit(self, bench: Bench) -> None:
        extra = {"temperature": 0.25, "max_tokens": 9, "max_output_tokens": 9}
        await bench.ask(bench.speech.reply("fine"), request=replace(REQUEST, extra_body=extra))
        assert bench.limits == [50]
        if bench.speech.name != "gemini":
            assert bench.body["temperature"] == 0.25


class TestChat:
    async def test_a_server_that_wants_the_newer_key_gets_it_and_is_remembered(
        self, chat: Bench
    ) -> None:
        model = chat.model()
        words = (
            "Unsupported parameter: 'max_tokens' is not supported with this model. "
            "Use 'max_completion_tokens' instead."
        )
        chat.server.script(chat.speech.error(400, words), *[chat.speech.reply("fine")] * 2)
        assert (await model.ask(REQUEST)).text == "fine"
        assert (await model.ask(REQUEST)).text == "fine"
        keys = [sorted(k for k in seen.body if k.startswith("max_")) for seen in chat.server.seen]
        assert keys == [["max_tokens"], ["max_completion_tokens"], ["max_completion_tokens"]]

    async def test_a_server_that_refuses_both_keys_is_asked_twice_and_then_once(
        self, chat: Bench
    ) -> None:
        model = chat.model()
        refusal = chat.speech.error(400, "use max_completion_tokens")
        for requests in (2, 3):
            chat.server.script(*[refusal] * (requests - len(chat.server.seen)))
            with pytest.raises(ProviderFailed):
                await model.ask(REQUEST)
            assert len(chat.server.seen) == requests

    async def test_a_provider_set_up_with_the_newer_key_keeps_it(self, chat: Bench) -> None:
        await chat.ask(
            chat.speech.reply("fine"), custom_extra_body={"max_completion_tokens": 9_000}
        )
        assert chat.body["max_completion_tokens"] == 50
        assert "max_tokens" not in chat.body

    async def test_a_request_that_is_repeated_unchanged_goes_out_once(self, chat: Bench) -> None:
        # The source takes these words for a complaint about tools and repeats ten times.
        with pytest.raises(ProviderFailed):
            await chat.ask(chat.speech.error(400, "this function is not supported"))
        assert len(chat.server.seen) == 1

    async def test_no_tools_go_along(self, chat: Bench) -> None:
        await chat.ask(chat.speech.reply("fine"), custom_extra_body={"tools": [{"x": 1}]})
        assert "tools" not in chat.body

    async def test_a_refusal_is_told(self, chat: Bench) -> None:
        assert (await chat.ask(chat.speech.refusal())).refusal

    async def test_without_a_reason_the_usage_tells_a_cut_reply(self, chat: Bench) -> None:
        reply = await chat.ask(chat.speech.reply("half a", None, usage=(10, 0, 50)))
        assert reply.cut


class TestAnthropic:
    async def test_all_blocks_of_a_text_are_read(self, anthropic: Bench) -> None:
        assert (await anthropic.ask(anthropic.speech.reply("one ", "two"))).text == "one two"

    async def test_thinking_is_off(self, anthropic: Bench) -> None:
        await anthropic.ask(
            anthropic.speech.reply("fine"),
            anth_thinking_config={"budget": 9_000},
            custom_extra_body={"thinking": {"type": "enabled", "budget_tokens": 9_000}},
        )
        assert "thinking" not in anthropic.body

    async def test_a_refusal_is_told(self, anthropic: Bench) -> None:
        assert (await anthropic.ask(anthropic.speech.refusal())).refusal


class TestGemini:
    async def test_all_parts_of_a_text_are_read_without_spaces(self, gemini: Bench) -> None:
        assert (await gemini.ask(gemini.speech.reply("on", "e"))).text == "one"

    @pytest.mark.parametrize(
        ("model", "thinking"),
        [
            ("gemini-2.5-flash", {"thinkingbudget": 0}),
            ("gemini-2.5-pro", {"thinkingbudget": 128}),
            ("gemini-3-flash-preview", {"thinkinglevel": "MINIMAL"}),
            ("gemini-3.1-pro-preview", {"thinkinglevel": "LOW"}),
        ],
    )
    async def test_thinking_is_as_shallow_as_the_model_allows(
        self, gemini: Bench, model: str, thinking: dict[str, Any]
    ) -> None:
        await gemini.ask(
            gemini.speech.reply("fine"),
            model=model,
            gm_thinking_config={"level": "HIGH", "budget": 9},
        )
        sent = gemini.body["generationConfig"]["thinkingConfig"]
        # The SDK spells the keys in one way or the other.
        assert {name.replace("_", "").lower(): value for name, value in sent.items()} == thinking

    async def test_no_search_goes_along(self, gemini: Bench) -> None:
        await gemini.ask(gemini.speech.reply("fine"), gm_native_search=True)
        assert "tools" not in gemini.body

    async def test_a_client_made_for_another_key_is_closed(
        self, gemini: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        model = gemini.model(key=["key-1", "key-2", "key-3", "key-4"])
        made: list[Any] = []
        init_client = type(model.provider)._init_client

        def noted(provider: Any) -> None:
            init_client(provider)
            made.append(provider._http_client)

        monkeypatch.setattr(type(model.provider), "_init_client", noted)
        refusal = gemini.speech.error(429, "slow down")
        gemini.server.script(refusal, refusal, refusal, gemini.speech.reply("fine"))
        await model.ask(REQUEST)
        assert len(made) == 3
        assert all(client.is_closed for client in made)
        assert not model.provider._http_client.is_closed

    async def test_a_refusal_is_a_failure_in_words(self, gemini: Bench) -> None:
        with pytest.raises(ProviderFailed):
            await gemini.ask(gemini.speech.refusal())


class PluginProvider:
    """A provider of a plugin: no client of a known kind, no base class, no keys."""

    def __init__(self, reply: Any) -> None:
        self.provider_config: dict[str, Any] = {}
        self._reply = reply

    def __eq__(self, other: object) -> bool:
        return self is other

    async def text_chat(self, contexts: list[Any]) -> Any:
        if isinstance(self._reply, Exception):
            raise self._reply
        return self._reply or await asyncio.Event().wait()


class ForgetfulProvider(PluginProvider):
    """One that drops messages and asks again, as AstrBot's base class offers."""

    async def text_chat(self, contexts: list[Any]) -> Any:
        try:
            raise self._reply
        except RuntimeError:
            await self.pop_record(contexts)
        return LLMResponse("assistant", completion_text="a summary of nothing")

    async def pop_record(self, contexts: list[Any]) -> None:
        del contexts[:2]


class ReadTimeout(Exception):  # so named by an HTTP client
    pass


class TestProviderOfAPlugin:
    def _model(self, reply: Any) -> AstrBotModel:
        return AstrBotModel(PluginProvider(reply), ModelInfo("p", "m", 8_000, None))

    async def test_its_reply_is_read(self) -> None:
        reply = await self._model(LLMResponse("assistant", completion_text="fine")).ask(REQUEST)
        assert reply == ModelReply("fine")

    async def test_an_error_that_comes_as_a_reply_is_a_failure(self) -> None:
        with pytest.raises(ProviderFailed, match="quota exceeded"):
            await self._model(LLMResponse("err", completion_text="quota exceeded")).ask(REQUEST)

    async def test_it_is_left_at_the_limit(self) -> None:
        with pytest.raises(SummaryTimeout):
            await asyncio.wait_for(
                self._model(None).ask(replace(REQUEST, timeout_seconds=0.05)), 10
            )

    async def test_a_limit_of_its_own_is_a_limit_too(self) -> None:
        with pytest.raises(SummaryTimeout):
            await self._model(ReadTimeout()).ask(REQUEST)

    async def test_a_summary_of_nothing_is_none(self) -> None:
        provider = ForgetfulProvider(RuntimeError("over the window"))
        model = AstrBotModel(provider, ModelInfo("p", "m", 8_000, None))
        with pytest.raises(ContextTooLong, match="over the window"):
            await model.ask(REQUEST)
