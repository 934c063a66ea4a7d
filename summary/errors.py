"""Every failure a compaction can have, sorted by who must act (spec 2.8).

CompactError
├── SettingsError            the owner: a setting or a provider is missing or wrong
│   └── NoProvider
├── NotAvailable             the user: nothing here can be compacted
│   ├── NoConversation
│   └── UnreadableHistory
├── Busy                     the user: wait, a compaction of this conversation runs
│   └── BusyOtherwise        or an undo of one, or something as short
├── SummaryFailed            the summary model or its limits; trying again may help
│   ├── ProviderFailed
│   │   └── ContextTooLong
│   ├── SummaryTimeout
│   ├── EmptySummary
│   ├── CutSummary
│   ├── UnusableSummary
│   ├── NotSmaller
│   │   └── NotSmallerAtAll
│   ├── NoRoom
│   ├── LargeMessage         automatic runs put such a message off; a command does it at once
│   └── Unchanged            the builtin engine gave the history back as it was
├── HistoryMoved             someone else wrote; trying again helps
│   ├── HistoryCleared
│   ├── HistoryChanged
│   └── Voided               cancelled, switched away, reloaded: counts as no attempt
├── CannotUndo               the history no longer begins with what the compaction wrote
│   ├── ClearedSince
│   ├── EmptyAfterUndo       nothing would be left of the history
│   └── ErasedSince          its messages were too old to keep
├── NothingToUndo
├── ArchiveFailed            the disk, or the archive file
│   ├── ArchiveTooNew
│   └── ArchiveDamaged       a message is not what was archived; others are not concerned
├── HostFailed               the owner: AstrBot's own database failed
└── HostChanged              the maintainer: AstrBot no longer works as we know it

An error carries `key`, its sentence in `texts`, and `fields`, the sentence's values, so that
one error is said in Chinese to a user and in English to the log.
"""

from __future__ import annotations

from collections.abc import Mapping


class CompactError(Exception):
    """A compaction that was not done; the stored history is untouched.

    `key` names the sentence in `texts`; `fields` are its values.
    """

    key = "error.unknown"

    def __init__(self, **fields: object) -> None:
        self.fields = fields
        super().__init__(self.key, fields)

    @classmethod
    def remembered(cls, key: str, fields: Mapping[str, object]) -> CompactError:
        """An error of before, of which the sentence and its values were noted."""
        error = cls(**fields)
        error.key = key
        return error

    def __str__(self) -> str:
        details = ", ".join(f"{name}={value}" for name, value in self.fields.items())
        return f"{type(self).__name__}({details})"


class SettingsError(CompactError):
    """A setting cannot be used. Fields: `name`, `value`."""

    key = "error.setting"


class NoProvider(SettingsError):
    """No chat model is left in the provider chain (spec 5)."""

    key = "error.no_provider"


class NotAvailable(CompactError):
    """There is nothing here that could be compacted."""

    key = "error.not_available"


class NoConversation(NotAvailable):
    """The session has no current conversation."""

    key = "error.no_conversation"


class UnreadableHistory(NotAvailable):
    """The stored history is not a JSON list of messages. Field: `detail`."""

    key = "error.unreadable"


class Busy(CompactError):
    """The conversation is being compacted already."""

    key = "error.busy"


class BusyOtherwise(Busy):
    """Something else is being done to the conversation, like an undo."""

    key = "error.busy_otherwise"


class SummaryFailed(CompactError):
    """The summary model did not give a usable summary."""

    key = "error.summary"


class ProviderFailed(SummaryFailed):
    """The provider refused or broke off. Fields: `provider`, `detail`."""

    key = "error.provider"


class ContextTooLong(ProviderFailed):
    """The provider says the request is over its context window."""

    key = "error.context"


class SummaryTimeout(SummaryFailed):
    """No answer within `summary_timeout`. Fields: `provider`, `seconds`."""

    key = "error.timeout"


class EmptySummary(SummaryFailed):
    """The reply held no text. Field: `provider`."""

    key = "error.empty"


class CutSummary(SummaryFailed):
    """The reply was cut at its limit, twice. Field: `provider`."""

    key = "error.cut"


class UnusableSummary(SummaryFailed):
    """The reply is no summary. Fields: `provider`, `detail`."""

    key = "error.unusable"


class NotSmaller(SummaryFailed):
    """The new history would not be smaller. Fields: `before`, `after` (tokens)."""

    key = "error.not_smaller"


class NotSmallerAtAll(NotSmaller):
    """The same, and no recent part was kept that could be summarised too."""

    key = "error.not_smaller_at_all"


class NoRoom(SummaryFailed):
    """The summary model's window holds no conversation at all. Field: `window` (tokens)."""

    key = "error.no_room"


class LargeMessage(SummaryFailed):
    """One message takes several requests, which a command may spend. Field: `requests`."""

    key = "error.large_message"


class Unchanged(SummaryFailed):
    """The builtin engine returned the history as it was."""

    key = "error.unchanged"


class HistoryMoved(CompactError):
    """Another writer was there first; nothing was overwritten."""

    key = "error.moved"


class HistoryCleared(HistoryMoved):
    """The conversation was cleared, deleted or replaced during the run."""

    key = "error.cleared"


class HistoryChanged(HistoryMoved):
    """The part to be replaced is no longer what was summarised."""

    key = "error.changed"


class Voided(HistoryMoved):
    """The run was called off: `/stop`, a switch of conversation, a reload, the shutdown."""

    key = "error.voided"


class NothingToUndo(CompactError):
    """The conversation has no compaction that could be taken back."""

    key = "undo.nothing"


class CannotUndo(CompactError):
    """The history no longer begins with what the compaction wrote. Field: `number`."""

    key = "undo.changed"


class ClearedSince(CannotUndo):
    """The conversation was cleared after the compaction. Field: `number`."""

    key = "undo.cleared"


class EmptyAfterUndo(CannotUndo):
    """The compaction covered only what the host had trimmed, and the rest is gone: `number`."""

    key = "undo.empty"


class ErasedSince(CannotUndo):
    """The messages the compaction replaced were erased after `archive_days`. Field: `number`."""

    key = "undo.erased"


class ArchiveFailed(CompactError):
    """The archive cannot be read or written. Field: `detail`."""

    key = "error.archive"


class ArchiveTooNew(ArchiveFailed):
    """The archive was written by a newer version of the plugin. Fields: `found`, `known`."""

    key = "error.archive_too_new"


class ArchiveDamaged(ArchiveFailed):
    """Archived messages are not what was archived; none of them is given. Field: `detail`."""

    key = "error.archive_damaged"


class HostFailed(CompactError):
    """AstrBot's database cannot be read or written. Field: `detail`."""

    key = "error.host_database"


class HostChanged(CompactError):
    """AstrBot lacks something the plugin stands on. Field: `detail`."""

    key = "error.host"
