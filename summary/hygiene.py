"""Text made fit for the summary model, in the copy that is sent (spec 2.3, habit 8).

Invariant: what leaves here is valid UTF-8, holds no data URI, and holds nothing that could be
taken for one of our own marks: the retain heading, a unit's number, a fence tag, a speaker's
label at the start of a line. The stored messages are never touched.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

KEEP_HEADINGS = {"zh": "【保留原文】", "en": "[Keep verbatim]"}
FENCE_TAGS = ("earlier", "talk", "todos")
LABELS = ("用户", "助手", "调用", "工具结果", "通知", "文件", "系统")

IMAGE, AUDIO, FILE = "[图片]", "[音频]", "[文件]"
CUT_CHARS = 200

_BATCH_CHARS = 200_000

_REPLACEMENT = "\ufffd"
_UNSENDABLE = re.compile("[\x00\ud800-\udfff]")

# All repeats are bounded, or a hostile text could make matching quadratic.
_URI_HEAD = r"data:([a-z]{0,20})(?:/[\w.+-]{1,100})?(?:;[\w.=+-]{1,100}){0,8}"
_BASE64_URI = re.compile(
    _URI_HEAD + r";base64,[\w+/=%-]*(?:\\/[\w+/=%-]*)*(?:(?:\s|\\[rn]){1,4}[\w+/=-]{40,})*",
    re.IGNORECASE | re.ASCII,
)
_PLAIN_URI = re.compile(
    r"data:([a-z]{1,20})/[\w.+-]{1,100}(?:;[\w.=+-]{1,100}){0,8},[^\s\"'<>()\[\]{}\\]+",
    re.IGNORECASE | re.ASCII,
)
_NUMBER_MARK = re.compile(r"([#＃]\s{0,8}\d{1,12}\s{0,8})〔")
_KEEP_MARK = re.compile(
    r"[【\[［〔「]\s{0,8}(保留原文|keep\s{1,8}verbatim)\s{0,8}[】\]］〕」]", re.IGNORECASE
)
_TAG = re.compile(r"[<＜](\s{0,8}/?\s{0,8}(?:" + "|".join(FENCE_TAGS) + r")\b)", re.IGNORECASE)
_LABEL_LINE = re.compile(
    r"\n((?:" + "|".join(LABELS) + r")[^\S\n]{0,8}[\[［(（:：]"
    r"|调用[^\S\n]{1,8}[\w.-]{1,64}\()"
)

# One of these is in every text that has anything to replace, but for a label at a line's start.
# Few and short: each is looked for in every character of a history.
_HINTS = ("ata:", "ATA:", "〔", "保留原文", "erbatim", "ERBATIM", "<", "＜")

# A name stands inside `[…(…)]:`; with these gone it cannot end its label or begin another.
_NAME_MAP = str.maketrans(
    {"[": "［", "]": "］", "(": "（", ")": "）", ":": "：", "<": "‹", ">": "›", "#": "＃"}
    | {"【": "「", "】": "」", "〔": "（", "〕": "）"}
)
_NAME_CHARS = 48
_BREAKS = re.compile(r"[\s\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]+")


def valid_text(text: str) -> str:
    """The text as valid UTF-8 without NUL; halves of a pair that meet become its character."""
    if _is_valid(text):
        return text
    joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return _UNSENDABLE.sub(_REPLACEMENT, joined)


def without_data_uris(text: str) -> str:
    """The text with a placeholder for each data URI, whatever its length."""
    if "ata:" not in text and "ATA:" not in text:
        return text
    return _PLAIN_URI.sub(_uri_placeholder, _BASE64_URI.sub(_uri_placeholder, text))


def neutral(text: str) -> str:
    """The text with everything that imitates our own marks disarmed but still readable."""
    text = _NUMBER_MARK.sub(r"\1(", text)
    text = _KEEP_MARK.sub(r"‹\1›", text)
    text = _TAG.sub(r"‹\1", text)
    return _LABEL_LINE.sub(r"\n> \1", text)


def safe_copy(text: str) -> str:
    """All of the above: what may be sent of a text somebody else wrote."""
    return _mend(text, (*_HINTS, "\n"))


def safe_copies(texts: Sequence[str]) -> list[str]:
    """A safe copy of each text.

    Almost all texts are clean. Joined and searched some hundreds at a time they say so at the
    price of a few searches, and only what a batch does hold is looked for in each of its texts.
    """
    copies: list[str] = []
    start = chars = 0
    for end, text in enumerate(texts, 1):
        chars += len(text)
        if chars < _BATCH_CHARS and end < len(texts):
            continue
        batch = texts[start:end]
        # Joined by a space: a line break would make labels out of first words.
        joined = " ".join(batch)
        hints = [hint for hint in _HINTS if hint in joined]
        if _LABEL_LINE.search(joined):
            hints.append("\n")
        if hints or not _is_valid(joined):
            batch = [_mend(one, hints) for one in batch]
        copies += batch
        start, chars = end, 0
    return copies


def shorten(text: str, limit_chars: int = CUT_CHARS) -> str:
    """The first characters of a text, with a sign that there was more."""
    return text if len(text) <= limit_chars else text[:limit_chars] + "…"


@lru_cache(maxsize=1024)
def label_name(name: str) -> str:
    """A nickname, an id or a tool's name, fit to stand inside a label: one short line."""
    line = _BREAKS.sub(" ", valid_text(name[: 4 * _NAME_CHARS])).strip().translate(_NAME_MAP)
    return shorten(line, _NAME_CHARS)


def _mend(text: str, hints: Iterable[str]) -> str:
    text = valid_text(text)
    if any(hint in text for hint in hints):
        text = neutral(without_data_uris(text))
    return text


def _is_valid(text: str) -> bool:
    if "\x00" in text:
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _uri_placeholder(match: re.Match[str]) -> str:
    kind = match[1].lower()
    return {"image": IMAGE, "audio": AUDIO}.get(kind, FILE)
