"""What a compaction costs beside the model: `make bench` prints the table the README quotes.

Everything is measured in one run on one machine, so ratios mean something and seconds do not:
our whole path (read, plan, render, an instant model, commit) against one JSON round trip of the
same history, and against AstrBot's own compressor path over it (bind, count, compress with an
instant model, dump). Ratios are of CPU time, all threads together, because that is the same on a
busy machine. The other two touch no database; what AstrBot's own takes for reading the row and
for the compare-and-swap is in ours, and in a column of its own. So is what the archive does
afterwards for its search. The longest stall is the longest time in any of the runs that nothing
else could run, the housekeeping behind them included.
"""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import logging
import os
import platform
import random
import statistics
import sys
import tempfile
import threading
import time
import uuid
import warnings
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
os.environ.setdefault("ASTRBOT_ROOT", tempfile.mkdtemp(prefix="astrbot-bench-"))

import tests.conftest  # noqa: E402, F401 (makes the repository a package)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from astrbot.api.provider import LLMResponse
    from astrbot.core.agent.context.token_counter import EstimateTokenCounter
    from astrbot.core.agent.message import (
        bind_checkpoint_messages,
        dump_messages_with_checkpoints,
    )
    from astrbot_plugin_compact.compressor import AstrBotHost, LLMSummaryCompressor
    from astrbot_plugin_compact.summary.args import ParseResult, build_compact_args
    from astrbot_plugin_compact.summary.chain import ProviderChoice
    from astrbot_plugin_compact.summary.host import ModelInfo, ModelReply, ModelRequest
    from astrbot_plugin_compact.summary.plan import Skip
    from astrbot_plugin_compact.summary.service import Service

    from tests.contract.core import Core, running_core

COLUMNS = (
    "rounds",
    "history",
    "ours / JSON round trip",
    "ours / AstrBot's compressor",
    "of it AstrBot's database / JSON round trip",
    "search index, afterwards / JSON round trip",
    "tokens sent, ours",
    "AstrBot's",
    "model calls",
    "longest stall",
)
ROUNDS = (100, 1_000, 5_000)
REPEATS = 9
_TICK_SECONDS = 0.001
WINDOW_TOKENS = 10_000_000
SUMMARY = (
    "## 目标\n迁移数据库\n## 做过的决定\n用蓝绿发布\n## 改过的文件\n无\n## 未完成的事\n切换流量"
)
UMO = "webchat:FriendMessage:webchat!astrbot!bench"


ZH = (
    "我们继续看数据库迁移的第{n}步，注意回滚方案和流量切换的顺序。",
    "昨天压测的时候，订单接口的延迟比预期高了不少，先查一下索引。",
    "把 src/db/m{n}.py 里的连接池改成按租户分开，再跑一遍测试。",
    "这一步的检查结果是通过，下一步可以开始准备灰度发布。",
    "如果凌晨两点前没有异常，就把剩下的流量也切过去，值班的人留意告警。",
    "另外，用户反馈导出的表格里金额少了一位，应该是四舍五入的问题。",
)
EN = (
    "Please check step {n} of the migration plan before we switch the traffic over. ",
    "The latency of the order service was higher than expected during the load test. ",
    "I changed the connection pool in src/db/m{n}.py so that every tenant has its own. ",
    "All checks have passed, and the next step is to prepare the gradual release. ",
    "If nothing unusual happens until two o'clock, move the rest of the traffic as well. ",
    "One user reports that amounts in the exported sheet lack a digit; probably rounding. ",
)
# What people and models usually write: a question of a line or three, an answer of a few
# paragraphs, a tool's result of a page.
QUESTION_CHARS, ANSWER_CHARS, RESULT_CHARS = (10, 160), (100, 1_200), (200, 4_000)
IMAGE_BYTES = 60_000


