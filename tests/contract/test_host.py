"""What the plugin relies on in a chat host: one class of facts, held by AstrBot and by the fake."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest
from astrbot_plugin_compact.compressor import AstrBotHost
from astrbot_plugin_compact.summary.host import Host, Row

from tests.contract.core import Core, running_core
from tests.contract.fake_host import FakeHost

HISTORY = [
    {"role": "user", "content": "你好 “é” \ud83d\ude00"},
    {"role": "assistant", "content": "1"},
]
X = {"type": "text", "text": "x"}


class World(Protocol):
    """A host and the other writers around it."""

    host: Host
    umo: str

    async def new(self, umo: str, history: list[Any] | None) -> str: ...
    async def write(self, cid: str, history: list[Any], token_usage: int) -> None: ...
    async def write_text(self, cid: str, text: str | None) -> None: ...
    async def delete(self, cid: str) -> None: ...


def _new_umo() -> str:
    # AstrBot keeps which conversation is current for the process, not for the database.
    return f"qq:FriendMessage:{uuid.uuid4()}"


class FakeWorld:
    def __init__(self) -> None:
        self.host = FakeHost()
        self.umo = _new_umo()

    async def new(self, umo: str, history: list[Any] | None) -> str:
        return self.host.add(umo, history or [])

    async def write(self, cid: str, history: list[Any], token_usage: int) -> None:
        self.host.write(cid, history, token_usage=token_usage)

    async def write_text(self, cid: str, text: str | None) -> None:
        self.host.write(cid, text)

    async def delete(self, cid: str) -> None:
        self.host.delete(cid)


@dataclass
class AstrBotWorld:
    core: Core

    def __post_init__(self) -> None:
        self.host = AstrBotHost(self.core.context)
        self.umo = _new_umo()

    async def new(self, umo: str, history: list[Any] | None) -> str:
        return await self.core.conversations.new_conversation(umo, content=history)

    async def write(self, cid: str, history: list[Any], token_usage: int) -> None:
        await self.core.conversations.update_conversation(
            self.umo, cid, history=history, token_usage=token_usage
        )

    async def write_text(self, cid: str, text: str | None) -> None:
        await self.core.execute(
            "UPDATE conversations SET content = :text WHERE conversation_id = :cid",
            text=text,
            cid=cid,
        )

    async def delete(self, cid: str) -> None:
        await self.core.conversations.delete_conversation(self.umo, cid)


@pytest.fixture(params=["fake", "astrbot"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    if request.param == "fake":
        yield FakeWorld()
        return
    async with running_core(tmp_path) as core:
        yield AstrBotWorld(core)


async def _stored(world: World, cid: str) -> Row:
    row = await world.host.read(cid)
    assert row is not None
    return row


class TestHost:
    async def test_a_session_without_a_conversation_gets_none(self, world: World) -> None:
        assert await world.host.current_conversation(world.umo) is None
        assert await world.host.current_conversation(world.umo) is None

    async def test_the_current_conversation_is_the_one_last_opened(self, world: World) -> None:
        await world.new(world.umo, HISTORY)
        second = await world.new(world.umo, [])
        await world.new("qq:FriendMessage:2", [])
        assert await world.host.current_conversation(world.umo) == second

    async def test_a_deleted_conversation_is_neither_current_nor_readable(
        self, world: World
    ) -> None:
        cid = await world.new(world.umo, HISTORY)
        await world.delete(cid)
        assert await world.host.current_conversation(world.umo) is None
        assert await world.host.read(cid) is None

    async def test_a_row_is_read_as_the_text_that_is_stored(self, world: World) -> None:
        cid = await world.new(world.umo, HISTORY)
        await world.write(cid, HISTORY, 77)
        assert await _stored(world, cid) == Row(world.umo, cid, json.dumps(HISTORY), 77)

    @pytest.mark.parametrize(
        "text",
        [None, "null", "[]", "", "not json", '[ {"role":"user","content":"\\u4f60","n":1.50} ]'],
    )
    async def test_an_odd_text_is_read_and_swapped_as_it_is(
        self, world: World, text: str | None
    ) -> None:
        cid = await world.new(world.umo, HISTORY)
        await world.write_text(cid, text)
        assert (await _stored(world, cid)).text == text
        assert await world.host.swap(cid, text, "[1]")
        assert (await _stored(world, cid)).text == "[1]"

    @pytest.mark.parametrize(
        ("stored", "expected"), [(None, "null"), ("null", None), ("[]", None), ("[ ]", "[]")]
    )
    async def test_a_swap_tells_texts_of_one_meaning_apart(
        self, world: World, stored: str | None, expected: str | None
    ) -> None:
        cid = await world.new(world.umo, [])
        await world.write_text(cid, stored)
        assert not await world.host.swap(cid, expected, "[1]")
        assert (await _stored(world, cid)).text == stored

    async def test_a_swap_puts_the_text_there_and_sets_the_usage_to_zero(
        self, world: World
    ) -> None:
        cid = await world.new(world.umo, HISTORY)
        await world.write(cid, HISTORY, 7_400)
        new_text = '[{"role": "user", "content": "\\ud83d \\u0000 \\u2028 x"}]'
        assert await world.host.swap(cid, json.dumps(HISTORY), new_text)
        assert await _stored(world, cid) == Row(world.umo, cid, new_text, 0)

    async def test_a_swap_loses_against_any_other_write(self, world: World) -> None:
        cid = await world.new(world.umo, HISTORY)
        old = (await _stored(world, cid)).text
        await world.write(cid, [*HISTORY, {"role": "user", "content": "more"}], 5)
        before = await _stored(world, cid)
        assert not await world.host.swap(cid, old, "[1]")
        assert await _stored(world, cid) == before

    async def test_a_swap_of_a_conversation_that_is_gone_brings_nothing_back(
        self, world: World
    ) -> None:
        cid = await world.new(world.umo, HISTORY)
        await world.delete(cid)
        assert not await world.host.swap(cid, json.dumps(HISTORY), "[1]")
        assert await world.host.read(cid) is None

    async def test_a_swap_touches_no_other_conversation(self, world: World) -> None:
        cid, other = await world.new(world.umo, HISTORY), await world.new(world.umo, HISTORY)
        before = await _stored(world, other)
        assert await world.host.swap(cid, json.dumps(HISTORY), "[]")
        assert await _stored(world, other) == before

    async def test_of_many_swaps_of_one_text_one_wins(self, world: World) -> None:
        cid = await world.new(world.umo, HISTORY)
        old = json.dumps(HISTORY)
        won = await asyncio.gather(*(world.host.swap(cid, old, f"[{n}]") for n in range(8)))
        assert won.count(True) == 1
        assert (await _stored(world, cid)).text == f"[{won.index(True)}]"

    async def test_the_lock_is_held_by_one_at_a_time_and_by_session(self, world: World) -> None:
        order: list[str] = []
        inside, leave = asyncio.Event(), asyncio.Event()

        async def first() -> None:
            async with world.host.lock(world.umo):
                inside.set()
                await leave.wait()
                order.append("first")

        async def second() -> None:
            async with world.host.lock(world.umo):
                order.append("second")

        holder = asyncio.create_task(first())
        await inside.wait()
        waiter = asyncio.create_task(second())
        async with world.host.lock("qq:FriendMessage:2"):
            order.append("another session")
        leave.set()
        await asyncio.gather(holder, waiter)
        assert order == ["another session", "first", "second"]

    async def test_a_cancelled_wait_leaves_the_lock_to_the_next(self, world: World) -> None:
        async with world.host.lock(world.umo):
            waiter = asyncio.create_task(_lock_once(world))
            await asyncio.sleep(0)
            waiter.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiter
        await asyncio.wait_for(_lock_once(world), 5)

    @pytest.mark.parametrize(
        "change",
        [
            {"unknown": 1},
            {"content": [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}]},
            {"content": [{"text": "x", "type": "text"}]},
            {
                "content": [
                    {"type": "text", "text": "x"},
                    {"type": "text", "text": "y", "_no_save": 1},
                ]
            },
        ],
    )
    async def test_what_a_save_would_lose_is_no_difference(
        self, world: World, change: dict[str, Any]
    ) -> None:
        message = {"role": "user", "content": [{"type": "text", "text": "x"}]}
        assert world.host.canonical({**message, **change}) == world.host.canonical(message)

    @pytest.mark.parametrize(
        "change",
        [
            {"role": "assistant"},
            {"content": "x"},
            {"content": [{"type": "text", "text": "y"}]},
            {"tool_call_id": "c"},
            {"tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{}"}}]},
        ],
    )
    async def test_what_a_save_would_keep_is_a_difference(
        self, world: World, change: dict[str, Any]
    ) -> None:
        message = {"role": "user", "content": [{"type": "text", "text": "x"}]}
        assert world.host.canonical({**message, **change}) != world.host.canonical(message)

    async def test_a_call_is_told_by_id_name_arguments_and_extra_content(
        self, world: World
    ) -> None:
        def message(**call: Any) -> dict[str, Any]:
            whole = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
            return {"role": "assistant", "content": None, "tool_calls": [{**whole, **call}]}

        same: Callable[..., bool] = lambda **call: (  # noqa: E731
            world.host.canonical(message(**call)) == world.host.canonical(message())
        )
        assert same(index=0)
        assert not same(id="d")
        assert not same(function={"name": "f", "arguments": "[]"})
        assert not same(extra_content={"google": {"thought_signature": "x"}})


async def _lock_once(world: World) -> None:
    async with world.host.lock(world.umo):
        pass
