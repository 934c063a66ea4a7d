"""A scripted OpenAI-compatible model on loopback.

Invariant: every request is recorded before it is answered, and nothing is answered by chance:
a rule that fits, else the next scripted step of the request's kind, else that kind's default.
What goes wrong in the script itself is kept in `problems`, never only answered with a 500.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any

from aiohttp import web

from .aio import LoopThread
from .wire import estimate_tokens, message_text, request_tokens, violations

KINDS = ("chat", "summary", "title")

# Words a default summary carries over and the default chat can be asked for: FACT-1, RED-KITE-7.
MARK = re.compile(r"\b[A-Z][A-Z-]*-\d+\b")
_CHUNK_CHARS = 24


@dataclass(frozen=True)
class Usage:
    """What a reply reports it cost."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0

    def as_json(self) -> dict[str, Any]:
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
        }


class Gate:
    """Holds a reply back until `open()`; `wait_reached` tells that a request stands at it."""

    def __init__(self) -> None:
        self._opened = threading.Event()
        self._reached = threading.Event()
        self._waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
        self._lock = threading.Lock()

    def open(self) -> None:
        """Let all who wait pass, now and later."""
        with self._lock:
            self._opened.set()
            for loop, event in self._waiters:
                loop.call_soon_threadsafe(event.set)

    def wait_reached(self, timeout_seconds: float = 20) -> None:
        """Wait until a request stands at the gate.

        Raises:
            TimeoutError: none came.
        """
        if not self._reached.wait(timeout_seconds):
            raise TimeoutError("no request reached the gate")

    async def passed(self) -> None:
        """Wait, on any loop, until the gate is open."""
        event = asyncio.Event()
        with self._lock:
            self._reached.set()
            if self._opened.is_set():
                return
            self._waiters.append((asyncio.get_running_loop(), event))
        await event.wait()


@dataclass(frozen=True)
class Reply:
    """One answer, right or wrong.

    `usage`: "auto" as the model's own `usage` says, None not reported.
    """

    text: str | None = ""
    finish_reason: str = "stop"
    tool_calls: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    reasoning: str | None = None
    refusal: str | None = None
    usage: Usage | str | None = "auto"
    gate: Gate | None = None
    delay_seconds: float = 0
    status: int = 200
    error: Mapping[str, Any] = field(default_factory=dict)
    drop_after_chars: int | None = None
    raw: bytes | None = None


def say(text: str | None, **more: Any) -> Reply:
    """A plain answer; `more` are fields of `Reply` (gate, delay_seconds, usage, …)."""
    return Reply(text, **more)


def call(name: str, arguments: Mapping[str, Any] | None = None, text: str | None = None) -> Reply:
    """An answer that calls one tool."""
    return Reply(text, "tool_calls", ((name, arguments or {}),))


def cut(text: str, **more: Any) -> Reply:
    """An answer stopped at its limit."""
    return Reply(text, "length", **more)


def fail(status: int, message: str = "scripted failure", code: str | None = None) -> Reply:
    """An error answer with a body in OpenAI's shape; clients are told to retry at once."""
    return Reply(status=status, error={"message": message, "type": "error", "code": code})


def context_too_long(window_tokens: int = 8000, request_tokens: int = 9000) -> Reply:
    """The 400 for a request over the context window."""
    return fail(
        400,
        f"This model's maximum context length is {window_tokens} tokens. However, your messages "
        f"resulted in {request_tokens} tokens. Please reduce the length of the messages.",
        "context_length_exceeded",
    )


def refuse_parameter(name: str, instead: str) -> Reply:
    """The 400 of a server that wants another parameter."""
    return fail(
        400,
        f"Unsupported parameter: '{name}' is not supported with this model. "
        f"Use '{instead}' instead.",
        "unsupported_parameter",
    )


def drop(text: str = "half an answ", after_chars: int = 6) -> Reply:
    """A connection lost after so many characters of the answer."""
    return Reply(text, drop_after_chars=after_chars)


def malformed(raw: bytes = b'{"choices": [{"message": {"role": "assist') -> Reply:
    """A 200 whose body is no JSON."""
    return Reply(raw=raw)


