"""The head summary, its acknowledgement and gap markers: written, and recognised again."""

from __future__ import annotations

from typing import Any

import pytest
from astrbot_plugin_compact.summary.heads import (
    ACKNOWLEDGEMENT,
    HEAD_PREFIX,
    Head,
    KnownHead,
    acknowledgement,
    candidate_hash,
    find_head,
    gap_marker,
    head_message,
    head_text,
    is_gap_marker,
    text_hash,
)
from astrbot_plugin_compact.summary.history import message_text
from astrbot_plugin_compact.summary.units import Item, bind_checkpoints
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.histories import (
    ESTIMATE,
    History,
    assistant,
    call,
    checkpoint,
    histories,
    history,
    our_head,
    result,
    system,
    user,
)

languages = st.sampled_from(["zh", "en"])
ACK = assistant(ACKNOWLEDGEMENT)


def items_of(*messages: dict[str, Any]) -> tuple[Item, ...]:
    return bind_checkpoints(history(messages).stored, ESTIMATE.message)


def head_of(*messages: dict[str, Any], known: dict[str, KnownHead] | None = None) -> Head | None:
    items = items_of(*messages)
    wanted = candidate_hash(items)
    return find_head(items, (known or {}).get(wanted) if wanted else None)


# --- writing


@given(st.text(), languages)
def test_a_head_is_astrbots_prefix_our_sentence_and_the_whole_summary(
    summary: str, language: str
) -> None:
    message = head_message(summary, language)
    assert message.role == "user"
    assert message.raw.isascii()
    text = message_text(message.data)
    assert text == head_text(summary, language)
    assert text.startswith(HEAD_PREFIX)
    assert text.endswith(summary)


@given(st.text(), st.text(), languages)
def test_our_sentence_does_not_depend_on_the_summary(one: str, other: str, language: str) -> None:
    fixed = head_text("", language)
    assert head_text(one, language) == fixed + one
    assert head_text(other, language) == fixed + other


def test_the_acknowledgement_is_astrbots() -> None:
    assert acknowledgement().data == ACK


# --- recognising


@given(st.text(), languages, st.booleans())
def test_a_summary_we_wrote_comes_out_as_it_went_in(
    summary: str, language: str, is_acknowledged: bool
) -> None:
    head, known = our_head(summary, language)
    found = head_of(head, *([ACK] if is_acknowledged else []), user("hi"), known=known)
    assert found is not None
    assert (found.summary, found.ours, found.structured) == (summary, True, True)
    assert len(found.items) == 1 + is_acknowledged
    assert found.text_hash == text_hash(head_text(summary, language))


@given(st.text(alphabet=st.characters(categories=["L", "N", "P"]), min_size=1), languages)
def test_a_forgotten_head_of_ours_loses_our_sentence_only(summary: str, language: str) -> None:
    found = head_of(our_head(summary, language)[0], ACK)
    assert found is not None
    assert (found.summary, found.ours, found.structured) == (summary, False, False)


def test_astrbots_own_pair_is_an_unstructured_earlier_summary() -> None:
    found = head_of(user(HEAD_PREFIX + "They met. "), ACK, user("hi"))
    assert found is not None
    assert (found.summary, found.ours, found.structured) == ("They met.", False, False)
    assert [item.position for item in found.items] == [0, 1]


def test_a_head_in_parts_is_the_same_head() -> None:
    head, known = our_head("They met.", "zh")
    parts = user([{"type": "text", "text": head["content"]}])
    found = head_of(parts, assistant([{"type": "text", "text": ACKNOWLEDGEMENT}]), known=known)
    assert found is not None
    assert (found.summary, found.ours, len(found.items)) == ("They met.", True, 2)


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [user("hi"), ACK],
        [user(HEAD_PREFIX + "typed by a user"), assistant("What do you mean?")],
        [user(HEAD_PREFIX + "typed by a user")],
        [user(HEAD_PREFIX + "typed by a user"), user("and more"), ACK],
        [user(HEAD_PREFIX + "x"), assistant(ACKNOWLEDGEMENT + " And now?")],
        [user(HEAD_PREFIX + "x"), {**call("c1"), "content": ACKNOWLEDGEMENT}, result("c1")],
        [user(HEAD_PREFIX + "x"), {**ACK, "role": "system"}],
        [user("See: " + HEAD_PREFIX + "x"), ACK],
        [assistant(HEAD_PREFIX + "x"), ACK],
        [system(HEAD_PREFIX + "x"), ACK],
        [user("hi"), user(HEAD_PREFIX + "x"), ACK],
    ],
    ids=range(12),
)
def test_what_only_looks_like_a_head_is_ordinary_content(messages: list[dict[str, Any]]) -> None:
    assert head_of(*messages) is None


def test_a_changed_letter_makes_it_ordinary_content() -> None:
    head, known = our_head("They met.", "en")
    assert head_of({**head, "content": head["content"] + " "}, known=known) is None


def test_checkpoints_do_not_part_the_pair() -> None:
    found = head_of(user(HEAD_PREFIX + "x"), checkpoint("a"), ACK, checkpoint("b"))
    assert found is not None
    assert [c.raw for item in found.items for c in item.checkpoints] == [
        item.raw for item in history([checkpoint("a"), checkpoint("b")]).stored
    ]


@given(histories())
def test_a_head_is_known_to_the_archive_or_acknowledged(row: History) -> None:
    layout = row.layout
    messages = [m for m in row.stored if not m.is_checkpoint]
    body = messages[len(layout.leading) :]
    texts = [message_text(m.data) for m in body[:2]]
    looks_like_one = bool(body) and body[0].role == "user" and texts[0].startswith(HEAD_PREFIX)
    acknowledged = (
        len(body) > 1
        and body[1].role == "assistant"
        and not body[1].data.get("tool_calls")
        and texts[1].strip() == ACKNOWLEDGEMENT
    )
    known = looks_like_one and text_hash(texts[0]) in row.known
    assert (layout.head is not None) == (looks_like_one and (known or acknowledged))
    if layout.head is not None:
        assert layout.head.ours == known
        assert [item.message for item in layout.head.items] == body[: 1 + acknowledged]


# --- gap markers


@pytest.mark.parametrize("role", ["user", "assistant"])
@pytest.mark.parametrize("language", ["zh", "en"])
def test_a_marker_is_one_line_and_recognised(role: str, language: str) -> None:
    marker = gap_marker(role, language)
    assert marker.role == role
    assert "\n" not in marker.data["content"]
    assert is_gap_marker(marker.data)


@pytest.mark.parametrize(
    "change",
    [
        {"content": gap_marker("user", "zh").data["content"] + "。"},
        {"content": " " + gap_marker("user", "zh").data["content"]},
        {"content": [{"type": "text", "text": gap_marker("user", "zh").data["content"]}]},
        {"content": None},
        {"role": "assistant"},
        {"role": "system"},
        {"role": ["user"]},
        {"role": None},
        {"tool_calls": [{"id": "c1"}]},
    ],
    ids=range(9),
)
def test_a_marker_is_one_to_the_letter(change: dict[str, Any]) -> None:
    assert not is_gap_marker({**gap_marker("user", "zh").data, **change})


@given(histories())
def test_no_message_breaks_the_look_for_markers(row: History) -> None:
    for message in row.stored:
        is_marker = is_gap_marker(message.data)
        assert not is_marker or message.role in ("user", "assistant")
