"""AstrBot's core as the rest of the plugin sees it; nothing else imports it (habit 1).

Invariants: a history is read and replaced as the exact text of its row; a summary model is
asked through a copy of its provider, so no setting of ours ever reaches the user's chat; a
failure carries the provider's words and nothing that failed looks like a summary.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from astrbot.core import logger
from astrbot.core.agent.context import token_counter
from astrbot.core.agent.context.compressor import LLMSummaryCompressor
from astrbot.core.agent.message import (
    Message,
    bind_checkpoint_messages,
    dump_messages_with_checkpoints,
)
from astrbot.core.db.po import ConversationV2, PlatformMessageHistory
from astrbot.core.exceptions import EmptyModelOutputError
from astrbot.core.provider.entities import LLMResponse
from astrbot.core.star.star_handler import StarHandlerMetadata, star_handlers_registry
from astrbot.core.utils.active_event_registry import active_event_registry
from astrbot.core.utils.llm_metadata import LLM_METADATAS
from astrbot.core.utils.session_lock import session_lock_manager
from sqlalchemy import Text, bindparam, select, type_coerce, update
from sqlalchemy.exc import SQLAlchemyError

from .summary.asking import ProviderModel
from .summary.budget import UNKNOWN_OUTPUT_TOKENS
from .summary.chain import (
    ProviderChoice,
    SkippedLevel,
    core_compression_settings,
    is_chat,
    provider_chain,
    provider_id_of,
    resolve_provider,
    session_provider,
)
from .summary.copies import alternating, sendable
from .summary.core_settings import CoreCompression
from .summary.errors import CompactError, HostChanged, HostFailed, ProviderFailed, Unchanged
from .summary.history import Message as StoredMessage
from .summary.history import Stored, canonical_json, stored
from .summary.host import BuiltinResult, Model, ModelInfo, ModelReply, Row
from .summary.tokens import Estimator
from .summary.turns import reported_tokens
from .summary.wire import check_usable
from .summary.wording import one_line

if TYPE_CHECKING:
    from astrbot.core.platform import AstrMessageEvent
    from astrbot.core.provider.provider import Provider
    from astrbot.core.star.context import Context

__all__ = [
    "AstrBotHost",
    "AstrBotModel",
    "Compactor",
    "LLMSummaryCompressor",
    "ProviderChoice",
    "SkippedLevel",
    "core_compression_settings",
    "model_info",
    "provider_chain",
    "provider_id_of",
    "resolve_provider",
    "session_provider",
]


class Compactor:
    """AstrBot's summary compressor that gives the original list back when it fails."""

    def __init__(
        self,
        provider: Provider,
        keep_recent_ratio: float = 0.15,
        instruction_text: str | None = None,
    ) -> None:
        self._inner = LLMSummaryCompressor(
            provider=provider,
            keep_recent_ratio=keep_recent_ratio,
            instruction_text=instruction_text or None,
        )
        # It takes the text of an error reply for a summary.
        self._inner.provider = _ErrorsRaised(provider)  # type: ignore[assignment]

    async def __call__(self, messages: list[Message]) -> list[Message]:
        """The compressed messages, or `messages` itself."""
        try:
            compressed = await self._inner(messages)
        except Exception as exc:  # whatever a provider or another version's compressor raises
            logger.warning("AstrBot's compressor failed: %s", exc)
            return messages
        return compressed or messages


