"""Which columns the next records would bring, from a sample of the newest ones: for `plan`, which changes nothing."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from jobs.decode.base import Refused
from jobs.decode.registered import split
from jobs.landing.readers import value_decoders
from jobs.landing.registry_schemas import Registries, Schemas
from jobs.schema.found_fields import NOTHING_FOUND
from jobs.spec.added_columns import Additions, additions
from jobs.spec.pipeline import PipelineSpec
from resources.kafka import KafkaCluster
from resources.topic_reading import newest_records

_RECORDS = 500
# A pipeline may read hundreds of topics, whose records have the same columns.
_TOPICS = 10


def sampled_columns(
    spec: PipelineSpec, kafka: KafkaCluster, topics: Sequence[str], registries: Registries
) -> Additions:
    """Raises Unavailable where Kafka or a registry does not answer."""
    found = NOTHING_FOUND
    for topic in sorted(topics)[:_TOPICS]:
        values = [r.value for r in newest_records(kafka, topic, _RECORDS) if r.value is not None]
        if values:
            decoder = value_decoders(spec, _schemas(spec, topic, values, registries))(topic)
            found += decoder.decode(pa.array(values, pa.binary())).unknown
    return additions(spec, found)


def _schemas(spec: PipelineSpec, topic: str, values: Sequence[bytes], registries: Registries) -> Schemas:
    own = spec.source.per_topic.get(topic)
    name = ((own.value if own else None) or spec.source.value).registry
    return {name: registries.of_ids(name, {i for value in values if (i := _schema_id(value))})} if name else {}


def _schema_id(value: bytes) -> int | None:
    try:
        return split(value)[0]
    except Refused:
        return None
