"""People on QQ: a OneBot v11 client on the adapter's reverse WebSocket.

Invariant: every API call of the bot is answered; every message it sends is kept in order.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import aiohttp

from .aio import LoopThread
from .bot import Bot

SELF_ID = 10000


@dataclass(frozen=True)
class Sent:
    """A message of the bot: to which group or person, and when."""

    group: int | None
    user: int | None
    text: str
    at_seconds: float


@dataclass(frozen=True)
class Person:
    """Somebody who writes; `role` is theirs in groups (owner, admin, member)."""

    onebot: OneBot
    user: int
    nickname: str
    role: str = "member"

    @property
    def umo(self) -> str:
        """The session of their private chat."""
        return f"qq:FriendMessage:{self.user}"

    def post(self, text: str, group: int | None = None, at: bool = True) -> None:
        """Write a message; in a group `at` says whether it names the bot (and so wakes it)."""
        self.onebot.post(self, text, group, at)

    def say(
        self,
        text: str,
        group: int | None = None,
        at: bool = True,
        replies: int = 1,
        timeout_seconds: float = 30,
    ) -> list[str]:
        """Write a message and wait for so many messages of the bot in that chat.

        Raises:
            TimeoutError: fewer came.
        """
        before = len(self.onebot.sent_to(self.user, group))
        self.post(text, group, at)
        sent = self.onebot.wait_sent(before + replies, self.user, group, timeout_seconds)
        return [each.text for each in sent[before:]]


class OneBot:
    """The client. Connects when made; `close()` it, or use it as a context manager."""

    def __init__(self, bot: Bot) -> None:
        assert bot.onebot_port is not None, "the bot was made without onebot=True"
        self.bot = bot
        self.sent: list[Sent] = []
        self.people: dict[int, Person] = {}
        self._ids = itertools.count(1)
        self._changed = threading.Condition()
        self._aio = LoopThread("onebot")
        self._connected = threading.Event()
        self._serving = asyncio.run_coroutine_threadsafe(self._serve(), self._aio.loop)
        if not self._connected.wait(30):
            raise TimeoutError("the OneBot adapter did not accept a connection")

    def person(self, user: int, nickname: str, role: str = "member") -> Person:
        """Somebody new."""
        person = self.people[user] = Person(self, user, nickname, role)
        return person

    @staticmethod
    def group_umo(group: int) -> str:
        """A group's session."""
        return f"qq:GroupMessage:{group}"

    def sent_to(self, user: int, group: int | None = None) -> list[Sent]:
        """What the bot sent to a group, or to a person in private."""
        with self._changed:
            return [each for each in self.sent if _is_to(each, user, group)]

    def wait_sent(
        self, count: int, user: int, group: int | None = None, timeout_seconds: float = 30
    ) -> list[Sent]:
        """Wait until the bot has sent so many messages there in all.

        Raises:
            TimeoutError: fewer came.
        """
        with self._changed:

            def found() -> list[Sent]:
                return [each for each in self.sent if _is_to(each, user, group)]

            if not self._changed.wait_for(lambda: len(found()) >= count, timeout_seconds):
                texts = [each.text for each in found()]
                raise TimeoutError(f"{len(texts)} of {count} messages came: {texts}")
            return found()

    def post(self, person: Person, text: str, group: int | None, at: bool) -> None:
        """Deliver a message event to the bot."""
        segments: list[dict[str, Any]] = [{"type": "text", "data": {"text": text}}]
        if group is not None and at:
            segments.insert(0, {"type": "at", "data": {"qq": str(SELF_ID)}})
        event = {
            "time": int(time.time()),
            "self_id": SELF_ID,
            "post_type": "message",
            "message_type": "private" if group is None else "group",
            "sub_type": "friend" if group is None else "normal",
            "message_id": next(self._ids),
            "user_id": person.user,
            "message": segments,
            "raw_message": text,
            "font": 0,
            "sender": _member(person),
        }
        if group is not None:
            event["group_id"] = group
        self._aio.run(self._send(event))

    def close(self) -> None:
        """Hang up."""
        self._aio.close()

    def __enter__(self) -> OneBot:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()

    async def _send(self, payload: dict[str, Any]) -> None:
        await self._socket.send_str(json.dumps(payload))

    async def _serve(self) -> None:
        url = f"ws://127.0.0.1:{self.bot.onebot_port}/ws/"
        headers = {"X-Self-ID": str(SELF_ID), "X-Client-Role": "Universal"}
        async with aiohttp.ClientSession() as session:
            while True:
                try:
                    async with session.ws_connect(url, headers=headers, max_msg_size=0) as socket:
                        self._socket = socket
                        self._connected.set()
                        async for message in socket:
                            await self._answer(json.loads(message.data))
                except aiohttp.ClientError:
                    # The adapter opens its port a moment after the dashboard, or is restarting.
                    await asyncio.sleep(0.05)
                self._connected.clear()

    async def _answer(self, request: dict[str, Any]) -> None:
        action, params = request.get("action", ""), request.get("params") or {}
        data: Any = {}
        if action in {"send_msg", "send_group_msg", "send_private_msg"}:
            data = {"message_id": next(self._ids)}
            self._keep(params)
        elif action in {"get_group_member_info", "get_stranger_info"}:
            data = _member(self.people.get(int(params["user_id"])))
        elif action == "get_login_info":
            data = {"user_id": SELF_ID, "nickname": "bot"}
        elif action == "get_group_info":
            data = {"group_id": params.get("group_id"), "group_name": "bed", "member_count": 3}
        elif action == "get_group_member_list":
            data = [_member(person) for person in self.people.values()]
        await self._send({"status": "ok", "retcode": 0, "data": data, "echo": request.get("echo")})

    def _keep(self, params: dict[str, Any]) -> None:
        group, user = params.get("group_id"), params.get("user_id")
        message = params.get("message", "")
        parts = [message] if isinstance(message, str) else [_segment(each) for each in message]
        sent = Sent(
            int(group) if group else None,
            int(user) if user else None,
            "".join(parts),
            time.monotonic(),
        )
        with self._changed:
            self.sent.append(sent)
            self._changed.notify_all()


def _is_to(sent: Sent, user: int, group: int | None) -> bool:
    return sent.group == group if group is not None else sent.group is None and sent.user == user


def _segment(segment: dict[str, Any]) -> str:
    data = segment.get("data", {})
    return data.get("text", "") if segment.get("type") == "text" else f"[{segment.get('type')}]"


def _member(person: Person | None) -> dict[str, Any]:
    user, nickname, role = SELF_ID, "bot", "member"
    if person is not None:
        user, nickname, role = person.user, person.nickname, person.role
    return {
        "user_id": user,
        "nickname": nickname,
        "card": nickname,
        "role": role,
        "sex": "unknown",
        "age": 0,
    }
