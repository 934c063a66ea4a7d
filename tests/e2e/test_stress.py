"""Everything at once against one conversation: a short run of what `tools/stress.py` does long."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.bed import Bot, WebChat
from tests.bed.bot import Provider
from tests.bed.webchat import Pending
from tests.conftest import StartBot
from tests.contract.stress import interleave
from tests.e2e.histories import FILLER, HEAD, recorded, text_of
from tests.e2e.lines import SMALL, wait_idle

SAID = re.compile(r"第 (\d+) 句")


@pytest.mark.parametrize("first", range(0, 40, 20))
async def test_interleavings_on_the_host_in_memory_hold(tmp_path: Path, first: int) -> None:
    """Seeds as given: a failure names its own and what happened."""
    for seed in range(first, first + 20):
        (tmp_path / str(seed)).mkdir()
        await interleave(seed, tmp_path / str(seed))


class Fire:
    """Operations on one chat window, some while others are under way."""

    def __init__(self, chat: WebChat, rng: random.Random) -> None:
        self.chat = chat
        self._rng = rng
        self._said = 0
        self._pending: list[tuple[int, Pending]] = []
        self.alive: set[int] = set()
        self.dead: set[int] = set()

    def play(self, operations: int) -> None:
        """Start them; on average every second waits for those before it."""
        verbs: list[Callable[[], None]] = [self._turn] * 5 + [
            lambda: self._command("/compact keep 0.1"),
            lambda: self._command("/compact undo"),
            self._reset,
        ]
        for _ in range(operations):
            self._rng.choice(verbs)()
            if self._rng.random() < 0.5:
                self._settle()
        self._settle()
        wait_idle(self.chat)

    def _turn(self) -> None:
        self._said += 1
        text = f"第 {self._said} 句。" + FILLER * 6
        self._pending.append((self._said, self.chat.start(text, provider=SMALL)))

    def _command(self, text: str) -> None:
        self._pending.append((0, self.chat.start(text)))

    def _reset(self) -> None:
        """Whatever was said before is gone, and what is being said is stopped."""
        self.chat.send("/reset")
        stopped = list(self._pending)
        self._settle()
        self.dead |= set(range(1, self._said + 1)) - {n for n, _ in stopped}
        self.alive.clear()

    def _settle(self) -> None:
        for number, pending in self._pending:
            if any("Noted" in text for text in pending.result().texts) and number:
                self.alive.add(number)
        self._pending.clear()


def standing(bot: Bot, chat: WebChat) -> list[int]:
    """The numbers of what stands in the history, in its order."""
    messages = [m for m in chat.row().messages if m["role"] == "user"]
    texts = [text_of([message]) for message in messages]
    return [int(SAID.match(text)[1]) for text in texts if SAID.match(text)]  # type: ignore[index]


@pytest.mark.hosts("newest")
@pytest.mark.parametrize("seed", [1])
def test_interleavings_on_a_real_host_hold(start_bot: StartBot, seed: int) -> None:
    bot = start_bot(
        providers=[Provider(SMALL, 8_000)],
        compression={"max_turns": 5},
        plugin_config={"compress_tokens": 1_500, "min_messages": 2},
    )
    chat = WebChat(bot)
    fire = Fire(chat, random.Random(seed))

    fire.play(30)

    now = standing(bot, chat)
    kept = text_of(recorded(bot, chat.row().cid))
    assert {n for n in fire.alive if n not in now and f"第 {n} 句。" not in kept} == set()
    assert fire.dead & set(now) == set()
    assert now == sorted(set(now))
    assert text_of(chat.row().messages).count(HEAD) <= 1
    assert bot.leftovers() == []
