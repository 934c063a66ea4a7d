"""A scripted server that speaks the four APIs AstrBot's sources know, on the loopback.

One step a request; a request nobody scripted is answered with 599 and remembered as unexpected.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer


@dataclass(frozen=True)
class Answer:
    """A reply of the server."""

    body: Mapping[str, Any]
    status: int = 200


@dataclass(frozen=True)
class Drop:
    """The connection is cut before a reply."""


@dataclass
class Silence:
    """No reply; `asked` is set when the request is there, `left` when the client gave up."""

    asked: asyncio.Event = field(default_factory=asyncio.Event)
    left: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True)
class Late:
    """A reply after a while."""

    seconds: float
    answer: Answer


Step = Answer | Drop | Silence | Late


@dataclass(frozen=True)
class Seen:
    """A request as it came."""

    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]


class ApiServer:
    """The server's script and what it saw."""

    def __init__(self) -> None:
        self.url = ""
        self.seen: list[Seen] = []
        self._steps: list[Step] = []

    def script(self, *steps: Step) -> None:
        """What to do at the next requests."""
        self._steps.extend(steps)

    def assert_done(self) -> None:
        """Every step was taken."""
        assert not self._steps, f"{len(self._steps)} scripted replies were never asked for"

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Take the next step."""
        body = await request.json()
        self.seen.append(Seen(request.path, dict(request.headers), body))
        step = self._steps.pop(0) if self._steps else Answer({"error": "not in the script"}, 599)
        if isinstance(step, Drop):
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        if isinstance(step, Silence):
            step.asked.set()
            try:
                await asyncio.Event().wait()
            finally:
                step.left.set()
        if isinstance(step, Late):
            await asyncio.sleep(step.seconds)
            step = step.answer
        assert isinstance(step, Answer)
        return web.json_response(step.body, status=step.status)


@asynccontextmanager
async def running_server() -> AsyncIterator[ApiServer]:
    """A server for the time of one test."""
    server = ApiServer()
    app = web.Application()
    app.router.add_post("/{path:.*}", server.handle)
    runner = TestServer(app, handler_cancellation=True)
    await runner.start_server()
    server.url = str(runner.make_url("")).rstrip("/")
    try:
        yield server
    finally:
        await runner.close()
