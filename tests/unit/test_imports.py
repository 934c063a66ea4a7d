"""Who may import what: one door to AstrBot's core, one to its plugin interface."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bed.hosts import ROOT

SUMMARY = sorted((ROOT / "summary").glob("**/*.py"))
MODULES = [ROOT / "main.py", ROOT / "compressor.py", *SUMMARY]
# What AstrBot depends on already; users install nothing for us.
PACKAGES = {"aiosqlite", "jieba", "pydantic", "sqlalchemy", "sqlmodel"}
# Tests and scripts name us so; on a host the package has another name.
OURS = {"astrbot_plugin_compact", "summary", "compressor", "main", "tests", "tools", "data"}


def imports(path: Path) -> Iterator[tuple[str, int]]:
    """The modules a file imports, wherever in it, and how many dots are in front."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, 0) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or "", node.level
        elif isinstance(node, ast.Call) and _name(node.func) in {"import_module", "__import__"}:
            yield ast.unparse(node.args[0]), 0


def _name(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def absolute(path: Path) -> set[str]:
    return {module for module, dots in imports(path) if not dots}


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_only_the_compressor_knows_the_core(path: Path) -> None:
    core = {module for module in absolute(path) if f"{module}.".startswith("astrbot.core.")}
    assert bool(core) == (path.name == "compressor.py")


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_only_main_knows_the_plugin_interface(path: Path) -> None:
    api = {module for module in absolute(path) if f"{module}.".startswith("astrbot.api.")}
    assert bool(api) == (path.name == "main.py")


@pytest.mark.parametrize("path", SUMMARY, ids=name)
def test_the_summary_package_knows_nothing_of_astrbot(path: Path) -> None:
    assert not {module for module in absolute(path) if module.split(".")[0] == "astrbot"}
    above = {(module, dots) for module, dots in imports(path) if dots > 1}
    assert not above


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_modules_of_ours_are_imported_by_dots_alone(path: Path) -> None:
    """The folder's name on a host is the owner's choice."""
    assert not {module for module in absolute(path) if module.split(".")[0] in OURS}


@pytest.mark.parametrize("path", SUMMARY, ids=name)
def test_users_install_nothing(path: Path) -> None:
    roots = {module.split(".")[0] for module in absolute(path)}
    assert roots <= {*sys.stdlib_module_names, *PACKAGES}


def test_there_is_something_to_look_at() -> None:
    assert len(SUMMARY) > 30
