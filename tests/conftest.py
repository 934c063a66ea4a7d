"""What all tests share: the plugin as a package, the hosts, the scripted model, running bots.

Invariant: the tests run against real AstrBots; one that is missing fails them, none is skipped.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.bed import HOSTS, Bot, Host, Model, OneBot, WebChat, find_host
from tests.bed.bot import Provider
from tests.bed.hosts import ROOT
from tests.bed.shared import SharedBots

PACKAGE = "astrbot_plugin_compact"

# AstrBot's core makes its data folder when imported, in the working directory if not told where.
_HOME = tempfile.mkdtemp(prefix="astrbot-in-process-")
os.environ["ASTRBOT_ROOT"] = _HOME


# `make check` looks at each law in passing. `make test` tries the same cases every time, so that
# it says something about a change; `make fuzz` tries new ones. No test depends on its speed.
settings.register_profile("check", max_examples=10, deadline=None)
settings.register_profile("test", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("fuzz", max_examples=1000, deadline=None, print_blob=True)
settings.load_profile("test")


def _load_package() -> None:
    """Make the repository importable as the package it is on a host, whatever its folder's name."""
    spec = importlib.machinery.ModuleSpec(PACKAGE, None, is_package=True)
    spec.submodule_search_locations = [str(ROOT)]
    sys.modules[PACKAGE] = importlib.util.module_from_spec(spec)


_load_package()

_BOTS = pytest.StashKey[list[Bot]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--hosts", default="", help=f"only these AstrBots, of {', '.join(HOSTS)}")


def pytest_unconfigure() -> None:
    shutil.rmtree(_HOME, ignore_errors=True)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that asks for a host runs on all, or on those its `hosts` mark names."""
    if "host" not in metafunc.fixturenames:
        return
    marker = metafunc.definition.get_closest_marker("hosts")
    names = list(marker.args) if marker else list(HOSTS)
    if chosen := metafunc.config.getoption("hosts"):
        names = [name for name in names if name in chosen.split(",")]
    metafunc.parametrize("host", names, indirect=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test shows the end of its bots' logs."""
    report = yield
    if report.failed:
        for bot in item.stash.get(_BOTS, []):
            report.sections.append((f"AstrBot {bot.host.version}", bot.log_tail()))
    return report


def _remember(request: pytest.FixtureRequest, bot: Bot) -> None:
    request.node.stash.setdefault(_BOTS, []).append(bot)


@pytest.fixture
def model() -> Iterator[Model]:
    """A scripted model of this test's own; at the end its script must have gone well."""
    with Model() as server:
        yield server
        server.assert_sound()


@pytest.fixture
def host(request: pytest.FixtureRequest) -> Host:
    """The AstrBot this test runs on."""
    return find_host(request.param)


StartBot = Callable[..., Bot]


@pytest.fixture
def start_bot(
    host: Host, model: Model, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[StartBot]:
    """Start a bot of this test's own on `host` and `model`; arguments are those of `Bot`."""
    bots: list[Bot] = []

    def start(**settings: Any) -> Bot:
        bot = Bot(tmp_path / f"bot{len(bots)}", model, host, **settings)
        bots.append(bot)
        _remember(request, bot)
        return bot.start()

    yield start
    for bot in bots:
        bot.close()


def _plugin_dir() -> Path:
    """The plugin under test; another folder may be named to try the bed without it."""
    return Path(os.environ.get("BED_PLUGIN_DIR", ROOT))


def embedding_provider(name: str) -> Provider:
    """A provider that is none for chat."""
    kind = {"type": "openai_embedding", "provider_type": "embedding"}
    more = {"embedding_api_key": "no-key", "embedding_model": "vectors-model"}
    return Provider(name, source=kind, more=kind | more | {"embedding_dimensions": 8})


def _make_bot(folder: Path, host: Host) -> Bot:
    return Bot(
        folder,
        Model(),
        host,
        plugin_dir=_plugin_dir(),
        onebot=True,
        admins=["1001"],
        providers=[
            Provider("small", 8_000),
            Provider("off", enable=False),
            embedding_provider("vectors"),
        ],
    )


@pytest.fixture(scope="session")
def shared_bots(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedBots]:
    """The bots all tests of this process share."""
    bots = SharedBots(tmp_path_factory.mktemp("shared"), _make_bot)
    yield bots
    bots.close()


@pytest.fixture
def bot(host: Host, shared_bots: SharedBots, request: pytest.FixtureRequest) -> Iterator[Bot]:
    """The shared bot of `host`, its model (`bot.model`) as new. Use sessions of your own."""
    shared = shared_bots.get(host)
    _remember(request, shared)
    yield shared
    shared.model.assert_sound()
    shared.model.reset()


@pytest.fixture
def chat(bot: Bot) -> WebChat:
    """A new web chat window on the shared bot."""
    return WebChat(bot)


@pytest.fixture
def qq(bot: Bot) -> Iterator[OneBot]:
    """A OneBot connection to the shared bot; user 1001 is an admin."""
    with OneBot(bot) as client:
        yield client
