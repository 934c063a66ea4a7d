"""Who else writes while a summary is made, and what the history then holds (spec 2.7, 3.5)."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.bed import BedError, Bot, Gate, Host, Model, OneBot, Row, Usage, WebChat, say
from tests.bed.aio import wait_for
from tests.bed.webchat import Pending
from tests.conftest import StartBot
from tests.e2e.histories import (
    ACKNOWLEDGEMENT,
    FILLER,
    HEAD,
    archived,
    assert_strict_model_knows,
    assistant,
    checkpoint,
    delete_row,
    is_compacted,
    raw_messages,
    roles,
    talk,
    text_of,
    untouched,
    user,
    without_checkpoints,
)

CLEARED = "压缩期间会话被清空"
CHANGED = "❌ 压缩期间历史被改动"
STOPPED = "压缩已停止，历史未改动。"
BUSY = "这个会话正在压缩"
WAITING = "正在等待当前回复结束…"
SUMMARY = "## 最近在聊什么\n## 目标\nSUMMARY-1 " + FILLER


class InFlight:
    """A `/compact` whose summary request stands at a gate."""

    def __init__(self, chat: WebChat, command: str = "/compact") -> None:
        self.chat = chat
        self.gate: Gate = chat.bot.model.gate()
        chat.bot.model.on_summary(say(SUMMARY, gate=self.gate))
        self.pending: Pending = chat.start(command)
        self.gate.wait_reached()

    def end(self) -> str:
        """Let the model answer; the reply of the command."""
        self.gate.open()
        return self.pending.result().texts[-1]


# -- the swap -------------------------------------------------------------------------------


def test_token_usage_is_zero_in_the_same_write(bot: Bot, chat: WebChat) -> None:
    """CASE 20: whoever looks sees the old history with the old usage, or the new one with 0."""
    chat.seed(talk(1, 6), token_usage=7_400)
    run = InFlight(chat)
    before = chat.row()
    states: set[tuple[bool, int]] = set()

    def is_swapped() -> bool:
        row = chat.row()
        states.add((row.text != before.text, row.token_usage))
        return row.text != before.text

    run.gate.open()
    wait_for(is_swapped, "the swap", every_seconds=0.001)

    run.pending.result()
    assert states <= {(False, 7_400), (True, 0)}
    assert chat.row().token_usage == 0


def test_the_new_history_is_the_pair_a_checkpoint_and_the_tail(bot: Bot, chat: WebChat) -> None:
    for number in range(1, 7):
        chat.send(f"第 {number} 件事的代号是 FACT-{number}。" + FILLER * 4)
    before = chat.row()

    chat.send("/compact")

    after = chat.row()
    head, acknowledgement, fresh, *tail = after.messages
    assert str(head["content"]).startswith(HEAD)
    assert acknowledgement == assistant(ACKNOWLEDGEMENT)
    assert fresh["role"] == "_checkpoint"
    assert fresh not in before.messages
    assert tail == before.messages[-3:]
    assert raw_messages(after.text)[3:] == raw_messages(before.text)[-3:]


def test_what_was_replaced_is_in_the_archive_as_it_was_stored(bot: Bot, chat: WebChat) -> None:
    for number in range(1, 7):
        chat.send(f"第 {number} 件事的代号是 FACT-{number}。" + FILLER * 4)
    before = raw_messages(chat.row().text)

    chat.send("/compact")

    assert [message.raw for message in archived(bot, chat.row().cid)] == before[:-3]


def test_leading_system_messages_stay_in_front(bot: Bot, chat: WebChat) -> None:
    front = [{"role": "system", "content": "你是一位助手。"}, {"role": "system", "content": "规则"}]
    chat.seed([*front, *talk(1, 6)])

    chat.send("/compact")

    assert chat.row().messages[:2] == front
    assert is_compacted(chat.row().messages[2:])


def test_a_second_compaction_folds_the_first_summary_in(bot: Bot, chat: WebChat) -> None:
    chat.seed(talk(1, 6))
    chat.send("/compact")
    chat.seed([*chat.row().messages, *talk(7, 12)])

    reply = chat.send("/compact").texts[-1]

    assert "#2" in reply or "#1" in reply
    history = chat.row().messages
    assert text_of(history).count(HEAD) == 1
    assert_strict_model_knows(chat, "FACT-1", "FACT-5", "FACT-7", "FACT-12")


# -- two at once, messages and writers during the call --------------------------------------


def test_two_at_once_make_one_model_call(bot: Bot, chat: WebChat) -> None:
    chat.seed(talk(1, 6))
    run = InFlight(chat)

    assert BUSY in chat.send("/compact").text
    assert BUSY in chat.send("/compact keep 0 别的").text
    assert "⏳ 正在压缩" in chat.send("/compact status").text

    assert "✅ 压缩完成" in run.end()
    assert len(bot.model.summaries) == 1


def test_of_many_sent_in_the_same_moment_one_runs(bot: Bot, chat: WebChat) -> None:
    chat.seed(talk(1, 6))
    gate = bot.model.gate()
    bot.model.on_summary(say(SUMMARY, gate=gate))

    turns = [chat.start("/compact") for _ in range(5)]
    gate.wait_reached()
    wait_for(lambda: sum(turn.done for turn in turns) == 4, "the four that are refused")
    gate.open()

    replies = [turn.result().texts[-1] for turn in turns]
    assert sum("✅ 压缩完成" in reply for reply in replies) == 1
    assert sum(BUSY in reply for reply in replies) == 4
    assert len(bot.model.summaries) == 1


def test_other_sessions_are_not_held_up(bot: Bot, chat: WebChat) -> None:
    other = WebChat(bot)
    other.seed(talk(1, 6))
    chat.seed(talk(1, 6))
    run = InFlight(chat)

    assert "✅ 压缩完成" in other.send("/compact").texts[-1]

    assert "✅ 压缩完成" in run.end()


def test_a_message_during_the_call_is_answered_and_survives(bot: Bot, chat: WebChat) -> None:
    chat.seed(talk(1, 6))
    run = InFlight(chat)

    assert chat.send("the new one is FACT-77").text.startswith("Noted")
    newcomers = chat.row().messages[12:]
    reply = run.end()

    assert "✅ 压缩完成: 14 → 6 条消息" in reply
    history = chat.row().messages
    assert is_compacted(history)
    assert history[-3:] == newcomers
    assert text_of(history).count("FACT-77") == 1
    assert_strict_model_knows(chat, "SUMMARY-1", "FACT-6", "FACT-77")


def test_messages_another_writer_appends_survive(bot: Bot, chat: WebChat) -> None:
    chat.seed(talk(1, 6))
    run = InFlight(chat)
    extra = [user("加一句 FACT-88"), assistant("好"), checkpoint("of another writer")]
    bot.write_row(chat.umo, [*talk(1, 6), *extra], token_usage=55)

    assert "✅ 压缩完成" in run.end()

    assert chat.row().messages[-3:] == extra
    assert chat.row().token_usage == 0


def test_an_edit_in_the_webui_during_the_call_wins(bot: Bot, chat: WebChat) -> None:
    cid = chat.seed(talk(1, 6))
    run = InFlight(chat)
    edited = talk(1, 6)
    edited[2] = user("改过的话")
    bot.edit_conversation(chat.umo, cid, edited)

    with untouched(bot, chat.umo):
        reply = run.end()

    assert reply.startswith(CHANGED)
    assert "再试一次" in reply
    assert chat.row().messages[2]["content"] == "改过的话"


@pytest.mark.parametrize("dropped", [slice(0, 2), slice(4, 6), slice(0, 11)])
def test_a_span_that_lost_messages_during_the_call_is_left_alone(
    bot: Bot, chat: WebChat, dropped: slice
) -> None:
    chat.seed(talk(1, 6))
    run = InFlight(chat)
    fewer = talk(1, 6)
    del fewer[dropped]
    bot.write_row(chat.umo, fewer)

    with untouched(bot, chat.umo):
        assert run.end().startswith(CHANGED)


def test_a_history_spelled_anew_by_the_host_is_the_same_history(bot: Bot, chat: WebChat) -> None:
    """The host's next save changes key order, spacing and drops what it does not know."""
    stored = [{**message, "unknown_key": 1} for message in talk(1, 6)]
    chat.seed(stored)
    run = InFlight(chat)
    bot.write_row(chat.umo, [dict(reversed(message.items())) for message in talk(1, 6)])

    assert "✅ 压缩完成" in run.end()


