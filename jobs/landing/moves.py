"""Primary-key changes among a batch's records: which records they are, and their positions in the source's log.

Debezium sends such a change as a delete of the old key and an insert of the new one. Each names the other's key in a
header, and both have the same position in the source's log, whatever topic-partitions they are in.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from jobs.batch import Moves
from jobs.changes.columns import MOVE
from jobs.decode.base import DecodeError
from jobs.decode.envelope import MOVED, OF_MOVES
from jobs.landing.topic_decoder import TopicDecoder
from resources.kafka_records import header_column


@dataclass(frozen=True)
class MoveReader:
    """Reads the positions of primary-key changes in the source's log.

    Attributes:
        position: decodes it from a record's value (`jobs.decode.source_position`); None: no record has one.
    """

    position: TopicDecoder | None = None

    def column(self, batch: pa.RecordBatch) -> pa.Array:
        """For each record of a primary-key change the change's position; null for other records."""
        if self.position is None or not len(rows := _rows_that_name_another_key(batch)):
            return pa.nulls(batch.num_rows, MOVE.type)
        found = self.position.decode(batch, "value", rows).values
        places = pc.index_in(pa.array(range(batch.num_rows), pa.int64()), value_set=rows)
        return found.take(places)


def moves_among(move: pa.Array, op: pa.Array, errors: Iterable[DecodeError]) -> Moves:
    """Counts primary-key changes.

    Args:
        move: the result of `MoveReader.column`. op: of the landed rows.
    """
    left = pc.and_(pc.is_valid(move), pc.equal(op, "delete")).true_count
    return Moves(left, sum(error.kind == MOVED for error in errors))


def _rows_that_name_another_key(batch: pa.RecordBatch) -> pa.Array:
    headers = batch.column(header_column(batch.schema.names))
    names = pc.struct_field(pc.list_flatten(headers), "key")
    naming = pc.is_in(names, value_set=pa.array(OF_MOVES, pa.string()))
    return pc.unique(pc.list_parent_indices(headers).filter(naming)).cast(pa.int64())
