"""Settings by platform, kind of chat and session."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from astrbot_plugin_compact.summary.layers import Source, write_session_row
from astrbot_plugin_compact.summary.settings import LAYERED_NAMES, Settings
from hypothesis import given
from hypothesis import strategies as st

GROUP = "qq:GroupMessage:100"
PRIVATE = "qq:FriendMessage:7"


def session_row(umo: str, **values: Any) -> dict[str, Any]:
    inherit = {"compress_at": -1, "compress_tokens": -1, "history_limit": -1}
    return {"__template_key": "session", "session": umo, **inherit, **values}


def platform_row(platform: str, chats: str, **values: Any) -> dict[str, Any]:
    inherit = {"compress_at": -1, "compress_tokens": -1, "history_limit": -1}
    return {
        "__template_key": "platform", "platform": platform, "chats": chats, **inherit, **values
    }  # fmt: skip


def parse(*rows: object, **settings: Any) -> tuple[Settings, list[str]]:
    warnings: list[str] = []
    return Settings.parse({**settings, "session_overrides": list(rows)}, warnings.append), warnings


def test_the_closest_layer_wins_whatever_the_order_of_the_rows() -> None:
    rows = [
        session_row(GROUP, history_limit=1),
        platform_row("qq", "groups", history_limit=2, compress_tokens=2_000),
        platform_row("qq", "all", history_limit=3, compress_tokens=3_000, compress_at=0.3),
    ]
    settings, warnings = parse(*rows, history_limit=4)
    lines = settings.lines(GROUP)
    assert (lines.history_limit, lines.compress_tokens, lines.compress_at) == (1, 2_000, 0.3)
    assert lines.sources == {
        "history_limit": Source.SESSION,
        "compress_tokens": Source.GROUPS,
        "compress_at": Source.PLATFORM,
    }
    assert parse(*reversed(rows), history_limit=4)[0].lines(GROUP) == lines
    assert warnings == []


def test_a_platforms_groups_and_private_chats_are_apart() -> None:
    settings, _ = parse(
        platform_row("qq", "groups", history_limit=10),
        platform_row("qq", "private", history_limit=20),
    )
    assert settings.lines(GROUP).history_limit == 10
    assert settings.lines(PRIVATE).history_limit == 20
    assert settings.lines("qq:OtherMessage:1").history_limit == 0
    assert settings.lines("other:GroupMessage:100").history_limit == 0


def test_the_caller_may_know_better_than_the_umo() -> None:
    settings, _ = parse(platform_row("qq", "private", history_limit=20))
    assert settings.lines(GROUP, is_group=False).history_limit == 20
    assert settings.lines("x:FriendMessage:1", platform="qq").history_limit == 20


def test_zero_switches_off_and_minus_one_inherits() -> None:
    settings, _ = parse(session_row(GROUP, compress_at=0), compress_at=0.5, history_limit=9)
    lines = settings.lines(GROUP)
    assert lines.compress_at == 0
    assert lines.sources["compress_at"] is Source.SESSION
    assert lines.history_limit == 9
    assert lines.sources["history_limit"] is Source.CONFIG


def test_without_rows_the_values_are_the_general_ones() -> None:
    lines = Settings().lines("no umo at all")
    assert lines.compress_at == 0.8
    assert set(lines.sources.values()) == {Source.DEFAULT}


def test_the_later_of_two_rows_for_one_place_wins() -> None:
    settings, _ = parse(session_row(GROUP, history_limit=1), session_row(GROUP, history_limit=2))
    assert settings.lines(GROUP).history_limit == 2


@pytest.mark.parametrize(
    "row", [3, None, {}, session_row(" "), platform_row("", "all"), {"session": 5}]
)
def test_a_row_for_no_place_is_named_and_left_out(row: object) -> None:
    settings, warnings = parse(session_row(GROUP, history_limit=5), row)
    assert settings.lines(GROUP).history_limit == 5
    assert len(warnings) == 1
    assert "session_overrides[1]" in warnings[0]


def test_a_bad_value_in_a_row_is_named_and_inherited() -> None:
    settings, warnings = parse(
        session_row(GROUP, compress_at="50%", history_limit="many", compress_tokens=None)
    )
    lines = settings.lines(GROUP)
    assert (lines.compress_at, lines.history_limit, lines.compress_tokens) == (0.5, 0, 0)
    assert len(warnings) == 3
    assert any("session_overrides[0].history_limit: 'many'" in warning for warning in warnings)


def test_a_row_written_by_hand_needs_no_template_key() -> None:
    settings, warnings = parse({"session": GROUP, "history_limit": 6}, {"platform": "qq"})
    assert settings.lines(GROUP).history_limit == 6
    assert warnings == []


def test_writing_adds_a_row_that_the_panel_can_show() -> None:
    rows = write_session_row([], GROUP, {"history_limit": 30}, LAYERED_NAMES)
    assert rows == [session_row(GROUP, history_limit=30)]


def test_writing_changes_the_row_where_it_stands_and_no_other() -> None:
    others = [platform_row("qq", "all", history_limit=1), session_row(PRIVATE, compress_at=0.2)]
    before = [others[0], session_row(GROUP, compress_at=0.4), others[1], "by hand"]
    kept = copy.deepcopy(before)
    rows = write_session_row(before, GROUP, {"history_limit": 30}, LAYERED_NAMES)
    assert before == kept
    assert rows == [
        others[0], session_row(GROUP, compress_at=0.4, history_limit=30), others[1], "by hand"
    ]  # fmt: skip


def test_a_row_that_only_inherits_goes() -> None:
    rows = [session_row(GROUP, history_limit=30), session_row(PRIVATE, history_limit=1)]
    changed = write_session_row(rows, GROUP, {"history_limit": None}, LAYERED_NAMES)
    assert changed == [session_row(PRIVATE, history_limit=1)]


def test_several_rows_of_one_session_become_one_that_means_the_same() -> None:
    rows = [session_row(GROUP, history_limit=1, compress_at=0.4), session_row(GROUP, compress_at=0)]
    changed = write_session_row(rows, GROUP, {"history_limit": 2}, LAYERED_NAMES)
    assert changed == [session_row(GROUP, history_limit=2, compress_at=0)]


row_values = st.fixed_dictionaries(
    {
        "compress_at": st.sampled_from([-1, 0, 0.25, 1]),
        "compress_tokens": st.sampled_from([-1, 0, 5_000]),
        "history_limit": st.sampled_from([-1, 0, 40]),
    }
)
rows = st.lists(
    st.builds(lambda umo, v: session_row(umo, **v), st.sampled_from([GROUP, PRIVATE]), row_values)
    | st.builds(
        lambda chats, v: platform_row("qq", chats, **v),
        st.sampled_from(["all", "groups", "private"]),
        row_values,
    ),
    max_size=6,
)


@given(rows, st.sampled_from(LAYERED_NAMES), st.sampled_from([0, 1, None]))
def test_a_written_value_holds_in_its_session_and_nowhere_else(
    before: list[Any], name: str, value: int | None
) -> None:
    after = write_session_row(before, GROUP, {name: value}, LAYERED_NAMES)
    old, _ = parse(*before)
    new, warnings = parse(*after)
    assert warnings == []
    assert new.lines(PRIVATE) == old.lines(PRIVATE)
    lines = new.lines(GROUP)
    if value is None:
        assert lines.sources[name] is not Source.SESSION
    else:
        assert getattr(lines, name) == value
        assert lines.sources[name] is Source.SESSION
    for other in set(LAYERED_NAMES) - {name}:
        assert getattr(lines, other) == getattr(old.lines(GROUP), other)
