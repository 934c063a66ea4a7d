"""The commands: what a person typed in, the reply out (spec 5).

Invariant: every command ends in exactly one reply, whatever fails; one that is refused asks no
model. The host's events stay outside: a caller and a way to speak come in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from .archive_commands import ArchiveCommands, Speak
from .args import (
    CompactArgs,
    SetRefused,
    build_compact_args,
    parse_compact_overrides,
    parse_set,
)
from .automatic import Automatic
from .chain import ProviderChoice
from .errors import CompactError
from .history import parse_history
from .permissions import Caller, refusal
from .plan import Skip
from .replies import (
    DoneFacts,
    KeptPart,
    PreviewFacts,
    done_reply,
    error_reply,
    notice,
    preview_reply,
    skip_reply,
    skipped_lines,
    start_reply,
)
from .runs import Outcome, Preview, Progress
from .service import Service
from .settings_reply import config_reply, ignored_reply, set_refused_reply, set_reply
from .state import session_state
from .status_reply import status_reply
from .templates import choose_language
from .texts import say
from .threads import in_thread
from .usertext import spoken_texts

# Enough of a conversation's end to know its language by.
_SAMPLE_MESSAGES = 20


# Commands followed by words of the chat's own language; elsewhere they are names and numbers.
_TALKING = frozenset({"run", "preview", "search"})
# What comes before the words may be options, the reply's language among them.
_WITH_OPTIONS = frozenset({"run", "preview"})


class Commands:
    """The sub-commands by name; `answer` runs one."""

    def __init__(self, service: Service, automatic: Automatic) -> None:
        self._service = service
        self._automatic = automatic
        archive = ArchiveCommands(service, automatic)
        self._by_name: dict[str, Callable[[Caller, str, str, Speak], Awaitable[str]]] = {
            "run": self._run,
            "preview": self._preview,
            "status": self._status,
            "config": self._config,
            "set": self._set,
            "help": self._help,
            "undo": archive.undo,
            "show": archive.show,
            "history": archive.history,
            "search": archive.search,
            "forget": archive.forget,
        }

    async def answer(self, name: str, caller: Caller, body: str, speak: Speak) -> str:
        """The reply to a command; lines said before it go through `speak`.

        Args:
            name: the sub-command.
            caller: who typed it, and where.
            body: what followed it.
            speak: sends a line to the chat at once.
        """
        language = await self._language(
            caller, body if name in _TALKING else "", has_options=name in _WITH_OPTIONS
        )
        refused = refusal(name, caller, self._service.settings.group_members)
        if refused is not None:
            return say(language, refused, command=caller.command, name=name)
        try:
            return await self._by_name[name](caller, body, language, speak)
        except CompactError as error:
            self._service.log.warning("%s %s: %s", caller.command, name, error)
            return error_reply(language, error, caller.command)

    async def disabled(self, caller: Caller, name: str) -> str:
        """The reply to a command that the owner switched off in the WebUI."""
        language = await self._language(caller, "")
        return say(language, "refused.disabled", command=caller.command, name=name)

    async def refused(self, caller: Caller, name: str) -> str:
        """The reply to a command that the WebUI's permissions forbid this caller."""
        language = await self._language(caller, "")
        return say(language, "refused.admin", command=caller.command, name=name)

    async def failed(self, caller: Caller, error: CompactError) -> str:
        """The reply to a command that failed outside of `answer`."""
        return error_reply(await self._language(caller, ""), error, caller.command)

    async def _run(self, caller: Caller, body: str, language: str, speak: Speak) -> str:
        args = self._args(caller, body, language)
        choice = await self._choose(caller, args)
        preamble = [*ignored_reply(language, args.errors), *skipped_lines(language, choice)]
        said: list[asyncio.Task[None]] = []

        def tell(progress: Progress) -> None:
            if progress.stage == "start":
                line = start_reply(language, progress.steps)
            elif progress.stage == "wait":
                line = say(language, "waiting")
            else:
                return
            said.append(asyncio.ensure_future(speak(line)))

        try:
            order = await self._service.order(caller.umo, args, "manual", choice, caller.chat_id)
            result = await self._service.compactions.run(order, tell)
            if isinstance(result, Skip):
                reply = skip_reply(language, result, caller.command)
            else:
                reply = done_reply(language, _done_facts(result, args), caller.command)
        except CompactError as error:
            self._service.log.warning("%s run: %s", caller.command, error)
            reply = error_reply(language, error, caller.command)
        finally:
            await asyncio.gather(*said)
        return "\n".join([*preamble, reply])

    async def _preview(self, caller: Caller, body: str, language: str, _speak: Speak) -> str:
        args = self._args(caller, body, language)
        choice = await self._choose(caller, args)
        ignored = ignored_reply(language, args.errors)
        order = await self._service.order(caller.umo, args, "manual", choice, caller.chat_id)
        result = await self._service.compactions.preview(order)
        if isinstance(result, Skip):
            return "\n".join([*ignored, skip_reply(language, result, caller.command)])
        facts = _preview_facts(result, args)
        return "\n".join([*ignored, preview_reply(language, facts, choice)])

    async def _status(self, caller: Caller, _body: str, language: str, _speak: Speak) -> str:
        facts, choice = await session_state(
            self._service, self._automatic, caller.umo, caller.chat_id
        )
        return status_reply(language, facts, choice, datetime.now(UTC), caller.command)

    async def _config(self, caller: Caller, _body: str, language: str, _speak: Speak) -> str:
        settings = self._service.settings
        return config_reply(language, settings, settings.lines(caller.umo))

    async def _set(self, caller: Caller, body: str, language: str, _speak: Speak) -> str:
        request = parse_set(body)
        if isinstance(request, SetRefused):
            return set_refused_reply(language, request.problems, caller.command)
        here = caller.umo if request.here else None
        # Of a setting that is named twice the last value holds, and is all that is said.
        changes = tuple({change.name: change for change in request.changes}.values())
        unsaved = self._service.persist(changes, here)
        # Whoever sets a language wants to be answered in it.
        wanted = next((change.value for change in changes if change.name == "language"), None)
        language = wanted if wanted in ("zh", "en") else language
        return set_reply(language, changes, here=request.here, unsaved=unsaved)

    async def _help(self, caller: Caller, _body: str, language: str, _speak: Speak) -> str:
        return say(language, "help", command=caller.command)

    def _args(self, caller: Caller, body: str, language: str) -> CompactArgs:
        settings = self._service.settings
        parsed = parse_compact_overrides(body, language)
        return build_compact_args(parsed, settings, settings.lines(caller.umo))

    async def _choose(self, caller: Caller, args: CompactArgs) -> ProviderChoice:
        return await self._service.host.choose(
            caller.umo, args.provider_id, args.config_provider_id, caller.chat_id
        )

    async def _language(self, caller: Caller, body: str, *, has_options: bool = False) -> str:
        parsed = parse_compact_overrides(body)
        wanted = self._service.settings.language
        if has_options:
            wanted = parsed.overrides.get("language", wanted)
        if wanted != "auto":
            return wanted
        # The names of options are English in any language and tell nothing.
        return choose_language("auto", [*await self._last_texts(caller.umo), parsed.focus])

    async def _last_texts(self, umo: str) -> list[str]:
        """The end of the conversation, for its language; nothing if it cannot be read."""
        try:
            cid = await self._service.conversation(umo)
            row = await self._service.host.read(cid)
            stored = await in_thread(parse_history, row.text if row else None)
        except CompactError:
            return []
        return spoken_texts([message.data for message in stored], _SAMPLE_MESSAGES)


