"""The structured engine on a real AstrBot: windows, chunks, replies, templates, previews.

The number in a docstring is that of a case in the list of inputs that broke other systems.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.bed import Bot, Reply, Request, WebChat, context_too_long, cut, fail, say
from tests.bed.model import carry_marks
from tests.bed.wire import estimate_tokens
from tests.e2e.histories import (
    FILLER,
    HEAD,
    Message,
    archived,
    assert_strict_model_knows,
    assistant,
    calls,
    is_summary_request,
    marks,
    raw_messages,
    result,
    talk,
    text_of,
    untouched,
    user,
    without_checkpoints,
)
from tests.e2e.lines import SMALL, reach_line, wait_noted

DONE = "✅ 压缩完成"
BODY = "## 目标\nSUMMARY-1 把三处返回格式统一\n## 做过的决定\n无\n## 改过的文件\n无\n## 未完成的事\n评审"
WARNING = "⚠️"


def tokens_of(messages: Sequence[Message]) -> int:
    return sum(estimate_tokens(str(message["content"])) for message in messages)


def transcript(request: Request) -> str:
    """What stands between the fences."""
    (fenced,) = re.findall(r"(?s)<talk>\n(.*)\n</talk>", request.last)
    return fenced


def lines_of(log: str, *words: str) -> list[str]:
    """Lines of a log that hold all these words."""
    return [line for line in log.splitlines() if all(word in line for word in words)]


# -- windows --------------------------------------------------------------------------------


def test_a_history_of_six_windows_takes_bounded_calls_and_is_seen_whole(
    bot: Bot, chat: WebChat
) -> None:
    """50,000 tokens for a summary model that refuses all above 8,000."""
    history = talk(1, 60, fillers=20)
    assert tokens_of(history) > 50_000
    chat.seed(history)
    bot.model.window_tokens = 8_000
    bot.model.obeys_max_tokens = True

    turn = chat.send("/compact keep 0 provider small", timeout_seconds=120)

    assert DONE in turn.text
    requests = bot.model.summaries
    assert {request.reply.status for request in requests if request.reply} == {200}
    assert len(requests) <= 30
    seen = "\n".join(map(transcript, requests))
    assert [m for m in history if m["content"] not in seen] == []
    assert f"{len(requests)} 次请求" in turn.texts[-1]
    assert re.search(r"⏳ 正在压缩…（\d+ 次请求）", turn.texts[0])
    bot.model.window_tokens = None
    assert_strict_model_knows(chat, *marks(1, 60))


def test_a_window_that_holds_it_is_asked_once(bot: Bot, chat: WebChat) -> None:
    """Earlier turns have told what its text costs; without them it is taken to be dear."""
    cid = chat.seed(talk(1, 60, fillers=20))
    assert "2 次请求" in chat.send("/compact preview").text

    chat.send("说到哪儿了？")
    wait_noted(bot, cid, 1)

    assert "1 次请求" in chat.send("/compact preview").text
    assert DONE in chat.send("/compact").text
    assert len(bot.model.summaries) == 1


def test_a_text_over_the_window_is_asked_for_again_in_smaller_requests(
    bot: Bot, chat: WebChat
) -> None:
    history = talk(1, 20)
    chat.seed(history)
    bot.model.rule(is_summary_request, context_too_long(), times=1)

    turn = chat.send("/compact keep 0 provider small")

    assert DONE in turn.text
    assert "⚠️ 模型 small 说内容超出了窗口" in turn.texts[-1]
    assert len(lines_of(bot.log(), "WARN", chat.umo, "said the text was over its window")) == 1
    answered = [r for r in bot.model.summaries if r.reply and r.reply.status == 200]
    assert len(answered) > 1
    seen = "\n".join(map(transcript, answered))
    assert [m for m in history if m["content"] not in seen] == []


def test_a_summary_of_nothing_never_comes_from_a_refused_text(bot: Bot, chat: WebChat) -> None:
    """AstrBot's OpenAI source drops messages on such a refusal and asks again."""
    chat.seed(talk(1, 20), token_usage=700)
    bot.model.rule(lambda r: is_summary_request(r) and "FACT-" in r.text, context_too_long())
    # Whatever would be left of the request is answered with a fine summary.

    with untouched(bot, chat.umo):
        reply = chat.send("/compact keep 0 provider small").texts[-1]

    assert reply.startswith("❌ 内容超出模型 small 的上下文窗口")
    assert 1 <= len(bot.model.summaries) <= 2
    for request in bot.model.summaries:
        assert "FACT-1。" in transcript(request)
    assert archived(bot, chat.row().cid) == []


def test_finished_chunks_of_a_failed_run_are_not_asked_for_again(bot: Bot, chat: WebChat) -> None:
    chat.seed(talk(1, 40), token_usage=700)
    bot.model.on_summary(carry_marks, carry_marks, fail(500))

    with untouched(bot, chat.umo):
        assert "❌" in chat.send("/compact keep 0 provider small").texts[-1]
    failed = list(bot.model.summaries)
    assert DONE in chat.send("/compact keep 0 provider small").text

    again = bot.model.summaries[len(failed) :]
    assert len(failed) == 3
    assert transcript(again[0])[:200] == transcript(failed[2])[:200]
    assert "FACT-1 " in again[0].last.split("<talk>")[0]
    assert all("FACT-1。" not in transcript(request) for request in again)
    assert_strict_model_knows(chat, *marks(1, 40))


