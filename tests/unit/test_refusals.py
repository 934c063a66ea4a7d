"""What providers say when they refuse, in their own words."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from astrbot_plugin_compact.summary.refusals import (
    is_too_long,
    status_of,
    wants_completion_tokens,
)

TOO_LONG = [
    "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000.",
    "Your input exceeds the context window of this model.",
    "{'code': 'context_length_exceeded'}",
    "prompt is too long: 213462 tokens > 200000 maximum",
    "input length and `max_tokens` exceed context limit: 199759 + 8192 > 200000",
    "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
    "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
    "Please reduce the length of the messages or completion.",
    "input is too long for requested model",
    "request_too_large",
    "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 30720]",
    "Input length 203743 exceeds the maximum length 202752",
    "Input tokens exceed the configured limit of 272000 tokens.",
    "the request exceeds the available context size. try increasing the context size",
    "Prompt contains 65673 tokens, too large for model with 32768 maximum context length",
    "The conversation is too long to process.",
    "invalid params, context window exceeds limit",
    "Prompt 超长",
    "输入长度超过最大长度",
    "上下文长度超出模型限制",
    "tokens 数量超过了模型的上限",
    "请求内容过长，请缩短后重试",
    "提示词过长",
    "输入内容超出了模型的最大长度限制",
]

SOMETHING_ELSE = [
    "max_tokens is too large: 9000. This model supports at most 4096 completion tokens.",
    "max_tokens must be less than or equal to 8192",
    "Invalid value for 'temperature'",
    "Budget 0 is invalid. This model only works in thinking mode.",
    "The model `gpt-9` does not exist",
    "余额不足，请充值",
    "模型不存在",
    "max_tokens 参数不能超过 8192，请修改",
]


@pytest.mark.parametrize("words", TOO_LONG)
def test_a_request_over_the_window_is_known_by_its_words(words: str) -> None:
    assert is_too_long(400, words)
    assert is_too_long(None, words)


@pytest.mark.parametrize("words", SOMETHING_ELSE)
def test_another_complaint_is_not_taken_for_it(words: str) -> None:
    assert not is_too_long(400, words)


@pytest.mark.parametrize("status", [401, 403, 429, 500, 503])
def test_a_status_that_says_something_else_wins_over_the_words(status: int) -> None:
    assert not is_too_long(status, TOO_LONG[0])


def test_a_payload_that_is_too_large_needs_no_words() -> None:
    assert is_too_long(413, "")


def test_the_newer_key_is_asked_for_by_name() -> None:
    words = "'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
    assert wants_completion_tokens(400, words)
    assert not wants_completion_tokens(429, words)
    assert not wants_completion_tokens(400, "max_tokens is too large")


@pytest.mark.parametrize("name", ["status_code", "code", "status"])
def test_a_status_is_found_under_any_name(name: str) -> None:
    assert status_of(SimpleNamespace(**{name: 429})) == 429
    assert status_of(SimpleNamespace(**{name: "INVALID_ARGUMENT"})) is None
