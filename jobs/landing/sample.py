"""Which columns the next records would bring, and which key they have, from a sample of the newest ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from jobs.decode.base import Refused
from jobs.decode.registered import split
from jobs.landing.readers import telling_decoder
from jobs.landing.registry_schemas import Registries
from jobs.schema.found_fields import NOTHING_FOUND, FoundFields
from jobs.spec.added_columns import Additions, additions, key_found
from jobs.spec.formats import Encoding, Format
from jobs.spec.pipeline import PipelineSpec
from resources.errors import ConfigurationError
from resources.kafka import KafkaCluster
from resources.topic_reading import newest_records

_RECORDS = 500
# A pipeline may read hundreds of topics, whose records have the same columns.
_TOPICS = 10


def sampled_columns(
    spec: PipelineSpec, kafka: KafkaCluster, topics: Sequence[str], registries: Registries
) -> Additions:
    """For `plan`, which changes nothing. Raises Unavailable where Kafka or a registry does not answer."""
    found = sum((one for _, one in _found(spec, "value", kafka, topics, registries)), NOTHING_FOUND)
    return additions(spec, found)


def sampled_key(
    spec: PipelineSpec, kafka: KafkaCluster, topics: Sequence[str], registries: Registries
) -> PipelineSpec | None:
    """The pipeline with the key that records have (`jobs.spec.added_columns.key_is_open`); None where there are none.

    Raises:
        ConfigurationError: that can be no key. Unavailable: Kafka or a registry does not answer.
    """
    keys = dict(_found(spec, "key", kafka, topics, registries))
    if not keys:
        return None
    first, *others = keys
    for other in others:
        if keys[other].by_path.keys() != keys[first].by_path.keys():
            raise ConfigurationError(
                f"the keys of {first} and {other} have other fields",
                where="source.key",
                remedy="declare `source.key.columns` and `changes.key`, or use `for_each: topic`",
            )
    return key_found(spec, sum(keys.values(), NOTHING_FOUND))


def _found(
    spec: PipelineSpec, part: str, kafka: KafkaCluster, topics: Sequence[str], registries: Registries
) -> Iterator[tuple[str, FoundFields]]:
    """The fields that no column takes, of each topic that has records with a key or a value."""
    columns: Format = getattr(spec.source, part)
    for topic in sorted(topics)[:_TOPICS]:
        raws = [raw for r in newest_records(kafka, topic, _RECORDS) if (raw := getattr(r, part)) is not None]
        if raws:
            own = spec.source.per_topic.get(topic)
            encoding: Encoding = (getattr(own, part) if own else None) or columns
            name = encoding.registry
            schemas = {name: registries.of_ids(name, {i for raw in raws if (i := _schema_id(raw))})} if name else {}
            decoder = telling_decoder(spec, columns, encoding, schemas)
            yield topic, decoder.decode(pa.array(raws, pa.binary())).unknown


def _schema_id(value: bytes) -> int | None:
    try:
        return split(value)[0]
    except Refused:
        return None
