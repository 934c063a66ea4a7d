"""Search in one conversation's archive: candidates from the index, judged by their text.

Laws: a result is of the conversation asked for and of a visible batch, whatever the query
holds; each message comes once, best first; a result called exact contains every term of the
query. The index is filled after the commit (`archive_care.tend`): messages it does not hold yet
are read instead, the newest first.
"""

# ruff: noqa: S608 - statements are put together from constants alone, values are bound

from __future__ import annotations

import math
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from .archive_index import (
    INDEX_VERSION,
    Query,
    expression,
    fold,
    fold_offset,
    parse_query,
    words_of,
)
from .archive_packing import from_exact
from .archive_schema import CONTENT_BITS
from .archive_store import find_conversation
from .archive_types import Found, Recalled
from .archiving import voices
from .hygiene import valid_text

# How much is looked at for one query; the newest candidates come first.
_CANDIDATES = 300
_CANDIDATE_CHARS = 4_000_000
_WORD_CANDIDATES = 300
_PARTIAL_CANDIDATES = 200
_PARTIAL_WORDS = 48

_SNIPPET_CHARS = 120
_LEAD_CHARS = 40
_MESSAGE_CHARS = 2000
_RECALL_CHARS = 8000

_VISIBLE = """EXISTS (SELECT 1 FROM entry AS e JOIN batch AS b ON b.id = e.batch_id
    WHERE e.content_id = c.id AND b.visible AND b.cleared <= :cleared)"""
_FROM_INDEX = f"""
    FROM message_index AS i CROSS JOIN content AS c ON c.id = i.rowid
    WHERE message_index MATCH :words AND i.rowid BETWEEN :first AND :last
      AND c.conversation_id = :conversation AND {_VISIBLE}
    ORDER BY i.rowid DESC LIMIT :limit"""
_BY_INDEX = f"SELECT c.id, c.text {_FROM_INDEX}"
_IDS_BY_INDEX = f"SELECT c.id {_FROM_INDEX}"
_UNINDEXED = f"""
    SELECT c.id, c.text FROM content AS c
    WHERE c.conversation_id = :conversation AND c.indexed = 0 AND {_VISIBLE}
    ORDER BY c.id DESC"""
_PLACES = """
    SELECT coalesce(n.number, m.number), c.role, e.speaker, e.time_seconds
    FROM content AS c JOIN entry AS e ON e.content_id = c.id JOIN batch AS b ON b.id = e.batch_id
      LEFT JOIN compaction AS n ON n.id = b.id LEFT JOIN compaction AS m ON m.id = b.covered_by
    WHERE c.id = :id AND b.visible AND b.cleared <= :cleared
    ORDER BY b.id DESC LIMIT 1"""


@dataclass(frozen=True, slots=True)
class _Hit:
    """A message that answers a query, and how well; `spots` are places in its folded text."""

    score: float
    content_id: int
    text: str
    folded: str
    spots: tuple[tuple[int, int], ...]
    is_exact: bool

    @property
    def order(self) -> tuple[bool, float, int]:
        return (self.is_exact, self.score, self.content_id)


@dataclass(frozen=True, slots=True)
class _Manner:
    """What counts as an answer.

    A person means the words they type: partial answers only where there is no other, and words
    found nowhere count against them. A model asks in whole sentences: partial answers fill up,
    and only words that occur at all count. `share` is the part of the query, weighted by how
    rare its words are, that a partial answer must hold.
    """

    share: float
    fills_up: bool
    with_cleared: bool


_SEARCH = _Manner(share=0.6, fills_up=False, with_cleared=True)
_RECALL = _Manner(share=0.25, fills_up=True, with_cleared=False)


@dataclass(frozen=True, slots=True)
class _Scope:
    """Where to look: one conversation, with or without what a reset has put away."""

    conversation: int
    with_cleared: bool

    def values(self, **more: object) -> dict[str, object]:
        first = self.conversation << CONTENT_BITS
        return {
            "conversation": self.conversation,
            "first": first,
            "last": first + (1 << CONTENT_BITS) - 1,
            "cleared": int(self.with_cleared),
            **more,
        }


def ensure_index(conn: sqlite3.Connection) -> None:
    """Empty the index and have it filled again if it was made by other rules."""
    row = conn.execute("SELECT value FROM fact WHERE key = 'index_version'").fetchone()
    if row is not None and row[0] == INDEX_VERSION:
        return
    conn.execute("INSERT INTO message_index (message_index) VALUES ('delete-all')")
    conn.execute("UPDATE content SET indexed = 0 WHERE text <> ''")
    conn.execute("INSERT OR REPLACE INTO fact VALUES ('index_version', ?)", (INDEX_VERSION,))


