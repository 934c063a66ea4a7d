"""The archive: every message a compaction replaced, and every one the host dropped (spec 4).

Invariants: each method is one transaction unless it says otherwise; cancelling a caller never
leaves half of one, and a write that has begun is finished before the cancellation goes on. What
fails raises `ArchiveFailed` and changes nothing. All is kept per conversation: no method that
takes a `cid` ever shows anything of another one, except `knows`.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

from . import archive_care as care
from . import archive_packing, archive_search, archive_turns
from . import archive_store as store
from .archive_file import ArchiveFile
from .archive_schema import archive_errors
from .archive_types import (
    ArchivedMessage,
    Compaction,
    Found,
    Health,
    Known,
    NewCompaction,
    Overview,
    Recalled,
    Sample,
    SpanMessage,
    Speaker,
    Stage,
    Stats,
    TrimmedBatch,
)

__all__ = [
    "Archive",
    "ArchivedMessage",
    "Compaction",
    "Found",
    "Health",
    "Known",
    "NewCompaction",
    "Overview",
    "Recalled",
    "Sample",
    "SpanMessage",
    "Speaker",
    "Stage",
    "Stats",
    "TrimmedBatch",
]


class Archive:
    """The archive of all conversations, in one file. Made by `Archive.open`."""

    def __init__(self, file: ArchiveFile, clock: Callable[[], float]) -> None:
        self._file = file
        self._clock = clock

    @classmethod
    async def open(
        cls,
        path: Path,
        *,
        clock: Callable[[], float] = time.time,
        factory: type[sqlite3.Connection] = sqlite3.Connection,
    ) -> Archive:
        """Open the file, or make it, readable for the bot's user alone.

        Raises:
            ArchiveTooNew: a newer version of the plugin has written it.
            ArchiveFailed: it is damaged, no archive, or cannot be written.
        """
        file = ArchiveFile(path)
        try:
            await file.open(factory)
        except BaseException:
            await file.close()
            raise
        return cls(file, clock)

    async def close(self) -> None:
        """Finish what was asked for and close the file; indexing goes on at the next start."""
        await self._file.close()

    # Compactions

    async def begin(self, new: NewCompaction, messages: Sequence[SpanMessage]) -> int:
        """Archive a span and its record in stage `archived`; returns the record's id."""
        return await self._file.write(store.begin, new, messages, self._clock())

    async def settle(self, compaction_id: int, stage: Stage | str) -> bool:
        """Bring a record to its next stage; False if it was erased meanwhile."""
        settled = await self._file.write(store.settle, compaction_id, Stage(stage))
        self._file.tend_soon()
        return settled

    async def unsettled(self, cid: str | None = None) -> tuple[Compaction, ...]:
        """Records left between two stages (`archived`, `undoing`), oldest first."""
        return await self._file.read(store.unsettled, cid)

    async def knows(self, hashes: Iterable[str]) -> Known:
        """Which of these hashes are of head summaries or gap markers we wrote, anywhere."""
        return await self._file.read(store.knows, tuple(hashes))

    async def latest(self, cid: str) -> Compaction | None:
        """The compaction an undo would take back; None after a reset."""
        return await self._file.read(store.latest, cid)

    async def get(self, cid: str, number: int) -> Compaction | None:
        """The done compaction that people know by this number."""
        return await self._file.read(store.get, cid, number)

    async def by_id(self, compaction_id: int) -> Compaction | None:
        """A record in whatever stage."""
        return await self._file.read(store.by_id, compaction_id)

    async def number(self, compaction_id: int) -> int:
        """The number people know a record by; fixed when it is begun."""
        return await self._file.read(store.number, compaction_id)

    async def list(self, cid: str, limit: int = 20) -> tuple[Compaction, ...]:
        """The done compactions, newest first."""
        return await self._file.read(store.newest, cid, limit)

    async def messages(self, batch_id: int) -> tuple[ArchivedMessage, ...]:
        """The messages of a compaction or a trimmed batch, as stored and in their order."""
        return await self._file.read(archive_packing.read, batch_id)

    # What the host dropped

    async def add_trimmed(
        self, umo: str, cid: str, messages: Sequence[SpanMessage], reason: str = "host_trim"
    ) -> int:
        """Archive messages that the host dropped; returns the batch's id."""
        added = await self._file.write(store.add_trimmed, umo, cid, messages, reason, self._clock())
        self._file.tend_soon()
        return added

    async def pending_trimmed(self, cid: str) -> tuple[TrimmedBatch, ...]:
        """What the host dropped and no compaction covers yet, oldest first."""
        return await self._file.read(store.pending_trimmed, cid)

    # Finding

    async def search(self, cid: str, words: str, limit: int = 10) -> tuple[Found, ...]:
        """Messages of this conversation that hold these words, best first."""
        await self._spread(cid)
        return await self._file.read(archive_search.search, cid, words, limit)

    async def recall(self, cid: str, query: str, limit: int = 5) -> tuple[Recalled, ...]:
        """Messages of this conversation for the model, word for word, of bounded size."""
        await self._spread(cid)
        return await self._file.read(archive_search.recall, cid, query, limit)

    async def _spread(self, cid: str) -> None:
        """Have what a commit left packed in the tables, where it can be found."""
        while await self._file.read(archive_packing.is_packed, cid):
            await self._file.write(archive_packing.spread, cid)

    async def is_recallable(self, cid: str) -> bool:
        """Whether recall could find anything in this conversation."""
        return await self._file.read(store.is_recallable, cid)

    # Turns

    async def add_sample(
        self, cid: str, umo: str, time_seconds: float, tokens: int, window_tokens: int | None
    ) -> None:
        """Note the usage of a turn."""
        sample = Sample(time_seconds, tokens, window_tokens)
        await self._file.write(archive_turns.add_sample, cid, umo, sample, self._clock())
        self._file.write_log_back_soon()

    async def samples(self, cid: str) -> tuple[Sample, ...]:
        """The last 2,000 usage samples, oldest first."""
        return await self._file.read(archive_turns.samples, cid)

    async def growth(self, cid: str, turns: int = 10) -> int | None:
        """The largest growth in tokens over the last turns; None with fewer than two samples."""
        return await self._file.read(archive_turns.growth, cid, turns)

    async def note_speaker(
        self, cid: str, message_hash: str, user_id: str, nickname: str, time_seconds: float
    ) -> None:
        """Note who said the user message of this hash."""
        speaker = Speaker(user_id, nickname, time_seconds)
        await self._file.write(
            archive_turns.note_speaker, cid, message_hash, speaker, self._clock()
        )

    async def speakers(
        self, cid: str, hashes: Collection[str] | None = None
    ) -> dict[str, tuple[Speaker, ...]]:
        """Who said the messages of these hashes (None: of all), each time, in order."""
        return await self._file.read(archive_turns.speakers, cid, hashes)

    async def get_state(self, cid: str, key: str) -> str | None:
        """A value put there by `put_state`."""
        return await self._file.read(archive_turns.get_state, cid, key)

    async def put_state(self, cid: str, key: str, value: str | None) -> None:
        """Remember a value for a conversation; None forgets it."""
        await self._file.write(archive_turns.put_state, cid, key, value, self._clock())

    # Keeping and erasing

    async def mark_cleared(self, cid: str) -> None:
        """The conversation was reset: nothing from before is undone or recalled again."""
        await self._file.write(store.mark_cleared, cid)

    async def forget(self, cid: str) -> None:
        """Erase this conversation's archive, words and bytes; a compaction in flight stays."""
        await self._file.write(care.forget, cid)
        await self._erase()

    async def sweep(
        self, existing_cids: Collection[str] | None, now: float, archive_days: int
    ) -> None:
        """Erase deleted conversations and what is too old; `now` is when the cids were read."""
        await self._file.write(care.sweep, existing_cids, now, archive_days)
        await self._erase()

    async def _erase(self) -> None:
        await self.tended()
        await self._file.write(care.drop_empty)
        while await self._file.write(care.merge):
            pass
        await self._file.outside(care.shrink)

    async def tended(self) -> None:
        """Return when everything is indexed and nothing is left to prune."""
        while await self._file.write(care.tend):
            pass

    # Looking at it

    async def stats(self, cid: str) -> Stats:
        """How much is on record of a conversation."""
        await self._spread(cid)
        return await self._file.read(care.stats, cid)

    async def conversations(self) -> tuple[Overview, ...]:
        """Every conversation on record, the one last touched first."""
        return await self._file.read(care.conversations)

    def size_bytes(self) -> int:
        """What the archive takes on the disk."""
        with archive_errors():
            return self._file.size_bytes()

    async def verify(self, limit_seconds: float = 2.0) -> Health:
        """Compare messages with their hashes, newest first, and look for broken records.

        Other calls are let in between; after `limit_seconds` what was not seen is left out.
        """
        deadline = time.monotonic() + limit_seconds
        problems = await self._file.read(care.broken_pages)
        problems += await self._file.read(care.broken_records)
        total = await self._file.read(care.count_contents)
        checked, before = 0, None
        while checked < total and time.monotonic() < deadline:
            count, before, wrong = await self._file.read(care.broken_contents, before)
            checked, problems = checked + count, problems + wrong
            if before is None:
                total = checked  # some were erased meanwhile
        return Health(checked, total, problems)
