"""A dead letter as people and commands see it, whatever table it is in."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class DeadLetter:
    """One dead letter. Key and value are absent unless they were asked for; the message never holds a value.

    Attributes:
        table: the one that it is in.
        i: order within the batch; None in a side table.
        stage: which part of the record: `key`, `value`, `transform`, `route`; or the destination.
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
    """Dead letters of one table with the same stage and kind; `first` is where the first of them is in Kafka."""

    table: str
    stage: str
    kind: str
    records: int
    first: str
    message: str
