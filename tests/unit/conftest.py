"""Bots on the host in memory, for tests of what becomes of turns."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from tests.contract.fake_bot import UMO, CarryingModel, FakeBot, Gate, new_bot


@pytest_asyncio.fixture
async def gate() -> Gate:
    return Gate()


@pytest_asyncio.fixture
async def bot(tmp_path: Path) -> AsyncIterator[FakeBot]:
    """A bot on the host in memory; two messages are worth a compaction."""
    async with new_bot(tmp_path, CarryingModel(), min_messages=2) as made:
        made.host.add(UMO)
        yield made


@pytest_asyncio.fixture
async def slow(tmp_path: Path, gate: Gate) -> AsyncIterator[FakeBot]:
    """A bot whose summary model waits for the gate."""
    async with new_bot(tmp_path, CarryingModel(gate)) as made:
        made.host.add(UMO)
        yield made
