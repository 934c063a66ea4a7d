"""One table of settings, and everything that must say the same.

`python -m tests.settings_tables` writes the schema and the READMEs' tables anew.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from astrbot_plugin_compact.summary.args import CompactArgs, known_override_keys
from astrbot_plugin_compact.summary.settings import BY_NAME, SETTINGS, Settings

from tests import settings_tables as tables

ROOT = Path(__file__).resolve().parents[2]
LANGUAGES = sorted(tables.LOCALES)
SCHEMA: dict[str, Any] = json.loads((ROOT / "_conf_schema.json").read_text(encoding="utf-8"))
# What every AstrBot from 4.25.3 on knows; it refuses the whole plugin for any other.
HOST_TYPES = {"string", "text", "int", "float", "bool", "list", "object", "template_list"}


def key_paths(value: Any, path: str = "") -> set[str]:
    if isinstance(value, dict):
        return {p for key, inner in value.items() for p in key_paths(inner, f"{path}/{key}")}
    return {f"{path}[{len(value)}]" if isinstance(value, list) else path}


def schema_items(items: dict[str, Any]) -> list[dict[str, Any]]:
    found = []
    for item in items.values():
        found.append(item)
        for template in item.get("templates", {}).values():
            found += schema_items(template["items"])
    return found


def test_the_schema_is_what_the_table_and_the_texts_make() -> None:
    assert tables.schema() == SCHEMA
    assert list(SCHEMA) == [setting.name for setting in SETTINGS]


def test_the_schema_uses_only_types_every_supported_host_knows() -> None:
    assert {item["type"] for item in schema_items(SCHEMA)} <= HOST_TYPES


def test_the_schemas_defaults_are_the_settings_defaults() -> None:
    raw = {name: item["default"] for name, item in SCHEMA.items()}
    assert Settings.parse(raw, pytest.fail) == Settings()
    assert [f.name for f in dataclasses.fields(Settings)] == list(BY_NAME)


def test_a_new_row_of_the_panel_is_understood_and_changes_nothing() -> None:
    warnings: list[str] = []
    for name, template in SCHEMA["session_overrides"]["templates"].items():
        row = {"__template_key": name}
        row |= {field: item["default"] for field, item in template["items"].items()}
        row[name] = "qq" if name == "platform" else "qq:GroupMessage:1"
        settings = Settings.parse({"session_overrides": [row]}, warnings.append)
        assert settings.lines("qq:GroupMessage:1") == Settings().lines("qq:GroupMessage:1")
        assert len(settings.session_overrides) == 1
    assert warnings == []


def test_every_option_has_its_label() -> None:
    for item in schema_items(SCHEMA):
        assert len(item.get("labels", [])) == len(item.get("options", []))


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_setting_has_a_text_and_a_hint_in_the_panel(language: str) -> None:
    texts = tables.panel_texts(language)
    assert list(texts) == list(SCHEMA)
    for name, text in texts.items():
        assert text["description"], name
        assert text["hint"], name


def test_both_languages_of_the_panel_have_the_same_keys() -> None:
    chinese, english = (
        json.loads((ROOT / ".astrbot-plugin/i18n" / f"{locale}.json").read_text(encoding="utf-8"))
        for locale in tables.LOCALES.values()
    )
    assert key_paths(chinese) == key_paths(english)


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_hint_of_the_line_says_what_an_owner_must_know(language: str) -> None:
    hint = tables.panel_texts(language)["compress_at"]["hint"]
    for figure in ("0.82", "0.7", "2%", "0.06", "60k", "7.7k"):
        assert figure in hint


def test_the_tables_of_the_readmes_are_the_settings() -> None:
    for language, name in tables.READMES.items():
        if (readme := ROOT / name).exists():
            text = readme.read_text(encoding="utf-8")
            assert tables.table_of(text) == tables.settings_table(language), name


def test_the_words_of_a_run_are_those_of_the_table() -> None:
    runnable = [setting for setting in SETTINGS if setting.run.value != "none"]
    words = {word for setting in runnable for word in (setting.short, setting.name)}
    assert known_override_keys() == words
    arguments = {field.name for field in dataclasses.fields(CompactArgs)}
    assert {setting.name for setting in runnable} - arguments == {"compress_provider_id"}


def test_the_metadata_names_what_the_host_needs() -> None:
    metadata = yaml.safe_load((ROOT / "metadata.yaml").read_text(encoding="utf-8"))
    assert metadata["name"] == "astrbot_plugin_compact"
    assert metadata["astrbot_version"] == ">=4.25.3,<5"
    texts = json.loads((ROOT / ".astrbot-plugin/i18n/zh-CN.json").read_text(encoding="utf-8"))
    for name, text in texts["metadata"].items():
        assert metadata[name] == text
