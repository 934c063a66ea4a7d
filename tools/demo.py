"""See it work: a conversation grows, `/compact` shrinks it, the bot still knows what was said.

A real AstrBot with this plugin in it, and a model scripted on this machine: its answers hold only
what stands in the request it got, so an answer that is right proves what the history holds.
`KEEP=1` leaves the bot running for a look at its WebUI. The exit code is not 0 if anything of
this does not hold.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.bed import Bot, Model, Reply, Request, Row, WebChat, say
from tests.bed.bot import PASSWORD, USERNAME
from tests.bed.wire import message_text, request_tokens

WINDOW_TOKENS = 32_000
SUMMARY_PREFIX = "Our previous history conversation summary: "
FACTS = {
    "仓库的门禁码": "GATE-4711",
    "备份服务器": "HOST-20",
    "发布的代号": "KITE-7",
    "会议室": "ROOM-315",
}
TALK = (
    "今天把接口文档重新读了一遍，登录、列表和导出三处的返回格式不一致，先记下来，等评审时一起说。",
    "测试环境昨晚重启过一次，日志里没有异常，只是定时任务晚了十几分钟，今天再观察一天看看。",
    "新来的同事问部署步骤写在哪里，我把旧文档发给他了，里面有几步已经过时，需要找时间改。",
    "客户反馈导出很慢，初步看是一次取了全部数据，改成分批以后在本地快了很多，还没有上线。",
)
SENTENCE = re.compile(r"[^。\n：]*[A-Z]+-\d+")


def remember(request: Request) -> Reply:
    """Answer a question from the other messages of the request, and only from them."""
    asked = [name for name in FACTS if f"{name}是什么" in request.last]
    if not asked:
        return say("好的，记下了。")
    seen = "\n".join(message_text(message) for message in request.messages[:-1])
    told = [f"{name}是 {FACTS[name]}" for name in asked if FACTS[name] in seen]
    return say("；".join(told) + "。" if told else "这个我不知道。")


def summarise(request: Request) -> Reply:
    """Write the sections asked for, from the sentences of the request that hold a fact."""
    facts = dict.fromkeys(match.strip() for match in SENTENCE.findall(request.text))
    headings = re.findall(r"(?m)^## .+$", request.system) or ["## 摘要"]
    lines = ["【保留原文】无"] if "【保留原文】" in request.system else []
    lines += [headings[0], *(f"- {fact}" for fact in facts)]
    for heading in headings[1:]:
        lines += [heading, "无"]
    return say("\n".join(lines))


def show(title: str, row: Row) -> None:
    """Print the shape of a stored history."""
    print(f"\n{title}: {len(row.messages)} records, ~{size(row):,} tokens")
    shown = row.messages if len(row.messages) <= 14 else [*row.messages[:6], *row.messages[-6:]]
    for position, message in enumerate(shown):
        if len(shown) < len(row.messages) and position == 6:
            print(f"  … {len(row.messages) - len(shown)} more …")
        text = message_text(message).replace("\n", " ⏎ ")
        print(f"  {message['role']:<12}{text[:72]}")


def size(row: Row) -> int:
    """Tokens of a stored history, by the host's rule of thumb."""
    return request_tokens({"messages": row.messages})


def talk(chat: WebChat) -> None:
    """Let the conversation grow: facts told early, then much else."""
    for name, value in FACTS.items():
        chat.send(f"请记住：{name}是 {value}。" + TALK[0] * 3)
    for number in range(16):
        chat.send(f"第 {number + 1} 件事：" + TALK[number % len(TALK)] * 6)


def ask(chat: WebChat) -> bool:
    """Ask for every fact; whether each was known."""
    known = True
    for name, value in FACTS.items():
        answer = chat.send(f"{name}是什么？").text
        print(f"  > {name}是什么？\n    {answer}")
        known = known and value in answer
    return known


def play(bot: Bot) -> list[str]:
    """Run the scene; what did not hold."""
    chat = WebChat(bot)
    print(f"AstrBot {bot.host.version}, model window {WINDOW_TOKENS:,} tokens")
    talk(chat)
    before = chat.row()
    show("Before", before)
    print(f"  last turn: {before.token_usage:,} tokens reported by the model")

    print("\n> /compact")
    for reply in chat.send("/compact").texts:
        print("    " + reply.replace("\n", "\n    "))
    after = chat.row()
    show("After", after)

    print("\nDoes the bot still know?")
    known = ask(chat)
    usage = chat.row().token_usage
    print(f"  last turn: {usage:,} tokens reported by the model")

    head = message_text(after.messages[0]) if after.messages else ""
    checks = {
        "the history is shorter": len(after.messages) < len(before.messages),
        "it takes fewer tokens": size(after) < size(before) and usage < before.token_usage,
        "it begins with the summary": head.startswith(SUMMARY_PREFIX),
        "the last message is kept": after.messages[-3:] == before.messages[-3:],
        "every fact is still known": known,
        "one request was enough": len(bot.model.summaries) == 1,
    }
    print()
    for claim, holds in checks.items():
        print(f"  {'✓' if holds else '✗'} {claim}")
    return [claim for claim, holds in checks.items() if not holds] + bot.model.problems


def main() -> int:
    """Play it; 0 if all held."""
    with tempfile.TemporaryDirectory(prefix="compact-demo-") as folder, Model() as model:
        model.defaults |= {"chat": remember, "summary": summarise}
        with Bot(Path(folder) / "bot", model, window_tokens=WINDOW_TOKENS) as bot:
            failed = play(bot)
            if failed:
                print("\n".join([*failed, bot.log_tail(40)]))
            if os.environ.get("KEEP"):
                print(f"\nWebUI http://127.0.0.1:{bot.port}  login {USERNAME} / {PASSWORD}")
                print("Ctrl-C ends it.", flush=True)
                try:
                    bot.wait()
                except KeyboardInterrupt:
                    print()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
