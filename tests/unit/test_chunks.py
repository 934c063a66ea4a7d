"""What goes into which request."""

from __future__ import annotations

from dataclasses import replace

import pytest
from astrbot_plugin_compact.summary.chunks import (
    Candidate,
    Packed,
    Pick,
    Progress,
    count_requests,
    pack,
)
from astrbot_plugin_compact.summary.cost import DEAREST, UNMEASURED, Cost
from astrbot_plugin_compact.summary.render import Block
from hypothesis import given
from hypothesis import strategies as st

# Every character costs one token.
PLAIN = Cost(1_000, 1_000)


def candidate(text: str, keepable: bool = True, tokens: int = 5, label: str = "") -> Candidate:
    return Candidate(Block(label + text if text else "", label), tokens, keepable)


def pack_all(units: list[Candidate], progress: Progress, room: int, cost: Cost) -> list[Packed]:
    packs = []
    while not packs or not packs[-1].is_last:
        packs.append(pack(units, progress, room, cost))
        progress = packs[-1].after
    return packs


def test_what_fits_goes_into_one_request_in_order() -> None:
    units = [candidate("用户: 一"), candidate("", keepable=False), candidate("助手: 二")]
    packed = pack(units, Progress(summary="旧"), 1_000_000, UNMEASURED)
    assert packed.transcript == "#1〔约 5 token〕用户: 一\n#2〔约 5 token〕助手: 二"
    assert packed.earlier == "旧"
    assert packed.is_last
    assert packed.offered == {1: Pick(1, 0, 5), 2: Pick(2, 2, 5)}


def test_what_cannot_be_kept_has_no_number() -> None:
    units = [candidate("a", keepable=False), candidate("b"), candidate("c", keepable=False)]
    packed = pack(units, Progress(), 1_000_000, PLAIN)
    assert packed.transcript == "a\n#1〔约 5 token〕b\nc"


def test_the_next_request_begins_with_what_was_picked_under_its_old_numbers() -> None:
    units = [candidate(letter * 20) for letter in "abcdef"]
    # A block is 20 characters, 13 of label and a line break: four of them are 136.
    first = pack(units, Progress(), 140_000, PLAIN)
    assert [line[:2] for line in first.transcript.split("\n")] == ["#1", "#2", "#3", "#4"]
    assert not first.is_last
    carried = (first.offered[2],)
    second = pack(units, replace(first.after, carried=carried), 140_000, PLAIN)
    assert second.transcript.split("\n") == [
        "#2〔约 5 token〕" + "b" * 20,
        "#5〔约 5 token〕" + "e" * 20,
        "#6〔约 5 token〕" + "f" * 20,
    ]
    assert set(second.offered) == {2, 5, 6}
    assert second.is_last


def test_the_earliest_picks_stay_behind_where_the_next_unit_would_not_fit() -> None:
    units = [candidate(letter * 20) for letter in "abc"] + [candidate("d" * 50)]
    carried = tuple(Pick(n + 1, n, 5) for n in range(3))
    progress = Progress(carried=carried, index=3, next_number=4)
    packed = pack(units, progress, 150_000, PLAIN)
    assert [line[:2] for line in packed.transcript.split("\n")] == ["#2", "#3", "#4"]
    assert packed.is_last


def test_a_unit_over_half_the_room_is_cut_in_pieces_without_a_number() -> None:
    label = "用户[甲(1)]: "
    units = [candidate("x" * 300, label=label), candidate("b")]
    packs = pack_all(units, Progress(), 200_000, PLAIN)
    assert packs[0].transcript.split("\n") == [
        label + "x" * (99 - len(label)),
        "用户[甲(1)](续): " + "x" * (99 - len("用户[甲(1)](续): ")),
    ]
    assert not packs[0].offered
    assert packs[-1].transcript.endswith("#1〔约 5 token〕b")


def test_a_label_counts_when_half_the_room_is_measured() -> None:
    # 36 characters, 13 of label and a line break are 50.
    assert pack([candidate("x" * 36)], Progress(), 100_000, PLAIN).offered == {1: Pick(1, 0, 5)}
    assert pack([candidate("x" * 37)], Progress(), 100_000, PLAIN).offered == {}


def test_an_earlier_summary_too_long_for_one_request_comes_first_in_pieces() -> None:
    units = [candidate("用户: 一", keepable=False)]
    packs = pack_all(units, Progress(front="旧" * 250), 100_000, PLAIN)
    assert [packed.earlier for packed in packs] == ["旧" * 100, "旧" * 100, "旧" * 50]
    assert [packed.transcript for packed in packs] == ["", "", "用户: 一"]


def test_nothing_to_say_is_one_request() -> None:
    assert count_requests([], Progress(), 10_000, PLAIN) == 1
    assert count_requests([candidate("")], Progress(), 10_000, PLAIN) == 1


units = st.lists(
    st.builds(
        candidate,
        st.text(alphabet="ab字🎉\n", max_size=80),
        st.booleans(),
        st.integers(0, 99),
        st.sampled_from(["", "用户: ", "用户[甲(1)]: "]),
    ),
    max_size=8,
)
costs = st.sampled_from([PLAIN, UNMEASURED, DEAREST, Cost(300, 300)])


@given(units, costs, st.integers(4, 300), st.text(alphabet="旧old", max_size=60), st.data())
def test_every_character_of_every_unit_is_in_some_request_and_none_is_over_its_room(
    units: list[Candidate], cost: Cost, room_chars: int, front: str, data: st.DataObject
) -> None:
    room = room_chars * cost.dearest
    progress = Progress(front=front)
    said = ["" for _ in units]
    told = ""
    for _ in range(2_000):
        packed = pack(units, progress, room, cost)
        piece_of_front = packed.earlier.removeprefix(progress.summary).removeprefix("\n")
        assert cost.of(piece_of_front) + cost.of(packed.transcript) <= room
        for index, start, end in packed.slices:
            text = units[index].block.text[start:end]
            assert text in packed.transcript
            assert len(said[index]) == start
            said[index] += text
        told += piece_of_front
        for number, pick in packed.offered.items():
            assert units[pick.index].keepable
            assert f"#{number}〔约 {pick.tokens} token〕{units[pick.index].block.text}" in (
                packed.transcript
            )
        if packed.is_last:
            break
        numbers = data.draw(st.sets(st.sampled_from(sorted(packed.offered) or [0])))
        carried = tuple(packed.offered[n] for n in sorted(numbers) if n in packed.offered)
        progress = replace(packed.after, summary="摘要", carried=carried)
    assert packed.is_last
    assert said == [unit.block.text for unit in units]
    assert told == front


@pytest.mark.parametrize("chars", [2_000_000])
def test_cutting_a_text_is_linear_in_its_length(chars: int) -> None:
    unit = candidate("字a" * (chars // 2))
    packs = pack_all([unit], Progress(), 100_000_000, UNMEASURED)
    assert len(packs) == pytest.approx(chars * 1.3 / 100_000, rel=0.1)