class _ErrorsRaised:
    """A provider whose error replies are raised."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider

    def __getattr__(self, name: str) -> Any:
        return getattr(self._provider, name)

    async def text_chat(self, **kwargs: Any) -> LLMResponse:
        response = await self._provider.text_chat(**kwargs)
        if response.role == "err":
            raise ProviderFailed(
                provider=provider_id_of(self._provider), detail=response.completion_text
            )
        return response


# --- the host

# Both times of a new record are taken at once.
_SAME_TIME = timedelta(milliseconds=50)
# What loading raises for a shape the host does not know.
_UNLOADABLE = (ValueError, KeyError, TypeError, AttributeError)


class AstrBotHost:
    """`summary.host.Host` spoken by AstrBot."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._tokens = _host_estimator()

    async def current_conversation(self, umo: str) -> str | None:
        """The id of the session's current conversation; none is created."""
        manager = self._context.conversation_manager
        return await manager.get_curr_conversation_id(umo) or None

    async def read(self, cid: str) -> Row | None:
        """The conversation's row as it is now, or None."""
        table = _conversations()
        query = select(
            table.c.user_id, type_coerce(table.c.content, Text), table.c.token_usage
        ).where(table.c.conversation_id == cid)
        async with self._session() as session:
            row = (await session.execute(query)).one_or_none()
        return None if row is None else Row(row[0], cid, row[1], reported_tokens(row[2]) or 0)

    async def conversation_ids(self) -> frozenset[str]:
        """The ids of all conversations there are."""
        query = select(_conversations().c.conversation_id)
        async with self._session() as session:
            return frozenset((await session.execute(query)).scalars())

    async def swap(self, cid: str, old_text: str | None, new_text: str) -> bool:
        """Replace the history if it is still exactly `old_text`; token usage becomes 0."""
        table = _conversations()
        content = type_coerce(table.c.content, Text)
        # `== None` is spelled IS NULL; `updated_at` follows by the column's own rule, as with
        # every write of the host.
        statement = (
            update(table)
            .where(table.c.conversation_id == cid, content == old_text)
            .values(content=bindparam("new_text", new_text, Text()), token_usage=0)
        )
        async with self._session() as session, session.begin():
            result: Any = await session.execute(statement)
        return bool(result.rowcount == 1)

    async def is_said_again(self, checkpoint_id: str) -> bool:
        """Whether the message of a web chat's turn was there before: it was edited, or its
        answer is made anew. For that AstrBot cuts the turn out of the history and gives the
        message of before the checkpoint of the turn to come.
        """
        table = PlatformMessageHistory.__table__  # type: ignore[attr-defined]
        query = select(table.c.created_at, table.c.updated_at).where(
            table.c.llm_checkpoint_id == checkpoint_id
        )
        async with self._session() as session:
            rows = (await session.execute(query)).all()
        return any(updated - created > _SAME_TIME for created, updated in rows)

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[Any]:
        """A session on AstrBot's database; what fails in it is said as one of ours."""
        try:
            async with self._context.get_db().get_db() as session:
                yield session
        except SQLAlchemyError as exc:
            raise HostFailed(detail=one_line(str(exc))) from exc

    def lock(self, umo: str) -> AbstractAsyncContextManager[None]:
        """The lock a running turn of the session holds. Not re-entrant."""
        return session_lock_manager.acquire_lock(umo)

    def count_tokens(self, message: StoredMessage) -> int:
        """The host's estimate for one message; a sane one for what it cannot load."""
        return self._tokens.message(message)

    def count_text(self, text: str) -> int:
        """The host's estimate for a text."""
        return self._tokens.text(text)

    def canonical(self, message: StoredMessage) -> str:
        """The message as the host would write it back; where it cannot load it, as it is."""
        try:
            dumped = dump_messages_with_checkpoints(bind_checkpoint_messages([dict(message)]))
        except _UNLOADABLE:
            dumped = []
        return canonical_json(dumped[0] if dumped else message)

    async def choose(
        self, umo: str, run_id: str, config_id: str, chat_id: str = ""
    ) -> ProviderChoice:
        """The provider chain for a session; `chat_id` is the one picked for this message."""
        return await provider_chain(self._context, umo, run_id, config_id, chat_id)

    def model(self, umo: str, provider: Any) -> AstrBotModel:
        """The summary model behind a provider, with its limits."""
        return AstrBotModel(provider, model_info(self._context, umo, provider))

    async def chat_model(self, umo: str, provider_id: str = "") -> ModelInfo | None:
        """A chat model by its provider's id, else the session's; None if there is none."""
        provider: Any = self._context.get_provider_by_id(provider_id) if provider_id else None
        try:
            if not is_chat(provider):
                provider = await session_provider(self._context, umo)
        except ValueError:
            return None
        return model_info(self._context, umo, provider) if provider is not None else None

    def dump(self, messages: Sequence[object]) -> list[Stored]:
        """Runtime messages as AstrBot would store them, with their checkpoints."""
        return [
            stored(dumped)
            for message in messages
            if isinstance(message, Message) and not message._no_save  # noqa: SLF001 (no other way)
            for dumped in dump_messages_with_checkpoints([message])
        ]

    def add_to_prompt(self, messages: Sequence[object], text: str) -> bool:
        """Put a text at the end of the system prompt in a runner's list, never to be saved.

        Returns whether there was none, so that it is a message of its own now, in front.
        """
        first = messages[0] if messages else None
        # AstrBot leaves the first system message out when it saves.
        if isinstance(first, Message) and first.role == "system" and isinstance(first.content, str):
            first.content += text
            return False
        if isinstance(messages, list):
            messages.insert(0, Message(role="system", content=text.lstrip()))
        return isinstance(messages, list)

    def core(self, umo: str) -> CoreCompression:
        """AstrBot's own compression settings for a session."""
        return core_compression_settings(self._context, umo)

    def admin_ids(self, umo: str) -> frozenset[str]:
        """The ids of the bot's admins."""
        return frozenset(map(str, self._context.get_config(umo=umo)["admins_id"]))

    @property
    def builtin_instruction(self) -> str:
        """What AstrBot's compressor asks for if it is told nothing else."""
        return LLMSummaryCompressor(provider=None).instruction_text  # type: ignore[arg-type]

    async def summarize_builtin(
        self,
        model: Model,
        messages: Sequence[StoredMessage],
        instruction: str,
        timeout_seconds: float,
        extra_body: Mapping[str, Any] | None = None,
    ) -> BuiltinResult:
        """Run AstrBot's own compressor over copies of these messages."""
        if not isinstance(model, AstrBotModel):
            raise HostChanged(detail=f"{type(model).__name__} is no AstrBot model")
        copies = [Message.model_validate(message) for message in sendable(messages)]
        asked = _Asked(model, timeout_seconds, extra_body or {})
        compressed = await Compactor(asked, 0.0, instruction)(copies)  # type: ignore[arg-type]
        if asked.failure is not None:
            raise asked.failure
        if asked.reply is None or compressed is copies:
            raise Unchanged(provider=model.info.provider_id)
        kept_ids = {id(message) for message in compressed}
        return BuiltinResult(
            summary=asked.reply.text.strip(),
            kept=frozenset(i for i, message in enumerate(copies) if id(message) in kept_ids),
            input_tokens=asked.reply.input_tokens,
            cached_tokens=asked.reply.cached_tokens,
            output_tokens=asked.reply.output_tokens,
        )


