"""Decoding where some topics are encoded in another way than the others."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from jobs.decode.base import Decoded, Decoder
from jobs.decode.verdicts import Verdicts


def decode_by_topic(decoder: Decoder, others: Mapping[str, Decoder], raw: pa.Array, topics: pa.Array) -> Decoded:
    """Decodes each record by its topic's decoder in `others`, else by `decoder`; all return the same type."""
    present = set(pc.unique(topics).to_pylist())
    if not present.intersection(others):
        return decoder.decode(raw)
    rows = pa.array(range(len(raw)), pa.int64())
    order: list[pa.Array] = []
    pieces: list[pa.Array] = []
    verdicts = Verdicts(len(raw))
    for topic in sorted(present):
        own = rows.filter(pc.equal(topics, topic))
        decoded = others.get(topic, decoder).decode(raw.take(own))
        order.append(own)
        pieces.append(decoded.values)
        verdicts.add(decoded, at=own.to_pylist())
    return verdicts.decoded(pa.concat_arrays(pieces).take(pc.sort_indices(pa.concat_arrays(order))))
