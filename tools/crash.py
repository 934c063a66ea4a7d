"""kill -9 at random moments of a run, on a real AstrBot core: `python tools/crash.py 200`.

A child compacts, talks on, compacts again and undoes; it is killed somewhere in between. After
each crash the next start must find a history that is whole, and undoing all there is must give
every original back, byte for byte, with what was said since behind it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
os.environ.setdefault("ASTRBOT_ROOT", tempfile.mkdtemp(prefix="astrbot-crash-"))

import tests.conftest  # noqa: E402, F401 (makes the repository a package)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from astrbot_plugin_compact.compressor import AstrBotHost
    from astrbot_plugin_compact.summary.args import ParseResult, build_compact_args
    from astrbot_plugin_compact.summary.chain import ProviderChoice
    from astrbot_plugin_compact.summary.errors import NothingToUndo
    from astrbot_plugin_compact.summary.host import ModelInfo, ModelReply, ModelRequest
    from astrbot_plugin_compact.summary.service import Service
    from astrbot_plugin_compact.summary.undo import undo

    from tests.contract.core import Core, running_core

UMO = "webchat:FriendMessage:webchat!astrbot!crash"
SUMMARY = "## 目标\n迁移\n## 做过的决定\n无\n## 改过的文件\n无\n## 未完成的事\n无"
_TALK = [
    {"role": "user", "content": "talk on: what is left?"},
    {"role": "assistant", "content": "talk on: two steps. " * 40},
]


class _Model:
    info = ModelInfo("scripted", "scripted", 128_000, 8_192)

    async def ask(self, _request: ModelRequest) -> ModelReply:
        await asyncio.sleep(0.005)
        return ModelReply(text=SUMMARY)


class _Host(AstrBotHost):
    """The real host with a scripted model."""

    async def choose(self, *_: str) -> ProviderChoice:
        return ProviderChoice(_Model(), "session")

    def model(self, _umo: str, provider: Any) -> Any:
        return provider

    async def chat_model(self, *_: str) -> ModelInfo | None:
        return _Model.info


def originals(seed: int) -> list[dict[str, Any]]:
    """A history of some rounds, with checkpoints, keys the host does not know, tool calls."""
    dice = random.Random(seed)
    messages: list[dict[str, Any]] = []
    for n in range(dice.randint(8, 40)):
        messages.append({"role": "user", "content": f"第{n}问 " + "细节 " * dice.randint(5, 60)})
        if dice.random() < 0.3:
            call = {"id": f"c{n}", "type": "function", "extra_content": {"google": {"s": "x"}}}
            call["function"] = {"name": "look", "arguments": "{}"}
            messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
            messages.append({"role": "tool", "tool_call_id": f"c{n}", "content": "found"})
        messages.append({"role": "assistant", "content": f"第{n}答 " + "如下 " * 30, "x": 1.0})
        messages.append({"role": "_checkpoint", "content": {"id": f"cp{n}"}})
    return messages


async def _with_service(folder: Path, work: Callable[[Core, Service], Awaitable[None]]) -> None:
    async with running_core(folder) as core:
        service = Service(
            _Host(core.context), {}, folder / "archive.db", logging.getLogger("crash")
        )
        await service.start()
        await work(core, service)
        await service.stop()


async def _compact(service: Service) -> None:
    settings = service.settings
    args = build_compact_args(ParseResult({}, "", []), settings, settings.lines(UMO))
    choice = await service.host.choose(UMO, "", "")
    await service.compactions.run(await service.order(UMO, args, "manual", choice))


async def _row(core: Core) -> tuple[str, list[dict[str, Any]]]:
    cid = await core.conversations.get_curr_conversation_id(UMO)
    (row,) = await core.execute(
        "SELECT content FROM conversations WHERE conversation_id = :cid", cid=cid
    )
    return str(cid), json.loads(row[0])


async def _set_up(seed: int, core: Core) -> None:
    cid = await core.conversations.new_conversation(UMO, "webchat")
    await core.execute(
        "UPDATE conversations SET content = :text WHERE conversation_id = :cid",
        text=json.dumps(originals(seed)),
        cid=cid,
    )


async def _live(core: Core, service: Service) -> None:
    """What is interrupted: two compactions with talk between, then an undo."""
    await _compact(service)
    cid, now = await _row(core)
    await core.conversations.update_conversation(UMO, cid, history=[*now, *_TALK, *_TALK])
    await _compact(service)
    await _undo(service, cid)


async def _undo(service: Service, cid: str) -> None:
    archive = await service.archive()
    await undo(service.host, archive, UMO, cid, lambda: None)


async def _check(seed: int, core: Core, service: Service) -> None:
    """After the restart: whole, healthy, and all the way back."""
    cid, now = await _row(core)
    before = originals(seed)
    told = [m for m in now if m.get("role") != "_checkpoint"]
    if not told or told[0]["role"] != "user":
        sys.exit(f"seed {seed}: a mixed history: {now[:3]}")
    health = await (await service.archive()).verify()
    if not health.is_ok:
        sys.exit(f"seed {seed}: {health.problems}")
    steps = 0
    while True:
        try:
            await _undo(service, cid)
        except NothingToUndo:
            break
        steps += 1
    _, after = await _row(core)
    if after not in (before, [*before, *_TALK, *_TALK]):
        sys.exit(f"seed {seed}: after {steps} undos {len(after)} messages for {len(before)}")


def _fork(folder: Path, work: Callable[[Core, Service], Awaitable[None]]) -> int:
    with warnings.catch_warnings():
        # Imported libraries keep threads; none of them holds a lock the child would need.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        logging.disable(logging.CRITICAL)
        code = 1
        try:
            asyncio.run(_with_service(folder, work))
            code = 0
        except SystemExit as exc:
            print(exc.code, flush=True)
        finally:
            os._exit(code)
    return child


def crash_once(seed: int, longest_seconds: float) -> bool:
    """Set up, kill somewhere, check; whether the kill came before the end."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        async def set_up(core: Core, _service: Service) -> None:
            await _set_up(seed, core)

        async def check(core: Core, service: Service) -> None:
            await _check(seed, core, service)

        if os.waitpid(_fork(folder, set_up), 0)[1]:
            sys.exit(f"seed {seed}: the history could not be made")
        child = _fork(folder, _live)
        time.sleep(random.Random(seed).uniform(0, longest_seconds))
        os.kill(child, signal.SIGKILL)
        killed = os.WIFSIGNALED(os.waitpid(child, 0)[1])
        if os.waitpid(_fork(folder, check), 0)[1]:
            sys.exit(f"seed {seed}: not whole after the crash")
        return killed


def main() -> None:
    """Crash as often as told and say how often it was in time."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    longest = float(sys.argv[2]) if len(sys.argv) > 2 else 1.0
    killed = sum(crash_once(seed, longest) for seed in range(count))
    print(f"{count} runs, {killed} killed before their end; every history whole, every undo exact")


if __name__ == "__main__":
    main()
