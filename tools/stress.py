"""Thousands of seeded interleavings against one conversation: `python tools/stress.py [N] [SEED]`.

Says how many it tried, or the first seed that breaks a law and what happened in it.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import tests.conftest  # noqa: E402, F401 (makes the repository the package it is on a host)
from tests.contract.stress import interleave  # noqa: E402

_TRIED = 2_000


async def main(count: int, first_seed: int) -> None:
    """Play so many interleavings."""
    logging.getLogger("tests.fake_bot").setLevel(logging.CRITICAL)  # failures are part of it
    started = time.monotonic()
    counts: Counter[str] = Counter()
    for seed in range(first_seed, first_seed + count):
        with tempfile.TemporaryDirectory() as folder:
            counts += await interleave(seed, Path(folder))
        if sys.stderr.isatty():
            print(f"\r{seed - first_seed + 1} of {count}", end="", file=sys.stderr)
    done = ", ".join(f"{number} {name}" for name, number in sorted(counts.items()))
    seconds = time.monotonic() - started
    print(f"{count} interleavings from seed {first_seed} hold ({done}) in {seconds:.0f} s")


if __name__ == "__main__":
    arguments = [int(each) for each in sys.argv[1:]]
    asyncio.run(main(*(arguments + [_TRIED, 1][len(arguments) :])))
