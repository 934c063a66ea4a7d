"""What the commands beside a run say: status, settings, archive, help. Chinese, English."""

from __future__ import annotations

COMMANDS: dict[str, tuple[str, str]] = {
    # Status.
    "status.title": ("📊 会话状态", "📊 Session status"),
    "status.running": ("⏳ 正在压缩", "⏳ A compaction is running"),
    "status.messages": (
        "历史: {messages} 条消息，约 {tokens} tokens",
        "history: {messages:message}, about {tokens} tokens",
    ),
    "status.usage": (
        "用量: {bar} {percent}%（{usage} / {line} tokens）",
        "usage: {bar} {percent}% ({usage} / {line} tokens)",
    ),
    "status.usage_estimated": (
        "用量: {bar} {percent}%（约 {usage} / {line} tokens，估算）",
        "usage: {bar} {percent}% (about {usage} / {line} tokens, estimated)",
    ),
    "status.usage_no_line": (
        "用量: 约 {usage} tokens（没有可比的压缩线）",
        "usage: about {usage} tokens (no line to compare with)",
    ),
    "status.window": ("窗口: {window} tokens", "window: {window} tokens"),
    "status.window_unknown": ("窗口: 未知", "window: unknown"),
    "status.line": (
        "压缩线: {line} tokens（{rule}）",
        "compress line: {line} tokens ({rule})",
    ),
    "status.line_unknown": (
        "压缩线: 无（模型窗口未知；可用 {command} set line 60k 设定）",
        "compress line: none (the model's window is unknown; {command} set line 60k sets one)",
    ),
    "status.line_off": (
        "压缩线: 已关闭，不按用量自动压缩",
        "compress line: off, usage starts no compaction",
    ),
    "status.count": (
        "条数线: {messages} / {line} 条（{rule}）",
        "count line: {messages} / {line:message} ({rule})",
    ),
    "status.count_off": ("条数线: 无", "count line: none"),
    "rule.ratio": (
        "窗口的 {share}，来自{source}",
        "{share} of the window, from {source}",
    ),
    "rule.setting": ("来自{source}", "from {source}"),
    "rule.host": ("AstrBot 自己的上限", "AstrBot's own limit"),
    "status.auto_on": ("自动压缩: 开", "automatic compaction: on"),
    "status.auto_off": ("自动压缩: 关", "automatic compaction: off"),
    "status.backoff": (
        "自动压缩连续失败 {failures} 次，{turns} 轮后再试：{detail}",
        "automatic compaction failed {failures} in a row, next try in {turns:turn}: {detail}",
    ),
    "status.put_off": (
        "自动压缩 {turns} 轮后再试：{detail}",
        "automatic compaction tries again in {turns:turn}: {detail}",
    ),
    "status.undone": (
        "撤销之后，自动压缩再过 {turns} 轮才会开始",
        "after the undo automatic compaction waits {turns:turn} more",
    ),
    "status.last": (
        (
            "上次压缩: #{number}，{ago}，{trigger}，{before} → {after} 条，"
            "约 {before_tokens:k} → {after_tokens:k} tokens"
        ),
        (
            "last compaction: #{number}, {ago}, {trigger}, {before} → {after:message}, "
            "about {before_tokens:k} → {after_tokens:k} tokens"
        ),
    ),
    "status.last_none": ("上次压缩: 无", "last compaction: none"),
    "status.last_undone": (
        "⚠️ #{number} 的结果已被别的写入替换，视为已撤销",
        "⚠️ The result of #{number} was replaced by another writer and counts as undone",
    ),
    "status.trimmed": (
        "AstrBot 截掉的 {trimmed} 条已归档，等下次压缩写进摘要",
        "trimmed by AstrBot, archived, waiting for the next summary: {trimmed:message}",
    ),
    "status.archive": (
        "归档: {compactions} 次压缩，{messages} 条消息，{size}，正常",
        "archive: {compactions:compaction}, {messages:message}, {size}, healthy",
    ),
    "status.archive_broken": ("⚠️ 归档异常: {detail}", "⚠️ The archive is damaged: {detail}"),
    "trigger.manual": ("手动", "manual"),
    "trigger.auto": ("自动", "automatic"),
    "trigger.api": ("其他插件", "another plugin"),
    "trigger.page": ("页面", "the page"),
    "trigger.host_trim": ("AstrBot 截断", "trimmed by AstrBot"),
    "ago.seconds": ("刚刚", "just now"),
    "ago.minutes": ("{n} 分钟前", "{n:minute} ago"),
    "ago.hours": ("{n} 小时前", "{n:hour} ago"),
    "ago.days": ("{n} 天前", "{n:day} ago"),
    # Settings.
    "config.title": (
        "⚙️ 当前配置（短名 · 长名 = 值）",
        "⚙️ Settings in force (short · long name = value)",
    ),
    "source.default": ("默认", "the default"),
    "source.config": ("配置", "the settings"),
    "source.platform": ("本平台", "this platform"),
    "source.groups": ("本平台群聊", "this platform's groups"),
    "source.private": ("本平台私聊", "this platform's private chats"),
    "source.session": ("本会话", "this session"),
    "source.run": ("本次选项", "this run's options"),
    "config.row": ("- {names} = {value}（{source}）", "- {names} = {value} ({source})"),
    "value.empty": ("（空）", "(empty)"),
    "value.inherit": ("（继承）", "(inherited)"),
    "legal.number": ("{low} 到 {high} 的数", "a number from {low} to {high}"),
    "legal.whole": ("不小于 {low} 的整数", "a whole number of at least {low}"),
    "legal.whole_to": ("{low} 到 {high} 的整数", "a whole number from {low} to {high}"),
    "legal.tokens": (
        "不小于 {low} 的整数，60k 这样写也行",
        "a whole number of at least {low}, also written like 60k",
    ),
    "legal.text": ("文字，多个词请加引号", "text, in quotes if it is several words"),
    "legal.provider": ("模型 id", "a provider id"),
    "legal.json": ("一个 JSON 对象", "a JSON object"),
    "legal.line": (
        "0.6 这样的窗口比例，60000 或 60k 这样的 token 数，0 关闭",
        "a share of the window such as 0.6, tokens such as 60000 or 60k, 0 for off",
    ),
    "args.missing": ("{word} 缺少值（{legal}）", "{word}: the value is missing ({legal})"),
    "args.bad": (
        "{word} 的值 {value} 不可用（应为 {legal}）",
        "{word}: {value} is not usable (should be {legal})",
    ),
    "args.ignored": ("⚠️ 已忽略: {problem}", "⚠️ Ignored: {problem}"),
    "set.done": ("✅ 配置已持久化保存:", "✅ Settings saved:"),
    "set.done_here": ("✅ 配置已持久化保存（仅本会话）:", "✅ Settings saved (this session only):"),
    "set.unsaved": (
        "⚠️ 配置文件写入失败（{detail}）。以下设置在本进程内有效，重启后会丢失:",
        (
            "⚠️ The config file could not be written ({detail}). These settings hold in this "
            "process and are lost at the restart:"
        ),
    ),
    "set.refused": ("❌ 没有保存任何设置:", "❌ Nothing was saved:"),
    "set.empty": (
        "请写明要改什么，例如 {command} set keep 0.2",
        "say what to change, for example {command} set keep 0.2",
    ),
    "set.unknown": (
        "不认识 {word}（多个词的值请加引号；所有名字见 {command} config）",
        "{word} is no setting (quote a value of several words; {command} config lists all names)",
    ),
    "set.overrides": (
        "{word} 请在 WebUI 里修改；只改本会话用 {command} set line 0.5 here",
        "change {word} in the WebUI; for this session alone: {command} set line 0.5 here",
    ),
    "set.not_here": (
        "{word} 不能只对本会话设置（只有 line 和 limit 可以）",
        "{word} cannot be set for one session (only line and limit can)",
    ),
    # The archive.
    "undo.done": (
        "↩️ 已撤销 #{number}: {before} → {after} 条消息。",
        "↩️ #{number} is undone: {before} → {after:message}.",
    ),
    "undo.auto": (
        "自动压缩先停 {turns} 轮；不想要它，请用 {command} set auto off",
        "Automatic compaction waits {turns:turn} now; {command} set auto off switches it off",
    ),
    "undo.nothing": ("没有可以撤销的压缩。", "There is no compaction to undo."),
    "undo.changed": (
        (
            "❌ 不能撤销 #{number}：历史开头已不是它写下的内容。没有改动。"
            "原来的消息可以用 {command} search 查找。"
        ),
        (
            "❌ #{number} cannot be undone: the history no longer begins with what it wrote. "
            "Nothing was changed. {command} search finds the messages it replaced."
        ),
    ),
    "undo.cleared": (
        "❌ 不能撤销 #{number}：对话在它之后被清空了。没有改动。",
        "❌ #{number} cannot be undone: the conversation was cleared since. Nothing was changed.",
    ),
    "undo.empty": (
        (
            "❌ 不能撤销 #{number}：它收进摘要的都是 AstrBot 早已截掉的消息，撤销后历史会是空的。"
            "没有改动。"
        ),
        (
            "❌ #{number} cannot be undone: it covers only messages that AstrBot had trimmed away, "
            "and the history would be empty. Nothing was changed."
        ),
    ),
    "undo.erased": (
        "❌ 不能撤销 #{number}：它的原文已超过保留天数（archive_days），删除了。没有改动。",
        (
            "❌ #{number} cannot be undone: its messages were older than archive_days and are "
            "erased. Nothing was changed."
        ),
    ),
    "show.title": ("📝 #{number} 的摘要（{when}）:", "📝 Summary of #{number} ({when}):"),
    "show.none": ("这个对话还没有摘要。", "This conversation has no summary yet."),
    "show.none_since": (
        "对话清空之后还没有摘要；清空之前的见 {command} history",
        "There is no summary since the conversation was cleared; {command} history has the others",
    ),
    "show.unknown": (
        "这个对话没有 #{number}。编号见 {command} history",
        "This conversation has no #{number}. {command} history lists the numbers",
    ),
    "history.title": ("🗂️ 压缩记录:", "🗂️ Compactions:"),
    "history.row": (
        (
            "#{number} {when} {trigger} · {before} → {after} 条 · "
            "约 {before_tokens:k} → {after_tokens:k} tokens"
        ),
        (
            "#{number} {when} {trigger} · {before} → {after:message} · "
            "about {before_tokens:k} → {after_tokens:k} tokens"
        ),
    ),
    "history.trimmed_row": (
        "#{number} {when} {trigger} · {before} 条",
        "#{number} {when} {trigger} · {before:message}",
    ),
    "history.undone": ("（已撤销）", "(undone)"),
    "history.none": (
        "没有压缩记录（已撤销的不列出）。",
        "There are no compactions on record (undone ones are not listed).",
    ),
    "history.older": ("……还有更早的 {older} 次", "… and {older} earlier"),
    "search.title": ("🔎 “{query}” 找到 {hits} 条:", "🔎 {hits:message} for “{query}”:"),
    "search.title_first": (
        "🔎 “{query}” 找到的前 {hits} 条:",
        "🔎 The first {hits:message} for “{query}”:",
    ),
    "search.none": ("归档里没有找到“{query}”。", "Nothing in the archive matches “{query}”."),
    "search.empty": (
        "请写明要找什么，例如 {command} search 数据库",
        "Say what to look for, for example {command} search database",
    ),
    "forget.ask": (
        (
            "⚠️ 将永久删除这个对话的归档（{compactions} 次压缩，{messages} 条消息），之后不能撤销、"
            "查看或搜索。{summary}确认请发送 {command} forget 确认"
        ),
        (
            "⚠️ This erases the archive of this conversation for good ({compactions:compaction}, "
            "{messages:message}): no undo, show or search afterwards. {summary}To confirm send "
            "{command} forget yes"
        ),
    ),
    "forget.done": (
        "🗑️ 已删除归档: {compactions} 次压缩，{messages} 条消息。{summary}",
        "🗑️ Archive erased: {compactions:compaction}, {messages:message}. {summary}",
    ),
    "forget.head": (
        "历史里的摘要会留下，下次压缩当作普通的旧摘要处理。",
        "The summary in the history stays and is treated as a plain earlier one. ",
    ),
    "forget.carried": (
        "不在历史里的那份摘要也在其中。",
        "The summary, no longer in the history, is part of it. ",
    ),
    "forget.nothing": ("这个对话没有归档。", "This conversation has no archive."),
    # Permissions and help.
    "refused.admin": (
        "🔒 {command} {name} 只有管理员可以使用。",
        "🔒 Only admins can use {command} {name}.",
    ),
    "refused.group": (
        "🔒 群聊里 {command} {name} 只有管理员可以使用（可由插件配置 group_members 放开）。",
        (
            "🔒 In groups only admins can use {command} {name} (the plugin's setting group_members "
            "opens it)."
        ),
    ),
    "refused.disabled": (
        "🔒 {command} {name} 已在 WebUI 中停用。",
        "🔒 {command} {name} is switched off in the WebUI.",
    ),
    "help": (
        (
            "🗜️ 压缩对话，旧消息归档，可撤销\n"
            "{command} [选项] [聚焦] — 立即压缩\n"
            "{command} preview … — 只看计划，不调用模型\n"
            "{command} status — 用量、压缩线、上次压缩\n"
            "{command} config — 当前配置\n"
            "{command} set 名字 值 … [here] — 保存配置（管理员），default 恢复默认\n"
            "{command} undo — 撤销上次压缩\n"
            "{command} show [n] — 完整摘要\n"
            "{command} history — 压缩记录\n"
            "{command} search 词 — 搜索归档消息\n"
            "{command} forget — 删除归档（管理员）\n"
            "选项: keep 0.1 · provider id · min 6 · summary off · chars 500 · focus 话题 · "
            "line 0.6 · limit 60 · budget 0.1 · engine builtin · template work · language en · "
            "timeout 60\n"
            "例: {command} keep 0.1 数据库迁移"
        ),
        (
            "🗜️ Compacts the conversation; old messages are archived and can be brought back\n"
            "{command} [options] [focus] — compact now\n"
            "{command} preview … — the plan only, no model is called\n"
            "{command} status — usage, lines, last compaction\n"
            "{command} config — settings in force\n"
            "{command} set name value … [here] — save settings (admins); default goes back\n"
            "{command} undo — take the last compaction back\n"
            "{command} show [n] — a summary in full\n"
            "{command} history — the compactions\n"
            "{command} search words — search archived messages\n"
            "{command} forget — erase the archive (admins)\n"
            "options: keep 0.1 · provider id · min 6 · summary off · chars 500 · focus topic · "
            "line 0.6 · limit 60 · budget 0.1 · engine builtin · template work · language en · "
            "timeout 60\n"
            "example: {command} keep 0.1 database migration"
        ),
    ),
}
