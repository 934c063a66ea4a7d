"""Settings by command, in the panel and in the file: one value in all three (spec 5, 6)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.bed import Bot, OneBot, WebChat
from tests.e2e.histories import FILLER, is_compacted, talk

DONE = "✅ 压缩完成"
SAVED = "✅ 配置已持久化保存:"
SAVED_HERE = "✅ 配置已持久化保存（仅本会话）:"
REFUSED = "❌ 没有保存任何设置:"


@pytest.fixture
def owner(bot: Bot) -> Iterator[Bot]:
    """The shared bot; its plugin's settings are set back afterwards."""
    before = bot.plugin_config()
    yield bot
    bot.write_plugin_config(before)
    bot.reload_plugin()


def config_bytes(bot: Bot) -> bytes:
    """The config file as it is."""
    return (bot.data / "config" / f"{bot.plugin_name}_config.json").read_bytes()


def test_what_is_set_is_in_the_file_in_the_panel_and_in_force(owner: Bot, chat: WebChat) -> None:
    chat.seed(talk(1, 6))

    reply = chat.send('/compact set keep 0.2 template work focus "发布 计划" line 60k').text

    lines = ["- keep_recent_ratio = 0.2", "- template = work", "- default_focus = 发布 计划"]
    assert reply == "\n".join([SAVED, *lines, "- compress_tokens = 60000"])
    wanted = {
        "keep_recent_ratio": 0.2,
        "template": "work",
        "default_focus": "发布 计划",
        "compress_tokens": 60_000,
    }
    assert wanted.items() <= owner.plugin_config().items()
    assert wanted.items() <= owner.panel_config().items()
    shown = chat.send("/compact config").text
    assert "- keep · keep_recent_ratio = 0.2（配置）" in shown
    assert "- focus · default_focus = 发布 计划（配置）" in shown
    assert "压缩线: 60,000 tokens（来自配置）" in chat.send("/compact status").text
    assert DONE in chat.send("/compact").texts[-1]
    assert "发布 计划" in owner.model.summaries[0].text


def test_what_is_set_holds_after_a_reload(owner: Bot, chat: WebChat) -> None:
    chat.seed(talk(1, 6))
    chat.send("/compact set min 30")
    owner.reload_plugin()

    assert chat.send("/compact").text.startswith("无需压缩：对话只有 12 条消息，少于 30 条")


def test_default_goes_back(owner: Bot, chat: WebChat) -> None:
    chat.seed(talk(1, 6))
    chat.send("/compact set min 30 keep 0 line 5000")

    reply = chat.send("/compact set min default keep default line default").text

    assert "- min_messages = 4" in reply
    assert owner.plugin_config()["compress_tokens"] == 0
    shown = chat.send("/compact config").text
    assert "- keep · keep_recent_ratio = 0.15（默认）" in shown
    assert "- line · compress_at = 0.8（默认）" in shown


def test_line_sets_the_ratio_or_the_tokens_or_clears_both(owner: Bot, chat: WebChat) -> None:
    def set_line(value: str) -> tuple[Any, Any]:
        assert SAVED in chat.send(f"/compact set line {value}").text
        config = owner.plugin_config()
        return config["compress_at"], config["compress_tokens"]

    assert set_line("50k") == (0.8, 50_000)
    assert set_line("0.6") == (0.6, 0)
    assert set_line("70000") == (0.6, 70_000)
    assert set_line("0") == (0, 0)


BAD = {
    "": "请写明要改什么，例如 /compact set keep 0.2",
    "keep": "keep 缺少值",
    "keep 0.2 min": "min 缺少值",
    "keep 0.2 min 0": "min 的值 0 不可用",
    "min 3.5": "min 的值 3.5 不可用",
    "chars -1": "chars 的值 -1 不可用",
    "summary maybe": "summary 的值 maybe 不可用",
    "template poem": "template 的值 poem 不可用",
    "keep 0.2 保留 所有 代码": "不认识 保留",
    "colour red": "不认识 colour",
    "budget 0.9": "budget 的值 0.9 不可用",
    "line 80": "line 的值 80 不可用",
    "keep 0.2 here": "keep 不能只对本会话设置",
    "here": "不认识 here",
    'summary_extra_body "[1]"': "summary_extra_body 的值 [1] 不可用",
}


