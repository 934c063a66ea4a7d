"""Living with AstrBot's own trimming and with its late writers (spec 2.7, 3.2, 3.4)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bed import Bot, Host, Model, OneBot, Usage, WebChat, call, fail, say
from tests.bed.aio import wait_for
from tests.bed.bot import Provider
from tests.bed.shared import SharedBots
from tests.conftest import StartBot
from tests.e2e.histories import (
    FILLER,
    HEAD,
    is_compacted,
    marks,
    recorded,
    talk,
    text_of,
    without_checkpoints,
)
from tests.e2e.lines import (
    SMALL,
    Judged,
    answered,
    at_line,
    ours,
    reach_line,
    wait_compacted,
)

TURNS = 8


def make_trimming(folder: Path, host: Host) -> Bot:
    """A bot that trims by turns, and compresses by a model of its own."""
    return Bot(
        folder,
        Model(),
        host,
        onebot=True,
        providers=[Provider(SMALL, 8_000)],
        compression={
            "max_turns": TURNS,
            "overflow_strategy": "llm_compress",
            "provider_id": "bed",
        },
    )


@pytest.fixture(scope="module")
def trimming_bots(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedBots]:
    bots = SharedBots(tmp_path_factory.mktemp("trimming"), make_trimming)
    yield bots
    bots.close()


@pytest.fixture
def bot(host: Host, trimming_bots: SharedBots) -> Iterator[Bot]:
    """The trimming bot of `host`, its model as new."""
    trimming = trimming_bots.get(host)
    yield trimming
    trimming.model.assert_sound()
    trimming.model.reset()


@pytest.fixture
def by_hand(bot: Bot) -> Iterator[None]:
    """No automatic runs."""
    WebChat(bot).send("/compact set auto off")
    yield
    WebChat(bot).send("/compact set auto on")


def fact(number: int) -> str:
    """What the user says of one thing."""
    return f"第 {number} 件事的代号是 FACT-{number}。" + FILLER * 2


def kept_texts(bot: Bot, chat: WebChat) -> str:
    """All that is in the history or in the archive."""
    row = chat.row()
    return text_of([*recorded(bot, row.cid), *row.messages])


def test_the_count_line_starts_a_run_and_the_summary_is_known_in_every_later_turn(
    bot: Bot, chat: WebChat
) -> None:
    chat.seed([])
    watched = Judged(chat)
    for number in range(16):
        watched.say(fact(number))
        assert "FACT-0" in bot.model.chats[-1].text, number
    assert len(without_checkpoints(chat.row().messages)) < 2 * TURNS
    assert chat.send("know? FACT-0 FACT-7 FACT-15").text.endswith("unknown: -")

    chat.send("/reset")

    for number in (0, 15):
        assert chat.send(f"know? FACT-{number}").text.startswith("known: -")


@pytest.mark.usefixtures("by_hand")
def test_a_summary_dropped_by_turn_trimming_is_known_until_the_next_takes_it_in(
    bot: Bot, chat: WebChat
) -> None:
    """What is dropped is archived word for word, and in the next summary's input."""
    chat.seed([])
    watched = Judged(chat)
    for number in range(1, 6):
        watched.say(fact(number))
    chat.send("/compact keep 0")
    last = 5 + TURNS + 3

    for number in range(6, last + 1):
        watched.say(fact(number))
        assert all(mark in bot.model.chats[-1].text for mark in marks(1, 5))

    assert not is_compacted(chat.row().messages)
    kept = kept_texts(bot, chat)
    assert [n for n in range(1, last + 1) if fact(n) not in kept] == []
    chat.send("/compact")
    assert [mark for mark in marks(1, last - 1) if mark not in ours(bot)[-1].text] == []
    assert HEAD not in bot.model.chats[-1].system

    chat.send("/reset")
    assert chat.send("know? FACT-1 FACT-9").text.startswith("known: -")


@pytest.mark.hosts("newest", "4.28.1")  # the oldest compresses there
@pytest.mark.usefixtures("by_hand")
def test_a_summary_dropped_between_the_steps_of_a_tool_loop_is_known_in_all_of_them(
    bot: Bot, chat: WebChat
) -> None:
    chat.seed(talk(1, 5))
    chat.send("/compact keep 0")
    for number in range(6, 11):
        chat.send(fact(number))
    steps = [call("bed_lookup", {"word": f"W{number}"}) for number in range(10)]
    bot.model.on_chat(*steps, "好的。")
    before = len(bot.model.chats)

    chat.send("逐个查一下")

    requests = bot.model.chats[before:]
    assert len(requests) == 11
    assert [n for n, request in enumerate(requests) if "FACT-1" not in request.text] == []
    assert any(HEAD not in str(request.dialog) for request in requests)
    assert "FACT-1" not in str([m for m in chat.row().messages if m["role"] == "system"])
    assert "FACT-1" in chat.send("know? FACT-1").text