def notice_of(outcome: Outcome) -> str:
    """The line in the chat after an automatic compaction, in the conversation's language."""
    return notice(outcome.language, _done_facts(outcome, CompactArgs(show_summary=False)))


def _done_facts(outcome: Outcome, args: CompactArgs) -> DoneFacts:
    done = outcome.committed
    return DoneFacts(
        before_messages=done.messages_before,
        after_messages=done.messages_after,
        before_tokens=done.tokens_before,
        after_tokens=done.tokens_after,
        provider=outcome.provider_id,
        template=outcome.template,
        kept_messages=done.kept_messages,
        requests=outcome.requests,
        number=done.number,
        summary=outcome.summary if args.show_summary else None,
        max_chars=args.summary_max_chars,
        warnings=outcome.warnings,
    )


def _preview_facts(preview: Preview, args: CompactArgs) -> PreviewFacts:
    plan, prepared = preview.plan, preview.prepared
    by_rule = [plan.span[index] for index in plan.kept_by_rule]
    kept = sum(len(unit.items) for unit in by_rule)
    tail_is = "recent" if args.keep_recent_ratio > 0 else "open"
    parts = (
        KeptPart("system", len(plan.layout.leading), 0),
        KeptPart("request", kept, sum(unit.tokens for unit in by_rule)),
        KeptPart(tail_is, len(plan.tail), plan.tail_tokens),
    )
    return PreviewFacts(
        before_messages=plan.layout.shown_count,
        kept_messages=len(plan.layout.leading) + len(plan.tail) + kept,
        archived_messages=sum(len(unit.items) for unit in plan.span) - kept,
        before_tokens=plan.layout.tokens,
        after_tokens=prepared.after_tokens,
        template=prepared.template,
        budget_tokens=prepared.budget_tokens,
        retain_tokens=prepared.retain_cap_tokens,
        requests=prepared.requests,
        trimmed_messages=sum(len(unit.items) for unit in plan.trimmed),
        focus=args.effective_focus,
        kept=tuple(part for part in parts if part.messages),
        keep_ratio=args.keep_recent_ratio,
        has_earlier=plan.earlier is not None,
    )