def test_an_answer_regenerated_during_the_call_is_taken_as_it_is(bot: Bot, chat: WebChat) -> None:
    for number in range(1, 7):
        chat.send(f"第 {number} 件事的代号是 FACT-{number}。" + FILLER * 4)
    answer = _id_of(chat, "bot", "Noted")
    run = InFlight(chat)
    bot.model.on_chat("the new answer")

    assert chat.regenerate(answer).texts == ["the new answer"]

    assert "✅ 压缩完成" in run.end()
    history = without_checkpoints(chat.row().messages)
    assert roles(history) == "UAUA"
    assert "the new answer" in str(history[-1]["content"])


# -- the running turn -----------------------------------------------------------------------


def test_the_commit_waits_for_a_running_reply_and_says_so(bot: Bot, chat: WebChat) -> None:
    chat.seed(talk(1, 6))
    gate = bot.model.gate()
    bot.model.on_chat(say("here it is", gate=gate))
    turn = chat.start("please answer FACT-66")
    gate.wait_reached()

    run = chat.start("/compact")
    run.wait_said(WAITING)
    assert not is_compacted(chat.row().messages)
    gate.open()

    assert run.result().texts[-1].startswith("✅ 压缩完成: 14 → 6 条消息")
    assert turn.result().texts == ["here it is"]
    history = without_checkpoints(chat.row().messages)
    assert "FACT-66" in text_of(history[-2:])
    assert_strict_model_knows(chat, "FACT-1", "FACT-66")


