"""What is typed and what comes back: the commands of spec 5 in the web chat and on QQ."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from tests.bed import Bot, OneBot, WebChat, fail
from tests.conftest import StartBot
from tests.e2e.histories import (
    FILLER,
    archived,
    assistant,
    calls,
    delete_row,
    is_compacted,
    is_summary_request,
    marks,
    raw_messages,
    result,
    roles,
    talk,
    text_of,
    untouched,
    user,
    without_checkpoints,
)

DONE = re.compile(
    r"✅ 压缩完成: (?P<before>\d+) → (?P<after>\d+) 条消息。\(使用 bed 生成\)\n"
    r"约 (?P<tokens_before>[\d,]+) → (?P<tokens_after>[\d,]+) tokens \(-\d+%\)"
    r"( · (工作|聊天)模板)? · 保留原文 \d+ 条 · 1 次请求 · #1\n"
    r"📝 摘要预览:\n(?P<summary>(.|\n)+)\n"
    r"↩️ /compact undo 可撤销"
)
START = "⏳ 正在压缩…"
NO_CONVERSATION = "当前没有对话"
ANSWERS = {
    "preview": "🔍 压缩预览（没有调用模型）",
    "preview 重点": "🔍 压缩预览（没有调用模型）",
    "status": "📊 会话状态",
    "config": "⚙️ 当前配置",
    "set": "❌ 没有保存任何设置:",
    "help": "/compact preview",
}
RUNS = ("", "run", "重点 在 预算", "run 重点 在 预算", "keep 0.1", "run keep 0.1 预算")
# What people type as focus, and what of it must reach the summary model.
FOCUSES = {
    "保留 所有 代码 片段": "保留 所有 代码 片段",
    "保留\u3000所有\u3000代码": "保留 所有 代码",
    "重点🚀 和 👩‍👩‍👧": "重点🚀 和 👩‍👩‍👧",
    "“发布 计划” 与 预算": "发布 计划 与 预算",
    "「发布 计划」 与 预算": "发布 计划 与 预算",
    "他说“好” 就 好": "他说“好” 就 好",
    "--keep 0.2 鉴权": "--keep 0.2 鉴权",
    "line up the plans": "line up the plans",
    "第一行\n第二行": "第一行 第二行",
}


@pytest.mark.parametrize("command", ANSWERS)
def test_a_command_answers_at_once_and_asks_no_model(bot: Bot, chat: WebChat, command: str) -> None:
    chat.seed(talk(1, 6))

    with untouched(bot, chat.umo):
        turn = chat.send(f"/compact {command}")

    assert len(turn.texts) == 1
    assert ANSWERS[command] in turn.text
    assert bot.model.requests == []


@pytest.mark.parametrize("command", RUNS)
def test_every_form_of_a_run_compacts_with_one_request(
    bot: Bot, chat: WebChat, command: str
) -> None:
    chat.seed(talk(1, 6))

    turn = chat.send(f"/compact {command}".strip())

    assert turn.texts[0] == START
    assert DONE.fullmatch(turn.texts[1])
    assert len(turn.texts) == 2
    assert [request.kind for request in bot.model.requests] == ["summary"]
    assert is_compacted(chat.row().messages)


def test_the_numbers_of_the_reply_are_those_of_the_rows(bot: Bot, chat: WebChat) -> None:
    chat.seed(talk(1, 6))

    done = DONE.fullmatch(chat.send("/compact").texts[1])

    assert done is not None
    assert int(done["before"]) == 12
    assert int(done["after"]) == len(without_checkpoints(chat.row().messages))
    status = chat.send("/compact status").text
    assert f"历史: {done['after']} 条消息，约 {done['tokens_after']} tokens" in status
    assert f"上次压缩: #1，刚刚，手动，12 → {done['after']} 条" in status
    assert done["summary"] in text_of(chat.row().messages)


def test_status_counts_the_archived_messages_without_checkpoints(bot: Bot, chat: WebChat) -> None:
    for number in range(1, 7):
        chat.send(f"第 {number} 件事。{FILLER * 4}")

    chat.send("/compact")

    assert "归档: 1 次压缩，10 条消息，" in chat.send("/compact status").text


def test_the_next_turn_sees_the_summary_and_the_kept_round(bot: Bot, chat: WebChat) -> None:
    chat.seed(talk(1, 6))
    chat.send("/compact")

    turn = chat.send("know? FACT-1 FACT-5 FACT-6 FACT-9")

    assert turn.text == "known: FACT-1 FACT-5 FACT-6; unknown: FACT-9"
    assert len(bot.model.chats[-1].dialog) == 5


def test_a_preview_counts_what_a_run_then_does(bot: Bot, chat: WebChat) -> None:
    chat.seed(talk(1, 6))

    preview = chat.send("/compact preview keep 0.3").text

    planned = re.search(r"12 条消息：归档 (\d+) 条，保留原文至少 (\d+) 条", preview)
    assert planned is not None
    chat.send("/compact keep 0.3")
    assert len(archived(bot, chat.row().cid)) == int(planned[1])
    assert int(planned[1]) + int(planned[2]) == 12
    # The head pair is new, the rest is what the preview said stays.
    assert len(without_checkpoints(chat.row().messages)) == 2 + int(planned[2])


@pytest.mark.hosts("newest")
@pytest.mark.parametrize("typed", FOCUSES)
def test_the_whole_focus_reaches_the_summary_model(bot: Bot, chat: WebChat, typed: str) -> None:
    """CASE 13."""
    chat.seed(talk(1, 6))

    chat.send(f"/compact {typed}")

    (request,) = bot.model.summaries
    assert FOCUSES[typed] in request.text


def test_full_width_digits_and_spaces_are_read(bot: Bot, chat: WebChat) -> None:
    """CASE 13."""
    chat.seed(talk(1, 6))

    chat.send("/compact\u3000keep\u3000０\u3000预算")

    (request,) = bot.model.summaries
    assert "预算" in request.text
    assert "keep" not in request.text
    assert roles(chat.row().messages) == "UA_"


def test_a_default_focus_is_used_and_a_run_s_own_comes_first(bot: Bot, chat: WebChat) -> None:
    chat.seed(talk(1, 6))

    chat.send("/compact focus 鉴权重构")
    chat.send("/compact min 1 keep 0 focus 鉴权重构 补充说明")

    first, second = bot.model.summaries
    assert "鉴权重构" in first.text
    assert "补充说明" in second.text
    assert "鉴权重构" not in second.text


def test_options_that_cannot_be_read_are_named_and_the_run_goes_on(bot: Bot, chat: WebChat) -> None:
    chat.seed(talk(1, 6))

    reply = chat.send("/compact min 几个 chars -3 预算 keep").texts[-1]

    assert "⚠️ 已忽略: min 的值 几个 不可用" in reply
    assert "⚠️ 已忽略: chars 的值 -3 不可用" in reply
    assert "⚠️ 已忽略: keep 缺少值" in reply
    assert "✅ 压缩完成" in reply
    assert "预算" in bot.model.summaries[0].text


def test_a_keep_ratio_over_the_bound_is_the_bound(bot: Bot, chat: WebChat) -> None:
    chat.seed(talk(1, 12))

    over = chat.send("/compact preview keep 2.0").text

    assert over == chat.send("/compact preview keep 0.3").text
    assert over != chat.send("/compact preview keep 0.1").text


def test_the_summary_is_shown_as_asked(bot: Bot, chat: WebChat) -> None:
    chat.seed(talk(1, 6))
    assert "📝" not in chat.send("/compact summary off").text
    chat.seed(talk(1, 6))
    bot.model.on_summary("## 最近在聊什么\n## 目标\n👩‍👩‍👧 甲乙丙丁戊己庚辛" + "，然后照着做" * 20)

    shown = chat.send("/compact chars 30").texts[1].split("📝 摘要预览:\n")[1].split("\n↩️")[0]

    assert shown.endswith("…")
    assert len(shown) <= 31


def test_too_few_messages_ask_no_model(bot: Bot, chat: WebChat) -> None:
    chat.seed(talk(1, 6))

    with untouched(bot, chat.umo):
        reply = chat.send("/compact min 13").text

    assert reply == "无需压缩：对话只有 12 条消息，少于 13 条（min_messages）。"
    assert bot.model.requests == []


@pytest.mark.parametrize("stored", ["[]", "null", ""], ids=["list", "null", "empty"])
def test_an_empty_history_is_too_short(bot: Bot, chat: WebChat, stored: str) -> None:
    chat.seed(stored)

    with untouched(bot, chat.umo):
        assert chat.send("/compact").text.startswith("无需压缩：对话只有 0 条消息")
        assert chat.send("/compact preview").text.startswith("无需压缩：对话只有 0 条消息")
        assert "历史: 0 条消息" in chat.send("/compact status").text


def test_where_all_belongs_to_an_unfinished_tool_call_nothing_is_done(
    bot: Bot, chat: WebChat
) -> None:
    chat.seed([calls("a", "b", "c", "d"), result("a"), result("b"), result("c")])

    with untouched(bot, chat.umo):
        reply = chat.send("/compact keep 0").text

    assert reply.startswith("无需压缩：4 条消息")
    assert bot.model.requests == []


def test_nothing_new_since_the_last_compaction_asks_no_model(bot: Bot, chat: WebChat) -> None:
    chat.seed(talk(1, 12))
    chat.send("/compact keep 0.3")
    assert len(bot.model.summaries) == 1

    with untouched(bot, chat.umo):
        reply = chat.send("/compact").text

    assert reply.startswith("无需压缩：上次压缩之后没有新消息")
    assert "/compact keep 0" in reply
    assert len(bot.model.summaries) == 1
    assert "✅ 压缩完成" in chat.send("/compact keep 0").text


def test_commands_answer_where_nobody_has_talked_yet(bot: Bot, chat: WebChat) -> None:
    for command in ("", " 重点", " run", " preview", " status"):
        assert NO_CONVERSATION in chat.send(f"/compact{command}").text
    assert chat.send("/compact config").text.startswith("⚙️")
    assert chat.send("/compact help").text.startswith("🗜️")

    assert bot.model.requests == []
    assert bot.rows(chat.umo) == []


def test_commands_answer_when_the_current_conversation_is_missing(bot: Bot, chat: WebChat) -> None:
    """Another program deleted the row; AstrBot still names it as current."""
    cid = chat.seed(talk(1, 6))
    delete_row(bot, cid)

    for command in ("", " run", " preview", " status"):
        assert NO_CONVERSATION in chat.send(f"/compact{command}").text

    assert bot.model.requests == []
    assert bot.rows(chat.umo) == []


UNREADABLE = {
    "no JSON": '[{"role": "user", "content": "x"',
    "no list": '{"role": "user", "content": "x"}',
    "no messages": '["hello", 3]',
    "text behind": '[{"role": "user", "content": "x"}] trailing',
}


@pytest.mark.hosts("newest")
@pytest.mark.parametrize("stored", UNREADABLE.values(), ids=UNREADABLE)
def test_a_history_that_cannot_be_read_is_said_and_left_alone(
    bot: Bot, chat: WebChat, stored: str
) -> None:
    chat.seed(stored)

    with untouched(bot, chat.umo):
        for command in ("", " preview", " status"):
            reply = chat.send(f"/compact{command}").text
            assert reply.startswith("❌ 存储的历史读不出来")
            assert "WebUI" in reply

    assert bot.model.requests == []


@pytest.mark.parametrize(
    "said", ["compact cameras, please", "compactor", "/compacted", "we /compact it", "压缩"]
)
def test_talk_in_a_private_chat_goes_to_the_chat_model(bot: Bot, chat: WebChat, said: str) -> None:
    chat.seed(talk(1, 6))

    turn = chat.send(said)

    assert turn.text.startswith("Noted")
    assert said.removeprefix("/") in bot.model.chats[-1].text
    assert bot.model.summaries == []


@pytest.mark.parametrize("typed", ["Status", "ＳＴＡＴＵＳ", "\u200bstatus", "status\u200b"])
def test_a_sub_command_is_known_in_any_letters(bot: Bot, chat: WebChat, typed: str) -> None:
    chat.seed(talk(1, 6))

    assert chat.send(f"/compact {typed}").text.startswith("📊")
    assert bot.model.requests == []


def test_a_topic_may_begin_like_a_sub_command(bot: Bot, chat: WebChat) -> None:
    chat.seed(talk(1, 6))

    assert "✅" in chat.send("/compact Search engine design").texts[-1]
    assert "Search engine design" in bot.model.summaries[-1].text


@pytest.mark.parametrize("typed", ["compact", "compact status", "compact run"])
def test_a_command_needs_no_prefix_in_a_private_chat(bot: Bot, chat: WebChat, typed: str) -> None:
    chat.seed(talk(1, 6))

    assert chat.send(typed).text.startswith(("⏳", "📊"))
    assert bot.model.chats == []


def test_replies_are_in_the_language_of_the_chat(bot: Bot, chat: WebChat) -> None:
    words = "the parser reads one word after the other and keeps what it cannot use "
    chat.seed([m for n in range(6) for m in (user(f"{n} " + words * 5), assistant(words * 5))])

    turn = chat.send("/compact the parser")

    assert turn.texts[0] == "⏳ Compacting…"
    assert turn.texts[1].startswith("✅ Compacted: 12 → ")
    assert "/compact undo takes it back" in turn.texts[1]
    assert chat.send("/compact status language zh").text.startswith("📊 Session status")


def test_a_run_may_be_asked_for_in_another_language(bot: Bot, chat: WebChat) -> None:
    chat.seed(talk(1, 6))

    assert "🔍 Preview" in chat.send("/compact preview language en").text
    turn = chat.send("/compact language en")

    assert turn.texts[0] == "⏳ Compacting…"
    assert turn.texts[1].startswith("✅ Compacted: ")
    assert "Nothing to do" in chat.send("/compact min 99 language en").text
    assert chat.send("/compact search language en 没说过的").text.startswith("归档里没有")
    head = chat.row().messages[0]["content"]
    assert "This summarizes the earlier conversation as background" in head


def test_a_command_is_answered_where_replies_are_streamed(bot: Bot, chat: WebChat) -> None:
    """As the WebUI asks for them unless told otherwise."""
    chat.seed(talk(1, 6))

    turn = chat.send("/compact", streaming=True)

    assert turn.texts[0] == START
    assert DONE.fullmatch(turn.texts[1])
    assert chat.send("/compact status", streaming=True).text.startswith("📊")
    assert chat.send("/compact 重点", streaming=True).text.startswith("无需压缩")
    assert chat.send("know? FACT-1", streaming=True).text == "known: FACT-1; unknown: -"


def test_the_model_picked_in_the_web_chat_is_the_chat_s_model(bot: Bot, chat: WebChat) -> None:
    chat.seed(talk(1, 6))

    status = chat.send("/compact status", provider="small").text
    done = chat.send("/compact", provider="small").texts[-1]

    assert "窗口: 8,000 tokens" in status
    assert "压缩线: 6,400 tokens" in status
    assert "摘要模型: small（会话模型）" in status
    assert "(使用 small 生成)" in done
    assert bot.model.summaries[0].model == "small-model"


@pytest.mark.hosts("newest", "4.25.3")
def test_other_wake_prefixes_are_obeyed_and_said(start_bot: StartBot) -> None:
    """CASE 13. With an empty one among them everything wakes the bot and tells nothing."""
    bot = start_bot(onebot=True, config={"wake_prefix": ["!!", "小助手，", "。", ""]})
    chat = WebChat(bot)

    chat.send("你好")
    for prefix in ("!!", "小助手，", "。", "!! "):
        bot.write_row(chat.umo, talk(1, 6))
        reply = chat.send(f"{prefix}compact 保留 所有🚀 代码").texts[-1]
        assert reply.startswith("✅ 压缩完成")
        assert "!!compact undo 可撤销" in reply
        assert "保留 所有🚀 代码" in bot.model.summaries[-1].text
    assert "!!compact preview" in chat.send("。compact help").text
    # No prefix of this bot, or none at all.
    for said in ("/compact", "/compact 重点", "compact cameras, please"):
        assert chat.send(said).text.startswith("Noted")

    with OneBot(bot) as qq:
        cat = qq.person(4301, "Cat")
        cat.say("你好。" + FILLER, group=7002)
        assert cat.say("。compact status", group=7002, at=False)[0].startswith("📊")
        assert cat.say("compact cameras", group=7002, at=False)[0].startswith("Noted")


# -- on QQ ----------------------------------------------------------------------------------


@pytest.fixture
def group() -> Iterator[int]:
    """A group nobody has used."""
    _GROUPS.append(_GROUPS[-1] + 1)
    return _GROUPS[-1]


_GROUPS = [7000]


def seed_qq(bot: Bot, qq: OneBot, umo: str, first_words: object) -> None:
    """Begin a conversation on QQ (by `first_words`, a call) and give it a history."""
    assert callable(first_words)
    first_words()
    bot.wait_row(umo, lambda row: len(row.messages) > 0)
    bot.write_row(umo, talk(1, 6))


@pytest.mark.hosts("newest")
def test_all_commands_work_in_a_private_chat_on_qq(bot: Bot, qq: OneBot) -> None:
    cat = qq.person(4101, "Cat")
    seed_qq(bot, qq, cat.umo, lambda: cat.say("你好"))
    chats = len(bot.model.chats)

    for command, answer in ANSWERS.items():
        if command != "set":
            assert answer in cat.say(f"/compact {command}")[0]
    assert cat.say("/compact cameras, please", replies=2)[1].startswith("✅ 压缩完成: 12 → ")

    bot.wait_row(cat.umo, lambda row: is_compacted(row.messages))
    assert len(bot.model.chats) == chats
    known = cat.say(f"know? {' '.join(marks(1, 6))}")
    assert known == [f"known: {' '.join(marks(1, 6))}; unknown: -"]


@pytest.mark.hosts("newest")
def test_all_commands_work_in_a_group_on_qq(bot: Bot, qq: OneBot, group: int) -> None:
    ann = qq.person(1001, "Ann", role="owner")
    umo = qq.group_umo(group)
    seed_qq(bot, qq, umo, lambda: ann.say("你好", group=group))
    chats = len(bot.model.chats)

    for command, answer in ANSWERS.items():
        assert answer in ann.say(f"/compact {command}", group=group)[0]
        # The prefix wakes it too.
        assert answer in ann.say(f"/compact {command}", group=group, at=False)[0]
    replies = ann.say("/compact 预算", group=group, at=False, replies=2)

    assert replies[1].startswith("✅ 压缩完成: 12 → ")
    assert len(bot.model.chats) == chats
    assert "预算" in bot.model.summaries[-1].text
    known = ann.say(f"know? {' '.join(marks(1, 6))}", group=group)
    assert known == [f"known: {' '.join(marks(1, 6))}; unknown: -"]


@pytest.mark.hosts("newest")
def test_talk_in_a_group_that_only_looks_like_a_command_is_no_command(
    bot: Bot, qq: OneBot, group: int
) -> None:
    ann = qq.person(1001, "Ann", role="owner")
    seed_qq(bot, qq, qq.group_umo(group), lambda: ann.say("你好", group=group))

    # Not spoken to: said among people.
    ann.post("compact", group=group, at=False)
    ann.post("compact status", group=group, at=False)
    # Spoken to, without a prefix.
    assert ann.say("compact cameras, please", group=group)[0].startswith("Noted")
    assert ann.say("compact status", group=group)[0].startswith("📊")
    assert bot.model.summaries == []


@pytest.mark.hosts("newest")
def test_two_people_s_chats_are_compacted_apart(bot: Bot, qq: OneBot) -> None:
    dan, eve = qq.person(4201, "Dan"), qq.person(4202, "Eve")
    for person in (dan, eve):
        seed_qq(bot, qq, person.umo, lambda person=person: person.say("你好"))
    before = bot.row(eve.umo)

    dan.say("/compact", replies=2)

    assert is_compacted(bot.row(dan.umo).messages)
    assert bot.row(eve.umo) == before


# -- failures every command shares ----------------------------------------------------------


def test_a_failure_names_the_model_and_what_to_do(bot: Bot, chat: WebChat) -> None:
    chat.seed(talk(1, 6))
    bot.model.rule(is_summary_request, fail(403, "no credit left"))

    with untouched(bot, chat.umo):
        reply = chat.send("/compact").texts[-1]

    assert reply.startswith("❌ 模型 bed 出错，历史未改动")
    assert "no credit left" in reply
    assert "/compact provider" in reply


def test_without_any_chat_model_the_reply_says_what_to_set(start_bot: StartBot) -> None:
    bot = start_bot(config={"provider": []})
    chat = WebChat(bot)
    chat.seed(talk(1, 6))

    with untouched(bot, chat.umo):
        for command in ("", " preview"):
            reply = chat.send(f"/compact{command}").texts[-1]
            assert reply.startswith("❌ 没有可用的聊天模型，历史未改动")
            assert "/compact set provider" in reply
        assert "没有可用的聊天模型" in chat.send("/compact status").text


def test_kept_messages_are_those_stored_to_the_byte(bot: Bot, chat: WebChat) -> None:
    odd = '{"role":"user",  "content": "caf\\u00e9 é 1.0", "x_unknown": {"b": 1.50, "a": [ ]}}'
    last = '{"role": "assistant", "content": "\\ud83d\\ude00 \\/ ok", "cache_control": null}'
    history = raw_messages(json.dumps(talk(1, 6)))
    chat.seed("[" + ",\n ".join([*history, odd, last]) + "]")

    chat.send("/compact keep 0.3")

    assert raw_messages(chat.row().text)[-2:] == [odd, last]
