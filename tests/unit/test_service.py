"""The parts put together: what fails at the start keeps the plugin loaded."""

from __future__ import annotations

import logging
from pathlib import Path

from astrbot_plugin_compact.summary.archive import Archive
from astrbot_plugin_compact.summary.errors import HostFailed
from astrbot_plugin_compact.summary.service import Service

from tests.archives import messages, new_compaction
from tests.contract.fake_host import FakeHost


async def test_a_host_database_that_fails_at_the_start_keeps_the_archive_open(
    tmp_path: Path,
) -> None:
    path = tmp_path / "archive.db"
    before = await Archive.open(path)
    left = await before.begin(new_compaction(), messages("one", "two"))
    await before.close()
    host = FakeHost()

    def fail() -> None:
        raise HostFailed(detail="database is locked")

    host.interfere("read", fail)
    service = Service(host, {}, path, logging.getLogger("test"))

    await service.start()
    try:
        archive = await service.archive()
        assert [record.id for record in await archive.unsettled()] == [left]
    finally:
        await service.stop()
