"""What providers expect on the wire and what their raw replies say.

Invariant: a request is always bounded (one output limit, in the key its API reads), and a
reply's end is taken from the provider's own word before anything is guessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from .errors import CutSummary, EmptySummary, UnusableSummary
from .host import ModelReply
from .wording import one_line


class Dialect(Enum):
    """The API a provider speaks."""

    OPENAI = "openai"
    RESPONSES = "responses"
    ANTHROPIC = "anthropic"
    GEMINI = "gemini"
    OTHER = "other"


# Most derived first: the Responses source is an OpenAI source too.
_DIALECT_OF_CLASS = {
    "ProviderOpenAIResponses": Dialect.RESPONSES,
    "ProviderOpenAIOfficial": Dialect.OPENAI,
    "ProviderAnthropic": Dialect.ANTHROPIC,
    "ProviderGoogleGenAI": Dialect.GEMINI,
}

MAX_TOKENS = "max_tokens"
MAX_COMPLETION_TOKENS = "max_completion_tokens"
_LIMIT_KEYS = frozenset({MAX_TOKENS, MAX_COMPLETION_TOKENS, "max_output_tokens", "maxOutputTokens"})
# What a chat may want and a summary must not have.
_CHAT_ONLY_KEYS = frozenset({"tools", "tool_choice", "search_parameters", "web_search_options"})
_REASONING_KEYS = frozenset({"thinking", "output_config"})
_QUIET_CONFIG = {
    "gm_native_search": False,
    "gm_native_coderunner": False,
    "gm_url_context": False,
    "gm_resp_image_modal": False,
    "xai_native_search": False,
}


def dialect_of(class_names: Iterable[str]) -> Dialect:
    """The dialect of a provider, by the names of its classes, most derived first."""
    for name in class_names:
        if name in _DIALECT_OF_CLASS:
            return _DIALECT_OF_CLASS[name]
    return Dialect.OTHER


def limit_key(dialect: Dialect, *bodies: Mapping[str, Any]) -> str:
    """The key for the output limit; a body that already spells it the newer way shows the way."""
    if dialect is Dialect.RESPONSES:
        return "max_output_tokens"
    if dialect is Dialect.OPENAI and any(MAX_COMPLETION_TOKENS in body for body in bodies):
        return MAX_COMPLETION_TOKENS
    return MAX_TOKENS


def request_body(
    dialect: Dialect,
    own: Mapping[str, Any],
    extra: Mapping[str, Any],
    limit: tuple[str, int] | None,
) -> dict[str, Any]:
    """The provider's own extra body made fit for a summary, the user's merged over it.

    Gemini gets no limit here: its source refuses or ignores it, depending on its version.
    """
    dropped = _LIMIT_KEYS | _CHAT_ONLY_KEYS
    if dialect is Dialect.ANTHROPIC:
        # A thinking budget of `max_tokens` or more is refused.
        dropped |= _REASONING_KEYS
    body = {key: value for key, value in own.items() if key not in dropped}
    body.update((key, value) for key, value in extra.items() if key not in _LIMIT_KEYS)
    if limit is not None and dialect is not Dialect.GEMINI:
        body[limit[0]] = limit[1]
    return body


def provider_config(
    dialect: Dialect, own: Mapping[str, Any], model: str, body: Mapping[str, Any]
) -> dict[str, Any]:
    """A provider's configuration for a summary: the body, no search, reasoning kept shallow."""
    config = {**own, "custom_extra_body": dict(body)}
    config.update((key, value) for key, value in _QUIET_CONFIG.items() if key in own)
    if dialect is Dialect.GEMINI:
        config["gm_thinking_config"] = _shallow_gemini_thinking(model)
    return config


def _shallow_gemini_thinking(model: str) -> dict[str, Any]:
    # 2.5 pro cannot be told not to think; of the 3 series only flash models know "minimal",
    # and from 3.7 on not even those.
    budget_tokens = 128 if "2.5-pro" in model else 0
    minimal = "flash" in model and not model.startswith("gemini-3.7")
    return {"budget": budget_tokens, "level": "MINIMAL" if minimal else "LOW"}


@dataclass(frozen=True, slots=True)
class RawFacts:
    """What a raw reply says for itself.

    `ended` is whether it names a reason for its end. `text` is set where the host's reading
    of the reply loses some of it, the token counts where the host's reading is wrong.
    """

    ended: bool = False
    cut: bool = False
    tool_call: bool = False
    refusal: bool = False
    text: str | None = None
    input_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None


def read_raw(raw: object) -> RawFacts:
    """Read a raw reply of any dialect; an unknown shape says nothing."""
    if _items(raw, "choices"):
        return _read_chat(raw)
    if _items(raw, "candidates"):
        return _read_gemini(raw)
    if _get(raw, "stop_reason") is not None or _get(raw, "type") == "message":
        return _read_anthropic(raw)
    if _get(raw, "object") == "response" or _get(raw, "incomplete_details") is not None:
        return _read_responses(raw)
    return RawFacts()


# What services with OpenAI's interface say where a reply is not whole: it came to a limit, or
# they gave up in the middle of it; and where they took it away.
_CHAT_CUTS = frozenset(
    {
        *("length", "max_tokens", "max_output_tokens", "model_length", "context_length"),
        *("model_context_window_exceeded", "context_length_exceeded"),
        *("error", "network_error", "server_error", "insufficient_system_resource"),
        *("abort", "aborted", "cancelled", "canceled", "timeout"),
    }
)
_CHAT_REFUSALS = frozenset({"content_filter", "sensitive", "safety", "refusal", "recitation"})


