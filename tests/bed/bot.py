"""A real AstrBot in a temporary folder, with our plugin's folder dropped in.

Invariant: the process is started in a session of its own and ended by its own pid; the data
folder survives `stop`, `kill9` and `restart`, and nothing outside the given folder is written.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx

from .aio import wait_for
from .hosts import ROOT, Host, find_host
from .model import Model
from .nursery import Process, nursery

PLUGIN = "astrbot_plugin_compact"
PASSWORD = "Bed-Password-1"
USERNAME = "astrbot"
CHAT_PROVIDER = "bed"
WINDOW_TOKENS = 128_000
# A plugin for tests: /switch, /del, tools (its README is its docstrings).
BED_PLUGIN = {"astrbot_plugin_bed": Path(__file__).parent / "plugins" / "astrbot_plugin_bed"}
_LOCAL = "127.0.0.1"
# Nobody listens on the discard port: a call to the outside fails at once, wherever tests run.
_NOWHERE = "http://127.0.0.1:9"
# The host's compression settings: names from 4.28.0 on, and what they were before.
_OLD_COMPRESSION = {
    "max_turns": "max_context_length",
    "trim_turns": "dequeue_context_length",
    "overflow_strategy": "context_limit_reached_strategy",
    "instruction": "llm_compress_instruction",
    "keep_recent_ratio": "llm_compress_keep_recent_ratio",
    "provider_id": "llm_compress_provider_id",
    "fallback_max_tokens": "fallback_max_context_tokens",
}
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_NOT_FOR_USERS = {"tests", "tools", ".ci", ".git"}


class BedError(Exception):
    """The bot did not do what the bed needs; holds the end of its log or its answer."""


@dataclass(frozen=True)
class Row:
    """A conversation as stored."""

    cid: str
    umo: str
    text: str | None
    token_usage: int
    updated_at: str

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The stored list, checkpoints included."""
        return json.loads(self.text) if self.text else []


@dataclass(frozen=True)
class Provider:
    """A chat model of the bot's configuration, served by the scripted model."""

    id: str
    window_tokens: int | None = WINDOW_TOKENS
    model: str | None = None
    enable: bool = True
    source: Mapping[str, Any] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)


def free_port() -> int:
    """A port nobody listens on at the moment."""
    with socket.socket() as probe:
        probe.bind((_LOCAL, 0))
        return probe.getsockname()[1]


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with `over` laid over it, dict by dict."""
    result = dict(base)
    for key, value in over.items():
        old = result.get(key)
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        result[key] = merged(old, value) if both else value
    return result


def plugin_files(folder: Path) -> list[Path]:
    """The files of a plugin's folder that a user would have, relative to it."""
    command = ["git", "-C", str(folder), "ls-files", "-z", "-co", "--exclude-standard"]
    listed = subprocess.run(command, capture_output=True, check=False)
    if listed.returncode == 0:
        names = [Path(os.fsdecode(name)) for name in listed.stdout.split(b"\0") if name]
    else:
        names = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    return [
        name
        for name in names
        if name.parts[0] not in _NOT_FOR_USERS
        and "__pycache__" not in name.parts
        and (folder / name).is_file()
    ]


