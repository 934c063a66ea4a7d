"""The state of a session, put together for `/compact status`, the page and other plugins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .archive_commands import compacted
from .args import ParseResult, build_compact_args
from .automatic import Automatic
from .chain import ProviderChoice
from .errors import ArchiveFailed, CompactError
from .healing import REPLACED
from .history import Message
from .live import is_dead, read_live
from .service import Service
from .status_reply import StatusFacts


async def session_state(
    service: Service, automatic: Automatic, umo: str, chat_id: str = ""
) -> tuple[StatusFacts, ProviderChoice]:
    """What is known of a session's current conversation, and the provider chain.

    An archive that cannot be read is said; the rest is told all the same.

    Raises:
        NotAvailable: there is no conversation here.
    """
    cid = await service.conversation(umo)
    settings = service.settings
    lines = settings.lines(umo)
    args = build_compact_args(ParseResult({}, "", []), settings, lines)
    choice = await service.host.choose(umo, args.provider_id, args.config_provider_id, chat_id)
    layout, row = await service.compactions.layout(cid)
    chat = await service.host.chat_model(umo, chat_id)
    line = await service.compress_line(cid, lines, chat)
    head = len(layout.head.items) if layout.head else 0
    counted = await service.count_line(umo, cid, lines, head, len(layout.markers))
    facts = StatusFacts(
        messages=layout.shown_count,
        tokens=layout.tokens,
        dialog_messages=len(layout.dialog),
        lines=lines,
        usage_tokens=row.token_usage or layout.tokens,
        usage_estimated=not row.token_usage,
        window_tokens=chat.window_tokens if chat else None,
        line_tokens=line.tokens if line else None,
        line_rule=line.source if line else "host",
        by_usage=line.by_usage if line else True,
        count_line=counted.messages if counted else None,
        count_rule=counted.source if counted else "setting",
        auto_compact=settings.auto_compact,
        running=service.compactions.is_compacting(cid),
        template=service.template(umo, args),
    )
    messages = [message.data for message in layout.stored]
    return await _with_archive(service, automatic, cid, facts, messages), choice


async def _with_archive(
    service: Service,
    automatic: Automatic,
    cid: str,
    facts: StatusFacts,
    messages: Sequence[Message],
) -> StatusFacts:
    try:
        archive = await service.archive()
        stats = await archive.stats(cid)
        last = await archive.latest(cid)
        live = await read_live(archive, cid, last)
        if live is not None and await is_dead(archive, cid, live, messages):
            stats = replace(stats, pending_trimmed=0)
        replaced = await archive.get_state(cid, REPLACED)
        undone = await archive.by_id(int(replaced)) if replaced is not None else None
        # People must hear of one that another writer undid, until a later one stands.
        if undone and not undone.cleared and (last is None or last.id < undone.id):
            last = undone
        health = await archive.verify()
        backoff = await automatic.backoff(cid)
    except ArchiveFailed as error:
        return replace(facts, archive_problem=str(error.fields.get("detail", error)))
    return replace(
        facts,
        last=compacted(last) if last else None,
        failures=backoff.failures,
        turns_to_wait=backoff.wait_turns,
        failure=CompactError.remembered(backoff.last_key, backoff.last_fields),
        trimmed_messages=stats.pending_trimmed,
        archived_compactions=stats.compactions,
        archived_messages=stats.messages,
        archive_bytes=stats.raw_bytes,
        archive_problem="; ".join(health.problems),
    )
