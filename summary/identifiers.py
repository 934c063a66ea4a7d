"""Exact identifiers a summary left out, gathered in one closing line (spec 2.6).

Laws: only what users wrote and tools were called with is gathered; what the summary or a kept
message holds is not repeated; newest first, as many as there is room for, never a failure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from .history import tool_calls
from .hygiene import neutral, valid_text, without_data_uris
from .render import arguments_text
from .templates import Language
from .units import Item, Unit
from .usertext import is_wake_up, only_text, read_user_text, visible_text

_LINE_START: dict[Language, str] = {"zh": "标识：", "en": "Identifiers: "}
_BETWEEN = " | "
_SHORTEST_CHARS, _LONGEST_CHARS = 5, 300
# Bounds on the work, far above what a closing line can hold.
_MOST_CANDIDATES, _MOST_SCANNED_CHARS, _LONGEST_TEXT_CHARS = 2_000, 4_000_000, 200_000
_BATCH_CHARS = 8_000
# No identifier costs less.
_LEAST_PRICE_TOKENS = 3
_DEEPEST = 8

# An address is ASCII, but for whole parts in another script: Chinese often goes on right behind.
_URL = re.compile(
    r"[a-z][a-z\d+.-]{1,15}://(?:[!#$%&()*+,./:;=?@\[\]^{}~a-z\d_-]|(?<=[/=])[^\W\x00-\x7f]+){3,}",
    re.IGNORECASE,
)
_JOINED = re.compile(r"[,;](?=[a-z]{2,10}://)", re.IGNORECASE)
# Other identifiers are runs of these characters that hold a digit, a slash or an at-sign. Runs
# are found as bytes at the price of a split, because histories are long and identifiers rare.
_RUN_CHARS = re.compile(rb"[!#-&*-;=?-Z\\^_a-z~]")
_TO_RUNS = bytes(byte if _RUN_CHARS.match(bytes([byte])) else 0x20 for byte in range(256))
_TELLING = re.compile(r"[\d/\\@]")
_SPLIT = re.compile(r"[,;=]|:(?![/\\])")
_KINDS = re.compile(
    r"""
      [\w.+-]+@[\w-]+(?:\.[\w-]+)+                                     # e-mail address
    | [a-f\d]{8}-[a-f\d]{4}-[a-f\d]{4}-[a-f\d]{4}-[a-f\d]{12}          # UUID
    | (?=[a-f]*\d)(?=\d*[a-f])[a-f\d]{7,64}                            # hash
    | (?:~|\.{1,2}|[a-z]:)?[/\\][\w.@+%-]+(?:[/\\][\w.@+%-]+)*[/\\]?  # path with a root
    | [\w.@+-]+(?:[/\\][\w.@+-]+)*[/\\][\w@+-]+\.[a-z][a-z\d]{0,7}   # path to a named file
    | [a-z]{1,8}[_-]?\d{4,}[a-z\d]*(?:[_-][a-z\d]{1,12})*              # order-like codes
    | [a-z\d]{1,12}(?:[_-][a-z\d]{1,12})*[_-]\d{3,}(?:[_-][a-z\d]{1,12})*
    | \d{8,32}
    """,
    re.VERBOSE | re.IGNORECASE | re.ASCII,
)
# A path with names in another script is known by its root and its extension.
_PATH = re.compile(
    r"(?<![a-z\d_/\\:.~-])(?:[a-z]:|~|\.{1,2})?(?:[/\\][\w.@+%-]+)+\.[a-z][a-z\d]{0,7}(?![a-z\d_])",
    re.IGNORECASE,
)
_DATE = re.compile(r"\d{4}-\d{1,2}-\d{1,2}")


def closing_line(
    *,
    units: Sequence[Unit],
    kept: Sequence[Unit],
    summary: str,
    earlier: Iterable[str],
    language: Language,
    room_tokens: int,
    count_text: Callable[[str], int],
) -> str:
    """The line to append to a summary; empty if nothing is missing or fits.

    Args:
        units: what the summary replaces, in stored order.
        kept: messages that stay verbatim.
        summary: the summary as it will be stored.
        earlier: identifiers an earlier summary's line held.
        language: of the line's beginning.
        room_tokens: what the line may cost.
        count_text: the host's estimate.
    """
    line = _LINE_START[language]
    left = room_tokens - count_text("\n\n" + line) - 1
    if left <= 0:
        return ""
    present = set(_newest_found(["\n".join(text for unit in kept for text in _whole_texts(unit))]))
    chosen: list[str] = []
    for identifier in _newest_first(units, earlier):
        # Each figure is rounded up: the estimate of the whole is never above their sum.
        price = count_text(identifier + _BETWEEN) + 1
        if price > left or identifier in present or _stands_in(summary, identifier):
            continue
        left -= price
        chosen.append(identifier)
        if left < _LEAST_PRICE_TOKENS:
            break
    return neutral(valid_text(line + _BETWEEN.join(chosen))) if chosen else ""


def split_closing_line(summary: str) -> tuple[str, tuple[str, ...]]:
    """A summary without its closing line, and the identifiers the line holds."""
    body, _, last = summary.rstrip().rpartition("\n")
    for start in _LINE_START.values():
        if last.startswith(start.rstrip()):
            found = last[len(start.rstrip()) :].split(_BETWEEN.strip())
            return body.rstrip(), tuple(filter(None, map(str.strip, found)))
    return summary, ()


def without_imitation(summary: str) -> str:
    """A model's summary without a closing line that it made after an earlier one.

    A last line that says anything but identifiers is the summary's own.
    """
    body, found = split_closing_line(summary)
    imitates = bool(found) and all(find_identifiers(each) == [each] for each in found)
    return body if imitates else summary


def _stands_in(text: str, identifier: str) -> bool:
    """Whether a text holds an identifier, and not only a longer one that begins or ends so."""
    if identifier not in text:
        return False
    whole = rf"(?<![\w@/\\-]){re.escape(identifier)}(?![\w@]|[-./\\:]+\w)"
    return re.search(whole, text, re.ASCII) is not None


def find_identifiers(text: str) -> list[str]:
    """The identifiers in a text, URLs first, repeated ones too."""
    in_runs = (found for run in _runs(text) for found in _in_run(run.decode()))
    paths = _find_paths(text)
    return [*_find_urls(text), *paths, *_whole(in_runs, paths, text)]


def _find_urls(text: str) -> list[str]:
    found: list[str] = []
    if "://" in text:
        for url in _URL.findall(_JOINED.sub(" ", text)):
            address = url.rstrip(".,;:!?*_")
            if address.endswith(")") and address.count("(") < address.count(")"):
                address = address[:-1]
            if len(address) <= _LONGEST_CHARS:
                found.append(address)
    return found


def _find_paths(text: str) -> list[str]:
    """The paths with names in another script, of which the runs hold only a part."""
    # Looked for in every character of a history: a split is ten times as fast as a pattern.
    if not any(part[:1] > "\x7f" for mark in "/\\" for part in text.split(mark)[1:]):
        return []
    paths = (path for path in _PATH.findall(text) if not path.isascii())
    return [path for path in paths if len(path) <= _LONGEST_CHARS]


def _whole(found: Iterable[str], paths: Sequence[str], text: str) -> list[str]:
    """Those found that are no part of a path with names in another script."""
    return [
        identifier
        for identifier in found
        if not any(identifier in path for path in paths)
        and not (
            identifier.endswith(("/", "\\"))
            and re.search(re.escape(identifier) + r"[^\W\x00-\x7f]", text)
        )
    ]


def _runs(text: str) -> list[bytes]:
    return text.encode("utf-8", "surrogatepass").translate(_TO_RUNS).split()


def _in_run(run: str) -> list[str]:
    found: list[str] = []
    if len(run) >= _SHORTEST_CHARS and _TELLING.search(run) and "://" not in run:
        for piece in _SPLIT.split(run):
            identifier = piece.lstrip("!?*#&^-").rstrip(".!?*#&^-_~")
            if len(identifier) <= _LONGEST_CHARS and _is_identifier(identifier):
                found.append(identifier)
    return found


def _is_identifier(text: str) -> bool:
    return _KINDS.fullmatch(text) is not None and _DATE.fullmatch(text) is None


def _newest_first(units: Sequence[Unit], earlier: Iterable[str]) -> Iterator[str]:
    """Those of users and calls, then those of an earlier line, each once."""
    texts = _sources([item for unit in units for item in unit.items])
    seen: set[str] = set()
    for identifier in _newest_found(texts):
        seen.add(identifier)
        yield identifier
    yield from (identifier for identifier in dict.fromkeys(earlier) if identifier not in seen)


def _newest_found(newest_first: Iterable[str]) -> Iterator[str]:
    """The identifiers of texts, the last of each text first, each once.

    A talk names the same things again and again; each run is looked into but once. Within some
    thousand characters URLs come behind the others.
    """
    seen: set[str] = set()
    known: set[bytes] = set()
    scanned = 0
    for text in _in_batches(newest_first):
        runs = _runs(text)
        new = set(runs) - known
        known |= new
        found: list[str] = []
        if not all(map(bytes.isalpha, new)):  # plain words are most of any talk
            for run in dict.fromkeys(reversed(runs)):
                if run in new and not run.isalpha():
                    found += reversed(_in_run(run.decode()))
        paths = _find_paths(text)
        found = _whole(found, paths, text)
        found += reversed([*_find_urls(text), *paths])
        for identifier in found:
            if identifier not in seen:
                seen.add(identifier)
                yield identifier
        scanned += len(text)
        if scanned > _MOST_SCANNED_CHARS or len(seen) > _MOST_CANDIDATES:
            break


def _in_batches(newest_first: Iterable[str]) -> Iterator[str]:
    """Texts joined in stored order, some thousand characters at a time, the newest first.

    A look at a text has its price, however short the text is.
    """
    batch: list[str] = []
    chars = 0
    for text in newest_first:
        batch.append(text)
        chars += len(text)
        if chars >= _BATCH_CHARS:
            yield "\n".join(reversed(batch))
            batch, chars = [], 0
    yield "\n".join(reversed(batch))


def _sources(items: Sequence[Item]) -> Iterator[str]:
    """What users wrote and what tools were called with, newest first."""
    for item in reversed(items):
        message = item.message
        if message.role == "user":
            text = only_text(message.data)
            if text is None:
                text = read_user_text(message.data).text
            if not is_wake_up(text):
                yield _readable(text)
        elif message.role == "assistant":
            for call in reversed(tool_calls(message.data)):
                yield _readable(_arguments_strings(call))


def _readable(text: str) -> str:
    return without_data_uris(text[:_LONGEST_TEXT_CHARS])


def _decoded(arguments: str) -> object:
    """The arguments' value; escapes in undecoded JSON would become parts of paths."""
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments


def _strings(value: object, depth: int) -> Iterator[str]:
    if isinstance(value, str | int) and not isinstance(value, bool):
        yield str(value)
    elif depth and isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _strings(inner, depth - 1)


def _whole_texts(unit: Unit) -> Iterator[str]:
    for item in unit.items:
        yield visible_text(item.data)
        yield from map(_arguments_strings, tool_calls(item.data))


def _arguments_strings(call: Mapping[str, object]) -> str:
    """All strings and numbers in a call's arguments."""
    return " ".join(_strings(_decoded(arguments_text(call)), _DEEPEST))
