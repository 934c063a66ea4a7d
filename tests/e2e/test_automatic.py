"""Automatic compaction in the background, on a real AstrBot (spec 3.1 to 3.3, 3.6 to 3.8)."""

from __future__ import annotations

import pytest

from tests.bed import Bot, OneBot, Reply, Request, Usage, WebChat, call, fail, say
from tests.bed.bot import Provider
from tests.conftest import StartBot
from tests.e2e.histories import (
    FILLER,
    assistant,
    calls,
    is_compacted,
    is_summary_request,
    result,
    talk,
    text_of,
    user,
    without_checkpoints,
)
from tests.e2e.lines import (
    NOTICE,
    SMALL,
    UNDER_LINE,
    Judged,
    a_line,
    answered,
    at_line,
    compactions,
    ours,
    reach_line,
    wait_compacted,
    wait_idle,
)

# -- when -----------------------------------------------------------------------------------


def test_a_turn_at_the_line_is_compacted_after_it_and_answered_before(
    bot: Bot, chat: WebChat
) -> None:
    """The reply does not wait for the summary, whose model stands at a gate."""
    at_line(chat)
    gate = bot.model.gate()
    bot.model.on_summary(say("## 目标\nSUMMARY-1 " + FILLER, gate=gate))

    turn = reach_line(chat)
    gate.wait_reached()

    assert turn.texts == ["好的。"]
    assert not is_compacted(chat.row().messages)
    gate.open()
    row = wait_compacted(bot, chat.umo)
    assert row.token_usage == 0
    assert text_of(row.messages).count("SUMMARY-1") == 1
    assert chat.wait_stored(NOTICE)


def test_the_next_turns_start_no_second_run(bot: Bot, chat: WebChat) -> None:
    at_line(chat)
    watched = Judged(chat)
    watched.turn()
    wait_compacted(bot, chat.umo)

    watched.turn(usage=UNDER_LINE)
    watched.turn(usage=UNDER_LINE)

    assert compactions(chat) == 1


def test_after_a_compaction_a_turn_that_reports_nothing_starts_none(
    bot: Bot, chat: WebChat
) -> None:
    """CASE 20: the usage from before the compaction is not the new history's."""
    at_line(chat)
    reach_line(chat)
    wait_compacted(bot, chat.umo)
    reach_line(chat, usage=None)
    reach_line(chat, usage=UNDER_LINE)

    chat.send("/compact status")

    assert compactions(chat) == 1


def test_where_no_usage_is_reported_it_is_estimated(bot: Bot, chat: WebChat) -> None:
    bot.model.usage = None
    at_line(chat)
    chat.send("/compact set line 3600 here")

    chat.send("接着说。")

    wait_compacted(bot, chat.umo)
    chat.send("/compact set line default here")


def test_the_window_is_that_of_the_provider_of_the_message(bot: Bot, chat: WebChat) -> None:
    """The same usage is nothing to the session's own model."""
    cid = at_line(chat)
    bot.model.on_chat(answered())
    chat.send("接着说。")
    watched = Judged(chat)
    assert cid == chat.row().cid
    chat.send("/compact status")
    assert ours(bot) == []

    watched.turn()

    bot.model.wait_for("summary")


def test_a_big_persona_starts_no_run(bot: Bot, chat: WebChat) -> None:
    """The usage is over the line, but the dialog is less than half of it."""
    chat.seed(talk(1, 8))
    watched = Judged(chat)

    watched.turn()
    watched.turn()

    assert ours(bot) == []


def test_the_sum_of_many_small_tool_steps_starts_no_run(bot: Bot, chat: WebChat) -> None:
    """Six calls of 4,000 tokens are 24,000 together; the last one's are what counts."""
    at_line(chat)
    watched = Judged(chat)
    step = call("bed_lookup", {"word": "KITE"})
    usage = Usage(4_000, 10)
    bot.model.usage = usage
    bot.model.on_chat(*[step] * 5)

    watched.turn(usage=usage)

    assert ours(bot) == []


