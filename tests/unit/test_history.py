"""Histories as text and as messages."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
from typing import Any

import pytest
from astrbot_plugin_compact.summary.errors import UnreadableHistory
from astrbot_plugin_compact.summary.history import (
    call_name,
    canonical_json,
    content_hash,
    dump_history,
    iter_history,
    message_text,
    parse_history,
    stored,
    text_parts,
    tool_calls,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.histories import History, call, histories, raws, spelled, talk, user

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
json_objects = st.dictionaries(st.text(), json_values, max_size=4)


def same(left: object, right: object) -> bool:
    """Equal as JSON says it: a number that is none equals itself."""
    return canonical_json(left) == canonical_json(right)


@given(histories())
def test_a_row_says_what_json_says_it_says(row: History) -> None:
    assert same([message.data for message in row.stored], json.loads(row.text))


@given(histories())
def test_every_message_keeps_its_text(row: History) -> None:
    position = 0
    for message in row.stored:
        position = row.text.index(message.raw, position) + len(message.raw)
        assert same(json.loads(message.raw), message.data)


@given(histories())
def test_what_is_dumped_is_read_back_to_the_byte(row: History) -> None:
    again = parse_history(dump_history(row.stored))
    assert raws(again) == raws(row.stored)


def test_the_hosts_own_spelling_comes_back_whole() -> None:
    text = spelled([*talk(3), user("\ud83d \u2028 继续"), call("c1")])
    assert dump_history(parse_history(text)) == text


def test_numbers_keep_their_spelling() -> None:
    raw = '{"role": "user", "n": [1e400, 1.0, -0, 1E2, 12345678901234567890123]}'
    (message,) = parse_history(f"[{raw}]")
    assert math.isinf(message.data["n"][0])
    assert dump_history([message]) == f"[{raw}]"


@pytest.mark.parametrize("text", [None, "", " \n", "null", " null\t", "[]", " [ \n ] "])
def test_nothing_stored_is_an_empty_history(text: str | None) -> None:
    assert parse_history(text) == ()


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        '"x"',
        "7",
        "nul",
        "[",
        "[{}",
        "[{},",
        "[{},]",
        "[,{}]",
        "[{} {}]",
        "[{}] x",
        "[{}][]",
        "[1]",
        '["x"]',
        "[null]",
        "[[]]",
        '[{"role": }]',
        "[{'role': 'user'}]",
        '[{"a": "\x00"}]',
        "\ufeff[]",
        '[{"n": ' + "9" * 5_000 + "}]",
        "[" + '{"x": ' * 100_000,
        "[" * 100_000,
        '[{"x": ' + "[" * 100_000 + "]" * 100_000 + "}]",
    ],
    ids=range(24),
)
def test_what_is_no_list_of_messages_is_said_to_be_unreadable(text: str) -> None:
    with pytest.raises(UnreadableHistory):
        parse_history(text)


@given(histories(), st.data())
def test_a_row_cut_off_is_unreadable(row: History, data: st.DataObject) -> None:
    whole = row.text.rstrip()
    part = whole[: data.draw(st.integers(1, len(whole) - 1), label="characters left")]
    if part.strip():
        with pytest.raises(UnreadableHistory):
            parse_history(part)


@given(st.text(alphabet='[]{},:"\\ n1ue.-\x00') | st.text())
def test_any_text_is_a_history_or_unreadable(text: str) -> None:
    with contextlib.suppress(UnreadableHistory):
        assert all(isinstance(message.data, dict) for message in parse_history(text))


def test_messages_are_decoded_one_at_a_time() -> None:
    messages = iter_history('[{"role": "user"}, {"role": "assistant"}, oops')
    assert [m.role for m in itertools.islice(messages, 2)] == ["user", "assistant"]
    with pytest.raises(UnreadableHistory):
        next(messages)


@pytest.mark.parametrize("role", [None, 5, ["user"], {"a": 1}])
def test_a_role_that_is_no_text_is_no_role(role: object) -> None:
    assert stored({"role": role}).role == ""
    assert stored({}).role == ""


def test_only_the_hosts_records_are_checkpoints() -> None:
    assert stored({"role": "_checkpoint"}).is_checkpoint
    assert not stored({"role": "checkpoint"}).is_checkpoint


@given(json_objects)
def test_a_message_of_ours_is_ascii_and_says_the_same(message: dict[str, Any]) -> None:
    made = stored(message)
    assert made.raw.isascii()
    assert same(json.loads(made.raw), message)


@given(json_objects)
def test_the_order_of_keys_does_not_change_a_hash(message: dict[str, Any]) -> None:
    turned = dict(reversed(message.items()))
    assert content_hash(turned) == content_hash(message)


@given(json_values, json_values)
def test_hashes_are_equal_where_the_values_are(left: Any, right: Any) -> None:
    assert (content_hash(left) == content_hash(right)) == same(left, right)


def test_a_hash_says_what_made_it() -> None:
    assert content_hash({"a": "继"}) == (
        "sha256:c6baa961da2a2f81295602482cff4a6b4ef8f67e77ac99674a892a27c02d8a16"
    )


@given(histories())
def test_texts_are_found_in_any_content(row: History) -> None:
    for message in row.stored:
        texts = list(text_parts(message.data))
        assert all(isinstance(text, str) for text in texts)
        assert message_text(message.data) == "\n".join(texts)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("plain", "plain"),
        ([{"type": "text", "text": "a"}, "b", {"text": "c"}], "a\nb\nc"),
        ([{"type": "image_url", "image_url": {"url": "x"}}, None, 3, {"text": 4}], ""),
        (None, ""),
        ({"text": "no list"}, ""),
        (7, ""),
    ],
)
def test_a_messages_text_is_that_of_its_parts(content: object, text: str) -> None:
    assert message_text({"role": "user", "content": content}) == text
    assert message_text({"role": "user"}) == ""


@pytest.mark.parametrize("calls", [None, "c1", {}, 3, [], [None, "c1", 3]])
def test_what_has_not_the_shape_of_calls_is_none(calls: object) -> None:
    assert tool_calls({"role": "assistant", "tool_calls": calls}) == []


def test_only_an_assistant_calls_tools() -> None:
    message = call("c1", "c2")
    assert tool_calls(message) == message["tool_calls"]
    assert tool_calls({**message, "role": "user"}) == []


@pytest.mark.parametrize("function", [None, "look_up", {}, {"name": None}, {"name": ["x"]}])
def test_a_call_without_a_name_has_an_empty_one(function: object) -> None:
    assert call_name({"function": function}) == ""
    assert call_name({}) == ""
