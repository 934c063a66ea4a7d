"""A chat host and a summary model in memory, for tests of everything above the host's door.

The contract tests hold them to what AstrBot does. They fail loudly: a request nobody scripted
and a step nobody took are errors of the test.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Any

from astrbot_plugin_compact.summary.chain import Level, ProviderChoice, SkippedLevel
from astrbot_plugin_compact.summary.copies import alternating, sendable
from astrbot_plugin_compact.summary.core_settings import CoreCompression
from astrbot_plugin_compact.summary.errors import Unchanged
from astrbot_plugin_compact.summary.history import (
    CHECKPOINT,
    Message,
    Stored,
    canonical_json,
    parse_history,
    stored,
)
from astrbot_plugin_compact.summary.host import (
    BuiltinResult,
    Model,
    ModelInfo,
    ModelReply,
    ModelRequest,
    Row,
)
from astrbot_plugin_compact.summary.tokens import Estimator
from astrbot_plugin_compact.summary.wire import check_usable

Action = Callable[[], object]
Step = (
    str | ModelReply | BaseException | Callable[[ModelRequest], "Step | Awaitable[Step]"]
)  # what a scripted model does next


class FakeHost:
    """`summary.host.Host` in memory.

    `rows` is the database and `current` the session's choice; tests write both as other
    writers would. `interfere` runs something at the n-th call of a verb, before it does its
    work: an exception raised there is the verb's, a write there is a race lost.
    """

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        self.current: dict[str, str] = {}
        self.calls: list[str] = []
        self._locks: dict[str, asyncio.Lock] = {}
        self._actions: dict[tuple[str, int], Action] = {}
        self._estimator = Estimator()
        self.settings = CoreCompression()
        self.admins: frozenset[str] = frozenset()
        # The chat providers by id, and the one a session uses if nothing else is said.
        self.models: dict[str, Model] = {}
        self.session_model: Model | None = None

    # --- what tests do

    def add(
        self,
        umo: str,
        history: Iterable[Message] | str | None = (),
        *,
        token_usage: int = 0,
        is_current: bool = True,
    ) -> str:
        """A new conversation; its history as messages or as the row's text."""
        cid = str(uuid.uuid4())
        self.rows[cid] = Row(umo, cid, _text(history), token_usage)
        if is_current:
            self.current[umo] = cid
        return cid

    def write(
        self, cid: str, history: Iterable[Message] | str | None, *, token_usage: int | None = None
    ) -> None:
        """Write a history over the one there, as another writer would."""
        row = self.rows[cid]
        usage = row.token_usage if token_usage is None else token_usage
        self.rows[cid] = replace(row, text=_text(history), token_usage=usage)

    def delete(self, cid: str) -> None:
        """Delete a conversation; the session has none then."""
        row = self.rows.pop(cid)
        if self.current.get(row.umo) == cid:
            del self.current[row.umo]

    def history(self, cid: str) -> list[dict[str, Any]]:
        """The messages stored."""
        return [dict(message.data) for message in parse_history(self.rows[cid].text)]

    def interfere(self, verb: str, action: Action, *, call: int = 1) -> None:
        """Run `action` (it may be async) at the `call`-th call of `verb` from now on."""
        self._actions[verb, self.calls.count(verb) + call] = action

    # --- what the plugin does

    async def current_conversation(self, umo: str) -> str | None:
        """See `Host`."""
        await self._enter("current_conversation")
        return self.current.get(umo)

    async def read(self, cid: str) -> Row | None:
        """See `Host`."""
        await self._enter("read")
        return self.rows.get(cid)

    async def is_said_again(self, checkpoint_id: str) -> bool:
        """See `Host`: here a checkpoint tells by its name."""
        return checkpoint_id.startswith("again")

    async def conversation_ids(self) -> frozenset[str]:
        """The ids of all conversations there are."""
        return frozenset(self.rows)

    async def swap(self, cid: str, old_text: str | None, new_text: str) -> bool:
        """See `Host`."""
        await self._enter("swap")
        row = self.rows.get(cid)
        if row is None or row.text != old_text:
            return False
        self.rows[cid] = replace(row, text=new_text, token_usage=0)
        return True

    def lock(self, umo: str) -> AbstractAsyncContextManager[None]:
        """See `Host`."""
        return self._held(umo)

    def is_locked(self, umo: str) -> bool:
        """Whether somebody holds the session's lock."""
        return umo in self._locks and self._locks[umo].locked()

    def count_tokens(self, message: Message) -> int:
        """See `Host`."""
        return self._estimator.message(message)

    def count_text(self, text: str) -> int:
        """See `Host`."""
        return self._estimator.text(text)

    def canonical(self, message: Message) -> str:
        """See `Host`."""
        return canonical_json(_round_trip(message))

    async def choose(
        self, umo: str, run_id: str, config_id: str, chat_id: str = ""
    ) -> ProviderChoice:
        """See `Host`: of the ids, in order, the first of `models`; else the session's."""
        await self._enter("choose")
        skipped: list[SkippedLevel] = []
        levels: tuple[tuple[Level, str], ...] = (
            ("run", run_id),
            ("config", config_id),
            ("core", self.settings.provider_id),
        )
        for level, name in levels:
            if name.strip() in self.models:
                return ProviderChoice(self.models[name.strip()], level, tuple(skipped))
            if name.strip():
                skipped.append(SkippedLevel(level, name.strip(), "missing"))
        model = self.models.get(chat_id) or self.session_model
        return ProviderChoice(model, "session" if model else None, tuple(skipped))

    def model(self, umo: str, provider: Any) -> Model:
        """See `Host`: here a provider is its model."""
        return provider

    async def chat_model(self, umo: str, provider_id: str = "") -> ModelInfo | None:
        """See `Host`."""
        await self._enter("chat_model")
        model = self.models.get(provider_id) or self.session_model
        return model.info if model else None

    def dump(self, messages: Sequence[object]) -> list[Stored]:
        """See `Host`: here a runtime message is its dict."""
        return [stored(message) for message in messages if isinstance(message, dict)]

    def add_to_prompt(self, messages: Sequence[object], text: str) -> bool:
        """See `Host`: here a runtime message is its dict."""
        assert isinstance(messages, list)
        first = messages[0] if messages else {}
        if first.get("role") == "system":
            first["content"] += text
            return False
        messages.insert(0, {"role": "system", "content": text.lstrip()})
        return True

    def core(self, umo: str) -> CoreCompression:
        """See `Host`."""
        return self.settings

    def admin_ids(self, umo: str) -> frozenset[str]:
        """See `Host`."""
        return self.admins

    @property
    def builtin_instruction(self) -> str:
        """See `Host`."""
        return "Summarise."

    async def summarize_builtin(
        self,
        model: Model,
        messages: Sequence[Message],
        instruction: str,
        timeout_seconds: float,
        extra_body: Mapping[str, Any] | None = None,
    ) -> BuiltinResult:
        """See `Host`: the live request and leading system messages come back, no more."""
        await self._enter("summarize_builtin")
        systems = next(
            (i for i, m in enumerate(messages) if m.get("role") != "system"), len(messages)
        )
        end = len(messages)
        if messages and messages[-1].get("role") == "user":
            end -= 1
        if end <= systems:
            raise Unchanged(provider=model.info.provider_id)
        contexts = alternating(sendable(messages)[:end])
        reply = await model.ask(
            ModelRequest(
                system="",
                user="\n".join([json.dumps(contexts, ensure_ascii=False), instruction]),
                max_tokens=model.info.max_output_tokens or 4096,
                timeout_seconds=timeout_seconds,
                extra_body=dict(extra_body or {}),
            )
        )
        check_usable(reply, model.info.provider_id)
        return BuiltinResult(
            summary=reply.text.strip(),
            kept=frozenset([*range(systems), *range(end, len(messages))]),
            input_tokens=reply.input_tokens,
            cached_tokens=reply.cached_tokens,
            output_tokens=reply.output_tokens,
        )

    @asynccontextmanager
    async def _held(self, umo: str) -> Any:
        await self._enter("lock")
        async with self._locks.setdefault(umo, asyncio.Lock()):
            yield

    async def _enter(self, verb: str) -> None:
        self.calls.append(verb)
        # A real database gives way here; tests that pass without that prove nothing.
        await asyncio.sleep(0)
        action = self._actions.pop((verb, self.calls.count(verb)), None)
        if action is not None:
            result = action()
            if inspect.isawaitable(result):
                await result


