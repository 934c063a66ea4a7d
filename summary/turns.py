"""One turn as the hooks see it: references and a few numbers, taken in no time (spec 3.1)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from itertools import islice
from operator import is_

from .history import CHECKPOINT, Message

# No model's window is larger.
_MOST_TOKENS = 1_000_000_000


def reported_tokens(value: object) -> int | None:
    """A token count that somebody reported or stored; None if it cannot be one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if 0 < value <= _MOST_TOKENS else None


def exchanged(
    contexts: Sequence[Message], given: Sequence[Message]
) -> tuple[Sequence[Message], Sequence[Message]]:
    """What other plugins took out of the messages a request was given, and what they put in.

    What is never saved counts for neither.
    """
    if not given or (len(given) == len(contexts) and all(map(is_, given, contexts))):
        return (), ()  # as nearly always
    return _without(given, contexts), _without(contexts, given)


def _without(messages: Sequence[Message], others: Sequence[Message]) -> list[Message]:
    known = set(map(id, others))
    return [m for m in messages if id(m) not in known and not m.get("_no_save")]


@dataclass(slots=True)
class Turn:
    """A turn of a chat, filled in as its hooks come.

    `contexts` is the history at its start as the host holds it, a reference; the first
    `begin_dialogs` of it are the persona's and never saved. `stored_usage_tokens` is what the
    host will judge the request by, 0 if it estimates. `is_handler_request` is whether a plugin
    made the request, maybe long before it is sent. `own` lets the host cancel a task of ours
    with the session. `withheld` are saved messages that another plugin took out of the request,
    `put_in` those it put there. `found` is the stored history at the start, None where the
    request was not made from it. `usage` gives the host's figure as it is now, that of the last
    model call; `is_reminded` is whether the system prompt holds the summary in this turn.

    `checkpoint_id` is the checkpoint that a web chat's turn will get, empty elsewhere.

    `lists` are the message lists the runner held, oldest first, each with all that was added to
    it; `begun_length` is the length of the first when the agent began, this turn's user message
    last; `step` is the length of the last one when a tool answered, and how many have since it
    grew. `archived` are the ids of the messages that were archived already.
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
    is_handler_request: bool = False
    withheld: Sequence[Message] = ()
    put_in: Sequence[Message] = ()
    found: Sequence[Message] | None = None
    usage: Callable[[], object] = int
    is_reminded: bool = False
    checkpoint_id: str = ""
    started_seconds: float = field(default_factory=time.monotonic)
    lists: list[Sequence[object]] = field(default_factory=list)
    begun_length: int = 0
    step: tuple[int, int] = (0, 0)
    current: Callable[[], Sequence[object]] | None = None
    archived: set[int] = field(default_factory=set)
    answered: bool = False
    failed: bool = False
    usage_tokens: int | None = None
    input_tokens: int | None = None

    def note_usage(self, input_tokens: object, total_tokens: object) -> None:
        """Note what the model reported; what cannot be true counts as not reported."""
        sent, total = reported_tokens(input_tokens), reported_tokens(total_tokens)
        self.input_tokens, self.usage_tokens = (sent, total) if sent and total else (None, None)

    @classmethod
    def adopted(cls, other: object) -> Turn | None:
        """A turn that the plugin noted before it was reloaded, whose class is another one now."""
        try:
            return cls(**{each.name: getattr(other, each.name) for each in fields(cls)})
        except AttributeError:  # noted by another version
            return None

    def agent_begins(self, current: Callable[[], Sequence[object]]) -> None:
        """The agent has its messages now; `current` gives the list it holds.

        Only the first counts: another plugin may run an agent of its own within the turn.
        """
        if self.current is not None:
            return
        self.current = current
        self.lists.append(current())
        self.begun_length = len(current())

    def look(self) -> None:
        """Note the list the runner holds: the host replaces it where it trims."""
        if self.current is not None and self.current() is not self.lists[-1]:
            self.lists.append(self.current())

    def tool_answered(self) -> None:
        """Note that a tool gave its result, which the host adds when all of the step have."""
        self.look()
        length, answers = self.step
        self.step = (len(self.final), answers + 1 if length == len(self.final) else 1)

    def reminded(self, *, added: bool) -> None:
        """Note that the prompt holds the summary now; `added` if it became the first message."""
        self.is_reminded = True
        if added and len(self.lists) == 1:
            self.begun_length += 1

    @property
    def was_trimmed(self) -> bool:
        """Whether the host replaced the list: it trimmed or compressed."""
        self.look()
        return len(self.lists) > 1

    @property
    def history(self) -> Sequence[Message]:
        """The saved messages at the start of the turn."""
        return self.contexts[self.begin_dialogs :] if self.begin_dialogs else self.contexts

    @property
    def stored(self) -> Sequence[Message]:
        """The stored history at the start of the turn, as far as it is known."""
        return self.history if self.found is None else self.found

    @property
    def final(self) -> Sequence[object]:
        """The messages the runner holds, in the end those that are saved."""
        self.look()
        return self.lists[-1] if self.lists else ()

    @property
    def gone(self) -> list[object]:
        """Messages the runner held and holds no more, in their order."""
        final = {id(message) for message in self.final}
        return [message for message in self._all() if id(message) not in final]

    @property
    def added(self) -> list[object]:
        """The messages that are new in this turn, those included that are gone again."""
        self.look()
        begun = self.lists[0] if self.lists else ()
        old = {id(message) for message in islice(begun, max(self.begun_length - 1, 0))}
        return [message for message in self._all() if id(message) not in old]

    def was_begun_with(self, message: object) -> bool:
        """Whether a runner's message was there when the agent began."""
        begun = self.lists[0] if self.lists else ()
        return any(each is message for each in islice(begun, self.begun_length))

    def exceeds(self, turns: int | None, added: int) -> bool:
        """Whether the host's limit of turns is passed with so many messages more.

        The host trims when half of all non-system messages is above its limit. No more are
        looked at than tell.
        """
        if turns is None or turns <= 0:
            return False
        wanted = 2 * turns + 2 - added
        if len(self.contexts) < wanted:
            return False
        counted = (1 for m in reversed(self.contexts) if m.get("role") not in _NOT_COUNTED)
        return sum(islice(counted, max(wanted, 0))) >= wanted

    def will_exceed(self, turns: int | None) -> bool:
        """Whether the host's limit of turns is passed at the next step: the same, in a turn."""
        if turns is None or turns <= 0:
            return False
        _, answers = self.step
        return (len(self.final) - self._leading + 1 + answers) // 2 > turns

    @property
    def first_said(self) -> Sequence[object]:
        """The first message the runner holds behind the system prompt, none if there is none."""
        return self.final[self._leading : self._leading + 1]

    @property
    def _leading(self) -> int:
        held = self.final
        return next((n for n, m in enumerate(held) if _role(m) != "system"), len(held))

    def _all(self) -> Iterator[object]:
        seen: set[int] = set()
        for messages in self.lists:
            for message in messages:
                if id(message) not in seen:
                    seen.add(id(message))
                    yield message


def _role(message: object) -> object:
    return message.get("role") if isinstance(message, dict) else getattr(message, "role", None)


_NOT_COUNTED = (CHECKPOINT, "system")


@dataclass(frozen=True, slots=True)
class Additions:
    """What a request is given: text for the end of its system prompt, a cap for its usage, the
    history as it is now if it holds an older one, and whether the archive can be recalled.
    """

    system_text: str = ""
    usage_cap: int | None = None
    contexts: list[Message] | None = None
    recallable: bool = False