def history(rounds: int) -> list[dict[str, Any]]:
    """A mixed talk: Chinese, English, a tool call every 5th round, an image every 50th."""
    rng = random.Random(rounds)
    messages: list[dict[str, Any]] = []

    def prose(limits: tuple[int, int], n: int) -> str:
        sentences, size = EN if n % 2 else ZH, rng.randint(*limits)
        text = ""
        while len(text) < size:
            text += rng.choice(sentences).format(n=n)
        return text

    for n in range(rounds):
        parts: list[dict[str, Any]] = [{"type": "text", "text": prose(QUESTION_CHARS, n)}]
        if n % 50 == 49:
            data = base64.b64encode(rng.randbytes(IMAGE_BYTES)).decode()
            image = {"url": "data:image/jpeg;base64," + data, "id": None}
            parts.append({"type": "image_url", "image_url": image})
        messages.append({"role": "user", "content": parts})
        if n % 5 == 0:
            call = {"id": f"call_{n}", "type": "function"}
            call["function"] = {
                "name": "read_file",
                "arguments": json.dumps({"path": f"src/db/m{n}.py"}),
            }
            messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
            result = prose(RESULT_CHARS, n)
            messages.append({"role": "tool", "tool_call_id": f"call_{n}", "content": result})
        answer = prose(ANSWER_CHARS, n)
        messages.append({"role": "assistant", "content": [{"type": "text", "text": answer}]})
        messages.append({"role": "_checkpoint", "content": {"id": str(uuid.uuid4())}})
    return messages


class InstantModel:
    """Answers at once; counts what it is sent."""

    info = ModelInfo("instant", "instant", WINDOW_TOKENS, 8_192)

    def __init__(self) -> None:
        self.requests: list[ModelRequest] = []

    async def ask(self, request: ModelRequest) -> ModelReply:
        """The same summary always."""
        self.requests.append(request)
        return ModelReply(text=SUMMARY)


class InstantProvider:
    """AstrBot's side of the same."""

    def __init__(self) -> None:
        self.provider_config: dict[str, Any] = {}
        self.sent: list[Any] = []

    async def text_chat(self, contexts: list[Any], **_: object) -> LLMResponse:
        """The same summary always."""
        self.sent = contexts
        return LLMResponse("assistant", completion_text=SUMMARY)


class BenchHost(AstrBotHost):
    """The real host with an instant model."""

    def __init__(self, core: Core, model: InstantModel) -> None:
        super().__init__(core.context)
        self._instant = model

    async def choose(self, *_: str) -> ProviderChoice:
        """The instant model."""
        return ProviderChoice(self._instant, "session")

    def model(self, _umo: str, provider: Any) -> Any:
        """The instant model."""
        return provider

    async def chat_model(self, *_: str) -> ModelInfo | None:
        """The instant model."""
        return self._instant.info


@dataclass
class Row:
    """One line of the table."""

    rounds: int
    megabytes: float
    of_round_trip: float
    of_host: float
    database: float
    afterwards: float
    tokens_ours: int
    tokens_host: int
    calls: int
    stall_ms: float


async def timed(work: Callable[[], Awaitable[object]]) -> float:
    """Seconds of CPU time a piece of work takes, in whatever threads."""
    gc.collect()  # everybody pays for the garbage of their own
    began = time.process_time()
    await work()
    return time.process_time() - began


def database_seconds() -> float:
    """CPU time so far of the threads that do the work of AstrBot's database connections."""
    return sum(
        time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
        for thread in threading.enumerate()
        if thread.ident is not None and "_connection_worker_thread" in thread.name
    )


async def longest_stall(work: Callable[[], Awaitable[object]]) -> float:
    """The longest time in seconds that a waiting task had to wait for its turn during `work`.

    Whatever holds the interpreter counts, in whichever thread.
    """
    longest, done = 0.0, asyncio.Event()

    async def tick() -> None:
        nonlocal longest
        while not done.is_set():
            before = time.perf_counter()
            await asyncio.sleep(_TICK_SECONDS)
            longest = max(longest, time.perf_counter() - before - _TICK_SECONDS)

    gc.collect()  # everybody pays for the garbage of their own
    ticking = asyncio.create_task(tick())
    await asyncio.sleep(0.01)
    await work()
    done.set()
    await ticking
    return longest