def test_the_bytes_of_an_image_start_no_run(bot: Bot, chat: WebChat) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 400_000}}
    chat.seed([user([{"type": "text", "text": "看图"}, image]), assistant("一只猫。")])
    bot.model.usage = None

    chat.send("然后呢？", provider=SMALL)
    chat.send("/compact status")

    assert ours(bot) == []


def test_a_last_round_over_the_window_costs_one_call_and_the_chat_goes_on(
    bot: Bot, chat: WebChat
) -> None:
    """CASE 15: 20,000 tokens in one round, a window of 8,000, six more messages."""
    chat.seed(
        [*talk(1, 3), user("查一下。"), calls("c1"), result("c1", FILLER * 950), assistant("好")]
    )
    watched = Judged(chat)

    for number in range(6):
        assert watched.turn(f"第 {number} 句").texts == ["好的。"]
        wait_idle(chat)

    assert len(ours(bot)) <= 1


@pytest.mark.hosts("newest")
def test_a_summary_that_cannot_shrink_the_history_costs_one_call_in_the_next_turn(
    bot: Bot, chat: WebChat
) -> None:
    """What came out was not smaller: the next turn does not try again."""
    at_line(chat)
    bot.model.on_summary(say("## 目标\n" + FILLER * 300))
    watched = Judged(chat)

    watched.turn()
    bot.model.wait_for("summary").wait_ended()
    wait_idle(chat)
    watched.turn()

    assert not is_compacted(chat.row().messages)
    assert len(ours(bot)) == 1


@pytest.mark.hosts("newest")
def test_automatic_compaction_switched_off_starts_none(bot: Bot, chat: WebChat) -> None:
    at_line(chat)
    watched = Judged(chat)
    chat.send("/compact set auto off")

    watched.turn()
    assert "自动压缩: 关" in chat.send("/compact status").text
    assert ours(bot) == []

    chat.send("/compact set auto on")
    watched.turn()
    bot.model.wait_for("summary")


def test_a_failed_turn_is_not_judged(bot: Bot, chat: WebChat) -> None:
    """The tools' results are in the history, the model's reply is not."""
    at_line(chat)
    bot.model.usage = None
    bot.model.on_chat(call("bed_lookup", {"word": "KITE"}))
    bot.model.rule(lambda request: "means kite" in request.text, fail(500))

    chat.send("查一下", provider=SMALL)
    chat.send("/compact status")

    assert ours(bot) == []


def test_a_stopped_turn_is_not_judged(bot: Bot, chat: WebChat) -> None:
    at_line(chat)
    gate = bot.model.gate()
    bot.model.usage = None
    bot.model.on_chat(say("迟来的", gate=gate))
    pending = chat.start("接着说。", provider=SMALL)
    gate.wait_reached()

    chat.stop()
    gate.open()
    pending.result()
    chat.send("/compact status")

    assert ours(bot) == []


@pytest.mark.hosts("newest", "4.25.3")
@pytest.mark.parametrize("settings", [{"max_turns": 5}, {"max_turns": 10}], ids=["plain", "tools"])
def test_a_low_limit_of_turns_does_not_make_every_reply_a_compaction(
    start_bot: StartBot, settings: dict[str, int]
) -> None:
    """Plain turns at a limit of 5, turns of three tool calls at one of 10; nothing is forgotten."""
    bot = start_bot(compression=settings)
    chat = WebChat(bot)
    chat.seed([])
    watched = Judged(chat)
    for number in range(1, 13):
        if settings["max_turns"] == 10:
            bot.model.on_chat(*[call("bed_lookup", {"word": f"W{n}"}) for n in range(3)], "好的。")
        watched.say(f"第 {number} 件事的代号是 FACT-{number}。")
        wait_idle(chat)

    assert 2 <= compactions(chat) <= 6
    marks = " ".join(f"FACT-{number}" for number in range(1, 13))
    assert chat.send(f"know? {marks}").text.endswith("unknown: -")


