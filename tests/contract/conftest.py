"""What the contract tests share: a real AstrBot core of the interpreter's version."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

# What AstrBot's own imports warn of is no business of ours; ours stay errors.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    # This door first: the core's modules import each other in a circle.
    importlib.import_module("astrbot.api")
    from tests.contract.core import Core, running_core


@pytest.fixture
async def core(tmp_path: Path) -> AsyncIterator[Core]:
    """A core with a database, no conversations and no providers."""
    async with running_core(tmp_path) as running:
        yield running