@dataclass(eq=False)
class Request:
    """One recorded request; `reply` and `hung_up` are filled in while it is answered."""

    number: int
    kind: str
    body: dict[str, Any]
    headers: Mapping[str, str]
    at_seconds: float
    reply: Reply | None = None
    _ended: threading.Event = field(default_factory=threading.Event)
    hung_up: bool = False

    @property
    def messages(self) -> list[dict[str, Any]]:
        return self.body["messages"]

    @property
    def model(self) -> str:
        return self.body.get("model", "")

    @property
    def system(self) -> str:
        """All system text."""
        return "\n".join(message_text(m) for m in self.messages if m.get("role") == "system")

    @property
    def dialog(self) -> list[dict[str, Any]]:
        """The messages that are not the system's."""
        return [m for m in self.messages if m.get("role") != "system"]

    @property
    def last(self) -> str:
        """The text of the last message."""
        return message_text(self.messages[-1])

    @property
    def text(self) -> str:
        """All text of the request."""
        return "\n".join(message_text(message) for message in self.messages)

    @property
    def tokens(self) -> int:
        """Its size by the host's rule of thumb."""
        return request_tokens(self.body)

    @property
    def tool_names(self) -> list[str]:
        """The tools on offer."""
        return [tool["function"]["name"] for tool in self.body.get("tools") or ()]

    @property
    def ended(self) -> bool:
        """Whether the answer was sent or the client hung up."""
        return self._ended.is_set()

    def wait_ended(self, timeout_seconds: float = 20) -> None:
        """Wait until the answer was sent or the client hung up.

        Raises:
            TimeoutError: it is still being answered.
        """
        if not self._ended.wait(timeout_seconds):
            raise TimeoutError(f"request {self.number} is still being answered")


Step = Reply | str | Callable[[Request], Reply | str]


def is_title(request: Request) -> bool:
    """The web chat's own request for a session title."""
    return "conversation title generator" in request.system


def is_summary(request: Request) -> bool:
    """A request for a summary of a conversation: our structured engine's, or the host's own."""
    ours = request.system.startswith("# Conversation summary task")
    return ours or "Generate a summary of our previous conversation history." in request.last


def recall_or_note(request: Request) -> Reply:
    """The default chat: `know? FACT-1 FACT-2` is answered from the request's other messages.

    Anything else is noted, with the number of messages seen.
    """
    words = request.last.split("know?")[-1] if "know?" in request.last else ""
    asked = MARK.findall(words)
    if not asked:
        return say(f"Noted ({len(request.messages)} messages).")
    known_text = "\n".join(message_text(message) for message in request.messages[:-1])
    known = [word for word in asked if word in known_text]
    unknown = [word for word in asked if word not in known_text]
    return say(f"known: {' '.join(known) or '-'}; unknown: {' '.join(unknown) or '-'}")


def carry_marks(request: Request) -> Reply:
    """The default summary: the sections asked for, the first holding every mark of the request."""
    marks = " ".join(dict.fromkeys(MARK.findall(request.text))) or "nothing marked"
    headings = re.findall(r"(?m)^## .+$", request.system)
    if not headings:
        return say(f"Summary of what was said: {marks}")
    picks = [
        f"{name} none" for name in ("【保留原文】", "[Keep verbatim]") if name in request.system
    ]
    sections = [f"{headings[0]}\n{marks}", *(f"{heading}\n无" for heading in headings[1:])]
    return say("\n".join([*picks, *sections]))


@dataclass(eq=False)
class _Rule:
    fits: Callable[[Request], bool]
    step: Step
    times: int | None


