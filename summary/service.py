"""The plugin's working parts put together: settings, archive, compactions.

Invariant: an archive that cannot be opened refuses compactions with its reason and disturbs
nothing else; every use tries again, so a repaired disk needs no restart.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from pathlib import Path
from typing import Any, Protocol

from .archive import Archive
from .args import CompactArgs
from .bounded import Bounded
from .chain import ProviderChoice
from .compaction import Compactions
from .engines import BuiltinEngine, Engine, Job
from .errors import ArchiveFailed, HostFailed, NoConversation, NoProvider, NotAvailable
from .host import Host, ModelInfo
from .layers import LineSettings
from .lines import HEAD_MESSAGES, CompressLine, CountLine, compress_line, count_line
from .records import settle_unfinished
from .runs import Order, Progress
from .settings import Change, Settings, apply_set
from .structured import StructuredEngine
from .templates import choose_template
from .texts import say
from .todos import Todo, read_todos
from .usertext import Speaker

# What a summary model is taken to hold if nobody knows.
_UNKNOWN_WINDOW_TOKENS = 32_000
_SWEEP_SECONDS = 24 * 60 * 60
_BEGIN_DIALOGS = "begin_dialogs"


class Config(Protocol):
    """The plugin's config as the host keeps it: a mapping that can be written to its file."""

    def save_config(self) -> None:
        """Write the file.

        Raises:
            OSError: it cannot be written.
        """
        ...


