"""Numbers, times and foreign text for people."""

from __future__ import annotations

import pytest
from astrbot_plugin_compact.summary.wording import (
    bar,
    byte_size,
    cut,
    one_line,
    percent_saved,
    short_number,
    visible,
)
from hypothesis import given
from hypothesis import strategies as st

FAMILY = "👨‍👩‍👧"


def test_a_text_that_fits_is_whole() -> None:
    assert cut("四个汉字", 4) == "四个汉字"


def test_a_longer_text_keeps_so_many_characters_and_a_mark() -> None:
    assert cut("五个字符呢", 4) == "五个字符…"


@pytest.mark.parametrize("cluster", [FAMILY, "e\u0301", "👍🏽", "🇨🇳", "❤\ufe0f", "क्"])
def test_what_looks_like_one_character_is_not_split(cluster: str) -> None:
    for length in range(1, len(cluster)):
        assert cut("甲" + cluster, 1 + length) == "甲…"
    assert cut(f"甲{cluster}乙丙", 1 + len(cluster)) == f"甲{cluster}…"


def test_a_flag_is_cut_off_between_flags() -> None:
    assert cut("🇨🇳🇩🇪", 2) == "🇨🇳…"
    assert cut("🇨🇳🇩🇪", 3) == "🇨🇳…"


def test_endless_combining_marks_do_not_eat_the_text() -> None:
    assert len(cut("甲" * 50 + "\u0301" * 100, 100)) > 80


@given(st.text(), st.integers(min_value=1, max_value=40))
def test_a_cut_text_is_a_beginning_of_it_and_can_be_sent(text: str, max_chars: int) -> None:
    short = cut(text, max_chars)
    short.encode()
    assert len(short) <= max_chars + 1
    assert visible(text).startswith(short.removesuffix("…"))


def test_what_cannot_be_sent_is_replaced() -> None:
    assert visible("ok \ud83d end\x00") == "ok \ufffd end\ufffd"
    assert visible("行一\n\t行二 🎉") == "行一\n\t行二 🎉"


def test_foreign_words_become_one_short_line() -> None:
    assert one_line("a\n\n  b\u2028c") == "a b c"
    assert one_line("甲" * 300) == "甲" * 200 + "…"


@pytest.mark.parametrize(
    "words",
    [
        "Incorrect API key: sk-proj-abcdefgh12345678",
        "GET https://host/v1?key=AIzaSyA1234567890",
        "Authorization: Bearer abc.def",
    ],
)
def test_keys_in_foreign_words_are_not_shown(words: str) -> None:
    shown = one_line(words)
    assert "…" in shown
    assert not any(secret in shown for secret in ("abcdefgh", "AIzaSy", "abc.def"))


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (999, "999"), (1_000, "1k"), (31_234, "31.2k"), (999_949, "999.9k"),
     (999_950, "1M"), (1_250_000, "1.2M")],
)  # fmt: skip
def test_token_shorthand(number: int, text: str) -> None:
    assert short_number(number) == text


@pytest.mark.parametrize(
    ("before", "after", "percent"),
    [(12_345, 1_234, 90), (1_000, 1, 99), (100, 0, 100), (100, 150, 0), (0, 0, 0)],
)
def test_the_share_saved_is_rounded_down(before: int, after: int, percent: int) -> None:
    assert percent_saved(before, after) == percent


@pytest.mark.parametrize(
    ("percent", "text"),
    [(0, "░░░░░"), (19, "░░░░░"), (62, "▓▓▓░░"), (100, "▓▓▓▓▓"), (250, "▓▓▓▓▓")],
)
def test_the_bar_is_filled_by_whole_cells(percent: int, text: str) -> None:
    assert bar(percent) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (812, "812 B"), (1_234_567, "1.2 MB"), (5 * 10**12, "5000 GB")]
)
def test_sizes(count: int, text: str) -> None:
    assert byte_size(count) == text
