"""A bot on the host in memory: its turns pass the plugin's hooks in AstrBot's order.

Invariant: as on AstrBot, a turn holds the session's lock from before it reads the history until
after it saved it, commands and other writers do not, and a turn that was stopped saves nothing.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from astrbot_plugin_compact.summary.args import ParseResult, build_compact_args
from astrbot_plugin_compact.summary.heads import HEAD_PREFIX
from astrbot_plugin_compact.summary.host import ModelInfo, ModelReply, ModelRequest
from astrbot_plugin_compact.summary.plan import Skip
from astrbot_plugin_compact.summary.public import Compression
from astrbot_plugin_compact.summary.runs import Outcome
from astrbot_plugin_compact.summary.service import Service
from astrbot_plugin_compact.summary.turns import Additions, Turn, exchanged
from astrbot_plugin_compact.summary.undo import Undone, undo
from astrbot_plugin_compact.summary.watch import Watch

from tests.contract.fake_host import FakeHost

UMO = "qq:FriendMessage:7"
WINDOW_TOKENS = 8_000
FILLER = "一件很长的事，" * 14
MARK = re.compile(r"\bM-\d+\b")
_PAIR = ("Our previous history conversation summary: ", "Acknowledged the summary of our previous")

Message = dict[str, Any]
Trim = Callable[[list[Message]], list[Message]]


class CarryingModel:
    """A summary model that keeps every mark of what it reads; `before` runs ahead of a reply."""

    def __init__(self, before: Callable[[], Awaitable[None]] | None = None) -> None:
        self.requests: list[ModelRequest] = []
        self.at_once = 0
        self.most_at_once = 0
        self.failure: Exception | None = None
        self._before = before

    @property
    def info(self) -> ModelInfo:
        """See `Model`."""
        return ModelInfo("carrying", "carrying-model", 128_000, 4_096)

    async def ask(self, request: ModelRequest) -> ModelReply:
        """See `Model`."""
        self.requests.append(request)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            if self._before is not None:
                await self._before()
        finally:
            self.at_once -= 1
        if self.failure is not None:
            raise self.failure
        marks = " ".join(dict.fromkeys(MARK.findall(request.user)))
        heading, *others = re.findall(r"(?m)^## .+$", request.system)
        picks = [p for p in ("【保留原文】", "[Keep verbatim]") if p in request.system]
        lines = [*(f"{each} none" for each in picks), heading, marks]
        text = "\n".join([*lines, *(f"{each}\n无" for each in others)])
        return ModelReply(text, input_tokens=10, output_tokens=10)


class ChatModel:
    """The chat's own model: a window of 8,000 tokens, and never asked for a summary."""

    @property
    def info(self) -> ModelInfo:
        """See `Model`."""
        return ModelInfo("chat", "chat-model", WINDOW_TOKENS, 4_096)

    async def ask(self, request: ModelRequest) -> ModelReply:
        """See `Model`."""
        raise AssertionError(f"the chat's model was asked: {request.user[:80]}")


