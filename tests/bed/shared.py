"""Bots that several tests share, because starting one takes seconds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from .bot import Bot
from .hosts import Host


class SharedBots:
    """One running bot a host, made and started when first asked for.

    `make` is given a folder for all that host's bot writes, which is not there yet, and the host.
    """

    def __init__(self, folder: Path, make: Callable[[Path, Host], Bot]) -> None:
        self._folder = folder
        self._make = make
        self._bots: dict[str, Bot] = {}

    def get(self, host: Host) -> Bot:
        """The host's bot, its model as new; started again if a test has ended it."""
        if host.name not in self._bots:
            self._bots[host.name] = self._make(self._folder / host.name, host)
        bot = self._bots[host.name]
        bot.model.reset()
        return bot if bot.running else bot.start()

    def close(self) -> None:
        """End all of them and their models."""
        for bot in self._bots.values():
            bot.close()
            bot.model.close()
