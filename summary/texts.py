"""All sentences for people, in Chinese and English.

Laws: both languages of a sentence have the same fields, and `say` never fails for a field's
sake: one that is missing reads `?`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from .sentences_commands import COMMANDS
from .sentences_runs import RUNS
from .wording import short_number, visible

# What the command is called unless the owner renamed it.
COMMAND = "/compact"

SENTENCES: dict[str, tuple[str, str]] = {**RUNS, **COMMANDS}


class Command(str):
    """The command's name as it is typed here; `renamed` are new names of its sub-commands."""

    renamed: Mapping[str, str]

    def __new__(cls, name: str, renamed: Mapping[str, str]) -> Command:
        """Only sub-commands that have another name need be given."""
        made = super().__new__(cls, name)
        made.renamed = {old: new for old, new in renamed.items() if old != new}
        return made

    def with_new_names(self, text: str) -> str:
        """A sentence of ours that tells people what to type, with what there is to type."""
        if not self.renamed:
            return text
        olds = "|".join(map(re.escape, self.renamed))
        typed = re.compile(rf"({re.escape(self)} )({olds})(?![\w-])")
        return typed.sub(lambda found: found[1] + self.renamed[found[2]], text)


class _Number(int):
    """A number in a sentence: `{n}` is 12,345, `{n:k}` 12.3k, `{n:message}` 12,345 messages."""

    def __format__(self, form: str) -> str:
        if form == "k":
            return short_number(self)
        figure = f"{int(self):,}"
        if not form:
            return figure
        return f"{figure} {form}" if self == 1 else f"{figure} {form}s"


class _Text(str):
    """A text in a sentence, whatever form the sentence asks for."""

    def __format__(self, form: str) -> str:
        return str(self)


class _Fields:
    """A sentence's values, each in its form for people."""

    def __init__(self, fields: dict[str, object]) -> None:
        self._fields = fields

    def __getitem__(self, name: str) -> _Number | _Text:
        value = self._fields.get(name)
        if value is None:
            return _Text("?")
        if isinstance(value, int) and not isinstance(value, bool):
            return _Number(value)
        return _Text(f"{value:g}" if isinstance(value, float) else visible(str(value)))


def say(language: str, key: str, **fields: object) -> str:
    """One sentence.

    Args:
        language: `zh`, or anything else for English.
        key: the sentence's name.
        fields: its values; numbers get separators, a text stays as it is.

    """
    sentence = SENTENCES[key][0 if language == "zh" else 1]
    text = sentence.format_map(_Fields(fields))
    command = fields.get("command")
    return command.with_new_names(text) if isinstance(command, Command) else text
