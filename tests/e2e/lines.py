"""Conversations at their line: a history worth compacting, and turns that say what they used.

The provider `small` of the shared bots has a window of 8,000 tokens: its line is 6,400 and half
of it 3,200, which is what the dialog must have for a turn's usage to count.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.bed import Bot, Reply, Request, Row, Turn, Usage, WebChat, say
from tests.bed.aio import wait_for
from tests.e2e.histories import is_compacted, talk

SMALL = "small"
OVER_LINE = Usage(6_490, 10)
UNDER_LINE = Usage(5_000, 10)
NOTICE = "🗜️"


def at_line(chat: WebChat, rounds: int = 20) -> str:
    """Seed a dialog of about 200 tokens a round; its cid."""
    return chat.seed(talk(1, rounds))


def answered(text: str = "好的。", usage: Usage | None = OVER_LINE, **more: Any) -> Reply:
    """A chat reply that reports this usage."""
    return say(text, usage=usage, **more)


def reach_line(chat: WebChat, text: str = "接着说。", usage: Usage | None = OVER_LINE) -> Turn:
    """A turn that reports a usage over the line of the small window."""
    chat.bot.model.on_chat(answered(usage=usage))
    return chat.send(text, provider=SMALL)


def ours(bot: Bot) -> list[Request]:
    """The summary requests that are the plugin's; the newest AstrBot makes some of its own."""
    return [each for each in bot.model.summaries if "# Conversation summary task" in each.system]


def compactions(chat: WebChat) -> int:
    """The compactions on record of the current conversation; one may take several requests."""
    ((count,),) = chat.bot.archive_rows(
        """SELECT count(*) FROM compaction JOIN conversation AS c ON c.id = conversation_id
           WHERE CAST(cid AS TEXT) = ?""",
        chat.row().cid,
    )
    return count


def wait_compacted(bot: Bot, umo: str, timeout_seconds: float = 30) -> Row:
    """Wait until the session's history begins with a summary."""
    return bot.wait_row(umo, lambda row: is_compacted(row.messages), timeout_seconds)


def samples(bot: Bot, cid: str) -> int:
    """The turns of a conversation that were noted, a moment before each is judged."""
    if not bot.archive_files():
        return 0
    ((count,),) = bot.archive_rows(
        """SELECT count(*) FROM sample JOIN conversation AS c ON c.id = conversation_id
           WHERE CAST(cid AS TEXT) = ?""",
        cid,
    )
    return count


def wait_noted(bot: Bot, cid: str, turns: int) -> None:
    """Wait until so many turns were noted."""
    wait_for(lambda: samples(bot, cid) >= turns, f"{turns} noted turns")


class Judged:
    """Sends turns and waits until each has been judged."""

    def __init__(self, chat: WebChat) -> None:
        self.chat = chat
        self._cid = chat.row().cid
        self._before = samples(chat.bot, self._cid)

    def turn(self, text: str = "接着说。", usage: Usage = OVER_LINE) -> Turn:
        """One turn; when this returns its judgement is known, and a run it started has begun."""
        return self._judged(reach_line(self.chat, text, usage))

    def say(self, text: str) -> Turn:
        """One turn with the model's default answer and usage."""
        return self._judged(self.chat.send(text))

    def _judged(self, turn: Turn) -> Turn:
        self._before += 1
        wait_noted(self.chat.bot, self._cid, self._before)
        self.chat.send("/compact status")
        return turn


def wait_idle(chat: WebChat) -> None:
    """Wait until no compaction of the conversation runs."""
    wait_for(lambda: "正在压缩" not in chat.send("/compact status").text, "the end of the run")


@contextmanager
def a_line(bot: Bot, tokens: int) -> Iterator[None]:
    """A compress line for all sessions of the bot."""
    owner = WebChat(bot)
    assert "✅" in owner.send(f"/compact set line {tokens}").text
    try:
        yield
    finally:
        owner.send("/compact set line default")
