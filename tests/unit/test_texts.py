"""The sentences: both languages, every error, none unused."""

from __future__ import annotations

import re
import string
from pathlib import Path

import pytest
from astrbot_plugin_compact.summary import errors
from astrbot_plugin_compact.summary.errors import CompactError
from astrbot_plugin_compact.summary.texts import SENTENCES, Command, say

ROOT = Path(__file__).resolve().parents[2]
ERRORS = [
    value
    for value in vars(errors).values()
    if isinstance(value, type) and issubclass(value, CompactError)
]


def fields(sentence: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(sentence) if name is not None}


def sources() -> str:
    """All code that says something, the sentences themselves left out."""
    paths = [*ROOT.glob("*.py"), *(ROOT / "summary").glob("*.py")]
    return "\n".join(
        path.read_text(encoding="utf-8") for path in paths if not path.name.startswith("sentences_")
    )


@pytest.mark.parametrize("key", SENTENCES)
def test_both_languages_have_the_same_fields(key: str) -> None:
    chinese, english = SENTENCES[key]
    assert fields(chinese) == fields(english)


@pytest.mark.parametrize("key", SENTENCES)
def test_english_sentences_hold_no_chinese_and_no_sentence_is_empty(key: str) -> None:
    chinese, english = SENTENCES[key]
    assert chinese.strip()
    assert english.strip()
    assert not re.search(r"[\u4e00-\u9fff，。（）：]", english)


@pytest.mark.parametrize("error", ERRORS)
def test_every_error_has_its_sentence_with_the_fields_it_promises(error: type) -> None:
    promised = set()
    for cls in error.__mro__:
        if found := re.search(r"Fields?: (.*)", cls.__doc__ or ""):
            promised |= set(re.findall(r"`(\w+)`", found[1]))
    assert fields(SENTENCES[error.key][0]) - {"command"} <= promised


def test_no_sentence_is_unused_and_none_is_missing() -> None:
    code = sources()
    families = set(re.findall(r"""f["']([a-z_]+)\.\{""", code))
    literals = set(re.findall(r"""["']([a-z_]+(?:\.[a-z_]+)*)["']""", code))
    unused = {key for key in SENTENCES if key not in literals and key.split(".")[0] not in families}
    assert unused == set()
    said = set(re.findall(r"""say\(\s*language,\s*"([^"]+)\"""", code))
    assert said <= SENTENCES.keys()


def test_numbers_get_separators_and_english_nouns_their_number() -> None:
    tokens = {"before_tokens": 31_234, "after_tokens": 4_100}
    assert say("zh", "done.tokens", before=12_345, after=1_234, percent=90) == (
        "约 12,345 → 1,234 tokens (-90%)"
    )
    assert say("en", "notice", before=2_000, after=1, **tokens) == (
        "🗜️ Conversation compacted: 2,000 → 1 message, about 31.2k → 4.1k tokens"
    )
    assert say("en", "done.requests", requests=1) == "1 request"
    assert say("en", "done.requests", requests=2) == "2 requests"


def test_a_missing_field_is_a_question_mark_and_no_crash() -> None:
    assert say("en", "done.kept") == "? kept verbatim"


def test_braces_in_a_value_stay_what_they_are() -> None:
    assert "{0} {x}" in say("zh", "error.provider", provider="{0} {x}", detail="")


def test_a_value_that_cannot_be_sent_is_replaced() -> None:
    say("zh", "error.provider", provider="\ud83d", detail="").encode()


def test_sub_commands_are_named_as_they_are_called_here() -> None:
    command = Command("/压缩", {"undo": "撤销", "forget": "forget", "show": "看"})
    assert say("zh", "done.undo", command=command) == "↩️ /压缩 撤销 可撤销"
    assert say("zh", "refused.admin", command=command, name="forget").startswith("🔒 /压缩 forget ")
    text = say("zh", "help", command=command)
    assert "/压缩 看 [n]" in text
    assert "/压缩 undo" not in text
    # Nobody else's words are changed.
    words = "/压缩 undone, /other undo"
    assert words in say("en", "error.provider", provider="x", detail=words, command=command)
    assert say("zh", "done.undo", command=Command("/c", {"undo": "undo"})) == "↩️ /c undo 可撤销"
