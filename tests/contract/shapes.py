"""Generated messages: what AstrBot stores, what it could load, and what it could not."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

# CJK at the edges of the host's range, emoji of each block it names, halves of pairs, NUL.
ALPHABET = 'aZ0 \n"\\/一丁鿿ꀀ䷿。“é😀🧑\u200d\ufe0f☀➿⛷\x00\u2028\ud83d\udfff\U00020000'
texts = st.text(st.sampled_from(ALPHABET), max_size=40) | st.text(max_size=12)
ids = st.text("abc123_", min_size=1, max_size=6)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(ids, inner, max_size=2),
    max_leaves=4,
)


def _object(required: dict[str, Any], optional: dict[str, Any] | None = None) -> Any:
    return st.fixed_dictionaries(required, optional=optional or {})


_media = _object({"url": texts}, {"id": st.none() | ids, "detail": st.just("low")})
parts = st.one_of(
    _object({"type": st.just("text"), "text": texts}, {"cache_control": json_values}),
    _object({"type": st.just("think"), "think": texts}, {"encrypted": st.none() | texts}),
    _object({"type": st.just("image_url"), "image_url": _media}),
    _object({"type": st.just("audio_url"), "audio_url": _media}),
    _object({"type": st.just("text"), "text": texts, "_no_save": st.booleans()}),
)
_function = _object({"name": ids, "arguments": st.none() | texts}, {"strict": st.booleans()})
calls = _object(
    {"id": ids, "function": _function},
    {
        "type": st.just("function"),
        "index": st.integers(0, 3),
        "extra_content": st.none() | st.dictionaries(ids, json_values, max_size=2),
    },
)
odd_calls = st.one_of(
    calls,
    _object({"id": ids, "function": _object({"name": ids})}, {"index": st.just(0)}),
    _object(
        {"id": ids, "function": _object({"name": ids, "arguments": json_values})},
        {"index": st.just(0)},
    ),
    _object({"id": ids, "type": st.just("custom"), "function": _function}),
    st.dictionaries(ids, json_values, max_size=3),
)
contents = texts | st.lists(parts, max_size=4)

loadable = st.one_of(
    _object({"role": st.sampled_from(["user", "system", "assistant"]), "content": contents}),
    _object(
        {"role": st.just("assistant"), "tool_calls": st.lists(calls | odd_calls, max_size=3)},
        {"content": st.none() | contents, "name": ids},
    ),
    _object({"role": st.just("tool"), "content": contents, "tool_call_id": ids}, {"name": ids}),
)
# Anything with a role; most of it the host cannot load.
messages: st.SearchStrategy[dict[str, Any]] = loadable | st.dictionaries(
    st.sampled_from(["role", "content", "tool_calls", "tool_call_id", "type", "x"]),
    json_values
    | st.sampled_from(["user", "assistant", "tool", "_checkpoint", "developer"])
    | st.lists(
        parts
        | json_values
        | st.just({"type": "input_audio", "input_audio": {"data": "x"}})
        | st.just({"type": "image_url", "image_url": "https://x/y.png"})
        | st.just({"type": "file", "name": "a.txt"}),
        max_size=3,
    ),
)
