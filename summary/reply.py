"""Whether a reply is a summary at all (spec 2.6).

Invariant: only text that passed here is ever stored. An error's text, reasoning, a tool call, a
refusal or a bare answer to the conversation is no summary.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .errors import EmptySummary, ProviderFailed, UnusableSummary
from .host import ModelReply
from .hygiene import valid_text
from .templates import Template, first_heading

# Prose without a heading passes as a summary from so many tokens on: a fifth of what was asked
# for, within these bounds. Shorter is an answer to the last thing said.
_LEAST_PROSE_TOKENS, _MOST_PROSE_TOKENS = 120, 400
_DETAIL_CHARS = 200

_THINK = re.compile(r"\s*<(think|thinking|thought)>", re.IGNORECASE)
_WRAPPED = re.compile(r"\s*```(?:markdown|md|text)?[ \t]*\n(.*?)\n?```\s*\Z", re.DOTALL)
_TOOL_MARKUP = re.compile(
    r"^[ \t]{0,8}(?:<\|?/?(?:[a-z_]{1,20}:)?(?:tool_calls?|function_calls?|invoke)\b"
    r"|<function[=\s]|<[|｜]tool|<\|python_tag\|>|\[TOOL_CALLS\]|<\|channel\|>)",
    re.MULTILINE | re.IGNORECASE,
)
_JSON_CALL = re.compile(
    r'\s*[\[{]\s*\{?\s*"(?:name|tool|function)"\s*:.{0,4000}"(?:arguments|parameters|args)"\s*:',
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Cut:
    """The reply stopped at its limit, or reasoning used it up: half a summary is none."""


def read_reply(reply: ModelReply, provider_id: str, template: Template | None) -> str | Cut:
    """The reply's text fit to be stored, retain block included.

    `template` is None where the reply has no headings of ours.

    Raises:
        ProviderFailed: the reply is an error.
        UnusableSummary: it is a tool call, a refusal, or not the assistant's.
        EmptySummary: it holds no text.
    """
    if reply.role == "err":
        detail = " ".join(valid_text(reply.text).split())[:_DETAIL_CHARS]
        raise ProviderFailed(provider=provider_id, detail=detail)
    if reply.role != "assistant":
        raise UnusableSummary(provider=provider_id, detail=f"role {reply.role}")
    if reply.refusal:
        raise UnusableSummary(provider=provider_id, detail="refusal")
    if reply.tool_call:
        raise UnusableSummary(provider=provider_id, detail="tool call")
    if reply.cut or reply.reasoning_only:
        return Cut()
    text = _without_reasoning(valid_text(reply.text), template)
    if text is None:
        return Cut()
    text = _unwrapped(text).strip()
    if not text:
        raise EmptySummary(provider=provider_id)
    if _TOOL_MARKUP.search(text) or _JSON_CALL.match(text):
        raise UnusableSummary(provider=provider_id, detail="tool markup")
    return text


def is_prose_of_length(summary_tokens: int, stated_tokens: int) -> bool:
    """Whether text without any heading is long enough to be a summary all the same."""
    least = min(max(stated_tokens // 5, _LEAST_PROSE_TOKENS), _MOST_PROSE_TOKENS)
    return summary_tokens >= least


def _without_reasoning(text: str, template: Template | None) -> str | None:
    """The text behind its reasoning; None if the reasoning never ends."""
    while (opening := _THINK.match(text)) is not None:
        closing = re.search(f"</{opening[1]}>", text, re.IGNORECASE)
        if closing is None:
            return None
        text = text[closing.end() :]
    # Some templates print only the end of the reasoning; behind a heading it is quoted text.
    heading = first_heading(text, template) if template is not None else None
    end = text.rfind("</think>", 0, len(text) if heading is None else heading)
    return text if end < 0 else text[end + len("</think>") :]


def _unwrapped(text: str) -> str:
    """The text out of a code fence around all of it."""
    found = _WRAPPED.match(text)
    return found[1] if found is not None and "```" not in found[1] else text
