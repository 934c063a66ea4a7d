"""A plugin beside ours: other conversations by command, tools for the model, late wake-ups."""

from __future__ import annotations

import asyncio
import json

from astrbot.api.event import AstrMessageEvent, filter  # noqa: A004 (its API name)
from astrbot.api.star import Context, Star


class BedPlugin(Star):
    """Commands and tools of the tests."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.conversations = context.conversation_manager

    @filter.command("switch")
    async def switch(self, event: AstrMessageEvent, cid: str):
        """Make another conversation of the session the current one."""
        await self.conversations.switch_conversation(event.unified_msg_origin, cid)
        yield event.plain_result(f"switched to {cid}")

    @filter.command("del")
    async def delete(self, event: AstrMessageEvent):
        """Delete the current conversation."""
        umo = event.unified_msg_origin
        await self.conversations.delete_conversation(umo)
        yield event.plain_result("deleted")

    @filter.command("late_write")
    async def late_write(self, event: AstrMessageEvent, seconds: float):
        """Read the history now and write it back later, as a scheduled wake-up does."""
        umo = event.unified_msg_origin
        cid = await self.conversations.get_curr_conversation_id(umo)
        conversation = await self.conversations.get_conversation(umo, cid)
        history = json.loads(conversation.history)
        yield event.plain_result("read")
        await asyncio.sleep(float(seconds))
        history.append({"role": "user", "content": "a late wake-up"})
        history.append({"role": "assistant", "content": "written late"})
        await self.conversations.update_conversation(umo, cid, history=history)

    @filter.command("guest")
    async def guest(self, event: AstrMessageEvent, focus: str):
        """Use the compaction as another plugin would, and say what came of it."""
        compression = self.context.get_registered_star(
            "astrbot_plugin_compact"
        ).star_cls.compression
        umo, stages = event.unified_msg_origin, []
        ends = [
            compression.subscribe(lambda progress: stages.append(progress.stage)),
            compression.register_todo_source(lambda _: [{"title": "TODO-1", "status": "open"}]),
        ]
        try:
            line = await compression.compress_line(umo)
            outcome = await compression.compress(umo, focus)
            status = await compression.status(umo)
        finally:
            for end in ends:
                end()
        yield event.plain_result(
            f"line {line}; {type(outcome).__name__} {' '.join(stages)}; "
            f"messages {status.messages}; last {status.last.number if status.last else None}"
        )

    @filter.on_llm_request()
    async def withhold(self, event: AstrMessageEvent, req):
        """Take the oldest messages out of a request: `withhold 4` the first four."""
        words = event.message_str.split()
        if words[:1] == ["withhold"]:
            req.contexts = req.contexts[int(words[1]) :]

    @filter.llm_tool(name="bed_lookup")
    async def lookup(self, event: AstrMessageEvent, word: str):
        """Look a word up.

        Args:
            word(string): the word
        """
        return f"{word} means {word.lower()}"

    @filter.llm_tool(name="bed_long")
    async def long_text(self, event: AstrMessageEvent, chars: int):
        """Return a long text.

        Args:
            chars(number): how long
        """
        return ("line of a long result\n" * (int(chars) // 22 + 1))[: int(chars)]
