"""Long work leaves Python's cycle collector as it was, and undisturbed meanwhile."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from astrbot_plugin_compact.summary import threads
from astrbot_plugin_compact.summary.threads import in_thread, let_go, uncollected

SUMMARY = Path(__file__).resolve().parents[2] / "summary"
MANY = 50_000


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    gc.enable()
    yield
    gc.enable()
    gc.unfreeze()


async def test_nothing_is_collected_meanwhile() -> None:
    assert await in_thread(gc.isenabled) is False
    assert gc.isenabled()


async def test_a_failure_switches_it_on_again() -> None:
    with pytest.raises(ValueError, match="bad"):
        await in_thread(int, "bad")
    assert gc.isenabled()


async def test_who_ends_last_switches_it_on() -> None:
    begun, may_end = threading.Event(), threading.Event()

    def long() -> None:
        begun.set()
        may_end.wait(5)

    running = asyncio.create_task(in_thread(long))
    await asyncio.to_thread(begun.wait, 5)
    await in_thread(len, "")
    assert not gc.isenabled()
    may_end.set()
    await running
    assert gc.isenabled()


def test_a_collector_that_is_off_stays_off() -> None:
    gc.disable()
    with uncollected():
        pass
    assert not gc.isenabled()


async def test_many_new_objects_are_no_reason_to_collect_everything() -> None:
    gc.collect()
    kept = await in_thread(lambda: [[n] for n in range(MANY)])
    young = len(gc.get_objects(0)) + len(gc.get_objects(1))
    assert len(kept) == MANY
    assert young < MANY // 2


async def test_few_new_objects_are_left_to_the_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else what is garbage in cycles would grow old unseen, turn by turn."""
    passed_over: list[int] = []
    monkeypatch.setattr(threads.gc, "freeze", lambda: passed_over.append(1))
    gc.collect()
    kept = await in_thread(lambda: [[n] for n in range(1_000)])
    assert len(kept) == 1_000
    assert passed_over == []


async def test_what_others_have_frozen_stays_frozen() -> None:
    gc.freeze()
    frozen = gc.get_freeze_count()
    kept = await in_thread(lambda: [[n] for n in range(MANY)])
    assert gc.get_freeze_count() >= frozen - 1_000
    assert len(kept) == MANY


def test_all_work_in_threads_is_done_like_this() -> None:
    found = [path.name for path in SUMMARY.rglob("*.py") if "asyncio.to_thread" in path.read_text()]
    assert found == ["threads.py"]


async def test_what_is_let_go_of_is_freed_in_a_thread() -> None:
    freed_by: list[threading.Thread] = []
    done = threading.Event()

    class Large:
        def __del__(self) -> None:
            freed_by.append(threading.current_thread())
            done.set()

    let_go([Large()])
    await asyncio.to_thread(done.wait, 5)

    assert freed_by != [threading.main_thread()]
    assert len(freed_by) == 1
