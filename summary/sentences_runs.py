"""What is said about a run: its course, its refusals, its model, its plan. Chinese, English."""

from __future__ import annotations

RUNS: dict[str, tuple[str, str]] = {
    # A run.
    "start": ("⏳ 正在压缩…", "⏳ Compacting…"),
    "start.requests": (
        "⏳ 正在压缩…（预计 {requests} 次请求）",
        "⏳ Compacting… (about {requests:request})",
    ),
    "waiting": ("正在等待当前回复结束…", "Waiting for the running reply to end…"),
    "done": (
        "✅ 压缩完成: {before} → {after} 条消息。(使用 {provider} 生成)",
        "✅ Compacted: {before} → {after:message}. (by {provider})",
    ),
    "done.tokens": (
        "约 {before} → {after} tokens (-{percent}%)",
        "about {before} → {after} tokens (-{percent}%)",
    ),
    "done.kept": ("保留原文 {kept} 条", "{kept:message} kept verbatim"),
    "done.requests": ("{requests} 次请求", "{requests:request}"),
    "done.summary": ("📝 摘要预览:", "📝 Summary:"),
    "done.undo": ("↩️ {command} undo 可撤销", "↩️ {command} undo takes it back"),
    "notice": (
        "🗜️ 对话已压缩：{before} → {after} 条，约 {before_tokens:k} → {after_tokens:k} tokens",
        (
            "🗜️ Conversation compacted: {before} → {after:message}, "
            "about {before_tokens:k} → {after_tokens:k} tokens"
        ),
    ),
    # What a model did that is no failure; the log has it in English.
    "warning.no_headings": (
        "模型 {provider} 没有按小节写，它的文字整段收作摘要。",
        "{provider} wrote no sections; its text is kept as the summary as it stands.",
    ),
    "warning.keep_missing": (
        "模型 {provider} 没有说要保留哪些原文，一条也没有另外保留。",
        "{provider} did not say which messages to keep verbatim; none was picked.",
    ),
    "warning.keep_unreadable": (
        "模型 {provider} 说的要保留的原文读不懂，一条也没有另外保留。",
        "Which messages {provider} wants to keep verbatim cannot be read; none was picked.",
    ),
    "warning.context_fallback": (
        (
            "模型 {provider} 说内容超出了窗口，已分成更小的请求重试。"
            "请在 AstrBot 里改正它的窗口大小。"
        ),
        (
            "{provider} said the text was over its window, so it was asked in smaller requests. "
            "Correct its window in AstrBot."
        ),
    ),
    "template.chat": ("聊天模板", "chat template"),
    "template.work": ("工作模板", "work template"),
    # Nothing to do.
    "skip.too_few": (
        "无需压缩：对话只有 {messages} 条消息，少于 {min_messages} 条（min_messages）。",
        (
            "Nothing to do: the conversation has {messages:message}, fewer than {min_messages} "
            "(min_messages)."
        ),
    ),
    "skip.too_few_more": (
        "无需压缩：摘要之外只有 {messages} 条消息，少于 {min_messages} 条（min_messages）。",
        (
            "Nothing to do: beside the summary there are {messages:message}, fewer than "
            "{min_messages} (min_messages)."
        ),
    ),
    "skip.no_span": (
        "无需压缩：{messages} 条消息（约 {tokens} tokens）都属于要保留的最近内容。",
        (
            "Nothing to do: all {messages:message} (about {tokens} tokens) belong to the recent "
            "part that is kept."
        ),
    ),
    "skip.nothing_new": (
        (
            "无需压缩：上次压缩之后没有新消息（{messages} 条，约 {tokens} tokens）。"
            "想再压一次，请带上选项，例如 {command} keep 0"
        ),
        (
            "Nothing to do: no new message since the last compaction ({messages:message}, about "
            "{tokens} tokens). To compact again give an option, for example {command} keep 0"
        ),
    ),
    # Not done; every one says that the history is as it was, and what helps.
    "error.unknown": (
        "❌ 压缩未完成，历史未改动。详情见 AstrBot 日志。",
        "❌ Not compacted, the history is unchanged. See AstrBot's log.",
    ),
    "error.setting": (
        "❌ 设置 {name} 的值 {value} 无法使用，历史未改动。",
        "❌ The value {value} of the setting {name} cannot be used; the history is unchanged.",
    ),
    "error.no_provider": (
        (
            "❌ 没有可用的聊天模型，历史未改动。请用 {command} set provider <模型 id> 指定一个，"
            "或在 AstrBot 里添加并启用聊天模型。"
        ),
        (
            "❌ No chat model is available; the history is unchanged. Name one with "
            "{command} set provider <id>, or add and enable a chat model in AstrBot."
        ),
    ),
    "error.not_available": (
        "这个会话在 AstrBot 里没有可以压缩的历史。",
        "AstrBot holds no history for this session that could be compacted.",
    ),
    "error.no_conversation": (
        "当前没有对话，先聊几句再压缩。",
        "There is no conversation yet; chat a little first.",
    ),
    "error.unreadable": (
        (
            "❌ 存储的历史读不出来（{detail}），未改动。请在 WebUI 的对话数据里修正它，"
            "或重置这个对话。"
        ),
        (
            "❌ The stored history cannot be read ({detail}); it is unchanged. Correct it in the "
            "WebUI's conversation data, or reset this conversation."
        ),
    ),
    "error.busy": (
        "这个会话正在压缩，请稍候。",
        "This conversation is being compacted already; please wait.",
    ),
    "error.busy_otherwise": (
        "另一项操作（例如撤销）正在处理这个会话，请稍候。",
        "Something else, like an undo, is at work on this conversation; please wait.",
    ),
    "error.summary": (
        "❌ 没有得到可用的摘要，历史未改动。可以稍后再试，或换一个模型。",
        "❌ No usable summary came back; the history is unchanged. Try again or use another model.",
    ),
    "error.provider": (
        (
            "❌ 模型 {provider} 出错，历史未改动。可以稍后再试，或用 {command} provider <模型 id> "
            "换一个模型。{detail}"
        ),
        (
            "❌ The model {provider} failed; the history is unchanged. Try again later or use "
            "another model with {command} provider <id>. {detail}"
        ),
    ),
    "error.context": (
        (
            "❌ 内容超出模型 {provider} 的上下文窗口，历史未改动。请换一个窗口更大的模型，"
            "或在 AstrBot 里改正它的窗口大小。{detail}"
        ),
        (
            "❌ The text is over the context window of {provider}; the history is unchanged. Use a "
            "model with a larger window, or correct its window in AstrBot. {detail}"
        ),
    ),
    "error.timeout": (
        (
            "❌ 模型 {provider} 在 {seconds} 秒内没有答复，历史未改动。可以再试，"
            "或调大 summary_timeout。"
        ),
        (
            "❌ The model {provider} gave no answer within {seconds} s; the history is unchanged. "
            "Try again or raise summary_timeout."
        ),
    ),
    "error.empty": (
        "❌ 模型 {provider} 返回了空摘要，历史未改动。可以再试，或换一个模型。",
        (
            "❌ The model {provider} returned no text; the history is unchanged. Try again or use "
            "another model."
        ),
    ),
    "error.cut": (
        (
            "❌ 模型 {provider} 的摘要两次在长度上限处被截断，历史未改动。"
            "请换一个输出更长的模型，或调小 summary_budget_ratio。"
        ),
        (
            "❌ The summary by {provider} was cut at its limit twice; the history is unchanged. "
            "Use a model that can write more, or lower summary_budget_ratio."
        ),
    ),
    "error.unusable": (
        "❌ 模型 {provider} 的回复不是摘要（{detail}），历史未改动。可以再试，或换一个模型。",
        (
            "❌ What {provider} returned is no summary ({detail}); the history is unchanged. Try "
            "again or use another model."
        ),
    ),
    "error.not_smaller": (
        (
            "❌ 压缩后不会变小（约 {before} → {after} tokens），历史未改动。可以等对话再长一些，"
            "或用 {command} keep 0 把最近内容也写进摘要。"
        ),
        (
            "❌ It would not get smaller (about {before} → {after} tokens); the history is "
            "unchanged. Wait until the conversation is longer, or put its recent part into the "
            "summary too with {command} keep 0."
        ),
    ),
    "error.not_smaller_at_all": (
        "❌ 压缩后不会变小（约 {before} → {after} tokens），历史未改动。可以等对话再长一些再压缩。",
        (
            "❌ It would not get smaller (about {before} → {after} tokens); the history is "
            "unchanged. Wait until the conversation is longer."
        ),
    ),
    "error.no_room": (
        "❌ 摘要模型的窗口（{window} tokens）放不下任何对话内容，历史未改动。请换一个模型。",
        (
            "❌ The summary model's window ({window} tokens) holds no conversation at all; "
            "the history is unchanged. Use another model."
        ),
    ),
    "error.large_message": (
        (
            "❌ 有一条消息比摘要模型的窗口还大，压缩约需 {requests} 次请求，自动压缩先不做，"
            "历史未改动。发送 {command} 可以现在就压缩。"
        ),
        (
            "❌ One message is larger than the summary model's window and takes about "
            "{requests:request}, so automatic compaction waits; the history is unchanged. "
            "{command} compacts it now."
        ),
    ),
    "error.unchanged": (
        "❌ 压缩未生效：AstrBot 的压缩器原样返回了历史，历史未改动。详情见 AstrBot 日志。",
        (
            "❌ No effect: AstrBot's compressor returned the history as it was; it is unchanged. "
            "See AstrBot's log."
        ),
    ),
    "error.moved": (
        "❌ 压缩期间有别的写入，没有覆盖它。请再试一次。",
        "❌ Something else wrote during the compaction and was not overwritten. Please try again.",
    ),
    "error.cleared": (
        "压缩期间会话被清空，没有写入任何内容。",
        "The conversation was cleared during the compaction; nothing was written.",
    ),
    "error.changed": (
        "❌ 压缩期间历史被改动，没有写入任何内容。请再试一次。",
        "❌ The history was changed during the compaction; nothing was written. Please try again.",
    ),
    "error.voided": (
        "压缩已停止，历史未改动。",
        "The compaction was stopped; the history is unchanged.",
    ),
    "error.archive": (
        "❌ 归档无法读写，历史未改动。请检查磁盘空间和权限：{detail}",
        (
            "❌ The archive cannot be read or written; the history is unchanged. Check disk space "
            "and permissions: {detail}"
        ),
    ),
    "error.archive_damaged": (
        "❌ 归档里的一部分原文已损坏，不会拿来用；历史未改动。请检查磁盘：{detail}",
        (
            "❌ Some archived messages are damaged and are not used; the history is unchanged. "
            "Check the disk: {detail}"
        ),
    ),
    "error.archive_too_new": (
        (
            "❌ 归档由更新版本的插件写成（格式 {found}，本版本支持到 {known}），历史未改动。"
            "请升级插件。"
        ),
        (
            "❌ The archive was written by a newer version of the plugin (format {found}, this one "
            "knows up to {known}); the history is unchanged. Please update the plugin."
        ),
    ),
    "error.host_database": (
        "❌ AstrBot 的数据库读写失败，历史未改动。请检查磁盘空间和权限，稍后再试：{detail}",
        (
            "❌ AstrBot's database cannot be read or written; the history is unchanged. Check disk "
            "space and permissions, then try again: {detail}"
        ),
    ),
    "error.host": (
        "❌ 这个版本的 AstrBot 与插件不兼容，历史未改动。请反馈给插件作者：{detail}",
        (
            "❌ This AstrBot does not work with the plugin; the history is unchanged. "
            "Please report: {detail}"
        ),
    ),
    # Providers.
    "provider.skipped": (
        "⚠️ 已跳过{level}里的 {provider}：{why}",
        "⚠️ Skipped {provider} from {level}: {why}",
    ),
    "provider.skipped_unnamed": ("⚠️ 已跳过{level}：{why}", "⚠️ Skipped {level}: {why}"),
    "provider.instead": ("，改用 {provider}", "; {provider} is used instead"),
    "provider.none_left": ("，没有别的可用", "; no other is available"),
    "provider.missing": ("没有这个模型", "there is no such model"),
    "provider.not_chat": ("不是聊天模型", "it is no chat model"),
    "provider.disabled": ("已停用", "it is disabled"),
    "provider.none": (
        "摘要模型: 没有可用的聊天模型",
        "summary model: no chat model is available",
    ),
    "provider.chosen": ("摘要模型: {provider}（{level}）", "summary model: {provider} ({level})"),
    "level.run": ("本次选项", "this run's options"),
    "level.config": ("插件配置", "the plugin's settings"),
    "level.core": ("AstrBot 的压缩配置", "AstrBot's compression settings"),
    "level.session": ("会话模型", "the session's chat model"),
    "engine.builtin": (
        "AstrBot 自带的压缩（engine = builtin）",
        "AstrBot's own (engine = builtin)",
    ),
    # Preview.
    "preview.title": ("🔍 压缩预览（没有调用模型）", "🔍 Preview (no model was called)"),
    "preview.messages": (
        "{before} 条消息：归档 {archived} 条，保留原文至少 {kept} 条",
        "{before:message}: {archived} to archive, at least {kept} kept verbatim",
    ),
    "preview.earlier": (
        "开头的旧摘要并入新摘要",
        "the earlier summary at the start goes into the new one",
    ),
    "preview.kept": ("保留的是: {parts}", "kept: {parts}"),
    "kept.system": ("开头的系统消息 {messages} 条", "{messages:message} of the system"),
    "kept.recent": (
        "最近 {messages} 条，约 {tokens} tokens（keep_recent_ratio {ratio}）",
        "the last {messages:message}, about {tokens} tokens (keep_recent_ratio {ratio})",
    ),
    "kept.open": (
        "未完成的工具调用 {messages} 条，约 {tokens} tokens",
        "{messages:message} of an unfinished tool call, about {tokens} tokens",
    ),
    "kept.request": (
        "正在办的请求 {messages} 条，约 {tokens} tokens",
        "{messages:message} of the live request, about {tokens} tokens",
    ),
    "preview.trimmed": (
        "另有 AstrBot 已截掉的 {trimmed} 条会写进摘要",
        "{trimmed:message} that AstrBot trimmed away will go into the summary",
    ),
    "preview.tokens": (
        "约 {before} → {after} tokens（估算）",
        "about {before} → {after} tokens (estimate)",
    ),
    "preview.tokens_now": ("现在约 {before} tokens", "about {before} tokens now"),
    "preview.budget": (
        "摘要预算 {budget} tokens，其中挑选保留原文至多 {retain} · 预计 {requests} 次请求",
        "summary budget {budget} tokens, up to {retain} of it verbatim · about {requests:request}",
    ),
    "preview.focus": ("聚焦: {focus}", "focus: {focus}"),
}