def _read_chat(raw: object) -> RawFacts:
    choice = _items(raw, "choices")[0]
    message = _get(choice, "message")
    reason = _get(choice, "finish_reason")
    said = str(reason).casefold()
    return RawFacts(
        ended=reason is not None,
        cut=said in _CHAT_CUTS,
        tool_call=bool(_get(message, "tool_calls") or _get(message, "function_call")),
        refusal=said in _CHAT_REFUSALS or bool(_get(message, "refusal")),
    )


def _read_responses(raw: object) -> RawFacts:
    output = _items(raw, "output")
    parts = [part for item in output for part in _items(item, "content")]
    incomplete = _get(raw, "status") == "incomplete"
    filtered = _get(_get(raw, "incomplete_details"), "reason") == "content_filter"
    return RawFacts(
        ended=_get(raw, "status") is not None,
        cut=incomplete and not filtered,
        tool_call=any(_get(item, "type") == "function_call" for item in output),
        refusal=filtered or any(_get(part, "type") == "refusal" for part in parts),
    )


def _read_anthropic(raw: object) -> RawFacts:
    blocks = _items(raw, "content")
    reason = _get(raw, "stop_reason")
    # The host keeps the last text block only.
    texts = [str(_get(block, "text")) for block in blocks if _get(block, "type") == "text"]
    return RawFacts(
        ended=reason is not None,
        cut=reason in ("max_tokens", "model_context_window_exceeded", "pause_turn"),
        tool_call=any(_get(block, "type") == "tool_use" for block in blocks),
        refusal=reason == "refusal",
        text="".join(texts) if len(texts) > 1 else None,
    )


_GEMINI_REFUSALS = frozenset(
    {"SAFETY", "PROHIBITED_CONTENT", "SPII", "BLOCKLIST", "RECITATION", "IMAGE_SAFETY"}
)


def _read_gemini(raw: object) -> RawFacts:
    candidate = _items(raw, "candidates")[0]
    finish = _get(candidate, "finish_reason")
    reason = str(getattr(finish, "name", finish)) if finish is not None else ""
    parts = _items(_get(candidate, "content"), "parts")
    # The host joins the parts of a text with spaces.
    texts = [
        text
        for part in parts
        if isinstance(text := _get(part, "text"), str) and text and not _get(part, "thought")
    ]
    usage = _get(raw, "usage_metadata")
    return RawFacts(
        ended=reason not in ("", "FINISH_REASON_UNSPECIFIED"),
        cut=reason == "MAX_TOKENS",
        tool_call=any(_get(part, "function_call") for part in parts),
        refusal=reason in _GEMINI_REFUSALS,
        text="".join(texts) if len(texts) > 1 else None,
        input_tokens=_count(usage, "prompt_token_count"),
        cached_tokens=_count(usage, "cached_content_token_count"),
        output_tokens=_count(usage, "candidates_token_count"),
    )


def model_reply(response: Any, raw: object, max_tokens: int | None) -> ModelReply:
    """The host's reading of a reply and the raw reply as one.

    `response` is None where the host found nothing to read: that counts as cut, for the limit
    was spent before the first visible word.
    """
    facts = read_raw(raw)
    usage = _get(response, "usage")
    text = facts.text or _get(response, "completion_text") or ""
    tool_call = facts.tool_call or bool(_get(response, "tools_call_name"))
    input_tokens = facts.input_tokens or _count(usage, "input")
    cached_tokens = facts.cached_tokens or _count(usage, "input_cached") or 0
    output_tokens = facts.output_tokens or _count(usage, "output")
    at_limit = max_tokens is not None and (output_tokens or 0) >= max_tokens
    wordless = response is None and not (tool_call or facts.refusal)
    return ModelReply(
        text=text,
        role=_get(response, "role") or "assistant",
        cut=facts.cut or wordless or (at_limit and not facts.ended),
        tool_call=tool_call,
        refusal=facts.refusal,
        reasoning_only=not text.strip() and bool(_get(response, "reasoning_content")),
        input_tokens=input_tokens,
        cached_tokens=min(cached_tokens, input_tokens) if input_tokens else None,
        output_tokens=output_tokens,
    )


def check_usable(reply: ModelReply, provider_id: str) -> None:
    """Refuse a reply that is no text of its own.

    Raises:
        UnusableSummary: a tool call or a refusal.
        CutSummary: cut at the limit, or spent on reasoning.
        EmptySummary: no text.

    """
    if reply.tool_call:
        raise UnusableSummary(provider=provider_id, detail="a tool call")
    if reply.refusal:
        raise UnusableSummary(provider=provider_id, detail=one_line(reply.text) or "a refusal")
    if reply.cut or reply.reasoning_only:
        raise CutSummary(provider=provider_id)
    if not reply.text.strip():
        raise EmptySummary(provider=provider_id)


def _get(value: object, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def _items(value: object, name: str) -> list[Any]:
    items = _get(value, name)
    return items if isinstance(items, list) else []


def _count(usage: object, name: str) -> int | None:
    count = _get(usage, name)
    return count if isinstance(count, int) and count > 0 else None