def test_nothing_is_said_of_waiting_where_no_reply_runs(bot: Bot, chat: WebChat) -> None:
    chat.seed(talk(1, 6))

    assert WAITING not in chat.send("/compact").text


# -- clearing and switching -----------------------------------------------------------------


def _assert_call_ended(bot: Bot) -> None:
    """The one summary request was hung up, though its answer never came."""
    (request,) = bot.model.summaries
    request.wait_ended()
    assert request.hung_up


@pytest.mark.hosts("newest")
@pytest.mark.parametrize("command", ["/reset", "/new", "/stop"])
def test_where_the_host_can_cancel_the_call_ends_at_once(
    bot: Bot, chat: WebChat, command: str
) -> None:
    """CASE 9: the model never answers, the command does."""
    chat.seed(talk(1, 6))
    run = InFlight(chat)

    chat.send(command)

    _assert_call_ended(bot)
    assert run.pending.result().texts[-1] == STOPPED


@pytest.mark.hosts("newest")
def test_after_a_stop_the_history_is_as_it_was_and_can_be_compacted(
    bot: Bot, chat: WebChat
) -> None:
    chat.seed(talk(1, 6))
    with untouched(bot, chat.umo):
        run = InFlight(chat)
        chat.send("/stop")
        assert run.pending.result().texts[-1] == STOPPED

    assert "✅ 压缩完成" in chat.send("/compact").texts[-1]


def _reset(chat: WebChat, cid: str) -> None:
    chat.send("/reset")


def _new(chat: WebChat, cid: str) -> None:
    chat.send("/new")


def _delete(chat: WebChat, cid: str) -> None:
    chat.send("/del")


def _switch(chat: WebChat, cid: str) -> None:
    chat.send(f"/switch {chat.bot.rows(chat.umo)[0].cid}")


def _delete_in_webui(chat: WebChat, cid: str) -> None:
    chat.bot.delete_conversation(chat.umo, cid)


def _empty_in_webui(chat: WebChat, cid: str) -> None:
    chat.bot.edit_conversation(chat.umo, cid, [])


def _delete_behind(chat: WebChat, cid: str) -> None:
    delete_row(chat.bot, cid)


CLEARINGS = [
    _reset,
    _new,
    _delete,
    _switch,
    _delete_in_webui,
    _empty_in_webui,
    _delete_behind,
]


@pytest.mark.parametrize("clear", CLEARINGS, ids=lambda clear: clear.__name__[1:])
def test_nothing_is_written_after_the_conversation_was_cleared_or_left(
    bot: Bot, chat: WebChat, clear: Callable[[WebChat, str], None]
) -> None:
    """CASE 9."""
    chat.seed(talk(21, 22))
    cid = chat.seed(talk(1, 6))
    run = InFlight(chat)
    before = bot.row(chat.umo, cid)
    clear(chat, cid)
    _wait_gone(bot, chat.umo, before)

    with untouched(bot, chat.umo):
        reply = run.end()

    assert reply.startswith((CLEARED, STOPPED))
    assert not any(is_compacted(row.messages) for row in bot.rows(chat.umo))


@pytest.mark.hosts("newest")
def test_the_call_ends_with_its_window(bot: Bot, chat: WebChat) -> None:
    """CASE 9."""
    chat.seed(talk(1, 6))
    run = InFlight(chat)

    chat.delete()

    _assert_call_ended(bot)
    run.pending.result()
    assert bot.rows(chat.umo) == []


