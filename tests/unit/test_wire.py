"""Request bodies and raw replies, without a provider. Each API's whole way is a contract test."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from astrbot_plugin_compact.summary.errors import CutSummary, EmptySummary, UnusableSummary
from astrbot_plugin_compact.summary.host import ModelReply
from astrbot_plugin_compact.summary.wire import (
    Dialect,
    RawFacts,
    check_usable,
    dialect_of,
    limit_key,
    model_reply,
    provider_config,
    read_raw,
    request_body,
)

LIMIT = ("max_tokens", 50)


@pytest.mark.parametrize(
    ("names", "dialect"),
    [
        (["ProviderXAI", "ProviderOpenAIOfficial", "Provider"], Dialect.OPENAI),
        (["ProviderOpenAIResponses", "ProviderOpenAIOfficial"], Dialect.RESPONSES),
        (["ProviderKimiCode", "ProviderAnthropic"], Dialect.ANTHROPIC),
        (["ProviderGoogleGenAI"], Dialect.GEMINI),
        (["SomebodysProvider", "Provider"], Dialect.OTHER),
    ],
)
def test_a_dialect_is_that_of_the_most_derived_class_known(
    names: list[str], dialect: Dialect
) -> None:
    assert dialect_of(names) is dialect


def test_the_owners_extra_body_wins_over_the_providers_but_not_over_the_limit() -> None:
    own = {"temperature": 1, "top_p": 1, "max_tokens": 7, "tools": [1], "tool_choice": "auto"}
    extra = {"temperature": 0, "max_completion_tokens": 9, "max_output_tokens": 9}
    assert request_body(Dialect.OPENAI, own, extra, LIMIT) == {
        "temperature": 0,
        "top_p": 1,
        "max_tokens": 50,
    }
    assert own["temperature"] == 1


def test_without_a_limit_none_is_sent() -> None:
    assert request_body(Dialect.OPENAI, {"max_tokens": 7}, {}, None) == {}


def test_gemini_gets_no_limit_in_its_body() -> None:
    assert request_body(Dialect.GEMINI, {}, {"top_k": 1}, LIMIT) == {"top_k": 1}


def test_thinking_goes_where_it_would_be_refused_unless_the_owner_asks_for_it() -> None:
    own = {"thinking": {"budget_tokens": 9_000}, "output_config": {"effort": "high"}}
    assert request_body(Dialect.ANTHROPIC, own, {}, LIMIT) == {"max_tokens": 50}
    extra = {"thinking": {"type": "disabled"}}
    assert request_body(Dialect.ANTHROPIC, own, extra, LIMIT) == {"max_tokens": 50, **extra}
    assert "thinking" in request_body(Dialect.OPENAI, own, {}, LIMIT)


@pytest.mark.parametrize(
    ("dialect", "body", "key"),
    [
        (Dialect.OPENAI, {}, "max_tokens"),
        (Dialect.OPENAI, {"max_completion_tokens": 1}, "max_completion_tokens"),
        (Dialect.RESPONSES, {"max_completion_tokens": 1}, "max_output_tokens"),
        (Dialect.ANTHROPIC, {"max_completion_tokens": 1}, "max_tokens"),
        (Dialect.OTHER, {}, "max_tokens"),
    ],
)
def test_the_limits_key_is_the_one_the_api_reads(
    dialect: Dialect, body: dict[str, int], key: str
) -> None:
    assert limit_key(dialect, {}, body) == limit_key(dialect, body, {}) == key


@pytest.mark.parametrize(
    ("model", "thinking"),
    [
        ("gemini-2.5-flash", {"budget": 0, "level": "MINIMAL"}),
        ("gemini-2.5-pro", {"budget": 128, "level": "LOW"}),
        ("gemini-3-flash", {"budget": 0, "level": "MINIMAL"}),
        ("gemini-3.1-pro", {"budget": 0, "level": "LOW"}),
        ("gemini-3.7-flash", {"budget": 0, "level": "LOW"}),
    ],
)
def test_gemini_thinks_as_little_as_the_model_allows(model: str, thinking: dict[str, Any]) -> None:
    own = {"gm_thinking_config": {"budget": 9_000, "level": "HIGH"}, "gm_native_search": True}
    config = provider_config(Dialect.GEMINI, own, model, {})
    assert config["gm_thinking_config"] == thinking
    assert config["gm_native_search"] is False
    assert own["gm_native_search"] is True


def test_a_config_gets_no_setting_it_did_not_have() -> None:
    config = provider_config(Dialect.OPENAI, {"id": "a"}, "m", {"x": 1})
    assert config == {"id": "a", "custom_extra_body": {"x": 1}}


@pytest.mark.parametrize("raw", [None, "text", {}, SimpleNamespace(), {"choices": []}, 7])
def test_a_reply_of_unknown_shape_says_nothing(raw: object) -> None:
    assert read_raw(raw) == RawFacts()


@pytest.mark.parametrize(
    ("raw", "fact"),
    [
        ({"choices": [{"finish_reason": "length"}]}, "cut"),
        ({"choices": [{"finish_reason": "MAX_TOKENS"}]}, "cut"),
        ({"choices": [{"finish_reason": "model_length"}]}, "cut"),
        ({"choices": [{"finish_reason": "insufficient_system_resource"}]}, "cut"),
        ({"choices": [{"finish_reason": "network_error"}]}, "cut"),
        ({"choices": [{"finish_reason": "abort"}]}, "cut"),
        ({"choices": [{"finish_reason": "sensitive"}]}, "refusal"),
        ({"choices": [{"finish_reason": "content_filter"}]}, "refusal"),
        ({"choices": [{"message": {"refusal": "no"}}]}, "refusal"),
        ({"choices": [{"message": {"tool_calls": [1]}}]}, "tool_call"),
        ({"choices": [{"message": {"function_call": {"name": "f"}}}]}, "tool_call"),
        ({"candidates": [{"finish_reason": "MAX_TOKENS"}]}, "cut"),
        ({"candidates": [{"finish_reason": SimpleNamespace(name="MAX_TOKENS")}]}, "cut"),
        ({"candidates": [{"finish_reason": "SAFETY"}]}, "refusal"),
        ({"candidates": [{"content": {"parts": [{"function_call": {"name": "f"}}]}}]}, "tool_call"),
        ({"stop_reason": "max_tokens"}, "cut"),
        ({"stop_reason": "model_context_window_exceeded"}, "cut"),
        ({"stop_reason": "refusal"}, "refusal"),
        ({"stop_reason": "tool_use", "content": [{"type": "tool_use"}]}, "tool_call"),
        ({"object": "response", "status": "incomplete"}, "cut"),
        ({"object": "response", "output": [{"type": "function_call"}]}, "tool_call"),
        (
            {
                "object": "response",
                "status": "incomplete",
                "incomplete_details": {"reason": "content_filter"},
            },
            "refusal",
        ),
        ({"object": "response", "output": [{"content": [{"type": "refusal"}]}]}, "refusal"),
    ],
)
def test_a_raw_reply_says_one_thing_of_its_end(raw: Any, fact: str) -> None:
    facts = read_raw(raw)
    told = [name for name in ("cut", "refusal", "tool_call") if getattr(facts, name)]
    assert told == [fact]


def test_the_text_of_several_parts_is_theirs_without_the_thoughts() -> None:
    parts = [{"text": "hm", "thought": True}, {"text": "on"}, {"text": "e"}, {"text": None}]
    assert read_raw({"candidates": [{"content": {"parts": parts}}]}).text == "one"


def _response(text: str = "fine", usage: Any = None, **extra: Any) -> Any:
    fields = {"role": "assistant", "completion_text": text, "usage": usage, **extra}
    return SimpleNamespace(**fields)


def _usage(total: int, cached: int, output: int) -> Any:
    return SimpleNamespace(input=total, input_cached=cached, output=output)


def test_a_reply_without_raw_facts_is_cut_if_its_usage_reached_the_limit() -> None:
    assert model_reply(_response(usage=_usage(9, 0, 50)), None, 50).cut
    assert not model_reply(_response(usage=_usage(9, 0, 49)), None, 50).cut
    assert not model_reply(_response(usage=_usage(9, 0, 50)), None, None).cut
    assert not model_reply(_response(), None, 50).cut


def test_a_named_end_wins_over_the_usage() -> None:
    raw = {"choices": [{"finish_reason": "stop"}]}
    assert not model_reply(_response(usage=_usage(9, 0, 50)), raw, 50).cut


def test_usage_of_zero_is_usage_unknown() -> None:
    reply = model_reply(_response(usage=_usage(0, 0, 0)), None, 50)
    assert (reply.input_tokens, reply.cached_tokens, reply.output_tokens) == (None, None, None)


def test_no_more_is_cached_than_was_sent() -> None:
    # An older Gemini source counts the cached tokens twice.
    usage = {"prompt_token_count": 10, "cached_content_token_count": 4}
    raw = {"candidates": [{}], "usage_metadata": usage}
    reply = model_reply(_response(usage=_usage(14, 4, 5)), raw, 50)
    assert (reply.input_tokens, reply.cached_tokens, reply.output_tokens) == (10, 4, 5)
    assert model_reply(_response(usage=_usage(3, 4, 5)), None, 50).cached_tokens == 3


def test_nothing_to_read_counts_as_cut_unless_the_raw_reply_knows_better() -> None:
    assert model_reply(None, None, 50).cut
    called = model_reply(None, {"choices": [{"message": {"tool_calls": [1]}}]}, 50)
    assert (called.cut, called.tool_call) == (False, True)


def test_calls_the_host_read_are_calls() -> None:
    assert model_reply(_response("", tools_call_name=["f"]), None, 50).tool_call


def test_reasoning_beside_text_is_no_reasoning_alone() -> None:
    assert model_reply(_response(" ", reasoning_content="hm"), None, 50).reasoning_only
    assert not model_reply(_response("fine", reasoning_content="hm"), None, 50).reasoning_only


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (ModelReply("x", tool_call=True), UnusableSummary),
        (ModelReply("I will not.", refusal=True), UnusableSummary),
        (ModelReply("half a", cut=True), CutSummary),
        (ModelReply("", reasoning_only=True), CutSummary),
        (ModelReply(" \n"), EmptySummary),
    ],
)
def test_what_is_no_text_of_its_own_is_refused(reply: ModelReply, error: type[Exception]) -> None:
    with pytest.raises(error):
        check_usable(reply, "p")


def test_a_text_of_its_own_is_usable() -> None:
    check_usable(ModelReply("fine"), "p")
