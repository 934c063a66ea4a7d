"""What a search finds, in which order, and that it never leaves its conversation."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from astrbot_plugin_compact.summary import archive_search
from astrbot_plugin_compact.summary.archive import Archive, SpanMessage
from astrbot_plugin_compact.summary.archiving import to_archive
from astrbot_plugin_compact.summary.history import stored
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.archives import (
    CID,
    any_text,
    change,
    compact,
    found_texts,
    message,
    messages,
    new_compaction,
)

EMPTY_INDEX = "INSERT INTO message_index (message_index) VALUES ('delete-all')"

HOSTILE = [
    *("*", "密码*", "%", "_", "?", "密_", "' OR 1=1 --", '" OR "', "密码 OR 芝麻", "NOT 苹果"),
    *("NEAR(密码 芝麻, 5)", "words:密码", "{words}: 密码", "- words : 密码", "^密码", "rowid:1"),
    *("message_index:密码", "密码 + 芝麻", "(密码", "密码)", '"密码', "密码\x00芝麻", "\ud83d"),
    *("'; DROP TABLE content; --", "conversation_id = 1", "芝麻 UNION SELECT raw FROM content"),
    *("$(密码)", "../密码", "\\", "\n", "AND", "OR", "NOT", "\u202e密码", "密码" * 5000, "🗜️"),
    *("-1", "\t芝麻\t", "芝麻\udfff", "裁掉", "ABC-1", "mine", "密", "码"),
]


@pytest.fixture
async def archive(tmp_path: Path) -> AsyncIterator[Archive]:
    opened = await Archive.open(tmp_path / "archive.db")
    yield opened
    await opened.close()


@pytest.mark.parametrize("is_indexed", [True, False], ids=["indexed", "not yet indexed"])
@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("下周要交预算表", "预算"),
        ("下周要交预算表", "预算表"),
        ("下周要交预算表", "表"),
        ("下周要交预算表", "周"),
        ("预算报完了，表也填了", "预算 表"),
        ("用户的数据库密码是 X", "数据库密码"),
        ("データベースの設定", "設定"),
        ("데이터베이스를 고쳤다", "데이터"),
        ("The Budget is due", "budget"),
        ("the budget is due", "BUDGET due"),
        ("we deployed it", "deploy"),
        ("call getUserName() here", "getUserName"),
        ("call getUserName() here", "getusername"),
        ("call getUserName() here", "user"),
        ("call getUserName() here", "user name"),
        ("call getUserName() here", "UserName"),
        ("call getUserName() here", "userName"),
        ("set max_tokens to 5", "max_tokens"),
        ("set max_tokens to 5", "tokens"),
        ("set max_tokens to 5", "maxTokens"),
        ("edit src/app/main.py now", "src/app/main.py"),
        ("edit src/app/main.py now", "app/main.py"),
        ("edit src/app/main.py now", "main.py"),
        ("edit src/app/main.py now", "main"),
        ("edit C:\\src\\app\\main.py now", "src/app"),
        ("order ABC-1234 shipped", "ABC-1234"),
        ("order ABC-1234 shipped", "abc-1234"),
        ("order ABC-1234 shipped", "1234"),
        ("订单ABC-1234已发", "ABC-1234"),
        ("see https://example.com/a/b?x=1", "example.com/a"),
        ("mail me@example.com", "me@example.com"),
        ("commit a8f3c2d9e1", "a8f3c2d9e1"),
        ("全角ＡＢＣ也行", "abc"),
        ("半角ABC也行", "ＡＢＣ"),
        ("un café noir", "cafe"),
        ("生日🎉快乐", "🎉"),
        ("这家五⭐好评", "⭐"),
        ("见 ⌚ 与 →", "→"),
        ("一共 €120", "€120"),
        ("a ≠ b", "≠"),
        ("a ⩽ b ⟶ c", "⟶"),
        ("约 5‰", "‰"),
        ("we use C++, mostly", "C++"),
        ("会 C# 和 Java", "c#"),
        ("共 30+ 人", "30+"),
        ('he said "quoted"', '"quoted"'),
        ("电话13800138000", "13800138000"),
        ("x" * 500, "x" * 500),
    ],
)
async def test_a_search_finds(archive: Archive, text: str, query: str, is_indexed: bool) -> None:
    await compact(archive, "完全无关 of no interest", text, "also something else 另外")
    await archive.tended()
    if not is_indexed:
        change(archive._file._path, "UPDATE content SET indexed = 0", EMPTY_INDEX)
    found = await archive.search(CID, query)
    assert [(f.is_exact, f.rank) for f in found] == [(True, 1)]
    assert found[0].snippet.strip("…") in text


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("下周要交预算表", "算预"),
        ("预算，表格", "算表"),
        ("下周要交预算表", "决算"),
        ("the budget", "gadget"),
        ("we test", "testing"),
        ("ABC-1234", "ABC-12345"),
        ("src/app/main.py", "app/src"),
        ("预算", ""),
        ("预算", " ，。!? "),
        ("预算", "*"),
    ],
)
async def test_a_search_does_not_find(archive: Archive, text: str, query: str) -> None:
    await compact(archive, text)
    await archive.tended()
    assert await archive.search(CID, query) == ()


async def test_each_message_comes_once_however_many_records_hold_it(archive: Archive) -> None:
    for _ in range(3):
        await compact(archive, "预算批了", "ok")
    await archive.add_trimmed("umo", CID, messages("预算批了"))
    (found,) = await archive.search(CID, "预算")
    assert found.number is None


async def test_a_result_names_its_newest_record_speaker_and_time(archive: Archive) -> None:
    for speaker, time in (("小明(1)", 5.0), ("小红(2)", 9.0)):
        span = [message("预算批了", "assistant", speaker=speaker, time_seconds=time)]
        await archive.settle(await archive.begin(new_compaction(), span), "done")
    (found,) = await archive.search(CID, "预算")
    assert (found.number, found.role, found.speaker, found.time_seconds) == (
        2,
        "assistant",
        "小红(2)",
        9.0,
    )


async def test_a_record_that_does_not_count_gives_no_place(archive: Archive) -> None:
    await compact(archive, "预算批了")
    undone = await compact(archive, "预算批了")
    await archive.settle(undone, "undone")
    await archive.begin(new_compaction(), messages("预算批了"))
    (found,) = await archive.search(CID, "预算")
    assert found.number == 1


@pytest.mark.parametrize(
    ("query", "texts"),
    [
        ("budget", ["budget", "the annual budget of our department is still being discussed " * 3]),
        ("art", ["art class", "start now"]),
        ("deploy", ["deploy it", "deployment it"]),
        ("deploy", ["please do deploy it to all of the machines", "deployment"]),
        ("deploy server", ["please deploy server two", "deploy first, then ask the server team"]),
        ("预算 会议", ["预算 会议改期", "会议谈了很多别的事情，最后才说到预算"]),
        ("ABC-1234", ["ABC-1234", "ABC 1234 ABC/1234 x"]),
    ],
)
async def test_the_better_answer_comes_first(
    archive: Archive, query: str, texts: list[str]
) -> None:
    for order in (texts, texts[::-1]):
        cid = f"conversation of {order}"
        await compact(archive, *order, cid=cid)
        await archive.tended()
        found = await archive.search(cid, query)
        assert found[0].snippet[:20] == texts[0][:20]


async def test_a_message_with_all_the_words_comes_before_one_with_some(archive: Archive) -> None:
    whole = "budgets were discussed" + " at length" * 50 + ", in two meetings"
    await compact(archive, whole, "meeting")
    await archive.tended()
    assert [r.text for r in await archive.recall(CID, "budget meeting")] == [whole, "meeting"]


async def test_of_equal_answers_the_newest_comes_first(archive: Archive) -> None:
    await compact(archive, *(f"预算{n}号" for n in range(10)))
    assert await found_texts(archive, "预算", limit=3) == ["预算9号", "预算8号", "预算7号"]


@pytest.mark.parametrize("limit", [-1, 0, 1, 3, 10**30])
async def test_no_more_than_the_limit_comes_back(archive: Archive, limit: int) -> None:
    await compact(archive, *(f"预算{n}号" for n in range(5)))
    assert len(await archive.search(CID, "预算", limit)) == max(0, min(limit, 5))
    assert len(await archive.recall(CID, "预算", limit)) == max(0, min(limit, 5))


async def test_a_query_found_only_in_part_says_so(archive: Archive) -> None:
    await compact(archive, "保险柜的密码在信封里", "今天天气好")
    (found,) = await archive.search(CID, "保险柜密码")
    assert not found.is_exact
    assert found.snippet == "保险柜的密码在信封里"


async def test_marks_that_make_another_name_count(archive: Archive) -> None:
    await compact(archive, "vitamin C", "we use C++, mostly", "and some C#")
    for query, text in (("C++", "we use C++, mostly"), ("c#", "and some C#")):
        assert [f.snippet for f in await archive.search(CID, query) if f.is_exact] == [text]
    assert len([f for f in await archive.search(CID, "c") if f.is_exact]) == 3


async def test_one_word_of_many_is_no_answer_to_a_search(archive: Archive) -> None:
    await compact(archive, "the weather", "今天天气好")
    assert await archive.search(CID, "weather zebra quagga okapi") == ()


async def test_the_snippet_shows_the_place_and_marks_the_words(archive: Archive) -> None:
    await compact(archive, "前" * 300 + "\n请查收ÀBC-7预算表\n" + "后" * 300)
    (found,) = await archive.search(CID, "预算 abc-7")
    assert found.snippet.startswith("…前")
    assert found.snippet.endswith("后…")
    assert "\n" not in found.snippet
    assert len(found.snippet) < 130
    assert [found.snippet[start:end] for start, end in found.hits] == ["ÀBC-7预算"]


async def test_marks_are_right_where_characters_grow_when_folded(archive: Archive) -> None:
    await compact(archive, "ß" * 200 + " ﬃ 预算 " + "ß" * 200)
    (found,) = await archive.search(CID, "预算")
    assert [found.snippet[start:end] for start, end in found.hits] == ["预算"]


async def test_a_word_deep_in_a_long_message_is_found(archive: Archive) -> None:
    await compact(archive, "长" * 500_000 + "needle" + "长" * 500_000)
    await archive.tended()
    (found,) = await archive.search(CID, "needle")
    assert "needle" in found.snippet


async def test_checkpoints_are_not_found(archive: Archive) -> None:
    span = [SpanMessage('{"role": "_checkpoint", "content": {"id": "预算"}}', "_checkpoint", "")]
    await archive.settle(await archive.begin(new_compaction(), span), "done")
    await archive.tended()
    assert await archive.search(CID, "预算") == ()


async def test_recall_gives_the_words_as_they_were_said(archive: Archive) -> None:
    text = "  保险柜密码：\n\tXK-4821 🗜️\u2028 "
    span = [message(text, speaker="小明(1)", time_seconds=5.0)]
    await archive.settle(await archive.begin(new_compaction(), span), "done")
    (recalled,) = await archive.recall(CID, "xk-4821")
    assert recalled.text == text
    assert (recalled.number, recalled.role, recalled.speaker, recalled.time_seconds) == (
        1,
        "user",
        "小明(1)",
        5.0,
    )
    assert not recalled.is_cut


@pytest.mark.parametrize(
    "question",
    [
        "保险柜的密码是多少？",
        "请问我之前告诉过你的那个保险柜密码是什么来着",
        "保险柜 password",
        "what is the code of the safe, the 保险柜?",
        "XK-4821",
        "4821",
    ],
)
async def test_recall_answers_a_question_in_whole_sentences(
    archive: Archive, question: str
) -> None:
    await compact(
        archive,
        *(f"今天聊的是第{n}个话题，天气是多少度？the weather is what it is" for n in range(50)),
        "记一下，保险柜密码 XK-4821",
    )
    recalled = await archive.recall(CID, question)
    assert recalled[0].text == "记一下，保险柜密码 XK-4821"


async def test_what_recall_returns_is_bounded_and_holds_the_place(archive: Archive) -> None:
    filler = "说了很多别的话。" * 2000
    await compact(archive, *(f"{n}{filler}芝麻开门{filler}" for n in range(20)))
    recalled = await archive.recall(CID, "芝麻", limit=20)
    assert recalled
    assert all("芝麻开门" in r.text and r.is_cut for r in recalled)
    assert sum(len(r.text) for r in recalled) <= 8000


async def two_conversations(archive: Archive) -> None:
    await compact(archive, "我的苹果", "ok", cid="mine")
    await compact(archive, "密码是芝麻开门 abc-1 mine", "ok", cid="theirs")
    await archive.add_trimmed("umo", "theirs", messages("裁掉的密码"))


@pytest.mark.parametrize("is_indexed", [True, False], ids=["indexed", "not yet indexed"])
async def test_no_query_finds_anything_of_another_conversation(
    archive: Archive, is_indexed: bool
) -> None:
    await two_conversations(archive)
    await archive.tended()
    if not is_indexed:
        change(archive._file._path, "UPDATE content SET indexed = 0", EMPTY_INDEX)
    for query in HOSTILE:
        for found in await archive.search("mine", query, 100):
            assert found.snippet in {"我的苹果", "ok"}, query
        for recalled in await archive.recall("mine", query, 100):
            assert recalled.text in {"我的苹果", "ok"}, query
    for cid in ("", "MINE", "mine%", "m_ne", "mine' OR '1'='1", "mine\x00", "theirs "):
        assert await archive.search(cid, "密码 OR ok") == ()
        assert await archive.search(cid, "ok") == ()
        assert await archive.list(cid) == ()
    assert await found_texts(archive, "芝麻", "theirs") == ["密码是芝麻开门 abc-1 mine"]


@settings(
    deadline=None,
    max_examples=200,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.text(st.sampled_from("密码芝麻ok abc1-\"*()%_^:+'\\\x00")) | any_text)
async def test_no_generated_query_fails_or_leaves_its_conversation(
    archive: Archive, query: str
) -> None:
    if not await archive.list("mine"):
        await two_conversations(archive)
        await archive.tended()
    assert {f.snippet for f in await archive.search("mine", query)} <= {"我的苹果", "ok"}
    assert {r.text for r in await archive.recall("mine", query)} <= {"我的苹果", "ok"}


SUBJECTS_ZH = ["保险柜", "服务器", "合同", "快递", "会员", "机票", "实验", "发票", "设备", "账户"]
SUBJECTS_EN = ["vault", "server", "contract", "parcel", "member", "ticket", "sample", "invoice"]


def needles(count: int, rng: random.Random) -> list[tuple[str, str, str]]:
    """Messages with a code in them, and two ways to ask for each: its code, its subject."""
    made = []
    for n in range(count):
        code = "".join(rng.choices("ABCDEFGHJKLMNPQRSTUVWXYZ", k=3)) + f"-{rng.randrange(10**4)}"
        if n % 2:
            name = f"{rng.choice(SUBJECTS_ZH)}{chr(0x4E00 + 37 * n)}{chr(0x4E01 + 53 * n)}"
            made.append((f"对了，{name}的编号是{code}，先记着，以后再用", code, f"{name} 编号"))
        else:
            name = f"{rng.choice(SUBJECTS_EN)} {''.join(rng.choices('bcdfgklmnprst', k=6))}"
            made.append((f"By the way, the {name} code is {code}, keep it", code, f"{name} code"))
    return made


async def test_a_hundred_needles_are_found_at_rank_one(archive: Archive) -> None:
    rng = random.Random(7)
    hay = [
        f"第{n}次说到{rng.choice(SUBJECTS_ZH)}的编号和{rng.choice(SUBJECTS_ZH)}，"
        f"the {rng.choice(SUBJECTS_EN)} code of {rng.choice(SUBJECTS_EN)} is XYZ-{n}"
        for n in range(4000)
    ]
    hidden = needles(100, rng)
    for start in range(0, 4000, 400):
        batch = hay[start : start + 400] + [text for text, _, _ in hidden[start // 40 :][:10]]
        rng.shuffle(batch)
        await compact(archive, *batch)
    await archive.tended()
    by_code = [(await archive.search(CID, code))[0].snippet for _, code, _ in hidden]
    by_subject = [(await archive.search(CID, subject))[0].snippet for _, _, subject in hidden]
    by_recall = [(await archive.recall(CID, subject))[0].text for _, _, subject in hidden]
    assert by_code == [text for text, _, _ in hidden]
    assert by_subject == [text for text, _, _ in hidden]
    assert by_recall == [text for text, _, _ in hidden]


async def test_an_index_made_by_other_rules_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "old.db"
    archive = await Archive.open(path)
    await compact(archive, "预算表")
    await archive.tended()
    await archive.close()
    # As an older version would have left it: other words for the same text.
    change(
        path,
        EMPTY_INDEX,
        "INSERT INTO message_index (rowid, words) SELECT id, 'nonsense' FROM content",
    )
    monkeypatch.setattr(archive_search, "INDEX_VERSION", "next")
    archive = await Archive.open(path)
    assert await found_texts(archive, "预算") == ["预算表"]
    await archive.tended()
    assert await found_texts(archive, "预算") == ["预算表"]
    await archive.close()


async def test_json_of_a_message_is_not_searched(archive: Archive) -> None:
    raw = json.dumps({"role": "user", "content": "data:image/png;base64,预算"})
    await archive.settle(
        await archive.begin(new_compaction(), [SpanMessage(raw, "user", "图")]), "done"
    )
    assert await archive.search(CID, "预算") == ()
    assert await archive.search(CID, "role") == ()


def group_message(own: str, *lines: str) -> SpanMessage:
    """A message of Ann's with the group's talk before it."""
    talk = "\n".join(lines)
    context = (
        "<system_reminder>You are in a group chat. These messages were said before:\n"
        f"--- BEGIN CONTEXT---\n{talk}\n--- END CONTEXT ---</system_reminder>"
    )
    identity = "<system_reminder>User ID: 1001, Nickname: Ann</system_reminder>"
    parts = [{"type": "text", "text": text} for text in (own, context, identity)]
    return to_archive(stored({"role": "user", "content": parts}), {})


@pytest.mark.parametrize(
    ("words", "speaker", "said"),
    [
        ("讨厌老板", "Bob", "无关的话" * 60 + "我讨厌老板"),
        ("天气", "Eve", "今天天气如何？ＡＢＣ"),
        ("abc", "Eve", "今天天气如何？ＡＢＣ"),
        ("订餐", "Ann(1001)", "帮我订餐"),
    ],
)
async def test_what_the_group_said_is_told_as_said_by_whoever_said_it(
    archive: Archive, words: str, speaker: str, said: str
) -> None:
    message = group_message(
        "帮我订餐",
        "[Bob/10:00:00]: " + "无关的话" * 60 + "我讨厌老板",
        "[Eve/10:01:00]: 今天天气如何？ＡＢＣ",
    )
    await archive.settle(await archive.begin(new_compaction(), [message]), "done")
    for _ in range(2):  # read from the table, then by the index
        (found,) = await archive.search(CID, words)
        assert found.speaker == speaker
        assert found.snippet.strip("…") in said
        (start, end), *_ = found.hits
        assert found.snippet[start:end] in said
        (recalled,) = await archive.recall(CID, words)
        assert (recalled.speaker, recalled.text) == (speaker, said)
        await archive.tended()


async def test_a_groups_line_found_by_its_speakers_name_is_shown(archive: Archive) -> None:
    message = group_message("帮我订餐", "[Bob/10:00:00]: 无关的话")
    await archive.settle(await archive.begin(new_compaction(), [message]), "done")
    (found,) = await archive.search(CID, "bob")
    assert (found.speaker, found.snippet) == ("Bob", "无关的话")
