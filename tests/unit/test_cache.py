"""Finished chunks of failed runs."""

from __future__ import annotations

from astrbot_plugin_compact.summary.cache import ChunkCache
from astrbot_plugin_compact.summary.chunks import Progress


def test_the_furthest_progress_is_kept() -> None:
    cache = ChunkCache()
    cache.put("a", Progress(steps=1))
    cache.put("a", Progress(steps=2))
    assert cache.get("a") == Progress(steps=2)
    assert cache.get("b") is None


def test_the_run_noted_longest_ago_makes_room() -> None:
    cache = ChunkCache(size=2)
    cache.put("a", Progress())
    cache.put("b", Progress())
    cache.put("a", Progress())
    cache.put("c", Progress())
    assert cache.get("b") is None
    assert cache.get("a") is not None
    assert len(cache) == 2


def test_a_stored_run_is_forgotten() -> None:
    cache = ChunkCache()
    cache.put("a", Progress())
    cache.forget("a")
    cache.forget("a")
    assert cache.get("a") is None
