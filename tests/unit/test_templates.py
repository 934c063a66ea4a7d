"""Which sections a session's summary has, and how they are recognised."""

from __future__ import annotations

import pytest
from astrbot_plugin_compact.summary.templates import (
    SECTIONS,
    Template,
    choose_language,
    choose_template,
    has_heading,
    holds_nothing,
)
from hypothesis import given
from hypothesis import strategies as st

ADMINS = ["astrbot", 10001]


@pytest.mark.parametrize(
    ("umo", "template"),
    [
        ("qq:GroupMessage:100", "chat"),
        ("qq:GroupMessage:10001", "chat"),
        ("qq:GroupMessage:10001_100", "chat"),
        ("qq:FriendMessage:10001", "work"),
        ("qq:FriendMessage:10002", "chat"),
        ("webchat:FriendMessage:webchat!astrbot!7f1c", "work"),
        ("webchat:FriendMessage:webchat!guest!7f1c", "chat"),
        ("webchat:FriendMessage:webchat!a!b!7f1c", "chat"),
        ("telegram:FriendMessage:astrbot", "work"),
        ("qq:FriendMessage:webchat!astrbot", "chat"),
        ("qq:OtherMessage:100", "work"),
        ("subagent", "work"),
        ("", "work"),
        ("qq:FriendMessage:", "chat"),
    ],
)
def test_auto_goes_by_the_session(umo: str, template: str) -> None:
    assert choose_template("auto", umo, ADMINS) == template


def test_a_web_chat_user_may_have_an_exclamation_mark_in_the_name() -> None:
    assert choose_template("auto", "webchat:FriendMessage:webchat!a!b!7f1c", ["a!b"]) == "work"


@pytest.mark.parametrize("setting", ["chat", "work"])
def test_a_set_template_counts_everywhere(setting: str) -> None:
    assert choose_template(setting, "qq:GroupMessage:100", ADMINS) == setting


@pytest.mark.parametrize(
    ("samples", "language"),
    [
        (["今天天气怎么样", "晴"], "zh"),
        (["How is the weather?", "Fine."], "en"),
        (
            [
                "帮我看看这段代码",
                "def add(first, second): return first + second if second else first  # sum",
            ],
            "zh",
        ),
        (["帮我看看", "while the queue is full wait for a consumer to take one more"], "en"),
        (["please translate 你好", "it means hello, friend, how do you do today then"], "en"),
        (["今日の天気はどうですか", "晴れです"], "en"),
        (["오늘 날씨 어때요"], "en"),
        (["Какая сегодня погода?"], "en"),
        ([], "zh"),
        (["123 456", "!!!"], "zh"),
    ],
)
def test_auto_goes_by_the_script_of_the_conversation(samples: list[str], language: str) -> None:
    assert choose_language("auto", samples) == language


@pytest.mark.parametrize("setting", ["zh", "en"])
def test_a_set_language_counts(setting: str) -> None:
    assert choose_language(setting, ["今天", "hello there"]) == setting


def test_only_the_beginning_of_a_long_conversation_is_looked_at() -> None:
    def samples() -> object:
        yield from ["今天天气" * 200] * 100
        raise AssertionError("read on")

    assert choose_language("auto", samples()) == "zh"  # type: ignore[arg-type]


def test_the_sections_stand_in_the_specified_order() -> None:
    headings = {
        (template, language): [section.heading for section in sections]
        for template, by_language in SECTIONS.items()
        for language, sections in by_language.items()
    }
    assert headings == {
        ("chat", "zh"): ["最近在聊什么", "谁有问题没回应", "关键原话要点"],
        ("chat", "en"): ["Recent topics", "Unanswered", "Key words"],
        ("work", "zh"): ["目标", "做过的决定", "改过的文件", "未完成的事"],
        ("work", "en"): ["Goal", "Decisions", "Changed files", "Unfinished"],
    }


@pytest.mark.parametrize(
    "text",
    [
        "## 目标\n写报告",
        "# 做过的决定",
        "**改过的文件**：a.py",
        "1. 未完成的事",
        "【目标】",
        "- Goal: write it",
        "### Decisions (settled)",
        "前言\n\n## 目标 / Goal",
        "changed files:",
        "## 目標",
        "**做過的決定**：用藍綠發布",
    ],
)
def test_a_heading_is_known_in_either_language_and_any_dress(text: str) -> None:
    assert has_heading(text, "work")


@pytest.mark.parametrize(
    "text",
    [
        "目标是写报告",
        "The Goal is near",
        "好的，我来回答",
        "",
        "无目标",
        "## 最近在聊什么",
        "goals:",
    ],
)
def test_other_text_is_no_heading_of_the_template(text: str) -> None:
    assert not has_heading(text, "work")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  \n",
        "## 目标\n无\n## 做过的决定\n「无」",
        "## Goal\nNone.\n## Decisions\nnone",
        "## 目标\n暂无\n## 未完成的事\n（空）",
        "## 目標\n無\n## 未完成的事\n沒有",
        # The template itself, as it stands in the request.
        "\n".join(f"## {s.heading}\n({s.holds})" for s in SECTIONS["work"]["zh"]),
        "\n".join(f"## {s.heading}\n{s.holds}" for s in SECTIONS["work"]["en"]),
    ],
)
def test_headings_over_nothing_hold_nothing(text: str) -> None:
    assert holds_nothing(text, "work")


def test_a_section_with_a_word_holds_something() -> None:
    assert not holds_nothing("## 目标\n无\n## 未完成的事\n校对", "work")


@given(st.text(), st.sampled_from(["chat", "work"]))
def test_any_text_can_be_judged(text: str, template: Template) -> None:
    has_heading(text, template)
    holds_nothing(text, template)
    choose_template("auto", text, ADMINS)
    choose_language("auto", [text])
