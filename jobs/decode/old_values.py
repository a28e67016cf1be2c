"""Old values of a change that cannot be read: the record is decoded once more without those that nothing needs.

The row before an update is needed for the metadata columns that name it, and of a deleted row its key. So a bad old
value (`infinity`, a number too wide for its column) neither refuses the update that corrects it, nor keeps the row of a
delete in the tables for good.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from jobs.decode.base import Decoded, Decoder
from jobs.decode.envelope_shape import operation_of
from jobs.schema.with_fields import with_fields


@dataclass(frozen=True)
class WithoutBadOldValues:
    """A decoder of envelopes of this kind.

    Attributes:
        whole: reads all columns.
        least: reads of old values only those columns that are needed.
        operations: of these changes they are enough.
    """

    kind: str
    whole: Decoder
    least: Decoder
    operations: Collection[str]

    @property
    def type(self) -> pa.DataType:
        return self.whole.type

    def decode(self, raw: pa.Array) -> Decoded:
        found = self.whole.decode(raw)
        if not found.errors:
            return found
        rows = pa.array(sorted(found.errors), pa.int64())
        again = self.least.decode(raw.take(rows))
        enough = pc.is_in(operation_of(self.kind, again.values), value_set=pa.array(self.operations, pa.string()))
        taken = [n for n in pc.indices_nonzero(enough).to_pylist() if n not in again.errors]
        errors = found.errors | {rows[n].as_py(): error for n, error in again.errors.items()}
        if not taken:
            return replace(found, errors=errors)
        places = list(range(len(raw)))
        for at, n in enumerate(taken):
            places[rows[n].as_py()] = len(raw) + at
        read = with_fields(again.values.take(pa.array(taken, pa.int64())), found.values.type)
        values = pa.concat_arrays([found.values, read]).take(pa.array(places, pa.int64()))
        for n in taken:
            del errors[rows[n].as_py()]
        unknown = found.unknown
        if again.unknown:
            # Some formats have reported fields of records that they refuse, others have not.
            unknown += again.unknown.beyond(self.whole.decode(raw.take(rows)).unknown)
        return replace(found, values=values, errors=errors, unknown=unknown)