async def measure(core: Core, service: Service, model: InstantModel, rounds: int) -> Row:
    """One line."""
    text = json.dumps(history(rounds))
    trips: list[float] = []
    hosts: list[float] = []
    ours: list[float] = []
    databases: list[float] = []
    later: list[float] = []
    stalls: list[float] = []
    provider = InstantProvider()

    async def round_trip() -> None:
        json.dumps(json.loads(text))

    async def host_path() -> None:
        messages = bind_checkpoint_messages(json.loads(text))
        EstimateTokenCounter().count_tokens(messages)
        compressed = await LLMSummaryCompressor(provider)(messages)  # type: ignore[arg-type]
        json.dumps(dump_messages_with_checkpoints(compressed))

    async def our_path() -> None:
        settings = service.settings
        args = build_compact_args(ParseResult({}, "", []), settings, settings.lines(UMO))
        choice = await service.host.choose(UMO, "", "")
        result = await service.compactions.run(await service.order(UMO, args, "manual", choice))
        if isinstance(result, Skip):
            sys.exit(f"nothing was compacted: {result}")

    async def fresh() -> None:
        cid = await core.conversations.new_conversation(UMO, "webchat")
        sql = "UPDATE conversations SET content = :text WHERE conversation_id = :cid"
        await core.execute(sql, text=text, cid=cid)

    archive = await service.archive()
    # It would begin while the path is still measured.
    archive._file.tend_soon = lambda: None  # type: ignore[method-assign]  # noqa: SLF001

    async def housekeeping() -> None:
        await archive.tended()

    for _ in range(REPEATS):
        trips.append(await timed(round_trip))
        hosts.append(await timed(host_path))
        await fresh()
        model.requests.clear()
        before = database_seconds()
        ours.append(await timed(our_path))
        databases.append(database_seconds() - before)
        later.append(await timed(housekeeping))
        await fresh()
        stalls.append(await longest_stall(our_path))
        stalls.append(await longest_stall(housekeeping))
    counter = EstimateTokenCounter()
    sent = [bind_checkpoint_messages([{"role": "user", "content": r.system + r.user}])[0]
            for r in model.requests[: len(model.requests) // 2]]  # fmt: skip
    figures = (trips, hosts, ours, databases, later)
    trip, host, our, database, after = map(statistics.median, figures)
    return Row(
        rounds,
        len(text) / 1e6,
        our / trip,
        our / host,
        database / trip,
        after / trip,
        counter.count_tokens(sent),
        counter.count_tokens(bind_checkpoint_messages(provider.sent)),
        len(model.requests) // 2,
        1000 * max(stalls),
    )


async def main() -> None:
    """Print the table."""
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        async with running_core(Path(folder)) as core:
            model = InstantModel()
            host = BenchHost(core, model)
            service = Service(host, {}, Path(folder) / "archive.db", logging.getLogger("bench"))
            print(f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores, {platform.machine()}, "
                  f"Python {platform.python_version()}; ratios of CPU time, "
                  f"medians of {REPEATS}")  # fmt: skip
            print()
            print("| " + " | ".join(COLUMNS) + " |")
            print("|---" * len(COLUMNS) + "|")
            for rounds in ROUNDS:
                row = await measure(core, service, model, rounds)
                cells = (
                    f"{row.rounds:,}",
                    f"{row.megabytes:.2f} MB",
                    f"{row.of_round_trip:.2f}",
                    f"{row.of_host:.2f}",
                    f"{row.database:.2f}",
                    f"{row.afterwards:.2f}",
                    f"{row.tokens_ours:,}",
                    f"{row.tokens_host:,}",
                    f"{row.calls}",
                    f"{row.stall_ms:.0f} ms",
                )
                print("| " + " | ".join(cells) + " |", flush=True)
            await service.stop()


if __name__ == "__main__":
    asyncio.run(main())
