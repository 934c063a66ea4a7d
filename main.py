"""The plugin as AstrBot sees it: commands and hooks, each handing over to the service.

Handlers live here and nowhere else: AstrBot binds them by this module's path.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

from astrbot.api import AstrBotConfig, FunctionTool, ToolSet, logger
from astrbot.api.event import AstrMessageEvent, MessageChain, filter  # noqa: A004 (its API name)
from astrbot.api.provider import LLMResponse, ProviderRequest
from astrbot.api.star import Context, Star, StarTools

from .compressor import (
    AstrBotHost,
    Compactor,
    handler_metadata,
    own_background_task,
    resolve_provider,
)
from .summary import recall
from .summary.args import (
    CompactArgs,
    ParseResult,
    build_compact_args,
    known_override_keys,
    parse_compact_args,
    parse_compact_overrides,
)
from .summary.commands import Commands, notice_of
from .summary.errors import CompactError, Voided
from .summary.permissions import Caller
from .summary.public import Compression
from .summary.runs import Outcome
from .summary.service import Service
from .summary.texts import Command
from .summary.turns import Turn, exchanged, reported_tokens
from .summary.values import plain
from .summary.watch import Watch

__all__ = [
    "CompactArgs",
    "CompactPlugin",
    "Compactor",
    "ParseResult",
    "known_override_keys",
    "parse_compact_args",
    "parse_compact_overrides",
    "resolve_provider",
]

NAME = "astrbot_plugin_compact"
# The extra of an event that holds its turn, or says that there is none of ours.
TURN = "_compact_turn"
NOT_OURS = "not ours"
# The extra that says whether a plugin's handler has prepared the request.
PREPARED = "_compact_prepared"
# The extra that holds the history as AstrBot gave it to the request.
GIVEN = "_compact_given"
# Before every other plugin, and after: what we add to a prompt is the last of it.
FIRST, LAST = 1_000_000, -1_000_000


class SubCommandFollows(filter.CustomFilter):
    """Lets the group act only where one of its sub-commands follows.

    Without it AstrBot answers the bare group with an error of its own.
    """

    def filter(self, event: AstrMessageEvent, _cfg: AstrBotConfig) -> bool:
        """Whether the message is the group's name and a sub-command."""
        call = Call.read(event)
        return event.is_at_or_wake_command and call is not None and call.sub is not None


class BareOrText(filter.CustomFilter):
    """Takes `/compact` alone, and `/compact` with any text that is no sub-command."""

    def filter(self, event: AstrMessageEvent, cfg: AstrBotConfig) -> bool:
        """Whether the message is for the default handler."""
        call = Call.read(event) if event.is_at_or_wake_command else None
        if call is None or not is_enabled("compact"):
            return False
        if call.sub is not None:
            # AstrBot passes over a disabled handler; say so instead of asking the chat model.
            return not is_enabled(call.sub.handler_md.handler_name)
        # In a private chat one is heard without a prefix: "compact cameras, please" is talk.
        return not call.body or has_prefix(event, cfg)


class Call:
    """A message read as a call of the group, under whatever names it has in the WebUI."""

    def __init__(self, group: str, sub: Any | None, body: str, meant: Any | None = None) -> None:
        self.group = group
        self.sub = sub
        self.body = body
        # A sub-command that AstrBot does not recognise for its capitals or full-width letters.
        self.meant = meant

    @classmethod
    def read(cls, event: AstrMessageEvent) -> Call | None:
        """The call in a message, None if it is none."""
        group = CompactPlugin.compact.parent_group
        names = group.get_complete_command_names()
        for sub in group.sub_command_filters:
            if sub.parent_command_names != names:
                # A rename of the group leaves its sub-commands under the old name. Set right
                # before any of them is asked: the group's filter comes first.
                sub.parent_command_names, sub._cmpl_cmd_names = names, None  # noqa: SLF001 (its cache)
        text = event.get_message_str()
        for name in names:
            if (body := after(name, text)) is not None:
                break
        else:
            return None
        for sub in group.sub_command_filters:
            for own_name in (sub.command_name, *sub.alias):
                if (rest := after(own_name, body)) is not None:
                    return cls(name, sub, rest)
        # With words behind it, it may as well begin a topic: "Search engine design".
        for sub in group.sub_command_filters:
            if plain(body) in map(plain, (sub.command_name, *sub.alias)):
                return cls(name, None, "", sub)
        return cls(name, None, body)