def test_after_an_undo_the_next_reply_is_not_compacted_again(bot: Bot, chat: WebChat) -> None:
    at_line(chat)
    watched = Judged(chat)
    watched.turn()
    wait_compacted(bot, chat.umo)
    wait_idle(chat)

    undone = chat.send("/compact undo").text
    watched.turn()

    assert "自动压缩先停 8 轮" in undone
    assert "再过 7 轮" in chat.send("/compact status").text
    assert not is_compacted(chat.row().messages)


# -- back-off -------------------------------------------------------------------------------


@pytest.mark.hosts("newest", "4.25.3")
def test_failures_put_the_next_attempts_off_and_a_restart_does_not_forget(
    start_bot: StartBot,
) -> None:
    """Attempts at turns 1, 3 and 7, the chat answered at each; the success resets it."""
    bot = start_bot(providers=[Provider(SMALL, 8_000)])
    chat = WebChat(bot)
    at_line(chat)
    bot.model.rule(is_summary_request, fail(500))
    watched = Judged(chat)
    attempts: list[int] = []
    for number in range(1, 8):
        before = len(ours(bot))
        assert watched.turn(f"第 {number} 句").texts == ["好的。"]
        wait_idle(chat)
        if len(ours(bot)) > before:
            attempts.append(number)
        if number == 4:
            bot.restart()

    assert attempts == [1, 3, 7]
    assert len(without_checkpoints(chat.row().messages)) == 40 + 14
    assert "连续失败 3 次" in chat.send("/compact status").text
    bot.model.reset()
    chat.send("/compact")
    assert is_compacted(chat.row().messages)
    assert "连续失败" not in chat.send("/compact status").text

    bot.restart()
    watched.turn(usage=UNDER_LINE)
    assert len(ours(bot)) == 1
    assert bot.leftovers() == []


@pytest.mark.hosts("newest")
def test_a_manual_failure_neither_counts_nor_resets(bot: Bot, chat: WebChat) -> None:
    at_line(chat)
    bot.model.rule(is_summary_request, fail(500))
    watched = Judged(chat)
    watched.turn()
    wait_idle(chat)
    before = chat.send("/compact status").text

    chat.send("/compact")

    assert chat.send("/compact status").text.split("上次压缩")[0] == before.split("上次压缩")[0]


# -- one run a conversation, few at once ------------------------------------------------------


def test_turns_during_a_run_start_no_second_one(bot: Bot, chat: WebChat) -> None:
    at_line(chat)
    gate = bot.model.gate()
    bot.model.on_summary(say("## 目标\nSUMMARY-1 " + FILLER, gate=gate))
    watched = Judged(chat)
    watched.turn()
    gate.wait_reached()

    watched.turn()
    watched.turn()
    gate.open()

    row = wait_compacted(bot, chat.umo)
    assert compactions(chat) == 1
    assert text_of(row.messages).count("接着说。") >= 2


@pytest.mark.hosts("newest", "4.25.3")
def test_fifty_sessions_at_their_lines_are_all_compacted_two_at_once(bot: Bot, qq: OneBot) -> None:
    crowd = [qq.person(3_000 + number, f"P{number}") for number in range(50)]
    at_once: list[int] = []

    def summarize(_: Request) -> Reply:
        at_once.append(sum(1 for each in ours(bot) if not each.ended))
        return say("## 最近在聊什么\nSUMMARY-1 " + FILLER, delay_seconds=0.05)

    bot.model.defaults["summary"] = summarize
    bot.model.defaults["chat"] = answered(usage=Usage(3_500, 10))
    with a_line(bot, 3_000):
        for person in crowd:
            person.post("你好")
        for person in crowd:
            bot.wait_row(person.umo, lambda row: len(row.messages) >= 2, 60)
            bot.write_row(person.umo, talk(1, 20))
        for person in crowd:
            person.post("接着说。")
        for person in crowd:
            qq.wait_sent(2, user=person.user)
        for person in crowd:
            wait_compacted(bot, person.umo, 60)

    assert len(at_once) == 50
    assert max(at_once) == 2


