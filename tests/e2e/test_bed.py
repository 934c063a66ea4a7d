"""The bed itself: what the other end-to-end tests stand on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bed import BedError, Bot, OneBot, WebChat, call, context_too_long, drop, fail, say
from tests.conftest import StartBot

# The bed is the same on all; where hosts differ its settings are tried on each.
pytestmark = pytest.mark.hosts("newest", "4.25.3")


def test_a_turn_is_answered_and_its_usage_stored(bot: Bot, chat: WebChat) -> None:
    turn = chat.send("the code is FACT-1")

    (request,) = bot.model.chats
    row = chat.row()
    assert turn.texts == [f"Noted ({len(request.messages)} messages)."]
    assert [message["role"] for message in row.messages] == ["user", "assistant", "_checkpoint"]
    assert row.token_usage > request.tokens


def test_a_turn_without_reported_usage_stores_none(bot: Bot, chat: WebChat) -> None:
    bot.model.usage = None

    chat.send("hello")

    assert chat.row().token_usage == 0


def test_a_streamed_turn_comes_in_pieces_and_is_remembered(bot: Bot, chat: WebChat) -> None:
    chat.send("the code is FACT-1", streaming=True)
    turn = chat.send("know? FACT-1 FACT-2", streaming=True)

    pieces = [event for event in turn.events if event.get("streaming")]
    assert turn.texts == ["known: FACT-1; unknown: FACT-2"]
    assert len(pieces) > 1
    assert bot.model.chats[-1].body["stream"] is True


def test_a_seeded_history_reaches_the_model(bot: Bot, chat: WebChat) -> None:
    seeded = [
        {"role": "user", "content": "the code is FACT-7"},
        {"role": "assistant", "content": "noted"},
    ]
    chat.seed(seeded)

    turn = chat.send("know? FACT-7")

    assert turn.text.startswith("known: FACT-7")
    assert chat.row().messages[:2] == seeded


def test_a_second_message_is_sent_while_the_first_is_answered(bot: Bot, chat: WebChat) -> None:
    gate = bot.model.gate()
    bot.model.on_chat(say("the first", gate=gate))
    first = chat.start("one")
    gate.wait_reached()

    assert chat.send("/sid").texts
    assert not first.done

    gate.open()
    assert first.result().texts == ["the first"]


def test_the_message_s_provider_is_the_one_asked(bot: Bot, chat: WebChat) -> None:
    chat.send("hello", provider="small")

    assert bot.model.chats[-1].model == "small-model"


@pytest.mark.parametrize(
    "fault", [fail(500), context_too_long(), drop()], ids=["500", "too long", "dropped"]
)
def test_a_fault_of_the_model_ends_the_turn(bot: Bot, chat: WebChat, fault: object) -> None:
    bot.model.rule(lambda request: request.kind == "chat", fault)

    assert chat.send("hello").seconds < 30


def test_a_strict_model_accepts_what_the_host_sends(bot: Bot, chat: WebChat) -> None:
    bot.model.strict = True

    assert chat.send("one").text.startswith("Noted")
    assert chat.send("two").text.startswith("Noted")


def test_an_answer_is_made_anew_and_a_message_edited(bot: Bot, chat: WebChat) -> None:
    bot.model.on_chat("old", "new", "newest")
    chat.send("hello")

    assert chat.regenerate().texts == ["new"]
    assert chat.edit("good morning").texts == ["newest"]

    user, assistant, _ = chat.row().messages
    assert user["content"][0]["text"] == "good morning"
    assert "newest" in str(assistant["content"])


def test_people_talk_in_a_group_and_in_private(bot: Bot, qq: OneBot) -> None:
    ann, bob = qq.person(1001, "Ann", role="owner"), qq.person(2002, "Bob")

    assert ann.say("the code is FACT-3", group=555)
    assert bob.say("know? FACT-3", group=555) == ["known: FACT-3; unknown: -"]
    assert bob.say("know? FACT-3") == ["known: -; unknown: FACT-3"]

    bot.wait_row(qq.group_umo(555), lambda row: len(row.messages) == 4)
    bot.wait_row(bob.umo, lambda row: len(row.messages) == 2)


def test_talk_that_does_not_name_the_bot_is_not_answered(bot: Bot, qq: OneBot) -> None:
    ann = qq.person(1001, "Ann")
    ann.post("just talking", group=556, at=False)

    assert ann.say("hello", group=556) == ["Noted (2 messages)."]


def test_the_model_s_tool_calls_are_run(bot: Bot, chat: WebChat) -> None:
    bot.model.on_chat(call("bed_lookup", {"word": "KITE"}))

    assert chat.send("what is a KITE?").text.startswith("Noted")

    roles = [message["role"] for message in chat.row().messages]
    assert roles == ["user", "assistant", "tool", "assistant", "_checkpoint"]
    assert "KITE means kite" in bot.model.chats[-1].text
    bot.model.assert_done()


def test_conversations_are_switched_and_deleted(bot: Bot, chat: WebChat) -> None:
    chat.send("the code is FACT-1")
    first = chat.row().cid
    chat.seed([{"role": "user", "content": "other"}, {"role": "assistant", "content": "talk"}])

    chat.send(f"/switch {first}")
    assert chat.send("know? FACT-1").text.startswith("known: FACT-1")
    chat.send("/del")

    assert first not in {row.cid for row in bot.rows(chat.umo)}


def test_a_client_that_hangs_up_is_seen(bot: Bot, chat: WebChat) -> None:
    gate = bot.model.gate()
    bot.model.on_chat(say("too late", gate=gate))
    turn = chat.start("hello")
    gate.wait_reached()

    chat.send("/reset")

    request = bot.model.chats[0]
    if bot.host.release >= (4, 28):
        request.wait_ended()
        assert request.hung_up
    gate.open()
    turn.result()


@pytest.mark.hosts("newest")
def test_data_survive_a_stop_and_a_kill(start_bot: StartBot) -> None:
    bot = start_bot(plugin_dir=None)
    chat = WebChat(bot)
    chat.send("the code is FACT-1")

    bot.restart()
    assert chat.send("know? FACT-1").text.startswith("known: FACT-1")
    bot.kill9()
    bot.start()

    assert len(chat.row().messages) == 6


@pytest.mark.hosts("newest", "4.28.1", "4.25.3")
def test_settings_of_the_host_have_one_name_in_all_versions(start_bot: StartBot) -> None:
    bot = start_bot(plugin_dir=None, compression={"max_turns": 2, "keep_recent_ratio": 0.1})
    chat = WebChat(bot)
    for number in range(4):
        chat.send(f"message {number}")

    users = [message for message in chat.row().messages if message["role"] == "user"]
    assert len(users) < 4


@pytest.mark.hosts("newest")
def test_a_plugin_that_does_not_load_is_an_error(start_bot: StartBot, tmp_path: Path) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "metadata.yaml").write_text("name: broken\nversion: v1\nauthor: x\n")
    (tmp_path / "broken" / "main.py").write_text("raise RuntimeError('no such luck')\n")

    with pytest.raises(BedError, match="no such luck"):
        start_bot(plugin_dir=None, extra_plugins={"broken": tmp_path / "broken"})