def _wait_gone(bot: Bot, umo: str, before: Row) -> None:
    """The host answers a moment before it has written what it says."""
    wait_for(lambda: bot.current_cid(umo) != before.cid or before not in bot.rows(umo), "a clear")


def test_after_a_reset_nothing_of_the_old_talk_reaches_the_model(bot: Bot, chat: WebChat) -> None:
    """CASE 9."""
    chat.seed(talk(1, 6))
    before = chat.row()
    run = InFlight(chat)
    chat.send("/reset")
    _wait_gone(bot, chat.umo, before)
    chat.send("hello again")

    run.end()

    assert chat.send("know? SUMMARY-1 FACT-1 FACT-6").text.startswith("known: -")
    assert bot.model.chats[-1].text.count("hello again") == 1


def test_a_conversation_switched_to_and_back_is_compacted_the_next_time(
    bot: Bot, chat: WebChat
) -> None:
    other = chat.seed(talk(21, 22))
    cid = chat.seed(talk(1, 6))
    run = InFlight(chat)
    chat.send(f"/switch {other}")
    wait_for(lambda: bot.current_cid(chat.umo) != cid, "the switch")
    run.end()
    chat.send(f"/switch {cid}")
    wait_for(lambda: bot.current_cid(chat.umo) == cid, "the switch back")

    assert "✅ 压缩完成" in chat.send("/compact").texts[-1]


@pytest.mark.hosts("newest")
def test_a_reload_ends_the_wait_for_a_running_reply(bot: Bot, chat: WebChat) -> None:
    chat.seed(talk(1, 6))
    gate = bot.model.gate()
    bot.model.on_chat(say("here it is", gate=gate))
    turn = chat.start("please answer FACT-66")
    gate.wait_reached()
    run = chat.start("/compact")
    run.wait_said(WAITING)

    bot.reload_plugin()

    assert run.result().texts[-1] == STOPPED
    gate.open()
    assert turn.result().texts == ["here it is"]
    assert not is_compacted(chat.row().messages)
    assert "FACT-66" in text_of(chat.row().messages)


# -- regenerate and edit after a compaction -------------------------------------------------


def _grown(chat: WebChat) -> None:
    for number in range(1, 7):
        chat.send(f"第 {number} 件事的代号是 FACT-{number}。" + FILLER * 4)


def _id_of(chat: WebChat, kind: str, text: str) -> int:
    """The window's last message of this kind that holds the text."""
    return [id_ for id_, said in chat.stored(kind) if text in said][-1]


def test_regenerate_after_a_compaction_leaves_the_summary(bot: Bot, chat: WebChat) -> None:
    _grown(chat)
    answer = _id_of(chat, "bot", "Noted")
    chat.send("/compact")
    head = chat.row().messages[:3]
    bot.model.on_chat("the second answer", "the third answer")

    assert chat.regenerate(answer).texts == ["the second answer"]
    assert chat.row().messages[:3] == head
    assert chat.regenerate(_id_of(chat, "bot", "the second")).texts == ["the third answer"]

    history = chat.row().messages
    assert history[:3] == head
    assert roles(history) == "UA_UA_"
    assert "the third answer" in str(history[4]["content"])
    assert_strict_model_knows(chat, "FACT-1", "FACT-6")


def test_edit_after_an_automatic_compaction_leaves_the_summary(bot: Bot, chat: WebChat) -> None:
    """After one by hand its own command is the latest message, which alone can be edited."""
    chat.seed(talk(1, 20))
    chat.send("/compact set line 2000 here")
    bot.model.usage = lambda request, _: Usage(2_500 if len(request.dialog) > 30 else 300, 5)
    chat.send("it is FACT-60" + FILLER * 4)
    bot.wait_row(chat.umo, lambda row: is_compacted(row.messages))
    head = chat.row().messages[:3]

    chat.edit("it is FACT-61 now", _id_of(chat, "user", "FACT-60"))

    history = chat.row().messages
    assert history[:3] == head
    assert roles(history) == "UA_UA_"
    assert_strict_model_knows(chat, "FACT-1", "FACT-61")
    assert "FACT-60" not in bot.model.chats[-1].text


def test_a_turn_after_a_compaction_can_be_edited(bot: Bot, chat: WebChat) -> None:
    _grown(chat)
    chat.send("/compact")
    kept = chat.row().messages
    chat.send("one more, FACT-70")

    chat.edit("one more, FACT-71")

    assert chat.row().messages[: len(kept)] == kept
    assert roles(chat.row().messages) == "UA_UA_UA_"
    assert_strict_model_knows(chat, "FACT-1", "FACT-6", "FACT-71")
    assert "FACT-70" not in bot.model.chats[-1].text