# -- layers and being seen ----------------------------------------------------------------------


@pytest.mark.parametrize("change", ["line", "history"])
def test_a_run_that_waits_its_turn_is_judged_again(bot: Bot, chat: WebChat, change: str) -> None:
    gate = bot.model.gate()
    bot.model.rule(lambda request: request.kind == "summary", say("## 目标\n别的", gate=gate), 2)
    others = [WebChat(bot), WebChat(bot)]
    for other in others:
        at_line(other)
        reach_line(other)
    bot.model.wait_for("summary", 2)
    at_line(chat)
    Judged(chat).turn()

    if change == "line":
        assert "✅" in chat.send("/compact set line 0 here").text
    else:
        bot.edit_conversation(chat.umo, chat.row().cid, talk(1, 3))
    gate.open()
    for other in others:
        wait_compacted(bot, other.umo)
        wait_idle(other)
    wait_idle(chat)

    assert compactions(chat) == 0
    assert not is_compacted(chat.row().messages)
    chat.send("/compact set line default here")


@pytest.mark.hosts("newest")
def test_a_line_for_one_session_is_its_own(bot: Bot, chat: WebChat) -> None:
    other = WebChat(bot)
    for each in (chat, other):
        at_line(each)

    assert "✅" in chat.send("/compact set line 3000 here").text
    for each in (other, chat):
        bot.model.on_chat(answered(usage=Usage(3_500, 10)))
        each.send("接着说。")

    wait_compacted(bot, chat.umo)
    assert not is_compacted(other.row().messages)
    assert len(ours(bot)) == 1
    chat.send("/compact set line default here")


@pytest.mark.parametrize(
    ("notify", "said"), [("off", (False, False)), ("private", (True, False)), ("all", (True, True))]
)
@pytest.mark.hosts("newest")
def test_a_notice_is_said_where_the_setting_wants_it(
    bot: Bot, qq: OneBot, notify: str, said: tuple[bool, bool]
) -> None:
    group = {"off": 601, "private": 602, "all": 603}[notify]
    ann = qq.person(1001, f"Ann-{notify}")
    bob = qq.person(7_000 + group, "Bob")
    admin = WebChat(bot)
    admin.send(f"/compact set notify {notify}")
    bot.model.defaults["chat"] = answered(usage=Usage(3_500, 10))
    places = [(bob, None, bob.umo), (ann, group, qq.group_umo(group))]

    with a_line(bot, 3_000):
        for person, where, umo in places:
            person.say("你好", group=where)
            bot.wait_row(umo, lambda row: len(row.messages) >= 2)
            bot.write_row(umo, talk(1, 20))
            person.say("接着说。", group=where)
            wait_compacted(bot, umo)
        for (person, where, _), is_said in zip(places, said, strict=True):
            qq.wait_sent(2 + is_said, person.user, where)
    admin.send("/compact set notify default")

    heard = tuple(
        any(NOTICE in sent.text for sent in qq.sent_to(user=person.user, group=where))
        for person, where, _ in places
    )
    assert heard == said


# -- for other plugins --------------------------------------------------------------------------


@pytest.mark.hosts("newest")
def test_another_plugin_compacts_listens_and_gives_its_task_list(bot: Bot, chat: WebChat) -> None:
    at_line(chat)

    said = chat.send("/guest FOCUS-1").text

    (request,) = ours(bot)
    assert said.startswith("line 102400; Outcome start step done; messages ")
    assert said.endswith("; last 1")
    assert "FOCUS-1" in request.text
    assert "TODO-1" in request.text
