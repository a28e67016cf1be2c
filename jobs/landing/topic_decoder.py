"""Decoders of records whose topics may be encoded in different ways, as `source.per_topic` says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from jobs.decode.base import Decoded, Decoder
from jobs.decode.by_topic import decode_by_topic
from jobs.landing.encodings import encodings
from jobs.landing.framing import Framing
from jobs.spec.encoding import Encoding
from jobs.spec.source import Source


@dataclass(frozen=True)
class TopicDecoder:
    """Decodes each record by its topic's decoder; all return the same type.

    Attributes:
        usual: of all topics but `others`.
        framing: of records whose schemas are in a registry; None: there are none.
    """

    usual: Decoder
    others: Mapping[str, Decoder] = field(default_factory=dict)
    framing: Framing | None = None

    @classmethod
    def of(cls, source: Source, part: str, decoder: Callable[[Encoding], Decoder]) -> TopicDecoder:
        """For a part of records (`key` or `value`); `decoder` makes the decoder of an encoding."""
        made = {topic: decoder(encoding) for topic, encoding in encodings(source, part).items() if encoding}
        others = {topic: one for topic, one in made.items() if topic}
        return cls(made[None], others, Framing.of(source, part))

    @property
    def type(self) -> pa.DataType:
        """The type of the values."""
        return self.usual.type

    def decode(self, batch: pa.RecordBatch, part: str, rows: pa.Array | None = None) -> Decoded:
        """Decodes this part of the records; only of these rows."""
        raw = self.framing.records(batch, part) if self.framing else batch.column(part)
        topics = batch.column("topic")
        if rows is not None:
            raw, topics = raw.take(rows), topics.take(rows)
        return decode_by_topic(self.usual, self.others, raw, topics)
