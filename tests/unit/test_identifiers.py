"""Exact identifiers a summary left out."""

from __future__ import annotations

import json
from typing import Any

import pytest
from astrbot_plugin_compact.summary.identifiers import (
    closing_line,
    find_identifiers,
    split_closing_line,
    without_imitation,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.summaries import ESTIMATE, assistant, call, result, units_of, user


def line(*messages: dict[str, Any], **changes: Any) -> str:
    facts: dict[str, Any] = {
        "units": units_of(messages),
        "kept": (),
        "summary": "",
        "earlier": (),
        "language": "zh",
        "room_tokens": 1_000,
        "count_text": ESTIMATE.text,
    }
    return closing_line(**{**facts, **changes})


@pytest.mark.parametrize(
    ("text", "identifier"),
    [
        ("看https://example.com/a?b=1&c=2#x，谢谢", "https://example.com/a?b=1&c=2#x"),
        ("(see http://10.0.0.1:8080/x).", "http://10.0.0.1:8080/x"),
        ("https://en.wikipedia.org/wiki/A_(b)", "https://en.wikipedia.org/wiki/A_(b)"),
        ("打开 /home/u/app/main.py。", "/home/u/app/main.py"),
        ("cd ~/notes-2026;", "~/notes-2026"),
        ("edit ./src/x.ts now", "./src/x.ts"),
        ("in src/app/main.rs,", "src/app/main.rs"),
        (r"在C:\Users\me\a.txt里", r"C:\Users\me\a.txt"),
        ("550e8400-e29b-41d4-a716-446655440000", "550e8400-e29b-41d4-a716-446655440000"),
        ("commit 3f2a9c1d.", "3f2a9c1d"),
        ("sha256:abcdef0123456789abcdef", "abcdef0123456789abcdef"),
        ("订单SO20240501001已发", "SO20240501001"),
        ("单号：JD-12345-99", "JD-12345-99"),
        ("INC0012345!", "INC0012345"),
        ("电话13800138000", "13800138000"),
        ("写信给 bob.smith+x@corp.example.com", "bob.smith+x@corp.example.com"),
        ("key=ORD-8841", "ORD-8841"),
        ("报告放在 /home/张三/报告.pdf 了", "/home/张三/报告.pdf"),
        ("报告放在/home/张三/报告.pdf里", "/home/张三/报告.pdf"),
        (r"文件在 D:\项目\合同2024.docx 里", r"D:\项目\合同2024.docx"),
        ("打开https://example.com/login看看报什么错", "https://example.com/login"),
        ("他说“https://example.com/a”打不开", "https://example.com/a"),
        ("『https://example.com/a』", "https://example.com/a"),
        ("https://example.com/a……打不开", "https://example.com/a"),
        ("https://example.com/~user/a～", "https://example.com/~user/a"),
        ("[文档](https://example.com/doc_(1))在这", "https://example.com/doc_(1)"),
        (
            "https://zh.example.org/wiki/数据库?q=索引&x=1 里",
            "https://zh.example.org/wiki/数据库?q=索引&x=1",
        ),
    ],
)
def test_an_identifier_is_found_to_the_letter(text: str, identifier: str) -> None:
    assert list(find_identifiers(text)) == [identifier]


@pytest.mark.parametrize(
    "text",
    [
        *("and/or", "3.14", "2026-05-01 10:30", "v1.2.3", "utf-8", "python3", "24/7"),
        *("hello-world", "deadbeef", "facade", "a@b", "1,234,567", "@someone", "###", "50%"),
        "x" * 400 + "/a.py",
    ],
)
def test_ordinary_words_and_figures_are_none(text: str) -> None:
    assert list(find_identifiers(text)) == []


def test_those_of_users_and_calls_are_listed_newest_first() -> None:
    messages = [
        user("订单 SO20240501001"),
        assistant("见 /a/answer.txt", call("c1", "read", json.dumps({"path": "/etc/hosts"}))),
        result("c1", "/a/result.txt"),
        user("还有 SO20240501002 和 SO20240501001"),
    ]
    assert line(*messages) == "标识：SO20240501001 | SO20240501002 | /etc/hosts"


def test_nested_arguments_are_read_and_escapes_are_no_paths() -> None:
    arguments = json.dumps({"edits": [{"file": "C:\\tmp\\a.py", "text": "x\ny\n/b/c.py", "n": 1}]})
    messages = [assistant(None, call("c1", "edit", arguments)), result("c1", "ok")]
    assert line(*messages) == "标识：/b/c.py | C:\\tmp\\a.py"


def test_what_stands_in_the_summary_or_a_kept_message_is_not_repeated() -> None:
    message = user("/a/one.py /a/two.py /a/three.py")
    kept = units_of([assistant(None, call("c1", "f", '{"p": "/a/two.py"}')), result("c1", "x")])
    assert line(message, summary="改了 /a/one.py", kept=kept) == "标识：/a/three.py"


def test_a_notice_of_the_host_names_none() -> None:
    notice = (
        "# CRON JOB CONTEXT\nThe following object describes the scheduled task that triggered "
        'you:\n{"script": "/srv/cron.sh"}\n\nYou are now responding to a scheduled task. Proceed '
        "according to your system instructions. Output using same language as previous "
        "conversation. After completing your task, summarize and output your actions and results."
    )
    assert line(user(notice)) == ""
    assert line(user(notice + " 什么意思？")) == "标识：/srv/cron.sh"


def test_the_line_takes_no_more_than_its_room() -> None:
    message = user(" ".join(f"/srv/data/file{n}.txt" for n in range(200)))
    for room in range(0, 120, 7):
        text = line(message, room_tokens=room)
        assert ESTIMATE.text("\n\n" + text if text else "") <= room
    assert line(message, room_tokens=60).startswith("标识：/srv/data/file199.txt | ")
    assert line(message, room_tokens=-5) == ""


def test_those_of_an_earlier_line_come_last_and_once() -> None:
    found = line(user("/a/new.py /a/old.py"), earlier=("/a/old.py", "/a/older.py", "/a/older.py"))
    assert found == "标识：/a/old.py | /a/new.py | /a/older.py"


def test_a_line_is_written_in_the_language_of_the_headings_and_read_in_both() -> None:
    english = line(user("/a/x.py /a/y.py"), language="en")
    assert english == "Identifiers: /a/y.py | /a/x.py"
    for text in (english, line(user("/a/x.py /a/y.py"))):
        assert split_closing_line(f"## 目标\n写\n\n{text}") == (
            "## 目标\n写",
            ("/a/y.py", "/a/x.py"),
        )
    assert split_closing_line("## 目标\n标识：x\n写") == ("## 目标\n标识：x\n写", ())


def test_of_a_path_with_other_names_no_part_is_taken_for_it() -> None:
    assert find_identifiers("在 /home/data/张三 里") == []
    assert line(user("在 /home/data/张三 里"), user("和 /srv/app/ 里")) == "标识：/srv/app/"
    paths = line(user("见 /data/一/a.txt"), user("见 /data/二/b.txt"))
    assert paths == "标识：/data/二/b.txt | /data/一/a.txt"


def test_only_a_line_of_nothing_but_identifiers_is_an_imitation() -> None:
    """A model that saw an earlier summary's closing line writes one too, or says more in it."""
    for last in ("标识：ORD-8841 | https://example.com/a", "Identifiers: ORD-8841"):
        assert without_imitation(f"## 目标\n无\n\n{last}") == "## 目标\n无"
    for last in ("标识：改用蓝色小龙，周五前定稿", "标识：ORD-8841 | 合同号甲-33", "标识："):
        assert without_imitation(f"## 目标\n无\n\n{last}") == f"## 目标\n无\n\n{last}"


@given(st.text())
def test_any_text_can_be_searched_and_split(text: str) -> None:
    for identifier in find_identifiers(text):
        assert identifier in text
        assert not any(character.isspace() for character in identifier)
    split_closing_line(text)
    line(user(text), assistant(None, call("c", "f", text)))


def test_a_long_history_is_searched_in_seconds() -> None:
    messages = [user(f"看 /srv/{n}/a.py 的 SO2024{n:08} " + "word " * 100) for n in range(5_000)]
    messages += [user("a-" * 200_000), user("/a" * 200_000), user("a@" * 200_000)]
    assert line(*messages, room_tokens=100)


@pytest.mark.parametrize(
    ("identifier", "summary", "holds"),
    [
        ("AB1001", "订单 AB10012 已退款", False),
        ("AB1001", "订单 XAB1001 已退款", False),
        ("/srv/data/a.txt", "见 /srv/data/a.txt.bak", False),
        ("/srv/data/a.txt", "见 /mnt/srv/data/a.txt", False),
        ("https://x.com/a", "https://x.com/a/b", False),
        ("AB1001", "订单AB1001已退款", True),
        ("AB1001", "Refund AB1001.", True),
        ("/srv/data/a.txt", "(`/srv/data/a.txt`)", True),
        ("https://x.com/a", "见 https://x.com/a。", True),
    ],
)
def test_part_of_a_longer_identifier_is_another_one(
    identifier: str, summary: str, holds: bool
) -> None:
    closing = line(user(identifier), summary=summary)
    assert (closing == "") is holds
    assert (identifier in closing) is not holds
