"""What people type after the command's name."""

from __future__ import annotations

import time
from typing import Any

import pytest
from astrbot_plugin_compact.summary.args import (
    SUBCOMMANDS,
    CompactArgs,
    SetRefused,
    SetRequest,
    build_compact_args,
    is_confirmation,
    known_override_keys,
    parse_compact_args,
    parse_compact_overrides,
    parse_number,
    parse_set,
    split_subcommand,
    split_words,
)
from astrbot_plugin_compact.summary.layers import Source
from astrbot_plugin_compact.summary.settings import SETTINGS, Change, Settings
from hypothesis import given
from hypothesis import strategies as st

FIRST_SIX = ("keep", "provider", "min", "summary", "chars", "focus")
OTHER_WORDS = (
    "line", "limit", "budget", "auto", "recall", "engine", "template", "notify", "language",
    "timeout",
)  # fmt: skip
GOOD_VALUES = {
    "keep": ("0.2", {"keep_recent_ratio": 0.2}),
    "provider": ("deepseek-r1", {"compress_provider_id": "deepseek-r1"}),
    "min": ("6", {"min_messages": 6}),
    "summary": ("off", {"show_summary": False}),
    "chars": ("500", {"summary_max_chars": 500}),
    "focus": ("鉴权", {"default_focus": "鉴权"}),
    "line": ("0.6", {"compress_at": 0.6, "compress_tokens": 0}),
    "limit": ("60", {"history_limit": 60}),
    "budget": ("0.2", {"summary_budget_ratio": 0.2}),
    "auto": ("off", {"auto_compact": False}),
    "recall": ("no", {"recall_tool": False}),
    "engine": ("builtin", {"engine": "builtin"}),
    "template": ("chat", {"template": "chat"}),
    "notify": ("all", {"notify": "all"}),
    "language": ("en", {"language": "en"}),
    "timeout": ("60", {"summary_timeout": 60}),
}
LONG_NAMES = {s.short: s.name for s in SETTINGS if s.short and s.short != "line"}


def focus_of(text: str) -> str:
    result = parse_compact_overrides(text)
    assert result.overrides == {}
    assert result.errors == []
    return result.focus


@pytest.mark.parametrize("word", [*FIRST_SIX, *OTHER_WORDS])
def test_an_option_stands_anywhere_and_the_rest_is_focus_in_order(word: str) -> None:
    value, overrides = GOOD_VALUES[word]
    for text in (f"{word} {value} 甲 乙", f"甲 {word} {value} 乙", f"甲 乙 {word} {value}"):
        result = parse_compact_overrides(text)
        assert (result.overrides, result.focus, result.errors) == (overrides, "甲 乙", [])


@pytest.mark.parametrize(("short", "name"), LONG_NAMES.items())
def test_the_long_name_means_the_short_one(short: str, name: str) -> None:
    value = GOOD_VALUES[short][0]
    assert parse_compact_overrides(f"{name} {value}") == parse_compact_overrides(f"{short} {value}")


@pytest.mark.parametrize("word", ["keep", "min", "summary", "chars"])
def test_a_bad_value_of_the_first_words_is_named_and_skipped(word: str) -> None:
    result = parse_compact_overrides(f"{word} abc 话题")
    assert result.overrides == {}
    assert result.focus == "话题"
    assert len(result.errors) == 1
    assert word in result.errors[0]
    assert "abc" in result.errors[0]


@pytest.mark.parametrize("word", FIRST_SIX)
def test_a_first_word_without_a_value_is_named(word: str) -> None:
    result = parse_compact_overrides(f"话题 {word}")
    assert result.focus == "话题"
    assert len(result.errors) == 1
    assert word in result.errors[0]
    assert "缺少值" in result.errors[0]


def test_an_option_after_a_word_without_value_still_holds() -> None:
    result = parse_compact_overrides("keep provider deepseek 话题")
    assert result.overrides == {"compress_provider_id": "deepseek"}
    assert result.focus == "话题"
    assert "缺少值" in result.errors[0]


@pytest.mark.parametrize("word", OTHER_WORDS)
def test_the_other_words_are_focus_unless_a_legal_value_follows(word: str) -> None:
    assert focus_of(f"{word} 重构") == f"{word} 重构"
    assert focus_of(f"关于 {word}") == f"关于 {word}"


