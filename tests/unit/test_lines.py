"""The two lines a conversation is compacted at."""

from __future__ import annotations

import pytest
from astrbot_plugin_compact.summary.lines import CompressLine, CountLine, compress_line, count_line
from hypothesis import given
from hypothesis import strategies as st

windows = st.none() | st.integers(1, 10_000_000)
ratios = st.just(0.0) | st.floats(0, 1)
tokens = st.just(0) | st.integers(1, 10_000_000)
growths = st.none() | st.integers(0, 10_000_000)
turns = st.none() | st.integers(-1, 10_000)


def line(
    window: int | None = None, ratio: float = 0, fixed: int = 0, growth: int | None = None
) -> CompressLine | None:
    return compress_line(window, ratio, fixed, growth)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (line(128_000, 0.8), CompressLine(102_400, "ratio", True)),
        (line(128_000, 0.7), CompressLine(89_600, "ratio", True)),
        (line(128_000, 0.7, 60_000), CompressLine(60_000, "tokens", True)),
        (line(128_000, 0.0, 200_000), CompressLine(102_400, "host", True)),
        (line(128_000), CompressLine(102_400, "host", False)),
        (line(None, 0.8), None),
        (line(None, 0.8, 60_000), CompressLine(60_000, "tokens", True)),
        (line(None, 0.0, 0), None),
    ],
    ids=range(8),
)
def test_the_smallest_known_line_counts(
    found: CompressLine | None, expected: CompressLine | None
) -> None:
    assert found == expected


@pytest.mark.parametrize(
    ("growth", "expected"),
    [(None, 80_000), (0, 80_000), (2_000, 80_000), (2_001, 79_999), (30_000, 52_000)],
)
def test_the_hosts_line_leaves_room_for_one_more_turn(growth: int | None, expected: int) -> None:
    assert line(100_000, growth=growth) == CompressLine(expected, "host", False)


@pytest.mark.parametrize("growth", [32_000, 32_001, 1_000_000])
def test_room_for_a_turn_never_takes_more_than_the_half(growth: int) -> None:
    assert line(100_000, growth=growth) == CompressLine(50_000, "host", False)


@given(windows, ratios, tokens, growths)
def test_a_line_is_known_with_a_window_or_tokens(
    window: int | None, ratio: float, fixed: int, growth: int | None
) -> None:
    found = line(window, ratio, fixed, growth)
    assert (found is None) == (window is None and fixed == 0)
    if found is not None:
        assert found.by_usage == (ratio > 0 or fixed > 0)
        assert fixed == 0 or found.tokens <= fixed
        assert window is None or found.tokens <= max(0.82 * window, 1)


@given(windows, ratios, tokens, growths)
def test_a_line_is_never_nothing(
    window: int | None, ratio: float, fixed: int, growth: int | None
) -> None:
    found = line(window, ratio, fixed, growth)
    assert found is None or found.tokens > 0


@given(windows, ratios, tokens, growths, growths)
def test_a_larger_growth_never_raises_the_line(
    window: int | None, ratio: float, fixed: int, one: int | None, other: int | None
) -> None:
    small, large = sorted([one or 0, other or 0])
    before, after = line(window, ratio, fixed, small), line(window, ratio, fixed, large)
    assert before is None or after is None or after.tokens <= before.tokens


# --- messages


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (count_line(0, None, 0, 0, 0), None),
        (count_line(0, 0, 0, 0, 0), None),
        (count_line(0, -1, 3, 2, 1), None),
        (count_line(100, None, 0, 2, 0), CountLine(100, "setting")),
        (count_line(0, 50, 0, 2, 0), CountLine(94, "host")),
        (count_line(0, 50, 3, 2, 1), CountLine(90, "host")),
        (count_line(90, 50, 0, 2, 0), CountLine(90, "setting")),
        (count_line(95, 50, 0, 2, 0), CountLine(94, "host")),
        (count_line(94, 50, 0, 2, 0), CountLine(94, "setting")),
        (count_line(0, 3, 10, 2, 0), CountLine(1, "host")),
    ],
    ids=range(10),
)
def test_the_smaller_count_line_counts(found: CountLine | None, expected: CountLine | None) -> None:
    assert found == expected


@given(st.integers(0, 1_000_000), turns, st.integers(0, 50), st.integers(0, 2), st.integers(0, 50))
def test_below_the_count_line_the_host_does_not_trim(
    limit: int, host_turns: int | None, begin: int, head: int, markers: int
) -> None:
    found = count_line(limit, host_turns, begin, head, markers)
    if found is None or host_turns is None or host_turns <= 0 or found.messages == 1:
        return
    # The host counts all but system messages, and a turn adds two at the least.
    stored = begin + head + markers + found.messages + 2
    assert stored // 2 <= host_turns
