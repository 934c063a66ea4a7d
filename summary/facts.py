"""What a saved turn showed, in the figures its judgement needs (spec 3.1, 3.2)."""

from __future__ import annotations

from collections.abc import Sequence

from .dropped import without_ours
from .heads import is_gap_marker
from .history import CHECKPOINT, Message, message_text
from .host import Host
from .lines import HEAD_MESSAGES, CountLine, count_line
from .live import Live
from .triggers import TurnFacts
from .turns import Turn

# What a character of prompt and tools is taken to cost where nothing was reported.
_TOKENS_PER_CHAR = 0.3
# Our markers stand near the start of a history, between the messages we kept.
_MARKERS_WITHIN = 200
# What AstrBot notes in place of a result if a tool has answered the user by itself.
_SENT_BY_TOOL = "has sent the result directly to the user"


def turn_facts(turn: Turn, added: Sequence[Message], live: Live | None, host: Host) -> TurnFacts:
    """The turn's figures; the dialog is the untrimmed one."""
    messages = [m for m in (*turn.history, *added) if m.get("role") != CHECKPOINT]
    dialog = without_ours(messages, live)
    tokens = sum(host.count_tokens(message) for message in dialog)
    usage = turn.usage_tokens
    if not usage:
        usage = tokens + int(_TOKENS_PER_CHAR * (turn.system_chars + turn.tools_chars()))
        usage += host.count_text(live.summary) if live else 0
    trimmed = turn.was_trimmed
    by_turns = trimmed and turn.exceeds(host.core(turn.umo).max_turns, len(added))
    return TurnFacts(usage, tokens, len(dialog), trimmed, by_turns)


def turn_count_line(turn: Turn, live: Live | None, limit: int, host: Host) -> CountLine | None:
    """The count line for the history this turn began with."""
    head = HEAD_MESSAGES if live is not None and live.record_id else 0
    markers = sum(1 for message in turn.history[:_MARKERS_WITHIN] if is_gap_marker(message))
    return count_line(limit, host.core(turn.umo).max_turns, turn.begin_dialogs, head, markers)


def tokens_per_char(turn: Turn, added: Sequence[Message]) -> float | None:
    """What a character cost by the input tokens just reported; unknown with images.

    And where the host trimmed: what it sent then is not what the turn began with.
    """
    if turn.was_trimmed:
        return None
    sent = [*turn.contexts, *added[:-1]]
    if not turn.input_tokens or any(_has_media(message) for message in sent):
        return None
    chars = turn.system_chars + turn.tools_chars()
    chars += sum(len(message_text(m)) + len(str(m.get("tool_calls") or "")) for m in sent)
    return turn.input_tokens / chars if chars else None


def was_answered(turn: Turn, added: Sequence[Message]) -> bool:
    """Whether a turn ended well: with the model's reply, or a tool that answered by itself."""
    if turn.failed or not added:
        return False
    last = added[-1]
    by_tool = last.get("role") == "tool" and _SENT_BY_TOOL in message_text(last)
    return turn.answered or by_tool


def _has_media(message: Message) -> bool:
    content = message.get("content")
    return isinstance(content, list) and any(
        isinstance(part, dict) and part.get("type") not in ("text", "think") for part in content
    )
