"""Compactions to break: hosts and archives that can be disturbed at every await.

A `Points` counts the places a run passes, before and after each verb of host and archive; a
test arms one of them with what is to happen there.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, cast

from astrbot_plugin_compact.summary.archive import Archive
from astrbot_plugin_compact.summary.commit import Committed, Draft, RunFacts, commit
from astrbot_plugin_compact.summary.engines import Job, OnStep, Prepared, Summarized
from astrbot_plugin_compact.summary.heads import KnownHead, head_text
from astrbot_plugin_compact.summary.history import Stored, message_text, parse_history
from astrbot_plugin_compact.summary.host import Model, ModelRequest, Row
from astrbot_plugin_compact.summary.plan import (
    CompactionPlan,
    Layout,
    PlanOptions,
    plan_compaction,
    read_layout,
)

from tests.contract.fake_host import FakeHost

UMO = "qq:FriendMessage:7"
SUMMARY = "They met."
HEAD = head_text(SUMMARY, "en")

FACTS = RunFacts(
    trigger="manual",
    engine="plain",
    structured=True,
    template="work",
    language="en",
    provider_id="scripted",
    model="model-a",
    focus="",
    requests=1,
    input_tokens=None,
    cached_tokens=None,
    output_tokens=None,
    duration_seconds=0.5,
    covers_trimmed=(),
)


class Points:
    """The places a run passes, by name: `before read`, `after begin`, `before read (2)`."""

    def __init__(self) -> None:
        self.passed: list[str] = []
        self._actions: dict[str, Callable[[], Any]] = {}

    def arm(self, point: str, action: Callable[[], Any]) -> None:
        """Do something (it may be async) when a run comes by."""
        self._actions[point] = action

    @property
    def armed(self) -> list[str]:
        """The points that were never passed."""
        return list(self._actions)

    async def come_by(self, place: str) -> None:
        """A run is here."""
        again = sum(point.partition(" (")[0] == place for point in self.passed)
        point = f"{place} ({again + 1})" if again else place
        self.passed.append(point)
        action = self._actions.pop(point, None)
        if action is not None:
            outcome = action()
            if inspect.isawaitable(outcome):
                await outcome


class PointedHost(FakeHost):
    """A host in memory that says where a run is."""

    def __init__(self, points: Points) -> None:
        super().__init__()
        self._points = points

    async def current_conversation(self, umo: str) -> str | None:
        """See `Host`."""
        return await self._around("current", super().current_conversation(umo))

    async def read(self, cid: str) -> Row | None:
        """See `Host`."""
        return await self._around("read", super().read(cid))

    async def swap(self, cid: str, old_text: str | None, new_text: str) -> bool:
        """See `Host`."""
        return await self._around("swap", super().swap(cid, old_text, new_text))

    def lock(self, umo: str) -> AbstractAsyncContextManager[None]:
        """See `Host`."""
        return self._pointed_lock(super().lock(umo))

    @asynccontextmanager
    async def _pointed_lock(self, lock: AbstractAsyncContextManager[None]) -> AsyncIterator[None]:
        await self._points.come_by("before lock")
        async with lock:
            await self._points.come_by("after lock")
            try:
                yield
            finally:
                # AstrBot's lock counts its users under another lock, so leaving it may wait.
                await self._points.come_by("before unlock")

    async def _around[T](self, verb: str, work: Coroutine[Any, Any, T]) -> T:
        try:
            await self._points.come_by(f"before {verb}")
        except BaseException:
            work.close()
            raise
        result = await work
        await self._points.come_by(f"after {verb}")
        return result


class PointedArchive:
    """A real archive that says where a run is."""

    def __init__(self, archive: Archive, points: Points) -> None:
        self._archive = archive
        self._points = points

    def __getattr__(self, verb: str) -> Any:
        method = getattr(self._archive, verb)

        async def pointed(*args: Any) -> Any:
            await self._points.come_by(f"before {verb}")
            result = await method(*args)
            await self._points.come_by(f"after {verb}")
            return result

        return pointed


class World:
    """A host, an archive and one conversation in them."""

    def __init__(self, host: PointedHost, archive: Archive, points: Points, history: Any) -> None:
        self.host = host
        self.archive = archive
        self.points = points
        self.cid = host.add(UMO, history, token_usage=900)
        self.pointed_archive = cast("Archive", PointedArchive(archive, points))
        self._runner: asyncio.Task[Any] | None = None

    @property
    def text(self) -> str | None:
        """The row's text."""
        return self.host.rows[self.cid].text

    @property
    def begins_with_head(self) -> bool:
        """Whether the summary stands in the row."""
        return self.host.history(self.cid)[0]["content"] == HEAD

    def draft(self, ratio: float = 0, keep: Sequence[int] = ()) -> Draft:
        """A summary of the conversation as it is now; span units to keep by their index."""
        layout = read_layout(parse_history(self.text), self.host.count_tokens, lambda _: None)
        plan = plan_compaction(layout, PlanOptions(ratio, 1), (), "")
        assert isinstance(plan, CompactionPlan)
        return self.draft_of(plan, {}, keep)

    def draft_of(
        self, plan: CompactionPlan, known: Mapping[str, KnownHead], keep: Sequence[int] = ()
    ) -> Draft:
        """A summary of a plan made on the conversation as it is now."""

        def read(stored: Sequence[Stored]) -> Layout:
            return read_layout(stored, self.host.count_tokens, known.get)

        kept = frozenset(keep) | plan.kept_by_rule
        row = self.host.rows[self.cid]
        return Draft(row, plan, SUMMARY, kept, FACTS, read, lambda _, retained: retained)

    async def commit(self, draft: Draft, on_wait: Callable[[], None] = lambda: None) -> Committed:
        """Commit a draft through the points."""

        async def stands() -> None:
            await self.points.come_by("stands")

        return await commit(draft, self.host, self.pointed_archive, stands=stands, on_wait=on_wait)

    async def outcome(self, work: Coroutine[Any, Any, Any]) -> Any:
        """What a run in a task of its own gives or raises."""
        self._runner = asyncio.ensure_future(work)
        (outcome,) = await asyncio.gather(self._runner, return_exceptions=True)
        return outcome

    async def cancel(self, times: int = 1) -> None:
        """Cancel the run, so often; each time it has the time to notice."""
        assert self._runner is not None
        for _ in range(times):
            self._runner.cancel()
            await asyncio.sleep(0)
            await asyncio.sleep(0)


