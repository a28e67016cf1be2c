"""Batch, landed batch and committed state: the three values that the protocol passes around."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field, replace

from jobs import offsets
from jobs.offsets import OffsetRange, Offsets, Ranges, TopicPartition
from jobs.watermark import RECORD_TIMES, Watermark

PREFIX = "batchmerge."
# Only the summary of a landed batch has it: how many offsets of each topic-partition it took.
LENGTHS = PREFIX + "lengths"
_EPOCHS = PREFIX + "leader-epochs"
_ORDER = PREFIX + "order"
_CONTINUES = PREFIX + "continues"
_UNKNOWN = PREFIX + "unknown-fields"
_NEW_COLUMNS = PREFIX + "new-columns"
_MOVES = PREFIX + "moves"
_REVISES = PREFIX + "revises"
_OFFSETS = PREFIX + "offsets"
_TOPIC_IDS = PREFIX + "topic-ids"
# What grows with the number of topic-partitions. It is looked at only where somebody asks for it.
LONG = frozenset({_OFFSETS, _TOPIC_IDS, _EPOCHS, LENGTHS, PREFIX + RECORD_TIMES})


@dataclass(frozen=True)
class Batch:
    """A number, an identity and fixed offset ranges. Made at landing, immutable after.

    Attributes:
        pipeline: the pipeline's name.
        number: goes up by one and never restarts.
        commit_id: UUID of this batch.
        previous_commit_id: the batch before it; None for a pipeline's first.
        ranges: per topic-partition ``[start, end)``. Empty ranges stand for partitions that were planned but had
            nothing new, so that their start offset is known from the first batch on.
        topic_ids: Kafka's id per topic (a recreated topic has another).
        planned_at: milliseconds since the epoch.
        meaning_hash: hash of the parts of the pipeline file that change meaning.
        continues: only of a batch that resets offsets (`jobs.offset_reset`), which reads no records: the commit ids
            that it may follow, each with the offsets that were committed there; "" for a table without a batch. Its
            empty ranges stand where the next batch begins.
        leader_epochs: per topic-partition how often Kafka had changed its leader when the batch was planned.
        revises: only of a batch of records that were read once more (`jobs.replay.revise`): the first batch that it has
            to do with. Its rows keep the places (batch, i) of their records; its empty ranges move no offset.
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

    def __str__(self) -> str:
        return f"batch {self.number} ({self.commit_id[:8]})"

    def follows(self, commit_id: str | None) -> bool:
        """Whether the batch may be applied on top of that one; None: to a table without a batch."""
        if self.continues is not None:
            return (commit_id or "") in self.continues
        return commit_id == self.previous_commit_id

    def begins_after(self, commit_id: str) -> Offsets:
        """Where it begins, as seen from a batch that it follows."""
        return offsets.starts(self.ranges) if self.continues is None else self.continues.get(commit_id, {})


def new_commit_id() -> str:
    return str(uuid.uuid4())


@dataclass(frozen=True)
class Counts:
    """What became of the records of a batch; each is counted on its own, so that they can be checked.

    `skipped` are bad records of which nothing is kept (`on_bad_record: skip`). `gaps` are offsets without a record
    (compaction, control records, aborted transactions); never used to balance. `recovered` are dead letters of earlier
    batches that this one has another reading of.
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
        """As if these dead letters had been good from the start."""
        return replace(self, landed=self.landed + recovered, quarantined=self.quarantined - recovered)


@dataclass(frozen=True)
class Moves:
    """Changes of a primary key among the records of a batch (`jobs.dead_letters.landing_moved_rows`).

    Attributes:
        left: deletes of rows that go on under another key.
        waiting: inserts of such rows that leave values out: dead letters, until what the old key says is looked for.
    """

    left: int = 0
    waiting: int = 0

    def __add__(self, other: Moves) -> Moves:
        return Moves(self.left + other.left, self.waiting + other.waiting)


@dataclass(frozen=True)
class LandedBatch:
    """A batch that is in the intermediate table, with what was found while landing it.

    Attributes:
        unknown: records by field that no column takes, and that was left out.
        new_columns: columns that the records have brought, to their types; `int to long` where they became wider.
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
        complete: they begin with the pipeline's first batch; False where retention has removed older ones.
    """

    batches: list[LandedBatch] = field(default_factory=list)
    complete: bool = True

    def since(self, first: int) -> LandedBatches:
        """Those from this batch on: of a table that no earlier one concerns."""
        batches = [batch for batch in self.batches if batch.number >= first]
        return LandedBatches(batches, self.complete or any(b.number == first for b in batches))


@dataclass(frozen=True)
class CommittedState:
    """What a table says about itself: kept with the table, moved only together with its data.

    Attributes:
        offsets: next offset per topic-partition.
        watermark: per-partition record times, of which VTTS is the minimum.
        leader_epochs: of the newest batch (`Batch`); empty in states of before they were stored.
        order: hash of the key and the order that the table's deletes are kept by (`PipelineSpec.order_hash`); empty
            where none are, and in states of before it was stored. It says nothing about where the table stands.
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

    @classmethod
    def after(cls, landed: LandedBatch, order: str = "") -> CommittedState:
        """The state of a table that has everything up to and including this batch."""
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
        )

    def orders_otherwise(self, meaning_hash: str, order: str) -> bool:
        """Whether deletes of before say nothing about changes of this meaning: these have another key or order. Where
        it is not known which the deletes have, any change of meaning counts as one."""
        return self.meaning_hash != meaning_hash and self.order != order

    def truncates(self, before: CommittedState | None) -> int | None:
        """The order below which a table in the state before may have rows that it must not have in this one."""
        below = self.watermark.truncated_below
        return below if below != (before.watermark.truncated_below if before else None) else None

    def to_properties(self) -> dict[str, str]:
        """Flat strings for a snapshot summary, a state row or labels."""
        return {
            PREFIX + "pipeline": self.pipeline,
            PREFIX + "batch": str(self.batch_number),
            PREFIX + "commit-id": self.commit_id,
            _OFFSETS: offsets.encode(self.offsets),
            _TOPIC_IDS: json.dumps(dict(self.topic_ids), sort_keys=True),
            PREFIX + "spec-hash": self.meaning_hash,
            **({_EPOCHS: offsets.encode(self.leader_epochs)} if self.leader_epochs else {}),
            **({_ORDER: self.order} if self.order else {}),
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
        )


