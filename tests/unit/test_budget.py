"""How long a summary may be, and what one request holds."""

from __future__ import annotations

from dataclasses import astuple
from typing import Any

import pytest
from astrbot_plugin_compact.summary.budget import Budget, Limits, budget_for, capacity_millitokens
from astrbot_plugin_compact.summary.cost import DEAREST, MILLI, UNMEASURED, measured_cost
from astrbot_plugin_compact.summary.errors import NoRoom, SettingsError
from hypothesis import given
from hypothesis import strategies as st


def budget(content: int = 60_000, new: int | None = None, **changes: Any) -> Budget:
    limits: dict[str, Any] = {
        "line_tokens": 102_400,
        "ratio": 0.1,
        "window_tokens": 128_000,
        "max_output_tokens": 8_192,
        "tail_tokens": 0,
        "replaced_tokens": 1_000_000,
        "head_tokens": 60,
    }
    return budget_for(
        Limits(**{**limits, **changes}),
        content_tokens=content,
        new_content_tokens=content if new is None else new,
    )


def test_a_large_window_gives_what_the_specification_worked_out() -> None:
    found = budget()
    assert (found.physical_tokens, found.budget_tokens) == (8_192, 5_461)
    assert (found.retain_cap_tokens, found.request_tokens) == (5_461, 8_192)


def test_a_small_window_without_a_line_gives_what_the_specification_worked_out() -> None:
    found = budget(700, line_tokens=None, window_tokens=8_000, max_output_tokens=None)
    assert (found.physical_tokens, found.budget_tokens) == (2_000, 1_000)
    assert (found.retain_cap_tokens, found.request_tokens) == (70, 1_500)


@pytest.mark.parametrize(
    ("content", "changes", "expected"),
    [
        pytest.param(20_000, {"line_tokens": 40_000}, 4_000, id="a share of the line"),
        pytest.param(3_000, {"line_tokens": 40_000}, 3_000, id="never above the content"),
        pytest.param(300, {"line_tokens": 40_000}, 1_000, id="never below 1000"),
        pytest.param(300, {"line_tokens": 3_000}, 750, id="a quarter of the line beats 1000"),
        pytest.param(9_000, {"window_tokens": 4_000}, 666, id="two thirds of what fits a reply"),
        pytest.param(9_000, {"max_output_tokens": 900}, 600, id="a model that writes little"),
        pytest.param(20_000, {"max_output_tokens": 0}, 2_730, id="an output of 0 is unknown"),
        pytest.param(4_321, {"line_tokens": None}, 4_321, id="without a line the content"),
        pytest.param(60_000, {"line_tokens": 40_000, "ratio": 0.0}, 1_000, id="no share at all"),
        pytest.param(60_000, {"line_tokens": 10_000, "ratio": 0.29}, 2_500, id="most of a line"),
        pytest.param(60_000, {"line_tokens": 100, "ratio": 0.29}, 25, id="a tiny line"),
        pytest.param(60_000, {"line_tokens": 10_001, "ratio": 0.15}, 1_500, id="rounded down"),
    ],
)
def test_the_budget_is_bounded_in_this_order(
    content: int, changes: dict[str, Any], expected: int
) -> None:
    changes = {"max_output_tokens": 64_000} | changes
    assert budget(content, **changes).budget_tokens == expected


def test_what_the_model_may_keep_is_a_share_of_the_new_content() -> None:
    assert budget(30_000, new=20_000).retain_cap_tokens == 2_000
    assert budget(30_000, new=29).retain_cap_tokens == 2


def test_a_ratio_as_people_write_it_is_not_rounded_away() -> None:
    assert budget(30_000, new=100, ratio=0.29).retain_cap_tokens == 29


def test_kept_messages_and_tail_stay_under_half_the_line() -> None:
    assert budget(tail_tokens=51_000).retain_cap_tokens == 199
    assert budget(tail_tokens=51_199).retain_cap_tokens == 0
    assert budget(tail_tokens=90_000).retain_cap_tokens == 0


def test_with_a_ratio_of_0_the_model_keeps_nothing() -> None:
    assert budget(ratio=0.0).retain_cap_tokens == 0


def test_a_request_may_write_half_as_much_again_rounded_up() -> None:
    assert budget(1_001, line_tokens=None).request_tokens == 1_502


def test_the_stated_budget_stays_below_what_is_replaced() -> None:
    assert budget(replaced_tokens=600).stated_tokens == 539
    assert budget(replaced_tokens=60).stated_tokens == 0
    assert budget(replaced_tokens=6_000).stated_tokens == 5_461


def test_a_model_without_room_for_any_summary_is_refused() -> None:
    with pytest.raises(NoRoom) as refused:
        budget(window_tokens=7)
    assert refused.value.fields == {"window": 7}


def test_a_line_without_room_for_any_summary_is_the_owners_to_change() -> None:
    with pytest.raises(SettingsError) as refused:
        budget(line_tokens=3)
    assert refused.value.fields == {"name": "compress_tokens", "value": 3}


def test_capacity_is_what_the_window_leaves_beside_reserve_output_and_fixed_text() -> None:
    found = budget(9_000, window_tokens=4_000)
    # 4000 − 1000 − 999 = 2001; 100 letters are 60 tokens, 10 characters are 20.
    assert capacity_millitokens(found, "x" * 100 + "字" * 10, UNMEASURED) == 1_921_000


def test_less_than_four_characters_of_capacity_is_refused() -> None:
    found = budget(9_000, window_tokens=4_000)
    fixed = "x" * 996
    assert capacity_millitokens(found, fixed, DEAREST) == 9_000
    assert capacity_millitokens(found, fixed[:-4] + "x" * 4, measured_cost(2)) == 9_000
    with pytest.raises(NoRoom):
        capacity_millitokens(found, "x" * 997, DEAREST)


settings = st.fixed_dictionaries(
    {
        "line_tokens": st.none() | st.integers(-5, 3_000_000),
        "ratio": st.floats(allow_nan=True, allow_infinity=True) | st.floats(0, 0.5),
        "window_tokens": st.integers(-5, 3_000_000) | st.integers(0, 5_000),
        "max_output_tokens": st.none() | st.integers(-5, 100_000),
        "tail_tokens": st.integers(0, 3_000_000),
        "replaced_tokens": st.integers(0, 3_000_000),
        "head_tokens": st.integers(0, 500),
    }
)


@given(
    settings,
    st.integers(0, 3_000_000),
    st.integers(0, 100_000),
    st.text(max_size=200),
    st.none() | st.floats(allow_nan=True, allow_infinity=True),
)
def test_no_figure_is_negative_and_the_parts_never_exceed_the_window(
    limits: dict[str, Any], new: int, earlier: int, fixed: str, measured: float | None
) -> None:
    cost = measured_cost(measured)
    try:
        found = budget(new + earlier, new=new, **limits)
        capacity = capacity_millitokens(found, fixed, cost)
    except (NoRoom, SettingsError):
        return
    assert all(figure >= 0 for figure in astuple(found))
    parts = found.physical_tokens + found.request_tokens
    assert parts * MILLI + cost.of(fixed) + capacity <= found.window_tokens * MILLI
    assert found.retain_cap_tokens <= found.budget_tokens
    assert found.stated_tokens <= found.budget_tokens <= found.request_tokens
    assert found.request_tokens <= found.physical_tokens
