"""Commands renamed, restricted or switched off in the WebUI: all forms of the command obey."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.bed import Bot, OneBot, Person, WebChat
from tests.e2e.histories import is_compacted, talk

HANDLERS = ("compact", "run", "status")
DONE = "✅ 压缩完成"
STATUS = "📊"
NO_PERMISSION = "权限不足"
LOCKED = "🔒"
FORMS = ("", " 重点", " keep 0", " run", " run 重点")


@pytest.fixture
def panel(bot: Bot) -> Iterator[Bot]:
    """The shared bot; what a test changes in its command list is set back."""
    yield bot
    for handler in HANDLERS:
        bot.toggle_command(handler, enabled=True)
        bot.permit_command(handler, "member")
        bot.rename_command(handler, handler)


def compacted_by(chat: WebChat, command: str) -> str:
    """The reply to a run on a history that has something to compact."""
    chat.seed(talk(1, 6))
    return chat.send(command).texts[-1]


def test_a_renamed_group_takes_all_its_forms_along(panel: Bot, chat: WebChat) -> None:
    panel.rename_command("compact", "压缩")

    for form in FORMS:
        assert DONE in compacted_by(chat, f"/压缩{form}")
    assert "/压缩 undo 可撤销" in compacted_by(chat, "/压缩")
    assert "重点" in panel.model.summaries[1].text
    assert chat.send("/压缩 status").text.startswith(STATUS)
    assert "/压缩 preview" in chat.send("/压缩 help").text
    shown = {each["effective_command"] for each in panel.commands()}
    assert {"压缩", "压缩 run", "压缩 status"} <= shown


def test_the_old_name_of_a_renamed_group_is_talk(panel: Bot, chat: WebChat) -> None:
    chat.seed(talk(1, 6))
    panel.rename_command("compact", "压缩")

    for form in (" run", " status", *FORMS):
        assert chat.send(f"/compact{form}").text.startswith("Noted")

    assert panel.model.summaries == []


def test_a_name_of_two_words_and_an_alias_work(panel: Bot, chat: WebChat) -> None:
    panel.rename_command("compact", "对话 整理", aliases=["cc"])

    for name in ("对话 整理", "对话  整理", "cc"):
        assert DONE in compacted_by(chat, f"/{name} 重点")
        assert DONE in compacted_by(chat, f"/{name} run 重点")
        assert chat.send(f"/{name}   status").text.startswith(STATUS)
    assert all("重点" in request.text for request in panel.model.summaries)
    assert "/cc undo" in compacted_by(chat, "/cc")


def test_renamed_sub_commands_are_obeyed(panel: Bot, chat: WebChat) -> None:
    panel.rename_command("status", "状态")
    panel.rename_command("run", "开始")

    assert chat.send("/compact 状态").text.startswith(("📊", "当前没有对话"))
    for form in ("", " 重点", " 开始", " 开始 重点"):
        assert DONE in compacted_by(chat, f"/compact{form}")
    assert chat.send("/compact 状态").text.startswith(STATUS)
    panel.rename_command("undo", "撤销")
    panel.rename_command("forget", "清除")
    assert "/compact 撤销 可撤销" in compacted_by(chat, "/compact keep 0")
    assert "/compact 清除 确认" in chat.send("/compact 清除").text
    assert "/compact 撤销 —" in chat.send("/compact help").text
    # No sub-command any more: a focus.
    assert DONE in compacted_by(chat, "/compact status")
    assert "status" in panel.model.summaries[-1].text


def test_the_group_s_name_holds_after_a_reload(panel: Bot, chat: WebChat) -> None:
    """AstrBot itself forgets the names of sub-commands at a reload."""
    panel.rename_command("compact", "压缩")
    panel.reload_plugin()

    assert chat.send("/compact status").text.startswith("Noted")
    for form in FORMS:
        assert DONE in compacted_by(chat, f"/压缩{form}")
    assert chat.send("/压缩 status").text.startswith(STATUS)


def test_a_switched_off_command_says_so_and_asks_no_model(panel: Bot, chat: WebChat) -> None:
    chat.seed(talk(1, 6))
    panel.toggle_command("run", enabled=False)

    for form in FORMS:
        assert chat.send(f"/compact{form}").text == "🔒 /compact run 已在 WebUI 中停用。"
    assert chat.send("/compact status").text.startswith(STATUS)
    panel.toggle_command("status", enabled=False)
    assert chat.send("/compact status").text == "🔒 /compact status 已在 WebUI 中停用。"
    assert panel.model.requests == []

    panel.toggle_command("run", enabled=True)
    assert DONE in chat.send("/compact").texts[-1]


def test_a_switched_off_group_is_talk(panel: Bot, chat: WebChat) -> None:
    chat.seed(talk(1, 6))
    panel.toggle_command("compact", enabled=False)

    assert chat.send("/compact 重点").text.startswith("Noted")
    assert panel.model.summaries == []


@pytest.fixture
def people(panel: Bot, qq: OneBot) -> tuple[Person, Person]:
    """An admin and somebody else, each with a private chat that can be compacted."""
    pair = qq.person(1001, "Ann"), qq.person(8401, "Bob")
    for person in pair:
        person.say("/new")
        person.say("你好")
        panel.wait_row(person.umo, lambda row: len(row.messages) > 0)
        panel.write_row(person.umo, talk(1, 12))
    return pair


def is_refused(person: Person, command: str) -> bool:
    """Whether the one answer is a refusal, ours or AstrBot's own."""
    (reply,) = person.say(command)
    return reply.startswith(LOCKED) or NO_PERMISSION in reply


def test_a_permission_set_for_run_holds_for_every_form(
    panel: Bot, people: tuple[Person, Person]
) -> None:
    admin, other = people
    panel.permit_command("run", "admin")
    asked = len(panel.model.requests)

    assert all(is_refused(other, f"/compact{form}") for form in FORMS)
    assert other.say("/compact status")[0].startswith(STATUS)
    assert other.say("/compact preview")[0].startswith("🔍")

    assert len(panel.model.requests) == asked
    assert not is_compacted(panel.row(other.umo).messages)
    assert DONE in admin.say("/compact keep 0.1", replies=2)[1]


def test_a_permission_set_for_the_group_holds_for_all_it_has(
    panel: Bot, people: tuple[Person, Person]
) -> None:
    admin, other = people
    panel.permit_command("compact", "admin")
    asked = len(panel.model.requests)

    assert all(is_refused(other, f"/compact{form}") for form in (*FORMS, " status", " help"))

    assert len(panel.model.requests) == asked
    assert not is_compacted(panel.row(other.umo).messages)
    assert admin.say("/compact status")[0].startswith(STATUS)
    assert DONE in admin.say("/compact 重点", replies=2)[1]


def test_a_permission_taken_back_lets_everybody_in(
    panel: Bot, people: tuple[Person, Person]
) -> None:
    _, other = people
    for handler in ("compact", "run"):
        panel.permit_command(handler, "admin")
        panel.permit_command(handler, "member")

    assert DONE in other.say("/compact 重点", replies=2)[1]


def test_the_command_list_of_the_webui_names_no_conflict(bot: Bot) -> None:
    commands = bot.commands()

    assert not any(each["has_conflict"] for each in commands)
    shown = {each["effective_command"]: each["description"] for each in commands}
    assert {"compact", "compact run", "compact set", "compact help"} <= set(shown)
    assert all(description and "\n" not in description for description in shown.values())