@pytest.mark.hosts("newest")
def test_a_summary_taken_back_is_made_from_the_whole_again(bot: Bot, chat: WebChat) -> None:
    chat.seed(talk(1, 40))
    assert DONE in chat.send("/compact keep 0 provider small").text
    first = len(bot.model.summaries)
    assert first > 1

    chat.send("/compact undo")
    assert DONE in chat.send("/compact keep 0 provider small").text

    assert "FACT-1。" in transcript(bot.model.summaries[first])


@pytest.mark.hosts("newest")
def test_another_focus_asks_for_all_of_it(bot: Bot, chat: WebChat) -> None:
    chat.seed(talk(1, 40))
    bot.model.on_summary(carry_marks, fail(500))

    assert "❌" in chat.send("/compact keep 0 provider small").texts[-1]
    assert DONE in chat.send("/compact keep 0 provider small 评审").text

    assert "FACT-1。" in transcript(bot.model.summaries[2])


# -- replies --------------------------------------------------------------------------------

ODD_ROUND = [
    {"role": "user", "content": "KEEP-ME 查一下", "x_trace": {"b": [1.0, None], "a": "\u2028"}},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "c9",
                "type": "function",
                "function": {"name": "look_up", "arguments": '{"w": "KEEP-ME"}'},
                "extra_content": {"google": {"thought_signature": "c2ln"}},
                "unknown": True,
            }
        ],
    },
    {"role": "tool", "tool_call_id": "c9", "content": "KEEP-ME 查到了", "name": "look_up"},
    {"role": "assistant", "content": [{"type": "text", "text": "KEEP-ME 查好了", "y": 1}]},
]
ENGLISH = "## Goal\nSUMMARY-1\n## Decisions\nNone\n## Changed files\nNone\n## Unfinished\nreview"
# `{a} {b} {c}` are the numbers of the round to keep: its request, its call, its answer.
PICKING: dict[str, str] = {
    "in front": "【保留原文】#{a} #{b} #{c}\n" + BODY,
    "at the end": BODY + "\n\n【保留原文】#{a} #{b} #{c}",
    "bold": "**【保留原文】** #{a}、#{b}、#{c}\n\n" + BODY,
    "a heading": "## 【保留原文】\n＃{a} ＃{b} ＃{c}\n" + BODY,
    "a list": "- 【保留原文】\n- #{a}\n- #{b}\n- #{c}\n\n" + BODY,
    "quoted with sizes": "> 【保留原文】#{a}〔约 9 token〕#{b}〔约 50 token〕 #{c}\n" + BODY,
    "unknown numbers": "【保留原文】#{a} #0 #{b} #9999 #{c} #-3\n" + BODY,
    "twice": "【保留原文】#1 #2\n" + BODY + "\n【保留原文】#{a} #{b} #{c}",
    "another language": "[Keep verbatim] #{a} #{b} #{c}\n" + ENGLISH,
    "another language at the end": ENGLISH + "\n**[Keep verbatim]**: {a}, {b}, {c}",
    "in a code fence": "```markdown\n【保留原文】#{a} #{b} #{c}\n" + BODY + "\n```",
    "numbers in the text": "【保留原文】#{a} #{b} #{c}\n" + BODY + "\n#1 和 #2 已经办完",
}


def answer_with(template: str) -> Callable[[Request], Reply]:
    """A summary that fills in the numbers of the round to keep."""

    def step(request: Request) -> Reply:
        numbers = re.findall(r"(?m)^#(\d+)〔约 \d+ token〕.*KEEP-ME", request.last)
        assert len(numbers) == 3, request.last
        return say(template.format(**dict(zip("abc", numbers, strict=True))))

    return step


@pytest.mark.parametrize(
    "template",
    [
        pytest.param(text, id=name, marks=[] if name == "at the end" else pytest.mark.hosts("newest"))
        for name, text in PICKING.items()
    ],
)
def test_picked_messages_come_back_key_for_key_however_the_model_names_them(
    bot: Bot, chat: WebChat, template: str
) -> None:
    chat.seed([*talk(1, 4), *ODD_ROUND, *talk(5, 8)])
    before = raw_messages(chat.row().text)
    bot.model.on_summary(answer_with(template))

    reply = chat.send("/compact budget 0.5 keep 0.1").texts[-1]

    assert "保留原文 4 条" in reply
    stored = raw_messages(chat.row().text)
    assert [raw for raw in stored if raw in before[:14]] == before[8:12]
    head = str(chat.row().messages[0]["content"])
    assert "SUMMARY-1" in head
    assert not re.search(r"保留原文|(?i:keep verbatim)", head.split("\n\n", 1)[1])
    assert WARNING not in reply
    bot.model.strict = True
    assert chat.send("know? SUMMARY-1").text == "known: SUMMARY-1; unknown: -"
