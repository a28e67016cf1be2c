"""A dead letter for people and commands, from any table."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class DeadLetter:
    """One dead letter. Key and value are only read on request; the message never contains a value.

    Attributes:
        table: the table with the dead letter.
        i: order within the batch; None in a side table.
        stage: where the error occurred: `key`, `value`, `transform`, `route`; or the destination.
    """

    table: str
    topic: str
    partition: int
    offset: int
    timestamp: datetime | None
    batch: int
    i: int | None
    stage: str
    kind: str
    message: str
    key: bytes | None = None
    value: bytes | None = None


@dataclass(frozen=True)
class DeadLetterGroup:
    """Dead letters of one table with the same stage and kind; `first` is the first one's position in Kafka."""

    table: str
    stage: str
    kind: str
    records: int
    first: str
    message: str
