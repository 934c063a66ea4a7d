"""Compacted histories on the wire: what AstrBot's own sources make of them (spec 2.7).

Each history is generated, compacted twice with turns in between, stored, loaded and sent as
AstrBot does it in a turn, by its real sources, to a server that only looks. A source may merge
neighbours, drop what is empty or cut off what does not answer to anything: then the request is
sound though the history is not. So both are looked at, and everything kept must arrive.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any, Self

import pytest
from astrbot.core.agent.message import Message, bind_checkpoint_messages
from astrbot_plugin_compact.summary.compose import compose, new_checkpoint
from astrbot_plugin_compact.summary.heads import KnownHead, head_text, text_hash
from astrbot_plugin_compact.summary.history import Stored, dump_history, parse_history
from astrbot_plugin_compact.summary.plan import PlanOptions, Skip, plan_compaction, read_layout
from astrbot_plugin_compact.summary.render import Names, render_units
from astrbot_plugin_compact.summary.retention import can_be_kept
from astrbot_plugin_compact.summary.tokens import Estimator
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.bed.wire import violations
from tests.contract.api_server import running_server
from tests.contract.core import make_provider
from tests.contract.dialects import Speech
from tests.contract.test_model import SPEECHES

Plain = dict[str, Any]

MARK = re.compile(r"MARK\d+")
PNG = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwAD"
    "hgGAWjR9awAAAABJRU5ErkJggg=="
)
NEXT = {"role": "user", "content": "NEXT-TURN"}
ESTIMATE = Estimator()


# --- histories

SOUND = ("plain", "tools", "two calls", "signed call", "image", "reasoning", "parts")
ODD = (
    *("no answer", "doubled answer", "empty answer", "no result", "lone result", "file"),
    *("answer alone", "reasoning alone", "result twice", "stopped call"),
    # The Gemini source of 4.25 loses a call beside text.
    "call beside text",
)


class _Talk:
    """Writes rounds; every text has a mark of its own, so that it can be found on the wire."""

    def __init__(self) -> None:
        self._count = 0

    def text(self, words: int = 3) -> str:
        self._count += 1
        return f"MARK{self._count} " + "词 word " * words

    def calls(self, *ids: str, **more: Any) -> Plain:
        function = {"name": "look_up", "arguments": json.dumps({"word": self.text(1)})}
        calls = [{"type": "function", "id": id_, "function": function, **more} for id_ in ids]
        return {"role": "assistant", "content": None, "tool_calls": calls}

    def result(self, id_: str) -> Plain:
        return {"role": "tool", "tool_call_id": id_, "content": self.text()}

    def user(self, words: int = 3) -> Plain:
        return {"role": "user", "content": self.text(words)}

    def answer(self, words: int = 3) -> Plain:
        return {"role": "assistant", "content": self.text(words)}

    def round(self, kind: str, words: int, recorded: bool) -> list[Plain]:
        a, b = f"call_{self._count}_a", f"call_{self._count}_b"
        user, answer = self.user(words), self.answer(words)
        think = {"type": "think", "think": "hm", "encrypted": None}
        group = [self.calls(a), self.result(a)]
        messages = {
            "plain": lambda: [user, answer],
            "tools": lambda: [user, *group, answer],
            "two calls": lambda: [
                *(user, self.calls(a, b), self.result(b), self.result(a)),
                *(self.calls("again" + a), self.result("again" + a), answer),
            ],
            "signed call": lambda: [
                user,
                self.calls(a, extra_content={"google": {"thought_signature": "c2ln"}}),
                self.result(a),
                answer,
            ],
            "image": lambda: [
                user
                | {
                    "content": [
                        {"type": "text", "text": user["content"]},
                        {"type": "image_url", "image_url": {"url": PNG}},
                    ]
                },
                answer,
            ],
            "reasoning": lambda: [
                user,
                answer | {"content": [think, {"type": "text", "text": answer["content"]}]},
            ],
            "parts": lambda: [
                user | {"content": [{"type": "text", "text": t} for t in (user["content"], "x")]},
                answer,
            ],
            "call beside text": lambda: [
                *(user, self.calls(a) | {"content": self.text()}, self.result(a), answer),
            ],
            # What failed and stopped turns, other plugins and the host's trimming leave behind.
            "no answer": lambda: [user],
            "doubled answer": lambda: [user, answer, self.answer()],
            "empty answer": lambda: [user, answer | {"content": ""}],
            "no result": lambda: [user, self.calls(a, b), self.result(a), answer],
            "lone result": lambda: [user, self.result(a), answer],
            "file": lambda: [user, {"role": "system", "content": self.text()}, answer],
            "answer alone": lambda: [answer],
            "reasoning alone": lambda: [user, answer | {"content": [think]}],
            "result twice": lambda: [user, *group, self.result(a), answer],
            "stopped call": lambda: [user, *group],
        }[kind]()
        checkpoint = {"role": "_checkpoint", "content": {"id": f"turn{self._count}"}}
        return [*messages, *([checkpoint] if recorded else [])]


@dataclass(frozen=True)
class Case:
    """A history never compacted, and the same after two compactions."""

    whole: tuple[Plain, ...]
    compacted: tuple[Plain, ...]

    @property
    def dialog(self) -> list[Plain]:
        """The compacted history and the next turn's message, as a plain server would get it."""
        messages = [m for m in self.compacted if m["role"] != "_checkpoint"]
        return [*messages, NEXT]


