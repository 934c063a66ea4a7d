"""Histories, tasks and a scripted model for the tests of the structured engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from astrbot_plugin_compact.summary.budget import Limits
from astrbot_plugin_compact.summary.history import Stored
from astrbot_plugin_compact.summary.host import ModelInfo, ModelReply, ModelRequest
from astrbot_plugin_compact.summary.task import SummaryTask
from astrbot_plugin_compact.summary.tokens import Estimator
from astrbot_plugin_compact.summary.units import Unit, bind_checkpoints, group_units, tool_names

ESTIMATE = Estimator()

WORK_SUMMARY = """\
【保留原文】无
## 目标
把报告写完
## 做过的决定
用表格
## 改过的文件
无
## 未完成的事
校对"""

Step = ModelReply | BaseException | Callable[[ModelRequest], ModelReply]


def user(text: Any, **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": text, **more}


def assistant(text: Any = None, *calls: dict[str, Any]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": text}
    return {**message, "tool_calls": list(calls)} if calls else message


def call(call_id: str, name: str, arguments: Any = "{}") -> dict[str, Any]:
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def result(call_id: str, text: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def units_of(messages: Sequence[dict[str, Any]]) -> tuple[Unit, ...]:
    items = bind_checkpoints([Stored("", message) for message in messages], ESTIMATE.message)
    return group_units(items).units


def make_task(messages: Sequence[dict[str, Any]], **changes: Any) -> SummaryTask:
    """A task over these messages: a window of 128,000, no line, nothing else kept."""
    units = units_of(messages)
    stored_tokens = sum(unit.tokens for unit in units)
    limits: dict[str, Any] = {
        "line_tokens": None,
        "ratio": 0.1,
        "window_tokens": 128_000,
        "max_output_tokens": 8_192,
        "tail_tokens": 0,
        "replaced_tokens": stored_tokens,
        "head_tokens": 60,
    }
    limits |= {name: changes.pop(name) for name in list(changes) if name in limits}
    facts: dict[str, Any] = {
        "units": units,
        "limits": Limits(**limits),
        "template": "work",
        "language": "zh",
        "count_text": ESTIMATE.text,
        "tool_names": tool_names(item for unit in units for item in unit.items),
    }
    return SummaryTask(**{**facts, **changes})


class ScriptedModel:
    """A model that plays its steps in order.

    A call it has no step for fails the test at once, and so does leaving the `with` block
    before every step was played.
    """

    def __init__(self, *steps: Step | str, provider_id: str = "tiny", model: str = "m1") -> None:
        self.info = ModelInfo(provider_id, model, None, None)
        self.requests: list[ModelRequest] = []
        self._steps = list(steps)

    async def ask(self, request: ModelRequest) -> ModelReply:
        self.requests.append(request)
        if not self._steps:
            raise AssertionError(f"unexpected request {len(self.requests)}")
        # A real model never answers before the loop has turned.
        await asyncio.sleep(0)
        step = self._steps.pop(0)
        if isinstance(step, str):
            return ModelReply(step)
        if isinstance(step, BaseException):
            raise step
        return step if isinstance(step, ModelReply) else step(request)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            assert not self._steps, f"{len(self._steps)} steps were never played"


class EchoModel:
    """A model that always answers alike; for runs whose number of requests is not the point."""

    def __init__(self, reply: Callable[[ModelRequest], ModelReply]) -> None:
        self.info = ModelInfo("echo", "m1", None, None)
        self.requests: list[ModelRequest] = []
        self._reply = reply

    async def ask(self, request: ModelRequest) -> ModelReply:
        self.requests.append(request)
        await asyncio.sleep(0)
        return self._reply(request)


class Steps:
    """Notes what a run says of its progress."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, int]] = []

    def __call__(self, step: int, steps: int) -> None:
        self.seen.append((step, steps))
