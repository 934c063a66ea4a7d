"""What is said about a run."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from astrbot_plugin_compact.summary import errors
from astrbot_plugin_compact.summary.chain import ProviderChoice, SkippedLevel
from astrbot_plugin_compact.summary.plan import Skip, SkipReason
from astrbot_plugin_compact.summary.replies import (
    DoneFacts,
    KeptPart,
    PreviewFacts,
    done_reply,
    error_reply,
    notice,
    preview_reply,
    provider_line,
    skip_reply,
    skipped_lines,
    start_reply,
)

DONE = DoneFacts(
    before_messages=18,
    after_messages=4,
    before_tokens=12_345,
    after_tokens=1_234,
    provider="deepseek-v3",
    template="work",
    kept_messages=3,
    requests=1,
    number=12,
    summary="主要讨论了鉴权重构",
    max_chars=800,
)


class FakeProvider:
    """A chat model that knows its id."""

    def __init__(self, provider_id: str) -> None:
        self._id = provider_id

    def meta(self) -> SimpleNamespace:
        return SimpleNamespace(id=self._id)


def changed(**fields: object) -> DoneFacts:
    return DoneFacts(**{name: getattr(DONE, name) for name in DONE.__slots__} | fields)  # type: ignore[arg-type]


def test_the_start_tells_the_requests_if_there_is_more_than_one() -> None:
    assert start_reply("zh", 1) == "⏳ 正在压缩…"
    assert start_reply("zh", 3) == "⏳ 正在压缩…（预计 3 次请求）"
    assert start_reply("en", 3) == "⏳ Compacting… (about 3 requests)"


def test_the_done_block() -> None:
    assert done_reply("zh", DONE) == (
        "✅ 压缩完成: 18 → 4 条消息。(使用 deepseek-v3 生成)\n"
        "约 12,345 → 1,234 tokens (-90%) · 工作模板 · 保留原文 3 条 · 1 次请求 · #12\n"
        "📝 摘要预览:\n"
        "主要讨论了鉴权重构\n"
        "↩️ /compact undo 可撤销"
    )


def test_the_done_block_in_english() -> None:
    first, second = done_reply("en", DONE).splitlines()[:2]
    assert first == "✅ Compacted: 18 → 4 messages. (by deepseek-v3)"
    assert second == (
        "about 12,345 → 1,234 tokens (-90%) · work template · 3 messages kept verbatim · "
        "1 request · #12"
    )


def test_the_builtin_engine_has_no_template_to_name() -> None:
    line = done_reply("zh", changed(template=None)).splitlines()[1]
    assert line == "约 12,345 → 1,234 tokens (-90%) · 保留原文 3 条 · 1 次请求 · #12"


def test_a_hidden_summary_leaves_its_heading_out_too() -> None:
    assert "📝" not in done_reply("zh", changed(summary=None))


def test_a_long_summary_is_cut_and_a_broken_one_can_be_sent() -> None:
    assert "甲甲甲…\n" in done_reply("zh", changed(summary="甲" * 9, max_chars=3))
    done_reply("zh", changed(summary="\ud83d")).encode()


def test_the_command_goes_by_the_name_it_has_now() -> None:
    assert done_reply("zh", DONE, "!压缩").endswith("↩️ !压缩 undo 可撤销")


def test_a_records_number_has_no_separator() -> None:
    assert "#1234" in done_reply("zh", changed(number=1_234))


def test_the_notice_is_one_line() -> None:
    facts = changed(before_messages=42, after_messages=7, before_tokens=31_234, after_tokens=4_100)
    assert notice("zh", facts) == "🗜️ 对话已压缩：42 → 7 条，约 31.2k → 4.1k tokens"


@pytest.mark.parametrize("reason", SkipReason)
@pytest.mark.parametrize("language", ["zh", "en"])
def test_nothing_to_do_is_said_with_numbers(reason: SkipReason, language: str) -> None:
    reply = skip_reply(language, Skip(reason, messages=37, min_messages=41, tokens=5_900))
    assert "37" in reply
    assert ("41" if reason.value.startswith("too_few") else "5,900") in reply


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (errors.Busy(), "这个会话正在压缩"),
        (errors.BusyOtherwise(), "撤销"),
        (errors.HistoryCleared(), "压缩期间会话被清空"),
        (errors.HistoryChanged(), "压缩期间历史被改动"),
        (errors.Unchanged(), "压缩未生效"),
        (errors.NoProvider(), "/compact set provider"),
        (errors.NotSmaller(before=600, after=1_500), "600 → 1,500"),
        (errors.SummaryTimeout(provider="m", seconds=180), "180 秒"),
        (errors.ProviderFailed(provider="m", detail="429\nslow down"), "429 slow down"),
        (errors.ArchiveTooNew(found=9, known=2), "9"),
        (errors.CompactError(), "历史未改动"),
    ],
)
def test_errors_say_what_a_person_can_act_on(error: errors.CompactError, words: str) -> None:
    assert words in error_reply("zh", error)


def test_an_errors_words_are_one_short_line() -> None:
    reply = error_reply("zh", errors.ProviderFailed(provider="m", detail="x\n" * 5_000))
    assert "\n" not in reply
    assert len(reply) < 400


def test_an_error_without_words_does_not_end_in_a_colon() -> None:
    assert error_reply("zh", errors.HostChanged(detail="")).endswith("反馈给插件作者")


def test_a_skipped_level_is_named_with_the_reason_and_what_came_instead() -> None:
    choice = ProviderChoice(
        FakeProvider("good"),
        "session",
        (SkippedLevel("run", "nope", "missing"), SkippedLevel("config", "off", "disabled")),
    )
    assert skipped_lines("zh", choice) == [
        "⚠️ 已跳过本次选项里的 nope：没有这个模型",
        "⚠️ 已跳过插件配置里的 off：已停用，改用 good",
    ]
    assert provider_line("zh", choice) == "摘要模型: good（会话模型）"


def test_a_chain_that_ends_in_nothing_says_so() -> None:
    choice = ProviderChoice(None, None, (SkippedLevel("session", "", "not_chat"),))
    assert skipped_lines("en", choice) == [
        "⚠️ Skipped the session's chat model: it is no chat model; no other is available"
    ]
    assert provider_line("en", choice) == "summary model: no chat model is available"
    assert skipped_lines("en", ProviderChoice(None, None)) == []


def test_a_preview_shows_the_plan() -> None:
    facts = PreviewFacts(
        before_messages=18,
        kept_messages=3,
        archived_messages=15,
        before_tokens=12_345,
        after_tokens=2_000,
        template="chat",
        budget_tokens=5_461,
        retain_tokens=546,
        requests=2,
        trimmed_messages=4,
        focus="鉴权\n重构",
    )
    assert preview_reply("zh", facts, ProviderChoice(FakeProvider("m"), "core")) == (
        "🔍 压缩预览（没有调用模型）\n"
        "18 条消息：归档 15 条，保留原文至少 3 条\n"
        "另有 AstrBot 已截掉的 4 条会写进摘要\n"
        "约 12,345 → 2,000 tokens（估算）\n"
        "聊天模板\n"
        "摘要预算 5,461 tokens，其中挑选保留原文至多 546 · 预计 2 次请求\n"
        "摘要模型: m（AstrBot 的压缩配置）\n"
        "聚焦: 鉴权 重构"
    )


def test_a_preview_says_why_messages_stay_and_that_the_old_summary_goes_in() -> None:
    kept = (KeptPart("system", 1, 9), KeptPart("request", 1, 900), KeptPart("recent", 2, 1_200))
    facts = PreviewFacts(
        18,
        4,
        12,
        12_345,
        2_000,
        "work",
        5_461,
        546,
        1,
        kept=kept,
        keep_ratio=0.15,
        has_earlier=True,
    )
    assert preview_reply("zh", facts, ProviderChoice(FakeProvider("m"), "core")).splitlines()[
        1:4
    ] == [
        "18 条消息：归档 12 条，保留原文至少 4 条",
        (
            "保留的是: 开头的系统消息 1 条 · 正在办的请求 1 条，约 900 tokens · "
            "最近 2 条，约 1,200 tokens（keep_recent_ratio 0.15）"
        ),
        "开头的旧摘要并入新摘要",
    ]


def test_what_a_model_did_is_said_where_the_reader_can_act_on_it() -> None:
    warnings = tuple(
        (f"warning.{name}", {"provider": "tiny"})
        for name in ("keep_missing", "keep_unreadable", "no_headings", "context_fallback")
    )
    said = [
        line for line in done_reply("zh", changed(warnings=warnings)).splitlines() if "⚠️" in line
    ]
    assert said == [
        "⚠️ 模型 tiny 没有按小节写，它的文字整段收作摘要。",
        "⚠️ 模型 tiny 说内容超出了窗口，已分成更小的请求重试。请在 AstrBot 里改正它的窗口大小。",
    ]


def test_a_preview_of_the_builtin_engine_promises_no_size() -> None:
    facts = PreviewFacts(18, 3, 15, 12_345, None, None, None, None, 1)
    reply = preview_reply("en", facts, ProviderChoice(FakeProvider("m"), "run"))
    assert "about 12,345 tokens now" in reply
    assert "builtin" in reply
    assert "→" not in reply
