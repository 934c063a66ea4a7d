"""The builtin engine's door: one class of facts for AstrBot's compressor and for the fake's."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest
from astrbot.core.agent.context import compressor as astrbot_compressor
from astrbot.core.agent.message import Message
from astrbot.core.provider.entities import LLMResponse
from astrbot_plugin_compact import compressor
from astrbot_plugin_compact.compressor import AstrBotHost, AstrBotModel, Compactor
from astrbot_plugin_compact.summary.copies import alternating, sendable
from astrbot_plugin_compact.summary.errors import (
    CutSummary,
    EmptySummary,
    HostChanged,
    ProviderFailed,
    SummaryFailed,
    SummaryTimeout,
    Unchanged,
    UnusableSummary,
)
from astrbot_plugin_compact.summary.host import BuiltinResult, Host, Model, ModelInfo, ModelReply
from astrbot_plugin_compact.summary.wire import check_usable
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.contract import shapes
from tests.contract.api_server import ApiServer, Silence, running_server
from tests.contract.core import make_provider
from tests.contract.dialects import Chat
from tests.contract.fake_host import FakeHost, ScriptedModel

CHAT = Chat()
INFO = ModelInfo("openai-a", "model-a", 8_000, 4_096)


def user(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: Any, **extra: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **extra}


def call(call_id: str, arguments: str = '{"q": "rain"}') -> dict[str, Any]:
    function = {"name": "search", "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function}


def result(call_id: str, text: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


ROUND = [user("how is the weather"), assistant("fine")]


@dataclass
class Door:
    """A host, a model of it, and the last request as one text."""

    host: Host
    model: Model
    script: Callable[[ModelReply], None]
    sent: Callable[[], str]

    async def summarize(
        self, messages: list[Any], instruction: str = "", timeout_seconds: float = 20
    ) -> BuiltinResult:
        return await self.host.summarize_builtin(self.model, messages, instruction, timeout_seconds)


def _fake_door() -> Door:
    model = ScriptedModel(info=INFO)
    return Door(FakeHost(), model, model.then, lambda: model.requests[-1].user)


def _spoken(reply: ModelReply) -> Any:
    if reply.tool_call:
        return CHAT.tool_call()
    if reply.refusal:
        return CHAT.refusal()
    usage = (reply.input_tokens or 0, reply.cached_tokens or 0, reply.output_tokens or 0)
    return CHAT.reply(reply.text, "length" if reply.cut else "stop", usage)


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with running_server() as running:
        yield running
        running.assert_done()


@pytest.fixture
async def real(server: ApiServer) -> AsyncIterator[Door]:
    provider = make_provider(**CHAT.provider(server.url))
    yield Door(
        AstrBotHost(cast(Any, SimpleNamespace())),
        AstrBotModel(provider, INFO),
        lambda reply: server.script(_spoken(reply)),
        lambda: json.dumps(server.seen[-1].body["messages"], ensure_ascii=False),
    )
    await provider.terminate()


@pytest.fixture(params=["fake", "astrbot"])
def door(request: pytest.FixtureRequest) -> Door:
    return _fake_door() if request.param == "fake" else request.getfixturevalue("real")


class TestBuiltin:
    async def test_the_summary_and_its_cost_come_back(self, door: Door) -> None:
        door.script(ModelReply(" The sum. \n", input_tokens=9, cached_tokens=3, output_tokens=2))
        assert await door.summarize(ROUND) == BuiltinResult("The sum.", frozenset(), 9, 3, 2)

    async def test_the_live_request_and_leading_system_messages_are_kept(self, door: Door) -> None:
        door.script(ModelReply("The sum."))
        messages = [{"role": "system", "content": "s"}, *ROUND, *ROUND, user("and now?")]
        assert (await door.summarize(messages)).kept == {0, 5}
        assert "and now?" not in door.sent()

    async def test_messages_and_instruction_reach_the_model(self, door: Door) -> None:
        door.script(ModelReply("The sum."))
        await door.summarize(ROUND, "speak of rain")
        assert all(text in door.sent() for text in ("weather", "fine", "speak of rain"))

    @pytest.mark.parametrize("messages", [[user("only this")], []])
    async def test_with_nothing_to_summarise_no_model_is_asked(
        self, door: Door, messages: list[Any]
    ) -> None:
        with pytest.raises(Unchanged):
            await door.summarize(messages)

    @pytest.mark.parametrize(
        ("reply", "error"),
        [
            (ModelReply("half a", cut=True), CutSummary),
            (ModelReply("", tool_call=True), UnusableSummary),
            (ModelReply("I will not.", refusal=True), UnusableSummary),
        ],
    )
    async def test_a_reply_that_is_no_summary_is_refused(
        self, door: Door, reply: ModelReply, error: type[SummaryFailed]
    ) -> None:
        door.script(reply)
        with pytest.raises(error):
            await door.summarize(ROUND)

    @pytest.mark.parametrize(
        "odd",
        [
            user([{"type": "text", "text": "ODD"}, {"type": "input_audio", "input_audio": {}}]),
            user([{"type": "text", "text": "ODD"}, {"type": "image_url", "image_url": "data:,"}]),
            user([{"type": "text", "text": "ODD"}, {"type": "file", "name": "x"}]),
            user(["ODD"]),
            {"role": "developer", "content": "ODD"},
            {"role": "assistant", "content": "ODD", "tool_calls": "broken"},
            {"role": "system", "content": "ODD"},
            {"role": "function", "name": "f", "content": "ODD"},
            {"content": "ODD"},
            user("ODD \ud83d \udfff \x00 \u2028"),
            assistant("ODD", tool_calls=[call("nobody-answers")]),
            assistant(None, tool_calls=[call("c", "ODD is no JSON")]),
            result("nobody-asked", "ODD"),
            result("nobody-asked", {"ODD": 1}),
        ],
    )
    async def test_a_text_reaches_the_model_in_whatever_shape_it_stands(
        self, door: Door, odd: dict[str, Any]
    ) -> None:
        door.script(ModelReply("The sum."))
        await door.summarize([*ROUND, odd, *ROUND])
        assert "ODD" in door.sent()
        assert "data:," not in door.sent()
        door.sent().encode("utf-8")

    @pytest.mark.parametrize(
        "first", [assistant("I begin"), assistant(""), result("c", "lone"), user([]), user("  ")]
    )
    async def test_any_first_message_will_do(self, door: Door, first: dict[str, Any]) -> None:
        door.script(ModelReply("The sum."))
        assert (await door.summarize([first, *ROUND])).summary == "The sum."


class TestAstrBotsCompressor:
    async def test_a_failure_is_said_in_the_providers_words(
        self, real: Door, server: ApiServer
    ) -> None:
        server.script(CHAT.error(500, "no more today"))
        with pytest.raises(ProviderFailed, match="no more today"):
            await real.summarize(ROUND)
        assert len(server.seen) == 1

    async def test_a_model_that_does_not_answer_is_left_at_the_limit(
        self, real: Door, server: ApiServer
    ) -> None:
        server.script(Silence())
        with pytest.raises(SummaryTimeout):
            await real.summarize(ROUND, timeout_seconds=1.0)

    async def test_the_reply_is_bounded(self, real: Door, server: ApiServer) -> None:
        real.script(ModelReply("The sum."))
        await real.summarize(ROUND)
        assert server.seen[0].body["max_tokens"] == 2_000  # a quarter of the window

    async def test_a_whole_tool_group_stays_one(self, real: Door, server: ApiServer) -> None:
        real.script(ModelReply("The sum."))
        group = [
            assistant([], tool_calls=[call("c")]),
            result("c", [{"type": "text", "text": "r"}]),
        ]
        await real.summarize([user("go"), *group, assistant("done")])
        sent = server.seen[0].body["messages"]
        assert sent[1]["tool_calls"][0]["id"] == sent[2]["tool_call_id"] == "c"
        assert (sent[1]["content"], sent[2]["content"]) == (None, "r")

    async def test_roles_alternate_on_the_wire_and_a_user_opens(
        self, real: Door, server: ApiServer
    ) -> None:
        real.script(ModelReply("The sum."))
        await real.summarize(
            [assistant("I begin"), user("one"), user("two"), assistant(""), assistant("three")]
        )
        roles = [message["role"] for message in server.seen[0].body["messages"]]
        assert roles == ["user", "assistant", "user", "assistant", "user"]

    async def test_no_instruction_is_the_compressors_own(
        self, real: Door, server: ApiServer
    ) -> None:
        real.script(ModelReply("The sum."))
        await real.summarize(ROUND, "")
        assert "concise summary of key takeaways" in real.sent()

    async def test_a_stranger_to_astrbot_is_no_model(self, real: Door) -> None:
        with pytest.raises(HostChanged):
            await real.host.summarize_builtin(ScriptedModel(), ROUND, "", 20)


@settings(max_examples=300, deadline=None)
@example([assistant(None, tool_calls=[call("c")]), {"role": "tool", "tool_call_id": []}])
@given(
    st.lists(
        shapes.messages
        | st.sampled_from([assistant(None, tool_calls=[call("c")]), result("c", "r")]),
        max_size=6,
    )
)
def test_astrbot_loads_every_copy_and_any_server_takes_the_request(messages: list[Any]) -> None:
    copies = sendable(messages)
    assert len(copies) == len(messages)
    for copy in copies:
        Message.model_validate(copy)
    request = alternating(copies)
    json.dumps(request, ensure_ascii=False).encode("utf-8")
    spoken = [message for message in request if message["role"] != "system"]
    assert not spoken or spoken[0]["role"] == "user"
    for before, after in pairwise(spoken):
        assert before["role"] == after["role"] == "tool" or before["role"] != after["role"]
    for message in request:
        text = message["content"]
        assert message.get("tool_calls") or (isinstance(text, str) and text.strip())


# --- the public class


class Provider:
    """A provider of a plugin: no base class, no client, one reply."""

    def __init__(self, reply: LLMResponse | BaseException) -> None:
        self.provider_config: dict[str, Any] = {"id": "p"}
        self.contexts: list[Any] = []
        self._reply = reply

    async def text_chat(self, contexts: list[Any], **_: Any) -> LLMResponse:
        self.contexts = contexts
        if isinstance(self._reply, BaseException):
            raise self._reply
        return self._reply


def _messages() -> list[Message]:
    return [Message.model_validate(message) for message in [*ROUND, *ROUND, *ROUND]]


def _said(text: str, role: str = "assistant") -> LLMResponse:
    return LLMResponse(role, completion_text=text)


def test_the_compressor_is_astrbots_own() -> None:
    assert compressor.LLMSummaryCompressor is astrbot_compressor.LLMSummaryCompressor


async def test_a_compactor_gives_summary_and_recent_rounds() -> None:
    messages = _messages()
    compressed = await Compactor(cast(Any, Provider(_said("sum"))), 0.3, "be brief")(messages)
    assert compressed[0].content == "Our previous history conversation summary: sum"
    assert compressed[2:] == messages[4:]
    assert compressed[-1] is messages[-1]


async def test_a_compactor_passes_ratio_and_instruction_on() -> None:
    provider = Provider(_said("sum"))
    compressed = await Compactor(cast(Any, provider), 0.0, "speak of rain")(_messages())
    assert len(compressed) == 2
    assert "speak of rain" in str(provider.contexts)


@pytest.mark.parametrize(
    "reply",
    [_said(""), _said(" \n"), _said("quota exceeded", "err"), RuntimeError("boom"), KeyError(1)],
)
async def test_a_compactor_gives_the_original_list_back_when_the_model_fails(
    reply: Any,
) -> None:
    messages = _messages()
    kept = list(messages)
    assert await Compactor(cast(Any, Provider(reply)), 0.15, None)(messages) is messages
    assert messages == kept


async def test_a_compactor_gives_the_original_list_back_when_the_compressor_raises(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def broken(*_: Any) -> Any:
        raise AttributeError("of another version")

    monkeypatch.setattr(compressor.LLMSummaryCompressor, "__call__", broken)
    messages = _messages()
    assert await Compactor(cast(Any, Provider(_said("sum"))), 0.15, None)(messages) is messages


def test_a_reply_of_nothing_is_empty_where_the_source_lets_it_pass() -> None:
    with pytest.raises(EmptySummary):
        check_usable(ModelReply(" \n"), "p")
