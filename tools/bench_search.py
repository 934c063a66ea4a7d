"""Time a search in a conversation of 100,000 archived messages, against a scan of the table.

    python tools/bench_search.py [messages] [queries]

Prints the 50th and 95th percentile of `Archive.search` over queries of every kind, those of
`SELECT … WHERE text LIKE '%words%'` on the same file and machine, and the ratio of the two; once
by the clock and once by processor time, which a busy machine does not change much.
"""

from __future__ import annotations

import asyncio
import importlib.machinery
import importlib.util
import json
import random
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Iterator
from pathlib import Path
from typing import Any

PACKAGE = "astrbot_plugin_compact"
_SPEC = importlib.machinery.ModuleSpec(PACKAGE, None, is_package=True)
_SPEC.submodule_search_locations = [str(Path(__file__).resolve().parent.parent)]
sys.modules.setdefault(PACKAGE, importlib.util.module_from_spec(_SPEC))
archive = importlib.import_module(f"{PACKAGE}.summary.archive")

_BATCH = 1000
# The k-th word comes up in proportion to 1 / k, as in any language.
_CHINESE_WORDS = 4000
_ENGLISH_WORDS = 8000


class Talk:
    """Made-up messages in two languages, with code in between."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.chinese = [
            "".join(chr(self.random.randrange(0x4E00, 0x4E00 + 3500)) for _ in range(length))
            for length in self.random.choices((1, 2, 3, 4), (2, 6, 2, 1), k=_CHINESE_WORDS)
        ]
        self.english = [
            "".join(self.random.choices("etaoinshrdlucmfwypvbgk", k=self.random.randint(2, 10)))
            for _ in range(_ENGLISH_WORDS)
        ]

    def words(self, vocabulary: list[str], count: int) -> list[str]:
        """Words as often as they come up in talk."""
        top = len(vocabulary)
        return [vocabulary[int(top ** self.random.random()) - 1] for _ in range(count)]

    def message(self, number: int) -> str:
        """One message; every tenth names a file, an identifier and an order."""
        if number % 10 == 0:
            first, second, third = self.words(self.english, 3)
            return (
                f"see src/{first}/{second}_{number}.py, get{third.title()}{number}() "
                f"and order ABC-{number}: " + " ".join(self.words(self.english, 12))
            )
        if number % 2:
            sentences = ("".join(self.words(self.chinese, 8)) for _ in range(6))
            return "，".join(sentences) + "。"
        return " ".join(self.words(self.english, self.random.randint(5, 60)))

    def queries(self, count: int, messages: int) -> Iterator[str]:
        """Queries of every kind, some of which find nothing."""
        for _ in range(count):
            number = self.random.randrange(0, messages, 10)
            yield self.random.choice(
                (
                    self.words(self.chinese, 1)[0],
                    " ".join(self.words(self.chinese, 2)),
                    self.words(self.english, 1)[0],
                    " ".join(self.words(self.english, 2)),
                    self.words(self.english, 1)[0][:4],
                    f"ABC-{number}",
                    f"{self.words(self.english, 1)[0]}_{number}.py",
                    f"没有的词{number}",
                )
            )


async def fill(path: Path, messages: int, talk: Talk) -> Any:
    """An archive with one conversation of that many messages, all indexed."""
    opened = await archive.Archive.open(path)
    for start in range(0, messages, _BATCH):
        texts = [talk.message(number) for number in range(start, start + _BATCH)]
        raws = [json.dumps({"role": "user", "content": text}) for text in texts]
        span = [archive.SpanMessage(raw, "user", t) for raw, t in zip(raws, texts, strict=True)]
        await opened.settle(await opened.begin(record(), span), "done")
    await opened.tended()
    return opened


def record() -> Any:
    """A compaction with nothing special about it."""
    return archive.NewCompaction(
        cid="bench",
        umo="webchat:FriendMessage:bench",
        trigger="manual",
        engine="structured",
        template="work",
        language="zh",
        provider_id="provider",
        model="model",
        focus="",
        messages_before=0,
        messages_after=0,
        tokens_before=0,
        tokens_after=0,
        requests=1,
        input_tokens=None,
        cached_tokens=None,
        output_tokens=None,
        duration_seconds=0.0,
        summary_before=None,
        summary="",
        head_hash="",
        structured=True,
    )


async def timed(work: Awaitable[object]) -> tuple[float, float]:
    """Seconds by the clock and of processor time, of all threads."""
    clock, processor = time.perf_counter(), time.process_time()
    await work
    return time.perf_counter() - clock, time.process_time() - processor


async def scan(conn: sqlite3.Connection, words: str) -> int:
    """What one would do without an index."""
    clauses = " AND ".join("text LIKE ?" for _ in words.split())
    values = [f"%{word}%" for word in words.split()]
    return len(conn.execute(f"SELECT id FROM content WHERE {clauses}", values).fetchall())


def percentiles(seconds: list[float]) -> tuple[float, float]:
    """The 50th and the 95th, in milliseconds."""
    cuts = statistics.quantiles(seconds, n=100)
    return cuts[49] * 1000, cuts[94] * 1000


async def main(messages: int, queries: int) -> None:
    """Fill, ask, print."""
    talk = Talk(1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "archive.db"
        started = time.perf_counter()
        opened = await fill(path, messages, talk)
        took = time.perf_counter() - started
        print(
            f"{messages} messages archived and indexed in {took:.1f} s, "
            f"{opened.size_bytes() / 1e6:.0f} MB"
        )
        asked = list(talk.queries(queries, messages))
        searches = [await timed(opened.search("bench", words)) for words in asked]
        await opened.close()
        conn = sqlite3.connect(path)
        scans = [await timed(scan(conn, words)) for words in asked[:: max(1, queries // 100)]]
        conn.close()
    for name, column in (("clock", 0), ("processor", 1)):
        middle, high = percentiles([spent[column] for spent in searches])
        scan_middle, scan_high = percentiles([spent[column] for spent in scans])
        print(
            f"{name}: search p50 {middle:.1f} ms, p95 {high:.1f} ms; scan p50 {scan_middle:.1f} "
            f"ms, p95 {scan_high:.1f} ms; scan is {scan_middle / middle:.1f} and "
            f"{scan_high / high:.1f} times as long"
        )


if __name__ == "__main__":
    arguments = [int(argument) for argument in sys.argv[1:]]
    asyncio.run(main(*(arguments + [100_000, 500][len(arguments) :])))
