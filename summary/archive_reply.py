"""What is said about the archive: summaries, compactions, messages found, undo, erasing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from .replies import Compacted
from .texts import SENTENCES, say
from .wording import one_line, visible

_LONGEST_QUERY_CHARS = 80
_LONGEST_SPEAKER_CHARS = 40
_LONGEST_HIT_CHARS = 200


@dataclass(frozen=True, slots=True)
class SearchHit:
    """An archived message that was found. `number` is None before a compaction covers it."""

    number: int | None
    when: datetime | None
    speaker: str
    text: str


def show_reply(language: str, number: int, when: datetime, summary: str) -> str:
    """A summary in full."""
    title = say(language, "show.title", number=str(number), when=_clock(when))
    return f"{title}\n{visible(summary)}"


def history_reply(language: str, rows: Sequence[Compacted], older: int = 0) -> str:
    """The compactions of a conversation, newest first; `older` more are not listed."""
    if not rows:
        return say(language, "history.none")
    lines = [say(language, "history.title")]
    for row in rows:
        trimmed = row.trigger == "host_trim"
        text = compacted_text(language, "history.trimmed_row" if trimmed else "history.row", row)
        lines.append(text + (say(language, "history.undone") if row.undone else ""))
    if older:
        lines.append(say(language, "history.older", older=older))
    return "\n".join(lines)


def search_reply(
    language: str, query: str, hits: Sequence[SearchHit], *, more: bool = False
) -> str:
    """Archived messages that were found; `more` if there are others."""
    shown = one_line(query, _LONGEST_QUERY_CHARS)
    if not hits:
        return say(language, "search.none", query=shown)
    title = "search.title_first" if more else "search.title"
    lines = [say(language, title, query=shown, hits=len(hits))]
    for hit in hits:
        number = f"#{hit.number}" if hit.number is not None else ""
        speaker = one_line(hit.speaker, _LONGEST_SPEAKER_CHARS)
        about = " ".join(filter(None, (number, _clock(hit.when), speaker)))
        text = one_line(hit.text, _LONGEST_HIT_CHARS)
        lines.append(f"{about}: {text}" if about else text)
    return "\n".join(lines)


def compacted_text(language: str, key: str, row: Compacted, **more: object) -> str:
    """A sentence about a compaction; `more` are fields it has besides the compaction's."""
    fields: Mapping[str, object] = {
        "number": str(row.number),
        "when": _clock(row.when),
        "trigger": _trigger(language, row.trigger),
        "before": row.before_messages,
        "after": row.after_messages,
        "before_tokens": row.before_tokens,
        "after_tokens": row.after_tokens,
        **more,
    }
    return say(language, key, **fields)


def _trigger(language: str, trigger: str) -> str:
    # A later version may have stored a trigger that this one does not know.
    key = f"trigger.{trigger}"
    return say(language, key) if key in SENTENCES else one_line(trigger, _LONGEST_SPEAKER_CHARS)


def _clock(when: datetime | None) -> str:
    return when.strftime("%Y-%m-%d %H:%M") if when is not None else ""
