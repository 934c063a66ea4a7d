"""The language of replies and headings: the conversation's own, unless one is set."""

from __future__ import annotations

import pytest
from astrbot_plugin_compact.summary.templates import choose_language


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
