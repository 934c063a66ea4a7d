"""Inputs that broke other systems; the number in a docstring is that of the case.

Each is a kind of fault, tried with both engines and in the web chat of every host. A case that is
about who else writes is in `test_commit.py`, one about what is typed in `test_commands.py`, one
about the config file in `test_config.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest

from tests.bed import (
    Bot,
    Reply,
    Request,
    WebChat,
    call,
    cut,
    drop,
    fail,
    malformed,
    say,
    violations,
)
from tests.bed.model import carry_marks
from tests.e2e.histories import (
    ACKNOWLEDGEMENT,
    FILLER,
    HEAD,
    Message,
    archived,
    assert_strict_model_knows,
    assistant,
    calls,
    checkpoint,
    is_compacted,
    is_summary_request,
    marks,
    raw_messages,
    result,
    roles,
    talk,
    text_of,
    untouched,
    user,
    without_checkpoints,
)

# The ends of the supported range; what commands and commits need of a host is tried on all.
pytestmark = pytest.mark.hosts("newest", "4.25.3")

DONE = "✅ 压缩完成"
SUMMARY = "## 最近在聊什么\n## 目标\nSUMMARY-1 " + FILLER
both_engines = pytest.mark.parametrize("engine", ["structured", "builtin"])
# What a web chat's summary needs: a pick line, and a heading of its template.
PICKS = re.compile(r"#(\d+)〔约 \d+ token〕")


def warnings_of(bot: Bot) -> int:
    """How many warnings of a failed run the log holds."""
    return len(re.findall(r"WARN.*compact run: ", bot.log()))


# -- 1 to 3: tool calls ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("engine", "ratio"),
    [*(("structured", ratio) for ratio in (0, 0.05, 0.1, 0.15, 0.2, 0.3)), ("builtin", 0.15)],
)
def test_a_call_and_its_result_are_never_parted(
    bot: Bot, chat: WebChat, engine: str, ratio: float
) -> None:
    """CASE 1."""
    called = calls("c1", content="我查一下。" + FILLER * 4)
    fifth = [user("查一下 FACT-5。"), called, result("c1", "查到了 FACT-55"), assistant("查好了。")]
    chat.seed([*talk(1, 4), *fifth, *talk(6, 6, fillers=1)])

    assert DONE in chat.send(f"/compact engine {engine} keep {ratio}").text

    stored = text_of(chat.row().messages)
    assert ("look_up" in roles_and_names(chat.row().messages)) == ("查到了" in stored)
    # AstrBot drops a lone result before it asks, so the history itself is looked at.
    assert own_faults(chat) == []
    assert_strict_model_knows(chat, *marks(1, 6))


def roles_and_names(messages: list[Message]) -> str:
    """Every role, and the tools called."""
    return json.dumps([[m["role"], m.get("tool_calls")] for m in messages])


@pytest.mark.parametrize(
    ("engine", "ratio"),
    [*(("structured", step / 50) for step in range(16)), ("builtin", 0.15), ("builtin", 0.3)],
)
def test_one_request_and_a_long_row_of_calls(
    bot: Bot, chat: WebChat, engine: str, ratio: float
) -> None:
    """CASE 2: at every other ratio the cut by tokens falls between a call and its result."""
    steps: list[Message] = []
    for number in range(22):
        steps += [calls(f"c{number}", content=f"第 {number} 步"), result(f"c{number}")]
    chat.seed([user("请把 FACT-1 查清楚。"), *steps, assistant("都查清楚了。")])

    assert DONE in chat.send(f"/compact engine {engine} keep {ratio}").text

    kept = chat.row().messages
    assert kept[0]["role"] == "user"
    assert "FACT-1" in bot.model.summaries[0].text + text_of(kept[1:])
    assert own_faults(chat) == []
    assert_strict_model_knows(chat, "FACT-1")


@both_engines
def test_calls_without_content_in_span_and_tail(bot: Bot, chat: WebChat, engine: str) -> None:
    """CASE 3."""
    bare = calls("c2")
    del bare["content"]

    def shapes(suffix: str) -> list[Message]:
        """One round of each shape, ids of their own."""
        rounds = [user("查 FACT-7"), calls("c1"), result("c1", "x"), assistant("好")]
        rounds += [user("再查 FACT-8"), bare, result("c2", "y"), assistant("好了")]
        return json.loads(json.dumps(rounds).replace('"c1"', f'"c1{suffix}"').replace(
            '"c2"', f'"c2{suffix}"'
        ))  # fmt: skip

    chat.seed([*shapes("a"), *talk(1, 5), *shapes("b")])
    before = raw_messages(chat.row().text)

    assert DONE in chat.send(f"/compact engine {engine} keep 0.3").text

    assert raw_messages(chat.row().text)[-8:] == before[-8:]
    assert own_faults(chat) == []
    assert_strict_model_knows(chat, "FACT-1", "FACT-7", "FACT-8")


# -- 4, 14, 25, 26: replies that are no summaries -------------------------------------------

BLANK = {"empty": "", "spaces": "   ", "newlines": "\n\n", "null": None}
NO_SUMMARY: dict[str, Reply] = {
    "429": fail(429, "slow down"),
    "500": fail(500, "broken"),
    "401": fail(401, "wrong key"),
    "dropped": drop("half a summary that never ends", 6),
    "no JSON": malformed(),
    "cut": cut("## 目标\nSUMMARY-1"),
    "a tool call": call("look_up", {"word": "x"}),
    "a tool call beside text": call("look_up", {"word": "x"}, text=SUMMARY),
    "reasoning alone": Reply("", reasoning="I should summarise"),
    "unclosed think": say("<think>The user wants a summary of"),
    "a refusal": Reply(None, refusal="I cannot help with that"),
    "filtered": Reply("", "content_filter"),
}


@both_engines
@pytest.mark.parametrize("text", BLANK.values(), ids=BLANK)
def test_a_blank_reply_changes_nothing_and_warns_once(
    bot: Bot, chat: WebChat, engine: str, text: str | None
) -> None:
    """CASE 4."""
    chat.seed(talk(1, 6), token_usage=700)
    bot.model.rule(is_summary_request, say(text))
    before = warnings_of(bot)

    with untouched(bot, chat.umo):
        reply = chat.send(f"/compact engine {engine}").texts[-1]

    assert reply.startswith("❌")
    assert "bed" in reply
    assert "历史未改动" in reply
    assert re.search(r"再试|换一个", reply)
    assert warnings_of(bot) == before + 1


@both_engines
@pytest.mark.parametrize("answer", NO_SUMMARY.values(), ids=NO_SUMMARY)
def test_what_is_no_summary_changes_nothing(
    bot: Bot, chat: WebChat, engine: str, answer: Reply
) -> None:
    """CASE 25 and 26: the reason is said, and the chat goes on."""
    chat.seed(talk(1, 6), token_usage=700)
    bot.model.rule(is_summary_request, answer)

    with untouched(bot, chat.umo):
        reply = chat.send(f"/compact engine {engine}").texts[-1]

    assert reply.startswith("❌")
    assert "历史未改动" in reply
    assert re.search(r"再试|换一个", reply)
    assert "SUMMARY-1" not in reply
    assert len(bot.model.summaries) <= 2
    assert chat.send("hello").text.startswith("Noted")
    assert archived(bot, chat.row().cid) == []


@both_engines
def test_a_model_that_never_answers_is_given_up(bot: Bot, chat: WebChat, engine: str) -> None:
    chat.seed(talk(1, 6), token_usage=700)
    bot.model.rule(is_summary_request, say(SUMMARY, gate=bot.model.gate()))

    with untouched(bot, chat.umo):
        reply = chat.send(f"/compact engine {engine} timeout 1").texts[-1]

    assert reply.startswith("❌ 模型 bed 在 1 秒内没有答复，历史未改动")
    assert "summary_timeout" in reply
    for request in bot.model.summaries:
        request.wait_ended()
        assert request.hung_up


@both_engines
def test_reasoning_before_a_summary_is_cleaned_away(bot: Bot, chat: WebChat, engine: str) -> None:
    """CASE 26."""
    chat.seed(talk(1, 6))
    bot.model.on_summary(f"<think>\nI should keep FACT-99.\n</think>\n{SUMMARY}")

    assert DONE in chat.send(f"/compact engine {engine}").text

    head = str(chat.row().messages[0]["content"])
    assert "SUMMARY-1" in head
    assert "think" not in head
    assert "FACT-99" not in head


@both_engines
def test_a_summary_longer_than_what_it_replaces_is_refused(
    bot: Bot, chat: WebChat, engine: str
) -> None:
    """CASE 14."""
    chat.seed(talk(1, 4, fillers=3))
    bot.model.rule(is_summary_request, say("## 目标\n" + FILLER * 68))

    with untouched(bot, chat.umo):
        reply = chat.send(f"/compact engine {engine}").texts[-1]

    assert reply.startswith("❌ 压缩后不会变小")
    assert "历史未改动" in reply


@pytest.mark.parametrize("rounds", [1, 2])
def test_a_talk_shorter_than_any_summary_is_left_alone(
    bot: Bot, chat: WebChat, rounds: int
) -> None:
    """CASE 14, its smallest kind: no sentence of ours may make a history longer."""
    chat.seed([message for n in range(rounds) for message in (user(f"嗯{n}"), assistant("好"))])

    with untouched(bot, chat.umo):
        reply = chat.send("/compact min 1 keep 0").texts[-1]

    assert "不会变小" in reply


# -- 5, 10, 11, 17: odd messages ------------------------------------------------------------


@both_engines
def test_contents_as_texts_and_as_parts_make_one_transcript(
    bot: Bot, chat: WebChat, engine: str
) -> None:
    """CASE 5."""
    mixed = talk(1, 6)
    for position in (1, 2, 5, 8, 10):
        text = mixed[position]["content"]
        middle = len(text) // 2
        parts = [{"type": "text", "text": each} for each in (text[:middle], text[middle:])]
        mixed[position]["content"] = parts
    mixed.insert(4, checkpoint("one"))
    chat.seed(mixed)
    before = raw_messages(chat.row().text)

    chat.send(f"/compact engine {engine} keep 0")

    assert set(marks(1, 6)) <= set(re.findall(r"FACT-\d", bot.model.summaries[0].text))
    assert [message.raw for message in archived(bot, chat.row().cid)] == before
    assert_strict_model_knows(chat, *marks(1, 6))


EMPTY_ANSWERS: dict[str, list[Message]] = {
    "no parts": [assistant([])],
    "empty text": [assistant("")],
    "null": [assistant(None)],
    "blank text": [assistant(" \n")],
    "reasoning alone": [assistant([{"type": "think", "think": "I wonder", "encrypted": None}])],
    "empty part beside a call": [
        calls("c9", content=[{"type": "text", "text": ""}]),
        result("c9"),
        assistant("好"),
    ],
    "empty part beside text": [
        assistant([{"type": "text", "text": ""}, {"type": "text", "text": "好"}])
    ],
    "empty result": [calls("c9"), result("c9", ""), assistant("好")],
}


@pytest.mark.hosts("newest")
@both_engines
@pytest.mark.parametrize("answer", EMPTY_ANSWERS.values(), ids=EMPTY_ANSWERS)
def test_no_empty_message_is_sent_to_the_summary_model(
    bot: Bot, chat: WebChat, engine: str, answer: list[Message]
) -> None:
    """CASE 10."""
    chat.seed([user("在吗 FACT-8"), *answer, *talk(1, 5)])
    bot.model.strict = True

    assert DONE in chat.send(f"/compact engine {engine}").text

    assert violations(bot.model.summaries[0].messages) == []
    assert_strict_model_knows(chat, "FACT-8", *marks(1, 5))


SIGNED = calls("c5")
SIGNED["tool_calls"][0] |= {
    "extra_content": {"google": {"thought_signature": "CgQxMjM0/+=="}},
    "index": 0,
}
SIGNED |= {"unknown": {"z": 1.50, "a": [None, True]}, "reasoning_content": "想了想"}
ODD_ROUND = [user("查 FACT-9", x_mine=1), SIGNED, result("c5", "短"), assistant("查好了", y=[1.0])]


@both_engines
def test_odd_keys_of_the_tail_come_back_key_for_key(bot: Bot, chat: WebChat, engine: str) -> None:
    """CASE 11."""
    chat.seed([*talk(1, 6), *ODD_ROUND])
    before = raw_messages(chat.row().text)

    assert DONE in chat.send(f"/compact engine {engine} keep 0.1").text

    assert raw_messages(chat.row().text)[-4:] == before[-4:]


def test_odd_keys_of_picked_messages_come_back_key_for_key(bot: Bot, chat: WebChat) -> None:
    """CASE 11, in the middle of what is summarised."""
    chat.seed([*talk(1, 3), *ODD_ROUND, *talk(4, 6)])
    before = raw_messages(chat.row().text)
    bot.model.on_summary(pick_units_with("FACT-9", "调用", "查好了"))

    reply = chat.send("/compact engine structured budget 0.5").texts[-1]

    assert "保留原文 4 条" in reply
    kept = raw_messages(chat.row().text)
    assert [raw for raw in kept if raw in before[6:10]] == before[6:10]
    assert_strict_model_knows(chat, "FACT-9", "FACT-6")


def pick_units_with(*words: str) -> Callable[[Request], Reply]:
    """A summary that picks every unit on offer which holds one of these words."""

    def step(request: Request) -> Reply:
        blocks = re.split(r"(?m)^(?=#\d+〔)", request.last)
        picked = [
            found[1]
            for block in blocks
            if (found := PICKS.match(block)) and any(word in block for word in words)
        ]
        assert picked, request.last
        return say(f"【保留原文】{' '.join(f'#{number}' for number in picked)}\n{SUMMARY}")

    return step


UNSAFE = ["ok \ud83d end", "\udfff", "nul\x00nul", "line\u2028para\u2029", "\ufeff", "a\rb\x07"]


@both_engines
def test_unsafe_characters_are_valid_in_the_copy_and_untouched_in_the_store(
    bot: Bot, chat: WebChat, engine: str
) -> None:
    """CASE 17."""
    odd = [m for text in UNSAFE for m in (user(f"{text} FACT-9"), assistant(text))]
    for text in UNSAFE:
        odd += [user([{"type": "text", "text": text}]), calls("c" + text, content=text)]
        odd += [result("c" + text, text), assistant([{"type": "text", "text": text}])]
    chat.seed([*odd, *talk(1, 4), *odd[:2]])
    before = raw_messages(chat.row().text)

    assert DONE in chat.send(f"/compact engine {engine} keep 0.1").text

    sent = json.dumps(bot.model.summaries[0].body, ensure_ascii=False)
    sent.encode("utf-8")
    assert "\\u0000" not in sent
    assert "FACT-9" in sent
    assert raw_messages(chat.row().text)[-2:] == before[-2:]
    on_record = archived(bot, chat.row().cid)
    assert [message.raw for message in on_record] == before[:-2]
    for message in on_record:
        message.text.encode("utf-8")


# -- 8: providers ---------------------------------------------------------------------------

PROVIDERS = {
    "nope": "⚠️ 已跳过本次选项里的 nope：没有这个模型，改用 bed",
    "vectors": "⚠️ 已跳过本次选项里的 vectors：不是聊天模型，改用 bed",
    "off": "⚠️ 已跳过本次选项里的 off：已停用，改用 bed",
    "bed ": None,
    " small": None,
}


@pytest.mark.parametrize("provider_id", PROVIDERS)
def test_a_provider_that_cannot_be_used_is_named_with_the_one_that_was(
    bot: Bot, chat: WebChat, provider_id: str
) -> None:
    """CASE 8."""
    chat.seed(talk(1, 6))

    reply = chat.send(f'/compact provider "{provider_id}"').texts[-1]

    skipped = PROVIDERS[provider_id]
    used = "bed" if skipped else provider_id.strip()
    assert f"(使用 {used} 生成)" in reply
    assert (skipped or DONE) in reply
    assert ("已跳过" in reply) == (skipped is not None)
    assert bot.model.summaries[0].model == f"{used}-model"


# -- 16: an open question -------------------------------------------------------------------

QUESTION = "对了，七乘以六是多少？"


def answer_what_is_read_last(request: Request) -> Reply:
    """A model that answers a question if that is how its input ends."""
    return say("四十二。") if request.last.rstrip().endswith("？") else carry_marks(request)


@both_engines
def test_the_instruction_comes_after_an_open_question(bot: Bot, chat: WebChat, engine: str) -> None:
    """CASE 16."""
    chat.seed([*talk(1, 5), user(QUESTION)])
    bot.model.rule(is_summary_request, answer_what_is_read_last)

    assert DONE in chat.send(f"/compact engine {engine} keep 0").text

    head = str(chat.row().messages[0]["content"])
    assert "四十二" not in head
    assert "FACT-1" in head
    if engine == "structured":
        before, fenced, after = re.split(r"</?talk>", bot.model.summaries[0].last)
        assert QUESTION in fenced
        assert QUESTION not in before + after
        assert after.strip()


def test_a_bare_answer_is_no_summary(bot: Bot, chat: WebChat) -> None:
    """CASE 16."""
    chat.seed([*talk(1, 5), user(QUESTION)])
    bot.model.rule(is_summary_request, say("四十二。"))

    with untouched(bot, chat.umo):
        reply = chat.send("/compact engine structured keep 0").texts[-1]

    assert "不是摘要" in reply
    assert len(bot.model.summaries) == 2


# -- 20: usage ------------------------------------------------------------------------------


def test_a_compaction_is_not_followed_by_another(bot: Bot, chat: WebChat) -> None:
    """CASE 20: the next turn reports no usage, and nothing old may be taken for it."""
    chat.seed(talk(1, 20), token_usage=7_400)
    assert "(使用 small 生成)" in chat.send("/compact provider small").text
    assert chat.row().token_usage == 0
    head = chat.row().messages[0]
    requests = len(bot.model.summaries)

    chat.send("one", provider="small")
    bot.model.usage = None
    chat.send("two", provider="small")
    bot.model.usage = "estimate"
    # A turn takes the session's lock after what the turn before it started.
    chat.send("three", provider="small")
    chat.send("four", provider="small")

    assert chat.row().messages[0] == head
    assert len(bot.model.summaries) == requests


# -- 21, 24: what stays ---------------------------------------------------------------------


@both_engines
@pytest.mark.parametrize("ratio", [0, 0.15, 0.3])
def test_each_recent_mark_is_summarised_or_kept(
    bot: Bot, chat: WebChat, engine: str, ratio: float
) -> None:
    """CASE 21."""
    history = talk(1, 12)
    chat.seed(history)

    chat.send(f"/compact engine {engine} keep {ratio}")

    kept = text_of(chat.row().messages[2:])
    for mark in marks(10, 12):
        assert (mark in bot.model.summaries[0].text) != (mark in kept)
    assert (ratio == 0) == (roles(chat.row().messages) == "UA_")
    assert_strict_model_knows(chat, *marks(1, 12))


LONG_ROUND = [user("看一下" + FILLER * 60), calls("c1"), result("c1"), assistant("看完了 FACT-7")]
LIVE_ROUND = [user("FACT-7 看一下"), calls("c1"), result("c1", FILLER * 60), assistant("看完了")]
TAILS: dict[str, tuple[list[Message], str]] = {
    "a user's": (talk(6, 7), "keep 0.3"),
    "a call": (LONG_ROUND, "keep 0.3"),
    "an answer": (LIVE_ROUND, "keep 0.1"),
    "empty": (talk(6, 7), "keep 0"),
    "a doubled user's": ([user("在吗"), user("在吗 FACT-7"), assistant("在")], "keep 0.3"),
    "a question without an answer": ([user("在吗 FACT-7")], "keep 0.3"),
}


@pytest.mark.hosts("newest")
@both_engines
@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("first", ["user", "assistant"])
def test_roles_alternate_whatever_the_tail_begins_with(
    bot: Bot, chat: WebChat, engine: str, tail: str, first: str
) -> None:
    """CASE 24: after this compaction, a turn, and the next compaction."""
    messages, options = TAILS[tail]
    chat.seed([*([assistant("你好")] if first == "assistant" else []), *talk(1, 5), *messages])
    before = len(own_faults(chat))

    for later in ("FACT-80", "FACT-81"):
        assert DONE in chat.send(f"/compact engine {engine} min 1 {options}").text
        history = without_checkpoints(chat.row().messages)
        assert is_compacted(history)
        assert history[0]["role"] == "user"
        assert len(own_faults(chat)) <= before
        chat.send(f"now {later}. " + FILLER * 20)
        chat.send("好的")

    assert text_of(chat.row().messages).count(HEAD) == 1
    if before == 0:
        assert_strict_model_knows(chat, "FACT-1", "FACT-5", "FACT-80", "FACT-81")


def own_faults(chat: WebChat) -> list[str]:
    """What a strict server would refuse in the history if a user's message followed."""
    history = without_checkpoints(chat.row().messages)
    return [
        fault
        for fault in violations([*history, user("next")])
        if "is of role" not in fault or is_compacted(history)
    ]


