"""When a turn makes a compaction due (spec 3.1 to 3.3): arithmetic, one law a test."""

from __future__ import annotations

import pytest
from astrbot_plugin_compact.summary.errors import EmptySummary, LargeMessage, ProviderFailed
from astrbot_plugin_compact.summary.lines import (
    CompressLine,
    CountLine,
    compress_line,
    count_line,
)
from astrbot_plugin_compact.summary.triggers import (
    BackOff,
    Due,
    NotDue,
    Reason,
    TurnFacts,
    judge,
)
from hypothesis import given
from hypothesis import strategies as st

LINE = CompressLine(6_400, "ratio", by_usage=True)
COUNT = CountLine(12, "host")


def facts(usage: int | None = 0, dialog: int = 4_000, messages: int = 4, **more: bool) -> TurnFacts:
    return TurnFacts(usage, dialog, messages, **more)


# --- usage


def test_usage_at_the_line_is_due() -> None:
    assert judge(facts(6_400), LINE, None) == Due(Reason.USAGE)
    assert judge(facts(6_399), LINE, None) == NotDue()


def test_a_dialog_under_half_the_line_is_never_due_by_usage() -> None:
    """A big persona or tool list beside it cannot be compacted away."""
    assert judge(facts(7_000, dialog=3_200), LINE, None) == Due(Reason.USAGE)
    assert judge(facts(7_000, dialog=3_199), LINE, None) == NotDue()
    assert judge(facts(0, dialog=3_199, trimmed=True), LINE, None) == NotDue()


def test_a_turn_the_host_trimmed_is_due_whatever_its_usage() -> None:
    assert judge(facts(100, trimmed=True), LINE, None) == Due(Reason.TRIMMED)


def test_both_settings_at_zero_never_make_it_due() -> None:
    line = compress_line(8_000, 0, 0, None)
    assert line is not None
    assert not line.by_usage
    assert judge(facts(8_000, trimmed=True), line, None) == NotDue()


def test_an_unknown_usage_or_line_is_not_due() -> None:
    assert judge(facts(None), LINE, None) == NotDue()
    assert judge(facts(8_000), None, None) == NotDue()


# --- count


def test_messages_at_the_count_line_are_due() -> None:
    assert judge(facts(messages=12), LINE, COUNT) == Due(Reason.COUNT)
    assert judge(facts(messages=11), LINE, COUNT) == NotDue()


def test_a_turn_trimmed_by_turns_is_due() -> None:
    assert judge(facts(messages=2, trimmed_by_turns=True), None, COUNT) == Due(Reason.COUNT)


@pytest.mark.parametrize(("source", "rest"), [("host", 3), ("setting", 2)])
@pytest.mark.parametrize("trimmed", [False, True])
def test_a_low_count_line_does_not_spin(source: str, rest: int, trimmed: bool) -> None:
    """Where one round beside the one kept reaches it, every turn would be due."""
    found = [
        turns
        for turns in (None, *range(6))
        if judge(facts(messages=12, trimmed_by_turns=trimmed), None, CountLine(4, source), turns)
        == Due(Reason.COUNT)
    ]
    assert found == [None, *range(rest, 6)]
    assert judge(facts(6_400), LINE, None, 0) == Due(Reason.USAGE)


# --- the lines


@pytest.mark.parametrize(
    ("window", "at", "tokens", "growth", "line", "source"),
    [
        (128_000, 0.8, 0, None, 102_400, "ratio"),
        (128_000, 0.8, 60_000, None, 60_000, "tokens"),
        (128_000, 0.81, 0, None, 102_400, "host"),  # 0.82 of it less the 2 % for one more turn
        (8_000, 0.8, 0, 1_000, 5_560, "host"),
        (8_000, 0.8, 0, 7_000, 4_000, "host"),  # never under half of the window for its sake
        (8_000, 0, 0, None, 6_400, "host"),
        (None, 0.8, 60_000, 10, 60_000, "tokens"),
    ],
)
def test_the_line_is_the_smallest_known(
    window: int | None, at: float, tokens: int, growth: int | None, line: int, source: str
) -> None:
    found = compress_line(window, at, tokens, growth)
    assert found is not None
    assert (found.tokens, found.source) == (line, source)


def test_without_a_window_a_ratio_is_no_line() -> None:
    assert compress_line(None, 0.8, 0, None) is None


@given(
    st.integers(100, 2_000_000),
    st.floats(0, 1),
    st.integers(0, 1_000_000),
    st.one_of(st.none(), st.integers(0, 2_000_000)),
)
def test_the_line_leaves_the_host_s_own_threshold_room(
    window: int, at: float, tokens: int, growth: int | None
) -> None:
    line = compress_line(window, at, tokens, growth)
    assert line is not None
    assert line.tokens <= 0.82 * window - int(0.02 * window) or line.tokens <= 0.5 * window


@pytest.mark.parametrize(
    ("limit", "turns", "begin", "head", "markers", "line"),
    [
        (0, None, 0, 0, 0, None),
        (0, -1, 0, 0, 0, None),
        (0, 50, 0, 2, 0, 94),
        (0, 50, 4, 2, 1, 89),
        (30, 50, 0, 2, 0, 30),
        (30, None, 0, 2, 0, 30),
        (0, 1, 0, 2, 0, 1),
    ],
)
def test_the_count_line(
    limit: int, turns: int | None, begin: int, head: int, markers: int, line: int | None
) -> None:
    found = count_line(limit, turns, begin, head, markers)
    assert (found.messages if found else None) == line


# --- back-off

REFUSED = ProviderFailed(provider="glm", detail="429")


def attempts(turns: int) -> list[int]:
    """The turns at which a run that always fails is tried."""
    backoff, tried = BackOff(), []
    for turn in range(1, turns + 1):
        backoff = backoff.turn_judged()
        if backoff.is_open:
            tried.append(turn)
            backoff = BackOff.from_json(backoff.failed(REFUSED).to_json())
    return tried


def test_failures_double_the_wait_up_to_32_turns() -> None:
    assert attempts(200) == [1, 3, 7, 15, 31, 63, 95, 127, 159, 191]


def test_a_stored_back_off_is_the_same() -> None:
    backoff = BackOff().failed(EmptySummary(provider="x")).failed(REFUSED).turn_judged()
    assert (backoff.failures, backoff.wait_turns) == (2, 3)
    assert (backoff.last_key, backoff.last_fields) == (REFUSED.key, REFUSED.fields)
    assert BackOff.from_json(backoff.to_json()) == backoff


def test_a_large_message_is_not_taken_right_after_it_came_and_not_put_off_for_good() -> None:
    assert not BackOff().may_take_large
    backoff = BackOff().failed(LargeMessage(requests=7))
    assert (backoff.may_take_large, backoff.wait_turns) == (True, 8)


@pytest.mark.parametrize(
    "text", [None, "", "null", "[]", "[1]", "x", '{"a": 1}', '["a", 1, "", {}]', '[1, 1, "", 1]']
)
def test_what_is_no_back_off_is_none(text: str | None) -> None:
    assert BackOff.from_json(text) == BackOff()
