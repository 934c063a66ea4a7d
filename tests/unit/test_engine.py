"""One summary from one or several requests."""

from __future__ import annotations

import re
from typing import Any

import pytest
from astrbot_plugin_compact.summary.cache import ChunkCache
from astrbot_plugin_compact.summary.cost import DEAREST, MILLI, UNMEASURED
from astrbot_plugin_compact.summary.engine import summarize
from astrbot_plugin_compact.summary.errors import (
    CompactError,
    ContextTooLong,
    CutSummary,
    EmptySummary,
    NotSmaller,
    ProviderFailed,
    SummaryTimeout,
    UnusableSummary,
)
from astrbot_plugin_compact.summary.host import ModelReply, ModelRequest
from astrbot_plugin_compact.summary.prompt import FIRST_LINE
from astrbot_plugin_compact.summary.task import SummaryResult, SummaryTask, prepare
from astrbot_plugin_compact.summary.todos import Todo
from hypothesis import given
from hypothesis import strategies as st

from tests.summaries import (
    ESTIMATE,
    WORK_SUMMARY,
    EchoModel,
    ScriptedModel,
    Steps,
    assistant,
    call,
    make_task,
    result,
    user,
)

BODY = WORK_SUMMARY.partition("\n")[2]
TALK = [user("请写报告。" + "细节" * 300), assistant("好的。" + "内容" * 300), user("继续" * 50)]
# Eight units of 700 letters; a request of a 4,000-token window holds one of them and a bit.
LONG_TALK = [(user if n % 2 == 0 else assistant)(f"第{n}条" + chr(97 + n) * 700) for n in range(8)]
TOO_LONG = ContextTooLong(provider="tiny", detail="too long")


def summary(keep: str = "无", body: str = BODY) -> str:
    return f"【保留原文】{keep}\n{body}"


async def run(task: SummaryTask, *steps: Any, cache: ChunkCache | None = None) -> SummaryResult:
    with ScriptedModel(*steps) as model:
        return await summarize(task, model, Steps(), cache)


async def fail(task: SummaryTask, *steps: Any, cache: ChunkCache | None = None) -> CompactError:
    with ScriptedModel(*steps) as model, pytest.raises(CompactError) as failed:
        await summarize(task, model, Steps(), cache)
    return failed.value


async def test_a_history_that_fits_takes_one_request() -> None:
    steps = Steps()
    with ScriptedModel(WORK_SUMMARY) as model:
        found = await summarize(make_task(TALK), model, steps)
    assert found == SummaryResult(BODY, frozenset(), 1, None, None, None, ())
    assert steps.seen == [(1, 1)]
    [request] = model.requests
    assert request.system.startswith(FIRST_LINE)
    assert "<earlier>" not in request.user
    for message in TALK:
        assert message["content"] in request.user


async def test_limits_timeout_and_extra_body_go_along() -> None:
    task = make_task(TALK, extra_body={"thinking": {"type": "disabled"}}, timeout_seconds=9.5)
    with ScriptedModel(WORK_SUMMARY) as model:
        await summarize(task, model, Steps())
    [request] = model.requests
    assert request.max_tokens == prepare(task).budget.request_tokens == 1_500
    assert request.timeout_seconds == 9.5
    assert request.extra_body == {"thinking": {"type": "disabled"}}


async def test_picks_come_back_as_units() -> None:
    task = make_task([user("短一"), user("短二"), *TALK], ratio=0.5)
    found = await run(task, summary("#1 #2"))
    assert found.retained == {0, 1}
    assert found.warnings == ()


async def test_picks_over_the_cap_go_from_the_earliest() -> None:
    # Ten units of 60 tokens; a tenth of the new content is one of them.
    messages = [user("字" * 100) for _ in range(10)]
    task = make_task(messages, ratio=0.1)
    assert prepare(task).budget.retain_cap_tokens // 60 == 1
    assert (await run(task, summary("#3 #7"))).retained == {6}


