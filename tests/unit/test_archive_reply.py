"""What is said about the archive."""

from __future__ import annotations

from datetime import datetime

from astrbot_plugin_compact.summary.archive_reply import (
    SearchHit,
    history_reply,
    search_reply,
    show_reply,
)
from astrbot_plugin_compact.summary.replies import Compacted

NOON = datetime(2025, 3, 1, 12, 0)  # noqa: DTZ001 (people read local time)
MANUAL = Compacted(1_012, "manual", 42, 7, 31_234, 4_100, NOON)


def test_a_summary_is_shown_in_full_under_its_number() -> None:
    reply = show_reply("zh", 1_012, NOON, "一\n二\ud83d")
    assert reply == "📝 #1012 的摘要（2025-03-01 12:00）:\n一\n二\ufffd"


def test_the_history_lists_compactions_trims_and_what_was_undone() -> None:
    rows = [
        MANUAL,
        Compacted(11, "host_trim", 8, 0, 900, 0, NOON),
        Compacted(10, "auto", 9, 3, 950, 90, NOON, undone=True),
    ]
    assert history_reply("zh", rows, older=3).splitlines() == [
        "🗂️ 压缩记录:",
        "#1012 2025-03-01 12:00 手动 · 42 → 7 条 · 约 31.2k → 4.1k tokens",
        "#11 2025-03-01 12:00 AstrBot 截断 · 8 条",
        "#10 2025-03-01 12:00 自动 · 9 → 3 条 · 约 950 → 90 tokens（已撤销）",
        "……还有更早的 3 次",
    ]
    assert (
        history_reply("en", [])
        == "There are no compactions on record (undone ones are not listed)."
    )


def test_a_trigger_of_a_later_version_is_shown_as_it_is() -> None:
    row = Compacted(1, "moon phase", 9, 3, 950, 90, NOON)
    assert "moon phase" in history_reply("zh", [row])


def test_hits_have_number_time_and_speaker_where_they_are_known() -> None:
    hits = [
        SearchHit(12, NOON, "小明(1001)", "花生\n过敏"),
        SearchHit(None, None, "", "x" * 500),
    ]
    lines = search_reply("zh", "花生", hits, more=True).splitlines()
    assert lines[0] == "🔎 “花生” 找到的前 2 条:"
    assert lines[1] == "#12 2025-03-01 12:00 小明(1001): 花生 过敏"
    assert lines[2] == "x" * 200 + "…"
    assert "nuts" in search_reply("en", "nuts", [])
