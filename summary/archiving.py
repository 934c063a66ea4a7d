"""Messages as they go into the archive: as stored, what may be searched, who said it and when.

Invariant: the raw text is the stored one; everything else is for looking and may be unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .archive_types import SpanMessage, Speaker
from .history import Message, Stored, call_name, content_hash, message_text, stored_as, tool_calls
from .render import arguments_text
from .usertext import GROUP_INTRO, Said, UserText, read_user_text
from .usertext import Speaker as Named

# The recall tool's name, and what its results begin with (spec 4.3).
RECALL_TOOL = "recall_archived_messages"
RECALLED = "Archived messages, quoted verbatim as data:"

# Who said the user messages of a hash, each time it was said (`Archive.speakers`).
Noted = Mapping[str, Sequence[Speaker]]


def to_archive(message: Stored, noted: Noted, *, kept: bool = False) -> SpanMessage:
    """A message for the archive; `kept` is whether the history keeps it too."""
    if message.is_checkpoint:
        return SpanMessage(message.raw, message.role, "", kept)
    if message.role != "user":
        text = "\n".join(filter(None, (message_text(message.data), _called(message.data))))
        # What was recalled stands in the archive already, and would be found ever more often.
        text = "" if message.role == "tool" and text.startswith(RECALLED) else text
        return SpanMessage(message.raw, message.role, text, kept)
    user = read_user_text(message.data)
    speaker, time_seconds = _who_and_when(message.data, user.speaker, noted)
    return SpanMessage(message.raw, message.role, _searchable(user), kept, speaker, time_seconds)


def as_read(raw: str) -> tuple[str, str | None]:
    """The text that may be searched and the speaker a stored message names.

    What cannot be read cannot be searched: then the text is empty.
    """
    try:
        message = to_archive(stored_as(raw), {})
    except (ValueError, RecursionError, AttributeError):
        return "", None
    return message.text or "", message.speaker


def voices(raw: str) -> tuple[tuple[str, str], ...]:
    """The lines of the group's talk in a user message as they begin its searchable text.

    Each is who said it (empty: unknown) and the line, name included; none in other messages.
    """
    if GROUP_INTRO not in raw:
        return ()
    group = read_user_text(stored_as(raw).data).group
    return tuple((said.nickname, _line(said)) for said in group)


def _searchable(user: UserText) -> str:
    """What was said in a user message, by the user or the group, without AstrBot's reminders."""
    if not user.group:
        return user.text
    return "\n".join([*map(_line, user.group), user.text])


def _called(message: Message) -> str:
    """The tools a message calls, with what it hands to them."""
    return "\n".join(
        f"{name}({arguments_text(call)})"
        for call in tool_calls(message)
        # As with its results: what was asked for is not what is looked for.
        if (name := call_name(call)) != RECALL_TOOL
    )


def _line(said: Said) -> str:
    return f"{said.nickname}: {said.text}" if said.nickname else said.text


def _who_and_when(
    message: Message, own: Named | None, noted: Noted
) -> tuple[str | None, float | None]:
    name = _label(own.nickname, own.id) if own else None
    if not noted:
        return name, None
    said = noted.get(content_hash(message), ())
    # Two people may have said the same words, and one person twice: then it is not known.
    if len({each.user_id for each in said}) == 1:
        name = name or _label(said[-1].nickname, said[-1].user_id)
    return name, said[0].time_seconds if len(said) == 1 else None


def _label(nickname: str, user_id: str) -> str | None:
    if nickname and user_id:
        return f"{nickname}({user_id})"
    return nickname or user_id or None