def search(conn: sqlite3.Connection, cid: str, words: str, limit: int) -> tuple[Found, ...]:
    """Messages that hold these words, best first; a reset conversation can still be searched."""
    hits = _hits(conn, cid, parse_query(words), limit, _SEARCH)
    found = []
    for rank, hit in enumerate(hits, start=1):
        number, role, speaker, time_seconds = _place(conn, hit, _SEARCH)
        hit, speaker = _one_voice(conn, hit, speaker)
        snippet, places = _snippet(hit)
        found.append(
            Found(
                message_id=hit.content_id,
                number=number,
                role=role,
                speaker=speaker,
                time_seconds=time_seconds,
                snippet=snippet,
                hits=places,
                rank=rank,
                is_exact=hit.is_exact,
            )
        )
    return tuple(found)


def recall(conn: sqlite3.Connection, cid: str, query: str, limit: int) -> tuple[Recalled, ...]:
    """Messages for the model, word for word, best first; together of bounded size.

    A message too long to be given whole is given from around the place that was found.
    """
    hits = _hits(conn, cid, parse_query(query), limit, _RECALL)
    recalled = []
    left_chars = _RECALL_CHARS
    for hit in hits:
        if left_chars <= 0:
            break
        number, role, speaker, time_seconds = _place(conn, hit, _RECALL)
        hit, speaker = _one_voice(conn, hit, speaker)
        room = min(_MESSAGE_CHARS, left_chars)
        start, end = _window(hit, room, room // 4)
        text = hit.text[start:end]
        left_chars -= len(text)
        is_cut = len(text) < len(hit.text)
        recalled.append(Recalled(number, role, speaker, time_seconds, text, is_cut))
    return tuple(recalled)


def _hits(
    conn: sqlite3.Connection, cid: str, query: Query, limit: int, manner: _Manner
) -> list[_Hit]:
    conversation = find_conversation(conn, cid)
    if conversation is None or not query.terms or limit <= 0:
        return []
    scope = _Scope(conversation, manner.with_cleared)
    # Texts that hold all terms; then those where a term begins a longer word; then the best
    # of the others. Each step only if the one before left room.
    hits = {hit.content_id: hit for hit in _exact_hits(conn, scope, query)}
    if len(hits) < limit and any(term.wider != term.exact for term in query.terms):
        wider = _candidates(conn, scope, " AND ".join(f"({t.wider})" for t in query.terms))
        for content_id, text in wider:
            if content_id not in hits and (hit := _judge(content_id, text, query)):
                hits[content_id] = hit
    if len(hits) < limit and (manner.fills_up or not hits):
        for hit in _partial_hits(conn, scope, query, manner):
            hits.setdefault(hit.content_id, hit)
    return sorted(hits.values(), key=lambda hit: hit.order, reverse=True)[:limit]


def _exact_hits(conn: sqlite3.Connection, scope: _Scope, query: Query) -> Iterator[_Hit]:
    every = " AND ".join(f"({term.exact})" for term in query.terms)
    for content_id, text in _candidates(conn, scope, every):
        if hit := _judge(content_id, text, query):
            yield hit
    for content_id, text in _unindexed(conn, scope):
        if hit := _judge(content_id, text, query):
            yield hit


def _candidates(
    conn: sqlite3.Connection, scope: _Scope, words: str, limit: int = _CANDIDATES
) -> Iterator[tuple[int, str]]:
    return _bounded(conn.execute(_BY_INDEX, scope.values(words=words, limit=limit)))


def _unindexed(conn: sqlite3.Connection, scope: _Scope) -> Iterator[tuple[int, str]]:
    return _bounded(conn.execute(_UNINDEXED, scope.values()))


def _bounded(rows: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    left_chars = _CANDIDATE_CHARS
    for content_id, text in rows:
        if left_chars <= 0:
            return
        left_chars -= len(text)
        yield content_id, text


def _judge(content_id: int, text: str, query: Query) -> _Hit | None:
    """How well a text holds all terms of a query; None if it does not."""
    folded = fold(text)
    spots: list[tuple[int, int]] = []
    whole = 0
    for term in query.terms:
        found = term.find(folded)
        if found is None:
            return None
        start, end, is_whole = found
        spots.append((start, end))
        whole += is_whole
    score = whole / len(query.terms) + _brevity(folded)
    if len(query.terms) > 1:
        phrase = folded.find(query.phrase)
        if phrase >= 0:
            score += 2
            spots.insert(0, (phrase, phrase + len(query.phrase)))
        else:
            reach = max(end for _, end in spots) - min(start for start, _ in spots)
            score += 1 / (1 + reach / 100)
    return _Hit(score, content_id, text, folded, tuple(spots), True)


def _brevity(folded: str) -> float:
    """A word says more about a short text than about a long one: 1 down to 0, slowly."""
    return 1 / (1 + math.log10(1 + len(folded) / 100))


def _partial_hits(
    conn: sqlite3.Connection, scope: _Scope, query: Query, manner: _Manner
) -> Iterator[_Hit]:
    """Texts that hold enough of a query, the rarer words counting for more."""
    words = list(dict.fromkeys(word for term in query.terms for word in term.words))
    holders = {word: _holders(conn, scope, word) for word in words[:_PARTIAL_WORDS]}
    for content_id, text in _unindexed(conn, scope):
        for word in words_of(text) & holders.keys():
            holders[word].add(content_id)
    weights = {
        word: 1 / (1 + math.log2(1 + len(found)))
        for word, found in holders.items()
        if found or not manner.fills_up
    }
    gathered: defaultdict[int, float] = defaultdict(float)
    for word, weight in weights.items():
        for content_id in holders[word]:
            gathered[content_id] += weight
    least = manner.share * sum(weights.values())
    best = sorted(gathered, key=lambda id_: (gathered[id_], id_), reverse=True)
    rarest_first = sorted(weights, key=lambda word: -weights[word])
    for content_id in best[:_PARTIAL_CANDIDATES]:
        if gathered[content_id] < least:
            return
        (text,) = conn.execute("SELECT text FROM content WHERE id = ?", (content_id,)).fetchone()
        folded = fold(text)
        starts = ((folded.find(word), len(word)) for word in rarest_first)
        spots = tuple((start, start + length) for start, length in starts if start >= 0)
        if spots:
            score = gathered[content_id] / sum(weights.values()) + _brevity(folded) / 10
            yield _Hit(score, content_id, text, folded, spots, False)


def _holders(conn: sqlite3.Connection, scope: _Scope, word: str) -> set[int]:
    values = scope.values(words=expression(word), limit=_WORD_CANDIDATES)
    return {content_id for (content_id,) in conn.execute(_IDS_BY_INDEX, values)}


def _place(
    conn: sqlite3.Connection, hit: _Hit, manner: _Manner
) -> tuple[int | None, str, str | None, float | None]:
    """Where a message is to be found: number, role, speaker, time."""
    row = conn.execute(
        _PLACES, {"id": hit.content_id, "cleared": int(manner.with_cleared)}
    ).fetchone()
    number, role, speaker, time_seconds = row
    return number, role, speaker, time_seconds


def _one_voice(conn: sqlite3.Connection, hit: _Hit, speaker: str | None) -> tuple[_Hit, str | None]:
    """The part of a message with the group's talk that the first spot is in, and who said it.

    Other messages are their speaker's alone.
    """
    (raw,) = conn.execute(
        "SELECT CAST(raw AS BLOB) FROM content WHERE id = ?", (hit.content_id,)
    ).fetchone()
    lines = [(name, valid_text(line)) for name, line in voices(from_exact(raw))]
    spot = fold_offset(hit.text, hit.folded, hit.spots[0][0]) if lines else 0
    start = 0
    for name, line in lines:
        end = start + len(line)
        if spot < end:
            return _part(hit, start + len(f"{name}: ") if name else start, end), name or None
        start = end + 1
    return (_part(hit, start, len(hit.text)) if lines else hit), speaker


def _part(hit: _Hit, start: int, end: int) -> _Hit:
    """A hit as if its message held no more than this."""
    first, text = len(fold(hit.text[:start])), hit.text[start:end]
    folded = fold(text)
    within = [(left - first, right - first) for left, right in hit.spots]
    spots = [spot for spot in within if spot[0] >= 0 and spot[1] <= len(folded)]
    # A word found in a name is beside the part: then its beginning is shown.
    return replace(hit, text=text, folded=folded, spots=tuple(spots) or ((0, 0),))


def _window(hit: _Hit, room_chars: int, lead_chars: int) -> tuple[int, int]:
    """The part of a text to show: all of it, or `room_chars` around the first spot."""
    if len(hit.text) <= room_chars:
        return 0, len(hit.text)
    spot = fold_offset(hit.text, hit.folded, hit.spots[0][0])
    start = max(0, min(spot - lead_chars, len(hit.text) - room_chars))
    return start, start + room_chars


def _snippet(hit: _Hit) -> tuple[str, tuple[tuple[int, int], ...]]:
    """One line around the first spot, and where in it the words are."""
    start, end = _window(hit, _SNIPPET_CHARS, _LEAD_CHARS)
    line = "".join(" " if char.isspace() else char for char in hit.text[start:end])
    opening = "…" if start else ""
    closing = "…" if end < len(hit.text) else ""
    places: list[tuple[int, int]] = []
    first, _ = hit.spots[0]
    for spot in sorted(spot for spot in hit.spots if abs(spot[0] - first) < 4 * _SNIPPET_CHARS):
        left, right = (fold_offset(hit.text, hit.folded, offset) for offset in spot)
        left, right = max(left, start), min(right, end)
        if left >= right:
            continue
        left, right = left - start + len(opening), right - start + len(opening)
        if places and left <= places[-1][1]:
            places[-1] = (places[-1][0], max(right, places[-1][1]))
        else:
            places.append((left, right))
    return opening + line + closing, tuple(places)
