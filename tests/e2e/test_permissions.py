"""Who may use which command, where (spec 5). User 1001 is an admin."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.bed import Bot, OneBot, Person
from tests.conftest import StartBot
from tests.e2e.histories import HEAD, is_compacted, talk, untouched

ADMINS_ONLY = ("set keep 0.2", "set", "forget", "forget 确认")
ADMINS_IN_GROUPS = (
    "",
    "keep 0 预算",
    "只有 聚焦",
    "run",
    "run keep 0",
    "undo",
    "show",
    "show 1",
    "search FACT",
    "history",
)
EVERYONE = {
    "preview": "🔍",
    "preview keep 0": "🔍",
    "status": "📊",
    "config": "⚙️",
    "help": "🗜️",
}
LOCKED = "🔒"
GROUP_LOCKED = "🔒 群聊里 /compact {name} 只有管理员可以使用（可由插件配置 group_members 放开）。"


def seed(bot: Bot, person: Person, group: int | None = None) -> str:
    """Give the chat a compacted history that can be compacted again; its umo."""
    umo = person.umo if group is None else OneBot.group_umo(group)
    person.say("你好", group=group)
    bot.wait_row(umo, lambda row: len(row.messages) > 0)
    bot.write_row(umo, talk(1, 12))
    return umo


@contextmanager
def no_request(bot: Bot) -> Iterator[None]:
    """No model may be asked meanwhile."""
    before = len(bot.model.requests)
    yield
    assert len(bot.model.requests) == before


@pytest.mark.hosts("newest")
def test_members_of_a_group_are_refused_what_changes_or_shows_its_talk(
    bot: Bot, qq: OneBot
) -> None:
    group = 8101
    ann, bob = qq.person(1001, "Ann"), qq.person(2002, "Bob")
    umo = seed(bot, ann, group)
    ann.say("/compact", group=group, replies=2)

    with untouched(bot, umo), no_request(bot):
        for command in ADMINS_IN_GROUPS:
            (reply,) = bob.say(f"/compact {command}".strip(), group=group)
            name = command.split()[0] if command.startswith(("u", "s", "h")) else "run"
            assert reply == GROUP_LOCKED.format(name=name)
        for command in ADMINS_ONLY:
            (reply,) = bob.say(f"/compact {command}", group=group)
            assert reply == f"🔒 /compact {command.split()[0]} 只有管理员可以使用。"


@pytest.mark.hosts("newest")
def test_members_of_a_group_may_look(bot: Bot, qq: OneBot) -> None:
    group = 8102
    bob = qq.person(2002, "Bob")
    umo = seed(bot, bob, group)

    with untouched(bot, umo), no_request(bot):
        for command, answer in EVERYONE.items():
            assert bob.say(f"/compact {command}", group=group)[0].startswith(answer)


@pytest.mark.hosts("newest")
def test_a_role_in_the_group_makes_no_admin(bot: Bot, qq: OneBot) -> None:
    group = 8103
    owner = qq.person(2003, "Owner", role="owner")
    seed(bot, owner, group)

    with no_request(bot):
        assert owner.say("/compact", group=group)[0].startswith(LOCKED)


@pytest.mark.hosts("newest")
def test_the_admin_may_do_all_in_a_group(bot: Bot, qq: OneBot) -> None:
    group = 8104
    ann = qq.person(1001, "Ann")
    umo = seed(bot, ann, group)

    assert "✅" in ann.say("/compact keep 0.1", group=group, replies=2)[1]
    for command in ("show", "history", "search FACT-1", "undo", "set keep 0.15", "forget"):
        assert LOCKED not in ann.say(f"/compact {command}", group=group)[0]

    assert not is_compacted(bot.row(umo).messages)


@pytest.mark.hosts("newest")
def test_group_members_opens_all_but_settings_and_erasing(bot: Bot, qq: OneBot) -> None:
    group = 8105
    ann, bob = qq.person(1001, "Ann"), qq.person(2002, "Bob")
    umo = seed(bot, bob, group)
    assert "group_members = on" in ann.say("/compact set group_members on")[0]
    try:
        assert "✅" in bob.say("/compact keep 0.1 预算", group=group, replies=2)[1]
        for command in ("show", "history", "search FACT-1"):
            assert LOCKED not in bob.say(f"/compact {command}", group=group)[0]
        for command in ADMINS_ONLY:
            assert bob.say(f"/compact {command}", group=group)[0].startswith(LOCKED)
        assert is_compacted(bot.row(umo).messages)
        assert "↩️" in bob.say("/compact undo", group=group)[0]
    finally:
        ann.say("/compact set group_members default")

    assert bob.say("/compact", group=group)[0].startswith(LOCKED)


@pytest.mark.hosts("newest")
def test_in_a_private_chat_everybody_compacts_their_own(bot: Bot, qq: OneBot) -> None:
    eve = qq.person(8201, "Eve")
    umo = seed(bot, eve)

    for command, answer in EVERYONE.items():
        assert eve.say(f"/compact {command}")[0].startswith(answer)
    with untouched(bot, umo), no_request(bot):
        for command in ADMINS_ONLY:
            assert eve.say(f"/compact {command}")[0].startswith(LOCKED)
    assert "✅" in eve.say("/compact keep 0.1", replies=2)[1]
    assert "#1" in eve.say("/compact show")[0]
    assert "#1" in eve.say("/compact history")[0]
    assert "FACT-1" in eve.say("/compact search FACT-1")[0]
    assert "↩️" in eve.say("/compact undo")[0]

    assert not is_compacted(bot.row(umo).messages)


@pytest.mark.hosts("newest")
def test_a_refused_set_saves_nothing(bot: Bot, qq: OneBot) -> None:
    eve = qq.person(8202, "Eve")
    seed(bot, eve)
    before = bot.plugin_config()

    eve.say("/compact set keep 0.29 provider small")

    assert bot.plugin_config() == before
    assert "keep_recent_ratio = 0.15" in eve.say("/compact config")[0]


@pytest.mark.hosts("newest")
def test_a_group_isolated_by_member_counts_as_private(start_bot: StartBot) -> None:
    group = 8300
    bot = start_bot(
        onebot=True, admins=["1001"], config={"platform_settings": {"unique_session": True}}
    )
    with OneBot(bot) as qq:
        bob, cat = qq.person(2002, "Bob"), qq.person(2003, "Cat")
        rows = {}
        for person in (bob, cat):
            person.say(f"我是 {person.nickname}", group=group)
            umo = f"qq:GroupMessage:{person.user}_{group}"
            rows[person] = bot.wait_row(umo, lambda row: len(row.messages) > 0)
            bot.write_row(umo, talk(1, 6))
        before = bot.row(rows[cat].umo)

        assert "✅" in bob.say("/compact", group=group, replies=2)[1]
        for command in ADMINS_ONLY:
            assert bob.say(f"/compact {command}", group=group)[0].startswith(LOCKED)

        assert (bot.row(rows[bob].umo).text or "").count(HEAD) == 1
        assert bot.row(rows[cat].umo) == before
