"""A real AstrBot core in this process: database, conversations, providers, plugin context.

Nothing but platforms, plugins and the dashboard is left out; they take no part in a contract.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from astrbot.core import sp
from astrbot.core.astrbot_config_mgr import AstrBotConfigManager
from astrbot.core.config import AstrBotConfig
from astrbot.core.conversation_mgr import ConversationManager
from astrbot.core.db.sqlite import SQLiteDatabase
from astrbot.core.persona_mgr import PersonaManager
from astrbot.core.provider.manager import ProviderManager
from astrbot.core.provider.register import provider_cls_map
from astrbot.core.star.context import Context
from astrbot.core.umop_config_router import UmopConfigRouter
from sqlalchemy import text


@dataclass(frozen=True)
class Core:
    """The parts a test turns to."""

    context: Context
    conversations: ConversationManager
    database: SQLiteDatabase
    providers: ProviderManager
    config: AstrBotConfig

    async def add_provider(self, **settings: Any) -> Any:
        """Load a provider of these settings, as at the start of AstrBot."""
        entry = {"enable": True, "key": ["key-of-the-owner"], "timeout": 60, **settings}
        self.providers.providers_config.append(entry)
        await self.providers.load_provider(entry)
        return self.providers.inst_map.get(entry["id"])

    async def execute(self, sql: str, **values: Any) -> Any:
        """Run a statement on the database as another writer would."""
        async with self.database.get_db() as session, session.begin():
            result = await session.execute(text(sql), values)
            return result.fetchall() if result.returns_rows else []


@asynccontextmanager
async def running_core(folder: Path) -> AsyncIterator[Core]:
    """A core with its data in `folder`."""
    config = AstrBotConfig(config_path=str(folder / "cmd_config.json"))
    # The lists are the module's own defaults.
    config["provider"], config["provider_sources"] = [], []
    database = SQLiteDatabase(str(folder / "data.db"))
    await database.initialize()
    database.inited = True
    await sp.db_helper.initialize()
    if initialize := getattr(sp, "initialize", None):
        await initialize()
    router = UmopConfigRouter(sp=sp)
    await router.initialize()
    configs = AstrBotConfigManager(default_config=config, ucr=router, sp=sp)
    if initialize := getattr(configs, "initialize", None):
        await initialize()
    personas = PersonaManager(database, configs)
    providers = ProviderManager(configs, database, personas)
    conversations = ConversationManager(database)
    unused: Any = None
    context = Context(
        asyncio.Queue(),
        config,
        database,
        providers,
        unused,
        conversations,
        unused,
        personas,
        configs,
        unused,
        unused,
    )
    try:
        yield Core(context, conversations, database, providers, config)
    finally:
        for provider in [*providers.inst_map.values()]:
            if terminate := getattr(provider, "terminate", None):
                await terminate()
        if flush := getattr(sp, "flush", None):
            await flush()
        await database.engine.dispose()
        await sp.db_helper.engine.dispose()


def make_provider(**settings: Any) -> Any:
    """A provider of AstrBot's own source for `type`, without a core around it."""
    ProviderManager.__new__(ProviderManager).dynamic_import_provider(settings["type"])
    cls = provider_cls_map[settings["type"]].cls_type
    return cls({"enable": True, "key": ["key-of-the-owner"], "timeout": 60, **settings}, {})
