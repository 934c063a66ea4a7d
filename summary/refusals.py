"""What a provider's refusal means, by its HTTP status and its words.

Cheap direction: a refusal read as "too long" costs one smaller request; one not recognised
fails a run that would have fitted. So the words are matched broadly, but never where the
status says that something else is wrong (key, rate, permission).
"""

from __future__ import annotations

import re

_TOO_LARGE = 413
_BAD_REQUEST = frozenset({400, _TOO_LARGE, 422})

_CONTEXT_WORDS = re.compile(
    "|".join(
        (
            r"context[ _-]?(length|window|size|limit)",
            r"maximum context",
            r"(prompt|input|request|messages?|conversation)( \w+){0,3} (is|are) too (long|large)",
            r"(prompt|input|request)[ _]too[ _](long|large)",
            r"too many (input |prompt )?tokens",
            r"input token count",
            r"input (length|tokens?)( \w+){0,4} (exceed|should be|must be|larger|longer|limit)",
            r"range of input length",
            r"exceeds? (the )?(\w+ ){0,3}(number of tokens|token limit|input limit)",
            r"reduce the length of",
            r"max(imum)?[ _](input|prompt)[ _](length|tokens?)",
            r"string_above_max_length",
            r"上下文(长度|窗口|超)",
            r"(输入|提示词?|prompt|消息|请求|内容)\s*(的)?(文本|内容)?(长度|tokens?)?\s*(过长|超长|太长)",
            r"(输入|上下文|prompt|提示词?|消息|请求).{0,12}(超过|超出|超限|大于)",
            r"tokens?\s*(数|数量|总数|长度)?.{0,6}(超过|超出|超限)",
            r"(超过|超出)(了)?.{0,12}(上下文|输入|最大长度|长度限制|token)",
            r"长度超限",
        )
    ),
    re.IGNORECASE,
)
# "max_tokens is too large: …" speaks of the reply, not of what was sent.
_REPLY_LIMIT_WORDS = re.compile(
    r"max_(completion_|output_)?tokens.{0,40}"
    r"(too large|at most|less than|should be|must be|不能|范围)",
    re.IGNORECASE | re.DOTALL,
)


def status_of(error: object) -> int | None:
    """The HTTP status an SDK's error carries, under whatever name."""
    for name in ("status_code", "code", "status"):
        value = getattr(error, name, None)
        if isinstance(value, int):
            return value
    return None


def is_too_long(status: int | None, words: str) -> bool:
    """Whether the provider says that the request is over its context window."""
    if status == _TOO_LARGE:
        return True
    if status is not None and status not in _BAD_REQUEST:
        return False
    found = _CONTEXT_WORDS.search(words)
    return found is not None and not (
        _REPLY_LIMIT_WORDS.search(words) and not re.search("context", words, re.IGNORECASE)
    )


def wants_completion_tokens(status: int | None, words: str) -> bool:
    """Whether the server refuses `max_tokens` and asks for `max_completion_tokens`."""
    return (status is None or status in _BAD_REQUEST) and "max_completion_tokens" in words