class Service:
    """What handlers, hooks and page call. Made once a plugin load."""

    def __init__(
        self,
        host: Host,
        config: MutableMapping[str, Any],
        archive_path: Path,
        log: logging.Logger,
    ) -> None:
        self.host = host
        self.log = log
        self._config = config
        self._path = archive_path
        self._archive: Archive | None = None
        self._opening = asyncio.Lock()
        self._sweeping: asyncio.Task[None] | None = None
        self.compactions = Compactions(host, self.archive)
        self.compactions.subscribe(self._log_warnings)
        self._engines: Mapping[str, Engine] = {
            "structured": StructuredEngine(host),
            "builtin": BuiltinEngine(host),
        }
        self.settings = Settings.parse(config, log.warning)
        # Other plugins' task lists, asked in order before a work-template run.
        self.todo_sources: list[Callable[[str], Awaitable[object] | object]] = []
        # What a character of a conversation's last turns cost, in tokens.
        self.tokens_per_char: Bounded[float] = Bounded(1000)
        self._known_begin_dialogs: Bounded[int] = Bounded(1000)

    async def start(self) -> None:
        """Open the archive, settle what a crash left unfinished, begin the daily sweep."""
        try:
            await self.archive()
        except ArchiveFailed as error:
            self.log.warning("the archive cannot be opened, nothing is compacted: %s", error)
        self._sweeping = asyncio.create_task(self._sweep_daily())

    async def stop(self) -> None:
        """End all runs without a write and close the archive."""
        if self._sweeping is not None:
            self._sweeping.cancel()
            await asyncio.gather(self._sweeping, return_exceptions=True)
        await self.compactions.stop()
        if self._archive is not None:
            await self._archive.close()
            self._archive = None

    async def archive(self) -> Archive:
        """The open archive.

        Raises:
            ArchiveFailed: it cannot be opened; the next call tries again.
        """
        async with self._opening:
            if self._archive is None:
                opened = await Archive.open(self._path)
                settled = 0
                try:
                    settled = await settle_unfinished(self.host, opened)
                except HostFailed as error:
                    # Every run settles its own conversation first; this was only the early look.
                    self.log.warning("what a crash left is settled later: %s", error)
                except BaseException:
                    await opened.close()
                    raise
                if settled:
                    self.log.info("settled %d compactions that had not ended", settled)
                self._archive = opened
        return self._archive

    async def _sweep_daily(self) -> None:
        """Erase what nobody wants any more: deleted conversations, messages past their days."""
        while True:
            now = time.time()
            try:
                existing = await self.host.conversation_ids()
                await (await self.archive()).sweep(existing, now, self.settings.archive_days)
            except (ArchiveFailed, HostFailed) as error:
                self.log.warning("the archive could not be swept: %s", error)
            await asyncio.sleep(_SWEEP_SECONDS)

    async def conversation(self, umo: str) -> str:
        """The session's current conversation.

        Raises:
            NotAvailable: another program keeps this session's history, or there is none yet.
        """
        if not self.host.core(umo).local:
            raise NotAvailable
        cid = await self.host.current_conversation(umo)
        if cid is None:
            raise NoConversation
        return cid

    async def order(
        self,
        umo: str,
        args: CompactArgs,
        trigger: str,
        choice: ProviderChoice,
        chat_id: str = "",
    ) -> Order:
        """What these arguments ask for, every setting resolved.

        `chat_id` is the chat provider picked for this message, empty for the session's.

        Raises:
            NotAvailable, NoProvider, ArchiveFailed: it cannot be asked for here.
        """
        cid = await self.conversation(umo)
        if choice.provider is None:
            raise NoProvider
        model = self.host.model(umo, choice.provider)
        core = self.host.core(umo)
        line = await self.compress_line(cid, args, await self.host.chat_model(umo, chat_id))
        job = Job(
            umo=umo,
            model=model.info,
            window_tokens=model.info.window_tokens or _UNKNOWN_WINDOW_TOKENS,
            focus=args.effective_focus,
            instruction=args.instruction_text or core.instruction,
            template=args.template,
            language=args.language,
            budget_ratio=args.summary_budget_ratio,
            line_tokens=line.tokens if line else None,
            timeout_seconds=args.summary_timeout,
            extra_body=args.summary_extra_body,
            admin_ids=self.host.admin_ids(umo),
            speakers=await self._speakers(cid),
            todos=await self._todos(umo),
            tokens_per_char=self.tokens_per_char.get(cid),
        )
        counted = await self.count_line(umo, cid, args, HEAD_MESSAGES, 0)
        return Order(
            umo=umo,
            cid=cid,
            trigger=trigger,
            engine=self._engines[args.engine],
            job=job,
            model=model,
            keep_recent_ratio=args.keep_recent_ratio,
            min_messages=args.min_messages,
            line_tokens=line.tokens if line else None,
            count_line=counted.messages if counted else None,
            explicit=args.has_request,
        )

    async def compress_line(
        self, cid: str, lines: CompactArgs | LineSettings, chat: ModelInfo | None
    ) -> CompressLine | None:
        """The compress line E of a conversation answered by this model (spec 3.1)."""
        try:
            growth = await (await self.archive()).growth(cid)
        except ArchiveFailed:  # the line is shown all the same, only without that refinement
            growth = None
        window = chat.window_tokens if chat else None
        return compress_line(window, lines.compress_at, lines.compress_tokens, growth)

    async def count_line(
        self, umo: str, cid: str, lines: CompactArgs | LineSettings, head: int, markers: int
    ) -> CountLine | None:
        """The count line of a history with so many head messages and markers (spec 3.2)."""
        turns, begin_dialogs = self.host.core(umo).max_turns, await self._begin_dialogs(cid)
        return count_line(lines.history_limit, turns, begin_dialogs, head, markers)

    async def _begin_dialogs(self, cid: str) -> int:
        """How many messages the persona put before the conversation's last turn."""
        if cid not in self._known_begin_dialogs:
            try:
                noted = await (await self.archive()).get_state(cid, _BEGIN_DIALOGS)
            except ArchiveFailed:  # as with the growth
                return 0
            self._known_begin_dialogs[cid] = int(noted) if noted else 0
        return self._known_begin_dialogs[cid]

    async def note_begin_dialogs(self, cid: str, messages: int) -> None:
        """Note how many messages the persona put before a turn."""
        if await self._begin_dialogs(cid) != messages:
            await (await self.archive()).put_state(cid, _BEGIN_DIALOGS, str(messages))
            self._known_begin_dialogs[cid] = messages

    def _log_warnings(self, progress: Progress) -> None:
        """Say what a summary model did that was no failure, whoever asked for the run."""
        for key, fields in progress.outcome.warnings if progress.outcome else ():
            self.log.warning("compaction of %s: %s", progress.umo, say("en", key, **fields))

    async def _todos(self, umo: str) -> tuple[Todo, ...]:
        """The first task list another plugin has for the session."""
        for source in self.todo_sources:
            try:
                given = source(umo)
                value = await given if inspect.isawaitable(given) else given
            except Exception as exc:  # another plugin's fault must not stop ours
                self.log.warning("a task list could not be had: %s", exc)
                continue
            if found := read_todos(value):
                return found
        return ()

    async def _speakers(self, cid: str) -> dict[str, Speaker]:
        """Who said which user message, by content hash; left out where two said the same."""
        noted = await (await self.archive()).speakers(cid)
        return {
            message: Speaker(said[-1].user_id, said[-1].nickname)
            for message, said in noted.items()
            if len({speaker.user_id for speaker in said}) == 1
        }

    def template(self, umo: str, args: CompactArgs) -> str | None:
        """The template a run would use, None for an engine without templates."""
        if not self._engines[args.engine].structured:
            return None
        return choose_template(args.template, umo, self.host.admin_ids(umo))

    def persist(self, changes: tuple[Change, ...], here: str | None) -> str | None:
        """Put changes into the config and its file; why the file was not written, or None.

        They hold in this process either way.
        """
        self._config.update(apply_set(self._config, changes, here))
        self.settings = Settings.parse(self._config, self.log.warning)
        try:
            self._save()
        except OSError as exc:
            self.log.warning("the config file cannot be written: %s", exc)
            return exc.strerror or str(exc)
        return None

    def _save(self) -> None:
        save: Callable[[], None] = self._config.save_config  # type: ignore[attr-defined]
        save()
