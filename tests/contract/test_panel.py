"""The panel's files, read by each AstrBot's own code."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from astrbot_plugin_compact.summary.args import SetRequest, parse_set
from astrbot_plugin_compact.summary.settings import apply_set

from tests.bed import Host

ROOT = Path(__file__).resolve().parents[2]
SESSION = "qq:GroupMessage:1"
WRONG_TYPES = {"keep_recent_ratio": "0.2", "auto_compact": "false", "compress_at": "80%"}

_READ = """
import json, sys
from astrbot.core.config.astrbot_config import AstrBotConfig
from astrbot.core.star.star_manager import PluginManager
try:
    from astrbot.dashboard.services.config_service import validate_config
except ImportError:
    from astrbot.dashboard.routes.config import validate_config

root, file, row, wrong = sys.argv[1:]
schema = json.load(open(root + "/_conf_schema.json", encoding="utf-8-sig"))

def stored(values):
    config = AstrBotConfig(file, schema=schema)
    config.update(json.loads(values))
    config.save_config()
    return dict(AstrBotConfig(file, schema=schema))

plugin = PluginManager._load_plugin_metadata(root)
result = {
    "fresh": dict(AstrBotConfig(file, schema=schema)),
    "row": stored(row),
    "name": plugin.name,
    "supported": PluginManager._validate_astrbot_version_specifier(plugin.astrbot_version)[0],
    "locales": sorted(plugin.i18n),
}
result["errors"] = validate_config(json.loads(json.dumps(result["row"])), schema, False)[0]
result["wrong"] = stored(wrong)
print("RESULT" + json.dumps(result))
"""


def row_of_a_session() -> dict[str, Any]:
    """What `set … here` puts into the config."""
    request = parse_set("line 0.5 limit 30 here")
    assert isinstance(request, SetRequest)
    return apply_set({}, request.changes, here=SESSION)


@functools.cache
def read_on(host: Host) -> dict[str, Any]:
    """What this AstrBot makes of our files and of configs with our values."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "config.json"
        values = (json.dumps(row_of_a_session()), json.dumps(WRONG_TYPES))
        done = subprocess.run(
            [host.python, "-c", _READ, ROOT, file, *values],
            env={**os.environ, "ASTRBOT_ROOT": folder},
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout.partition("RESULT")[2])
    return result


def test_the_host_loads_schema_metadata_and_texts(host: Host) -> None:
    schema = json.loads((ROOT / "_conf_schema.json").read_text(encoding="utf-8"))
    result = read_on(host)
    assert result["fresh"] == {name: item["default"] for name, item in schema.items()}
    assert result["name"] == "astrbot_plugin_compact"
    assert result["supported"]
    assert result["locales"] == ["en-US", "zh-CN"]


def test_a_sessions_row_survives_a_restart_and_the_panels_check(host: Host) -> None:
    result = read_on(host)
    assert result["row"]["session_overrides"] == row_of_a_session()["session_overrides"]
    assert result["errors"] == []


def test_values_of_wrong_types_reach_us_as_they_are(host: Host) -> None:
    wrong = read_on(host)["wrong"]
    assert {name: wrong[name] for name in WRONG_TYPES} == WRONG_TYPES