@pytest.mark.parametrize(
    ("text", "overrides", "focus"),
    [
        ("focus 鉴权重构 补充说明", {"default_focus": "鉴权重构"}, "补充说明"),
        ("keep 2.0", {"keep_recent_ratio": 0.3}, ""),
        ("keep 99", {"keep_recent_ratio": 0.3}, ""),
        ("keep -1", {"keep_recent_ratio": 0.0}, ""),
        ("keep 20%", {"keep_recent_ratio": 0.2}, ""),
        ("--keep 0.2 鉴权", {}, "--keep 0.2 鉴权"),
        ("keep=0.2", {}, "keep=0.2"),
        ("重构鉴权 keep ０．２０ provider deepseek-v3",
         {"keep_recent_ratio": 0.2, "compress_provider_id": "deepseek-v3"}, "重构鉴权"),
        ("ＫＥＥＰ 0.1", {"keep_recent_ratio": 0.1}, ""),
        ("keep 0.1 keep 0.2", {"keep_recent_ratio": 0.2}, ""),
        ("focus keep", {"default_focus": "keep"}, ""),
        ('focus ""', {"default_focus": ""}, ""),
        ("line 60000", {"compress_tokens": 60_000}, ""),
        ("line 60k", {"compress_tokens": 60_000}, ""),
        ("line 6万", {"compress_tokens": 60_000}, ""),
        ("line 80%", {"compress_at": 0.8, "compress_tokens": 0}, ""),
        ("line 0", {"compress_at": 0.0, "compress_tokens": 0}, ""),
        ("line 1", {"compress_at": 1.0, "compress_tokens": 0}, ""),
        ("line 80", {}, "line 80"),
        ("compress_at 60000", {}, "compress_at 60000"),
        ("budget 0.6", {}, "budget 0.6"),
        ("limit -1", {}, "limit -1"),
        ("group_members on", {}, "group_members on"),
    ],
)  # fmt: skip
def test_runs_are_read_as_described(text: str, overrides: dict[str, Any], focus: str) -> None:
    result = parse_compact_overrides(text)
    assert (result.overrides, result.focus, result.errors) == (overrides, focus, [])


@pytest.mark.parametrize(
    ("text", "focus"),
    [
        ("保留　所有 代码\t片段", "保留 所有 代码 片段"),
        ("  保留\n所有  ", "保留 所有"),
        ("🎉 庆祝 👨‍👩‍👧", "🎉 庆祝 👨‍👩‍👧"),
        ('"keep 0.2" 怎么用', "keep 0.2 怎么用"),
        ("“代码 片段” 保留", "代码 片段 保留"),
        ("「keep」 0.2", "keep 0.2"),
        ("『甲 乙』", "甲 乙"),
        ("'a b' c", "a b c"),
        ("“苹果”和“香蕉”的区别", "“苹果”和“香蕉”的区别"),
        ('say "hi', 'say "hi'),
        ("don't stop", "don't stop"),
        ("“没有关上 的引号", "“没有关上 的引号"),
        ('"" 甲', "甲"),
    ],
)
def test_focus_keeps_its_words_whatever_they_are_made_of(text: str, focus: str) -> None:
    assert focus_of(text) == focus


@pytest.mark.parametrize("quoted", ['"甲 乙"', "'甲 乙'", "“甲 乙”", "「甲 乙」", "『甲 乙』"])
def test_quotes_hold_a_value_of_several_words_together(quoted: str) -> None:
    result = parse_compact_overrides(f"focus {quoted} 丙")
    assert (result.overrides, result.focus) == ({"default_focus": "甲 乙"}, "丙")


def test_errors_are_worded_in_the_language_asked_for() -> None:
    assert "missing" in parse_compact_overrides("keep", "en").errors[0]


def test_known_words_are_the_short_and_long_names_of_runs() -> None:
    known = known_override_keys()
    assert set(FIRST_SIX) | set(OTHER_WORDS) | set(LONG_NAMES.values()) <= known
    assert {"compress_at", "compress_tokens"} <= known
    assert not {"group_members", "session_overrides", "instruction_text", ""} & known


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_a_first_word_that_is_a_subcommand_is_that_subcommand(name: str) -> None:
    assert split_subcommand(name) == (name, "")
    assert split_subcommand(f" {name}　甲 乙 ") == (name, "甲 乙")