async def test_picks_take_what_the_summary_leaves_of_the_budget() -> None:
    messages = [user("字" * 100) for _ in range(10)]
    task = make_task(messages, ratio=0.5)
    stated = prepare(task).budget.stated_tokens
    body = "## 目标\n" + "写" * ((stated - 130) * 5 // 3)
    assert (await run(task, summary("#1 #2 #3", body))).retained == {1, 2}


async def test_a_unit_kept_by_rule_counts_and_stays() -> None:
    messages = [user("字" * 100) for _ in range(10)]
    task = make_task(messages, ratio=0.5, kept_by_rule=frozenset({9}))
    stated = prepare(task).budget.stated_tokens
    body = "## 目标\n" + "写" * ((stated - 130) * 5 // 3)
    assert (await run(task, summary("#1 #2", body))).retained == {1, 9}
    full = "## 目标\n" + "写" * (stated * 5 // 3)
    assert (await run(task, summary("#1", full))).retained == {9}


async def test_the_summary_asked_for_is_smaller_also_beside_a_unit_kept_by_rule() -> None:
    messages = [user("字" * 100) for _ in range(10)]
    task = make_task(messages, kept_by_rule=frozenset({9}))
    with ScriptedModel(summary()) as model:
        await summarize(task, model, Steps())
    # Of 600 tokens the pair takes 60 and the unit 60; what is stored must be one less at least.
    assert prepare(task).asked_tokens == 600 - 60 - 60 - 1
    assert "约 479 tokens" in model.requests[0].system


async def test_a_missing_or_wordy_retain_block_is_one_warning() -> None:
    task = make_task([user("短"), *TALK])
    assert (await run(task, BODY)).warnings == (("warning.keep_missing", {"provider": "tiny"}),)
    assert (await run(task, summary("都要"))).warnings == (
        ("warning.keep_unreadable", {"provider": "tiny"}),
    )


async def test_with_nothing_on_offer_the_heading_is_not_asked_for_and_still_taken_out() -> None:
    task = make_task(TALK, ratio=0.0)
    with ScriptedModel(summary("#1")) as model:
        found = await summarize(task, model, Steps())
    assert "【保留原文】" not in model.requests[0].system + model.requests[0].user
    assert found.summary == BODY
    assert found.retained == frozenset()
    assert found.warnings == ()


async def test_an_earlier_summary_is_merged() -> None:
    task = make_task(TALK, earlier="## 目标\n旧目标")
    with ScriptedModel(WORK_SUMMARY) as model:
        await summarize(task, model, Steps())
    assert model.requests[0].user.startswith("<earlier>\n## 目标\n旧目标\n</earlier>\n<talk>\n")
    assert "并入同名小节" in model.requests[0].system


async def test_focus_instruction_and_to_dos_stand_in_every_request() -> None:
    task = make_task(
        LONG_TALK,
        window_tokens=4_000,
        focus="数据库",
        instruction="别漏数字",
        todos=(Todo("open", "甲"),),
    )
    model = EchoModel(lambda _: ModelReply(WORK_SUMMARY))
    await summarize(task, model, Steps())
    assert len(model.requests) > 2
    for request in model.requests:
        assert "额外要求：别漏数字\n重点关注：数据库\n" in request.user
        assert "- [open] 甲" in request.user


async def test_several_requests_hand_on_summary_and_picks() -> None:
    messages = [user("短"), *LONG_TALK]
    task = make_task(messages, window_tokens=4_000, ratio=0.5)
    bodies = [f"## 目标\n第{n}版" for n in range(30)]
    count = prepare(task).requests

    def answer(request: ModelRequest) -> ModelReply:
        return ModelReply(summary("#1", bodies[len(model.requests) - 1]))

    model = EchoModel(answer)
    steps = Steps()
    found = await summarize(task, model, steps)
    assert found.requests == len(model.requests) == count > 2
    assert found.retained == {0}
    assert found.summary == bodies[count - 1]
    for number, request in enumerate(model.requests):
        assert "#1〔约 0 token〕用户: 短" in request.user or "用户: 短" in request.user
        if number:
            assert f"<earlier>\n{bodies[number - 1]}\n</earlier>" in request.user
            assert "并入同名小节" in request.system
    assert [step for step, _ in steps.seen] == list(range(1, count + 1))
    assert all(step <= of for step, of in steps.seen)


async def test_every_unit_is_in_a_request_and_none_is_over_the_window() -> None:
    task = make_task(LONG_TALK, window_tokens=4_000, earlier="## 目标\n旧")
    model = EchoModel(lambda _: ModelReply(WORK_SUMMARY))
    await summarize(task, model, Steps())
    budget = prepare(task).budget
    for request in model.requests:
        text = re.sub(r"<earlier>.*</earlier>", "", request.user, flags=re.DOTALL)
        cost = -(-UNMEASURED.of(request.system + text) // MILLI)
        assert cost + budget.physical_tokens + request.max_tokens <= 4_000
    sent = "".join(request.user for request in model.requests)
    for n in range(8):
        assert sent.count(chr(97 + n) * 50) >= 10


async def test_what_text_really_costs_makes_later_requests_larger() -> None:
    def answer(request: ModelRequest) -> ModelReply:
        chars = len(request.system) + len(request.user)
        return ModelReply(WORK_SUMMARY, input_tokens=chars // 4, cached_tokens=0, output_tokens=50)

    task = make_task([user("x" * 30_000)], window_tokens=4_000)
    model = EchoModel(answer)
    found = await summarize(task, model, Steps())
    assert found.requests < prepare(task).requests // 2
    assert found.input_tokens == sum((len(r.system) + len(r.user)) // 4 for r in model.requests)
    assert found.cached_tokens == 0
    assert found.output_tokens == 50 * found.requests


async def test_usage_never_reported_is_unknown() -> None:
    found = await run(make_task(TALK), WORK_SUMMARY)
    assert (found.input_tokens, found.cached_tokens, found.output_tokens) == (None, None, None)


async def test_a_context_error_falls_back_to_the_dearest_cost_once() -> None:
    task = make_task([user("x" * 60_000)], window_tokens=64_000)
    assert prepare(task).requests == 1
    # 60,000 letters at two tokens are 120,000; a request holds some 46,000. What the model then
    # reports of its usage no longer counts: its tokens were not the reason.
    cheap = ModelReply(WORK_SUMMARY, input_tokens=100)
    with ScriptedModel(TOO_LONG, cheap, cheap, cheap) as model:
        found = await summarize(task, model, Steps())
    assert found.requests == 4
    assert found.warnings == (("warning.context_fallback", {"provider": "tiny"}),)
    for request in model.requests[1:]:
        assert DEAREST.of(request.system + request.user) + request.max_tokens * MILLI < 64_000_000


async def test_a_second_context_error_ends_the_run() -> None:
    task = make_task([user("x" * 60_000)], window_tokens=64_000)
    assert await fail(task, TOO_LONG, WORK_SUMMARY, TOO_LONG) is TOO_LONG


async def test_a_context_error_that_cannot_be_helped_is_not_tried_again() -> None:
    assert await fail(make_task(TALK), TOO_LONG) is TOO_LONG


async def test_after_a_context_error_a_long_earlier_summary_is_fed_in_pieces() -> None:
    earlier = "旧" * 3_000
    task = make_task(TALK, earlier=earlier, window_tokens=8_000)
    assert prepare(task).start.summary == earlier

    class Refusing(EchoModel):
        async def ask(self, request: ModelRequest) -> ModelReply:
            if not self.requests:
                self.requests.append(request)
                raise TOO_LONG
            return await super().ask(request)

    model = Refusing(lambda _: ModelReply(WORK_SUMMARY))
    await summarize(task, model, Steps())
    pieces = [request.user.count("旧") for request in model.requests[1:]]
    assert sum(pieces) == 3_000
    assert max(pieces) < 3_000


async def test_a_cut_reply_is_retried_once_smaller_and_with_the_limit_at_its_highest() -> None:
    task = make_task(TALK)
    with ScriptedModel(ModelReply("## 目标\n写到一", cut=True), WORK_SUMMARY) as model:
        found = await summarize(task, model, Steps())
    first, second = model.requests
    budget = prepare(task).budget
    assert f"约 {budget.stated_tokens} tokens" in first.system
    assert f"约 {budget.stated_tokens // 2} tokens" in second.system
    assert second.max_tokens == budget.physical_tokens > first.max_tokens
    assert found.summary == BODY
    assert found.requests == 2


async def test_the_retry_stays_within_the_window() -> None:
    task = make_task(
        [*LONG_TALK, *LONG_TALK, *LONG_TALK],
        window_tokens=12_000,
        line_tokens=4_000,
        earlier="## 目标\n" + "旧" * 4_000,
    )
    calls = 0

    def answer(request: ModelRequest) -> ModelReply:
        nonlocal calls
        calls += 1
        return ModelReply(WORK_SUMMARY, cut=calls % 2 == 1)

    model = EchoModel(answer)
    await summarize(task, model, Steps())
    budget = prepare(task).budget
    assert budget.request_tokens < budget.physical_tokens
    for request in model.requests[1::2]:
        cost = -(-UNMEASURED.of(request.system + request.user) // MILLI)
        assert request.max_tokens == max(
            budget.request_tokens, min(budget.physical_tokens, 12_000 - cost)
        )
    limits = {request.max_tokens for request in model.requests[1::2]}
    assert limits == {budget.request_tokens, budget.physical_tokens}


@pytest.mark.parametrize(
    "cut",
    [
        ModelReply("", cut=True),
        ModelReply("", reasoning_only=True),
        ModelReply("<think>没完"),
    ],
)
async def test_a_reply_cut_twice_fails(cut: ModelReply) -> None:
    failure = await fail(make_task(TALK), cut, cut)
    assert isinstance(failure, CutSummary)
    assert failure.fields == {"provider": "tiny"}


async def test_a_chunks_summary_longer_than_a_reply_may_be_counts_as_cut() -> None:
    task = make_task(LONG_TALK, window_tokens=4_000)
    endless = ModelReply(summary("无", "## 目标\n" + "写" * 2_000))
    assert isinstance(await fail(task, endless, endless), CutSummary)


@pytest.mark.parametrize("text", ["", " ", "\n\n", "【保留原文】#1", summary("无", "## 目标\n无")])
async def test_a_reply_with_nothing_in_it_fails_at_once(text: str) -> None:
    failure = await fail(make_task([user("短"), *TALK]), text)
    assert isinstance(failure, EmptySummary)


async def test_without_headings_the_demand_is_repeated() -> None:
    task = make_task(TALK)
    with ScriptedModel("报告我写好了。", WORK_SUMMARY) as model:
        found = await summarize(task, model, Steps())
    assert "必须写出各标题" not in model.requests[0].user
    assert "必须写出各标题" in model.requests[1].user
    assert model.requests[1].max_tokens == model.requests[0].max_tokens
    assert found.summary == BODY


async def test_headings_in_the_other_language_are_headings() -> None:
    english = "[Keep verbatim] none\n## Goal\nWrite it"
    assert (await run(make_task(TALK), english)).summary == "## Goal\nWrite it"


async def test_a_bare_answer_given_twice_is_not_stored() -> None:
    failure = await fail(make_task(TALK), "报告写好了。", "报告写好了。")
    assert isinstance(failure, UnusableSummary)
    assert failure.fields == {"provider": "tiny", "detail": "no headings"}


async def test_prose_of_a_summarys_length_is_accepted_the_second_time() -> None:
    prose = "他们讨论了报告。" * 60
    found = await run(make_task(TALK, ratio=0.0), prose, prose)
    assert found.summary == prose
    assert found.warnings == (("warning.no_headings", {"provider": "tiny"}),)


async def test_a_cut_reply_and_a_missing_heading_each_have_their_retry() -> None:
    cut = ModelReply("", cut=True)
    with ScriptedModel(cut, "报告写好了。", WORK_SUMMARY) as model:
        found = await summarize(make_task(TALK), model, Steps())
    assert found.requests == 3
    assert "必须写出各标题" in model.requests[2].user
    assert isinstance(await fail(make_task(TALK), cut, "报告写好了。", cut), CutSummary)


@pytest.mark.parametrize(
    "error",
    [
        ProviderFailed(provider="tiny", detail="429"),
        SummaryTimeout(provider="tiny", seconds=180),
    ],
)
async def test_the_providers_failure_passes_through(error: CompactError) -> None:
    assert await fail(make_task(TALK), error) is error


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (ModelReply("boom", role="err"), ProviderFailed),
        (ModelReply("", tool_call=True), UnusableSummary),
        (ModelReply("", refusal=True), UnusableSummary),
        (ModelReply("<tool_call>x"), UnusableSummary),
    ],
)
async def test_a_reply_that_is_no_summary_fails_at_once(
    reply: ModelReply, kind: type[CompactError]
) -> None:
    assert isinstance(await fail(make_task(TALK), reply), kind)


async def test_a_failure_in_a_later_request_fails_the_run() -> None:
    task = make_task(LONG_TALK, window_tokens=4_000)
    assert isinstance(await fail(task, WORK_SUMMARY, WORK_SUMMARY, ""), EmptySummary)


async def test_a_run_that_cannot_get_smaller_asks_nobody() -> None:
    task = make_task([user("嗨"), assistant("嗨")])
    failure = await fail(task)
    assert isinstance(failure, NotSmaller)
    assert failure.fields == {"before": 0, "after": 61}


async def test_finished_chunks_of_a_failed_run_are_not_paid_for_again() -> None:
    cache = ChunkCache()
    task = make_task(LONG_TALK, window_tokens=4_000)
    whole = EchoModel(lambda _: ModelReply(summary("#1")))
    expected = await summarize(task, whole, Steps())
    error = ProviderFailed(provider="tiny", detail="503")
    await fail(task, summary("#1"), summary("#1"), error, cache=cache)
    steps = Steps()
    rest = [summary("#1")] * (len(whole.requests) - 2)
    with ScriptedModel(*rest) as model:
        found = await summarize(task, model, steps, cache)
    assert [r.user for r in model.requests] == [r.user for r in whole.requests[2:]]
    assert found.summary == expected.summary
    assert found.requests == len(rest)
    assert steps.seen[0][0] == 3


async def test_chunks_finished_after_a_context_error_are_reused_after_the_next_one() -> None:
    cache = ChunkCache()
    task = make_task([user("x" * 60_000)], window_tokens=64_000)
    error = ProviderFailed(provider="tiny", detail="503")
    await fail(task, TOO_LONG, WORK_SUMMARY, WORK_SUMMARY, error, cache=cache)
    assert (await run(task, TOO_LONG, WORK_SUMMARY, cache=cache)).requests == 2


async def test_another_focus_or_model_starts_anew() -> None:
    cache = ChunkCache()
    error = ProviderFailed(provider="tiny", detail="503")
    task = make_task(LONG_TALK, window_tokens=4_000)
    await fail(task, WORK_SUMMARY, error, cache=cache)
    other = make_task(LONG_TALK, window_tokens=4_000, focus="数据")
    with ScriptedModel(error) as model, pytest.raises(ProviderFailed):
        await summarize(other, model, Steps(), cache)
    assert "<earlier>" not in model.requests[0].user
    with ScriptedModel(error, model="m2") as model, pytest.raises(ProviderFailed):
        await summarize(task, model, Steps(), cache)
    assert "<earlier>" not in model.requests[0].user


async def test_identifiers_left_out_close_the_summary() -> None:
    messages = [
        user("看 /srv/app/main.py 和 /srv/app/util.py。" + "细节" * 300),
        assistant(None, call("c1", "read", '{"path": "/srv/app/conf.toml"}')),
        result("c1", "x"),
    ]
    body = "## 目标\n改 /srv/app/util.py"
    found = await run(make_task(messages), summary("无", body))
    assert found.summary == f"{body}\n\n标识：/srv/app/conf.toml | /srv/app/main.py"
    kept = make_task(messages, kept=make_task([user("/srv/app/main.py")]).units)
    assert (await run(kept, summary("无", body))).summary.endswith("标识：/srv/app/conf.toml")


async def test_an_earlier_line_of_identifiers_lives_on_and_is_not_doubled() -> None:
    task = make_task(TALK, earlier="## 目标\n旧\n\n标识：/a/old.py | /a/b.py")
    reply = summary("无", "## 目标\n新 /a/b.py\n\n标识：/a/old.py | /a/b.py")
    assert (await run(task, reply)).summary == "## 目标\n新 /a/b.py\n\n标识：/a/old.py"


async def test_the_line_of_identifiers_never_makes_the_result_too_large() -> None:
    messages = [user(" ".join(f"/srv/data/file{n}.txt" for n in range(300)))]
    task = make_task(messages)
    stated = prepare(task).budget.stated_tokens
    body = "## 目标\n" + "写" * (stated * 5 // 3 - 60)
    found = await run(task, summary("无", body))
    assert "标识：" in found.summary
    assert ESTIMATE.text(found.summary) <= stated
    full = await run(task, summary("无", body + "写" * 80))
    assert "标识：" not in full.summary
    by_rule = make_task([*messages, user("字" * 100)], kept_by_rule=frozenset({1}))
    beside = await run(by_rule, summary("无", body + "写" * 50))
    assert "标识：" not in beside.summary


async def test_what_is_stored_is_valid_utf_8() -> None:
    found = await run(make_task(TALK), "## 目标\nok \ud83d")
    assert found.summary == "## 目标\nok \ufffd"


sizes = st.lists(
    st.tuples(st.sampled_from(["user", "assistant", "system", "tool"]), st.integers(0, 900)),
    min_size=1,
    max_size=9,
)


@given(sizes, st.sampled_from([4_000, 4_700, 9_000]), st.sampled_from([0.0, 0.1, 0.5]))
async def test_every_character_reaches_the_model_in_bounded_calls(
    sizes: list[tuple[str, int]], window: int, ratio: float
) -> None:
    # Each message is of a character of its own, half of them dear ones.
    letters = [chr((0x5A00 if n % 2 else 0x41) + n) for n in range(len(sizes))]
    messages: list[dict[str, Any]] = []
    for letter, (role, size) in zip(letters, sizes, strict=True):
        text = letter * size
        messages += (
            [assistant(text, call(letter, "f")), result(letter, "x")]
            if role == "tool"
            else [{"role": role, "content": text}]
        )
    task = make_task(messages, window_tokens=window, ratio=ratio, replaced_tokens=10_000)
    offered: list[set[str]] = []

    def answer(request: ModelRequest) -> ModelReply:
        offered.append(set(re.findall(r"^#(\d+)〔", request.user, re.MULTILINE)))
        return ModelReply(summary(" ".join(f"#{number}" for number in offered[-1])))

    model = EchoModel(answer)
    found = await summarize(task, model, Steps())
    sent = "".join(request.user for request in model.requests)
    for letter, (_, size) in zip(letters, sizes, strict=True):
        assert sent.count(letter) >= size
    prepared = prepare(task)
    assert found.requests <= 2 * prepared.requests + 1
    assert all(prepared.candidates[index].keepable for index in found.retained)
    assert len(found.retained) <= len(offered[-1])
    kept_tokens = sum(task.units[index].tokens for index in found.retained)
    assert kept_tokens <= prepared.budget.retain_cap_tokens


async def test_one_message_of_9000_tokens_and_a_window_of_4000() -> None:
    task = make_task([user("x" * 30_000), assistant("好")], window_tokens=4_000)
    model = EchoModel(lambda _: ModelReply(WORK_SUMMARY))
    found = await summarize(task, model, Steps())
    assert found.requests <= 20
    assert sum(request.user.count("x") for request in model.requests) >= 30_000


async def test_a_tool_result_of_two_million_characters_is_one_request() -> None:
    messages = [assistant(None, call("c1", "f")), result("c1", "字x" * 1_000_000), *TALK]
    found = await run(make_task(messages, window_tokens=8_000), WORK_SUMMARY)
    assert found.requests == 1
