"""What one landing task tells the driver beside its rows; small, and the same for every way that rows are written."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from jobs.offsets import TopicPartition
from jobs.schema.found_fields import FoundFields


@dataclass(frozen=True)
class RecordsRead:
    """Of one topic-partition: records, counted before they are decoded, and the newest timestamp in milliseconds."""

    records: int
    newest: int

    def __add__(self, other: RecordsRead) -> RecordsRead:
        return RecordsRead(self.records + other.records, max(self.newest, other.newest))


@dataclass(frozen=True)
class TaskReport:
    """What a task, or all of them together, found in the records.

    Attributes:
        read: by topic-partition, whatever became of the records.
        fields: fields of the records that no column takes.
    """

    read: Mapping[TopicPartition, RecordsRead] = field(default_factory=dict)
    fields: FoundFields = field(default_factory=FoundFields)

    @property
    def records(self) -> int:
        return sum(one.records for one in self.read.values())

    @property
    def newest(self) -> dict[TopicPartition, int]:
        return {tp: one.newest for tp, one in self.read.items()}

    def __add__(self, other: TaskReport) -> TaskReport:
        read = dict(self.read)
        for tp, more in other.read.items():
            read[tp] = read[tp] + more if tp in read else more
        return TaskReport(read, self.fields + other.fields)

    def to_text(self) -> str:
        """One line of JSON."""
        read = [[tp.topic, tp.partition, one.records, one.newest] for tp, one in sorted(self.read.items())]
        return json.dumps({"read": read, "fields": self.fields.to_json()})

    @classmethod
    def from_text(cls, text: str) -> TaskReport:
        """The inverse of `to_text`."""
        document = json.loads(text)
        read = {TopicPartition(topic, p): RecordsRead(number, newest) for topic, p, number, newest in document["read"]}
        return cls(read, FoundFields.from_json(document["fields"]))


def sum_up(reports: Iterable[str]) -> TaskReport:
    """All tasks' reports together."""
    return sum(map(TaskReport.from_text, reports), TaskReport())
