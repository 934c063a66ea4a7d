"""The figures of a turn (spec 3.1, 3.2)."""

from __future__ import annotations

from typing import Any

import pytest
from astrbot_plugin_compact.summary.core_settings import CoreCompression
from astrbot_plugin_compact.summary.facts import (
    tokens_per_char,
    turn_count_line,
    turn_facts,
    was_answered,
)
from astrbot_plugin_compact.summary.live import Live
from astrbot_plugin_compact.summary.turns import Turn

from tests.contract.fake_bot import UMO, host_summary
from tests.contract.fake_host import FakeHost

HOST = FakeHost()


def message(role: str, content: Any = "x") -> dict[str, Any]:
    return {"role": role, "content": content}


def turn(*history: dict[str, Any], **more: Any) -> Turn:
    fields: dict[str, Any] = {
        "umo": UMO,
        "cid": "c",
        "contexts": history,
        "begin_dialogs": 0,
        "system_chars": 1_000,
        "tools_chars": lambda: 1_000,
        "user_id": "7",
        "nickname": "Ann",
        "provider_id": "",
        "stored_usage_tokens": 0,
        "own": lambda task: None,
        "is_private": True,
    }
    return Turn(**{**fields, **more})


# --- was it answered?


@pytest.mark.parametrize(
    ("answered", "failed", "last", "wanted"),
    [
        (True, False, message("assistant"), True),
        (False, False, message("assistant"), False),
        (False, True, message("assistant"), False),
        (False, False, message("tool", "KITE means kite"), False),
        (
            False,
            False,
            message(
                "tool",
                "The tool has no return value, or has sent the result directly to the user.",
            ),
            True,
        ),
    ],
    ids=["reply", "no reply", "stopped", "failed after a tool", "a tool answered by itself"],
)
def test_a_turn_counts_if_it_ended_well(
    answered: bool, failed: bool, last: dict[str, Any], wanted: bool
) -> None:
    assert was_answered(turn(answered=answered, failed=failed), [message("user"), last]) is wanted


# --- figures


def test_usage_is_what_was_reported_else_an_estimate() -> None:
    history = [message("user", "字" * 100)]
    assert turn_facts(turn(*history, usage_tokens=77), [], None, HOST).usage_tokens == 77
    estimated = turn_facts(turn(*history), [], None, HOST)
    assert estimated.usage_tokens == estimated.dialog_tokens + 600


def test_neither_summaries_nor_checkpoints_are_dialog() -> None:
    history = [*host_summary(0, "M-1")([])[:2], message("user"), message("_checkpoint")]
    assert turn_facts(turn(*history), [message("assistant")], None, HOST).dialog_messages == 2


def test_a_user_s_text_that_looks_like_a_summary_is_dialog() -> None:
    head = host_summary(0, "M-1")([])[0]
    assert turn_facts(turn(head, message("assistant")), [], None, HOST).dialog_messages == 2


def test_the_count_line_knows_begin_dialogs_and_the_summary() -> None:
    host = FakeHost()
    host.settings = CoreCompression(max_turns=20)
    live = Live(1, "h", "s", True, "zh")
    history = [message("user"), message("assistant"), message("user")]
    line = turn_count_line(turn(*history, begin_dialogs=2), live, 0, host)
    assert line is not None
    assert line.messages == 40 - 4 - 2 - 2


# --- what a character costs


def test_the_cost_of_a_character_is_of_all_that_was_sent() -> None:
    sent = turn(message("user", "a" * 500), input_tokens=1_250)
    assert tokens_per_char(sent, [message("assistant", "b" * 99)]) == 0.5


def test_a_turn_the_host_trimmed_tells_no_cost() -> None:
    """It sent less than the turn began with."""
    trimmed = turn(message("user", "a" * 500), input_tokens=250)
    trimmed.lists = [[message("user")], []]
    trimmed.current = lambda: trimmed.lists[-1]
    assert tokens_per_char(trimmed, [message("assistant", "b" * 99)]) is None


def test_a_turn_with_an_image_tells_no_cost() -> None:
    image = message("user", [{"type": "image_url", "image_url": {"url": "x"}}])
    assert tokens_per_char(turn(image, input_tokens=1_000), []) is None
    assert tokens_per_char(turn(message("user")), []) is None


# --- the host's limit of turns


@pytest.mark.parametrize(
    ("messages", "turns", "exceeds"),
    [(9, 4, True), (8, 4, False), (0, 4, False), (9, -1, False), (9, 0, False), (9, None, False)],
)
def test_half_of_all_messages_above_the_limit_exceeds_it(
    messages: int, turns: int | None, exceeds: bool
) -> None:
    history = [message("user")] * messages
    spare = [message("system"), message("_checkpoint")]
    assert turn(*spare, *history, *spare).exceeds(turns, 1) is exceeds