class Model:
    """The server. Use as a context manager, or `close()` it.

    Attributes a test may set: `usage` ("estimate", None = never reported, a `Usage`, or a
    function of request and text), `strict` (400 for what a strict server refuses),
    `window_tokens` (400 over it), `obeys_max_tokens` (cuts its answers there), `is_summary`,
    `defaults` (a step per kind; remove one and an unscripted request of that kind is a problem).
    """

    def __init__(self) -> None:
        self._aio = LoopThread("scripted-model")
        self._changed = threading.Condition()
        self._number = itertools.count(1)
        self.reset()
        self._runner: web.AppRunner | None = None
        self.port = self._aio.run(self._serve())

    def reset(self) -> None:
        """Forget requests and script, open all gates, and go back to the defaults."""
        for gate in getattr(self, "_gates", []):
            gate.open()
        with self._changed:
            self._gates: list[Gate] = []
            self._queues: dict[str, deque[Step]] = {kind: deque() for kind in KINDS}
            self._rules: list[_Rule] = []
            self.requests: list[Request] = []
            self.problems: list[str] = []
        self.usage: Any = "estimate"
        self.strict = False
        self.window_tokens: int | None = None
        self.obeys_max_tokens = False
        self.is_summary: Callable[[Request], bool] = is_summary
        self.defaults: dict[str, Step] = {
            "chat": recall_or_note,
            "summary": carry_marks,
            "title": "A title",
        }

    @property
    def url(self) -> str:
        """What goes into `api_base`."""
        return f"http://127.0.0.1:{self.port}/v1"

    def on_chat(self, *steps: Step) -> None:
        """Answer the next chat requests so, one step each."""
        self._queues["chat"].extend(steps)

    def on_summary(self, *steps: Step) -> None:
        """Answer the next summary requests so, one step each."""
        self._queues["summary"].extend(steps)

    def rule(self, fits: Callable[[Request], bool], step: Step, times: int | None = None) -> None:
        """Answer every request that fits so (at most `times`); the latest rule comes first."""
        self._rules.insert(0, _Rule(fits, step, times))

    def gate(self) -> Gate:
        """A gate that `reset` and `close` open at the latest."""
        gate = Gate()
        self._gates.append(gate)
        return gate

    def of_kind(self, kind: str) -> list[Request]:
        """The recorded requests of a kind, in order of arrival."""
        with self._changed:
            return [request for request in self.requests if request.kind == kind]

    @property
    def chats(self) -> list[Request]:
        """Recorded chat requests."""
        return self.of_kind("chat")

    @property
    def summaries(self) -> list[Request]:
        """Recorded summary requests."""
        return self.of_kind("summary")

    def wait_for(
        self,
        kind: str,
        count: int = 1,
        fits: Callable[[Request], bool] = lambda request: True,
        timeout_seconds: float = 20,
    ) -> Request:
        """Wait until `count` such requests have come; the `count`-th is returned.

        Raises:
            TimeoutError: they did not come.
        """

        def found() -> list[Request]:
            return [each for each in self.requests if each.kind == kind and fits(each)]

        with self._changed:
            if not self._changed.wait_for(lambda: len(found()) >= count, timeout_seconds):
                raise TimeoutError(f"{len(found())} of {count} {kind} requests came")
            return found()[count - 1]

    def assert_done(self) -> None:
        """Fail if scripted steps were not asked for, or the script itself went wrong."""
        self.assert_sound()
        left = {kind: len(queue) for kind, queue in self._queues.items() if queue}
        assert not left, f"scripted steps never asked for: {left}"

    def assert_sound(self) -> None:
        """Fail if the script raised or an unscripted request came where none was allowed."""
        assert not self.problems, "\n".join(self.problems)

    def close(self) -> None:
        """Open all gates and stop serving."""
        for gate in self._gates:
            gate.open()
        assert self._runner is not None
        self._aio.run(self._runner.cleanup())
        self._aio.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()

    async def _serve(self) -> int:
        app = web.Application(client_max_size=2**30)
        app.router.add_post("/v1/chat/completions", self._completions)
        app.router.add_get("/v1/models", self._models)
        # A client that hangs up cancels its handler: that is how a test sees it.
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        return self._runner.addresses[0][1]

    async def _models(self, _: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "bed", "object": "model"}]})

    async def _completions(self, http: web.Request) -> web.StreamResponse:
        request = self._record(await http.json(), dict(http.headers))
        try:
            reply = request.reply = self._choose(request)
            if reply.gate is not None:
                await reply.gate.passed()
            if reply.delay_seconds:
                await asyncio.sleep(reply.delay_seconds)
            return await _Answer(http, request, reply, self._usage(request, reply)).send()
        except (asyncio.CancelledError, ConnectionError):
            request.hung_up = True
            raise
        finally:
            request._ended.set()

    def _record(self, body: dict[str, Any], headers: Mapping[str, str]) -> Request:
        request = Request(next(self._number), "chat", body, headers, time.monotonic())
        if is_title(request):
            request.kind = "title"
        elif self.is_summary(request):
            request.kind = "summary"
        with self._changed:
            self.requests.append(request)
            self._changed.notify_all()
        return request

    def _choose(self, request: Request) -> Reply:
        if self.strict and (faults := violations(request.messages)):
            return fail(400, "; ".join(faults), "invalid_request_error")
        if self.window_tokens is not None:
            asked = request.tokens + (request.body.get("max_tokens") or 0)
            if asked > self.window_tokens:
                return context_too_long(self.window_tokens, asked)
        try:
            step = self._next_step(request)
            reply = step(request) if callable(step) else step
        except Exception:
            # A script that raises fails the test (`problems`); the client only gets an error.
            self.problems.append(traceback.format_exc())
            return fail(500, "the script raised")
        reply = Reply(reply) if isinstance(reply, str) else reply
        return self._shorten(request, reply) if self.obeys_max_tokens else reply

    def _next_step(self, request: Request) -> Step:
        with self._changed:
            for rule in self._rules:
                if rule.times != 0 and rule.fits(request):
                    rule.times = None if rule.times is None else rule.times - 1
                    return rule.step
            if self._queues[request.kind]:
                return self._queues[request.kind].popleft()
        if request.kind not in self.defaults:
            self.problems.append(f"unscripted {request.kind} request: {request.last[:200]}")
            return fail(500, "unscripted request")
        return self.defaults[request.kind]

    def _shorten(self, request: Request, reply: Reply) -> Reply:
        limit = request.body.get("max_tokens") or request.body.get("max_completion_tokens")
        text = reply.text or ""
        if not limit or estimate_tokens(text) <= limit:
            return reply
        while estimate_tokens(text) > limit:
            text = text[: int(len(text) * 0.95)]
        return replace(reply, text=text, finish_reason="length")

    def _usage(self, request: Request, reply: Reply) -> Usage | None:
        chosen = self.usage if reply.usage == "auto" else reply.usage
        if callable(chosen):
            chosen = chosen(request, reply.text or "")
        if chosen == "estimate":
            return Usage(request.tokens, max(1, estimate_tokens(reply.text or "")))
        return chosen


