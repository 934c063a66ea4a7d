"""Who may use which command, where (spec 5)."""

from __future__ import annotations

from dataclasses import dataclass

_ADMINS_ONLY = frozenset({"set", "forget"})
_EVERYONE = frozenset({"preview", "status", "config", "help"})


@dataclass(frozen=True, slots=True)
class Caller:
    """Who typed a command, and where.

    `is_shared_group` is whether the history is one of several people: a group session isolated
    per member is private. `command` is the group's name as typed, for the replies. `chat_id` is
    the chat provider picked for this message, empty where the session's counts.
    """

    umo: str
    user_id: str
    is_admin: bool
    is_shared_group: bool
    command: str = "compact"
    chat_id: str = ""


def refusal(name: str, caller: Caller, group_members: bool) -> str | None:
    """The key of the sentence that refuses this command to this caller, or None if it may run."""
    if caller.is_admin or name in _EVERYONE:
        return None
    if name in _ADMINS_ONLY:
        return "refused.admin"
    if caller.is_shared_group and not group_members:
        return "refused.group"
    return None