@dataclass(frozen=True)
class MergeCounts:
    """What a merge did to a destination table, in rows.

    Attributes:
        changes: what was landed, before one per key is left.
        refused: landed rows that the table's system cannot store, kept as dead letters beside the table.
        skipped: such rows of which nothing is kept (`on_bad_record: skip`).
        out_of_range: landed rows with a value that was set to one that it can (`out_of_range: clamp | null`).
    """

    changes: int = 0
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    refused: int = 0
    skipped: int = 0
    out_of_range: int = 0

    def __add__(self, other: MergeCounts) -> MergeCounts:
        return MergeCounts(*(mine + theirs for mine, theirs in zip(astuple(self), astuple(other), strict=True)))


def landed_to_properties(landed: LandedBatch) -> dict[str, str]:
    """A landed batch as the summary of its snapshot: the committed state plus what makes the lineage checkable."""
    batch, counts = landed.batch, landed.counts
    return {
        **CommittedState.after(landed).to_properties(),
        PREFIX + "previous-commit-id": batch.previous_commit_id or "",
        LENGTHS: offsets.encode(offsets.lengths(batch.ranges)),
        **_continues_to_property(batch.continues),
        **({} if batch.revises is None else {_REVISES: str(batch.revises)}),
        PREFIX + "planned-at": str(batch.planned_at),
        PREFIX + "counts": json.dumps(counts.__dict__, sort_keys=True),
        **({_UNKNOWN: json.dumps(landed.unknown)} if landed.unknown else {}),
        **({_NEW_COLUMNS: json.dumps(landed.new_columns)} if landed.new_columns else {}),
        **({_MOVES: json.dumps(vars(landed.moves))} if landed.moves != Moves() else {}),
    }


def landed_from_properties(properties: Mapping[str, str], snapshot_id: int) -> LandedBatch:
    """The inverse of `landed_to_properties`."""
    state = CommittedState.from_properties(properties)

    def ranges() -> dict[TopicPartition, OffsetRange]:
        taken = offsets.decode(properties[LENGTHS])
        return {tp: OffsetRange(end - taken[tp], end) for tp, end in state.offsets.items() if tp in taken}

    batch = Batch(
        pipeline=state.pipeline,
        number=state.batch_number,
        commit_id=state.commit_id,
        previous_commit_id=properties[PREFIX + "previous-commit-id"] or None,
        ranges=offsets.Later(ranges),
        topic_ids=state.topic_ids,
        planned_at=int(properties[PREFIX + "planned-at"]),
        meaning_hash=state.meaning_hash,
        continues=_continues_from(properties),
        leader_epochs=state.leader_epochs,
        revises=int(properties[_REVISES]) if _REVISES in properties else None,
    )
    counts = Counts(**json.loads(properties[PREFIX + "counts"]))
    unknown, new_columns = (json.loads(properties.get(name, "{}")) for name in (_UNKNOWN, _NEW_COLUMNS))
    moves = Moves(**json.loads(properties.get(_MOVES, "{}")))
    return LandedBatch(batch, counts, state.watermark, snapshot_id, unknown, new_columns, moves)


def _continues_to_property(continues: Mapping[str, Offsets] | None) -> dict[str, str]:
    if continues is None:
        return {}
    return {_CONTINUES: json.dumps({commit_id: offsets.encode(at) for commit_id, at in continues.items()})}


def _continues_from(properties: Mapping[str, str]) -> dict[str, Offsets] | None:
    if _CONTINUES not in properties:
        return None
    return {commit_id: offsets.decode(at) for commit_id, at in json.loads(properties[_CONTINUES]).items()}
