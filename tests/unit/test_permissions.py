"""Who may use which command, where."""

from __future__ import annotations

import itertools

import pytest
from astrbot_plugin_compact.summary.permissions import Caller, refusal

EVERYONE = ("preview", "status", "config", "help")
ADMINS = ("set", "forget")
OTHERS = ("run", "undo", "show", "search", "history")


def caller(*, is_admin: bool = False, is_shared_group: bool = False) -> Caller:
    umo = "qq:GroupMessage:1" if is_shared_group else "qq:FriendMessage:7"
    return Caller(umo, "7", is_admin, is_shared_group)


@pytest.mark.parametrize("name", [*EVERYONE, *ADMINS, *OTHERS])
def test_an_admin_may_use_everything_everywhere(name: str) -> None:
    for is_shared_group, group_members in itertools.product([False, True], repeat=2):
        admin = caller(is_admin=True, is_shared_group=is_shared_group)
        assert refusal(name, admin, group_members) is None


@pytest.mark.parametrize("name", EVERYONE)
def test_looking_at_plan_state_and_settings_is_for_everyone(name: str) -> None:
    for is_shared_group, group_members in itertools.product([False, True], repeat=2):
        assert refusal(name, caller(is_shared_group=is_shared_group), group_members) is None


@pytest.mark.parametrize("name", ADMINS)
def test_setting_and_forgetting_is_for_admins_everywhere(name: str) -> None:
    for is_shared_group, group_members in itertools.product([False, True], repeat=2):
        member = caller(is_shared_group=is_shared_group)
        assert refusal(name, member, group_members) == "refused.admin"


@pytest.mark.parametrize("name", OTHERS)
def test_in_a_private_chat_everybody_may_use_the_rest(name: str) -> None:
    assert refusal(name, caller(), False) is None
    assert refusal(name, caller(), True) is None


@pytest.mark.parametrize("name", OTHERS)
def test_in_a_group_the_rest_is_for_admins_unless_members_may(name: str) -> None:
    assert refusal(name, caller(is_shared_group=True), False) == "refused.group"
    assert refusal(name, caller(is_shared_group=True), True) is None


def test_a_command_nobody_thought_of_is_not_for_a_whole_group() -> None:
    assert refusal("new", caller(is_shared_group=True), False) == "refused.group"
