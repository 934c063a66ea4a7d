"""AstrBot's own compression settings, by either place and in any state."""

from __future__ import annotations

from typing import Any

import pytest
from astrbot_plugin_compact.summary.core_settings import CoreCompression, core_compression

NEW = {
    "provider_id": " p ",
    "instruction": "be brief",
    "keep_recent_ratio": 0.2,
    "overflow_strategy": "llm_compress",
    "max_turns": 7,
    "trim_turns": 2,
    "fallback_max_tokens": 9_000,
}
OLD = {
    "llm_compress_provider_id": " p ",
    "llm_compress_instruction": "be brief",
    "llm_compress_keep_recent_ratio": 0.2,
    "context_limit_reached_strategy": "llm_compress",
    "max_context_length": 7,
    "dequeue_context_length": 2,
    "fallback_max_context_tokens": 9_000,
}
READ = CoreCompression("p", "be brief", 0.2, "llm_compress", 7, 2, 9_000)


def _new(compression: Any, runner_type: str = "local") -> dict[str, Any]:
    runner = {"runner_type": runner_type, "config": {"compression": compression}}
    return {"agent_runner": runner, "provider_settings": {}}


def test_both_places_say_the_same() -> None:
    assert core_compression(_new(NEW)) == READ
    assert core_compression({"provider_settings": OLD}) == READ


def test_the_newer_place_wins_and_the_older_provider_fills_in() -> None:
    config = {**_new({"provider_id": "", "max_turns": 3}), "provider_settings": OLD}
    settings = core_compression(config)
    assert (settings.max_turns, settings.provider_id) == (3, "p")


@pytest.mark.parametrize(
    "config",
    [
        None,
        {},
        {"provider_settings": None},
        {"agent_runner": "x", "provider_settings": []},
        _new(None),
        _new({key: object() for key in NEW}),
        _new(dict.fromkeys(NEW)),
    ],
)
def test_what_is_not_there_or_no_value_is_read_as_astrbot_reads_nothing(config: Any) -> None:
    assert core_compression(config) == CoreCompression()


@pytest.mark.parametrize(
    ("value", "window"), [(0, None), (-1, None), ("9000", 9_000), (True, 128_000)]
)
def test_a_fallback_window_is_positive_or_none(value: Any, window: int | None) -> None:
    assert core_compression(_new({"fallback_max_tokens": value})).fallback_window_tokens == window


@pytest.mark.parametrize(
    ("value", "ratio"),
    [(0.9, 0.3), (-1, 0.0), ("0.2", 0.2), ("x", 0.15), (float("nan"), 0.15), (True, 0.15)],
)
def test_the_ratio_stays_in_its_bounds(value: Any, ratio: float) -> None:
    assert core_compression(_new({"keep_recent_ratio": value})).keep_recent_ratio == ratio


def test_a_foreign_runner_is_told() -> None:
    assert not core_compression(_new(NEW, "dify")).local
    assert not core_compression({"provider_settings": {"agent_runner_type": "coze"}}).local
    assert core_compression({"provider_settings": {"agent_runner_type": "local"}}).local
