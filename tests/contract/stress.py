"""One conversation under fire: turns, compactions, clearings, edits and undo at once.

Laws, checked when all is quiet again:
- no lost message: what was ever stored and not cleared or edited away by the user stands in
  the history or in the archive;
- no resurrected history: nothing from before a clearing stands in the history after it, nor in
  what a later turn's model is given;
- no mixed state: each message stands at most once, in the order it was said, behind at most one
  head summary, and that one is the last on record.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

from astrbot_plugin_compact.summary.core_settings import CoreCompression
from astrbot_plugin_compact.summary.errors import CompactError
from astrbot_plugin_compact.summary.heads import HEAD_PREFIX, text_hash
from astrbot_plugin_compact.summary.history import message_text

from tests.contract.fake_bot import (
    MARK,
    UMO,
    CarryingModel,
    FakeBot,
    host_summary,
    keep_turns,
    new_bot,
)

_FILLER = "一件很长的事，" * 30
_LINE_TOKENS = 1_500
_OPS = (
    *("turn", "turn", "turn", "turn", "turn", "turn", "turn", "turn", "compact", "compact"),
    *("compact", "compact", "reset", "refill", "edit", "edit", "undo", "undo"),
)


def _step(mark: str, number: int) -> list[dict[str, object]]:
    """A tool called and its result."""
    call = {"id": f"{mark}-{number}", "type": "function", "function": {"name": "look_up"}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": f"for {mark}"},
    ]


def _with_memory(made: list[dict[str, object]]) -> list[dict[str, object]]:
    rest = [m for m in made if not str(m["content"]).startswith("memory")]
    return [*rest, {"role": "user", "content": f"memory {len(made)}"}]


# What other plugins do to a request: copy its messages, put a text of theirs in, take some out.
_PLUGINS: tuple[Callable[[list[dict[str, object]]], list[dict[str, object]]], ...] = (
    lambda made: [dict(message) for message in made],
    _with_memory,
    lambda made: made[2:],
)


class Broken(AssertionError):
    """A law does not hold; names the seed."""


class Round:
    """One seeded interleaving."""

    def __init__(self, bot: FakeBot, rng: random.Random) -> None:
        self.bot = bot
        self._rng = rng
        self._said = 0
        # Marks that must be somewhere, and those that must be nowhere a model can see.
        self.alive: set[str] = set()
        self.dead: set[str] = set()
        self.log: list[str] = []
        self.counts: Counter[str] = Counter()

    async def play(self, operations: int) -> None:
        """Start operations one after another without waiting for each to end."""
        self.bot.host.add(UMO, [])
        tasks: list[asyncio.Task[None]] = []
        for _ in range(3):
            await self._turn()
        for _ in range(operations):
            name = self._rng.choice(_OPS)
            tasks.append(asyncio.create_task(self._safely(name)))
            await self._pause()
            if self._rng.random() < 0.35:
                await asyncio.wait(tasks)
        await asyncio.gather(*tasks)
        await self.bot.looked_through()
        await self._turn(trims=False)
        await self.bot.looked_through()

    async def _safely(self, name: str) -> None:
        verbs: dict[str, Callable[[], Awaitable[None]]] = {
            "turn": self._turn,
            "compact": self._compact,
            "reset": self._reset,
            "refill": self._refill,
            "edit": self._edit,
            "undo": self._undo,
        }
        try:
            await verbs[name]()
            self.counts[name] += 1
        except CompactError as error:
            self.log.append(f"{name}: {error}")

    async def _pause(self) -> None:
        for _ in range(self._rng.choice((0, 0, 1, 3, 10, 30))):
            await asyncio.sleep(0)
        if self._rng.random() < 0.3:
            await asyncio.sleep(self._rng.random() * 0.004)

    async def _turn(self, *, trims: bool = True) -> None:
        self._said += 1
        mark = f"M-{self._said}"
        trim = None
        if trims and self._rng.random() < 0.4:
            turns = self._rng.randint(2, 5)
            self.bot.host.settings = CoreCompression(max_turns=turns)
            trim = keep_turns(turns)
        elif trims and self._rng.random() < 0.1:
            trim = self._host_summary
        steps = [(_step(mark, n), trim) for n in range(self._rng.choice((0, 0, 0, 1, 3)))]
        plugin = self._rng.choice(_PLUGINS) if self._rng.random() < 0.2 else None
        usage = _LINE_TOKENS + 100 if self._rng.random() < 0.5 else None
        dead = set(self.dead)
        chosen = _PLUGINS.index(plugin) if plugin else None
        asked = f"turn {mark} trim={trim is not None} usage={usage}"
        self.log.append(f"{asked} steps={len(steps)} plugin={chosen}")
        given, seen = await self.bot.turn(
            f"{mark} {_FILLER}",
            usage=usage,
            trim=trim,
            during=self._pause,
            saved=lambda: self.alive.add(mark),
            steps=steps,
            plugin=plugin,
        )
        sent = given.system_text + " ".join(str(message["content"]) for message in seen)
        if back := dead & set(MARK.findall(sent)):
            raise Broken(f"{sorted(back)} were cleared and reach the model in {mark}")

    def _host_summary(self, messages: list[dict[str, object]]) -> list[dict[str, object]]:
        marks = MARK.findall(" ".join(str(message["content"]) for message in messages))
        keep = self._rng.randint(1, 4)
        while keep < len(messages) and messages[-keep]["role"] != "user":
            keep += 1
        if len(messages) - keep < 2:
            return messages
        return host_summary(keep, " ".join(dict.fromkeys(marks)))(messages)

    async def _compact(self) -> None:
        self.log.append("compact")
        await self.bot.compact()

    async def _undo(self) -> None:
        self.log.append("undo")
        await self.bot.undo()

    async def _reset(self) -> None:
        self.log.append("reset")
        # What is being said right now is stopped and stored by nobody.
        self.bot.reset()
        self.dead |= {f"M-{number}" for number in range(1, self._said + 1)}
        self.alive.clear()

    async def _refill(self) -> None:
        """Another writer fills the conversation that was just cleared.

        Somebody in the WebUI, or a plugin: not while turns from before are under way.
        """
        if not self.bot.is_quiet():
            return
        await self._reset()
        self.log.append("refill")
        history = []
        for _ in range(3):
            self._said += 1
            mark = f"M-{self._said}"
            self.alive.add(mark)
            history += [
                {"role": "user", "content": f"{mark} {_FILLER}"},
                {"role": "assistant", "content": f"re: {mark} {_FILLER}"},
            ]
        self.bot.host.write(self.bot.host.current[UMO], history)

    async def _edit(self) -> None:
        """The user takes the last round out in the WebUI."""
        host = self.bot.host
        cid = host.current[UMO]
        history = host.history(cid)
        if len(history) < 4 or host.is_locked(UMO):
            return
        self.log.append("edit")
        cut = len(history) - 2
        while cut > 2 and history[cut]["role"] != "user":
            cut -= 1
        removed = MARK.findall(" ".join(message_text(m) for m in history[cut:]))
        if any(message_text(m).startswith(HEAD_PREFIX) for m in history[cut:]):
            return
        self.alive -= set(removed)
        host.write(cid, history[:cut])

    async def check(self) -> None:
        """Hold the state against the laws.

        Raises:
            Broken: one does not hold.
        """
        bot = self.bot
        cid = bot.host.current[UMO]
        texts = bot.texts()
        said = [t for t in texts if not t.startswith(HEAD_PREFIX)]
        standing = [mark for text in said if text.startswith("M-") for mark in MARK.findall(text)]
        archive = await bot.service.archive()
        kept: list[str] = []
        records = await archive.list(cid, 1000)
        batches = [m for b in await archive.pending_trimmed(cid) for m in b.messages]
        for record in records:
            kept += [m.raw for m in await archive.messages(record.id)]
            for covered in record.covers_trimmed:
                kept += [m.raw for m in await archive.messages(covered)]
        kept += [m.raw for m in batches]
        archived = {
            mark
            for raw in kept
            for mark in MARK.findall(str(json.loads(raw).get("content")))
            if str(json.loads(raw).get("content")).startswith(f"{mark} ")
        }
        if lost := self.alive - set(standing) - archived:
            raise Broken(f"lost: {sorted(lost)}")
        if back := self.dead & set(MARK.findall(" ".join(texts))):
            raise Broken(f"back after a clearing: {sorted(back)}")
        if len(standing) != len(set(standing)):
            raise Broken(f"twice in the history: {standing}")
        numbers = [int(mark[2:]) for mark in standing]
        if numbers != sorted(numbers):
            raise Broken(f"out of order: {standing}")
        await self._check_heads(texts, cid)

    async def _check_heads(self, texts: list[str], cid: str) -> None:
        archive = await self.bot.service.archive()
        if unsettled := await archive.unsettled(cid):
            raise Broken(f"left between two stages: {[record.id for record in unsettled]}")
        heads = [text for text in texts if text.startswith(HEAD_PREFIX)]
        if len(heads) > 1 or (heads and texts[0] != heads[0]):
            raise Broken(f"heads: {[text[:60] for text in heads]}")
        known = (await archive.knows([text_hash(heads[0])])).heads if heads else {}
        latest = await archive.latest(cid)
        if known and (latest is None or latest.head_hash != text_hash(heads[0])):
            raise Broken("the head is not that of the last compaction")


async def interleave(seed: int, folder: Path, operations: int = 12) -> Counter[str]:
    """Play one interleaving; how often each operation succeeded.

    Raises:
        Broken: a law does not hold.
    """
    rng = random.Random(seed)

    async def answer_time() -> None:
        for _ in range(rng.choice((0, 1, 5, 40))):
            await asyncio.sleep(0)
        if rng.random() < 0.5:
            await asyncio.sleep(rng.random() * 0.01)

    settings = {"compress_tokens": _LINE_TOKENS, "min_messages": 2}
    async with new_bot(folder, CarryingModel(answer_time), **settings) as bot:
        played = Round(bot, rng)
        try:
            await played.play(operations)
            await played.check()
        except Broken as broken:
            story = "\n  ".join(played.log)
            raise Broken(f"seed {seed}: {broken}\n  {story}") from broken
        return played.counts