class ScriptedModel:
    """`summary.host.Model` that does as scripted, one step a request.

    A step is the text of a reply, a `ModelReply`, an exception to raise, or a function of the
    request that gives one of these (it may be async: to wait for an event, say).
    """

    def __init__(self, *steps: Step, info: ModelInfo | None = None) -> None:
        self.requests: list[ModelRequest] = []
        self._steps = list(steps)
        self._info = info or ModelInfo("scripted", "model-a", 128_000, 8_192)

    @property
    def info(self) -> ModelInfo:
        """See `Model`."""
        return self._info

    def then(self, *steps: Step) -> None:
        """Add steps."""
        self._steps.extend(steps)

    async def ask(self, request: ModelRequest) -> ModelReply:
        """See `Model`."""
        self.requests.append(request)
        await asyncio.sleep(0)
        if not self._steps:
            raise AssertionError(f"request {len(self.requests)} is not in the script")
        step: Any = self._steps.pop(0)
        while callable(step):
            step = step(request)
            if inspect.isawaitable(step):
                step = await step
        if isinstance(step, BaseException):
            raise step
        return ModelReply(step) if isinstance(step, str) else step

    def assert_done(self) -> None:
        """Every scripted step was taken."""
        assert not self._steps, f"{len(self._steps)} scripted steps were never asked for"


