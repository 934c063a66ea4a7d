"""One turn as the hooks see it: references and a few numbers, taken in no time (spec 3.1)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from .history import Message


@dataclass(slots=True)
class Turn:
    """A turn of a chat, filled in as its hooks come.

    `contexts` is the history at its start as the host holds it, a reference; the first
    `begin_dialogs` of it are the persona's and never saved. `begun` is the runner's message list
    when the agent began and `messages` gives the list it has now: another object means that the
    host trimmed or compressed. `stored_usage_tokens` is what the host will judge the request by,
    0 if it estimates. `own` lets the host cancel a task of ours with the session.
    """

    umo: str
    cid: str
    contexts: Sequence[Message]
    begin_dialogs: int
    system_chars: int
    tools_chars: Callable[[], int]
    user_id: str
    nickname: str
    provider_id: str
    stored_usage_tokens: int
    own: Callable[[asyncio.Task[None]], None]
    is_private: bool
    started_seconds: float = field(default_factory=time.monotonic)
    begun: Sequence[object] | None = None
    begun_length: int = 0
    messages: Callable[[], Sequence[object]] | None = None
    answered: bool = False
    failed: bool = False
    usage_tokens: int | None = None
    input_tokens: int | None = None

    @property
    def was_trimmed(self) -> bool:
        """Whether the host replaced the list: it trimmed or compressed."""
        return self.messages is not None and self.messages() is not self.begun

    @property
    def history(self) -> Sequence[Message]:
        """The saved messages at the start of the turn."""
        return self.contexts[self.begin_dialogs :] if self.begin_dialogs else self.contexts


@dataclass(frozen=True, slots=True)
class Additions:
    """What a request is given: text for the end of its system prompt, a cap for its usage, the
    history as it is now if it holds an older one, and whether the archive can be recalled.
    """

    system_text: str = ""
    usage_cap: int | None = None
    contexts: list[Message] | None = None
    recallable: bool = False
