"""Copies any model accepts; that AstrBot loads them is a contract test."""

from __future__ import annotations

from typing import Any

import pytest
from astrbot_plugin_compact.summary.copies import EMPTY, OPENING, alternating, sendable, valid_text

USER = {"role": "user", "content": "go"}
CALL = {
    "id": "c",
    "type": "function",
    "function": {"name": "f", "arguments": '{"a": 1}'},
    "index": 0,
}


def caller(*calls: Any, content: Any = None) -> dict[str, Any]:
    return {"role": "assistant", "content": content, "tool_calls": list(calls)}


def result(call_id: Any, content: Any = "r") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def _copy(message: dict[str, Any]) -> dict[str, Any]:
    return sendable([USER, message])[1]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("hello", "hello"),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "a\nb"),
        ([{"type": "think", "think": "hm"}, {"type": "text", "text": "a"}], "a"),
        ([{"type": "image_url", "image_url": {"url": "data:x"}}], "[Image]"),
        ([{"type": "image_url", "image_url": "data:x"}], "[Image]"),
        ([{"type": "audio_url", "audio_url": {"url": "data:x"}}], "[Audio]"),
        ([{"type": "input_audio", "input_audio": {"data": "x"}}], "[Audio]"),
        ([{"type": "file", "name": "x"}], "[file]"),
        (["a", 7], "a\n7"),
        ({"a": "一"}, '{"a": "一"}'),
        (7, "7"),
        ("", EMPTY),
        (" \n", EMPTY),
        ([], EMPTY),
        ([{"type": "text", "text": ""}], EMPTY),
        (None, EMPTY),
        ("a\x00\ud83d\udfffb", "a\ufffd\ufffd\ufffdb"),
    ],
)
@pytest.mark.parametrize("role", ["user", "assistant"])
def test_content_of_any_shape_becomes_text(role: str, content: Any, text: str) -> None:
    assert _copy({"role": role, "content": content}) == {"role": role, "content": text}


def test_a_pair_of_halves_that_is_one_character_stays_one() -> None:
    assert valid_text("😀") == "😀"


@pytest.mark.parametrize("role", ["system", "developer", "function", None, 7])
def test_any_other_role_speaks_as_a_user_under_its_name(role: Any) -> None:
    message = {"content": "hi"} if role is None else {"role": role, "content": "hi"}
    assert _copy(message) == {"role": "user", "content": f"[{role}] hi"}


def test_only_leading_system_messages_stay_so() -> None:
    system = {"role": "system", "content": "s"}
    roles = [copy["role"] for copy in sendable([system, system, USER, system])]
    assert roles == ["system", "system", "user", "user"]


def test_a_call_with_its_result_stays_a_call() -> None:
    call = {**CALL, "extra_content": {"google": {"thought_signature": "s"}}}
    copies = sendable([caller(call), result("c", [{"type": "text", "text": "r"}])])
    kept = {key: call[key] for key in ("id", "type", "function", "extra_content")}
    assert copies == [caller(kept), result("c", "r")]


def test_what_is_no_utf_8_does_not_go_along_with_a_call() -> None:
    call = {**CALL, "extra_content": {"x": ["\ud83d"]}}
    assert "extra_content" not in sendable([caller(call), result("c")])[0]["tool_calls"][0]


def test_results_may_come_in_any_order() -> None:
    other = {**CALL, "id": "d"}
    copies = sendable([caller(CALL, other), result("d"), result("c")])
    assert [copy["role"] for copy in copies] == ["assistant", "tool", "tool"]


def test_an_empty_result_says_so() -> None:
    assert sendable([caller(CALL), result("c", "")])[1]["content"] == EMPTY


@pytest.mark.parametrize(
    "group",
    [
        [caller(CALL)],
        [caller(CALL), USER, result("c")],
        [caller(CALL), result("d")],
        [caller(CALL), result([])],
        [caller(CALL), result("c"), result("c")],
        [caller(CALL, CALL), result("c"), result("c")],
        [caller(CALL, {**CALL, "id": "d"}), result("c")],
        [caller({**CALL, "id": None}), result(None)],
        [caller({**CALL, "id": "\ud83d"}), result("\ud83d")],
        [caller({**CALL, "function": {"name": "f", "arguments": "not JSON"}}), result("c")],
        [caller({**CALL, "function": {"name": "f", "arguments": "[1]"}}), result("c")],
        [caller({**CALL, "function": {"name": "f", "arguments": None}}), result("c")],
        [caller({**CALL, "function": {"name": "", "arguments": "{}"}}), result("c")],
        [caller(CALL, "no call"), result("c")],
    ],
)
def test_a_call_some_server_would_refuse_becomes_text(group: list[dict[str, Any]]) -> None:
    copies = sendable(group)
    assert len(copies) == len(group)
    assert all(copy["role"] != "tool" and "tool_calls" not in copy for copy in copies)


def test_a_call_as_text_names_tool_and_arguments() -> None:
    text = sendable([caller(CALL, content="wait")])[0]["content"]
    assert text.startswith("wait\n[called f] ")
    assert '"arguments"' in text
    assert sendable([result("c", "r")])[0]["content"] == "[tool] r"


def test_the_messages_given_are_not_touched() -> None:
    call = {**CALL, "extra_content": {"x": 1}}
    messages = [caller(call, content=[{"type": "think", "think": "\x00"}]), result("c", "\x00")]
    before = repr(messages)
    sendable(messages)
    assert repr(messages) == before


def _roles(*contexts: dict[str, Any]) -> list[str]:
    return [message["role"] for message in alternating(contexts)]


def test_neighbours_of_one_role_become_one() -> None:
    merged = alternating([USER, {"role": "user", "content": "on"}, caller(content="x"), USER])
    assert [message["content"] for message in merged] == ["go\n\non", "x", "go"]


def test_a_call_after_a_text_takes_the_text_along() -> None:
    said = {"role": "assistant", "content": "wait"}
    merged = alternating([USER, said, caller(CALL), result("c")])
    assert merged[1] == caller(CALL, content="wait")


def test_results_of_one_call_stay_apart() -> None:
    assert _roles(USER, caller(CALL), result("c"), result("d")) == [
        "user",
        "assistant",
        "tool",
        "tool",
    ]


@pytest.mark.parametrize("lead", [[], [{"role": "system", "content": "s"}]])
def test_a_user_opens_the_conversation(lead: list[dict[str, Any]]) -> None:
    opened = alternating([*lead, {"role": "assistant", "content": "hi"}])
    assert opened[len(lead)] == {"role": "user", "content": OPENING}
    assert len(opened) == len(lead) + 2


def test_what_alternates_already_is_as_it_was() -> None:
    contexts = [USER, {"role": "assistant", "content": "a"}, USER]
    assert alternating(contexts) == contexts