@pytest.mark.usefixtures("by_hand")
def test_what_waited_before_a_reset_is_in_no_later_summary(bot: Bot, chat: WebChat) -> None:
    """Whatever another writer puts into the cleared conversation."""
    chat.seed([])
    watched = Judged(chat)
    for number in range(1, TURNS + 4):
        watched.say(fact(number))
    assert "截掉" in chat.send("/compact status").text

    chat.send("/reset")

    assert "截掉" not in chat.send("/compact status").text
    cid = chat.row().cid
    bot.edit_conversation(chat.umo, cid, talk(50, 54))
    assert "FACT-1 " not in chat.send("/compact preview keep 0").text
    chat.send("/compact keep 0")
    assert "FACT-50" in ours(bot)[-1].text
    assert "FACT-1。" not in ours(bot)[-1].text
    assert chat.send("know? FACT-1 FACT-50").text == "known: FACT-50; unknown: FACT-1"


@pytest.mark.usefixtures("by_hand")
def test_what_another_plugin_takes_out_of_a_request_is_recorded(bot: Bot, chat: WebChat) -> None:
    chat.seed([])
    watched = Judged(chat)
    for number in range(1, 4):
        watched.say(fact(number))

    watched.say("withhold 4")

    assert bot.model.chats[-1].text.count("代号是") == 1
    assert marks(1, 2) == [m for m in marks(1, 9) if m in text_of(recorded(bot, chat.row().cid))]
    chat.send("/compact keep 0")
    assert all(mark in ours(bot)[-1].text for mark in marks(1, 3))


@pytest.mark.usefixtures("by_hand")
@pytest.mark.parametrize("fails", [False, True], ids=["answered", "failed"])
def test_trimming_and_compressing_in_one_turn_lose_no_message(
    bot: Bot, chat: WebChat, fails: bool
) -> None:
    """By turns first, then by AstrBot's own model; also where the turn ends without a reply."""
    history = talk(1, 14, fillers=20)
    chat.seed(history)
    if fails:
        bot.model.rule(lambda request: request.kind == "chat", fail(500))
    chat.send("接着说。", provider=SMALL)
    bot.model.reset()
    chat.send("know? FACT-14", provider=SMALL)
    chat.send("/compact status")

    texts = [message["content"] for message in history]
    kept = kept_texts(bot, chat)
    assert [text[:40] for text in texts if text not in kept] == []
    dropped = [text for text in texts if text not in text_of(chat.row().messages)]
    assert dropped
    chat.send("/compact provider bed")
    read = "".join(request.text for request in ours(bot))
    assert [text[:40] for text in dropped if text not in read] == []


def test_a_busy_group_is_compacted_while_its_turns_are_trimmed(bot: Bot) -> None:
    """The summary takes longer than six turns, in which AstrBot drops the oldest."""
    gate = bot.model.gate()
    bot.model.on_summary(
        lambda request: say(f"## 最近在聊什么\n{' '.join(marks(1, 6))}\n{FILLER}", gate=gate)
    )
    with OneBot(bot) as qq:
        people = [qq.person(40 + number, f"P{number}") for number in range(3)]
        umo = qq.group_umo(900)
        for number in range(1, 13):
            text = f"第 {number} 件事的代号是 FACT-{number}。" + FILLER * 3
            people[number % 3].say(text, group=900)
            bot.wait_row(umo, lambda row, text=text: text in text_of(row.messages))
            if number == 6:
                gate.wait_reached()
        row = bot.row(umo)
        assert not is_compacted(row.messages)
        assert "FACT-1。" not in text_of(row.messages)
        # Of what was said meanwhile an old AstrBot has dropped some already.
        left = [n for n in range(7, 13) if f"FACT-{n}。" in text_of(row.messages)]
        gate.open()

        row = wait_compacted(bot, umo)

    assert "FACT-1 " in text_of(row.messages[:1])
    assert [n for n in range(7, 13) if f"FACT-{n}。" in text_of(row.messages)] == left
    assert left[-4:] == [9, 10, 11, 12]
    kept = text_of([*recorded(bot, row.cid), *row.messages])
    assert all(f"FACT-{number}。" in kept for number in range(1, 13))


def test_a_user_who_answers_during_a_run_does_not_wait_for_the_host_s_compression(
    bot: Bot, chat: WebChat
) -> None:
    """The usage in his request is over AstrBot's own line; a run of ours is on its way."""
    chat.seed(talk(1, 6, fillers=14))
    gate = bot.model.gate()
    bot.model.on_summary(say("## 目标\nFACT-1 " + FILLER, gate=gate))
    bot.model.on_chat(answered(usage=Usage(7_000, 10)))
    chat.send("接着说。", provider=SMALL)
    gate.wait_reached()

    turn = reach_line(chat)

    assert turn.texts == ["好的。"]
    assert len(bot.model.summaries) == 1
    gate.open()
    wait_compacted(bot, chat.umo)


def test_an_old_history_put_back_is_healed_without_a_model_call(bot: Bot, chat: WebChat) -> None:
    """A writer that read before the compaction writes after it."""
    chat.seed(talk(1, 5))
    late = chat.start("/late_write 4")
    late.wait_said("read")
    chat.send("/compact keep 0")
    assert is_compacted(chat.row().messages)
    bot.wait_row(chat.umo, lambda row: "written late" in text_of(row.messages))
    assert not is_compacted(chat.row().messages)

    chat.send("你好")

    row = wait_compacted(bot, chat.umo)
    assert "written late" in text_of(row.messages)
    assert "你好" in text_of(row.messages)
    assert "FACT-1。" not in text_of(row.messages)
    assert len(ours(bot)) == 1
    late.result()


