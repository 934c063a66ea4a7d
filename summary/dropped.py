"""What the host dropped in a turn, as it is archived (spec 3.4).

Invariant: a message the runner held and holds no more is archived unless the stored history
still has it; of equal messages as many are archived as are gone.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence

from .archive_types import SpanMessage
from .archiving import Noted, to_archive
from .heads import is_acknowledgement, is_gap_marker, may_be_head
from .history import (
    CHECKPOINT,
    Message,
    Stored,
    call_name,
    media_url,
    parse_history,
    stored,
    text_parts,
    tool_calls,
)
from .host import Host
from .live import Live
from .turns import Turn

# So many messages tell how a history ends.
_END_LENGTH = 24
# So many messages that plugins put in are known of a conversation.
_MOST_PUT_IN = 2_000


def dropped(
    turn: Turn,
    gone: Sequence[object],
    row_text: str | None,
    live: Live | None,
    noted: Noted,
    host: Host,
) -> list[SpanMessage]:
    """The messages to archive of those that are gone.

    Args:
        turn: the turn.
        gone: the runner's messages that are in its list no more.
        row_text: the history as stored after the turn, None if it is known to be without them.
        live: the conversation's past.
        noted: who said what in it.
        host: the chat host.
    """
    spare = _stored_besides(turn, row_text, host) if row_text is not None else Counter()
    spans: list[SpanMessage] = []
    after_head = False
    for message in gone:
        for dumped in host.dump([message]):
            if dumped.role == "system" and not spans:
                continue  # the prompt, or what stands in front of everything
            if after_head and is_acknowledgement(dumped.data):
                continue
            after_head = may_be_head(dumped.data)
            if _is_ours(dumped.data, live) or (after_head and not turn.was_begun_with(message)):
                continue  # what it covers is in the archive
            key = _key(dumped.data)
            if spare[key] > 0:
                spare[key] -= 1
                continue
            spans.append(to_archive(dumped, noted))
    return spans


class PutIn:
    """What other plugins put into the requests of a conversation and may take out again.

    Some put a text of theirs into each request and take the last one out, some rewrite the whole
    history in every turn: it is not the talk. As many are known as were put in, the newest ones.
    """

    def __init__(self) -> None:
        self._keys: Counter[bytes] = Counter()

    def note(self, turn: Turn) -> None:
        """Note what is new in a turn's request; copies of what was taken out are not."""
        new = Counter(map(_key, turn.put_in))
        new.subtract(map(_key, turn.withheld))
        for key, count in (+new).items():
            self._keys[key] = self._keys.pop(key, 0) + count
        while len(self._keys) > _MOST_PUT_IN:
            del self._keys[next(iter(self._keys))]

    def takes_back(self, key: bytes) -> bool:
        """Whether one like this was put in and is still known; then it is known no more."""
        if self._keys[key] <= 0:
            return False
        self._keys[key] -= 1
        return True


def withheld(
    turn: Turn, row_text: str, live: Live | None, noted: Noted, host: Host, put_in: PutIn
) -> list[SpanMessage]:
    """The messages to archive of those another plugin kept from the request.

    AstrBot saves what the request held; a plugin that puts copies into it takes nothing out, and
    neither does one that takes back what it had `put_in` before.
    """
    # Copies that took their places, and all of them if nothing was saved.
    spare = _stored_besides(turn, row_text, host)
    spare = +spare + Counter(map(_key, turn.put_in))
    spans: list[SpanMessage] = []
    after_head = False
    for message in turn.withheld:
        role = message.get("role")
        if role == CHECKPOINT or (role == "system" and not spans):
            continue
        if after_head and is_acknowledgement(message):
            continue
        after_head = live is not None and live.is_head(message)
        key = _key(message)
        if spare[key] > 0:
            spare[key] -= 1
        elif not _is_ours(message, live) and not put_in.takes_back(key):
            spans.append(to_archive(stored(message), noted))
    return spans


def _stored_besides(turn: Turn, row_text: str, host: Host) -> Counter[bytes]:
    """What the row holds besides the runner's final messages: all of it if nothing was saved."""
    spare = Counter(_key(message.data) for message in parse_history(row_text))
    spare.subtract(_key(message.data) for message in host.dump(turn.final))
    return spare


def _key(message: Message) -> bytes:
    """What makes a message the same one, whatever keys the host drops or adds on its way."""
    calls = [f"{call.get('id')} {call_name(call)}" for call in tool_calls(message)]
    said = [str(message.get("role")), str(message.get("tool_call_id") or ""), *calls]
    digest = hashlib.sha256()
    # Some plugins join the parts of a text, or part it otherwise.
    words = "".join("".join(text_parts(message)).split())
    content = message.get("content")
    media = filter(None, map(media_url, content if isinstance(content, list) else ()))
    for text in (*said, words, *media):
        stored_text = text.encode("utf-8", "surrogatepass")
        digest.update(b"%d " % len(stored_text))
        digest.update(stored_text)
    return digest.digest()


def _is_ours(message: Message, live: Live | None) -> bool:
    return live is not None and (
        live.is_head(message) or (bool(live.record_id) and is_gap_marker(message))
    )


def without_ours(messages: Sequence[Message], live: Live | None) -> list[Message]:
    """The dialog: no head summaries, no acknowledgements of them, no gap markers.

    The host's own head is one by its acknowledgement; ours by its hash.
    """
    dialog: list[Message] = []
    skip_next = False
    for index, message in enumerate(messages):
        if skip_next:
            skip_next = False
            continue
        if live is not None and live.record_id and is_gap_marker(message):
            continue
        if may_be_head(message):
            following = messages[index + 1] if index + 1 < len(messages) else None
            skip_next = following is not None and is_acknowledgement(following)
            if skip_next or (live is not None and live.is_head(message)):
                continue
        dialog.append(message)
    return dialog


def stored_final(turn: Turn, host: Host) -> list[Message]:
    """The end of what the runner holds, as it is saved at the turn's end."""
    return [message.data for message in host.dump(turn.final[-_END_LENGTH:])]


def stored_added(turn: Turn, host: Host) -> list[Stored]:
    """The messages a turn added, as they were saved; checkpoints left out."""
    return [message for message in host.dump(turn.added) if not message.is_checkpoint]
