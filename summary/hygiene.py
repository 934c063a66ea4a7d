"""Text made fit for the summary model, in the copy that is sent (spec 2.3, habit 8).

Invariant: what leaves here is valid UTF-8, holds no data URI, and holds nothing that could be
taken for one of our own marks: the retain heading, a unit's number, a fence tag, a speaker's
label at the start of a line. The stored messages are never touched.
"""

from __future__ import annotations

import re

KEEP_HEADINGS = {"zh": "【保留原文】", "en": "[Keep verbatim]"}
FENCE_TAGS = ("earlier", "talk", "todos")
LABELS = ("用户", "助手", "调用", "工具结果", "通知", "文件", "系统")

IMAGE, AUDIO, FILE = "[图片]", "[音频]", "[文件]"
CUT_CHARS = 200

_REPLACEMENT = "\ufffd"
_UNSENDABLE = re.compile("[\x00\ud800-\udfff]")

# All repeats are bounded, or a hostile text could make matching quadratic.
# The hints keep clean texts off the slow paths: `in` is some fifty times faster than a pattern.
_URI_HINTS = ("data:", "DATA:", "Data:")
_URI_HEAD = r"data:([a-z]{0,20})(?:/[\w.+-]{1,100})?(?:;[\w.=+-]{1,100}){0,8}"
_BASE64_URI = re.compile(
    _URI_HEAD + r";base64,[\w+/=%-]*(?:\\/[\w+/=%-]*)*(?:(?:\s|\\[rn]){1,4}[\w+/=-]{40,})*",
    re.IGNORECASE | re.ASCII,
)
_PLAIN_URI = re.compile(
    r"data:([a-z]{1,20})/[\w.+-]{1,100}(?:;[\w.=+-]{1,100}){0,8},[^\s\"'<>()\[\]{}\\]+",
    re.IGNORECASE | re.ASCII,
)

_MARK_HINTS = ("〔", "保留原文", "verbatim", "VERBATIM", "Verbatim")
_NUMBER_MARK = re.compile(r"([#＃]\s{0,8}\d{1,12}\s{0,8})〔")
_KEEP_MARK = re.compile(
    r"[【\[［〔「]\s{0,8}(保留原文|keep\s{1,8}verbatim)\s{0,8}[】\]］〕」]", re.IGNORECASE
)
_TAG_HINTS = tuple(tag for name in FENCE_TAGS for tag in (name, name.upper(), name.title()))
_TAG = re.compile(r"[<＜](\s{0,8}/?\s{0,8}(?:" + "|".join(FENCE_TAGS) + r")\b)", re.IGNORECASE)
_LABEL_HINTS = tuple("\n" + label for label in LABELS)
_LABEL_LINE = re.compile(
    r"\n((?:" + "|".join(LABELS) + r")[^\S\n]{0,8}[\[［(（:：]|调用[^\S\n]{1,8}[\w.-]{1,64}\()"
)

# A name stands inside `[…(…)]:`; with these gone it cannot end its label or begin another.
_NAME_MAP = str.maketrans(
    {"[": "［", "]": "］", "(": "（", ")": "）", ":": "：", "<": "‹", ">": "›", "#": "＃"}
    | {"【": "「", "】": "」", "〔": "（", "〕": "）"}
)
_NAME_CHARS = 48
_BREAKS = re.compile(r"[\s\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]+")


def valid_text(text: str) -> str:
    """The text as valid UTF-8 without NUL; halves of a pair that meet become its character."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    elif "\x00" not in text:
        return text
    return _UNSENDABLE.sub(_REPLACEMENT, text)


def without_data_uris(text: str) -> str:
    """The text with a placeholder for each data URI, whatever its length."""
    if not any(hint in text for hint in _URI_HINTS):
        return text
    return _PLAIN_URI.sub(_uri_placeholder, _BASE64_URI.sub(_uri_placeholder, text))


def neutral(text: str) -> str:
    """The text with everything that imitates our own marks disarmed but still readable."""
    if any(hint in text for hint in _MARK_HINTS):
        text = _NUMBER_MARK.sub(r"\1(", text)
        text = _KEEP_MARK.sub(r"‹\1›", text)
    if any(hint in text for hint in _TAG_HINTS):
        text = _TAG.sub(r"‹\1", text)
    if any(hint in text for hint in _LABEL_HINTS):
        text = _LABEL_LINE.sub(r"\n> \1", text)
    return text


def safe_copy(text: str) -> str:
    """All of the above: what may be sent of a text somebody else wrote."""
    return neutral(without_data_uris(valid_text(text)))


def shorten(text: str, limit_chars: int = CUT_CHARS) -> str:
    """The first characters of a text, with a sign that there was more."""
    return text if len(text) <= limit_chars else text[:limit_chars] + "…"


def label_name(name: str) -> str:
    """A nickname, an id or a tool's name, fit to stand inside a label: one short line."""
    line = _BREAKS.sub(" ", valid_text(name[: 4 * _NAME_CHARS])).strip().translate(_NAME_MAP)
    return shorten(line, _NAME_CHARS)


def _uri_placeholder(match: re.Match[str]) -> str:
    kind = match[1].lower()
    return {"image": IMAGE, "audio": AUDIO}.get(kind, FILE)