def test_a_commit_waits_for_a_scheduled_wake_up(bot: Bot, chat: WebChat) -> None:
    """It has read the history when its model is asked, and saves it when it is done."""
    chat.seed(talk(1, 5))
    gate = bot.model.gate()
    bot.model.on_chat(say("提醒过了。", gate=gate))
    run_job(bot, chat.umo)
    gate.wait_reached()
    pending = chat.start("/compact keep 0")
    bot.model.wait_for("summary").wait_ended()
    assert not is_compacted(chat.row().messages)

    gate.open()

    assert "✅" in pending.result().text
    messages = chat.row().messages
    assert is_compacted(messages)
    assert "提醒过了。" in text_of(messages)
    assert "FACT-1。" not in text_of(messages)


@pytest.mark.usefixtures("by_hand")
def test_scheduled_tasks_hide_no_past_and_bring_none_back(bot: Bot, chat: WebChat) -> None:
    """AstrBot appends the same question for each of them, in a turn that no plugin sees."""
    chat.seed([])
    watched = Judged(chat)
    for number in range(1, TURNS + 4):
        watched.say(fact(number))
    for number in range(6):
        see_job_done(bot, chat, f"提醒 {number}。")
    chat.send("/compact keep 0")
    assert all(mark in ours(bot)[-1].text for mark in marks(1, TURNS + 3))

    see_job_done(bot, chat, "该喝水了。")
    watched.say(fact(90))
    chat.send("/reset")
    see_job_done(bot, chat, "该喝水了。")

    assert chat.send("know? FACT-1 FACT-90").text.startswith("known: -")
    chat.send("/compact keep 0")
    assert [mark for mark in marks(2, TURNS) if mark in ours(bot)[-1].text] == []


def see_job_done(bot: Bot, chat: WebChat, answer: str) -> None:
    """Run a scheduled task and wait until its answer is stored."""
    before = text_of(chat.row().messages).count(answer)
    bot.model.on_chat(say(answer))
    run_job(bot, chat.umo)
    bot.wait_row(chat.umo, lambda row: text_of(row.messages).count(answer) > before)


def run_job(bot: Bot, umo: str) -> None:
    """Make a scheduled task of the session and run it now."""
    prefix = "/api/v1/cron/jobs" if bot.has_v1 else "/api/cron/jobs"
    job = {
        "name": "remind",
        "note": "remind the user",
        "cron_expression": "0 4 1 1 *",
        "session": umo,
    }
    made = bot.api("POST", prefix, json=job)
    bot.api("POST", f"{prefix}/{made['job_id']}/run")


def test_regenerate_and_edit_after_a_compaction_keep_the_summary(bot: Bot, chat: WebChat) -> None:
    at_line(chat, 6)
    chat.send("你好")
    chat.send("/compact keep 0.1")
    chat.send("know? FACT-1")

    assert chat.regenerate().text.startswith("known: FACT-1")
    assert chat.edit("know? FACT-2").text.startswith("known: FACT-2")
    assert is_compacted(chat.row().messages)


@pytest.mark.parametrize("way", ["regenerate", "edit"])
def test_the_only_round_left_can_be_had_again(start_bot: StartBot, way: str) -> None:
    """AstrBot cuts it out of the history, which is empty then as after /reset."""
    bot = start_bot(compression={"max_turns": 1}, plugin_config={"auto_compact": False})
    chat = WebChat(bot)
    chat.seed(talk(1, 5))
    chat.send("/compact keep 0")
    for _ in range(9):
        chat.send("你好")
        left = chat.row().messages
        if len(without_checkpoints(left)) == 2 and not is_compacted(left):
            break
    else:
        pytest.fail("AstrBot never left one round alone")

    again = chat.regenerate() if way == "regenerate" else chat.edit("know? FACT-1")

    assert "FACT-1" in bot.model.chats[-1].text
    assert way == "regenerate" or again.text.startswith("known: FACT-1")
    assert chat.send("know? FACT-1").text.startswith("known: FACT-1")
    chat.send("/reset")
    assert chat.send("know? FACT-1").text.startswith("known: -")


def test_what_a_tool_loop_drops_of_its_own_turn_is_recorded(bot: Bot, chat: WebChat) -> None:
    """AstrBot compresses again between the steps of one turn."""
    chat.seed(talk(1, 5, fillers=14))
    long = call("bed_long", {"chars": 20_000})
    bot.model.on_chat(long, long, "好的。")

    chat.send("查两次长的", provider=SMALL)
    chat.send("你好", provider=SMALL)
    chat.send("/compact status")

    kept = kept_texts(bot, chat)
    assert all(message["content"] in kept for message in talk(1, 5, fillers=14))
    assert "查两次长的" in kept
    wait_for(lambda: kept_texts(bot, chat).count("line of a long result") >= 900, "both results")
