"""What is said about settings."""

from __future__ import annotations

import pytest
from astrbot_plugin_compact.summary.args import SetRefused, parse_set
from astrbot_plugin_compact.summary.settings import SETTINGS, Change, Settings
from astrbot_plugin_compact.summary.settings_reply import (
    config_reply,
    ignored_reply,
    legal_values,
    set_refused_reply,
    set_reply,
)

SESSION = "qq:GroupMessage:1"


def test_every_setting_in_force_is_listed_with_its_names_value_and_source() -> None:
    rows = [{"session": SESSION, "history_limit": 30}]
    settings = Settings.parse({"keep_recent_ratio": 0.2, "session_overrides": rows}, pytest.fail)
    lines = config_reply("zh", settings, settings.lines(SESSION)).splitlines()
    assert "- keep · keep_recent_ratio = 0.2（配置）" in lines
    assert "- limit · history_limit = 30（本会话）" in lines
    assert "- line · compress_at = 0.8（默认）" in lines
    assert "- focus · default_focus = （空）（默认）" in lines
    assert "- engine = structured（默认）" in lines
    assert "- group_members = off（默认）" in lines
    assert len(lines) == len(SETTINGS)
    english = config_reply("en", settings, settings.lines(SESSION))
    assert "- limit · history_limit = 30 (this session)" in english


def test_a_long_value_is_listed_in_one_short_line() -> None:
    settings = Settings(instruction_text="甲\n" * 500, summary_extra_body={"a": True})
    reply = config_reply("zh", settings, settings.lines(""))
    assert '- summary_extra_body = {"a": true}（配置）' in reply
    assert len(reply.splitlines()) == len(SETTINGS)


def test_what_was_saved_is_listed_by_long_name() -> None:
    changes = [Change("keep_recent_ratio", 0.2), Change("show_summary", False),
               Change("compress_tokens", 60_000), Change("min_messages", None)]  # fmt: skip
    assert set_reply("zh", changes) == (
        "✅ 配置已持久化保存:\n"
        "- keep_recent_ratio = 0.2\n"
        "- show_summary = off\n"
        "- compress_tokens = 60000\n"
        "- min_messages = 4"
    )


def test_what_was_saved_for_one_session_says_so() -> None:
    changes = [Change("compress_at", 0.5), Change("history_limit", None)]
    assert set_reply("zh", changes, here=True) == (
        "✅ 配置已持久化保存（仅本会话）:\n- compress_at = 0.5\n- history_limit = （继承）"
    )


def test_what_could_not_be_written_is_said_to_be_lost_at_the_restart() -> None:
    reply = set_reply("zh", [Change("min_messages", 6)], unsaved="disk\nfull")
    assert "disk full" in reply
    assert "重启后会丢失" in reply
    assert "已持久化" not in reply
    assert "- min_messages = 6" in reply


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("keep abc", "keep 的值 abc 不可用（应为 0 到 0.3 的数）"),
        ("keep", "keep 缺少值（0 到 0.3 的数）"),
        ("line x", "60k"),
        ("engine x", "structured / builtin"),
        ("auto x", "on / off"),
        ("nope 1", "不认识 nope"),
        ("keep 0.1 here", "keep 不能只对本会话设置"),
        ("", "/压缩 set keep 0.2"),
    ],
)
def test_a_refused_set_says_what_is_wrong_with_which_word(body: str, words: str) -> None:
    request = parse_set(body)
    assert isinstance(request, SetRefused)
    reply = set_refused_reply("zh", request.problems, "/压缩")
    assert reply.startswith("❌ 没有保存任何设置:\n- ")
    assert words in reply


def test_ignored_options_are_a_line_each() -> None:
    assert ignored_reply("zh", ["a", "b"]) == ["⚠️ 已忽略: a", "⚠️ 已忽略: b"]
    assert len(ignored_reply("zh", ["a"] * 1_000)) < 10


@pytest.mark.parametrize("language", ["zh", "en"])
def test_every_setting_says_what_it_takes(language: str) -> None:
    for setting in SETTINGS:
        assert legal_values(language, setting)
