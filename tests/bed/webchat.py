"""The WebUI's chat, spoken over HTTP as the browser speaks it.

Invariant: a turn is over when the host says `end` (or closes the stream), never after a pause.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from .aio import wait_for
from .bot import USERNAME, BedError, Bot, Row


@dataclass(frozen=True)
class Said:
    """One message of the bot, and how long after the user's it was there."""

    text: str
    seconds: float


@dataclass(eq=False)
class Turn:
    """What came back for one message; grows while the turn runs."""

    said: list[Said] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0
    user_message_id: int | None = None
    bot_message_ids: list[int] = field(default_factory=list)

    @property
    def texts(self) -> list[str]:
        """The bot's messages."""
        return [said.text for said in self.said]

    @property
    def text(self) -> str:
        """All the bot said, line by line."""
        return "\n".join(self.texts)


class Pending:
    """A turn that is under way in a thread."""

    def __init__(self, turn: Turn, done: Future[Turn], changed: threading.Condition) -> None:
        self.turn = turn
        self._done = done
        self._changed = changed

    def result(self, timeout_seconds: float = 60) -> Turn:
        """The finished turn."""
        return self._done.result(timeout_seconds)

    @property
    def done(self) -> bool:
        """Whether the turn is over."""
        return self._done.done()

    def wait_said(self, text: str, timeout_seconds: float = 20) -> Said:
        """Wait until the bot said something holding this text.

        Raises:
            TimeoutError: it did not.
        """

        def found() -> list[Said]:
            return [said for said in self.turn.said if text in said.text]

        with self._changed:
            if not self._changed.wait_for(found, timeout_seconds):
                raise TimeoutError(f"the bot never said {text!r}, but {self.turn.texts}")
            return found()[0]