class PlainEngine:
    """An engine that sends the span's texts and takes the reply as it is."""

    name = "plain"
    structured = True

    def __init__(self, keep: Sequence[int] = ()) -> None:
        self.keep = keep
        self.most: int | None = None
        self.has_large = False

    def prepare(self, plan: CompactionPlan, job: Job) -> Prepared:
        """See `Engine`."""
        requests = 7 if self.has_large else 1
        return Prepared("work", "en", requests, None, None, None, self.has_large)

    async def summarize(
        self, plan: CompactionPlan, prepared: Prepared, job: Job, model: Model, on_step: OnStep
    ) -> Summarized:
        """See `Engine`."""
        on_step(1, prepared.requests)
        texts = [message_text(item.data) for unit in plan.span for item in unit.items]
        reply = await model.ask(ModelRequest("", "\n".join(texts), 1_000, 60))
        kept = frozenset(self.keep) | plan.kept_by_rule
        return Summarized(reply.text, kept, 1, reply.input_tokens, None, reply.output_tokens)

    def limit_retained(
        self, plan: CompactionPlan, retained: frozenset[int], count_line: int | None
    ) -> frozenset[int]:
        """See `Engine`; no more units than a test allows."""
        return frozenset(sorted(retained)[: self.most])


@asynccontextmanager
async def new_world(folder: Path, history: Any) -> AsyncIterator[World]:
    """A conversation with this history, and an archive in this folder."""
    points = Points()
    archive = await Archive.open(folder / "archive.db")
    try:
        yield World(PointedHost(points), archive, points, history)
    finally:
        await archive.close()
