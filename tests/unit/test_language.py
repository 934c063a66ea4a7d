"""The language of replies and headings: the conversation's own, unless one is set."""

from __future__ import annotations

from typing import Any

import pytest
from astrbot_plugin_compact.summary.templates import choose_language
from astrbot_plugin_compact.summary.usertext import spoken_texts

from tests.unit.histories import assistant, result, user

CODE = """def f(items):
    total = 0
    for item in items:
        total += item.price
    return total
import numpy as np
if not total and nothing else was there:
# compute the average of all the values there are
const answer = compute(items, options, another, and_more);
"""
LOG = 'Traceback (most recent call last):\n  File "main.py", line 3, in <module>\n'


@pytest.mark.parametrize(
    ("texts", "language"),
    [
        ([], "zh"),
        (["", "123 🎉"], "zh"),
        (["帮我看一下这个接口为什么报错"], "zh"),
        (["请 fix 这个 bug，main.py 的 parse_args 有问题"], "zh"),
        (["看下报错: TypeError: cannot unpack non-iterable object, main.py line 42"], "zh"),
        (["Please look at the failing test in main.py"], "en"),
        (["What does 你好 mean, and how do I say it politely to a teacher?"], "en"),
        (["Привет, как дела?"], "en"),
    ],
)
def test_the_language_is_that_of_most_of_the_text(texts: list[str], language: str) -> None:
    assert choose_language("auto", texts) == language


def test_only_a_sample_of_a_long_conversation_is_read() -> None:
    read = []

    def texts() -> object:
        for index in range(10_000):
            read.append(index)
            yield "text " * 1_000

    assert choose_language("auto", texts()) == "en"  # type: ignore[arg-type]
    assert len(read) <= 50


def test_a_set_language_is_the_replys_whatever_the_chat_speaks() -> None:
    assert choose_language("en", ["中文"]) == "en"
    assert choose_language("auto", ["Only English here"]) == "en"


@pytest.mark.parametrize(
    ("messages", "language"),
    [
        ([user("查一下"), result("c", "Found the following items in stock. " * 30)], "zh"),
        (
            [user(f"这段为什么报错？\n{CODE}{LOG}"), assistant(f"少了括号。\n```py\n{CODE}```")],
            "zh",
        ),
        ([user(f"Why does this fail?\n{CODE}"), assistant("A bracket is missing.")], "en"),
        ([user("if this works: good; else tell me (please)"), assistant("Sure, I will.")], "en"),
        ([user(CODE)], "en"),
        (
            [
                user(
                    [
                        {"type": "text", "text": "好的"},
                        {
                            "type": "text",
                            "text": "<system_reminder>User ID: 1, Nickname: Bob Smith Junior\n"
                            "Current datetime: 2026-11-30 10:00 (CST), Weekday: Monday"
                            "</system_reminder>",
                        },
                    ]
                )
            ],
            "zh",
        ),
        ([], "zh"),
    ],
    ids=["tools", "code", "code in English", "prose", "nothing but code", "reminder", "none"],
)
def test_the_language_is_that_of_what_was_said(messages: list[Any], language: str) -> None:
    assert choose_language("auto", spoken_texts(messages, 20)) == language


def test_the_last_words_tell_the_language() -> None:
    messages = [user("说点中文"), *[user("Now in English please.")] * 5, {"role": "tool"}]
    assert choose_language("auto", spoken_texts(messages, 5)) == "en"