def _conversations() -> Any:
    return ConversationV2.__table__  # type: ignore[attr-defined]


_PROBES: tuple[StoredMessage, ...] = (
    {"role": "user", "content": "一鿿ꀀé “😀” \u200d☀ abc" * 7},
    {
        "role": "assistant",
        "content": [
            {"type": "think", "think": "想 abc"},
            {"type": "image_url", "image_url": {"url": "x"}},
            {"type": "audio_url", "audio_url": {"url": "x"}},
        ],
        "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "中文"}}],
    },
)


def _host_estimator() -> Estimator | _HostCounter:
    """Our reading of the host's counter, or, where they part ways, the counter itself."""
    ours = Estimator(
        emoji=getattr(token_counter, "EMOJI_TOKEN_ESTIMATE", 0.0),
        emoji_pattern=getattr(token_counter, "EMOJI_PATTERN", None),
        image=getattr(token_counter, "IMAGE_TOKEN_ESTIMATE", 0),
        audio=getattr(token_counter, "AUDIO_TOKEN_ESTIMATE", 0),
    )
    theirs = _HostCounter(ours)
    if all(ours.message(probe) == theirs.message(probe) for probe in _PROBES):
        return ours
    logger.warning("This AstrBot counts tokens in a way of its own; counting will be slower")
    return theirs