def test_a_turn_after_a_compaction_of_everything_can_be_made_anew(bot: Bot, chat: WebChat) -> None:
    _grown(chat)
    chat.send("/compact keep 0")
    head = chat.row().messages
    assert roles(head) == "UA_"
    chat.send("one more, FACT-7")
    bot.model.on_chat("made anew")

    assert chat.regenerate().texts == ["made anew"]

    assert chat.row().messages[:3] == head
    assert roles(chat.row().messages) == "UA_UA_"


def test_an_answer_that_went_into_the_summary_cannot_be_made_anew(bot: Bot, chat: WebChat) -> None:
    _grown(chat)
    answer = _id_of(chat, "bot", "Noted")
    chat.send("/compact keep 0")

    with untouched(bot, chat.umo), pytest.raises(BedError):
        chat.regenerate(answer)


# -- reload, shutdown, the archive ----------------------------------------------------------


@pytest.mark.hosts("newest", "4.25.3")
def test_a_reload_and_the_end_of_the_process_end_the_call(start_bot: StartBot) -> None:
    """CASE 28, by hand: no late write, nothing left behind."""
    bot = start_bot()
    chat = WebChat(bot)
    chat.seed(talk(1, 6))
    with untouched(bot, chat.umo):
        run = InFlight(chat)
        bot.reload_plugin()
        _assert_call_ended(bot)
        assert run.pending.result().texts[-1] == STOPPED
        run.gate.open()

        bot.model.reset()
        run = InFlight(chat)
        bot.stop()
        _assert_call_ended(bot)
        run.gate.open()

    assert "Task was destroyed" not in bot.log()
    # A frame of ours in a traceback; AstrBot itself may print its own at the end.
    assert not re.search(rf'File ".*{bot.plugin_name}.*", line', bot.log())
    assert archived(bot, chat.row().cid) == []


@pytest.mark.hosts("newest")
def test_without_an_archive_nothing_is_compacted_until_it_is_repaired(
    host: Host, model: Model, tmp_path: Path
) -> None:
    bot = Bot(tmp_path / "bot", model, host)
    (bot.plugin_data / "archive.db").mkdir(parents=True)
    with bot:
        chat = WebChat(bot)
        chat.seed(talk(1, 6))

        with untouched(bot, chat.umo):
            reply = chat.send("/compact").texts[-1]
            assert reply.startswith("❌ 归档无法读写，历史未改动。请检查磁盘空间和权限")
            assert chat.send("/compact config").text.startswith("⚙️")
            assert "⚠️ 归档异常" in chat.send("/compact status").text
        assert chat.send("and the chat?").text.startswith("Noted")
        assert model.summaries == []

        (bot.plugin_data / "archive.db").rmdir()
        assert "✅ 压缩完成" in chat.send("/compact").texts[-1]


@pytest.mark.hosts("newest")
def test_an_archive_that_cannot_be_written_keeps_the_history(bot: Bot, chat: WebChat) -> None:
    chat.seed(talk(1, 6), token_usage=700)
    (path,) = bot.archive_files()
    run = InFlight(chat)

    with untouched(bot, chat.umo), closing(sqlite3.connect(path, timeout=20)) as db:
        db.execute("BEGIN IMMEDIATE")
        reply = run.end()

    assert reply.startswith("❌ 归档无法读写，历史未改动。请检查磁盘空间和权限")
    assert archived(bot, chat.row().cid) == []
    assert "✅ 压缩完成" in chat.send("/compact").texts[-1]


@pytest.mark.hosts("newest")
def test_a_group_s_compaction_survives_talk_meanwhile(bot: Bot, qq: OneBot) -> None:
    group = 7900
    ann, bob = qq.person(1001, "Ann", role="owner"), qq.person(2002, "Bob")
    umo = qq.group_umo(group)
    ann.say("你好", group=group)
    bot.wait_row(umo, lambda row: len(row.messages) > 0)
    bot.write_row(umo, talk(1, 6))
    gate = bot.model.gate()
    bot.model.on_summary(say(SUMMARY, gate=gate))
    ann.post("/compact", group=group)
    gate.wait_reached()

    bob.say("mine is FACT-90", group=group, replies=1)
    bot.wait_row(umo, lambda row: "FACT-90" in (row.text or ""))
    gate.open()

    bot.wait_row(umo, lambda row: is_compacted(row.messages) and "FACT-90" in (row.text or ""))