class FakeBot:
    """Service, watch and what AstrBot does around them."""

    def __init__(self, host: FakeHost, service: Service) -> None:
        self.host = host
        self.service = service
        self.notices: list[str] = []
        self.watch = Watch(service, self._notify)
        self.compression = Compression(service, self.watch.automatic)
        # Turns under way, and those of them that `/reset` has stopped; by session.
        self._active: dict[str, set[object]] = {}
        self._stopped: set[object] = set()

    async def _notify(self, umo: str, _is_private: bool, _outcome: Outcome) -> None:
        self.notices.append(umo)

    async def turn(
        self,
        text: str,
        *,
        umo: str = UMO,
        usage: int | None = None,
        trim: Trim | None = None,
        during: Callable[[], Awaitable[None]] | None = None,
        contexts: Sequence[Message] | None = None,
        answers: bool = True,
        saves: bool = True,
        steps: Sequence[tuple[list[Message], Trim | None]] = (),
        saved: Callable[[], object] = lambda: None,
        plugin: Callable[[list[Message]], list[Message]] | None = None,
        checkpoint_id: str = "",
    ) -> tuple[Additions, list[Message]]:
        """A turn of the chat; what the request was given and the messages the model saw.

        `steps` are tool steps: what each adds, and the host's trimming before the next one.
        `saved` is called when the turn was saved. `plugin` changes the request's messages.
        """
        host = self.host
        me = object()
        self._active.setdefault(umo, set()).add(me)
        async with host.lock(umo):
            cid = host.current.get(umo) or host.add(umo)
            row = host.rows[cid]
            history = [dict(message) for message in (contexts or json.loads(row.text or "[]"))]
            made = history
            history = plugin(made) if plugin else made
            turn = self.begun(umo, cid, history, handler=contexts is not None)
            turn.withheld, turn.put_in = exchanged(history, made)
            turn.checkpoint_id = checkpoint_id
            turn.found = made if contexts is None else None
            given = await self.watch.begin(turn)
            if given.contexts is not None:
                history = [dict(message) for message in given.contexts]
                turn.contexts = history
            messages = [*history, {"role": "user", "content": text}]
            current = [messages]
            turn.agent_begins(lambda: current[0])
            turn.usage = lambda: usage
            await asyncio.sleep(0)
            if trim is not None:
                current[0] = trim(current[0])
            for added, trim_again in steps:
                await self.watch.tool_answered(turn)
                current[0].extend(added)
                if trim_again is not None:
                    current[0] = trim_again(current[0])
            seen = list(current[0])
            if during is not None:
                await during()
            if answers:
                current[0].append({"role": "assistant", "content": f"re: {text}"})
                turn.answered = True
                turn.usage_tokens = usage
            self._active[umo].discard(me)
            if saves and me not in self._stopped and cid in host.rows:
                prompts = 1 if current[0][0]["role"] == "system" else 0
                host.write(cid, current[0][prompts:], token_usage=usage or 0)
                saved()
        return given, seen

    def begun(
        self,
        umo: str,
        cid: str,
        history: Sequence[Message],
        *,
        handler: bool = False,
        begin_dialogs: int = 0,
    ) -> Turn:
        """A turn as the request hook notes it."""
        return Turn(
            umo=umo,
            cid=cid,
            contexts=history,
            begin_dialogs=begin_dialogs,
            system_chars=100,
            tools_chars=lambda: 0,
            user_id="7",
            nickname="Ann",
            provider_id="",
            stored_usage_tokens=self.host.rows[cid].token_usage,
            own=lambda task: None,
            is_private=True,
            is_handler_request=handler,
        )

    async def compact(self, umo: str = UMO) -> Outcome | Skip:
        """A compaction by hand."""
        return await self.compression.compress(umo)

    async def undo(self, umo: str = UMO) -> Undone:
        """What `/compact undo` does."""
        service, cid = self.service, await self.service.conversation(umo)
        async with service.compactions.alone(umo, cid, "undo"):
            return await undo(service.host, await service.archive(), umo, cid, on_wait=lambda: None)

    def reset(self, umo: str = UMO) -> None:
        """What `/reset` does: no lock, an empty history, running turns stopped."""
        self._stopped |= self._active.get(umo, set())
        self.host.write(self.host.current[umo], [])

    def is_quiet(self, umo: str = UMO) -> bool:
        """Whether no turn is under way, or over and not looked through yet."""
        trims = self.service.compactions.trims
        return not self._active.get(umo) and not trims.may_come(self.host.current[umo])

    async def looked_through(self) -> None:
        """Wait until every turn has been looked through and no run is in flight."""
        tasks = self.watch._tasks
        while pending := [task for task in tasks if not task.done()]:
            await asyncio.wait(pending)

    def texts(self, umo: str = UMO) -> list[str]:
        """What stands in the current history, checkpoints left out."""
        messages = self.host.history(self.host.current[umo])
        return [str(m["content"]) for m in messages if m["role"] != "_checkpoint"]