PICKED = {
    "an answer first": ("第 1 件事记下了",),
    "two answers": ("第 1 件事记下了", "第 3 件事记下了"),
    "two users'": ("代号是 FACT-1", "代号是 FACT-4"),
    "an answer and the next user's": ("第 2 件事记下了", "代号是 FACT-3"),
    "the last answer of the span": ("第 5 件事记下了",),
    "a round": ("代号是 FACT-2", "第 2 件事记下了"),
}


@pytest.mark.hosts("newest")
@pytest.mark.parametrize("words", PICKED.values(), ids=PICKED)
@pytest.mark.parametrize("keep", ["keep 0", "keep 0.2"])
def test_roles_alternate_around_picked_messages(
    bot: Bot, chat: WebChat, words: tuple[str, ...], keep: str
) -> None:
    """CASE 24: retained messages, now and after the next compaction."""
    history = talk(1, 6, fillers=2)
    chat.seed(history)
    bot.model.on_summary(pick_units_with(*words))

    reply = chat.send(f"/compact engine structured budget 0.5 {keep}").texts[-1]

    assert f"保留原文 {len(words)} 条" in reply
    stored = chat.row().messages
    for word in words:
        assert next(m for m in history if word in m["content"]) in stored
    assert stored[1]["role"] == "assistant"
    assert (stored[1]["content"] == ACKNOWLEDGEMENT) == (stored[1] not in history)
    assert_strict_model_knows(chat, *re.findall(r"FACT-\d", " ".join(words)), "SUMMARY-1")

    assert DONE in chat.send(f"/compact engine structured min 1 {keep} 再压一次").text
    assert_strict_model_knows(chat, "SUMMARY-1")
    markers = [m for m in chat.row().messages if "摘要。）" in str(m["content"])[:40]]
    assert len(markers) <= 1