@pytest.mark.hosts("newest")
@pytest.mark.parametrize("words", BAD, ids=lambda words: words or "nothing")
def test_a_set_that_is_not_whole_saves_nothing(bot: Bot, chat: WebChat, words: str) -> None:
    before = config_bytes(bot)

    reply = chat.send(f"/compact set {words}").text

    assert reply.startswith(REFUSED)
    assert BAD[words] in reply
    assert config_bytes(bot) == before
    assert "keep_recent_ratio = 0.15（默认）" in chat.send("/compact config").text


def test_a_change_in_the_panel_works_at_once(owner: Bot, chat: WebChat) -> None:
    chat.seed(talk(1, 6))

    owner.change_plugin_config(min_messages=30, language="en", compress_provider_id="small")

    assert chat.send("/compact").text.startswith("Nothing to do: the conversation has 12 messages")
    assert "- min · min_messages = 30 (the settings)" in chat.send("/compact config").text
    assert "summary model: small (the plugin's settings)" in chat.send("/compact status").text
    assert "(by small)" in chat.send("/compact min 4").texts[-1]


def test_a_set_after_a_change_in_the_panel_keeps_that_change(owner: Bot, chat: WebChat) -> None:
    owner.change_plugin_config(min_messages=30)

    chat.send("/compact set keep 0.1")

    assert owner.panel_config()["min_messages"] == 30
    assert owner.panel_config()["keep_recent_ratio"] == 0.1


def test_a_change_in_the_panel_after_a_set_keeps_that_set(owner: Bot, chat: WebChat) -> None:
    chat.send("/compact set keep 0.1")

    owner.save_plugin_config({**owner.panel_config(), "min_messages": 30})

    shown = chat.send("/compact config").text
    assert "keep_recent_ratio = 0.1（配置）" in shown
    assert "min_messages = 30（配置）" in shown


def rows_of(chat: WebChat, config: dict[str, Any]) -> list[dict[str, Any]]:
    """What a config holds for this session alone."""
    return [row for row in config["session_overrides"] if row.get("session") == chat.umo]


def test_here_is_for_this_session_alone(owner: Bot, chat: WebChat) -> None:
    other = WebChat(owner)
    for each in (chat, other):
        each.seed(talk(1, 6))

    reply = chat.send("/compact set line 0.5 limit 40 here").text

    assert reply.startswith(SAVED_HERE)
    assert "- compress_at = 0.5" in reply
    assert "压缩线: 64,000 tokens（窗口的 50%，来自本会话）" in chat.send("/compact status").text
    assert "条数线: 12 / 40 条（来自本会话）" in chat.send("/compact status").text
    assert "压缩线: 102,400 tokens（窗口的 80%，来自默认）" in other.send("/compact status").text
    (row,) = rows_of(chat, owner.panel_config())
    assert (row["compress_at"], row["history_limit"]) == (0.5, 40)
    owner.reload_plugin()
    assert "来自本会话" in chat.send("/compact status").text

    # −1 and default inherit again; a row that says nothing goes.
    assert "- compress_at = （继承）" in chat.send("/compact set line default here").text
    assert "来自默认" in chat.send("/compact status").text
    chat.send("/compact set limit -1 here")
    assert rows_of(chat, owner.plugin_config()) == []


def test_here_switches_off_with_zero(owner: Bot, chat: WebChat) -> None:
    chat.seed(talk(1, 6))

    chat.send("/compact set line 0 here")

    assert "压缩线: 已关闭" in chat.send("/compact status").text
    assert owner.plugin_config()["compress_at"] == 0.8


