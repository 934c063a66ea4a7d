"""What other plugins may call: `star_cls.compression` (spec 3.8)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from .args import ParseResult, build_compact_args
from .automatic import Automatic
from .errors import CompactError
from .plan import Skip
from .runs import Listener, Outcome
from .service import Service
from .state import session_state
from .status_reply import StatusFacts

TodoSource = Callable[[str], Awaitable[object] | object]


class Compression:
    """Compaction as a service."""

    def __init__(self, service: Service, automatic: Automatic) -> None:
        self._service = service
        self._automatic = automatic

    async def compress(self, umo: str, focus: str = "") -> Outcome | Skip:
        """Compact a session's current conversation now.

        Args:
            umo: the session.
            focus: what the summary shall stress.

        Raises:
            CompactError: not done, the history is untouched; `str()` says why in English.
        """
        settings = self._service.settings
        parsed = ParseResult({}, focus, [])
        args = build_compact_args(parsed, settings, settings.lines(umo))
        choice = await self._service.host.choose(umo, args.provider_id, args.config_provider_id)
        order = await self._service.order(umo, args, "api", choice)
        return await self._service.compactions.run(order)

    async def compress_line(self, umo: str) -> int | None:
        """The tokens at which a session is compacted; None if usage never starts it."""
        try:
            cid = await self._service.conversation(umo)
        except CompactError:
            return None
        chat = await self._service.host.chat_model(umo)
        lines = self._service.settings.lines(umo)
        line = await self._service.compress_line(cid, lines, chat)
        return line.tokens if line is not None and line.by_usage else None

    async def status(self, umo: str) -> StatusFacts:
        """The state of a session.

        Raises:
            CompactError: there is no conversation here, or it cannot be read.
        """
        facts, _ = await session_state(self._service, self._automatic, umo)
        return facts

    def subscribe(self, callback: Listener) -> Callable[[], None]:
        """Call `callback` with every `Progress` of every run; the value returned ends that."""
        return self._service.compactions.subscribe(callback)

    def register_todo_source(self, callback: TodoSource) -> Callable[[], None]:
        """Ask `callback(umo)` for the task list of a session before each work-template run.

        It gives a list of objects with a title (or content) and a status, or None, at once or
        as an awaitable. The value returned takes it off again.
        """
        sources = self._service.todo_sources
        sources.append(callback)
        return lambda: sources.remove(callback)
