"""What the owner wrote becomes one usable value."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
from astrbot_plugin_compact.summary.layers import Source
from astrbot_plugin_compact.summary.settings import SETTINGS, Change, Settings, apply_set
from hypothesis import given
from hypothesis import strategies as st

from tests.odd_values import HUGE, Unprintable, anything

NAMES = [setting.name for setting in SETTINGS]


def parse(raw: dict[str, Any]) -> tuple[Settings, list[str]]:
    warnings: list[str] = []
    return Settings.parse(raw, warnings.append), warnings


def test_an_empty_mapping_is_the_defaults_without_a_word() -> None:
    assert parse({}) == (Settings(), [])


def test_values_of_the_wrong_type_are_mended_or_defaulted_with_a_warning_each() -> None:
    raw = {
        "keep_recent_ratio": "0.2",
        "min_messages": "",
        "auto_compact": "false",
        "compress_at": "80%",
        "summary_timeout": None,
    }
    settings, warnings = parse(raw)
    assert settings == Settings(keep_recent_ratio=0.2, auto_compact=False)
    assert len(warnings) == len(raw)
    for key, value in raw.items():
        assert any(key in warning and repr(value) in warning for warning in warnings), key


def test_values_as_they_should_be_bring_no_warning() -> None:
    raw: dict[str, Any] = {setting.name: setting.default for setting in SETTINGS}
    raw |= {"keep_recent_ratio": 0, "summary_extra_body": '{"a": 1}', "session_overrides": []}
    settings, warnings = parse(raw)
    assert warnings == []
    assert settings.summary_extra_body == {"a": 1}


@pytest.mark.parametrize(
    ("name", "raw", "value"),
    [
        ("keep_recent_ratio", 0.9, 0.3),
        ("summary_budget_ratio", 2, 0.5),
        ("compress_at", 1.5, 1.0),
        ("compress_at", -0.5, 0.0),
        ("keep_recent_ratio", math.nan, 0.15),
        ("keep_recent_ratio", -math.inf, 0.15),
        ("summary_extra_body", "{bad", {}),
        ("summary_extra_body", {"a": 1}, {"a": 1}),
        ("session_overrides", {}, ()),
        ("session_overrides", "x", ()),
        ("history_limit", -1, 0),
        pytest.param("history_limit", HUGE, 1_000_000, id="huge"),
        ("language", ["zh"], "auto"),
        pytest.param("notify", Unprintable(), "private", id="unprintable"),
    ],
)
def test_a_bad_value_costs_one_warning_and_nothing_else(name: str, raw: Any, value: Any) -> None:
    settings, warnings = parse({name: raw})
    assert settings == dataclasses.replace(Settings(), **{name: value})
    assert len(warnings) == 1
    assert name in warnings[0]


def test_a_value_is_shown_whole_unless_it_is_long() -> None:
    assert "x" * 60 in parse({"min_messages": "x" * 60})[1][0]
    assert len(parse({"min_messages": "x" * 10_000})[1][0]) < 200


def test_unknown_keys_are_left_alone() -> None:
    assert parse({"something": 1}) == (Settings(), [])


@given(st.dictionaries(st.sampled_from(NAMES), anything))
def test_any_mapping_gives_settings_and_at_most_one_warning_a_key(raw: dict[str, Any]) -> None:
    settings, warnings = parse(raw)
    for setting in SETTINGS:
        value = getattr(settings, setting.name)
        assert type(value) is type(getattr(Settings(), setting.name))
    keys = [warning.split(":")[0] for warning in warnings]
    assert len(keys) == len(set(keys))


def test_a_value_says_whether_the_owner_set_it() -> None:
    settings, _ = parse({"min_messages": 6})
    assert settings.source("min_messages") is Source.CONFIG
    assert settings.source("show_summary") is Source.DEFAULT


def test_setting_gives_back_only_what_changes() -> None:
    changes = [Change("keep_recent_ratio", 0.2), Change("min_messages", None)]
    assert apply_set({"min_messages": 9, "engine": "builtin"}, changes) == {
        "keep_recent_ratio": 0.2,
        "min_messages": 4,
    }


def test_the_later_of_two_changes_counts() -> None:
    changes = [Change("min_messages", 5), Change("min_messages", 6)]
    assert apply_set({}, changes) == {"min_messages": 6}


def test_setting_for_one_session_writes_its_row_and_leaves_the_config_as_it_is() -> None:
    raw: dict[str, Any] = {"session_overrides": []}
    changes = [Change("compress_at", 0.5), Change("compress_tokens", 0)]
    written = apply_set(raw, changes, here="qq:GroupMessage:1")
    assert raw == {"session_overrides": []}
    assert list(written) == ["session_overrides"]
    settings, warnings = parse(written)
    lines = settings.lines("qq:GroupMessage:1")
    assert (lines.compress_at, lines.compress_tokens) == (0.5, 0)
    assert settings.lines("qq:GroupMessage:2").compress_at == 0.8
    assert warnings == []


@given(st.sampled_from(NAMES), anything)
def test_setting_survives_a_config_of_any_kind(name: str, stored: Any) -> None:
    written = apply_set({name: stored}, [Change("history_limit", 3)], here="a:b:c")
    assert parse({name: stored, **written})[0].lines("a:b:c").history_limit == 3
