"""One value, read from a word or mended from a config file."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from typing import Any

import pytest
from astrbot_plugin_compact.summary.settings import BY_NAME, SETTINGS
from astrbot_plugin_compact.summary.values import (
    Kind,
    mend,
    plain,
    read_json_object,
    read_number,
    read_switch,
    read_word,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.odd_values import HUGE, anything


def test_full_width_upper_case_and_invisible_characters_compare_as_plain_ones() -> None:
    assert plain("ＫＥＥＰ\u200b") == plain(" Keep ") == "keep"


@pytest.mark.parametrize(
    ("word", "unit", "number"),
    [
        ("0.2", "", "0.2"),
        ("０．２", "", "0.2"),
        (".5", "", "0.5"),
        ("-1", "", "-1"),
        ("60,000", "tokens", "60000"),
        ("60k", "tokens", "60000"),
        ("1.1m", "tokens", "1100000"),
        ("6万", "tokens", "60000"),
        ("80%", "ratio", "0.8"),
        ("８０％", "ratio", "0.8"),
        ("30s", "seconds", "30"),
        ("30秒", "seconds", "30"),
    ],
)
def test_numbers_are_read_as_people_write_them(word: str, unit: str, number: str) -> None:
    assert read_number(word, unit) == Decimal(number)


@pytest.mark.parametrize(
    "word", ["", ".", "-", "%", "abc", "1,00", "nan", "inf", "1e5", "0x10", "½", "٣", "1 2"]
)
def test_what_is_no_number_is_none(word: str) -> None:
    assert read_number(word, "ratio") is None


@pytest.mark.parametrize(("word", "unit"), [("60k", ""), ("3m", "seconds"), ("80%", "tokens")])
def test_a_suffix_counts_only_in_its_own_unit(word: str, unit: str) -> None:
    assert read_number(word, unit) is None


def test_a_word_of_thousands_of_digits_is_no_number() -> None:
    assert read_number("9" * 10_000) is None


@pytest.mark.parametrize("word", ["on", "TRUE", "yes", "1", "ＯＮ"])
def test_words_for_on(word: str) -> None:
    assert read_switch(word) is True


@pytest.mark.parametrize("word", ["off", "False", "no", "0"])
def test_words_for_off(word: str) -> None:
    assert read_switch(word) is False


def test_only_keep_is_moved_into_its_bounds() -> None:
    assert read_word(BY_NAME["keep_recent_ratio"], "99") == 0.3
    assert read_word(BY_NAME["keep_recent_ratio"], "-1") == 0
    assert read_word(BY_NAME["summary_budget_ratio"], "0.6") is None
    assert read_word(BY_NAME["min_messages"], "0") is None


def test_a_whole_number_takes_no_fraction_from_a_person() -> None:
    assert read_word(BY_NAME["min_messages"], "6.5") is None
    assert read_word(BY_NAME["min_messages"], "6.0") == 6


@pytest.mark.parametrize(
    ("name", "raw", "value"),
    [
        ("keep_recent_ratio", "0.2", 0.2),
        ("keep_recent_ratio", "80%", 0.3),
        ("keep_recent_ratio", 5, 0.3),
        pytest.param("keep_recent_ratio", HUGE, 0.3, id="huge-ratio"),
        ("keep_recent_ratio", -1, 0.0),
        ("keep_recent_ratio", math.nan, None),
        ("keep_recent_ratio", math.inf, None),
        ("keep_recent_ratio", True, None),
        ("keep_recent_ratio", [0.2], None),
        ("compress_at", "80%", 0.8),
        ("compress_tokens", "60k", 60_000),
        pytest.param("compress_tokens", HUGE, 1_000_000_000, id="huge-whole"),
        ("compress_tokens", 60_000.9, 60_000),
        ("min_messages", "", None),
        ("min_messages", 0, None),
        ("summary_timeout", None, None),
        ("summary_timeout", 10**9, 3_600),
        ("auto_compact", "false", False),
        ("auto_compact", 0, False),
        ("auto_compact", 1.0, True),
        ("auto_compact", 2, None),
        ("auto_compact", math.nan, None),
        ("engine", " Builtin ", "builtin"),
        ("engine", "other", None),
        ("default_focus", 42, "42"),
        pytest.param("default_focus", HUGE, None, id="huge-text"),
        ("default_focus", None, None),
        ("default_focus", ["a"], None),
        ("summary_extra_body", '{"a": 1}', {"a": 1}),
        ("summary_extra_body", {"a": 1}, {"a": 1}),
        ("summary_extra_body", "[1]", None),
        ("summary_extra_body", "{bad", None),
        ("summary_extra_body", "  ", {}),
    ],
)
def test_stored_values_are_mended_where_their_meaning_is_plain(
    name: str, raw: object, value: object
) -> None:
    mended = mend(BY_NAME[name], raw)
    assert mended == value
    assert type(mended) is type(value)


@pytest.mark.parametrize("text", ['{"a": NaN}', "[" * 100_000, '{"a": ' + "1" * 5_000 + "}"])
def test_json_that_cannot_be_sent_is_refused(text: str) -> None:
    assert read_json_object(text) is None


@given(st.sampled_from(SETTINGS), anything)
def test_mending_never_raises_and_stays_in_bounds(setting: Any, raw: object) -> None:
    value = mend(setting, raw)
    if value is None:
        return
    if setting.kind in (Kind.RATIO, Kind.WHOLE):
        assert setting.low <= value <= setting.high
    if setting.options:
        assert value in setting.options


@given(st.sampled_from(SETTINGS), st.text() | st.floats().map(str) | st.integers().map(str))
def test_a_read_word_is_a_value_mending_takes_as_it_is(setting: Any, word: str) -> None:
    value = read_word(setting, word)
    if value is None:
        return
    expected = read_json_object(value) if setting.kind is Kind.JSON else value
    assert mend(setting, json.loads(json.dumps(value))) == expected
