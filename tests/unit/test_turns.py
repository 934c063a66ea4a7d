"""One turn as the hooks see it."""

from __future__ import annotations

from typing import Any

import pytest
from astrbot_plugin_compact.summary.turns import exchanged, reported_tokens
from hypothesis import given
from hypothesis import strategies as st

from tests.contract.fake_bot import UMO, CarryingModel, FakeBot, new_bot


@pytest.mark.parametrize("value", [None, 0, -1, True, "12", float("nan"), float("inf"), 10**12])
def test_a_usage_that_cannot_be_true_is_none(value: object) -> None:
    assert reported_tokens(value) is None


@pytest.mark.parametrize(("value", "tokens"), [(1, 1), (12.0, 12), (10**9, 10**9)])
def test_a_usage_is_a_number_of_tokens(value: float, tokens: int) -> None:
    assert reported_tokens(value) == tokens


@pytest.mark.parametrize(
    ("sent", "total", "noted"),
    [
        (100, 120, (100, 120)),
        (0, 60, (None, None)),
        (-1, -2, (None, None)),
        (5, None, (None, None)),
    ],
)
async def test_a_turn_notes_what_was_reported(
    tmp_path: Any, sent: Any, total: Any, noted: tuple[int | None, int | None]
) -> None:
    async with new_bot(tmp_path, CarryingModel()) as bot:
        turn = note(bot)
        turn.note_usage(sent, total)
        assert (turn.input_tokens, turn.usage_tokens) == noted


def note(bot: FakeBot) -> Any:
    return bot.begun(UMO, bot.host.add(UMO), [])


messages = st.lists(st.builds(lambda n: {"role": "user", "content": str(n)}, st.integers(0, 3)))


@given(messages, st.lists(st.booleans(), min_size=1))
def test_what_is_missing_from_a_request_is_what_was_taken_out(
    given_messages: list[dict[str, str]], keep: list[bool]
) -> None:
    kept = [m for n, m in enumerate(given_messages) if keep[n % len(keep)]]
    new = {"role": "user", "content": "0"}
    missing, put_in = exchanged([*kept, new], given_messages)
    if given_messages:
        assert sorted(map(id, [*kept, *missing])) == sorted(map(id, given_messages))
        assert put_in == [new]


def test_what_is_never_saved_is_not_missed() -> None:
    begin = {"role": "user", "content": "hi", "_no_save": True}
    assert exchanged([], [begin, said := {"role": "user", "content": "x"}]) == ([said], [])
