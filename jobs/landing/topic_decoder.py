"""Decoders of records whose topics may be encoded in different ways, as `source.per_topic` says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from jobs.decode.base import Decoded, Decoder
from jobs.decode.by_topic import decode_by_topic
from jobs.spec.encoding import Encoding
from jobs.spec.source import Source


@dataclass(frozen=True)
class TopicDecoder:
    """Decodes each record by its topic's decoder; all return the same type.

    Attributes:
        usual: of all topics but `others`.
    """

    usual: Decoder
    others: Mapping[str, Decoder] = field(default_factory=dict)

    @classmethod
    def of(cls, source: Source, part: str, decoder: Callable[[Encoding], Decoder]) -> TopicDecoder:
        """For a part of records (`key` or `value`); `decoder` makes the decoder of an encoding."""
        made = {topic: decoder(encoding) for topic, encoding in encodings(source, part).items() if encoding}
        return cls(made[None], {topic: one for topic, one in made.items() if topic})

    @property
    def type(self) -> pa.DataType:
        """The type of the values."""
        return self.usual.type

    def decode(self, raw: pa.Array, topics: pa.Array) -> Decoded:
        """Decodes records of these topics."""
        return decode_by_topic(self.usual, self.others, raw, topics)


def encodings(source: Source, part: str) -> dict[str | None, Encoding | None]:
    """The encodings of keys or of values by topic; under None that of all other topics. A key may have none."""
    own = {topic: getattr(one, part) for topic, one in source.per_topic.items()}
    return {None: getattr(source, part), **{topic: one for topic, one in own.items() if one}}