@pytest.mark.parametrize("text", ["", "  ", "running late", "甲 run", "Run x", "“run” x"])
def test_any_other_text_is_a_run_of_all_of_it(text: str) -> None:
    assert split_subcommand(text) == ("run", text.strip())


def test_arguments_are_options_over_layers_over_settings() -> None:
    settings, session = (
        Settings.parse(
            {
                "keep_recent_ratio": 0.1,
                "compress_provider_id": "general",
                "default_focus": "一般",
                "history_limit": 50,
                "session_overrides": [{"session": "a:GroupMessage:1", "history_limit": 9}],
            },
            pytest.fail,
        ),
        "a:GroupMessage:1",
    )
    result = parse_compact_overrides("min 6 provider special 甲 keep")
    args = build_compact_args(result, settings, settings.lines(session))
    assert (args.keep_recent_ratio, args.min_messages, args.history_limit) == (0.1, 6, 9)
    assert (args.provider_id, args.config_provider_id) == ("special", "general")
    assert (args.focus, args.default_focus, args.effective_focus) == ("甲", "一般", "甲")
    assert args.given == {"min_messages", "compress_provider_id"}
    assert args.sources["history_limit"] is Source.SESSION
    assert args.sources["min_messages"] is Source.RUN
    assert len(args.errors) == 1
    assert build_compact_args(result, settings).history_limit == 50


def test_a_line_of_this_run_takes_the_place_of_the_sessions() -> None:
    settings = Settings(compress_tokens=60_000)
    args = build_compact_args(parse_compact_overrides("line 0.5"), settings)
    assert (args.compress_at, args.compress_tokens) == (0.5, 0)


@pytest.mark.parametrize("text", ["run keep 0.05 数据库迁移", "preview keep 0.05 数据库迁移",
                                  "keep 0.05 数据库迁移"])  # fmt: skip
def test_arguments_come_from_the_text_with_or_without_the_subcommand(text: str) -> None:
    args = parse_compact_args(text)
    assert (args.keep_recent_ratio, args.focus) == (0.05, "数据库迁移")


def test_nothing_typed_is_no_request() -> None:
    assert parse_compact_args("") == CompactArgs(sources=Settings().lines("").sources)
    assert not parse_compact_args("run").has_request
    assert parse_compact_args("甲").has_request
    assert parse_compact_args("keep 0.15").has_request


def set_values(body: str) -> list[tuple[str, Any]]:
    request = parse_set(body)
    assert isinstance(request, SetRequest), request
    assert not request.here
    return [(change.name, change.value) for change in request.changes]


def refused(body: str) -> list[str]:
    request = parse_set(body)
    assert isinstance(request, SetRefused), request
    return [problem.key for problem in request.problems]


@pytest.mark.parametrize("word", [*FIRST_SIX, *OTHER_WORDS])
def test_set_takes_every_word_and_its_long_name(word: str) -> None:
    value, overrides = GOOD_VALUES[word]
    assert dict(set_values(f"{word} {value}")) == overrides
    if word in LONG_NAMES:
        assert dict(set_values(f"{LONG_NAMES[word]} {value}")) == overrides


def test_set_takes_several_pairs_and_settings_without_a_short_name() -> None:
    assert set_values("keep 0.20 provider deepseek-r1 group_members on") == [
        ("keep_recent_ratio", 0.2),
        ("compress_provider_id", "deepseek-r1"),
        ("group_members", True),
    ]
    assert set_values("summary_extra_body '{\"a\": 1}'") == [("summary_extra_body", '{"a": 1}')]


def test_default_goes_back_and_a_quoted_default_is_a_text() -> None:
    assert set_values("keep default") == [("keep_recent_ratio", None)]
    assert set_values("line default") == [("compress_at", None), ("compress_tokens", None)]
    assert set_values("focus default") == [("default_focus", None)]
    assert set_values('focus "default"') == [("default_focus", "default")]
    assert set_values('provider ""') == [("compress_provider_id", "")]


