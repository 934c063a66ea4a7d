"""What only the real host can show: its own counter, its own locks, its own columns."""

from __future__ import annotations

import asyncio
import json
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest
from astrbot.core.agent.context import token_counter
from astrbot.core.agent.context.token_counter import EstimateTokenCounter
from astrbot.core.agent.message import Message, bind_checkpoint_messages
from astrbot.core.utils.session_lock import session_lock_manager
from astrbot_plugin_compact.compressor import AstrBotHost
from astrbot_plugin_compact.summary.errors import HostFailed
from hypothesis import given, settings

from tests.contract import shapes
from tests.contract.core import Core
from tests.contract.fake_host import FakeHost

UMO = "qq:FriendMessage:1"
COUNTER = EstimateTokenCounter()
# Counting needs nothing of the context.
HOST = AstrBotHost(cast(Any, SimpleNamespace()))


def _counted_by_astrbot(message: dict[str, Any]) -> int | None:
    """None if AstrBot cannot load the message or cannot count it."""
    try:
        return COUNTER.count_tokens([Message.model_validate(message)])
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


@settings(max_examples=400, deadline=None)
@given(shapes.loadable)
def test_the_estimate_of_a_loadable_message_is_astrbots(message: dict[str, Any]) -> None:
    assert HOST.count_tokens(message) == _counted_by_astrbot(message)


@settings(max_examples=400, deadline=None)
@given(shapes.messages)
def test_any_message_has_an_estimate_and_astrbots_where_there_is_one(
    message: dict[str, Any],
) -> None:
    estimate = HOST.count_tokens(message)
    counted = _counted_by_astrbot(message)
    assert estimate >= 0
    if counted is not None and message.get("role") != "_checkpoint":
        assert estimate == counted


@settings(max_examples=200, deadline=None)
@given(shapes.texts)
def test_the_estimate_of_a_text_is_astrbots(text: str) -> None:
    assert HOST.count_text(text) == COUNTER._estimate_tokens(text)


@settings(max_examples=300, deadline=None)
@given(shapes.messages)
def test_any_message_has_one_canonical_form_and_the_fake_knows_it(
    message: dict[str, Any],
) -> None:
    assert FakeHost().canonical(message) == HOST.canonical(message)


@settings(max_examples=200, deadline=None)
@given(shapes.messages)
def test_the_canonical_form_is_its_own(message: dict[str, Any]) -> None:
    canonical = HOST.canonical(message)
    assert HOST.canonical(json.loads(canonical)) == canonical


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "x"}}]},
        {"role": "user", "content": [{"type": "image_url", "image_url": "https://x/y.png"}]},
        {"role": "assistant"},
        {"role": "developer", "content": "x"},
        {},
    ],
)
def test_a_message_astrbot_cannot_load_stands_for_itself(message: dict[str, Any]) -> None:
    assert _counted_by_astrbot(message) is None
    assert json.loads(HOST.canonical(message)) == message


def test_pictures_and_clips_cost_as_much_where_astrbot_cannot_load_them() -> None:
    image = {"type": "image_url", "image_url": "data:image/png;base64,AAAA"}
    audio = {"type": "input_audio", "input_audio": {"data": "AAAA"}}
    assert HOST.count_tokens({"role": "user", "content": [image]}) == 765
    assert HOST.count_tokens({"role": "user", "content": [audio]}) == 500


def test_counting_costs_a_fraction_of_what_astrbot_spends() -> None:
    text = "今天我们讨论了数据库迁移的方案，旧表要先备份，然后再改结构。The plan is ok. " * 20
    history = [
        {"role": role, "content": [{"type": "text", "text": text}]}
        for _ in range(330)
        for role in ("user", "assistant")
    ]
    ours = min(_seconds(lambda: sum(map(HOST.count_tokens, history))) for _ in range(3))
    theirs = min(
        _seconds(lambda: COUNTER.count_tokens([Message.model_validate(m) for m in history]))
        for _ in range(3)
    )
    assert ours < theirs / 4


