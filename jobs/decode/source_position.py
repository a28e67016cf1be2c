"""The position of a change in the log of its database, from Debezium's fields.

Sources: Debezium's documentation of the connectors for PostgreSQL and Oracle (`source` in change event values), and of
ExtractNewRecordState (`add.fields`).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress

import pyarrow as pa

from jobs.decode.base import Decoded, Decoder
from jobs.decode.unknown import Watch
from resources.errors import ConfigurationError

# PostgreSQL has the first, Oracle the others.
_FIELDS = {"lsn": pa.int64(), "scn": pa.string(), "rs_id": pa.string(), "ssn": pa.int64()}
# Prefixes of the fields of `source` in a row without an envelope.
_PREFIXES = ("__source_", "__")


class SourcePosition:
    """Decodes the position of change data as a text: equal for all records of a change; null if a record has none.

    Args of the constructor:
        kind: of the envelope (`jobs.decode.envelope`).
        inner: makes the format's decoder for a type.
    """

    type: pa.DataType = pa.string()

    def __init__(self, kind: str, inner: Callable[[pa.DataType, Watch | None], Decoder]) -> None:
        flat = pa.struct([(prefix + name, of) for prefix in _PREFIXES for name, of in _FIELDS.items()])
        wanted = flat if kind == "debezium_flat" else pa.struct([("source", pa.struct(_FIELDS))])
        self._inner: Decoder | None = None
        with suppress(ConfigurationError):  # the file's schema has such fields with other types
            self._inner = inner(wanted, None)

    def decode(self, raw: pa.Array) -> Decoded:
        """The positions; null also for records that cannot be read, whose error is reported elsewhere."""
        found = self._inner.decode(raw).values.to_pylist() if self._inner else [None] * len(raw)
        return Decoded(pa.array(map(_text, found), pa.string()), {})


def _text(found: dict[str, object] | None) -> str | None:
    said = (found or {}).get("source", found)
    assert said is None or isinstance(said, dict), "a struct"
    known = {name: value for name, value in (said or {}).items() if value is not None}
    return json.dumps(known) if known else None
