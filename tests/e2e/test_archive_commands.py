"""Nothing is lost: undo, search, recall, and crashes in the middle (spec 4)."""

from __future__ import annotations

import random
import secrets
import sqlite3
from contextlib import closing
from typing import Any

import pytest

from tests.bed import Bot, Model, OneBot, WebChat, call, say
from tests.bed.aio import wait_for
from tests.bed.hosts import ROOT
from tests.conftest import StartBot
from tests.e2e.histories import talk

# The ends of the supported range; what commands and commits need of a host is tried on all.
pytestmark = pytest.mark.hosts("newest", "4.25.3")

STAGES = ("before_archive", "archived", "before_swap", "swapped", "settled")
CRASH = {"astrbot_plugin_crash": ROOT / "tests" / "bed" / "plugins" / "astrbot_plugin_crash"}
SECTIONS = "## 目标\n聊天\n## 做过的决定\n无\n## 改过的文件\n无\n## 未完成的事\n无"


def rounds(count: int, word: str = "轮") -> list[dict[str, Any]]:
    """A history with keys the host does not know and a checkpoint a round."""
    messages: list[dict[str, Any]] = []
    for n in range(count):
        messages.append({"role": "user", "content": f"{word}{n}：说点什么，" * 8})
        messages.append({"role": "assistant", "content": f"答{n}：好的，" * 8})
        messages.append({"role": "_checkpoint", "content": {"id": f"{word}-{n}"}})
    return messages


def test_three_undos_take_three_compactions_back(bot: Bot, chat: WebChat) -> None:
    bot.model.defaults["summary"] = SECTIONS
    first = rounds(4)
    chat.seed(first)
    talk: list[dict[str, Any]] = []
    for step in range(3):
        assert "✅" in chat.send("/compact keep 0").text
        if step < 2:
            talk += rounds(3, f"话{step}")
            row = chat.row()
            bot.write_row(chat.umo, [*row.messages, *rounds(3, f"话{step}")])

    replies = [chat.send("/compact undo").text for _ in range(4)]

    assert [f"#{n}" in reply for n, reply in zip((3, 2, 1), replies, strict=False)] == [True] * 3
    assert "没有可以撤销的压缩" in replies[3]
    assert chat.row().messages == [*first, *talk]


def test_what_was_said_since_stays_behind_the_restored_messages(bot: Bot, chat: WebChat) -> None:
    bot.model.defaults["summary"] = SECTIONS
    first = rounds(4)
    chat.seed(first, token_usage=9_999)
    chat.send("/compact keep 0")
    chat.send("说在压缩之后")

    chat.send("/compact undo")

    messages = chat.row().messages
    assert messages[: len(first)] == first
    assert "说在压缩之后" in str(messages[len(first)])
    assert chat.row().token_usage == 0


def test_an_undo_after_a_reset_or_elsewhere_changes_nothing(bot: Bot, chat: WebChat) -> None:
    bot.model.defaults["summary"] = SECTIONS
    chat.seed(rounds(4))
    compacted = chat.row().cid
    chat.send("/compact keep 0")

    chat.send("/new")
    chat.send("另一个对话")
    assert "没有可以撤销" in chat.send("/compact undo").text
    chat.send(f"/switch {compacted}")
    chat.send("/reset")

    refused = chat.send("/compact undo").text
    # In 4.28.1 a reset only begins another conversation.
    assert "没有可以撤销" in refused if bot.host.version == "4.28.1" else "清空" in refused
    assert chat.row().messages == []
    if bot.host.version != "4.28.1":
        chat.send("清空之后说的")
        assert "清空" in chat.send("/compact undo").text
        assert "清空" in chat.send("/compact show").text


def test_a_head_that_was_edited_is_not_undone(bot: Bot, chat: WebChat) -> None:
    bot.model.defaults["summary"] = SECTIONS
    chat.seed(rounds(4))
    chat.send("/compact keep 0")
    changed = chat.row().messages
    changed[0]["content"] += "（改过）"
    bot.edit_conversation(chat.umo, chat.row().cid, changed)
    before = chat.row()

    assert "不能撤销 #1" in chat.send("/compact undo").text
    assert chat.row() == before


def test_a_needle_is_recalled_verbatim_and_found(bot: Bot, chat: WebChat) -> None:
    # Of letters alone: a code with digits is an identifier, and the summary keeps those.
    code = "".join(secrets.choice("bcdfghjkmnpqrstvwxz") for _ in range(10))
    said = f"保险箱的代码是 {code}，别忘了"
    bot.model.defaults["summary"] = SECTIONS
    history = rounds(24)
    history[0]["content"] = said
    chat.seed(history)
    chat.send("/compact keep 0")
    assert code not in chat.row().text

    bot.model.on_chat(
        call("recall_archived_messages", {"query": "保险箱 代码"}),
        lambda request: say(next(m["content"] for m in request.messages if m["role"] == "tool")),
    )
    answer = chat.send("保险箱的代码是什么？").text

    assert said in answer
    assert code in chat.send(f"/compact search {code}").text
    assert code in chat.send("/compact search 保险").text


@pytest.mark.parametrize(
    "query",
    ["%", "*", '"', "' OR 1=1 --", "NEAR(秘 密)", "秘*", "text:秘密", "秘密", "\\", "SECRET-1"],
)
def test_nothing_of_another_conversation_is_found(bot: Bot, chat: WebChat, query: str) -> None:
    other = WebChat(bot)
    bot.model.defaults["summary"] = SECTIONS
    history = rounds(4)
    history[0]["content"] = "秘密 SECRET-1 只在那边"
    other.seed(history)
    other.send("/compact keep 0")
    chat.seed(rounds(4))
    chat.send("/compact keep 0")

    found = chat.send(f"/compact search {query}").text
    bot.model.on_chat(
        call("recall_archived_messages", {"query": query, "limit": 20}),
        lambda request: say(str(request.messages[-1]["content"])),
    )
    recalled = chat.send("找一下").text

    assert "SECRET-1 只在那边" not in found + recalled