class _Answer:
    """One reply put on the wire, whole or as a stream."""

    def __init__(
        self, http: web.Request, request: Request, reply: Reply, usage: Usage | None
    ) -> None:
        self.http, self.request, self.reply, self.usage = http, request, reply, usage
        self.head = {"id": f"bed-{request.number}", "created": 0, "model": request.model}

    async def send(self) -> web.StreamResponse:
        if self.reply.status != 200:
            return web.json_response(
                {"error": dict(self.reply.error)},
                status=self.reply.status,
                headers={"retry-after-ms": "10"},
            )
        if self.reply.raw is not None:
            return web.Response(body=self.reply.raw, content_type="application/json")
        if self.request.body.get("stream"):
            return await self._stream()
        return await self._whole()

    def _calls(self) -> list[dict[str, Any]]:
        return [
            {
                "id": f"call_{self.request.number}_{index}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments)},
            }
            for index, (name, arguments) in enumerate(self.reply.tool_calls)
        ]

    def _extras(self) -> dict[str, Any]:
        extras: dict[str, Any] = {}
        if self.reply.reasoning is not None:
            extras["reasoning_content"] = self.reply.reasoning
        if self.reply.refusal is not None:
            extras["refusal"] = self.reply.refusal
        return extras

    async def _whole(self) -> web.StreamResponse:
        message: dict[str, Any] = {"role": "assistant", "content": self.reply.text}
        message |= self._extras()
        if calls := self._calls():
            message["tool_calls"] = calls
        choice = {"index": 0, "message": message, "finish_reason": self.reply.finish_reason}
        body = self.head | {"object": "chat.completion", "choices": [choice]}
        if self.usage is not None:
            body["usage"] = self.usage.as_json()
        raw = json.dumps(body).encode()
        if self.reply.drop_after_chars is None:
            return web.Response(body=raw, content_type="application/json")
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.content_length = len(raw)
        await response.prepare(self.http)
        await response.write(raw[: len(raw) // 2])
        return await self._hang_up(response)

    async def _stream(self) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(self.http)
        await self._chunk(response, {"role": "assistant"} | self._extras())
        text = self.reply.text or ""
        limit = self.reply.drop_after_chars
        for start in range(0, len(text) if limit is None else limit, _CHUNK_CHARS):
            stop = start + _CHUNK_CHARS
            piece = text[start : stop if limit is None else min(stop, limit)]
            await self._chunk(response, {"content": piece})
        if limit is not None:
            return await self._hang_up(response)
        for index, each in enumerate(self._calls()):
            await self._chunk(response, {"tool_calls": [{"index": index} | each]})
        await self._chunk(response, {}, self.reply.finish_reason)
        if self.usage is not None:
            event = self.head | {"object": "chat.completion.chunk", "choices": []}
            await self._event(response, json.dumps(event | {"usage": self.usage.as_json()}))
        await self._event(response, "[DONE]")
        await response.write_eof()
        return response

    async def _chunk(
        self, response: web.StreamResponse, delta: dict[str, Any], finish_reason: str | None = None
    ) -> None:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
        event = self.head | {"object": "chat.completion.chunk", "choices": [choice]}
        await self._event(response, json.dumps(event))

    async def _event(self, response: web.StreamResponse, data: str) -> None:
        await response.write(f"data: {data}\n\n".encode())

    async def _hang_up(self, response: web.StreamResponse) -> web.StreamResponse:
        if self.http.transport is not None:
            self.http.transport.abort()
        return response
