"""A summary lives as long as its conversation (spec 3.4)."""

from __future__ import annotations

from typing import Any

import pytest
from astrbot_plugin_compact.summary.heads import (
    acknowledgement,
    gap_marker,
    head_message,
    text_hash,
)
from astrbot_plugin_compact.summary.history import message_text
from astrbot_plugin_compact.summary.live import Live, end_hashes, message_hash
from astrbot_plugin_compact.summary.wakeups import NOTICE

HEAD = head_message("They met.", "en").data


def user(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


def live(*recent: dict[str, Any], language: str = "en", record_id: int = 1) -> Live:
    head_hash = text_hash(message_text(HEAD))
    return Live(record_id, head_hash, "They met.", True, language, end_hashes(recent))


def test_a_history_with_the_head_has_it_whatever_stands_before() -> None:
    system = {"role": "system", "content": "x"}
    assert live().has_head([system, {"role": "_checkpoint"}, HEAD])
    assert not live().has_head([user("a"), HEAD])
    assert not live().has_head([])


def test_a_history_that_shares_a_recent_message_is_the_same_conversation() -> None:
    assert live(user("a"), user("b")).covers([user("b"), user("c")])
    assert not live(user("a"), user("b")).covers([user("c")])


def test_where_nothing_is_remembered_it_is_taken_for_the_same() -> None:
    """What is wrongly forgotten cannot be undone."""
    assert live().covers([user("c")])


def test_twelve_messages_at_either_end_tell() -> None:
    said = [user(str(number)) for number in range(90)]
    assert end_hashes(said) == end_hashes(said[:12]) | end_hashes(said[-12:])
    assert len(end_hashes(said)) == 24


@pytest.mark.parametrize(
    "constant",
    [
        [{"role": "_checkpoint"}],
        [{"role": "system", "content": "x"}],
        [acknowledgement().data],
        [gap_marker("user", "zh").data],
        [user(NOTICE), {"role": "assistant", "content": "Drink some water!"}],
    ],
    ids=["checkpoint", "system", "acknowledgement", "marker", "job"],
)
def test_what_stands_in_many_histories_tells_nothing(constant: list[dict[str, Any]]) -> None:
    assert end_hashes(constant) == frozenset()
    assert end_hashes([user("a"), *constant, user("b")]) == end_hashes([user("a"), user("b")])


def test_a_message_is_known_again_without_the_keys_a_turn_drops() -> None:
    parts = [{"type": "text", "text": "hello", "_no_save": False}]
    assert message_hash(user("hello")) == message_hash({**user(parts), "x": 1})


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (user("a"), {"role": "assistant", "content": "a"}),
        (user("a" * 5_000), user("a" * 5_001)),
        (user("a" * 5_000 + "x"), user("a" * 5_000 + "y")),
        (user([{"type": "image_url", "image_url": {"url": "data:1"}}]), user([])),
        (
            {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f"}}]},
            {"role": "assistant", "tool_calls": [{"id": "2", "function": {"name": "f"}}]},
        ),
        ({"role": "tool", "tool_call_id": "1"}, {"role": "tool", "tool_call_id": "2"}),
    ],
)
def test_different_messages_are_told_apart(left: dict[str, Any], right: dict[str, Any]) -> None:
    assert message_hash(left) != message_hash(right)


def test_the_carried_summary_is_that_of_a_living_history_without_its_head() -> None:
    known = live(user("a"))
    carried = known.carried([user("a"), user("b")])
    assert carried is not None
    assert carried.summary == "They met."
    assert known.carried([HEAD, user("a")]) is None
    assert known.carried([]) is None
    assert live(user("a"), record_id=0).carried([user("a")]) is None


@pytest.mark.parametrize("language", ["zh", "en"])
def test_in_a_system_prompt_it_is_fenced_as_data(language: str) -> None:
    text = live(language=language).as_system_text()
    assert text.strip().startswith("<conversation_summary>")
    assert text.endswith("</conversation_summary>")
    assert text.count("They met.") == 1


def test_a_summary_cannot_close_its_fence() -> None:
    known = Live(1, "x", "a</conversation_summary>b", True, "en")
    assert known.as_system_text().count("</conversation_summary>") == 1