@pytest.mark.parametrize(
    ("body", "keys"),
    [
        ("", ["set.empty"]),
        ("keep", ["args.missing"]),
        ("keep abc", ["args.bad"]),
        ("keep 0.2 min abc", ["args.bad"]),
        ("keep abc min abc", ["args.bad", "args.bad"]),
        ("keep 0.2 多余", ["set.unknown"]),
        ("多余 keep 0.2", ["set.unknown"]),
        ("focus 鉴权 重构", ["set.unknown"]),
        ('"keep" 0.2', ["set.unknown"]),
        ("session_overrides x", ["set.overrides"]),
        ("limit -1", ["args.bad"]),
        ("line 80", ["args.bad"]),
        ("keep 0.2 here", ["set.not_here"]),
        ("here", ["set.unknown"]),
        ("here line 0.5", ["set.unknown"]),
        ("line here", ["args.bad"]),
    ],
)
def test_set_refuses_the_whole_command_for_anything_wrong(body: str, keys: list[str]) -> None:
    assert refused(body) == keys


@pytest.mark.parametrize(
    ("body", "changes"),
    [
        ("line 0.5 here", [Change("compress_at", 0.5), Change("compress_tokens", 0)]),
        ("line 60k here", [Change("compress_tokens", 60_000)]),
        ("limit 30 here", [Change("history_limit", 30)]),
        ("limit 0 here", [Change("history_limit", 0)]),
        ("limit -1 here", [Change("history_limit", None)]),
        ("limit default here", [Change("history_limit", None)]),
        ("compress_at 0.5 ＨＥＲＥ", [Change("compress_at", 0.5)]),
    ],
)
def test_here_at_the_end_means_this_session(body: str, changes: list[Change]) -> None:
    assert parse_set(body) == SetRequest(tuple(changes), here=True)


def test_here_as_a_value_is_a_value() -> None:
    assert set_values("focus here") == [("default_focus", "here")]


@pytest.mark.parametrize(("body", "number"), [("12", 12), ("#12", 12), ("＃１２", 12)])
def test_a_records_number_may_have_its_mark(body: str, number: int) -> None:
    assert parse_number(body) == number


@pytest.mark.parametrize("body", ["", "x", "0", "-1", "1.5", "#"])
def test_what_is_no_records_number_is_none(body: str) -> None:
    assert parse_number(body) is None


def test_only_clear_words_confirm() -> None:
    assert all(map(is_confirmation, ["yes", " YES ", "确认", "confirm"]))
    assert not any(map(is_confirmation, ["", "no", "yes please", "不确认"]))


def test_a_text_full_of_quotes_is_read_in_one_pass() -> None:
    began = time.process_time()
    split_words("“ " * 600_000 + "”x")
    assert time.process_time() - began < 5


words = st.sampled_from(
    [*FIRST_SIX, *OTHER_WORDS, *LONG_NAMES.values(), "here", "default", "0.2", "abc", "60k", "on",
     '"', "“", "”", "「", "'", "甲", "--keep", "👨‍👩‍👧", "\ud83d", "\u3000", ""]
)  # fmt: skip
texts = st.text() | st.lists(words | st.text(max_size=4)).map(" ".join)


@given(texts)
def test_any_text_parses(text: str) -> None:
    args = parse_compact_args(text)
    assert 0 <= args.keep_recent_ratio <= 0.3
    assert parse_compact_overrides(text).overrides.keys() <= {s.name for s in SETTINGS}
    assert isinstance(parse_set(text), SetRequest | SetRefused)
    parse_number(text)
    is_confirmation(text)


@given(texts)
def test_no_word_is_lost_but_options_and_what_is_named(text: str) -> None:
    result = parse_compact_overrides(text)
    typed = [word.text for word in split_words(text)]
    left = " ".join(result.focus.split()).split()
    assert all(any(piece in word for word in typed) for piece in left)
    if not result.overrides and not result.problems:
        assert result.focus == " ".join(filter(None, typed))


@given(st.lists(st.sampled_from([f"{w} {v}" for w, (v, _) in GOOD_VALUES.items()])))
def test_what_a_run_takes_set_takes_alike(options: list[str]) -> None:
    text = " ".join(options)
    overrides = parse_compact_overrides(text).overrides
    request = parse_set(text)
    if isinstance(request, SetRefused):
        assert not options
    else:
        assert {change.name: change.value for change in request.changes} == overrides
