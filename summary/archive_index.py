"""Words of a text as the search index knows them, and a query's demand on them.

Law: the words a query asks for are among the words of every text that contains the query's
terms, so the index may offer a text too much but none too little; each offer is checked against
the text itself (`Term.pattern`).

- A run of characters of a script without spaces gives its pairs of neighbours, and its last
  character alone, so that a single character is found by prefix: 「预算表」→ 预算, 算表, 表.
- Other words are taken whole, in lower case and without accents; a word of mixed case also by
  its parts: `getUserName` → getusername, get, user, name, getuser, username.
- Words joined by the marks of paths, codes and identifiers also give their pairs:
  `ABC-1234` → abc, 1234, abc_1234.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from itertools import islice, pairwise
from operator import add

# Changing anything here that changes `words_of` needs a new number: files are indexed anew.
INDEX_VERSION = "2"

# Symbols, scripts written without spaces, and pictures. Korean has spaces, but words grow
# endings.
_WIDE = (
    "\u00a2-\u00a7\u00a9\u00ae\u00b0\u00b1\u00d7\u00f7\u2020-\u2022\u2030\u2031"
    "\u20a0-\u20cf\u2190-\u25ff\u27c0-\u27ff\u2900-\u2aff\u2b00-\u2bff"
    "\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u2600-\u27bf\u2e80-\u2fdf"
    "\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3038-\u303b\u3040-\u30ff\u3100-\u318f\u31a0-\u31bf"
    "\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff"
    "\U0001b000-\U0001b16f\U0001f000-\U0001faff\U00020000-\U0003ffff"
)
_JOINTS = r"_\-./\\:@#+~=&?%$"
_NARROW = rf"[^\W_{_WIDE}]"

_wide_runs = re.compile(rf"[{_WIDE}]+")
# A word, and the joint to the next one if that follows at once.
_narrow_words = re.compile(rf"({_NARROW}+)((?:[{_JOINTS}]{{1,3}}(?={_NARROW}))?)")
# Marks behind a word are asked for only where they name something else: `C++`, `C#`.
_MARKS = rf"(?:\+{{1,2}}|#)(?!{_NARROW}|[+#])"
_terms = re.compile(rf"[{_WIDE}]+|{_NARROW}+(?:[{_JOINTS}]{{1,3}}{_NARROW}+)*(?:{_MARKS})?")
_narrow_char = re.compile(_NARROW)
_ascii_words = re.compile(r"[A-Za-z0-9]+")
_mixed_case = re.compile(r"[A-Za-z0-9][A-Z]")
_case_parts = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_accents = re.compile("[\u0300-\u036f]+")

# Longer "words" are keys and base64: their beginning is enough to find them by.
_WORD_CHARS = 64
# A text is taken in slices, because one regular expression over 2 MB would hold the
# interpreter for longer than a turn may stall. Slices overlap so that no word is torn.
_SLICE_CHARS = 1 << 16
_STEP_CHARS = 1 << 12
_OVERLAP_CHARS = 4 * _WORD_CHARS

_QUERY_CHARS = 400
_QUERY_TERMS = 24
_PREFIX_CHARS = 3
_PLACES = 20


class _Folding(dict[int, str]):
    """Characters to the form they are compared in; filled as characters turn up."""

    def __missing__(self, code: int) -> str:
        folded = unicodedata.normalize("NFKC", chr(code)).casefold()
        # A stroke through a sign makes it another sign: `≠` is not `=`.
        accented = not unicodedata.category(chr(code)).startswith("S")
        bare = _accents.sub("", unicodedata.normalize("NFD", folded)) if accented else folded
        folded = unicodedata.normalize("NFC", bare)
        self[code] = folded
        return folded


_folding = _Folding()


def fold(text: str) -> str:
    """The text as it is compared: lower case, half width, without Latin accents."""
    if text.isascii():
        return text.lower()
    return "".join(
        text[start : start + _SLICE_CHARS].translate(_folding)
        for start in range(0, len(text), _SLICE_CHARS)
    )


def fold_offset(text: str, folded: str, offset: int) -> int:
    """The place in `text` of a place in `fold(text)`."""
    if len(text) == len(folded):
        # Some characters grow and some vanish; equal lengths may hide both, which would move a
        # snippet by a few characters and nothing else.
        return offset
    seen = 0
    for start in range(0, len(text), _STEP_CHARS):
        step = text[start : start + _STEP_CHARS]
        length = len(fold(step))
        if seen + length <= offset:
            seen += length
            continue
        for position, char in enumerate(step, start):
            seen += len(_folding[ord(char)])
            if seen > offset:
                return position
    return len(text)


def words_of(text: str) -> set[str]:
    """Every word the text is indexed under."""
    words: set[str] = set()
    step = _SLICE_CHARS
    for start in range(0, len(text), step):
        _add_words(text[start : start + step + _OVERLAP_CHARS], words)
    return words


@dataclass(frozen=True, slots=True)
class Term:
    """One thing that a query asks for.

    `pattern` is how it is spelled in a folded text. `exact` is the index's expression for texts
    that may hold it, `wider` the one that also takes words it begins, `words` what counts
    towards a partial match.
    """

    pattern: re.Pattern[str]
    exact: str
    wider: str
    words: tuple[str, ...]

    def find(self, folded: str) -> tuple[int, int, bool] | None:
        """Where it stands in a text, and whether as a word of its own; that is looked for first."""
        first = None
        for match in islice(self.pattern.finditer(folded), _PLACES):
            start, end = match.span()
            before, after = folded[start - 1 : start], folded[end : end + 1]
            if not (_goes_on(folded[start], before) or _goes_on(folded[end - 1], after)):
                return start, end, True
            first = first or match
        return None if first is None else (*first.span(), False)


@dataclass(frozen=True, slots=True)
class Query:
    """A query, ready for the index. `phrase` is all of it, folded, with single spaces."""

    terms: tuple[Term, ...]
    phrase: str


def parse_query(text: str) -> Query:
    """What a query asks for. Whatever it holds, only words remain: no syntax reaches SQLite."""
    text = text[:_QUERY_CHARS]
    folded = fold(text)
    cases = {
        word.lower(): parts for word in _ascii_words.findall(text) if (parts := _parts_of(word))
    }
    pieces = dict.fromkeys(match.group() for match in _terms.finditer(folded))
    terms = tuple(_term(piece, cases) for piece in list(pieces)[:_QUERY_TERMS])
    return Query(terms, " ".join(folded.split()))


def _term(piece: str, cases: dict[str, list[str]]) -> Term:
    if _wide_runs.match(piece):
        pattern = re.compile(re.escape(piece))
        if len(piece) == 1:
            return Term(pattern, expression(piece), expression(piece), (piece,))
        pairs = tuple(dict.fromkeys(map(add, piece, piece[1:])))
        together = _all_of(pairs)
        return Term(pattern, together, together, pairs)
    words = [word for word, _ in _narrow_words.findall(piece)]
    spelled = rf"[{_JOINTS}]{{1,3}}".join(_spelling(word, cases) for word in words)
    marks = piece[len(piece.rstrip("+#")) :]
    pattern = re.compile(spelled + re.escape(marks))
    cut = [word[:_WORD_CHARS] for word in words]
    parts = [part for word in words for part in cases.get(word, ())]
    if len(words) > 1:
        pairs = tuple(dict.fromkeys(f"{a}_{b}" for a, b in pairwise(cut)))
        together = _all_of(pairs)
        every = tuple(dict.fromkeys([*pairs, *cut, *parts]))
        return Term(pattern, together, together, every)
    word = cut[0]
    exact = wider = f'"{word}"'
    if parts:
        # Part of a longer identifier, or spelled otherwise: `getUserName`, `user_name`.
        exact = wider = f"({exact} OR ({_all_of(tuple(parts))}))"
    if len(word) >= _PREFIX_CHARS:
        wider = f"({exact} OR {_prefixed(word)})"
    return Term(pattern, exact, wider, tuple(dict.fromkeys([word, *parts])))


def _goes_on(inner: str, outer: str) -> bool:
    """Whether a word goes on from its character `inner` to its neighbour `outer`."""
    return bool(_narrow_char.match(inner) and _narrow_char.match(outer))


def _spelling(word: str, cases: dict[str, list[str]]) -> str:
    """A pattern for a word; one of mixed case is the same with joints: `userName`, `user_name`."""
    parts = cases.get(word) or [word]
    return rf"[{_JOINTS}]{{0,3}}".join(map(re.escape, parts))


def expression(word: str) -> str:
    """The index's expression for one of a term's `words`."""
    return _prefixed(word) if _wide_runs.fullmatch(word) and len(word) == 1 else f'"{word}"'


def _prefixed(word: str) -> str:
    return f'"{word}" *'


def _all_of(words: tuple[str, ...]) -> str:
    return " AND ".join(f'"{word}"' for word in words)


def _add_words(text: str, words: set[str]) -> None:
    folded = fold(text)
    if not folded.isascii():
        for run in _wide_runs.findall(folded):
            words.update(map(add, run, run[1:]))
            words.add(run[-1])
    found = _narrow_words.findall(folded)
    whole = {word for word, _ in found}
    words.update(word[:_WORD_CHARS] for word in whole)
    words.update(
        f"{word[:_WORD_CHARS]}_{following[:_WORD_CHARS]}"
        for (word, joint), (following, _) in pairwise(found)
        if joint
    )
    if _mixed_case.search(text):
        for word in set(_ascii_words.findall(text)):
            parts = _parts_of(word)
            words.update(parts)
            words.update(map(add, parts, parts[1:]))


def _parts_of(word: str) -> list[str]:
    """The parts of a word of mixed case, in lower case; none for any other word."""
    rest = word[1:]
    if len(word) > _WORD_CHARS or rest == rest.lower() or word == word.upper():
        return []
    return [part.lower() for part in _case_parts.findall(word)]