@st.composite
def cases(draw: st.DrawFn, kinds: Sequence[str]) -> Case:
    talk = _Talk()
    rounds = st.tuples(st.sampled_from(kinds), st.sampled_from([1, 3, 12]), st.booleans())
    whole: list[Plain] = []
    history: tuple[Stored, ...] = ()
    known: dict[str, KnownHead] = {}
    for _ in range(2):
        said = [
            m
            for kind, words, recorded in draw(st.lists(rounds, min_size=2, max_size=6))
            for m in talk.round(kind, words, recorded)
        ]
        whole += said
        history = parse_history(dump_history((*history, *map(_stored, said))))
        history, known = _compacted(draw, history, known)
    assume(known)
    return Case(tuple(whole), tuple(dict(message.data) for message in history))


def _stored(message: Plain) -> Stored:
    return Stored(json.dumps(message), message)


def _compacted(
    draw: st.DrawFn, history: tuple[Stored, ...], known: dict[str, KnownHead]
) -> tuple[tuple[Stored, ...], dict[str, KnownHead]]:
    layout = read_layout(history, ESTIMATE.message, known.get)
    ratio = draw(st.sampled_from([0, 0.15, 0.3]))
    plan = plan_compaction(layout, PlanOptions(ratio, 1), (), "last")
    if isinstance(plan, Skip):
        return history, known
    blocks = render_units(plan.span, Names())
    picks = draw(st.lists(st.booleans(), min_size=1, max_size=5))
    retained = sorted(
        (
            item
            for index, unit in enumerate(plan.span)
            if index in plan.kept_by_rule
            or (picks[index % len(picks)] and can_be_kept(unit, 10**9) and blocks[index].text)
            for item in unit.items
        ),
        key=lambda item: item.position,
    )
    summary = f"## 目标\nSUMMARY {len(known)}"
    composed = compose(plan, retained, summary, "zh", new_checkpoint())
    head = text_hash(head_text(summary, "zh"))
    return composed.messages, {**known, head: KnownHead(summary, True)}


# --- the wire


class Wire:
    """A source of AstrBot's, and what it sends."""

    def __init__(self, speech: Speech) -> None:
        self._speech = speech
        self._runner = asyncio.Runner()

    def __enter__(self) -> Self:
        self._runner.__enter__()
        self._serving = running_server()
        self._server = self._runner.run(self._serving.__aenter__())
        self._provider = make_provider(**self._speech.provider(self._server.url))
        return self

    def __exit__(self, *exc: object) -> None:
        self._runner.run(self._provider.terminate())
        self._runner.run(self._serving.__aexit__(None, None, None))
        self._runner.__exit__(None, None, None)

    def send(self, history: Sequence[Plain]) -> dict[str, Any]:
        """The request's body for the turn after this history."""
        self._server.script(self._speech.reply("fine"))  # type: ignore[attr-defined]
        stored = json.loads(json.dumps(list(history)))
        contexts = [*bind_checkpoint_messages(stored), Message.model_validate(NEXT)]
        self._runner.run(self._provider.text_chat(contexts=contexts, system_prompt="Be brief."))
        return self._server.seen[-1].body


def faults(body: Mapping[str, Any]) -> list[str]:
    """What the API this body is for would refuse."""
    if "contents" in body:
        return list(_faults(list(map(_gemini_turn, body["contents"]))))
    if "input" in body:
        return list(_faults(_responses_turns(body["input"])))
    if "system" in body:
        return list(_faults(list(map(_anthropic_turn, body["messages"]))))
    return violations(body["messages"])