def _text(history: Iterable[Message] | str | None) -> str | None:
    if history is None or isinstance(history, str):
        return history
    return json.dumps(list(history))


# --- AstrBot's round trip, as far as it goes for what it stores

_PART_KEYS = {"text": "text", "think": "think", "image_url": "image_url", "audio_url": "audio_url"}


def _round_trip(message: Message) -> Message:
    """The message as AstrBot would write it back; itself where it cannot be loaded."""
    role, content, calls = (message.get(key) for key in ("role", "content", "tool_calls"))
    call_id = message.get("tool_call_id")
    if role == CHECKPOINT or role not in ("system", "user", "assistant", "tool"):
        return message
    if content is None and not (role == "assistant" and calls is not None):
        return message
    if not isinstance(content, str | list | None) or not isinstance(calls, list | None):
        return message
    if not isinstance(call_id, str | None):
        return message
    kept: dict[str, Any] = {"role": role, "content": content}
    if isinstance(content, list):
        parts = [_part(part) for part in content]
        if None in parts:
            return message
        marked = zip(parts, content, strict=True)
        kept["content"] = [part for part, raw in marked if not raw.get("_no_save")]
    if calls is not None:
        if not all(isinstance(call, dict) for call in calls):
            return message
        typed = [_call(call) for call in calls]
        kept["tool_calls"] = calls if None in typed else typed
    if call_id is not None:
        kept["tool_call_id"] = call_id
    return kept


def _part(part: Any) -> dict[str, Any] | None:
    kind = part.get("type") if isinstance(part, dict) else None
    key = _PART_KEYS.get(kind) if isinstance(kind, str) else None
    value = part.get(key) if key else None
    if key in ("image_url", "audio_url"):
        if not isinstance(value, dict) or not isinstance(value.get("url"), str):
            return None
        if not isinstance(value.get("id"), str | None):
            return None
        return {"type": part["type"], key: {"url": value["url"], "id": value.get("id")}}
    if not isinstance(value, str):
        return None
    kept = {"type": part["type"], key: value}
    if key == "think":
        if not isinstance(part.get("encrypted"), str | None):
            return None
        kept["encrypted"] = part.get("encrypted")
    return kept


def _call(call: dict[str, Any]) -> dict[str, Any] | None:
    function = call.get("function")
    extra = call.get("extra_content")
    if (
        call.get("type", "function") != "function"
        or not isinstance(call.get("id"), str)
        or not isinstance(function, dict)
        or not isinstance(function.get("name"), str)
        or "arguments" not in function
        or not isinstance(function["arguments"], str | None)
        or not isinstance(extra, dict | None)
    ):
        return None
    kept = {
        "type": "function",
        "id": call["id"],
        "function": {"name": function["name"], "arguments": function["arguments"]},
    }
    return kept if extra is None else {**kept, "extra_content": extra}
