"""Decoding where some topics are encoded in another way than the others."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from jobs.decode.base import Decoded, Decoder
from jobs.decode.parts import assembled


def decode_by_topic(decoder: Decoder, others: Mapping[str, Decoder], raw: pa.Array, topics: pa.Array) -> Decoded:
    """Decodes each record by its topic's decoder in `others`, else by `decoder`; all return the same type."""
    present = set(pc.unique(topics).to_pylist())
    if not present.intersection(others):
        return decoder.decode(raw)
    found = []
    for topic in sorted(present):
        rows = pc.indices_nonzero(pc.equal(topics, topic))
        found.append((rows.to_numpy(), others.get(topic, decoder).decode(raw.take(rows))))
    return assembled(found)