def turns(body: Mapping[str, Any]) -> int:
    """The messages of the body, the system's not counted."""
    if "input" in body:
        return len([item for item in body["input"] if item.get("role") != "system"])
    messages = body.get("contents") or body["messages"]
    return len([message for message in messages if message["role"] != "system"])


@dataclass(frozen=True)
class _Turn:
    """What one side says: whether it is the user's, its words, calls it makes or answers."""

    is_user: bool
    words: list[str]
    calls: list[str]
    results: list[str]


def _faults(said: list[_Turn]) -> Iterator[str]:
    if not said or not said[0].is_user:
        yield "the first is not the user's"
    for place, (before, here) in enumerate(pairwise(said)):
        if before.is_user == here.is_user:
            yield f"{place}: equal neighbours"
        if sorted(before.calls) != sorted(here.results):
            yield f"{place}: {before.calls} answered by {here.results}"
    for place, turn in enumerate(said):
        if not (turn.words or turn.calls or turn.results) or not all(map(str.strip, turn.words)):
            yield f"{place}: empty"


def _anthropic_turn(message: Mapping[str, Any]) -> _Turn:
    content = message["content"]
    blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
    return _Turn(
        message["role"] == "user",
        [b["text"] for b in blocks if b["type"] == "text"],
        [b["id"] for b in blocks if b["type"] == "tool_use"],
        [b["tool_use_id"] for b in blocks if b["type"] == "tool_result"],
    )


def _gemini_turn(content: Mapping[str, Any]) -> _Turn:
    parts = content["parts"]
    calls = [part for part in parts if "functionCall" in part]
    results = [part for part in parts if "functionResponse" in part]
    # AstrBot gives a result its call's id for a name, and Gemini has no ids: they are counted.
    return _Turn(
        content["role"] == "user",
        [part["text"] for part in parts if "text" in part],
        ["a call"] * len(calls),
        ["a call"] * len(results),
    )


def _responses_turns(items: Sequence[Mapping[str, Any]]) -> list[_Turn]:
    """Items of one side in a row are one turn; a side's words are one message."""
    said: list[_Turn] = []
    kinds = {"function_call": "calls", "function_call_output": "results"}
    items = [item for item in items if item.get("role") not in ("system", "developer")]

    def side(item: Mapping[str, Any]) -> bool:
        return item.get("role") == "user" or item.get("type") == "function_call_output"

    for is_user, group in groupby(items, side):
        found: dict[str, list[str]] = {"words": [], "calls": [], "results": []}
        for item in group:
            if kind := kinds.get(str(item.get("type"))):
                found[kind].append(item["call_id"])
            else:
                found["words"].append(json.dumps(item["content"]))
        said += [_Turn(is_user, [], [], [])] * (len(found["words"]) - 1)
        said.append(_Turn(is_user, **found))
    return said


def marks(value: object) -> set[str]:
    """The marks in a value."""
    return set(MARK.findall(json.dumps(value)))


# --- the laws

FEW = settings(deadline=None, max_examples=30, suppress_health_check=list(HealthCheck))


@given(cases(SOUND))
@settings(deadline=None)
def test_a_strict_server_takes_a_compacted_history_as_it_is(case: Case) -> None:
    assert violations(case.dialog) == []


@pytest.mark.parametrize("speech", SPEECHES, ids=lambda speech: speech.name)
class TestSources:
    def test_a_sound_history_stays_sound(self, speech: Speech) -> None:
        with Wire(speech) as wire:

            @FEW
            @given(cases(SOUND))
            def check(case: Case) -> None:
                body = wire.send(case.compacted)
                assert faults(body) == []
                assert marks(body) == marks(case.compacted)
                assert "SUMMARY" in json.dumps(body)

            check()

    def test_nothing_is_merged_or_dropped_because_of_us(self, speech: Speech) -> None:
        with Wire(speech) as wire:

            @FEW
            @given(cases(("plain", "tools", "signed call", "reasoning")))
            def check(case: Case) -> None:
                assert turns(wire.send(case.compacted)) == len(case.dialog)

            check()

    def test_a_damaged_history_gets_no_worse(self, speech: Speech) -> None:
        with Wire(speech) as wire:

            @FEW
            @given(cases((*SOUND, *ODD)))
            def check(case: Case) -> None:
                before = faults(wire.send(case.whole))
                after = faults(wire.send(case.compacted))
                assert len(after) <= len(before), (before, after)

            check()
