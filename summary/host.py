"""What the plugin needs of a chat host, as a handful of verbs (habit 1).

`compressor.py` speaks these for AstrBot; the tests' fake host speaks them from memory, and one
contract test class holds both to the same behaviour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from .chain import ProviderChoice
from .core_settings import CoreCompression
from .history import Message, Stored


@dataclass(frozen=True, slots=True)
class Row:
    """A conversation as stored. `text` is the JSON of its history, None for SQL NULL."""

    umo: str
    cid: str
    text: str | None
    token_usage: int


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A chat model of the host: how to name it and what it can hold.

    `window_tokens` and `max_output_tokens` are None where the host does not know them;
    `uses_tools` is whether it may be offered tools.
    """

    provider_id: str
    model: str
    window_tokens: int | None
    max_output_tokens: int | None
    uses_tools: bool = True


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One request to the summary model (spec 2.6). No persona, no tools."""

    system: str
    user: str
    max_tokens: int
    timeout_seconds: float
    extra_body: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ModelReply:
    """What came back. Token counts are None where the provider reported none.

    `cut` is whether the reply stopped at its limit, by the provider's own word or, where it
    gives none, by its output usage. `text` is the visible text; `tool_call` and `refusal` are
    what the raw reply says.
    """

    text: str
    role: str = "assistant"
    cut: bool = False
    tool_call: bool = False
    refusal: bool = False
    reasoning_only: bool = False
    input_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None


class Model(Protocol):
    """A summary model that can be asked."""

    @property
    def info(self) -> ModelInfo:
        """Name and limits."""
        ...

    async def ask(self, request: ModelRequest) -> ModelReply:
        """Ask once.

        Raises:
            ContextTooLong: the provider says the request is over its window.
            SummaryTimeout: no answer within `timeout_seconds`.
            ProviderFailed: any other failure, with the provider's words.
        """
        ...


class Host(Protocol):
    """The chat host: histories, the session lock, token estimates."""

    async def current_conversation(self, umo: str) -> str | None:
        """The id of the session's current conversation; none is created."""
        ...

    async def read(self, cid: str) -> Row | None:
        """The conversation's row as it is now, or None."""
        ...

    async def is_said_again(self, checkpoint_id: str) -> bool:
        """Whether the message of a turn was there before: edited, or its answer made anew."""
        ...

    async def conversation_ids(self) -> frozenset[str]:
        """The ids of all conversations there are."""
        ...

    async def swap(self, cid: str, old_text: str | None, new_text: str) -> bool:
        """Replace the history if it is still exactly `old_text`; token usage becomes 0.

        One statement: true if it replaced, false if someone else wrote or the row is gone.
        """
        ...

    def lock(self, umo: str) -> AbstractAsyncContextManager[None]:
        """The lock a running turn of the session holds. Not re-entrant."""
        ...

    def count_tokens(self, message: Message) -> int:
        """The host's estimate for one message; 0 for what it cannot read."""
        ...

    def count_text(self, text: str) -> int:
        """The host's estimate for a text."""
        ...

    def canonical(self, message: Message) -> str:
        """The message as the host would write it back, for equality (CASES: the round trip)."""
        ...

    async def choose(
        self, umo: str, run_id: str, config_id: str, chat_id: str = ""
    ) -> ProviderChoice:
        """The provider chain of spec 5 for a session.

        `chat_id` is the chat provider picked for this message, which goes before the session's.
        """
        ...

    def model(self, umo: str, provider: Any) -> Model:
        """The summary model behind a provider of the chain, with its limits."""
        ...

    async def chat_model(self, umo: str, provider_id: str = "") -> ModelInfo | None:
        """A chat model by its provider's id, else the session's; None if there is none."""
        ...

    def dump(self, messages: Sequence[object]) -> list[Stored]:
        """The host's runtime messages as it would store them, with their checkpoints."""
        ...

    def add_to_prompt(self, messages: Sequence[object], text: str) -> bool:
        """Put a text at the end of the system prompt in a runner's list, never to be saved.

        Returns whether there was none, so that it is a message of its own now, in front.
        """
        ...

    def core(self, umo: str) -> CoreCompression:
        """The host's own compression settings for a session."""
        ...

    def admin_ids(self, umo: str) -> frozenset[str]:
        """The ids of the bot's admins."""
        ...

    @property
    def builtin_instruction(self) -> str:
        """What the host's own compressor asks for if it is told nothing else."""
        ...

    async def summarize_builtin(
        self,
        model: Model,
        messages: Sequence[Message],
        instruction: str,
        timeout_seconds: float,
        extra_body: Mapping[str, Any] | None = None,
    ) -> BuiltinResult:
        """Run the host's own summary compressor over these messages (spec 2.9).

        Raises:
            Unchanged: it gave the messages back without asking the model.
            SummaryFailed: what became of the request, as `Model.ask` and the reply say it.
        """
        ...


@dataclass(frozen=True, slots=True)
class BuiltinResult:
    """The host compressor's summary, and which of the given messages it kept, by position."""

    summary: str
    kept: frozenset[int]
    input_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
