"""Whoever reads stored messages reads any: a damaged row breaks no turn and no compaction."""

from __future__ import annotations

from astrbot_plugin_compact.summary.archiving import to_archive
from astrbot_plugin_compact.summary.copies import alternating, sendable
from astrbot_plugin_compact.summary.dropped import without_ours
from astrbot_plugin_compact.summary.live import end_hashes
from astrbot_plugin_compact.summary.render import Names, render_units
from astrbot_plugin_compact.summary.todos import find_todos
from astrbot_plugin_compact.summary.units import bind_checkpoints, group_units, tool_names
from astrbot_plugin_compact.summary.usertext import visible_text
from hypothesis import given

from tests.unit.histories import ESTIMATE, History, histories


@given(histories())
def test_the_transcript(row: History) -> None:
    items = bind_checkpoints(row.stored, ESTIMATE.message)
    units = group_units(items).units
    blocks = render_units(units, Names(tools=tool_names(items)))
    for block in blocks:
        block.text.encode("utf-8")


@given(histories())
def test_the_builtin_engines_copy(row: History) -> None:
    data = [message.data for message in row.stored]
    sent = alternating(sendable(data))
    assert all(isinstance(message, dict) for message in sent)


@given(histories())
def test_the_archive(row: History) -> None:
    for message in row.stored:
        archived = to_archive(message, {"sha256:other": ()})
        assert archived.raw == message.raw
        assert isinstance(archived.text, str)
        assert isinstance(visible_text(message.data), str)


@given(histories())
def test_what_is_remembered_over_turns(row: History) -> None:
    data = [message.data for message in row.stored]
    assert len(end_hashes(data)) <= 24
    find_todos(data)
    assert len(without_ours(data, None)) <= len(data)
