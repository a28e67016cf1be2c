"""Batch, landed batch and committed state: the three values that the protocol passes around."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from jobs import offsets
from jobs.added import Added
from jobs.offsets import Offsets, Ranges, TopicPartition
from jobs.watermark import RECORD_TIMES, Watermark

if TYPE_CHECKING:
    from jobs.spec.tables import Table

PREFIX = "batchmerge."
# The number of offsets of each topic-partition; only in summaries of landed batches.
LENGTHS = PREFIX + "lengths"
_EPOCHS = PREFIX + "leader-epochs"
_ORDER = PREFIX + "order"
_UNTRACED = PREFIX + "untraced-to"
_OFFSETS = PREFIX + "offsets"
_TOPIC_IDS = PREFIX + "topic-ids"
# Properties that grow with the number of topic-partitions; they are decoded only on access.
LONG = frozenset({_OFFSETS, _TOPIC_IDS, _EPOCHS, LENGTHS, PREFIX + RECORD_TIMES})


@dataclass(frozen=True)
class Batch:
    """A number, an identity and fixed offset ranges. Made at landing, immutable after.

    Attributes:
        pipeline: the pipeline's name.
        number: increases by one and never restarts.
        commit_id: UUID of this batch.
        previous_commit_id: of the previous batch; None for a pipeline's first.
        ranges: ``[start, end)`` by topic-partition. Empty for partitions that were planned but had nothing new, so that
            their start offset is known from the first batch on.
        topic_ids: Kafka's id of each topic (a recreated topic has another).
        planned_at: milliseconds since the epoch.
        meaning_hash: hash of the parts of the pipeline file that change the meaning of rows.
        continues: only in a batch that resets offsets (`jobs.resets.offset_reset`), which reads no records: the commit
            ids that it may follow, each with the offsets that were committed there; "" for a table without a batch.
            Its empty ranges are where the next batch begins.
        leader_epochs: Kafka's leader epoch of each topic-partition when the batch was planned; in a batch that reads no
            records, of an offset that stays, when it was committed.
        revises: only in a batch of records that were read again (`jobs.replay.revise`): no batch before this one is
            revised. Its rows keep the places (batch, i) of their records; its empty ranges move no offset.
        untraced: only in a batch that takes tables over, and in resets before their first merge: those of them
            (`Table.title`) with rows that do not show which records they are from.
    """

    pipeline: str
    number: int
    commit_id: str
    previous_commit_id: str | None
    ranges: Ranges
    topic_ids: Mapping[str, str]
    planned_at: int
    meaning_hash: str
    continues: Mapping[str, Offsets] | None = None
    leader_epochs: Mapping[TopicPartition, int] = field(default_factory=dict)
    revises: int | None = None
    untraced: Sequence[str] = ()

    def __str__(self) -> str:
        return f"batch {self.number} ({self.commit_id[:8]})"

    @property
    def first_number(self) -> int:
        """The first batch of whose records it has readings: its own number, if it reads none again."""
        return self.number if self.revises is None else self.revises

    def follows(self, commit_id: str | None) -> bool:
        """Whether the batch may be applied on top of this commit; None: to a table without a batch."""
        if self.continues is not None:
            return (commit_id or "") in self.continues
        return commit_id == self.previous_commit_id

    def begins_after(self, commit_id: str) -> Offsets:
        """The offsets at which it begins, for a table at this commit."""
        return offsets.starts(self.ranges) if self.continues is None else self.continues.get(commit_id, {})


def new_commit_id() -> str:
    return str(uuid.uuid4())


@dataclass(frozen=True)
class Counts(Added):
    """The outcomes of a batch's records; each is counted independently, so that the sum can be checked.

    `skipped` are bad records that were not landed (`on_bad_record: skip`). `gaps` are offsets without a record
    (compaction, control records, aborted transactions); they are not part of the balance. `recovered` are dead letters
    of earlier batches of which this batch has another reading.
    """

    read: int = 0
    landed: int = 0
    quarantined: int = 0
    filtered: int = 0
    gaps: int = 0
    skipped: int = 0
    recovered: int = 0

    @property
    def balanced(self) -> bool:
        return self.read == self.landed + self.quarantined + self.filtered + self.skipped

    def with_recovered(self, recovered: int) -> Counts:
        """The counts as if these dead letters had been good from the start."""
        return replace(self, landed=self.landed + recovered, quarantined=self.quarantined - recovered)


@dataclass(frozen=True)
class Moves(Added):
    """The numbers of primary-key changes among the records of a batch (`jobs.dead_letters.landing_moved_rows`).

    Attributes:
        left: deletes under the old key.
        waiting: inserts under the new key that omit values; dead letters until the values are found under the old key.
    """

    left: int = 0
    waiting: int = 0


@dataclass(frozen=True)
class LandedBatch:
    """A batch in the intermediate table, with the findings of landing.

    Attributes:
        unknown: fields that have no column and were not landed, each with the number of records that had it.
        new_columns: columns that the records have brought, with their types; `int to long` if one became wider.
    """

    batch: Batch
    counts: Counts
    watermark: Watermark
    snapshot_id: int
    unknown: Mapping[str, int] = field(default_factory=dict)
    new_columns: Mapping[str, str] = field(default_factory=dict)
    moves: Moves = field(default_factory=Moves)

    @property
    def number(self) -> int:
        return self.batch.number


@dataclass(frozen=True)
class LandedBatches:
    """The landed batches that are still known.

    Attributes:
        batches: ascending.
        complete: they begin with the pipeline's first batch; False if retention has removed older ones.
    """

    batches: list[LandedBatch] = field(default_factory=list)
    complete: bool = True

    def since(self, first: int) -> LandedBatches:
        """The batches from this one on, for a table that earlier batches do not concern."""
        batches = [batch for batch in self.batches if batch.number >= first]
        return LandedBatches(batches, self.complete or any(b.number == first for b in batches))


@dataclass(frozen=True)
class CommittedState:
    """What a table has merged: kept with the table, moved only together with its data.

    Attributes:
        offsets: next offset of each topic-partition.
        watermark: record times of each partition, of which VTTS is the minimum.
        leader_epochs: of the newest batch (`Batch`); empty if they are not known.
        order: hash of the key and the `order_by` with which deletes are kept (`PipelineSpec.order_hash`); empty if none
            are kept. Not part of the position, so comparisons ignore it.
        untraced_to: the last batch whose rows do not show which records the table has got: they have no coordinates,
            or a row per key; 0: none. A table with a unique key needs no such rows (`untraced`). Comparisons ignore
            it too.
    """

    pipeline: str
    batch_number: int
    commit_id: str
    offsets: Offsets
    topic_ids: Mapping[str, str]
    meaning_hash: str
    watermark: Watermark
    leader_epochs: Mapping[TopicPartition, int] = field(default_factory=dict)
    order: str = field(default="", compare=False)
    untraced_to: int = field(default=0, compare=False)

    @classmethod
    def after(cls, landed: LandedBatch, order: str = "", untraced_to: int = 0) -> CommittedState:
        """The state of a table that has merged everything up to and including this batch."""
        batch = landed.batch
        return cls(
            pipeline=batch.pipeline,
            batch_number=batch.number,
            commit_id=batch.commit_id,
            offsets=offsets.ends(batch.ranges),
            topic_ids=batch.topic_ids,
            meaning_hash=batch.meaning_hash,
            watermark=landed.watermark,
            leader_epochs=batch.leader_epochs,
            order=order,
            untraced_to=untraced_to,
        )

    @staticmethod
    def untraced_after(before: CommittedState | None, batches: Sequence[LandedBatch], table: Table) -> int:
        """`untraced_to` of a table at this state, or without one, after a merge of these batches."""
        # With a unique key too: the file may later give the table another mode, and rows by key are few of its records.
        if table.has_unique_key or not table.has_coordinates:
            return batches[-1].number
        if before:
            return before.untraced_to
        first = batches[0].batch
        return first.number if table.title in first.untraced else 0

    def untraced(self, table: Table) -> int:
        """The last batch that this table, as its file now says, cannot take a second time; 0: none."""
        return 0 if table.has_unique_key else self.untraced_to

    def orders_otherwise(self, meaning_hash: str, order: str) -> bool:
        """Whether the kept deletes are void, because key or `order_by` changed since they were written. If the state
        does not say what they were written with, any change of `changes` counts."""
        return self.meaning_hash != meaning_hash and self.order != order

    def truncates(self, before: CommittedState | None) -> int | None:
        """The `order_by` value below which the merge from `before` to this state must delete rows, because of a
        truncation; None: no rows."""
        below = self.watermark.truncated_below
        return below if below != (before.watermark.truncated_below if before else None) else None

    def to_properties(self) -> dict[str, str]:
        """Flat strings for a snapshot summary, a state row or labels."""
        return dict(self._properties)

    @cached_property
    def _properties(self) -> Mapping[str, str]:
        # A commit writes them twice; compressing offsets of thousands of topic-partitions takes a while.
        return {
            PREFIX + "pipeline": self.pipeline,
            PREFIX + "batch": str(self.batch_number),
            PREFIX + "commit-id": self.commit_id,
            _OFFSETS: offsets.encode(self.offsets),
            _TOPIC_IDS: json.dumps(dict(self.topic_ids), sort_keys=True),
            PREFIX + "spec-hash": self.meaning_hash,
            **({_EPOCHS: offsets.encode(self.leader_epochs)} if self.leader_epochs else {}),
            **({_ORDER: self.order} if self.order else {}),
            **({_UNTRACED: str(self.untraced_to)} if self.untraced_to else {}),
            **self.watermark.to_properties(PREFIX),
        }

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> CommittedState:
        reached = offsets.Later(lambda: offsets.decode(properties[_OFFSETS]))
        return cls(
            pipeline=properties[PREFIX + "pipeline"],
            batch_number=int(properties[PREFIX + "batch"]),
            commit_id=properties[PREFIX + "commit-id"],
            offsets=reached,
            topic_ids=offsets.Later(lambda: json.loads(properties[_TOPIC_IDS])),
            meaning_hash=properties[PREFIX + "spec-hash"],
            watermark=Watermark.from_properties(properties, PREFIX, reached),
            leader_epochs=offsets.Later(lambda: offsets.decode(properties[_EPOCHS])) if _EPOCHS in properties else {},
            order=properties.get(_ORDER, ""),
            untraced_to=int(properties.get(_UNTRACED, "0")),
        )


@dataclass(frozen=True)
class MergeCounts(Added):
    """The effect of a merge on a destination table, in numbers of rows.

    Attributes:
        changes: landed changes, before the reduction to one per key.
        refused: landed rows that the table's system cannot store, kept as dead letters beside the table.
        skipped: such rows that are not kept (`on_bad_record: skip`).
        out_of_range: landed rows with a value that was adjusted (`out_of_range: clamp | null`).
    """

    changes: int = 0
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    refused: int = 0
    skipped: int = 0
    out_of_range: int = 0
