"""The archive's file and the one thread that owns it.

Invariants: every call is one transaction, in the order of the calls; a caller that is cancelled
leaves either nothing (its turn had not come) or the whole of it, and learns of the cancellation
only when that is settled; housekeeping takes its turns between the calls, in short steps.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sqlite3
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Concatenate

from .archive_care import tend
from .archive_schema import archive_errors, atomic, expect_known, migrate
from .archive_search import ensure_index
from .errors import ArchiveFailed
from .threads import uncollected

_BUSY_SECONDS = 5.0
_LOG_BYTES = 16 * 1024 * 1024
# Beyond this the log is written back into the file when nobody waits for it.
_LARGE_LOG_BYTES = 4 * 1024 * 1024

_log = logging.getLogger(__name__)


class ArchiveFile:
    """An open SQLite file whose work is done in a thread of its own."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="compact-archive")
        self._open_conn: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None
        self._is_tending = False

    async def open(self, factory: type[sqlite3.Connection]) -> None:
        """Open or make the file and bring it to the newest version."""
        await self._run(partial(self._connect, factory), is_write=True)
        self.tend_soon()

    async def read[**P, T](
        self,
        work: Callable[Concatenate[sqlite3.Connection, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Do something in a transaction that only looks."""

        def job() -> T:
            with archive_errors(), atomic(self._conn, "DEFERRED"):
                return work(self._conn, *args, **kwargs)

        return await self._run(job, is_write=False)

    async def write[**P, T](
        self,
        work: Callable[Concatenate[sqlite3.Connection, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Do something in a transaction that writes; done or not done when this returns."""

        def job() -> T:
            with archive_errors():
                self._expect_in_place()
                with atomic(self._conn):
                    return work(self._conn, *args, **kwargs)

        return await self._run(job, is_write=True)

    async def outside[T](self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do something that SQLite does not do in a transaction."""

        def job() -> T:
            with archive_errors():
                return work(self._conn)

        return await self._run(job, is_write=True)

    def tend_soon(self) -> None:
        """Have the housekeeping done between the calls to come."""
        if not self._is_tending:
            self._is_tending = True
            self._submit(self._tend)

    def write_log_back_soon(self) -> None:
        """Have a large log written back into the file between the calls to come."""
        if self._log_bytes() > _LARGE_LOG_BYTES:
            self._submit(self._write_log_back)

    async def close(self) -> None:
        """Finish the calls made before and close the file; later ones fail."""
        try:
            await self._run(self._disconnect, is_write=True)
        finally:
            self._thread.shutdown(wait=False)

    def size_bytes(self) -> int:
        """What the file and its log take on the disk."""
        return _file_bytes(self._path) + self._log_bytes()

    def _log_bytes(self) -> int:
        return _file_bytes(self._path.with_name(self._path.name + "-wal"))

    @property
    def _conn(self) -> sqlite3.Connection:
        if self._open_conn is None:
            raise ArchiveFailed(detail="the archive is closed")
        return self._open_conn

    async def _run[T](self, job: Callable[[], T], *, is_write: bool) -> T:
        submitted = self._submit(job)
        waiting = asyncio.wrap_future(submitted)
        try:
            return await asyncio.shield(waiting)
        except asyncio.CancelledError:
            if is_write and not submitted.cancel():
                await _finished(waiting)
            raise

    def _submit[T](self, job: Callable[[], T]) -> Future[T]:
        try:
            return self._thread.submit(uncollected()(job))
        except RuntimeError as exc:  # the executor's word for "shut down"
            raise ArchiveFailed(detail="the archive is closed") from exc

    def _connect(self, factory: type[sqlite3.Connection]) -> None:
        with archive_errors():
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # SQLite gives its log the mode of the file, so the file has to be private at once.
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600))
            conn = sqlite3.connect(
                self._path, timeout=_BUSY_SECONDS, isolation_level=None, factory=factory
            )
            try:
                expect_known(conn)  # before anything of the file is changed
                for pragma in (
                    # Before the first table. Small pages make a long history dear to write.
                    "page_size = 8192",
                    "auto_vacuum = INCREMENTAL",
                    "journal_mode = WAL",
                    f"journal_size_limit = {_LOG_BYTES}",
                    # SQLite would do it inside the commit that somebody waits for.
                    "wal_autocheckpoint = 0",
                    "synchronous = FULL",
                    "foreign_keys = ON",
                    "secure_delete = ON",
                ):
                    conn.execute(f"PRAGMA {pragma}").fetchall()
                migrate(conn)
                with atomic(conn):
                    ensure_index(conn)
            except BaseException:
                conn.close()
                raise
            self._open_conn = conn
            self._identity = self._find_identity()

    def _disconnect(self) -> None:
        conn, self._open_conn = self._open_conn, None
        if conn is not None:
            with archive_errors():
                conn.close()

    def _find_identity(self) -> tuple[int, int]:
        found = self._path.stat()
        return found.st_dev, found.st_ino

    def _expect_in_place(self) -> None:
        # What is written into a file that was deleted or replaced meanwhile would be lost.
        if self._find_identity() != self._identity:
            raise ArchiveFailed(detail="the archive file was replaced while it was open")

    def _tend(self) -> None:
        goes_on = False
        try:
            if self._open_conn is not None:
                with atomic(self._open_conn):
                    goes_on = tend(self._open_conn)
                if self._log_bytes() > _LARGE_LOG_BYTES:
                    self._write_log_back()
        except (sqlite3.Error, ArchiveFailed) as exc:
            # Nothing is lost by this: unindexed messages are read instead, and it is tried again.
            _log.warning("The archive's index could not be kept up: %s", exc)
        finally:
            self._is_tending = goes_on
        if goes_on:
            with contextlib.suppress(ArchiveFailed):  # shut down meanwhile
                self._submit(self._tend)

    def _write_log_back(self) -> None:
        if self._open_conn is not None:
            try:
                self._open_conn.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            except sqlite3.Error as exc:
                # The log holds everything; it is written back another time.
                _log.warning("The archive's log could not be written back: %s", exc)


def _file_bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


async def _finished[T](waiting: asyncio.Future[T]) -> None:
    """Wait until this is done, however often we are cancelled meanwhile."""
    while not waiting.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([waiting])
    if not waiting.cancelled():
        waiting.exception()  # seen: the cancellation is what the caller is told
