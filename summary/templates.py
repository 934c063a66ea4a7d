"""The two fixed section structures of a summary, and which one a session gets (spec 2.4).

Invariant: the headings and their order are fixed; focus and instruction add demands to them
and never replace them. Whoever reads a summary back knows headings of both languages.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Literal

Template = Literal["chat", "work"]
Language = Literal["zh", "en"]


@dataclass(frozen=True, slots=True)
class Section:
    """One section: its heading and what belongs under it."""

    heading: str
    holds: str


SECTIONS: dict[Template, dict[Language, tuple[Section, ...]]] = {
    "chat": {
        "zh": (
            Section("最近在聊什么", "按话题分段，写明谁说的"),
            Section("谁有问题没回应", "谁问了或请求了什么，至今没有答复"),
            Section("关键原话要点", "承诺、约定、数字、链接、对助手的请求：谁说的，尽量用原话"),
        ),
        "en": (
            Section("Recent topics", "by topic, naming speakers"),
            Section("Unanswered", "who still awaits an answer to what"),
            Section(
                "Key words",
                "promises, deals, numbers, links, requests to assistant: who, near verbatim",
            ),
        ),
    },
    "work": {
        "zh": (
            Section("目标", "要做成什么；最近一次请求照录原话"),
            Section("做过的决定", "定下的与否决的方案，各附理由"),
            Section("改过的文件", "路径与改动，只依据工具调用"),
            Section("未完成的事", "任务状态、下一步"),
        ),
        "en": (
            Section("Goal", "what is to be done; the latest request verbatim"),
            Section("Decisions", "settled and rejected, with reasons"),
            Section("Changed files", "paths and changes, from tool calls only"),
            Section("Unfinished", "task states, next step"),
        ),
    },
}

_TRADITIONAL = str.maketrans("么谁问题没应关键话点标过决", "麼誰問題沒應關鍵話點標過決")
_NOTHING = re.compile(
    r"(?:[\W_]|[无無空]|[没沒]有|暂无|暫無|尚[无無]|未提及|不适用|none|nothing|n/a|empty"
    r"|not applicable)*",
    re.IGNORECASE,
)
_SAMPLE_TEXTS, _SAMPLE_CHARS, _ENOUGH_CHARS = 400, 400, 20_000
_HAN = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff]")
_KANA_OR_HANGUL = re.compile(r"[\u3040-\u30ff\u1100-\u11ff\uac00-\ud7af]")
_WORD = re.compile(r"[^\W\d_\u1100-\u11ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")


def choose_template(setting: str, umo: str, admin_ids: Iterable[object]) -> Template:
    """The template of a session; anything but a set one is decided by who talks there."""
    if setting == "chat":
        return "chat"
    if setting == "work":
        return "work"
    _, _, rest = umo.partition(":")
    kind, _, session = rest.partition(":")
    if kind == "GroupMessage":
        return "chat"
    if kind != "FriendMessage":
        return "work"
    admins = {str(admin) for admin in admin_ids}
    return "work" if session in admins or _web_chat_user(session) in admins else "chat"


def choose_language(setting: str, samples: Iterable[str]) -> Language:
    """The language of headings; anything but a set one follows the conversation's own script.

    A third of Chinese is enough: code and logs bring words of letters into any conversation.
    Japanese and Korean are no Chinese; a conversation without a word of any script gets it.
    """
    if setting == "zh":
        return "zh"
    if setting == "en":
        return "en"
    han = others = chars = 0
    for sample in islice(samples, _SAMPLE_TEXTS):
        text = sample[:_SAMPLE_CHARS]
        foreign = len(_KANA_OR_HANGUL.findall(text))
        characters = len(_HAN.findall(text))
        if foreign * 4 > characters:
            others += foreign + characters
        else:
            han += characters
        others += len(_WORD.findall(text))
        chars += len(text)
        if chars >= _ENOUGH_CHARS:
            break
    return "zh" if 3 * han >= others else "en"


def has_heading(text: str, template: Template) -> bool:
    """Whether at least one line is a heading of the template, in either language."""
    return _heading_line(template).search(text) is not None


def first_heading(text: str, template: Template) -> int | None:
    """Where the first heading's line begins, or None."""
    found = _heading_line(template).search(text)
    return found.start() if found else None


def holds_nothing(text: str, template: Template) -> bool:
    """Whether a text is nothing but headings, words for none, and what we say belongs there."""
    rest = _heading_line(template).sub("", text)
    for sections in SECTIONS[template].values():
        for section in sections:
            rest = rest.replace(section.holds, "")
    return _NOTHING.fullmatch(rest) is not None


@cache
def _heading_line(template: Template) -> re.Pattern[str]:
    known = [s.heading for sections in SECTIONS[template].values() for s in sections]
    # Whoever is spoken to in traditional characters writes so.
    known += [heading.translate(_TRADITIONAL) for heading in known]
    headings = "|".join(map(re.escape, dict.fromkeys(known)))
    return re.compile(
        r"^[ \t]{0,8}[#＃*>\-•【\[「\d.、 \t]{0,16}(?:" + headings + r")"
        r"[ \t]{0,4}[】\]」]?[*＊_ \t]{0,8}(?:[:：（(/／].*)?$",
        re.MULTILINE | re.IGNORECASE,
    )


def _web_chat_user(session: str) -> str | None:
    """The user of a web chat session `webchat!<user>!<session>`."""
    start, _, rest = session.partition("!")
    user, separator, _ = rest.rpartition("!")
    return user if start == "webchat" and separator else None
