"""The two lines a conversation is compacted at, and where each comes from (spec 3.1, 3.2).

Pure. An unknown line is None, never 0.
"""

from __future__ import annotations

from dataclasses import dataclass

# A head summary and its acknowledgement.
HEAD_MESSAGES = 2
# Above this share of the window AstrBot compresses by itself.
HOST_THRESHOLD = 0.82
# The least room left below the host's threshold for one more turn, and the lowest the line may
# sink for the sake of that room, both as shares of the window.
_LEAST_GROWTH = 0.02
_LOWEST_HOST_LINE = 0.5


@dataclass(frozen=True, slots=True)
class CompressLine:
    """The compress line E. `source` is `ratio`, `tokens` or `host`.

    `by_usage` is false if both settings are 0: then E only bounds budgets and starts no run.
    """

    tokens: int
    source: str
    by_usage: bool


@dataclass(frozen=True, slots=True)
class CountLine:
    """The count line in dialog messages. `source` is `setting` or `host`."""

    messages: int
    source: str


def compress_line(
    window_tokens: int | None,
    compress_at: float,
    compress_tokens: int,
    largest_growth_tokens: int | None,
) -> CompressLine | None:
    """The smallest known of ratio, tokens and the host's own line less room for one turn.

    Args:
        window_tokens: the chat model's context window, None if unknown.
        compress_at: the setting, a share of the window; 0 is off.
        compress_tokens: the setting; 0 is off.
        largest_growth_tokens: the largest growth of the last ten turns, None if none is known.
    """
    known: list[tuple[int, str]] = []
    if window_tokens is not None and window_tokens > 0:
        if compress_at > 0:
            known.append((int(compress_at * window_tokens), "ratio"))
        room = max(largest_growth_tokens or 0, int(_LEAST_GROWTH * window_tokens))
        host = max(
            int(HOST_THRESHOLD * window_tokens) - room, int(_LOWEST_HOST_LINE * window_tokens)
        )
        known.append((host, "host"))
    if compress_tokens > 0:
        known.append((compress_tokens, "tokens"))
    if not known:
        return None
    tokens, source = min(known, key=lambda line: line[0])
    # A share of a small window may round to nothing, and 0 would read as no line at all.
    return CompressLine(max(tokens, 1), source, compress_at > 0 or compress_tokens > 0)


def count_line(
    history_limit: int,
    host_max_turns: int | None,
    begin_dialogs: int,
    head_messages: int,
    gap_markers: int,
) -> CountLine | None:
    """The smaller of `history_limit` and what the host's turn limit leaves for dialog messages.

    The host trims when half of all non-system messages exceeds its limit, and it counts begin
    dialogs, the head summary and our markers among them; the 4 is room for the turn to come.
    """
    known: list[CountLine] = []
    if history_limit > 0:
        known.append(CountLine(history_limit, "setting"))
    if host_max_turns is not None and host_max_turns > 0:
        room = 2 * host_max_turns - 4 - begin_dialogs - head_messages - gap_markers
        known.append(CountLine(max(room, 1), "host"))
    return min(known, key=lambda line: line.messages) if known else None