async def test_the_lock_is_the_one_a_turn_holds(core: Core) -> None:
    host = AstrBotHost(core.context)
    entered = asyncio.Event()

    async def ours() -> None:
        async with host.lock(UMO):
            entered.set()

    async with session_lock_manager.acquire_lock(UMO):
        task = asyncio.create_task(ours())
        for _ in range(20):
            await asyncio.sleep(0)
        assert not entered.is_set()
    await asyncio.wait_for(task, 5)
    assert entered.is_set()


async def test_a_swap_moves_updated_at_and_a_lost_one_does_not(core: Core) -> None:
    host = AstrBotHost(core.context)
    cid = await core.conversations.new_conversation(UMO, content=[])
    query = "SELECT updated_at FROM conversations"
    await core.execute("UPDATE conversations SET updated_at = '2020-01-01 00:00:00.000000'")
    assert not await host.swap(cid, "[1]", "[2]")
    assert (await core.execute(query))[0][0].startswith("2020")
    assert await host.swap(cid, "[]", "[2]")
    (updated_at,) = (await core.execute(query))[0]
    # Spelled as the host spells it, or the two would not sort.
    await core.conversations.update_conversation(UMO, cid, history=[])
    (spelled_by_host,) = (await core.execute(query))[0]
    assert updated_at[:10] == spelled_by_host[:10]
    assert len(updated_at) == len(spelled_by_host)


async def test_astrbot_reads_what_was_swapped_in(core: Core) -> None:
    host = AstrBotHost(core.context)
    cid = await core.conversations.new_conversation(UMO, content=[])
    history = [{"role": "user", "content": "你好 😀"}]
    assert await host.swap(cid, "[]", json.dumps(history))
    conversation = await core.conversations.get_conversation(UMO, cid)
    assert conversation is not None
    assert json.loads(conversation.history) == history
    assert conversation.token_usage == 0


def test_a_text_for_the_system_prompt_goes_into_it_or_becomes_it() -> None:
    said = {"role": "user", "content": "hm"}
    prompted = bind_checkpoint_messages([{"role": "system", "content": "Be kind."}, said])
    bare = bind_checkpoint_messages([said])
    held = len(prompted), len(bare)
    assert not HOST.add_to_prompt(prompted, "\n\nA summary.")
    assert HOST.add_to_prompt(bare, "\n\nA summary.")
    assert [each[0].role for each in (prompted, bare)] == ["system", "system"]
    assert [each[0].content for each in (prompted, bare)] == [
        "Be kind.\n\nA summary.", "A summary."
    ]  # fmt: skip
    assert (len(prompted), len(bare)) == (held[0], held[1] + 1)


def test_runtime_messages_are_dumped_as_astrbot_stores_them() -> None:
    history = [
        {"role": "user", "content": [{"type": "text", "text": "你好"}]},
        {"role": "_checkpoint", "content": {"id": "c1"}},
        {"role": "assistant", "content": "hm"},
    ]
    messages = bind_checkpoint_messages([*history, {"role": "user", "content": "x", "_no_save": 1}])
    dumped = HOST.dump(messages)
    assert [message.data for message in dumped] == history
    assert [json.loads(message.raw) for message in dumped] == history


def test_a_counter_that_counts_in_a_way_of_its_own_is_asked_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Other(EstimateTokenCounter):
        def _estimate_tokens(self, text: str) -> int:
            return len(text)

    monkeypatch.setattr(token_counter, "EstimateTokenCounter", Other)
    host = AstrBotHost(cast(Any, SimpleNamespace()))
    assert host.count_tokens({"role": "user", "content": "你好 abc"}) == 6
    assert host.count_text("你好") == 2
    unloadable = {"role": "user", "content": [{"type": "input_audio"}]}
    assert host.count_tokens(unloadable) == 500
    assert host.count_tokens({"role": "_checkpoint", "content": {"id": "c"}}) == 0


def _seconds(work: Any) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


async def test_a_database_that_fails_is_said_as_one_of_our_errors(core: Core) -> None:
    host = AstrBotHost(core.context)
    await core.execute("ALTER TABLE conversations RENAME TO elsewhere")
    try:
        for work in (host.read("x"), host.conversation_ids(), host.swap("x", "[]", "[1]")):
            with pytest.raises(HostFailed) as failed:
                await work
            assert "conversations" in str(failed.value.fields["detail"])
    finally:
        await core.execute("ALTER TABLE elsewhere RENAME TO conversations")
