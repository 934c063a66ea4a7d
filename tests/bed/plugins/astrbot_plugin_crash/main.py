"""A plugin beside ours: the process is killed at a named stage of the next commit."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from astrbot.api.event import AstrMessageEvent, filter  # noqa: A004 (its API name)
from astrbot.api.star import Context, Star

PACKAGE = "data.plugins.astrbot_plugin_compact"


class CrashPlugin(Star):
    """`/crash_at STAGE`, and where `/compact` ends then."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)

    @filter.command("crash_at")
    async def crash_at(self, event: AstrMessageEvent, stage: str):
        """Kill the process at this stage."""
        archive = sys.modules[f"{PACKAGE}.summary.archive"].Archive
        host = sys.modules[f"{PACKAGE}.compressor"].AstrBotHost
        owner, name, before = {
            "before_archive": (archive, "begin", True),
            "archived": (archive, "begin", False),
            "before_swap": (host, "swap", True),
            "swapped": (host, "swap", False),
            "settled": (archive, "settle", False),
        }[stage]
        real = getattr(owner, name)

        async def killed(*args: Any, **kwargs: Any) -> Any:
            if not before:
                await real(*args, **kwargs)
            os.kill(os.getpid(), signal.SIGKILL)

        setattr(owner, name, killed)
        yield event.plain_result(f"ends at {stage}")