@asynccontextmanager
async def new_bot(
    folder: Path, model: CarryingModel, host: FakeHost | None = None, **config: Any
) -> AsyncIterator[FakeBot]:
    """A bot whose plugin has these settings."""
    host = host or FakeHost()
    host.session_model = ChatModel()
    host.models = {"carrying": model}
    log = logging.getLogger("tests.fake_bot")
    settings = {"compress_provider_id": "carrying", **config}
    service = Service(host, Config(settings), folder / "archive.db", log)
    await service.start()
    bot = FakeBot(host, service)
    try:
        yield bot
    finally:
        await bot.watch.stop()
        await service.stop()


class Config(dict[str, Any]):
    """A config without a file."""

    def save_config(self) -> None:
        """See `service.Config`."""


def arguments(bot: FakeBot, umo: str = UMO) -> Any:
    """A run's arguments without options."""
    settings = bot.service.settings
    return build_compact_args(ParseResult({}, "", []), settings, settings.lines(umo))


def keep_turns(turns: int) -> Trim:
    """AstrBot's trimming by turns."""

    def trim(messages: list[Message]) -> list[Message]:
        system = [m for m in messages[:1] if m["role"] == "system"]
        talk = [m for m in messages if m["role"] not in ("system", "_checkpoint")]
        if len(talk) // 2 <= turns:
            return messages
        kept = talk[-turns * 2 :]
        start = next((i for i, m in enumerate(kept) if m["role"] == "user"), 0)
        kept = kept[start:]
        if not kept or kept[0]["role"] != "user":
            kept = [next(m for m in talk if m["role"] == "user"), *kept]
        return [*system, *kept]

    return trim


def host_summary(keep: int, marks: str = "") -> Trim:
    """AstrBot's own compression: a pair in front of the last messages."""

    def trim(messages: list[Message]) -> list[Message]:
        pair = [
            {"role": "user", "content": f"{_PAIR[0]}{marks}"},
            {"role": "assistant", "content": f"{_PAIR[1]} conversation history."},
        ]
        system = [m for m in messages[:1] if m["role"] == "system"]
        return [*system, *pair, *messages[-keep:]]

    return trim


def talk(first: int, last: int) -> list[dict[str, Any]]:
    """Rounds of about 200 tokens, marked M-<n>."""
    messages: list[dict[str, Any]] = []
    for number in range(first, last + 1):
        messages.append({"role": "user", "content": f"M-{number} {FILLER * 2}"})
        messages.append({"role": "assistant", "content": f"re: {number} {FILLER}"})
    return messages


class Gate:
    """Lets summaries pass once it is open; reached when so many stand at it."""

    def __init__(self, wanted: int = 1) -> None:
        self.reached = asyncio.Event()
        self.open = asyncio.Event()
        self._wanted = wanted

    async def __call__(self) -> None:
        self._wanted -= 1
        if self._wanted <= 0:
            self.reached.set()
        await self.open.wait()


def model(bot: FakeBot) -> CarryingModel:
    carrying = bot.host.models["carrying"]
    assert isinstance(carrying, CarryingModel)
    return carrying


def seed(bot: FakeBot, messages: Sequence[dict[str, Any]], usage: int = 0) -> str:
    cid = bot.host.current[UMO]
    bot.host.write(cid, messages, token_usage=usage)
    return cid


def is_compacted(bot: FakeBot) -> bool:
    return bot.texts()[0].startswith(HEAD_PREFIX)


async def pending(bot: FakeBot) -> list[str]:
    """The texts of what was dropped and waits for a summary."""
    archive = await bot.service.archive()
    batches = await archive.pending_trimmed(bot.host.current[UMO])
    return [json.loads(m.raw)["content"] for batch in batches for m in batch.messages]