def after(name: str, text: str) -> str | None:
    """What follows a command's name in a text, None if the text does not begin with it."""
    words = r"\s+".join(map(re.escape, name.split()))
    found = re.match(rf"\s*{words}(?:\s+|$)", text)
    return text[found.end() :].strip() if found else None


def sub_command_names() -> dict[str, str]:
    """The sub-commands' names in the WebUI by the names they have here."""
    subs = CompactPlugin.compact.parent_group.sub_command_filters
    return {sub.handler_md.handler_name: sub.command_name for sub in subs}


def has_prefix(event: AstrMessageEvent, cfg: AstrBotConfig) -> bool:
    """Whether the message was typed with one of the bot's wake prefixes."""
    typed = event.message_obj.message_str.strip()
    # An empty prefix wakes on everything and so tells nothing.
    return any(prefix and typed.startswith(prefix) for prefix in cfg["wake_prefix"])


def is_enabled(handler_name: str) -> bool:
    """Whether a handler of ours is switched on in the WebUI."""
    metadata = handler_metadata(__name__, handler_name)
    return bool(getattr(metadata, "enabled", True))


class CompactPlugin(Star):
    """Compacts conversations, by hand and in the background, and takes it back."""

    def __init__(self, context: Context, config: AstrBotConfig) -> None:
        super().__init__(context)
        self.service = Service(
            AstrBotHost(context), config, StarTools.get_data_dir(NAME) / "archive.db", logger
        )
        self.watch = Watch(self.service, self._notify)
        self.commands = Commands(self.service, self.watch.automatic)
        self.compression = Compression(self.service, self.watch.automatic)
        self._tasks: set[asyncio.Task[str]] = set()

    async def initialize(self) -> None:
        """Open the archive and settle what a crash left."""
        await self.service.start()

    async def terminate(self) -> None:
        """End what runs, without a write."""
        await self.watch.stop()
        await self.service.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @filter.custom_filter(SubCommandFollows)
    @filter.command_group("compact")
    def compact(self) -> None:
        """压缩对话，旧消息可找回 / Compact the conversation"""

    @compact.command("run")
    async def run(self, event: AstrMessageEvent) -> None:
        """立即压缩 / Compact now"""
        await self._answer(event, "run")

    @compact.command("preview")
    async def preview(self, event: AstrMessageEvent) -> None:
        """预览，不调用模型 / Show the plan"""
        await self._answer(event, "preview")

    @compact.command("status")
    async def status(self, event: AstrMessageEvent) -> None:
        """会话状态 / Show the session's state"""
        await self._answer(event, "status")

    @compact.command("config")
    async def config(self, event: AstrMessageEvent) -> None:
        """当前配置 / Show the settings in force"""
        await self._answer(event, "config")

    @compact.command("set")
    async def set(self, event: AstrMessageEvent) -> None:
        """修改配置 / Change settings"""
        await self._answer(event, "set")

    @compact.command("undo")
    async def undo(self, event: AstrMessageEvent) -> None:
        """撤销上次压缩 / Take the last compaction back"""
        await self._answer(event, "undo")

    @compact.command("show")
    async def show(self, event: AstrMessageEvent) -> None:
        """完整摘要 / Show a summary in full"""
        await self._answer(event, "show")

    @compact.command("history")
    async def history(self, event: AstrMessageEvent) -> None:
        """压缩记录 / List the compactions"""
        await self._answer(event, "history")

    @compact.command("search")
    async def search(self, event: AstrMessageEvent) -> None:
        """搜索归档 / Search archived messages"""
        await self._answer(event, "search")

    @compact.command("forget")
    async def forget(self, event: AstrMessageEvent) -> None:
        """删除归档 / Erase the archive"""
        await self._answer(event, "forget")

    @compact.command("help")
    async def help(self, event: AstrMessageEvent) -> None:
        """帮助 / Help"""
        await self._answer(event, "help")

    @filter.custom_filter(BareOrText)
    async def bare(self, event: AstrMessageEvent) -> None:
        """`/compact` alone or with options and a focus."""
        call = Call.read(event)
        if call is not None and call.sub is not None:
            await self._answer(event, call.sub.handler_md.handler_name, disabled=True)
        else:
            meant = call.meant if call is not None else None
            await self._answer(event, meant.handler_md.handler_name if meant else "run")

    @filter.on_waiting_llm_request()
    async def request_waits(self, event: AstrMessageEvent) -> None:
        """Note whether a plugin has prepared the request; later AstrBot notes its own there."""
        event.set_extra(PREPARED, event.get_extra("provider_request") is not None)

    @filter.on_llm_request(priority=FIRST)
    async def request_made(self, event: AstrMessageEvent, req: ProviderRequest) -> None:
        """Note the messages of the request: what a plugin takes out of it AstrBot forgets."""
        if isinstance(req.contexts, list):
            event.set_extra(GIVEN, tuple(req.contexts))

    @filter.on_llm_request(priority=LAST)
    async def turn_begins(self, event: AstrMessageEvent, req: ProviderRequest) -> None:
        """Note the turn; give the request what its history lost."""
        if req.conversation is None or not isinstance(req.contexts, list):
            event.set_extra(TURN, NOT_OURS)
            return  # another program keeps this history, or a plugin asks for itself
        turn = self._turn(event, req)
        event.set_extra(TURN, turn)
        given = await self.watch.begin(turn)
        if given.contexts is not None:
            req.contexts = [*req.contexts[: turn.begin_dialogs], *map(dict, given.contexts)]
            turn.contexts = req.contexts
        req.system_prompt = (req.system_prompt or "") + given.system_text
        if given.recallable:
            # A set of our own: the request's may be shared with other requests.
            tools = req.func_tool.tools if req.func_tool else []
            req.func_tool = ToolSet([*tools, self._recall_tool(turn.cid)])
        if given.usage_cap is not None:
            usage = req.conversation.token_usage or given.usage_cap
            req.conversation.token_usage = min(usage, given.usage_cap)

    @filter.on_agent_begin()
    async def agent_begins(self, event: AstrMessageEvent, run_context: Any) -> None:
        """Keep the runner's list: another one at the end means that AstrBot trimmed."""
        if event.get_extra(TURN) is None:
            # A wake-up passes no request hook; it saves the history it has read by now.
            await self.watch.wakeups.begun(event.unified_msg_origin)
        elif turn := self._noted(event):
            turn.agent_begins(lambda: run_context.messages)

    @filter.on_llm_tool_respond()
    async def tool_answered(self, event: AstrMessageEvent, *_: Any) -> None:
        """Keep the list of this step and what it is about to lose: AstrBot may trim again."""
        if turn := self._noted(event):
            await self.watch.tool_answered(turn)

    @filter.on_llm_response()
    async def model_answered(self, event: AstrMessageEvent, resp: LLMResponse) -> None:
        """Note the usage of the turn's last model call."""
        turn = self._noted(event)
        if turn is None or resp is None:
            return
        # A turn that was stopped ends with a reply that AstrBot made up.
        stopped = event.is_stopped() or bool(event.get_extra("agent_stop_requested"))
        turn.answered = resp.role == "assistant" and not stopped
        turn.failed = not turn.answered
        if turn.answered and resp.usage is not None:
            turn.note_usage(resp.usage.input, resp.usage.total)

    @filter.on_agent_done()
    async def agent_done(self, event: AstrMessageEvent, _context: Any, _resp: Any) -> None:
        """A wake-up ended: it saves the history it read before it began."""
        if event.get_extra(TURN) is None:
            self.watch.wakeups.ended(event.unified_msg_origin)

    def _noted(self, event: AstrMessageEvent) -> Turn | None:
        """The event's turn; one that began before the plugin was reloaded is followed from now."""
        noted = event.get_extra(TURN)
        if noted is None or noted is NOT_OURS:
            return None
        turn = noted if isinstance(noted, Turn) else Turn.adopted(noted)
        if turn is None:
            return None
        if turn is not noted:
            event.set_extra(TURN, turn)
            self.watch.follow(turn)
        return turn

    def _recall_tool(self, cid: str) -> FunctionTool[Any]:
        """The tool that gives a model the archived messages of this one conversation."""

        async def handler(_event: AstrMessageEvent, query: Any = "", limit: Any = 5) -> str:
            return await recall.recall(self.service, cid, query, limit)

        return FunctionTool(
            name=recall.NAME,
            description=recall.DESCRIPTION,
            parameters=recall.PARAMETERS,
            handler=handler,
        )

    def _turn(self, event: AstrMessageEvent, req: ProviderRequest) -> Turn:
        contexts, tools = req.contexts, req.func_tool

        def tools_chars() -> int:
            return len(json.dumps(tools.openai_schema(), default=str)) if tools else 0

        made_by_handler = bool(event.get_extra(PREPARED))
        given = event.get_extra(GIVEN)
        withheld, put_in = exchanged(contexts, given or ())
        return Turn(
            umo=event.unified_msg_origin,
            cid=req.conversation.cid,
            contexts=contexts,
            begin_dialogs=_begin_dialogs(contexts),
            system_chars=len(req.system_prompt or ""),
            tools_chars=tools_chars,
            user_id=str(event.get_sender_id() or ""),
            nickname=str(event.get_sender_name() or ""),
            provider_id=str(event.get_extra("selected_provider") or ""),
            stored_usage_tokens=reported_tokens(req.conversation.token_usage) or 0,
            own=lambda task: own_background_task(event, task),
            is_private=event.is_private_chat(),
            is_handler_request=made_by_handler,
            withheld=withheld,
            put_in=put_in,
            checkpoint_id=str(event.get_extra("llm_checkpoint_id") or ""),
            usage=lambda: req.conversation.token_usage,
            found=None if given is None or made_by_handler else given[_begin_dialogs(given) :],
        )

    async def _notify(self, umo: str, is_private: bool, outcome: Outcome) -> None:
        """Say an automatic compaction in the chat, where the setting wants it."""
        wanted = self.service.settings.notify
        if wanted == "all" or (wanted == "private" and is_private):
            try:
                await self.context.send_message(umo, MessageChain().message(notice_of(outcome)))
            except Exception as exc:
                logger.warning("the notice of a compaction of %s was not sent: %s", umo, exc)

    async def _answer(self, event: AstrMessageEvent, name: str, *, disabled: bool = False) -> None:
        """Run a command in a task that `/stop` and `/reset` can end, and say its reply."""
        event.should_call_llm(True)  # AstrBot's name for: do not
        call = Call.read(event) or Call(NAME, None, "")
        caller = self._caller(event, call)

        async def speak(text: str) -> None:
            await event.send(MessageChain().message(text))

        if disabled or not is_enabled(name):
            await speak(await self.commands.disabled(caller, name))
            return
        if call.sub is None and not self._may(event, name):
            await speak(await self.commands.refused(caller, name))
            return
        task = asyncio.create_task(self.commands.answer(name, caller, call.body, speak))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        own_background_task(event, task)
        try:
            reply = await task
        except asyncio.CancelledError:
            if not task.cancelled():
                raise
            reply = await self.commands.failed(caller, Voided())
        except Exception:  # the one broad handler: whatever it is, the user hears of it
            logger.exception("/compact %s failed", name)
            reply = await self.commands.failed(caller, CompactError())
        await speak(reply)

    def _caller(self, event: AstrMessageEvent, call: Call) -> Caller:
        group_id = event.get_group_id()
        isolated = event.get_extra("_session_isolated")
        if isolated is None:
            isolated = bool(group_id) and event.session_id != group_id
        cfg = self.context.get_config(umo=event.unified_msg_origin)
        prefix = next(iter(cfg["wake_prefix"]), "")
        return Caller(
            umo=event.unified_msg_origin,
            user_id=event.get_sender_id(),
            is_admin=event.is_admin(),
            is_shared_group=bool(group_id) and not isolated,
            command=Command(prefix + call.group, sub_command_names()),
            chat_id=str(event.get_extra("selected_provider") or ""),
        )

    def _may(self, event: AstrMessageEvent, name: str) -> bool:
        """Whether the permissions set in the WebUI for the group and for a sub-command allow it."""
        cfg = self.context.get_config(umo=event.unified_msg_origin)
        return all(
            rule.filter(event, cfg)
            for each in ("compact", name)
            for rule in getattr(handler_metadata(__name__, each), "event_filters", ())
            if isinstance(rule, filter.PermissionTypeFilter)
        )

    def _build_compact_args(self, result: ParseResult) -> CompactArgs:
        """A run's arguments from its parsed options and the settings in force."""
        return build_compact_args(result, self.service.settings)


def _begin_dialogs(contexts: Sequence[Mapping[str, Any]]) -> int:
    """How many messages of a persona stand in front of a history; they are never saved."""
    return sum(1 for _ in takewhile(lambda message: message.get("_no_save"), contexts))
