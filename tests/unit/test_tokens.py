"""Token estimates; that they are AstrBot's own is a contract test."""

from __future__ import annotations

import re
import time

import pytest
from astrbot_plugin_compact.summary.tokens import Estimator

ESTIMATOR = Estimator()
WITH_EMOJI = Estimator(emoji_pattern=re.compile("[\u2600-\u27bf\U0001f000-\U0001faff]"))


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("", 0), ("abc", 0), ("abcd", 1), ("a" * 10, 3), ("一" * 10, 6), ("一a" * 10, 9)],
)
def test_a_text_costs_by_its_characters_rounded_down(text: str, tokens: int) -> None:
    assert ESTIMATOR.text(text) == tokens


@pytest.mark.parametrize(("char", "tokens"), [("一", 60), ("鿿", 60), ("䷿", 30), ("ꀀ", 30)])
def test_the_range_of_costly_characters_has_hard_edges(char: str, tokens: int) -> None:
    assert ESTIMATOR.text(char * 100) == tokens


def test_an_emoji_costs_more_only_where_the_host_says_so() -> None:
    assert ESTIMATOR.text("😀" * 10) == 3
    assert WITH_EMOJI.text("😀☀" * 10) == 40


def test_halves_of_pairs_are_characters_like_others() -> None:
    assert ESTIMATOR.text("\ud83d" * 10) == 3


@pytest.mark.parametrize(
    ("part", "tokens"),
    [
        ({"type": "text", "text": "a" * 10}, 3),
        ({"type": "think", "think": "a" * 10, "encrypted": "b" * 900}, 3),
        ({"type": "image_url", "image_url": {"url": "data:" + "A" * 9_000}}, 765),
        ({"type": "audio_url", "audio_url": {"url": "x"}}, 500),
        ({"type": "file", "text": "a" * 10}, 3),
        ({"type": "text", "text": None}, 0),
        ("a" * 10, 3),
        (None, 0),
    ],
)
def test_a_part_costs_by_its_kind(part: object, tokens: int) -> None:
    assert ESTIMATOR.message({"role": "user", "content": [part]}) == tokens


def test_a_call_costs_what_the_host_would_dump() -> None:
    function = {"name": "f", "arguments": "{}"}
    dumped = '{"type": "function", "id": "c", "function": {"name": "f", "arguments": "{}"}}'
    call = {"index": 0, "id": "c", "function": {**function, "strict": True}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    assert ESTIMATOR.message(message) == int(len(dumped) * 0.3)


def test_an_answer_beside_a_broken_call_is_counted_as_it_stands() -> None:
    calls = [{"id": "c", "function": {"name": "f", "arguments": "{}"}, "index": 0}, {"x": "一"}]
    message = {"role": "assistant", "tool_calls": calls}
    raw = ['{"id": "c", "function": {"name": "f", "arguments": "{}"}, "index": 0}']
    raw.append('{"x": "\\u4e00"}')
    assert ESTIMATOR.message(message) == sum(int(len(text) * 0.3) for text in raw)


def test_arguments_that_are_no_text_are_counted_as_they_stand() -> None:
    call = {"index": 0, "id": "c", "function": {"name": "f", "arguments": {"a": 1}}}
    dumped = '{"index": 0, "id": "c", "function": {"name": "f", "arguments": {"a": 1}}}'
    message = {"role": "assistant", "tool_calls": [call]}
    assert ESTIMATOR.message(message) == int(len(dumped) * 0.3)


def test_a_checkpoint_costs_nothing() -> None:
    assert ESTIMATOR.message({"role": "_checkpoint", "content": {"id": "c"}}) == 0


def test_no_shape_is_too_odd_to_be_counted() -> None:
    looped: dict[str, object] = {"x": {1, 2}}
    assert ESTIMATOR.message({"role": "assistant", "tool_calls": [looped, None]}) >= 0
    assert ESTIMATOR.message({}) == 0
    assert ESTIMATOR.message({"content": 7, "tool_calls": "none"}) == 0


def test_two_million_characters_take_milliseconds() -> None:
    text = "今天讨论了迁移, ok. 😀" * 120_000
    start = time.perf_counter()
    WITH_EMOJI.text(text)
    # Forty times what it takes; a loop over the characters is slower still.
    assert time.perf_counter() - start < 0.5
