"""The state of a session."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from astrbot_plugin_compact.summary.chain import ProviderChoice, SkippedLevel
from astrbot_plugin_compact.summary.errors import ProviderFailed
from astrbot_plugin_compact.summary.replies import Compacted
from astrbot_plugin_compact.summary.settings import Settings
from astrbot_plugin_compact.summary.status_reply import StatusFacts, status_reply

NOW = datetime(2025, 3, 1, 12, 0)  # noqa: DTZ001 (people read local time)
NONE = ProviderChoice(None, None)
EMPTY = StatusFacts(messages=0, tokens=0, dialog_messages=0, lines=Settings().lines(""))
FULL = replace(
    EMPTY,
    messages=42,
    tokens=31_234,
    dialog_messages=40,
    lines=Settings(compress_at=0.5, history_limit=60).lines("a:b:c"),
    usage_tokens=63_500,
    window_tokens=128_000,
    line_tokens=102_400,
    line_rule="ratio",
    count_line=60,
    template="work",
    last=Compacted(12, "auto", 40, 7, 30_000, 4_100, NOW - timedelta(hours=2, minutes=5)),
    failures=2,
    turns_to_wait=4,
    failure=ProviderFailed(provider="glm", detail="HTTP 429\nslow down"),
    trimmed_messages=6,
    archived_compactions=3,
    archived_messages=180,
    archive_bytes=1_234_567,
)


def say(facts: StatusFacts, choice: ProviderChoice = NONE, language: str = "zh") -> str:
    return status_reply(language, facts, choice, NOW, "/compact")


def test_a_full_status() -> None:
    assert say(FULL) == (
        "📊 会话状态\n"
        "历史: 42 条消息，约 31,234 tokens\n"
        "用量: ▓▓▓░░ 62%（63,500 / 102,400 tokens）\n"
        "窗口: 128,000 tokens\n"
        "压缩线: 102,400 tokens（窗口的 50%，来自配置）\n"
        "条数线: 40 / 60 条（来自配置）\n"
        "自动压缩: 开\n"
        "自动压缩连续失败 2 次，4 轮后再试：模型 glm 出错，历史未改动。"
        "可以稍后再试，或用 /compact provider <模型 id> 换一个模型。HTTP 429 slow down\n"
        "工作模板\n"
        "摘要模型: 没有可用的聊天模型\n"
        "上次压缩: #12，2 小时前，自动，40 → 7 条，约 30k → 4.1k tokens\n"
        "AstrBot 截掉的 6 条已归档，等下次压缩写进摘要\n"
        "归档: 3 次压缩，180 条消息，1.2 MB，正常"
    )


def test_what_is_unknown_is_said_to_be_so() -> None:
    reply = say(EMPTY)
    assert "窗口: 未知" in reply
    assert "压缩线: 无（模型窗口未知" in reply
    assert "条数线: 无" in reply
    assert "上次压缩: 无" in reply
    assert "用量" not in reply


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"running": True}, "⏳ 正在压缩"),
        ({"usage_estimated": True}, "估算"),
        ({"line_tokens": None}, "没有可比的压缩线"),
        ({"by_usage": False}, "压缩线: 已关闭"),
        ({"line_rule": "host"}, "压缩线: 102,400 tokens（AstrBot 自己的上限）"),
        ({"line_rule": "tokens"}, "压缩线: 102,400 tokens（来自默认）"),
        ({"count_rule": "host"}, "条数线: 40 / 60 条（AstrBot 自己的上限）"),
        ({"auto_compact": False}, "自动压缩: 关"),
        ({"template": None}, "builtin"),
        ({"archive_problem": "checksum\nof 3"}, "归档异常: checksum of 3"),
        ({"usage_tokens": 204_800}, "▓▓▓▓▓ 200%"),
    ],
)
def test_each_state_has_its_words(facts: dict[str, object], words: str) -> None:
    assert words in say(replace(FULL, **facts))  # type: ignore[arg-type]


def test_a_compaction_that_another_writer_undid_is_marked() -> None:
    assert FULL.last is not None
    assert "⚠️ #12 " in say(replace(FULL, last=replace(FULL.last, undone=True)))


@pytest.mark.parametrize(
    ("age", "words"),
    [
        (timedelta(seconds=-5), "just now"),
        (timedelta(seconds=59), "just now"),
        (timedelta(seconds=60), "1 minute ago"),
        (timedelta(hours=1), "1 hour ago"),
        (timedelta(days=3), "3 days ago"),
    ],
)
def test_ages_are_told_in_their_largest_unit(age: timedelta, words: str) -> None:
    assert FULL.last is not None
    facts = replace(FULL, last=replace(FULL.last, when=NOW - age))
    assert words in say(facts, language="en")


def test_skipped_levels_follow_the_model() -> None:
    choice = ProviderChoice(None, None, (SkippedLevel("config", "nope", "missing"),))
    assert "已跳过插件配置里的 nope" in say(FULL, choice)
