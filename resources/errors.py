"""The one error tree of Batchmerge.

::

    BatchmergeError                    names what, where and the remedy; carries its facts as attributes
    ├── TransientError                 try again: the same call may succeed
    │   ├── Unavailable                an outside system cannot be reached, or asks to come back later
    │   │   └── TimeLimitReached       it hung until it was given up: the next run tries again
    │   ├── CommitFailed               somebody else committed first: refresh, plan again, try again
    │   ├── CommitStateUnknown         the answer was lost: look at the table before trying again
    │   └── Interrupted                a newer run took this pipeline or table over
    └── TerminalError                  stop: only a person can decide
        ├── ConfigurationError         a pipeline or connections file is wrong
        ├── SourceError                Kafka does not have what the pipeline wants
        │   ├── TopicMissing           no such topic, or no permission to see it
        │   ├── OffsetsGone            the wanted start was deleted by retention
        │   └── TopicRecreated         another topic id, or an end below what is committed
        ├── BadRecords                 records that cannot be decoded, under a policy or limit that stops
        ├── SchemaRefused              a schema change that no rule allows
        ├── LineageBroken              landed batches do not continue the committed state
        ├── TableReplaced              a table was dropped and recreated, or rolled back
        ├── StorageError               the warehouse, or a file, cannot be written (permission, full disk)
        └── InvariantBroken            a count or an order that must hold does not

Dagster retries what is transient and stops at what is terminal (`orchestration/components/failures.py`).
`CommitFailed` and `CommitStateUnknown` follow pyiceberg's distinction of the same name.
"""

from __future__ import annotations

from functools import partial


class BatchmergeError(Exception):
    """What went wrong, where, and the remedy. The message never holds a record's values or a secret.

    Attributes:
        what: one sentence on what went wrong.
        where: the thing it happened to (file, topic-partition, table, connection).
        remedy: what a person can do about it.
        facts: further values by name, for logs and metadata.
    """

    def __init__(self, what: str, *, where: str = "", remedy: str = "", **facts: object) -> None:
        self.what, self.where, self.remedy, self.facts = what, where, remedy, facts
        super().__init__(self._sentence())

    def _sentence(self) -> str:
        head = f"{self.where}: {self.what}" if self.where else self.what
        return f"{head.rstrip('.')}. Fix: {self.remedy}" if self.remedy else head

    def __reduce__(self) -> tuple[object, ...]:
        # Spark tasks and Dagster's step processes pickle errors; keyword-only arguments need help.
        return partial(type(self), self.what, where=self.where, remedy=self.remedy, **self.facts), ()


class TransientError(BatchmergeError):
    """The same call may succeed later."""


class Unavailable(TransientError):
    """An outside system cannot be reached or asks to come back later."""


class TimeLimitReached(Unavailable):
    """It hung, until it was given up: the next run tries again, not this one for as long once more."""


class CommitFailed(TransientError):
    """Somebody else committed first. Nothing of ours is visible: refresh, plan again, try again."""


class CommitStateUnknown(TransientError):
    """The commit's answer was lost. Look at the table before trying again."""


class Interrupted(TransientError):
    """A newer run took this pipeline or table over; nothing of this attempt is visible."""


class TerminalError(BatchmergeError):
    """Trying again gives the same answer; a person has to decide."""


class ConfigurationError(TerminalError):
    """A pipeline file or a connections file is wrong."""


class SourceError(TerminalError):
    """Kafka does not have what the pipeline wants."""


class TopicMissing(SourceError):
    """No such topic, or no permission to see it."""


class OffsetsGone(SourceError):
    """The wanted start offset is no longer in Kafka (retention)."""


class TopicRecreated(SourceError):
    """The topic has another id than the committed one, or ends below what is committed."""


class BadRecords(TerminalError):
    """Records cannot be decoded or typed, and the pipeline's policy or limit says to stop."""


class SchemaRefused(TerminalError):
    """A schema change that no evolution rule allows; names column, old and new type."""


class LineageBroken(TerminalError):
    """The landed batches do not continue what the destination has committed."""


class TableReplaced(TerminalError):
    """A table was dropped and recreated, or rolled back, since the last commit."""


class StorageError(TerminalError):
    """The warehouse, or a file, cannot be written (permission, full disk)."""


class InvariantBroken(TerminalError):
    """A count or an order that must hold does not. Nothing was committed."""
