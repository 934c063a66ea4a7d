"""What a text costs before it is sent."""

from __future__ import annotations

import pytest
from astrbot_plugin_compact.summary.cost import (
    DEAREST,
    UNMEASURED,
    Cost,
    count_ascii,
    measured_cost,
)
from hypothesis import given
from hypothesis import strategies as st


def test_unmeasured_an_ascii_character_costs_six_tenths_and_another_two() -> None:
    assert UNMEASURED.of("abc字") == 3 * 600 + 2_000


@pytest.mark.parametrize(
    ("measured", "price"),
    [(0.5, 650), (0.25, 325), (0.1, 300), (1.5, 1_950), (1.6, 2_000), (9.0, 2_000)],
)
def test_a_measured_cost_is_three_tenths_dearer_and_within_its_bounds(
    measured: float, price: int
) -> None:
    assert measured_cost(measured) == Cost(price, price)


@pytest.mark.parametrize("nothing", [None, 0.0, -1.0, float("nan"), float("inf")])
def test_without_a_usable_measurement_characters_cost_by_their_class(
    nothing: float | None,
) -> None:
    assert measured_cost(nothing) == UNMEASURED


def test_after_a_context_error_every_character_costs_two() -> None:
    assert DEAREST.of("a字") == 4_000


texts = st.text(alphabet="ab字🎉\n", max_size=60)
costs = st.sampled_from([UNMEASURED, DEAREST, Cost(300, 300), Cost(700, 701)])


@given(texts, costs, st.integers(0, 60), st.integers(0, 60_000))
def test_a_piece_is_the_longest_that_fits(text: str, cost: Cost, start: int, room: int) -> None:
    start = min(start, len(text))
    end = cost.fitting_end(text, start, room)
    assert start <= end <= len(text)
    assert cost.of(text[start:end]) <= room
    assert end == len(text) or cost.of(text[start : end + 1]) > room


@given(st.text())
def test_ascii_characters_are_counted(text: str) -> None:
    assert count_ascii(text) == sum(character < "\x80" for character in text)
