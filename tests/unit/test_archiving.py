"""Messages as they go into the archive."""

from __future__ import annotations

from typing import Any

import pytest
from astrbot_plugin_compact.summary.archive_types import SpanMessage, Speaker
from astrbot_plugin_compact.summary.archiving import RECALL_TOOL, RECALLED, to_archive, voices
from astrbot_plugin_compact.summary.history import content_hash, stored

from tests.unit.histories import assistant, checkpoint, result, user

GROUP = (
    "<system_reminder>You are in a group chat. Belows are group chat context after your last "
    "reply:\n--- BEGIN CONTEXT---\n[Ann/12:00:01]:  lunch?\n[Bob/12:00:09]:  noodles\n"
    "--- END CONTEXT ---\n</system_reminder>"
)


def parts(*texts: str) -> dict[str, Any]:
    return user([{"type": "text", "text": text} for text in texts])


def archived(message: dict[str, Any], *said: Speaker, kept: bool = False) -> SpanMessage:
    return to_archive(stored(message), {content_hash(message): said}, kept=kept)


def test_the_raw_text_is_the_stored_one() -> None:
    message = stored(user("\ud83d 继续", x=1.0))
    assert to_archive(message, {}, kept=True) == SpanMessage(
        message.raw, "user", "\ud83d 继续", True
    )


def test_what_the_group_said_is_found_too() -> None:
    assert archived(parts("order it", GROUP)).text == "Ann: lunch?\nBob: noodles\norder it"


@pytest.mark.parametrize(
    ("identity", "label"),
    [
        ("User ID: 42, Nickname: Ann", "Ann(42)"),
        ("User ID: 42, Nickname: ", "42"),
        ("User ID: , Nickname: Ann", "Ann"),
        ("User ID: , Nickname: ", None),
    ],
)
def test_a_reminder_names_the_speaker(identity: str, label: str | None) -> None:
    message = parts("hi", f"<system_reminder>{identity}</system_reminder>")
    found = archived(message)
    assert (found.text, found.speaker, found.time_seconds) == ("hi", label, None)


def test_a_reminder_comes_before_what_was_noted() -> None:
    message = parts("hi", "<system_reminder>User ID: 42, Nickname: Ann</system_reminder>")
    found = archived(message, Speaker("7", "Bob", 3.0))
    assert (found.speaker, found.time_seconds) == ("Ann(42)", 3.0)


def test_only_users_are_speakers() -> None:
    for message in (assistant("hi"), result("c1", "hi")):
        found = archived(message, Speaker("7", "Bob", 3.0))
        assert (found.text, found.speaker, found.time_seconds) == ("hi", None, None)


def test_a_checkpoint_says_nothing() -> None:
    assert archived(checkpoint("a")).text == ""


def test_what_was_recalled_is_not_found_again() -> None:
    recalled = {"role": "tool", "tool_call_id": "c1", "content": f"{RECALLED}\n\n[user]\nthe code"}
    assert to_archive(stored(recalled), {}).text == ""
    said = {"role": "user", "content": f"{RECALLED} the code"}
    assert to_archive(stored(said), {}).text == said["content"]
    other = {"role": "tool", "tool_call_id": "c1", "content": f"> {RECALLED}"}
    assert to_archive(stored(other), {}).text == other["content"]


def test_what_a_tool_was_called_with_is_found() -> None:
    function = {"name": "write_file", "arguments": '{"path": "src/\\u8868.py"}'}
    message = {"role": "assistant", "content": "好的", "tool_calls": [
        {"id": "c1", "type": "function", "function": function},
        {"id": "c2", "type": "function", "function": {"name": "now", "arguments": None}},
        {"id": "c3", "type": "function", "function": {"name": RECALL_TOOL, "arguments": "{}"}},
        None,
    ]}  # fmt: skip
    expected = '好的\nwrite_file({"path": "src/表.py"})\nnow()'
    assert to_archive(stored(message), {}).text == expected


def test_the_groups_voices_begin_the_text() -> None:
    message = stored(parts("order it", GROUP))
    assert voices(message.raw) == (("Ann", "Ann: lunch?"), ("Bob", "Bob: noodles"))
    text = to_archive(message, {}).text or ""
    assert text.startswith("\n".join(line for _, line in voices(message.raw)) + "\n")
    assert voices(stored(user("You are in a group chat.")).raw) == ()
