"""A user message told apart: what was typed, who typed it and when, and what others said.

Invariant: only a part AstrBot added counts as its word. It puts the typed text first and its
own parts behind it, so a reminder a user types is that user's text (spec 2.3, habit 8).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .history import Message
from .hygiene import AUDIO, FILE, IMAGE

_OPEN, _CLOSE = "<system_reminder>", "</system_reminder>"
_BEGIN, _END = "--- BEGIN CONTEXT---\n", "--- END CONTEXT ---"
GROUP_INTRO = "You are in a group chat."
_IDENTITY = re.compile(r"User ID: (.*?), Nickname: (.*)\Z", re.DOTALL)
_CLOCK = re.compile(r"(?:\A|\n)Current datetime: \d{4}-(\d\d-\d\d \d\d:\d\d)[^\n]*\Z")
_GROUP_NAME = re.compile(r"(?:\A|\n)Group name: [^\n]*\Z")
# Code and logs, marked or pasted as they are: lines of ASCII that no prose has.
_CODE = re.compile(
    r"""
      ```.*?(?:```|\Z) | `[^`\n]{1,400}` | https?://[!-~]+
    | ^(?=[ -~\t]*$)(?:
          [ \t]{2,}\S[ -~\t]* | [ -~\t]*(?:[{}=<>]|\w\()[ -~\t]* | [ -~\t]*;[ \t]*
        | [ \t]*(?:import|def|class|return|const|let|var|function|public|private)\b[ -~\t]*
        | [ \t]*(?:[#@]|//)[ -~\t]*
        | [ \t]*(?:if|elif|for|while|else|try|except|with)\b[ -~\t]*:[ \t]*
      )$
    """,
    re.VERBOSE | re.MULTILINE | re.DOTALL,
)
_SAMPLE_CHARS = 2_000
_GROUP_LINE = re.compile(r"\[(.*?)/(\d\d:\d\d):\d\d\]: {0,2}(.*)\Z")

_MEDIA = {
    "image_url": IMAGE,
    "image": IMAGE,
    "input_image": IMAGE,
    "audio_url": AUDIO,
    "audio": AUDIO,
    "input_audio": AUDIO,
}
_REASONING = frozenset({"think", "thinking", "reasoning", "redacted_thinking"})

# What AstrBot writes in the user role when it wakes the agent itself, whole texts.
_SCHEDULED = (
    "You are now responding to a scheduled task. Proceed according to your system instructions. "
    "Output using same language as previous conversation. After completing your task, summarize "
    "and output your actions and results."
)
_FINISHED = (
    "Proceed according to your system instructions. Output using same language as previous "
    "conversation. If you need to deliver the result to the user immediately, you MUST use "
    "`send_message_to_user` tool to send the message directly to the user, otherwise the user "
    "will not see the result. After completing your task, summarize and output your actions and "
    "results."
)
_WAKE_UPS = frozenset({"Output your last task result below.", _SCHEDULED, _FINISHED})
_CRON_START = (
    "# CRON JOB CONTEXT\nThe following object describes the scheduled task that triggered you:\n"
)
_WAKE_UP_STARTS = frozenset(text[0] for text in (*_WAKE_UPS, _CRON_START))


@dataclass(frozen=True, slots=True)
class Speaker:
    """Who sent a message. Either name may be empty."""

    id: str
    nickname: str


@dataclass(frozen=True, slots=True)
class Said:
    """A line of the group's talk that AstrBot put before the user's own message."""

    nickname: str
    clock: str
    text: str


@dataclass(slots=True)
class UserText:
    """A user message told apart. `clock` is `MM-DD HH:MM`, empty if unknown.

    Never changed, and not frozen for the reason `history.Stored` is not.
    """

    text: str
    speaker: Speaker | None
    clock: str
    group: tuple[Said, ...]


def visible_parts(message: Message) -> Iterator[tuple[bool, str]]:
    """A message's parts as texts, media as placeholders; the flag says which are real texts.

    Reasoning is left out. A part of an unknown kind without text counts as a file.
    """
    content = message.get("content")
    for part in content if isinstance(content, list) else [content]:
        if isinstance(part, str):
            yield True, part
        elif isinstance(part, dict):
            kind = part.get("type")
            kind = kind if isinstance(kind, str) else ""
            if kind in _REASONING:
                continue
            text = part.get("text")
            if kind in _MEDIA:
                yield False, _MEDIA[kind]
            elif isinstance(text, str):
                yield True, text
            elif kind and kind != "text":
                yield False, FILE


def visible_text(message: Message) -> str:
    """What of a message can be read, placeholders for media included."""
    only = only_text(message)
    if only is not None:
        return only
    return "\n".join(text for _, text in visible_parts(message) if text)


def read_user_text(message: Message) -> UserText:
    """Tell a user message apart."""
    only = only_text(message)
    if only is not None:
        return UserText(only, None, "", ())
    own: list[str] = []
    speaker: Speaker | None = None
    clock = ""
    group: list[Said] = []
    typed = False
    for is_text, part in visible_parts(message):
        body = _reminder_body(part) if is_text and typed else None
        typed = typed or is_text
        if body is None:
            own.append(part)
        elif body.startswith(GROUP_INTRO) and _BEGIN in body:
            group += _group_talk(body)
        else:
            speaker, clock = _identity(body, speaker, clock)
    return UserText("\n".join(filter(None, own)), speaker, clock, tuple(group))


def spoken_texts(messages: Sequence[Message], most: int) -> list[str]:
    """The last texts that people and the model wrote, newest first, to know the language by.

    Tool results, AstrBot's reminders and pasted code are in no language of the talk.
    """
    texts: list[str] = []
    for message in reversed(messages):
        if len(texts) == most:
            break
        if message.get("role") == "assistant":
            texts.append(visible_text(message)[:_SAMPLE_CHARS])
        elif message.get("role") == "user":
            user = read_user_text(message)
            text = "\n".join([*(said.text for said in user.group), user.text])
            texts.append("" if is_wake_up(text) else text[:_SAMPLE_CHARS])
    without_code = [_CODE.sub(" ", text) for text in texts]
    # A talk of code alone is taken as it is.
    return without_code if any(map(str.strip, without_code)) else texts


def only_text(message: Message) -> str | None:
    """The text of a message that is one text and nothing else, as nearly all are."""
    content = message.get("content")
    if isinstance(content, list) and len(content) == 1 and isinstance(content[0], dict):
        part = content[0]
        content = part.get("text") if part.get("type") == "text" else None
    return content if isinstance(content, str) else None


def is_wake_up(text: str) -> bool:
    """Whether AstrBot itself wrote this user message, to wake the agent for a task."""
    if text[:1] not in _WAKE_UP_STARTS and not text[:1].isspace():
        return False  # as nearly all are, said without a look at the whole text
    text = text.strip()
    return text in _WAKE_UPS or (text.startswith(_CRON_START) and text.endswith(_SCHEDULED))


def _reminder_body(part: str) -> str | None:
    text = part.strip()
    if text.startswith(_OPEN) and text.endswith(_CLOSE):
        return text[len(_OPEN) : -len(_CLOSE)]
    return None


def _identity(body: str, speaker: Speaker | None, clock: str) -> tuple[Speaker | None, str]:
    found = _CLOCK.search(body)
    if found is not None:
        clock, body = found[1], body[: found.start()]
    named = _GROUP_NAME.search(body)
    identity = _IDENTITY.match(body[: named.start()] if named else body)
    if identity is not None:
        speaker = Speaker(identity[1].strip(), identity[2].strip())
    return speaker, clock


def _group_talk(body: str) -> Iterator[Said]:
    talk = body[body.index(_BEGIN) + len(_BEGIN) :]
    end = talk.rfind(_END)
    last: Said | None = None
    for line in (talk[:end] if end >= 0 else talk).strip("\n").split("\n"):
        found = _GROUP_LINE.match(line)
        if found is None and last is not None:
            last = Said(last.nickname, last.clock, f"{last.text}\n{line}")
            continue
        if last is not None:
            yield last
        last = Said(found[1], found[2], found[3]) if found else Said("", "", line)
    if last is not None:
        yield last
