"""Clearing, switching, stopping and leaving while an automatic run is in flight (spec 3.5)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.bed import Bot, Gate, WebChat, say
from tests.bed.bot import Provider
from tests.conftest import StartBot
from tests.e2e.histories import FILLER, is_compacted, talk, text_of
from tests.e2e.lines import NOTICE, SMALL, UNDER_LINE, Judged, at_line, reach_line, wait_idle

SUMMARY = "## 目标\nSUMMARY-1 " + FILLER
Action = Callable[[WebChat], object]


class Running:
    """A chat with an automatic run whose summary model stands at a gate."""

    def __init__(self, chat: WebChat) -> None:
        self.chat = chat
        self.cid = at_line(chat)
        self.gate: Gate = chat.bot.model.gate()
        chat.bot.model.on_summary(say(SUMMARY, gate=self.gate))
        reach_line(chat)
        self.gate.wait_reached()
        self.request = chat.bot.model.wait_for("summary")

    def end(self) -> None:
        """Let the model answer, and wait until the run has ended."""
        self.gate.open()
        self.request.wait_ended()
        wait_idle(self.chat)


CLEARINGS: dict[str, Action] = {
    "/reset": lambda chat: chat.send("/reset"),
    "/new": lambda chat: chat.send("/new"),
    "/del": lambda chat: chat.send("/del"),
    "WebUI": lambda chat: chat.bot.delete_conversation(chat.umo, chat.row().cid),
}


@pytest.mark.parametrize("how", CLEARINGS)
def test_a_clearing_voids_the_run_and_nothing_of_it_is_said_later(
    bot: Bot, chat: WebChat, how: str
) -> None:
    """CASE 9, automatic: nothing is written afterwards, and the chat begins anew."""
    run = Running(chat)
    CLEARINGS[how](chat)
    before = bot.rows(chat.umo)
    if how in {"/reset", "/new"} and bot.host.release >= (4, 29):
        run.request.wait_ended()
        assert run.request.hung_up

    run.end()

    assert bot.rows(chat.umo) == before
    assert chat.send("know? FACT-1 SUMMARY-1").text == "known: -; unknown: FACT-1 SUMMARY-1"
    assert not any(NOTICE in said for _, said in chat.stored())
    assert bot.leftovers() == []


def test_a_clearing_after_the_swap_leaves_nothing_either(bot: Bot, chat: WebChat) -> None:
    run = Running(chat)
    run.end()
    assert is_compacted(chat.row().messages)

    chat.send("/reset")

    for number in range(2):
        assert chat.send(f"know? FACT-{number + 1}").text.startswith("known: -")
        assert "SUMMARY-1" not in bot.model.chats[-1].system


def test_a_switch_to_another_conversation_voids_the_run(bot: Bot, chat: WebChat) -> None:
    """And back: the history is whole."""
    other = chat.seed(talk(50, 51))
    run = Running(chat)
    chat.send(f"/switch {other}")
    before = bot.rows(chat.umo)

    run.end()

    assert bot.rows(chat.umo) == before
    chat.send(f"/switch {run.cid}")
    assert chat.send("know? FACT-1 FACT-20").text == "known: FACT-1 FACT-20; unknown: -"


def test_an_edit_in_the_webui_is_not_overwritten(bot: Bot, chat: WebChat) -> None:
    run = Running(chat)
    edited = talk(5, 20)
    bot.edit_conversation(chat.umo, run.cid, edited)

    run.end()

    assert chat.row().messages == edited


def test_stop_ends_the_run_where_the_host_can_and_does_not_count(bot: Bot, chat: WebChat) -> None:
    run = Running(chat)
    chat.send("/stop")
    if bot.host.release >= (4, 29):
        run.request.wait_ended()
        assert run.request.hung_up
        assert not is_compacted(chat.row().messages)
        assert "连续失败" not in chat.send("/compact status").text
    run.end()
    bot.model.reset()

    assert chat.send("know? FACT-1").text == "known: FACT-1; unknown: -"


def test_a_reload_of_the_plugin_ends_the_run_at_once(bot: Bot, chat: WebChat) -> None:
    """CASE 28: no late write; the next turn starts it anew, as it does not count."""
    run = Running(chat)
    before = chat.row()
    bot.reload_plugin()

    run.request.wait_ended()
    assert run.request.hung_up
    run.end()

    assert chat.row() == before
    bot.model.reset()
    Judged(chat).turn()
    bot.model.wait_for("summary")
    assert bot.leftovers() == []


@pytest.mark.hosts("newest", "4.25.3")
def test_the_shutdown_ends_the_run_and_what_waits(start_bot: StartBot) -> None:
    """CASE 28: in order, without a late write; after it all goes on as before."""
    bot = start_bot(providers=[Provider(SMALL, 8_000)])
    run = Running(WebChat(bot))
    bot.model.defaults["summary"] = say(SUMMARY, gate=run.gate)
    others = [WebChat(bot), WebChat(bot)]
    for each in others:
        at_line(each)
        reach_line(each)
    bot.model.wait_for("summary", 2)
    chats = [run.chat, *others]
    before = [chat.row().text for chat in chats]

    bot.stop()

    assert run.request.hung_up
    run.gate.open()
    assert bot.leftovers() == []
    assert len(bot.model.summaries) == 2
    bot.start()
    assert [chat.row().text for chat in chats] == before
    bot.model.reset()
    Judged(run.chat).turn(usage=UNDER_LINE)
    assert "SUMMARY-1" not in text_of(run.chat.row().messages)
