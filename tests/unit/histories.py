"""Generated histories, sound and damaged, spelled in every way JSON allows.

A `History` is the text of a row and what the archive knows of heads in it. Ids, roles and words
come from small sets, so that what should be rare (an id used twice, two checkpoints in a row, a
user who types our own sentences) happens in every run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from random import Random
from typing import Any

from astrbot_plugin_compact.summary.heads import (
    ACKNOWLEDGEMENT,
    HEAD_PREFIX,
    KnownHead,
    gap_marker,
    head_text,
    text_hash,
)
from astrbot_plugin_compact.summary.history import Stored, parse_history
from astrbot_plugin_compact.summary.plan import Layout, PlanOptions, read_layout
from astrbot_plugin_compact.summary.tokens import Estimator
from hypothesis import strategies as st

Message = dict[str, Any]

ESTIMATE = Estimator()
IMAGE = "data:image/png;base64,iVBORw0KGgo="


@dataclass(frozen=True)
class History:
    """The text of a stored row, and the heads in it that the archive wrote."""

    text: str
    known: Mapping[str, KnownHead] = field(default_factory=dict)

    @cached_property
    def stored(self) -> tuple[Stored, ...]:
        """Its messages."""
        return parse_history(self.text)

    @cached_property
    def layout(self) -> Layout:
        """The history taken apart."""
        return read_layout(self.stored, ESTIMATE.message, self.known.get)


def user(content: Any, **more: Any) -> Message:
    """A user's message."""
    return {"role": "user", "content": content, **more}


def assistant(content: Any, **more: Any) -> Message:
    """An answer."""
    return {"role": "assistant", "content": content, **more}


def system(content: Any) -> Message:
    """A system message."""
    return {"role": "system", "content": content}


def call(*ids: str, **more: Any) -> Message:
    """An assistant message that calls one tool an id."""
    function = {"name": "look_up", "arguments": '{"word": "x"}'}
    calls = [{"type": "function", "id": id_, "function": function} for id_ in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls, **more}


def result(call_id: str, content: Any = "found") -> Message:
    """The result of a call."""
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def checkpoint(name: str = "cp") -> Message:
    """A record of the host's."""
    return {"role": "_checkpoint", "content": {"id": name}}


def image(text: str) -> Message:
    """A user's message with a picture."""
    picture = {"type": "image_url", "image_url": {"url": IMAGE}}
    return user([{"type": "text", "text": text}, picture])


def talk(rounds: int, words: int = 40) -> list[Message]:
    """A plain talk; every message is its own."""
    return [
        message
        for number in range(rounds)
        for message in (
            user(f"question {number} " + "word " * words),
            assistant(f"answer {number} " + "word " * words),
        )
    ]


def spelled(messages: Sequence[Message]) -> str:
    """The row of these messages as the host spells it."""
    return json.dumps(list(messages))


def history(messages: Sequence[Message], known: Mapping[str, KnownHead] | None = None) -> History:
    """These messages as the host stores them."""
    return History(spelled(messages), known or {})


def our_head(summary: str, language: str = "en") -> tuple[Message, dict[str, KnownHead]]:
    """A head of ours and what the archive knows of it."""
    text = head_text(summary, language)
    return user(text), {text_hash(text): KnownHead(summary, True)}


# --- what generated histories are made of
#
# Drawn once, from fixed seeds: a strategy then picks a few pieces instead of hundreds of letters,
# which makes a history in a millisecond and shrinks to the simplest pieces, those in front.

