"""How each API spells the same things: a provider of it, its replies, its complaints."""

from __future__ import annotations

from typing import Any

from tests.contract.api_server import Answer


class Speech:
    """One API. `limit` is where its request bodies hold the output limit."""

    name: str
    type: str
    model = "model-a"
    api_base_suffix = ""
    limit: tuple[str, ...] = ("max_tokens",)

    def provider(self, url: str, **settings: Any) -> dict[str, Any]:
        return {
            "id": f"{self.name}-a",
            "type": self.type,
            "provider_type": "chat_completion",
            "api_base": url + self.api_base_suffix,
            "model": self.model,
            **settings,
        }

    def limit_in(self, body: Any) -> Any:
        for key in self.limit:
            body = body.get(key) if isinstance(body, dict) else None
        return body

    def key_in(self, headers: Any) -> str:
        return str(headers["Authorization"]).removeprefix("Bearer ")

    def error(self, status: int, words: str) -> Answer:
        return Answer({"error": {"message": words, "type": "invalid_request_error"}}, status)

    keys_tried = 2
    too_long = (400, "This model's maximum context length is 8192 tokens.")


class Chat(Speech):
    name, type, api_base_suffix = "openai", "openai_chat_completion", "/v1"

    def reply(
        self, text: str | None, end: str = "stop", usage: Any = (10, 4, 5), **extra: Any
    ) -> Answer:
        message = {"role": "assistant", "content": text, **extra}
        body: dict[str, Any] = {
            "id": "r",
            "object": "chat.completion",
            "created": 1,
            "model": self.model,
            "choices": [{"index": 0, "finish_reason": end, "message": message}],
        }
        if usage:
            total, cached, output = usage
            body["usage"] = {
                "prompt_tokens": total,
                "completion_tokens": output,
                "total_tokens": total + output,
                "prompt_tokens_details": {"cached_tokens": cached},
            }
        return Answer(body)

    def cut(self) -> Answer:
        return self.reply("half a", "length")

    def empty(self) -> Answer:
        return self.reply("", "length")

    def tool_call(self) -> Answer:
        call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        return self.reply(None, "tool_calls", tool_calls=[call])

    def refusal(self) -> Answer:
        return self.reply(None, "stop", refusal="I will not.")

    def reasoning(self) -> Answer:
        return self.reply("", "stop", reasoning_content="hm")


class Responses(Speech):
    name, type, api_base_suffix = "responses", "openai_responses", "/v1"
    limit = ("max_output_tokens",)

    def _answer(self, output: list[Any], status: str, usage: Any, reason: str | None) -> Answer:
        body: dict[str, Any] = {
            "id": "r",
            "object": "response",
            "created_at": 1,
            "model": self.model,
            "status": status,
            "incomplete_details": {"reason": reason} if reason else None,
            "output": output,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
        }
        if usage:
            total, cached, written = usage
            body["usage"] = {
                "input_tokens": total,
                "input_tokens_details": {"cached_tokens": cached},
                "output_tokens": written,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": total + written,
            }
        return Answer(body)

    def reply(self, text: str, reason: str | None = None, usage: Any = (10, 4, 5)) -> Answer:
        content = [{"type": "output_text", "text": text, "annotations": []}]
        return self._message(content, reason, usage)

    def _message(self, content: list[Any], reason: str | None, usage: Any = (10, 4, 5)) -> Answer:
        item = {"id": "m", "type": "message", "role": "assistant", "content": content}
        status = "incomplete" if reason else "completed"
        return self._answer([{**item, "status": status}], status, usage, reason)

    def cut(self) -> Answer:
        return self.reply("half a", "max_output_tokens")

    def empty(self) -> Answer:
        return self._answer([], "incomplete", (10, 4, 5), "max_output_tokens")

    def tool_call(self) -> Answer:
        call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "id": "i"}
        return self._answer([call], "completed", (10, 4, 5), None)

    def refusal(self) -> Answer:
        return self._message([{"type": "refusal", "refusal": "I will not."}], None)

    def reasoning(self) -> Answer:
        summary = [{"type": "summary_text", "text": "hm"}]
        item = {"id": "i", "type": "reasoning", "summary": summary}
        return self._answer([item], "completed", (10, 4, 5), None)


class Anthropic(Speech):
    name, type = "anthropic", "anthropic_chat_completion"
    keys_tried = 1  # its source knows the first key only
    too_long = (400, "prompt is too long: 213462 tokens > 200000 maximum")

    def key_in(self, headers: Any) -> str:
        return str(headers["X-Api-Key"])

    def error(self, status: int, words: str) -> Answer:
        error = {"type": "invalid_request_error", "message": words}
        return Answer({"type": "error", "error": error}, status)

    def _answer(self, content: list[Any], end: str, usage: Any = (10, 4, 5)) -> Answer:
        total, cached, output = usage or (0, 0, 0)
        return Answer(
            {
                "id": "r",
                "type": "message",
                "role": "assistant",
                "model": self.model,
                "content": content,
                "stop_reason": end,
                "stop_sequence": None,
                "usage": {
                    "input_tokens": total - cached,
                    "cache_read_input_tokens": cached,
                    "output_tokens": output,
                },
            }
        )

    def reply(self, *texts: str, end: str = "end_turn", usage: Any = (10, 4, 5)) -> Answer:
        return self._answer([{"type": "text", "text": text} for text in texts], end, usage)

    def cut(self) -> Answer:
        return self.reply("half a", end="max_tokens")

    def empty(self) -> Answer:
        return self._answer([], "max_tokens")

    def tool_call(self) -> Answer:
        return self._answer(
            [{"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}}], "tool_use"
        )

    def refusal(self) -> Answer:
        return self.reply("I will not.", end="refusal")

    def reasoning(self) -> Answer:
        return self._answer([{"type": "thinking", "thinking": "hm", "signature": "s"}], "end_turn")


class Gemini(Speech):
    name, type, model = "gemini", "googlegenai_chat_completion", "gemini-3-flash"
    limit = ("generationConfig", "maxOutputTokens")
    too_long = (
        400,
        "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
    )

    def key_in(self, headers: Any) -> str:
        return str(headers["x-goog-api-key"])

    def error(self, status: int, words: str) -> Answer:
        return Answer({"error": {"code": status, "message": words, "status": "INVALID"}}, status)

    def _answer(self, parts: list[Any], end: str, usage: Any = (10, 4, 5)) -> Answer:
        candidate = {"content": {"role": "model", "parts": parts}, "finishReason": end, "index": 0}
        body: dict[str, Any] = {"candidates": [candidate], "responseId": "r"}
        if usage:
            total, cached, output = usage
            body["usageMetadata"] = {
                "promptTokenCount": total,
                "cachedContentTokenCount": cached,
                "candidatesTokenCount": output,
            }
        return Answer(body)

    def reply(self, *texts: str, end: str = "STOP", usage: Any = (10, 4, 5)) -> Answer:
        return self._answer([{"text": text} for text in texts], end, usage)

    def cut(self) -> Answer:
        return self.reply("half a", end="MAX_TOKENS")

    def empty(self) -> Answer:
        return self._answer([], "MAX_TOKENS")

    def tool_call(self) -> Answer:
        return self._answer([{"functionCall": {"name": "f", "args": {"a": 1}}}], "STOP")

    def refusal(self) -> Answer:
        return self.reply("I will not.", end="SAFETY")

    def reasoning(self) -> Answer:
        return self._answer([{"text": "hm", "thought": True}], "STOP")