class WebChat:
    """One chat window of the WebUI, as its user `astrbot` (an admin)."""

    def __init__(self, bot: Bot, session_id: str | None = None) -> None:
        self.bot = bot
        path = "/api/v1/chat/sessions/new" if bot.has_v1 else "/api/chat/new_session"
        self.session_id = session_id or bot.api("GET", path)["session_id"]

    @property
    def umo(self) -> str:
        """The session as AstrBot names it."""
        return f"webchat:FriendMessage:webchat!{USERNAME}!{self.session_id}"

    def send(
        self,
        text: str,
        *,
        streaming: bool = False,
        provider: str | None = None,
        timeout_seconds: float = 60,
    ) -> Turn:
        """Send a message and wait for the end of the turn."""
        return self.start(text, streaming=streaming, provider=provider).result(timeout_seconds)

    def start(
        self, text: str, *, streaming: bool = False, provider: str | None = None, **more: Any
    ) -> Pending:
        """Send a message and go on; others may be sent while it is answered.

        `more` are further keys of the request's body, as the browser sends them.
        """
        body: dict[str, Any] = {
            "message": [{"type": "plain", "text": text}],
            "session_id": self.session_id,
            "enable_streaming": streaming,
            **more,
        }
        if provider is not None:
            body["selected_provider"] = provider
        return self._post("/api/v1/chat" if self.bot.has_v1 else "/api/chat/send", body)

    def regenerate(self, message_id: int | None = None, **request: Any) -> Turn:
        """Have an answer (the last one) made anew."""
        message_id = message_id if message_id is not None else self.stored("bot")[-1][0]
        body = {"enable_streaming": False, **request}
        if self.bot.has_v1:
            return self._post(f"{self._message_path(message_id)}/regenerate", body).result()
        body |= {"session_id": self.session_id, "message_id": message_id}
        return self._post("/api/chat/message/regenerate", body).result()

    def edit(self, text: str, message_id: int | None = None) -> Turn:
        """Change a message of the user's (the last one) and have it answered anew."""
        message_id = message_id if message_id is not None else self.stored("user")[-1][0]
        parts = [{"type": "plain", "text": text}]
        body: dict[str, Any] = {"content": {"type": "user", "message": parts}}
        if self.bot.has_v1:
            answer = self.bot.api("PATCH", self._message_path(message_id), json=body)
        else:
            body |= {"session_id": self.session_id, "message_id": message_id}
            answer = self.bot.api("POST", "/api/chat/message/edit", json=body)
        again = {"_skip_user_history": True}
        again["_llm_checkpoint_id"] = answer["message"]["llm_checkpoint_id"]
        return self.start(text, **again).result()

    def stop(self) -> None:
        """Press the stop button."""
        if self.bot.has_v1:
            self.bot.api("POST", f"/api/v1/chat/sessions/{self.session_id}/stop")
        else:
            self.bot.api("POST", "/api/chat/stop", json={"session_id": self.session_id})

    def delete(self) -> None:
        """Delete the whole session, its conversations included."""
        if self.bot.has_v1:
            self.bot.api("DELETE", f"/api/v1/chat/sessions/{self.session_id}")
        else:
            params = {"session_id": self.session_id}
            self.bot.api("GET", "/api/chat/delete_session", params=params)

    def row(self) -> Row:
        """The current conversation as stored."""
        return self.bot.row(self.umo)

    def seed(self, messages: Iterable[Mapping[str, Any]] | str, token_usage: int = 0) -> str:
        """Begin a new current conversation that has this history; its cid."""
        before = self.bot.current_cid(self.umo)
        self.send("/new")
        # The host writes the choice of conversation a moment after it answered.
        wait_for(lambda: self.bot.current_cid(self.umo) not in {None, before}, "the new one")
        return self.bot.write_row(self.umo, messages, token_usage)

    def stored(self, kind: str = "bot") -> list[tuple[int, str]]:
        """The window's messages of a kind as kept for display: id and text, oldest first.

        Holds what was sent when nobody listened, such as a notice after an automatic run.
        """
        sql = "SELECT id, content FROM platform_message_history WHERE user_id=? ORDER BY id"
        rows = [(row[0], json.loads(row[1])) for row in self.bot.query(sql, self.session_id)]
        return [(id_, _plain(body)) for id_, body in rows if body.get("type") == kind]

    def wait_stored(self, text: str, timeout_seconds: float = 20) -> str:
        """Wait until the window holds a message of the bot with this text."""

        def found() -> str | None:
            return next((said for _, said in self.stored() if text in said), None)

        return wait_for(found, f"{text!r} in the chat window", timeout_seconds)

    def _message_path(self, message_id: int) -> str:
        return f"/api/v1/chat/sessions/{self.session_id}/messages/{message_id}"

    def _post(self, path: str, body: dict[str, Any]) -> Pending:
        turn, done, changed = Turn(), Future[Turn](), threading.Condition()

        def work() -> None:
            try:
                self._listen(path, body, turn, changed)
            except BaseException as exc:
                done.set_exception(exc)
            else:
                done.set_result(turn)

        threading.Thread(target=work, name="webchat-turn", daemon=True).start()
        return Pending(turn, done, changed)

    def _listen(
        self, path: str, body: dict[str, Any], turn: Turn, changed: threading.Condition
    ) -> None:
        started = time.monotonic()
        stream: list[str] = []
        with self.bot.http.stream("POST", path, json=body, timeout=120) as response:
            if "event-stream" not in response.headers.get("content-type", ""):
                raise BedError(f"{path}: {response.status_code} {response.read().decode()[:2000]}")
            for line in response.iter_lines():
                if not line.startswith("data: "):
                    continue
                event = json.loads(line.removeprefix("data: "))
                with changed:
                    turn.seconds = time.monotonic() - started
                    turn.events.append(event)
                    _take(turn, event, stream)
                    changed.notify_all()
                if event.get("type") == "end":
                    break


def _take(turn: Turn, event: dict[str, Any], stream: list[str]) -> None:
    """Add an event to the turn; pieces of a streamed message wait in `stream` for its end."""
    kind, data = event.get("type"), event.get("data")
    if kind == "user_message_saved":
        turn.user_message_id = data["id"]
    elif kind == "message_saved":
        turn.bot_message_ids.append(data["id"])
    elif kind == "plain" and event.get("chain_type") in {None, "normal"}:
        if event.get("streaming"):
            stream.append(data)
        else:
            turn.said.append(Said(data, turn.seconds))
    if kind in {"complete", "break", "end"} and stream:
        turn.said.append(Said("".join(stream), turn.seconds))
        stream.clear()


def _plain(body: Mapping[str, Any]) -> str:
    parts = body.get("message") or []
    return "".join(part.get("text", "") for part in parts if part.get("type") == "plain")
