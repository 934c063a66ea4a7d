"""What the recall tool gives the chat model: archived messages, word for word (spec 4.3).

Invariant: of the one conversation it was made for, bounded in size, and marked as what others
said before, not as instructions.
"""

from __future__ import annotations

from .archive_types import Recalled
from .archiving import RECALL_TOOL, RECALLED
from .errors import ArchiveFailed
from .service import Service
from .wording import local_time

NAME = RECALL_TOOL
DESCRIPTION = (
    "Search the earlier messages of this conversation that were replaced by its summary, and get "
    "them back verbatim. Use it when an exact wording, number, code, name or decision from before "
    "is needed and the summary does not hold it."
)
PARAMETERS = {
    "type": "object",
    "properties": {
        "query": {
            "type": "string",
            "description": "words that occur in the messages looked for, in their language",
        },
        "limit": {
            "type": "integer",
            "description": "how many messages at most (1 to 20, default 5)",
        },
    },
    "required": ["query"],
}
_DEFAULT, _MOST = 5, 20


async def recall(service: Service, cid: str, query: object, limit: object = _DEFAULT) -> str:
    """The messages of a conversation that fit a query, for the model; whatever it asks with."""
    words = query if isinstance(query, str) else str(query or "")
    if not words.strip():
        return "Give words to search for in `query`."
    try:
        archive = await service.archive()
        found = await archive.recall(cid, words, _limit(limit))
    except ArchiveFailed as error:
        service.log.warning("recall failed: %s", error)
        return "The archive cannot be read right now."
    if not found:
        return "No archived message of this conversation contains these words."
    return "\n\n".join([RECALLED, *map(_quoted, found)])


def _limit(value: object) -> int:
    try:
        number = int(str(value))
    except ValueError:
        return _DEFAULT
    return min(max(number, 1), _MOST)


def _quoted(found: Recalled) -> str:
    when = f" {local_time(found.time_seconds):%Y-%m-%d %H:%M}" if found.time_seconds else ""
    number = f" #{found.number}" if found.number is not None else ""
    who = found.speaker or found.role
    cut = " (only a part)" if found.is_cut else ""
    return f"[{who}{when}{number}]{cut}\n{found.text}"