@pytest.mark.hosts("newest")
def test_layers_of_a_platform_are_shown_where_they_hold(owner: Bot, qq: OneBot) -> None:
    ann = qq.person(1001, "Ann")
    for group in (None, 8501):
        ann.say(FILLER, group=group)
    rows = [
        {"__template_key": "platform", "platform": "qq", "chats": "all", "compress_at": 0.7},
        {"__template_key": "platform", "platform": "qq", "chats": "groups", "compress_at": 0.4},
    ]
    owner.change_plugin_config(session_overrides=rows)

    assert "窗口的 70%，来自本平台）" in ann.say("/compact status")[0]
    assert "窗口的 40%，来自本平台群聊）" in ann.say("/compact status", group=8501)[0]


ODD = {
    "keep_recent_ratio": ("0.2", "keep · keep_recent_ratio = 0.2（配置）"),
    "min_messages": ("", "min · min_messages = 4（默认）"),
    "auto_compact": ("false", "auto · auto_compact = off（配置）"),
    "compress_at": ("80%", "line · compress_at = 0.8（默认）"),
    "summary_timeout": (None, "timeout · summary_timeout = 180（默认）"),
    "summary_max_chars": ("许多", "chars · summary_max_chars = 800（默认）"),
    "template": ("poem", "template = auto（默认）"),
    "show_summary": ([], "summary · show_summary = on（默认）"),
    "default_focus": ({}, "focus · default_focus = （空）（默认）"),
    "summary_extra_body": ("not JSON", "summary_extra_body = （空）（默认）"),
    "session_overrides": ("everything", ""),
}


def test_odd_values_in_the_file_are_mended_with_one_warning_each(owner: Bot, chat: WebChat) -> None:
    """CASE 12."""
    chat.seed(talk(1, 6))
    before = owner.log()
    owner.write_plugin_config({key: value for key, (value, _) in ODD.items()})
    owner.reload_plugin()

    shown = chat.send("/compact config").text
    warnings = [line for line in owner.log()[len(before) :].splitlines() if "setting " in line]
    for key, (value, line) in ODD.items():
        assert line in shown
        if value is None:
            continue  # AstrBot puts the default there before anybody sees it
        (warning,) = [each for each in warnings if f"setting {key}: " in each]
        assert "WARN" in warning
        assert repr(value) in warning
    assert len(warnings) == len(ODD) - 1
    assert DONE in chat.send("/compact").texts[-1]
    assert is_compacted(chat.row().messages)


def test_a_file_that_cannot_be_written_is_said_and_the_values_hold(
    owner: Bot, chat: WebChat
) -> None:
    path = owner.data / "config" / f"{owner.plugin_name}_config.json"
    path.rename(path.with_suffix(".away"))
    path.mkdir()
    try:
        reply = chat.send("/compact set min 30").text
    finally:
        path.rmdir()
        path.with_suffix(".away").rename(path)

    assert reply.startswith("⚠️ 配置文件写入失败")
    assert "重启后会丢失" in reply
    assert "- min_messages = 30" in reply
    assert "min_messages = 30" in chat.send("/compact config").text
    owner.reload_plugin()
    assert "min_messages = 4（默认）" in chat.send("/compact config").text


def test_the_extra_body_is_in_the_summary_request_alone(owner: Bot, chat: WebChat) -> None:
    chat.seed(talk(1, 6))

    body = json.dumps({"reasoning_effort": "low", "nested": {"a": [1]}})
    assert SAVED in chat.send(f"/compact set summary_extra_body '{body}'").text
    chat.send("/compact")
    chat.send("hello")

    request = owner.model.summaries[0].body
    assert (request["reasoning_effort"], request["nested"]) == ("low", {"a": [1]})
    assert request["max_tokens"] > 0
    assert "reasoning_effort" not in owner.model.chats[0].body


def test_a_configured_provider_that_is_gone_is_named(owner: Bot, chat: WebChat) -> None:
    """CASE 8."""
    chat.seed(talk(1, 6))
    chat.send("/compact set provider gone")

    for command in ("status", "preview"):
        reply = chat.send(f"/compact {command}").text
        assert "⚠️ 已跳过插件配置里的 gone：没有这个模型，改用 bed" in reply
    reply = chat.send("/compact").texts[-1]
    assert "⚠️ 已跳过插件配置里的 gone：没有这个模型，改用 bed" in reply
    assert "(使用 bed 生成)" in reply
