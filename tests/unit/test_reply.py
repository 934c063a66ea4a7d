"""Which replies are summaries."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from astrbot_plugin_compact.summary.errors import EmptySummary, ProviderFailed, UnusableSummary
from astrbot_plugin_compact.summary.host import ModelReply
from astrbot_plugin_compact.summary.reply import Cut, is_prose_of_length, read_reply
from hypothesis import given
from hypothesis import strategies as st

SUMMARY = "【保留原文】#1\n## 目标\n写完"


def read(text: str, **facts: Any) -> str | Cut:
    return read_reply(ModelReply(text, **facts), "tiny", "work")


@pytest.mark.parametrize(
    "text",
    [
        SUMMARY,
        f"\n {SUMMARY}\n\n",
        f"<think>先想想 ## 目标</think>\n{SUMMARY}",
        f"<thinking>a</thinking><think>b</think>{SUMMARY}",
        f"<THINK>a</Think>{SUMMARY}",
        f"先想想</think>\n{SUMMARY}",
        f"```markdown\n{SUMMARY}\n```",
        f"```\n{SUMMARY}\n```",
    ],
)
def test_reasoning_in_front_and_a_fence_around_are_taken_off(text: str) -> None:
    assert read(text) == SUMMARY


@pytest.mark.parametrize(
    "text",
    [
        "## 目标\n解释 `</think>` 标签",
        "## 目标\n用法：`<tool_call>` 写在行内",
        "## 目标\n```python\nx\n```\n完",
        "```\na\n```\n## 目标\n```\nb\n```",
    ],
)
def test_a_summary_may_speak_of_markup(text: str) -> None:
    assert read(text) == text


def test_what_is_stored_is_valid_utf_8() -> None:
    assert read("## 目标\nok \ud83d\x00") == "## 目标\nok \ufffd\ufffd"


@pytest.mark.parametrize("text", ["", " ", "\n\n", "```\n\n```", "<think>a</think>\n"])
def test_a_reply_without_text_is_empty(text: str) -> None:
    with pytest.raises(EmptySummary) as refused:
        read(text)
    assert refused.value.fields == {"provider": "tiny"}


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        (SUMMARY, {"cut": True}),
        ("", {"cut": True}),
        ("", {"reasoning_only": True}),
        ("<think>没完没了", {}),
        ("<think>a</think><think>没完没了", {}),
    ],
)
def test_a_cut_reply_and_reasoning_alone_are_cut(text: str, facts: dict[str, Any]) -> None:
    assert read(text, **facts) == Cut()


@pytest.mark.parametrize(
    ("facts", "detail"),
    [
        ({"tool_call": True}, "tool call"),
        ({"refusal": True}, "refusal"),
        ({"refusal": True, "cut": True}, "refusal"),
        ({"role": "user"}, "role user"),
    ],
)
def test_what_the_raw_reply_says_is_believed(facts: dict[str, Any], detail: str) -> None:
    with pytest.raises(UnusableSummary) as refused:
        read(SUMMARY, **facts)
    assert refused.value.fields == {"provider": "tiny", "detail": detail}


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "x"}</tool_call>',
        "<|tool_call|>x",
        "<｜tool▁calls▁begin｜>x",
        "[TOOL_CALLS] [{}]",
        "<function=search>{}</function>",
        '<invoke name="x">',
        "<minimax:tool_call>",
        '{"name": "search", "arguments": {"q": 1}}',
        '[{"name": "search", "parameters": {}}]',
        "## 目标\n查一下\n<tool_call>\n{}",
    ],
)
def test_tool_markup_is_no_summary(text: str) -> None:
    with pytest.raises(UnusableSummary) as refused:
        read(text)
    assert refused.value.fields["detail"] == "tool markup"


def test_an_error_as_a_reply_is_the_providers_failure() -> None:
    with pytest.raises(ProviderFailed) as failed:
        read("429 too\nmany", role="err")
    assert failed.value.fields == {"provider": "tiny", "detail": "429 too many"}


@pytest.mark.parametrize(
    ("tokens", "stated", "long_enough"),
    [
        (119, 500, False),
        (120, 500, True),
        (199, 1_000, False),
        (200, 1_000, True),
        (399, 5_461, False),
        (400, 5_461, True),
    ],
)
def test_prose_passes_from_a_summarys_length_on(
    tokens: int, stated: int, long_enough: bool
) -> None:
    assert is_prose_of_length(tokens, stated) is long_enough


@given(st.text(alphabet=st.characters()))
def test_any_text_is_judged(text: str) -> None:
    with contextlib.suppress(EmptySummary, UnusableSummary):
        read(text)
