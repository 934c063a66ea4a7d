"""What is made from the table of settings: the panel's schema and the tables of the READMEs.

The texts stand in the i18n files, everything else in `summary/settings.py`. After a change of
either, `python -m tests.settings_tables` writes the schema and the READMEs anew; a test
compares them.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "astrbot_plugin_compact"
LOCALES = {"zh": "zh-CN", "en": "en-US"}
READMES = {"zh": "README.md", "en": "README_en.md"}
BEGIN = "<!-- settings -->"
END = "<!-- /settings -->"

_TYPES = {
    "ratio": "float",
    "whole": "int",
    "switch": "bool",
    "choice": "string",
    "text": "string",
    "json": "text",
    "layers": "template_list",
}
_HEADINGS = {
    "zh": ("短名", "配置项", "默认值", "可用的值", "说明"),
    "en": ("short", "setting", "default", "values", "what it does"),
}


def _module(name: str) -> Any:
    if PACKAGE not in sys.modules:
        spec = importlib.machinery.ModuleSpec(PACKAGE, None, is_package=True)
        spec.submodule_search_locations = [str(ROOT)]
        sys.modules[PACKAGE] = importlib.util.module_from_spec(spec)
    return importlib.import_module(f"{PACKAGE}.summary.{name}")


def panel_texts(language: str) -> dict[str, Any]:
    """The panel's texts in a language, by setting."""
    path = ROOT / ".astrbot-plugin" / "i18n" / f"{LOCALES[language]}.json"
    texts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["config"]
    return texts


def schema() -> dict[str, Any]:
    """The content of `_conf_schema.json`; its own texts are the Chinese ones."""
    settings, texts = _module("settings"), panel_texts("zh")
    items = {setting.name: _item(setting, texts[setting.name]) for setting in settings.SETTINGS}
    layered = settings.LAYERED
    items["session_overrides"]["templates"] = {
        name: _template(name, template, layered)
        for name, template in texts["session_overrides"]["templates"].items()
    }
    return items


def settings_table(language: str) -> str:
    """The README's table of all settings, in Markdown."""
    settings, replies = _module("settings"), _module("settings_reply")
    texts = panel_texts(language)
    headings = _HEADINGS[language]
    rows = [_row(headings), _row(["---"] * len(headings))]
    for setting in settings.SETTINGS:
        text = texts[setting.name]
        short = f"`{setting.short}`" if setting.short else ""
        default = json.dumps(_default(setting), ensure_ascii=False)
        values = replies.legal_values(language, setting) if setting.kind.value != "layers" else ""
        about = f"**{text['description']}** {text['hint']}"
        rows.append(_row([short, f"`{setting.name}`", f"`{default}`", values, about]))
    return "\n".join(rows)


def table_of(readme: str) -> str:
    """The table between the markers of a README's text."""
    return readme.partition(BEGIN)[2].partition(END)[0].strip()


def write() -> None:
    """Write the schema and the tables of the READMEs that are there."""
    content = json.dumps(schema(), ensure_ascii=False, indent=2)
    (ROOT / "_conf_schema.json").write_text(content + "\n", encoding="utf-8")
    for language, name in READMES.items():
        path = ROOT / name
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        if BEGIN not in text or END not in text:
            continue
        before, _, rest = text.partition(BEGIN)
        after = rest.partition(END)[2]
        table = settings_table(language)
        path.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}", encoding="utf-8")


def _item(setting: Any, texts: dict[str, Any]) -> dict[str, Any]:
    item: dict[str, Any] = {"type": _TYPES[setting.kind.value], "default": _default(setting)}
    if setting.options:
        item["options"] = list(setting.options)
    item |= {name: texts[name] for name in ("labels", "description", "hint") if name in texts}
    return {**item, **setting.panel}


def _template(name: str, texts: dict[str, Any], layered: Any) -> dict[str, Any]:
    layers = _module("layers")
    items: dict[str, Any] = {name: {"type": "string", "default": ""}}
    if name == layers.PLATFORM_ROW:
        items["chats"] = {
            "type": "string", "default": layers.CHATS[0], "options": list(layers.CHATS)
        }  # fmt: skip
    for setting in layered:
        items[setting.name] = {"type": _TYPES[setting.kind.value], "default": layers.INHERIT}
    for field, item in items.items():
        item |= texts[field]
    return {"name": texts["name"], "hint": texts["hint"], "display_item": name, "items": items}


def _default(setting: Any) -> Any:
    return list(setting.default) if isinstance(setting.default, tuple) else setting.default


def _row(cells: Any) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    write()