_ODD_TEXTS = (
    "",
    "   ",
    "ok \ud83d end",
    "\udfff",
    "nul \x00 and \u2028 and \x1f",
    "继续，然后把接口文档写完。",
    "🗜️",
    '"quoted" \\ and [brackets], {"role": "user"}',
    ACKNOWLEDGEMENT,
    HEAD_PREFIX + "an imitation",
    gap_marker("user", "zh").data["content"],
    gap_marker("assistant", "en").data["content"],
)
_PARTS: tuple[Any, ...] = (
    {"type": "text", "text": "part"},
    {"type": "text", "text": "\udc00 lone"},
    {"type": "image_url", "image_url": {"url": IMAGE, "detail": "low"}},
    {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
    {"type": "think", "think": "hm", "encrypted": None},
    {"type": "unheard_of"},
    {"type": ["text"], "text": "listed"},
    {"type": {"a": 1}},
    {"type": "image_url", "image_url": IMAGE},
    {"type": "image_url", "image_url": {"url": None}},
    {"text": None},
    {},
    "bare",
    None,
    7,
)
_DAMAGED_CONTENTS: tuple[Any, ...] = (None, 0, 1.5, True, {}, {"text": "x"}, [[]], [])
_DAMAGED: tuple[Message, ...] = (
    {},
    {"role": None, "content": "x"},
    {"role": ["user"], "content": "x"},
    {"role": 5},
    {"content": "no role"},
    {"role": "user"},
    {"role": "assistant"},
    {"role": "developer", "content": "unknown"},
    {"role": "function", "name": "f", "content": "old style"},
    {"role": "_checkpoint"},
    {"role": "tool", "content": "no id"},
    {"role": "tool", "tool_call_id": None, "content": "x"},
    {"role": "tool", "tool_call_id": ["c1"], "content": "x"},
    {"role": "user", "tool_call_id": "c1", "content": "x"},
    {"role": "assistant", "tool_calls": []},
    {"role": "assistant", "tool_calls": "c1", "content": "x"},
    {"role": "assistant", "tool_calls": [None, 3, "c1"], "content": "x"},
    {"role": "assistant", "tool_calls": [{}], "content": None},
    {"role": "assistant", "tool_calls": [{"id": "", "function": None}]},
    {"role": "assistant", "tool_calls": [{"id": ["c1"], "function": {"name": 1}}]},
    *(user(content) for content in _DAMAGED_CONTENTS),
    *(assistant(content) for content in _DAMAGED_CONTENTS),
)
_MARKERS = tuple(
    dict(gap_marker(role, language).data)
    for role in ("user", "assistant")
    for language in ("zh", "en")
)
_VALUES = (
    *("1e400", "-1E400", "1.0", "1e2", "-0", "0.1e-7", "9" * 60, "NaN", "-Infinity"),
    *('"\\u0041\\/"', "[" * 150 + "]" * 150, '{"k": 1, "k": 2}'),
)
_IDS = ("c1", "c2", "c3")
_CHECKPOINTS = (checkpoint("a"), checkpoint("b"))


class _Maker:
    """Makes pieces of histories; the same seed makes the same."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._chosen = self._random.choice

    def text(self) -> str:
        if self._random.random() < 0.3:
            return self._chosen(_ODD_TEXTS)
        return self._chosen(["a ", "词语"]) * self._chosen([0, 1, 3, 10, 40, 150, 600])

    def content(self) -> Any:
        if self._random.random() < 0.7:
            return self.text()
        return [self._chosen(_PARTS) for _ in range(self._random.randrange(4))]

    def stray(self) -> Message:
        kinds: list[Callable[[], Message]] = [
            lambda: user(self.content()),
            lambda: assistant(self.content()),
            lambda: system(self.text()),
            lambda: result(self._chosen(_IDS), self.content()),
            lambda: self._chosen(_CHECKPOINTS),
            lambda: self._chosen(_MARKERS),
            lambda: self._chosen(_DAMAGED),
        ]
        return self._chosen(kinds)()

    def tool_group(self) -> list[Message]:
        """A call and its results: all or some, in any order, with what else may stand between."""
        ids = [self._chosen(_IDS) for _ in range(self._chosen([1, 1, 2, 3]))]
        results = list(ids)
        if self._random.random() < 0.4:
            results = [self._chosen(ids) for _ in range(self._random.randrange(5))]
        group = [call(*ids, content=self._chosen([None, self.content()]))]
        for id_ in results:
            if self._random.random() < 0.2:
                group.append(self.stray())
            group.append(result(id_, self.content()))
        return group

    def round(self) -> list[Message]:
        groups = [self.tool_group() for _ in range(self._chosen([0, 0, 1, 2]))]
        answers = [assistant(self.content()) for _ in range(self._chosen([0, 1, 1, 1]))]
        records = [self._chosen(_CHECKPOINTS) for _ in range(self._chosen([0, 1, 1, 2]))]
        return [user(self.content()), *(m for group in groups for m in group), *answers, *records]

    def piece(self) -> tuple[str, ...]:
        kinds = [self.round, self.round, self.tool_group, lambda: [self.stray()]]
        return tuple(map(self.spelled, self._chosen(kinds)()))

    def spelled(self, message: Message) -> str:
        """A message as some program or other would write it."""
        match self._random.randrange(8):
            case 0:
                return json.dumps(message, ensure_ascii=False)
            case 1:
                return json.dumps(message, separators=(",", ":"))
            case 2:
                return json.dumps(message, indent=self._random.randrange(3))
            case 3:  # a key the host does not know, a value it would spell in another way
                joint = ", " if message else ""
                return f'{json.dumps(message)[:-1]}{joint}"x": {self._chosen(_VALUES)}}}'
            case _:
                return json.dumps(message)


def _pool(make: Callable[[_Maker], tuple[str, ...]], size: int) -> list[tuple[str, ...]]:
    pieces = {make(_Maker(seed)) for seed in range(size)}
    return sorted(pieces, key=lambda piece: (len(piece), sum(map(len, piece)), piece))


_PIECES = _pool(_Maker.piece, 1_000)
_STRAYS = _pool(lambda maker: (maker.spelled(maker.stray()),), 400)
_BEGINNINGS = _pool(
    lambda maker: tuple(
        maker.spelled(maker._chosen([*_CHECKPOINTS, system(maker.text())]))
        for _ in range(maker._random.randrange(3))
    ),
    60,
)


@dataclass(frozen=True)
class _Start:
    """The start of a history: a head of ours, AstrBot's, an imitation or none."""

    raws: tuple[str, ...] = ()
    known: Mapping[str, KnownHead] = field(default_factory=dict)


def _starts() -> Iterator[_Start]:
    acknowledgement = json.dumps(assistant(ACKNOWLEDGEMENT))
    record = json.dumps(checkpoint("fresh"))
    yield _Start()
    for summary in ("## 目标\n把报告写完", *_ODD_TEXTS):
        host = json.dumps(user(HEAD_PREFIX + summary))
        yield _Start((host, acknowledgement))
        yield _Start((host,))
        for language in ("zh", "en"):
            head, known = our_head(summary, language)
            plain = json.dumps(head, ensure_ascii=language == "en")
            parts = json.dumps(user([{"type": "text", "text": head["content"]}]))
            yield _Start((plain, acknowledgement, record), known)
            yield _Start((plain, acknowledgement), known)
            yield _Start((plain,), known)
            yield _Start((parts, acknowledgement), known)


_STARTS = list(_starts())


@st.composite
def histories(draw: st.DrawFn, max_pieces: int = 9) -> History:
    """Any history."""
    start = draw(st.sampled_from(_STARTS)) if draw(st.booleans()) else _STARTS[0]
    pieces = draw(
        st.lists(st.sampled_from(_PIECES) | st.sampled_from(_STRAYS), max_size=max_pieces)
    )
    raws = [*draw(st.sampled_from(_BEGINNINGS)), *start.raws, *(r for p in pieces for r in p)]
    space = draw(st.sampled_from(["", " ", "\n  ", " \t\r\n"]))
    return History(f"{space}[{space}{f'{space},{space}'.join(raws)}{space}]", start.known)


@st.composite
def histories_and_options(draw: st.DrawFn) -> tuple[History, PlanOptions]:
    """Any history, and any way to plan for it."""
    return draw(histories()), draw(options)


options = st.builds(
    PlanOptions,
    keep_recent_ratio=st.sampled_from([0.15, 0, 0.01, 0.1, 0.3]),
    min_messages=st.sampled_from([1, 2, 4]),
    line_tokens=st.sampled_from([None, 0, 50, 400, 5_000]),
    count_line=st.sampled_from([None, 1, 2, 5, 12]),
)

# --- reading them


def raws(messages: Sequence[Stored]) -> list[str]:
    """The texts of these messages."""
    return [message.raw for message in messages]


def answered_results(messages: Sequence[Stored]) -> Iterator[int]:
    """The places of the tool results that belong to the calls of the last answer before them.

    This is how providers read a history; it is told here without the units of ours.
    """
    open_ids: set[str] = set()
    for place, message in enumerate(messages):
        if message.role == "assistant":
            calls = message.data.get("tool_calls")
            listed = calls if isinstance(calls, list) else []
            found = [c.get("id") for c in listed if isinstance(c, dict)]
            open_ids = {id_ for id_ in found if isinstance(id_, str) and id_}
        elif message.role == "tool":
            id_ = message.data.get("tool_call_id")
            if isinstance(id_, str) and id_ in open_ids:
                yield place
