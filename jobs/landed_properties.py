"""A landed batch as the properties of its snapshot, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping

from jobs import offsets
from jobs.batch import LENGTHS, PREFIX, Batch, CommittedState, Counts, LandedBatch, Moves
from jobs.offsets import OffsetRange, Offsets, TopicPartition

_UNTRACED_TABLES = PREFIX + "untraced-tables"
_CONTINUES = PREFIX + "continues"
_UNKNOWN = PREFIX + "unknown-fields"
_NEW_COLUMNS = PREFIX + "new-columns"
_MOVES = PREFIX + "moves"
_REVISES = PREFIX + "revises"


def landed_to_properties(landed: LandedBatch, after: CommittedState | None = None) -> dict[str, str]:
    """A landed batch as properties for its snapshot: the committed state, and what is needed to check the lineage.

    Args:
        after: the state after it, if it is at hand.
    """
    batch, counts = landed.batch, landed.counts
    return {
        **(after or CommittedState.after(landed)).to_properties(),
        PREFIX + "previous-commit-id": batch.previous_commit_id or "",
        LENGTHS: offsets.encode(offsets.lengths(batch.ranges)),
        **({} if batch.continues is None else {_CONTINUES: _encoded(batch.continues)}),
        **({} if batch.revises is None else {_REVISES: str(batch.revises)}),
        **({_UNTRACED_TABLES: json.dumps(batch.untraced)} if batch.untraced else {}),
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
        continues=_decoded(properties[_CONTINUES]) if _CONTINUES in properties else None,
        leader_epochs=state.leader_epochs,
        revises=int(properties[_REVISES]) if _REVISES in properties else None,
        untraced=tuple(json.loads(properties.get(_UNTRACED_TABLES, "[]"))),
    )
    counts = Counts(**json.loads(properties[PREFIX + "counts"]))
    unknown, new_columns = (json.loads(properties.get(name, "{}")) for name in (_UNKNOWN, _NEW_COLUMNS))
    moves = Moves(**json.loads(properties.get(_MOVES, "{}")))
    return LandedBatch(batch, counts, state.watermark, snapshot_id, unknown, new_columns, moves)


def _encoded(continues: Mapping[str, Offsets]) -> str:
    return json.dumps({commit_id: offsets.encode(at) for commit_id, at in continues.items()})


def _decoded(text: str) -> dict[str, Offsets]:
    return {commit_id: offsets.decode(at) for commit_id, at in json.loads(text).items()}
