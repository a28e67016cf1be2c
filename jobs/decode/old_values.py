"""Old values of a change that cannot be read: the record is decoded once more without those that nothing needs.

The row before an update is needed for the metadata columns that name it, and of a deleted row its key. So a bad old
value (`infinity`, a number too wide for its column) neither refuses the update that corrects it, nor keeps the row of a
delete in the tables for good.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from jobs.decode.base import Decoded, Decoder
from jobs.decode.envelope_shape import DELETE, operation_of
from jobs.schema.with_fields import with_fields


@dataclass(frozen=True)
class WithoutBadOldValues:
    """A decoder of envelopes of this kind.

    Attributes:
        whole: reads all columns of both images of the row.
        least: reads only those columns of the row before that are needed.
        of_deletes: whether those are enough of a deleted row, too.
    """

    kind: str
    whole: Decoder
    least: Decoder
    of_deletes: bool

    @property
    def type(self) -> pa.DataType:
        return self.whole.type

    def decode(self, raw: pa.Array) -> Decoded:
        found = self.whole.decode(raw)
        if not found.errors:
            return found
        rows = pa.array(sorted(found.errors), pa.int64())
        again = self.least.decode(raw.take(rows))
        operation = operation_of(self.kind, again.values)
        good = pc.is_valid(operation) if self.of_deletes else pc.not_equal(operation, DELETE)
        taken = [n for n in pc.indices_nonzero(pc.fill_null(good, False)).to_pylist() if n not in again.errors]
        if not taken:
            return found
        places = list(range(len(raw)))
        for at, n in enumerate(taken):
            places[rows[n].as_py()] = len(raw) + at
        read = with_fields(again.values.take(pa.array(taken, pa.int64())), found.values.type)
        values = pa.concat_arrays([found.values, read]).take(pa.array(places, pa.int64()))
        good_now = {rows[n].as_py() for n in taken}
        errors = {row: error for row, error in found.errors.items() if row not in good_now}
        return Decoded(values, errors, found.filtered, found.unchanged, found.unknown + again.unknown)