def test_the_tool_is_offered_only_where_it_can_help(bot: Bot, chat: WebChat) -> None:
    bot.model.defaults["summary"] = SECTIONS
    chat.send("还没有归档")
    assert "recall_archived_messages" not in bot.model.chats[-1].tool_names
    chat.seed(rounds(4))
    chat.send("/compact keep 0")

    chat.send("现在有了")
    assert "recall_archived_messages" in bot.model.chats[-1].tool_names
    chat.send("/reset")
    chat.send("又没有了")
    assert "recall_archived_messages" not in bot.model.chats[-1].tool_names


def test_forget_asks_first_and_leaves_the_summary_in_the_history(bot: Bot, chat: WebChat) -> None:
    bot.model.defaults["summary"] = SECTIONS
    chat.seed(rounds(4))
    chat.send("/compact keep 0")
    before = chat.row()

    assert "确认" in chat.send("/compact forget").text
    assert "找到" in chat.send("/compact search 说点").text
    assert "🗑️" in chat.send("/compact forget 确认").text

    assert "没有找到" in chat.send("/compact search 说点").text
    assert "没有可以撤销" in chat.send("/compact undo").text
    assert chat.row().text == before.text


@pytest.mark.hosts("newest")
def test_what_belongs_to_an_unreadable_history_can_be_forgotten(bot: Bot, chat: WebChat) -> None:
    chat.seed(talk(1, 4))
    chat.send("/compact keep 0")
    broken = '[{"role": "user"'
    bot.write_row(chat.umo, broken)
    of_this = """SELECT count(*) FROM compaction AS c JOIN conversation AS v
                 ON v.id = c.conversation_id WHERE v.cid = ?"""
    assert bot.archive_rows(of_this, chat.row().cid.encode()) == [(1,)]

    assert "🗑️" in chat.send("/compact forget 确认").text

    assert bot.archive_rows(of_this, chat.row().cid.encode()) == [(0,)]
    assert chat.row().text == broken


@pytest.mark.hosts("newest")
def test_a_compaction_older_than_archive_days_is_not_undone(start_bot: StartBot) -> None:
    """Its messages are erased: taking it back would lose the summary too."""
    bot = start_bot(plugin_config={"archive_days": 1})
    chat = WebChat(bot)
    chat.seed(talk(1, 6))
    assert "✅" in chat.send("/compact keep 0").text
    chat.send("后来说的")
    bot.stop()
    with closing(sqlite3.connect(bot.archive_files()[0])) as archive:
        archive.execute("UPDATE batch SET created_seconds = created_seconds - 3 * 86400")
        archive.commit()
    bot.start()
    wait_for(lambda: bot.archive_rows("SELECT erased FROM compaction") == [(1,)], "the sweep")
    before = chat.row().text

    assert "archive_days" in chat.send("/compact undo").text

    assert chat.row().text == before
    assert "FACT-1" in chat.send("/compact show").text


@pytest.mark.hosts("newest")
def test_in_a_group_the_archive_is_for_admins(bot: Bot, qq: OneBot) -> None:
    group = random.randint(10**6, 10**7)
    admin, member = qq.person(1001, "Ann"), qq.person(2002, "Bob")
    for word in ("undo", "show", "history", "search 词", "forget 确认"):
        (refused,) = member.say(f"/compact {word}", group=group)
        assert "🔒" in refused, word
    (answer,) = admin.say("/compact history", group=group)
    assert "🔒" not in answer


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.hosts("newest", "4.25.3")
def test_a_kill_at_any_stage_leaves_the_old_or_the_new_history(
    start_bot: StartBot, model: Model, stage: str
) -> None:
    model.defaults["summary"] = SECTIONS
    bot = start_bot(extra_plugins=CRASH)
    chat = WebChat(bot)
    first = rounds(6)
    chat.seed(first)
    chat.send(f"/crash_at {stage}")
    pending = chat.start("/compact keep 0")
    bot.wait()
    bot.kill9()
    del pending

    bot.start()
    messages = chat.row().messages
    happened = stage in ("swapped", "settled")

    assert (messages != first) is happened
    reply = chat.send("/compact undo").text
    assert ("↩️" in reply) is happened
    assert chat.row().messages == first
    assert "正常" in chat.send("/compact status").text
    assert bot.archive_rows("PRAGMA quick_check") == [("ok",)]


@pytest.mark.hosts("newest")
def test_a_damaged_archive_refuses_compaction_and_the_chat_goes_on(
    start_bot: StartBot, model: Model
) -> None:
    model.defaults["summary"] = SECTIONS
    bot = start_bot()
    chat = WebChat(bot)
    chat.seed(rounds(4))
    chat.send("/compact keep 0")
    bot.stop()
    (path,) = bot.archive_files()
    for leftover in path.parent.glob(path.name + "-*"):
        leftover.unlink()
    path.write_bytes(b"this is no database, " * 400)
    bot.start()
    bot.write_row(chat.umo, [*chat.row().messages, *rounds(4, "新")])
    before = chat.row()

    assert "归档无法读写" in chat.send("/compact keep 0").text
    assert chat.row() == before
    assert "⚠️ 归档异常" in chat.send("/compact status").text
    assert chat.send("还能聊吗").texts
    assert path.read_bytes().startswith(b"this is no database")