class _HostCounter:
    """The host's counter, over messages that have to be loaded first."""

    def __init__(self, otherwise: Estimator) -> None:
        self._counter = token_counter.EstimateTokenCounter()
        self._otherwise = otherwise

    def message(self, message: StoredMessage) -> int:
        try:
            return self._counter.count_tokens(bind_checkpoint_messages([dict(message)]))
        except _UNLOADABLE:
            return self._otherwise.message(message)

    def text(self, text: str) -> int:
        return self.message({"role": "user", "content": text})


class _Asked:
    """The provider handed to AstrBot's compressor, which logs failures instead of raising them."""

    def __init__(
        self, model: AstrBotModel, timeout_seconds: float, extra_body: Mapping[str, Any]
    ) -> None:
        self._model = model
        self._timeout_seconds = timeout_seconds
        self._extra_body = extra_body
        self.provider_config = model.provider.provider_config
        self.reply: ModelReply | None = None
        self.failure: CompactError | None = None

    async def text_chat(self, contexts: Sequence[Mapping[str, Any]], **_: object) -> LLMResponse:
        try:
            reply = await self._model.send(
                alternating(contexts),
                max_tokens=_reply_limit(self._model.info),
                timeout_seconds=self._timeout_seconds,
                extra_body=self._extra_body,
            )
            check_usable(reply, self._model.info.provider_id)
        except CompactError as exc:
            self.failure = exc
            raise
        self.reply = reply
        return LLMResponse("assistant", completion_text=reply.text)


def _reply_limit(model: ModelInfo) -> int:
    written = model.max_output_tokens or UNKNOWN_OUTPUT_TOKENS
    # As for a summary of ours: the reply never takes more than a quarter of the window.
    return min(written, model.window_tokens // 4) if model.window_tokens else written


def handler_metadata(module: str, name: str) -> StarHandlerMetadata[Any] | None:
    """What AstrBot keeps of a handler: its filters, whether it is enabled in the WebUI."""
    return star_handlers_registry.get_handler_by_full_name(f"{module}_{name}")


def own_background_task(event: AstrMessageEvent, task: asyncio.Task[Any]) -> None:
    """Let `/stop`, `/reset` and `/new` cancel a task; before 4.29.0 AstrBot cannot."""
    register = getattr(active_event_registry, "register_background_task", None)
    if register is not None:
        register(event, task)


# --- the model


class AstrBotModel(ProviderModel):
    """`summary.host.Model` spoken by one of AstrBot's chat providers."""

    empty_output = EmptyModelOutputError


def model_info(context: Context, umo: str, provider: Provider) -> ModelInfo:
    """Name and limits of a provider's model, as AstrBot itself works them out."""
    model = provider.get_model()
    known: Mapping[str, Any] = LLM_METADATAS.get(model) or {}
    limits: Mapping[str, Any] = known.get("limit") or {}
    config = getattr(provider, "provider_config", {})
    configured = config.get("max_context_tokens")
    modalities = config.get("modalities")
    fallback = core_compression_settings(context, umo).fallback_window_tokens
    return ModelInfo(
        provider_id=provider_id_of(provider),
        model=model,
        window_tokens=_positive(configured) or _positive(limits.get("context")) or fallback,
        max_output_tokens=_positive(limits.get("output")),
        uses_tools=not isinstance(modalities, list) or not modalities or "tool_use" in modalities,
    )


def _positive(value: object) -> int | None:
    return value if isinstance(value, int) and value > 0 else None
