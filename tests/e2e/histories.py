"""Histories to seed and what to say of those that come back.

The talk is Chinese, so replies are; `FACT-n` marks what round n said, and the scripted model
carries such marks into its summaries.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from astrbot_plugin_compact.summary.archive import Archive, ArchivedMessage

from tests.bed import Bot, Request, WebChat
from tests.bed.wire import message_text

Message = dict[str, Any]

HEAD = "Our previous history conversation summary: "
ACKNOWLEDGEMENT = "Acknowledged the summary of our previous conversation history."
FILLER = "接口文档里登录、列表和导出三处的返回格式不一致，先记下来，等评审时一起说。"


def user(content: Any, **more: Any) -> Message:
    """A user's message."""
    return {"role": "user", "content": content, **more}


def assistant(content: Any, **more: Any) -> Message:
    """An answer."""
    return {"role": "assistant", "content": content, **more}


def calls(*ids: str, **more: Any) -> Message:
    """An assistant message that calls one tool an id; `more` may hold a content."""
    function = {"name": "look_up", "arguments": '{"word": "x"}'}
    tool_calls = [{"type": "function", "id": id_, "function": function} for id_ in ids]
    return {"role": "assistant", "content": None, "tool_calls": tool_calls, **more}


def result(call_id: str, content: Any = FILLER) -> Message:
    """The result of a call."""
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def checkpoint(name: str) -> Message:
    """The host's record of a turn."""
    return {"role": "_checkpoint", "content": {"id": name}}


def talk(first: int, last: int, fillers: int = 4) -> list[Message]:
    """Rounds `first` to `last`, each marked, of about 50 tokens a filler and side."""
    rounds: list[Message] = []
    for number in range(first, last + 1):
        rounds.append(user(f"第 {number} 件事的代号是 FACT-{number}。" + FILLER * fillers))
        rounds.append(assistant(f"第 {number} 件事记下了。" + FILLER * fillers))
    return rounds


def marks(first: int, last: int) -> list[str]:
    """The marks of these rounds."""
    return [f"FACT-{number}" for number in range(first, last + 1)]


def without_checkpoints(messages: Sequence[Message]) -> list[Message]:
    """The messages alone."""
    return [message for message in messages if message["role"] != "_checkpoint"]


def roles(messages: Sequence[Message]) -> str:
    """The roles' first letters: `UAUA`; a checkpoint is `_`."""
    return "".join(message["role"][0].upper() for message in messages)


def text_of(messages: Sequence[Message]) -> str:
    """All text of a history."""
    return "\n".join(message_text(message) for message in messages)


def is_compacted(messages: Sequence[Message]) -> bool:
    """Whether a history begins with a head summary (and is not just one with AstrBot's words)."""
    return bool(messages) and str(messages[0].get("content")).startswith(HEAD)


def raw_messages(text: str | None) -> list[str]:
    """The stored texts of a history's messages, one by one, as they stand in the row."""
    decode = json.JSONDecoder().raw_decode
    found: list[str] = []
    position = 1
    assert text is not None
    while text[position : position + 1] not in {"", "]"}:
        if text[position] in ", ":
            position += 1
            continue
        _, end = decode(text, position)
        found.append(text[position:end])
        position = end
    return found


@contextmanager
def untouched(bot: Bot, umo: str) -> Iterator[None]:
    """Nothing of the session's conversations may differ afterwards, times of writing included."""
    before = bot.rows(umo)
    yield
    assert bot.rows(umo) == before


def is_summary_request(request: Request) -> bool:
    """For rules: every summary request, the first one and any that repeats it."""
    return request.kind == "summary"


def assert_strict_model_knows(chat: WebChat, *known: str) -> None:
    """A turn of the chat is answered by a strict server, which finds these marks in it."""
    chat.bot.model.strict = True
    turn = chat.send(f"know? {' '.join(known)}")
    assert turn.text == f"known: {' '.join(known)}; unknown: -"


def archived(bot: Bot, cid: str) -> list[ArchivedMessage]:
    """The messages on record of a conversation, in the order they were replaced in.

    Read from a copy, so that looking changes nothing.
    """
    return _read_copy(bot, cid, _replaced)


def recorded(bot: Bot, cid: str) -> list[Message]:
    """All of a conversation in the archive: what was replaced, and what AstrBot dropped."""
    return [json.loads(message.raw) for message in _read_copy(bot, cid, _all_batches)]


Reading = Callable[[Archive, str], Awaitable[list[ArchivedMessage]]]


def _read_copy(bot: Bot, cid: str, reading: Reading) -> list[ArchivedMessage]:
    (path,) = bot.archive_files()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / path.name
        with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(copy)) as target:
            source.backup(target)
        return asyncio.run(_read_archive(copy, cid, reading))


async def _read_archive(path: Path, cid: str, reading: Reading) -> list[ArchivedMessage]:
    archive = await Archive.open(path)
    try:
        return await reading(archive, cid)
    finally:
        await archive.close()


async def _replaced(archive: Archive, cid: str) -> list[ArchivedMessage]:
    records = await archive.list(cid, 1_000)
    return [m for record in reversed(records) for m in await archive.messages(record.id)]


async def _all_batches(archive: Archive, cid: str) -> list[ArchivedMessage]:
    batches: list[int] = []
    for record in reversed(await archive.list(cid, 1_000)):
        batches += [*record.covers_trimmed, record.id]
    found = [m for batch in batches for m in await archive.messages(batch)]
    return found + [m for batch in await archive.pending_trimmed(cid) for m in batch.messages]


def delete_row(bot: Bot, cid: str) -> None:
    """Delete a conversation behind AstrBot's back: it stays the session's current one."""
    with closing(sqlite3.connect(bot.db_path, timeout=20)) as db, db:
        db.execute("DELETE FROM conversations WHERE conversation_id = ?", (cid,))
