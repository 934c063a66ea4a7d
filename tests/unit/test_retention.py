"""What the model may keep, and how its answer is read."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from astrbot_plugin_compact.summary.cost import UNMEASURED
from astrbot_plugin_compact.summary.retention import (
    apply_count_rule,
    can_be_kept,
    fit_from_latest,
    label_cost,
    number_label,
    read_picks,
    repeats_units,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.summaries import assistant, call, result, units_of, user

SUMMARY = "## 目标\n写完 #7 号报告"
OFFERED = frozenset(range(1, 10))


@dataclass(frozen=True)
class Weight:
    tokens: int


def test_a_unit_is_opened_with_its_number_and_its_tokens() -> None:
    assert number_label(3, 120) == "#3〔约 120 token〕"


def test_a_labels_cost_is_that_of_its_characters() -> None:
    label = number_label(12, 3_456)
    assert label_cost(label, UNMEASURED) == UNMEASURED.of(label)


def test_only_whole_units_within_the_cap_can_be_kept() -> None:
    message, group, broken, _ = units_of(
        [
            user("x" * 100),
            assistant(None, call("c1", "f")),
            result("c1", "y"),
            assistant(None, call("c2", "f"), call("c3", "f")),
            result("c2", "y"),
            user("z"),
        ]
    )
    [lone] = units_of([result("c9", "lost")])
    assert can_be_kept(message, 30)
    assert not can_be_kept(message, 29)
    assert can_be_kept(group, 1_000)
    assert not can_be_kept(broken, 1_000)
    assert not can_be_kept(lone, 1_000)


def test_a_group_with_other_messages_between_its_own_cannot_be_kept() -> None:
    group = [assistant(None, call("c1", "f")), result("c1", "y")]
    for messages, kept in [
        ([*group, {"role": "_checkpoint"}, result("c1", "z")], True),
        ([*group, user("!"), result("c1", "z")], False),
        ([group[0], {"role": "_checkpoint"}, user("!"), group[1]], False),
    ]:
        assert can_be_kept(units_of(messages)[0], 1_000) == kept


def test_with_a_cap_of_0_nothing_can_be_kept() -> None:
    [empty] = units_of([user("")])
    assert empty.tokens == 0
    assert not can_be_kept(empty, 0)


@pytest.mark.parametrize(
    "block",
    [
        "【保留原文】#2 #5",
        "【保留原文】\n#2 #5",
        "【保留原文】：#2、#5",
        "## 【保留原文】 #2 #5",
        "**【保留原文】** #2, #5",
        "> - 【保留原文】＃2＃5",
        "＃＃【保留原文】\n- #2\n- #5\n",
        "【保留原文】\n\n1. #2\n2. #5",
        "【保留原文】2，5",
        "【保留原文】\n2\n5",
        "[Keep verbatim] #2 #5",
        "# [keep VERBATIM]: 2, 5",
        "[保留原文] #2 #5",
        "保留原文：#2 #5",
        "**Keep verbatim:** #2, #5",
        "【保留原文】#2〔约 7 token〕 #5〔约 3 token〕",
        "【保留原文】（从重要到次要）#2 和 #5",
        "【保留原文】２、５",
        "【保留原文】\n- #2：合同里的价格\n- #5（收货地址）",
        "【保留原文】\n**#2** 价格\n#5 - 地址",
    ],
)
@pytest.mark.parametrize("place", ["front", "end"])
def test_a_retain_block_is_read_in_any_dress_in_front_or_at_the_end(block: str, place: str) -> None:
    reply = f"{block}\n\n{SUMMARY}" if place == "front" else f"{SUMMARY}\n\n{block}"
    picks = read_picks(reply, OFFERED)
    assert picks.numbers == {2, 5}
    assert picks.summary == SUMMARY
    assert picks.has_block
    assert picks.readable


@pytest.mark.parametrize(
    "none", ["无", "無", "沒有", "「无」", "None", "none.", "（无）", "没有", "", "\n无\n", "n/a"]
)
def test_keeping_none_is_a_readable_answer(none: str) -> None:
    picks = read_picks(f"【保留原文】{none}\n{SUMMARY}", OFFERED)
    assert picks.numbers == frozenset()
    assert picks.readable
    assert picks.summary == SUMMARY


def test_without_a_heading_all_of_it_is_the_summary() -> None:
    picks = read_picks(f"#2 #5\n{SUMMARY}", OFFERED)
    assert picks.summary == f"#2 #5\n{SUMMARY}"
    assert picks.numbers == frozenset()
    assert not picks.has_block


@pytest.mark.parametrize("words", ["都不重要", "3 条都不留", "the last two"])
def test_a_block_of_words_keeps_nothing_and_is_unreadable(words: str) -> None:
    picks = read_picks(f"【保留原文】{words}\n{SUMMARY}", OFFERED)
    assert picks.numbers == frozenset()
    assert picks.has_block
    assert not picks.readable
    assert picks.summary == SUMMARY


def test_a_block_ends_at_the_first_line_with_a_word() -> None:
    picks = read_picks("【保留原文】\n#2\n目标如下 #5\n#6", OFFERED)
    assert picks.numbers == {2}
    assert picks.summary == "目标如下 #5\n#6"


def test_a_line_that_talks_of_keeping_is_no_block_beside_one() -> None:
    talked = f"{SUMMARY}\n- 【保留原文】一节要写进模板，小王负责"
    picks = read_picks(f"【保留原文】#2 #5\n{talked}", OFFERED)
    assert picks.numbers == {2, 5}
    assert picks.summary == talked


def test_behind_a_block_only_units_on_offer_are_picks() -> None:
    picks = read_picks("【保留原文】\n- #2：价格\n#99：是工单号\n#5 也是", OFFERED)
    assert picks.numbers == {2}
    assert picks.summary == "#99：是工单号\n#5 也是"


def test_the_conversation_said_again_is_known() -> None:
    said = "#1〔约 91 token〕用户: 你好\n#2〔约 3 token〕助手: 好\n#3〔约 9 token〕用户: 再见"
    assert repeats_units(f"## 目标\n{said}")
    assert not repeats_units("## 目标\n#1〔约 91 token〕最重要")


def test_of_several_blocks_the_last_counts_and_none_is_stored() -> None:
    picks = read_picks(f"【保留原文】#2\n{SUMMARY}\n[Keep verbatim]\n#5\n【保留原文】#6", OFFERED)
    assert picks.numbers == {6}
    assert picks.summary == SUMMARY


def test_only_numbers_on_offer_count() -> None:
    assert read_picks(f"【保留原文】#2 #88 #{'9' * 5_000}\n{SUMMARY}", OFFERED).numbers == {2}


def test_the_heading_in_the_middle_of_a_line_is_text() -> None:
    text = f"{SUMMARY}\n用户问了【保留原文】是什么 #3"
    picks = read_picks(text, OFFERED)
    assert picks.summary == text
    assert not picks.has_block


def test_a_summary_on_the_headings_own_line_is_not_lost() -> None:
    picks = read_picks("【保留原文】#2 ## 目标\n写完", OFFERED)
    assert picks.numbers == {2}
    assert picks.summary == "## 目标\n写完"


fragments = st.sampled_from(
    [
        "【保留原文】",
        "[Keep verbatim]",
        "保留原文",
        "#1",
        "2",
        "无",
        "\n",
        "## 目标",
        "字",
        "：",
        " ",
        "〔",
    ]
)


@given(st.text() | st.lists(fragments).map("".join))
def test_any_text_can_be_read_and_only_offered_numbers_come_out(text: str) -> None:
    picks = read_picks(text, OFFERED)
    assert picks.numbers <= OFFERED
    assert picks.has_block or picks.summary == text.strip()
    again = read_picks(picks.summary, OFFERED)
    assert picks.has_block or not again.has_block


def test_a_hostile_reply_is_read_in_seconds() -> None:
    for text in (
        "【保留原文】" + "#" * 300_000 + "x",
        "【保留原文】" + "1." * 300_000 + "x",
        "#" * 300_000 + "【保留原文】",
        "【保留原文】\n" + ". \n" * 100_000 + "x",
    ):
        read_picks(text, OFFERED)


@pytest.mark.parametrize(
    ("limit", "kept"), [(100, [50, 30, 20]), (99, [30, 20]), (50, [30, 20]), (49, [20]), (-1, [])]
)
def test_over_the_limit_the_earliest_go_first(limit: int, kept: list[int]) -> None:
    units = [Weight(50), Weight(30), Weight(20)]
    assert [unit.tokens for unit in fit_from_latest(units, limit)] == kept


@pytest.mark.parametrize(
    ("others", "line", "kept"),
    [
        (0, None, 3),
        (0, 12, 3),
        (1, 13, 2),
        (2, 12, 2),
        (4, 12, 1),
        (5, 12, 1),
        (6, 12, 0),
        (100, 12, 0),
        (0, 0, 0),
    ],
)
def test_a_count_line_leaves_half_of_it_to_all_dialog_messages(
    others: int, line: int | None, kept: int
) -> None:
    # Two, three and one message: a tool group goes as a whole.
    retained = units_of(
        [
            assistant(None, call("c1", "f")),
            result("c1", "1"),
            assistant(None, call("c2", "f"), call("c3", "g")),
            result("c2", "2"),
            result("c3", "3"),
            user("x"),
        ]
    )
    assert apply_count_rule(retained, others, line) == retained[len(retained) - kept :]
