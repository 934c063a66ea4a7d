"""Which AstrBot a test runs on, and where its interpreter is.

Invariant: a host that is asked for and missing is an error, never a skip.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# The newest is the one the tests themselves run in; the others have a folder of their own.
NEWEST = "newest"
_OLDER = re.findall(r"(?m)^astrbot==(\S+)$", (ROOT / "requirements-hosts.txt").read_text())
HOSTS = (NEWEST, *_OLDER)


@dataclass(frozen=True)
class Host:
    """An installed AstrBot: the name tests use, its version, its interpreter."""

    name: str
    version: str
    python: Path

    @property
    def release(self) -> tuple[int, ...]:
        """The version as numbers: (4, 28, 1)."""
        return tuple(int(part) for part in self.version.split(".")[:3] if part.isdigit())


class HostMissing(Exception):
    """An AstrBot the tests need is not installed."""


def find_host(name: str = NEWEST) -> Host:
    """The host of that name.

    `ASTRBOT_PYTHON_4_28_1` names another interpreter for 4.28.1, and so on.

    Raises:
        HostMissing: it is not installed where it is looked for.
    """
    if name == NEWEST:
        try:
            version = importlib.metadata.version("astrbot")
        except importlib.metadata.PackageNotFoundError as exc:
            raise HostMissing(f"{sys.executable} has no AstrBot: run `make setup`") from exc
        return Host(name, version, Path(sys.executable))
    given = os.environ.get(f"ASTRBOT_PYTHON_{name.replace('.', '_')}")
    python = Path(given) if given else ROOT / f".venv-{name}" / "bin" / "python"
    packages = python.parent.parent / "lib"
    if not list(packages.glob(f"python3*/site-packages/astrbot-{name}.dist-info")):
        raise HostMissing(f"no AstrBot {name} beside {python}: run `make setup`")
    return Host(name, name, python)
