"""Finished chunks of runs that failed later on, so that the next run need not pay again.

Invariant: bounded, in memory only; what is kept under a key is the furthest progress reached.
"""

from __future__ import annotations

from collections import OrderedDict

from .chunks import Progress


class ChunkCache:
    """The progress of the most recent unfinished runs, by `task.run_key`."""

    def __init__(self, size: int = 32) -> None:
        self._size = size
        self._runs: OrderedDict[str, Progress] = OrderedDict()

    def get(self, key: str) -> Progress | None:
        """How far an earlier run with this key came, or None."""
        return self._runs.get(key)

    def put(self, key: str, progress: Progress) -> None:
        """Note progress; the run noted longest ago makes room."""
        self._runs[key] = progress
        self._runs.move_to_end(key)
        while len(self._runs) > self._size:
            self._runs.popitem(last=False)

    def forget(self, key: str) -> None:
        """Drop a run whose result was stored."""
        self._runs.pop(key, None)

    def __len__(self) -> int:
        return len(self._runs)