class Bot:
    """One AstrBot. Make it, `start()` it, `close()` it; or use it as a context manager.

    Args:
        folder: an empty folder for everything it writes.
        model: the scripted model its providers talk to.
        host: which AstrBot (`find_host`).
        plugin_config: keys of our plugin's config file; the rest is the schema's default.
        config: laid over `cmd_config.json` (deep).
        compression: the host's own settings by their new names (`max_turns`, `provider_id`, …).
        providers: chat models besides the default `bed` (whose window is `window_tokens`).
        admins: user ids that are admins besides the web chat's.
        onebot: whether to open the OneBot adapter (`onebot_port`, platform id `qq`).
        plugin_dir: the plugin's source, None for no plugin.
        extra_plugins: others by folder name; the tests' own (`plugins/`) if not given.
    """

    def __init__(
        self,
        folder: Path,
        model: Model,
        host: Host | None = None,
        *,
        plugin_config: Mapping[str, Any] | None = None,
        config: Mapping[str, Any] | None = None,
        compression: Mapping[str, Any] | None = None,
        window_tokens: int | None = WINDOW_TOKENS,
        providers: Sequence[Provider] = (),
        admins: Sequence[str] = (),
        onebot: bool = False,
        plugin_dir: Path | None = ROOT,
        plugin_name: str = PLUGIN,
        extra_plugins: Mapping[str, Path] | None = None,
    ) -> None:
        self.folder = folder
        self.model = model
        self.host = host or find_host()
        self.plugin_name = plugin_name
        self.onebot_port = free_port() if onebot else None
        self.port = 0
        self._process: Process | None = None
        self._http: httpx.Client | None = None
        self._starts = 0
        self._plugins = dict(BED_PLUGIN if extra_plugins is None else extra_plugins)
        if plugin_dir is not None:
            self._plugins[plugin_name] = plugin_dir
        all_providers = [Provider(CHAT_PROVIDER, window_tokens), *providers]
        core = self._core_config(all_providers, [USERNAME, *admins], compression or {})
        self._lay_out(merged(core, config or {}))
        if plugin_config is not None:
            self.write_plugin_config(plugin_config)

    # -- the process ---------------------------------------------------------------------

    def start(self, timeout_seconds: float = 180) -> Bot:
        """Start it and wait until it serves and every plugin given is loaded.

        Raises:
            BedError: it ended, did not get ready, or a plugin failed to load.
        """
        assert self._process is None, "it runs already"
        self._starts += 1
        self.port = free_port()
        with self.log_path.open("ab") as log:
            self._process = nursery(self.host.python).spawn(
                ["run", "-p", str(self.port)], self.folder, self._environment(), log.fileno()
            )
        self._http = httpx.Client(
            base_url=f"http://{_LOCAL}:{self.port}", trust_env=False, timeout=60
        )
        try:
            self._wait_ready(timeout_seconds)
            self._log_in()
            self._check_plugins()
        except BaseException:
            self.kill9()
            raise
        return self

    def stop(self, how: signal.Signals = signal.SIGINT, timeout_seconds: float = 20) -> float:
        """End it; the seconds it took.

        AstrBot ends in order (plugins terminated) on SIGINT only; SIGTERM just kills it.

        Raises:
            BedError: it did not end in time; it was killed then.
        """
        started = time.monotonic()
        process, self._process = self._process, None
        self._close_http()
        if process is not None:
            process.send_signal(how)
            try:
                process.wait(timeout_seconds)
            except TimeoutError as exc:
                process.kill()
                raise BedError(f"AstrBot did not end on {how.name}:\n{self.log_tail()}") from exc
        return time.monotonic() - started

    def kill9(self) -> None:
        """End it in the middle of whatever it does."""
        process, self._process = self._process, None
        self._close_http()
        if process is not None:
            process.kill()

    def restart(self) -> Bot:
        """Stop it and start it again on the same data."""
        self.stop()
        return self.start()

    def close(self) -> None:
        """End it for good, at once; the folder stays. A test of its ending calls `stop`."""
        self.kill9()

    def wait(self) -> None:
        """Wait until the process ends by itself."""
        assert self._process is not None
        self._process.wait()

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process lives."""
        return self._process is not None and self._process.poll() is None

    def __enter__(self) -> Bot:
        return self if self.running else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()

    # -- its log -------------------------------------------------------------------------

    @property
    def log_path(self) -> Path:
        """Where its output goes, of all its starts."""
        return self.folder / "astrbot.log"

    def log(self) -> str:
        """All it printed so far."""
        if not self.log_path.exists():
            return ""
        return _COLOUR.sub("", self.log_path.read_text("utf-8", "replace"))

    def log_tail(self, lines: int = 60) -> str:
        """The end of what it printed."""
        return "\n".join(line[:400] for line in self.log().splitlines()[-lines:])

    def wait_log(self, text: str, count: int = 1, timeout_seconds: float = 20) -> None:
        """Wait until the log holds a text so many times."""
        wait_for(lambda: self.log().count(text) >= count, f"{text!r} in the log", timeout_seconds)

    def leftovers(self) -> list[str]:
        """Log lines about tasks and exceptions nobody took care of."""
        marks = ("was never retrieved", "Task was destroyed", "was never awaited")
        return [line for line in self.log().splitlines() if any(mark in line for mark in marks)]

    # -- its files -----------------------------------------------------------------------

    @property
    def data(self) -> Path:
        """Its data folder."""
        return self.folder / "data"

    @property
    def plugin_data(self) -> Path:
        """Where our plugin keeps its files, the archive among them."""
        return self.data / "plugin_data" / self.plugin_name

    @property
    def plugin_folder(self) -> Path:
        """The copy of our plugin it runs."""
        return self.data / "plugins" / self.plugin_name

    def archive_files(self) -> list[Path]:
        """The SQLite files our plugin keeps."""
        found = self.plugin_data.rglob("*") if self.plugin_data.exists() else []
        return sorted(path for path in found if path.suffix in {".db", ".sqlite", ".sqlite3"})

    def archive_rows(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """Rows of the one archive file."""
        (path,) = self.archive_files()
        with _open(path) as db:
            return db.execute(sql, values).fetchall()

    def plugin_config(self) -> dict[str, Any]:
        """Our plugin's config file as it is now; empty if there is none yet."""
        path = self._plugin_config_path
        return json.loads(path.read_text("utf-8-sig")) if path.exists() else {}

    def write_plugin_config(self, config: Mapping[str, Any]) -> None:
        """Write our plugin's config file; takes effect at the next start or reload."""
        self._plugin_config_path.write_text(json.dumps(config), "utf-8-sig")

    def core_config(self) -> dict[str, Any]:
        """`cmd_config.json` as it is now."""
        return json.loads((self.data / "cmd_config.json").read_text("utf-8-sig"))

    # -- its database --------------------------------------------------------------------

    def current_cid(self, umo: str) -> str | None:
        """The session's current conversation."""
        sql = "SELECT value FROM preferences WHERE scope='umo' AND scope_id=? AND key='sel_conv_id'"
        rows = self.query(sql, umo)
        return json.loads(rows[0][0])["val"] if rows else None

    def row(self, umo: str, cid: str | None = None) -> Row:
        """The session's conversation (the current one).

        Raises:
            LookupError: there is none.
        """
        cid = cid or self.current_cid(umo)
        rows = [row for row in self.rows(umo) if row.cid == cid]
        if not rows:
            raise LookupError(f"no conversation {cid} in {umo}")
        return rows[0]

    def wait_row(self, umo: str, fits: Callable[[Row], bool], timeout_seconds: float = 20) -> Row:
        """Wait until the session's current conversation fits.

        On QQ a turn is saved after its reply was sent.

        Raises:
            TimeoutError: it never did; shows the row.
        """

        def found() -> Row | None:
            rows = [row for row in self.rows(umo) if row.cid == self.current_cid(umo)]
            return rows[0] if rows and fits(rows[0]) else None

        try:
            return wait_for(found, "the conversation", timeout_seconds)
        except TimeoutError as exc:
            raise TimeoutError(f"{exc}; it is {self.rows(umo)}") from exc

    def rows(self, umo: str) -> list[Row]:
        """All conversations of a session, oldest first."""
        columns = "conversation_id, user_id, content, token_usage, updated_at"
        sql = f"SELECT {columns} FROM conversations WHERE user_id=? ORDER BY inner_conversation_id"
        return [Row(*values) for values in self.query(sql, umo)]

    def write_row(
        self,
        umo: str,
        messages: Iterable[Mapping[str, Any]] | str,
        token_usage: int = 0,
        cid: str | None = None,
    ) -> str:
        """Overwrite a conversation's history (a list, or the row's very text); its cid."""
        cid = cid or self.row(umo).cid
        text = messages if isinstance(messages, str) else json.dumps(list(messages))
        with _open(self.db_path, write=True) as db, db:
            sql = "UPDATE conversations SET content=?, token_usage=? WHERE conversation_id=?"
            changed = db.execute(sql, (text, token_usage, cid)).rowcount
        if changed != 1:
            raise LookupError(f"no conversation {cid}")
        return cid

    def query(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """Rows of the bot's database."""
        with _open(self.db_path) as db:
            return db.execute(sql, values).fetchall()

    @property
    def db_path(self) -> Path:
        """The bot's database."""
        return self.data / "data_v4.db"

    # -- its dashboard -------------------------------------------------------------------

    @property
    def has_v1(self) -> bool:
        """Whether the dashboard speaks /api/v1 (from 4.26.0)."""
        return self.host.release >= (4, 26)

    @property
    def http(self) -> httpx.Client:
        """A client that is logged in; safe to use from several threads."""
        assert self._http is not None, "it is not running"
        return self._http

    def api(self, method: str, path: str, **request: Any) -> Any:
        """Call the dashboard's API; its answer's `data`.

        Raises:
            BedError: the answer is no success.
        """
        response = self.http.request(method, path, **request)
        body = response.json() if "json" in response.headers.get("content-type", "") else {}
        if response.status_code >= 400 or body.get("status") != "ok":
            raise BedError(f"{method} {path}: {response.status_code} {response.text[:2000]}")
        return body.get("data")

    def save_plugin_config(self, config: Mapping[str, Any]) -> None:
        """Save our whole config in the panel, which reloads the plugin."""
        name = self.plugin_name
        if self.has_v1:
            self.api("PUT", f"/api/v1/plugins/{name}/config", json={"config": dict(config)})
        else:
            path = "/api/config/plugin/update"
            self.api("POST", path, params={"plugin_name": name}, json=dict(config))

    def change_plugin_config(self, **changes: Any) -> None:
        """Save the present config with some keys changed."""
        self.save_plugin_config({**self.plugin_config(), **changes})

    def panel_config(self) -> dict[str, Any]:
        """Our config as the panel shows it."""
        name = self.plugin_name
        if self.has_v1:
            return self.api("GET", f"/api/v1/plugins/{name}/config")["config"]
        return self.api("GET", "/api/config/get", params={"plugin_name": name})["config"]

    def reload_plugin(self) -> None:
        """Reload our plugin."""
        if self.has_v1:
            self.api("POST", f"/api/v1/plugins/{self.plugin_name}/reload")
        else:
            self.api("POST", "/api/plugin/reload", json={"name": self.plugin_name})

    def commands(self) -> list[dict[str, Any]]:
        """The command list of the WebUI, sub-commands in it, ours only."""
        path = "/api/v1/commands" if self.has_v1 else "/api/commands"
        items = self.api("GET", path)["items"]
        return [item for item in _flat(items) if item["plugin"] == self.plugin_name]

    def rename_command(self, handler: str, new_name: str, aliases: Sequence[str] = ()) -> None:
        """Rename a command; `handler` is the name of its function in `main.py`."""
        full_name = self._handler(handler)
        body: dict[str, Any] = {"aliases": list(aliases)}
        if self.has_v1:
            body |= {"alias": new_name}
            self.api("PATCH", f"/api/v1/commands/{full_name}", json=body)
        else:
            body |= {"handler_full_name": full_name, "new_name": new_name}
            self.api("POST", "/api/commands/rename", json=body)

    def toggle_command(self, handler: str, *, enabled: bool) -> None:
        """Switch a command on or off."""
        full_name = self._handler(handler)
        if self.has_v1:
            self.api("PATCH", f"/api/v1/commands/{full_name}", json={"enabled": enabled})
        else:
            body = {"handler_full_name": full_name, "enabled": enabled}
            self.api("POST", "/api/commands/toggle", json=body)

    def permit_command(self, handler: str, permission: str) -> None:
        """Set who may use a command: `admin` or `member`."""
        full_name = self._handler(handler)
        if self.has_v1:
            body = {"permission_group": permission}
            self.api("PATCH", f"/api/v1/commands/{full_name}", json=body)
        else:
            body = {"handler_full_name": full_name, "permission": permission}
            self.api("POST", "/api/commands/permission", json=body)

    def delete_conversation(self, umo: str, cid: str) -> None:
        """Delete a conversation in the WebUI."""
        body = {"user_id": umo, "cid": cid}
        self.api("POST", "/api/conversation/delete", json=body)

    def edit_conversation(self, umo: str, cid: str, messages: list[dict[str, Any]]) -> None:
        """Save a history in the WebUI's editor."""
        body = {"user_id": umo, "cid": cid, "history": json.dumps(messages)}
        self.api("POST", "/api/conversation/update_history", json=body)

    # -- inside --------------------------------------------------------------------------

    def _lay_out(self, core: Mapping[str, Any]) -> None:
        (self.folder / "home").mkdir(parents=True)
        (self.folder / ".astrbot").touch()
        (self.data / "config").mkdir(parents=True)
        (self.data / "cmd_config.json").write_text(json.dumps(core, indent=2), "utf-8-sig")
        self._lay_out_dashboard()
        for name, source in self._plugins.items():
            for file in plugin_files(source):
                target = self.data / "plugins" / name / file
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source / file, target)

    def _lay_out_dashboard(self) -> None:
        """Old packages hold no WebUI and would download it; its place is enough for the API."""
        packages = self.host.python.parent.parent / "lib"
        if not list(packages.glob("python3*/site-packages/astrbot/dashboard/dist")):
            assets = self.data / "dist" / "assets"
            assets.mkdir(parents=True)
            (assets / "version").write_text(f"v{self.host.version}")
            (assets.parent / "index.html").write_text("<!doctype html><title>no WebUI</title>")

    def _core_config(
        self,
        providers: Sequence[Provider],
        admins: list[str],
        compression: Mapping[str, Any],
    ) -> dict[str, Any]:
        platforms = []
        if self.onebot_port is not None:
            platforms.append(
                {
                    "id": "qq",
                    "type": "aiocqhttp",
                    "enable": True,
                    "ws_reverse_host": _LOCAL,
                    "ws_reverse_port": self.onebot_port,
                    "ws_reverse_token": "",
                }
            )
        return {
            "provider_sources": [self._source(provider) for provider in providers],
            "provider": [self._provider(provider) for provider in providers],
            "platform": platforms,
            # As shipped, the 31st message of a session within a minute waits for its end.
            "platform_settings": {"rate_limit": {"time": 60, "count": 1_000_000}},
            "admins_id": admins,
            "log_level": "INFO",
        } | self._agent_config(providers[0].id, compression)

    def _agent_config(self, provider_id: str, compression: Mapping[str, Any]) -> dict[str, Any]:
        """Default model and compression settings, in the names of this version."""
        if self.host.release >= (4, 28):
            # Of five tries the last comes after 15 s; one is enough for a scripted failure.
            model = {"provider_id": provider_id, "request_max_retries": 1}
            return {"agent_runner": {"config": {"model": model, "compression": dict(compression)}}}
        old = {_OLD_COMPRESSION[key]: value for key, value in compression.items()}
        return {"provider_settings": {"default_provider_id": provider_id, **old}}

    def _source(self, provider: Provider) -> dict[str, Any]:
        source = {
            "id": f"{provider.id}-source",
            "provider": "openai",
            "type": "openai_chat_completion",
            "provider_type": "chat_completion",
            "enable": True,
            "key": ["no-key"],
            "api_base": self.model.url,
            "timeout": 60,
            "proxy": "",
            "custom_headers": {},
        }
        return merged(source, provider.source)

    def _provider(self, provider: Provider) -> dict[str, Any]:
        entry: dict[str, Any] = {
            "id": provider.id,
            "enable": provider.enable,
            "provider_source_id": f"{provider.id}-source",
            "model": provider.model or f"{provider.id}-model",
            "modalities": ["text", "image", "tool_use"],
            "custom_extra_body": {},
        }
        if provider.window_tokens is not None:
            entry["max_context_tokens"] = provider.window_tokens
        return merged(entry, provider.more)

    def _environment(self) -> dict[str, str]:
        return {
            "PATH": f"{self.host.python.parent}{os.pathsep}{os.environ.get('PATH', '')}",
            "HOME": str(self.folder / "home"),
            "LANG": "C.UTF-8",
            "PYTHONUTF8": "1",
            "PYTHONUNBUFFERED": "1",
            "ASTRBOT_DASHBOARD_INITIAL_PASSWORD": PASSWORD,
            "DASHBOARD_HOST": _LOCAL,
            "NO_PROXY": f"{_LOCAL},localhost",
            "HTTP_PROXY": _NOWHERE,
            "HTTPS_PROXY": _NOWHERE,
        }

    def _wait_ready(self, timeout_seconds: float) -> None:
        def serves() -> bool:
            if not self.running:
                raise BedError(f"AstrBot {self.host.version} ended at start:\n{self.log_tail()}")
            try:
                return self.http.get("/api/auth/setup-status").status_code < 500
            except httpx.TransportError:
                return False

        try:
            wait_for(serves, "the dashboard", timeout_seconds, every_seconds=0.05)
        except TimeoutError as exc:
            raise BedError(f"AstrBot {self.host.version}: {exc}\n{self.log_tail()}") from exc

    def _log_in(self) -> None:
        data = self.api(
            "POST", "/api/auth/login", json={"username": USERNAME, "password": PASSWORD}
        )
        self.http.headers["Authorization"] = f"Bearer {data['token']}"

    def _check_plugins(self) -> None:
        path = "/api/v1/plugins" if self.has_v1 else "/api/plugin/get"
        active = {each["name"] for each in self.api("GET", path) if each["activated"]}
        if missing := set(self._plugins) - active:
            raise BedError(
                f"AstrBot {self.host.version} did not load {sorted(missing)}:\n{self.log_tail(120)}"
            )

    def _handler(self, name: str) -> str:
        items = {each["handler_name"]: each["handler_full_name"] for each in self.commands()}
        return items[name]

    @property
    def _plugin_config_path(self) -> Path:
        return self.data / "config" / f"{self.plugin_name}_config.json"

    def _close_http(self) -> None:
        if self._http is not None:
            self._http.close()
            self._http = None


@contextmanager
def _open(path: Path, write: bool = False) -> Iterator[sqlite3.Connection]:
    mode = "rw" if write else "ro"
    with closing(sqlite3.connect(f"file:{path}?mode={mode}", uri=True, timeout=20)) as db:
        yield db


def _flat(items: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    for item in items:
        yield dict(item)
        yield from _flat(item.get("sub_commands") or ())
