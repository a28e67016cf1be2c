"""Predicts what the next records will bring, from a sample of the newest ones: columns, key, names of tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from jobs.decode.base import Decoded
from jobs.decode.verdicts import Verdicts
from jobs.destinations.takes import Taking
from jobs.landing.encodings import encodings
from jobs.landing.framing import Framing, wanted_headers
from jobs.landing.new_tables import name_rule
from jobs.landing.readers import reporting_decoder
from jobs.landing.registry_schemas import Registries, ids_in
from jobs.schema.found_fields import NOTHING_FOUND
from jobs.spec.added_columns import OF_ANOTHER_TYPE, Additions, additions
from jobs.spec.formats import Format
from jobs.spec.new_tables import Named
from jobs.spec.open_key import key_found
from jobs.spec.pipeline import PipelineSpec
from resources.errors import ConfigurationError
from resources.kafka import KafkaCluster
from resources.topic_reading import newest_records

_RECORDS = 500
# The most topics to sample: a pipeline may read hundreds, whose records have the same columns.
_TOPICS = 10


def sampled_columns(
    spec: PipelineSpec, kafka: KafkaCluster, topics: Sequence[str], registries: Registries, taking: Taking
) -> Additions:
    """The new columns, for `plan`, which changes nothing. Raises Unavailable if Kafka or a registry does not answer."""
    sampled = [one for _, one in _sampled(spec, "value", kafka, topics, registries)]
    found = additions(spec, sum((one.unknown for one in sampled), NOTHING_FOUND), taking)
    if not any(one.errors for one in sampled):
        return found
    again = [one for _, one in _sampled(found.spec, "value", kafka, topics, registries)]
    errors = [error for one in again for error in one.errors.values()]
    of_another_type = any(error.kind in OF_ANOTHER_TYPE for error in errors)
    return replace(found, bad=Counter(error.message for error in errors), of_another_type=of_another_type)


def sampled_key(
    spec: PipelineSpec, kafka: KafkaCluster, topics: Sequence[str], registries: Registries, taking: Taking
) -> PipelineSpec | None:
    """The pipeline with the records' key as its key (`jobs.spec.open_key.key_is_open`); None: none of the newest
    records has one.

    Raises:
        ConfigurationError: the records' key cannot be the key. Unavailable: Kafka or a registry does not answer.
    """
    sampled = dict(_sampled(spec, "key", kafka, topics, registries))
    if not sampled:
        return None
    for topic, decoded in sampled.items():
        if decoded.errors and not decoded.unknown:
            text = f"the newest keys cannot be read: {next(iter(decoded.errors.values())).message}"
            raise ConfigurationError(text, where=f"topic {topic}", remedy="correct `source.key`: format and registry")
    keys = {topic: decoded.unknown for topic, decoded in sampled.items()}
    first, *others = keys
    for other in others:
        if keys[other].by_path.keys() != keys[first].by_path.keys():
            raise ConfigurationError(
                f"the keys of {first} and {other} have other fields",
                where="source.key",
                remedy="declare `source.key.columns` and `changes.key`, or use `for_each: topic`",
            )
    made = key_found(spec, sum(keys.values(), NOTHING_FOUND), taking)
    for topic, decoded in _sampled(made, "key", kafka, topics, registries):
        if len(decoded.errors) == len(decoded.values) > len(sampled[topic].errors):
            assert made.source.key is not None
            kinds = ", ".join(f"{name} {kind}" for name, kind in made.source.key.columns.items())
            raise ConfigurationError(
                f"the newest keys do not fit the tables that are there, whose key is {kinds}: "
                f"{next(iter(decoded.errors.values())).message}",
                where=f"topic {topic}",
                remedy="write to new tables; or declare `source.key.columns` and `changes.key` (a column of type "
                "`text` takes numbers, too)",
            )
    return made


def sampled_names(
    spec: PipelineSpec, kafka: KafkaCluster, topics: Sequence[str], registries: Registries, known: Mapping[str, Named]
) -> list[str]:
    """The new tables that records name, for `plan`; none if a transform makes the names. Raises as above."""
    rule = name_rule(spec, known)
    if rule is None or spec.source.transform is not None:
        return []
    names = dict[str, int]()
    for _, decoded in _sampled(spec, rule.path[0], kafka, topics, registries):
        values = decoded.values
        verdicts = Verdicts(len(values), decoded.errors)
        verdicts.filter(decoded.filtered)
        for name in rule.judge(pa.repeat(True, len(values)), values, values, verdicts):
            names.setdefault(name, len(names))
    settled = rule.after(names, spec)
    return [name for name in names if settled is None or settled.makes(name)]


def _sampled(
    spec: PipelineSpec, part: str, kafka: KafkaCluster, topics: Sequence[str], registries: Registries
) -> Iterator[tuple[str, Decoded]]:
    """The newest keys or values (`part`) of each topic that has any, with the fields that have no column."""
    columns: Format = getattr(spec.source, part)
    own, framing = encodings(spec.source, part), Framing.of(spec.source, part)
    for topic in sorted(topics)[:_TOPICS]:
        newest = newest_records(kafka, topic, _RECORDS, wanted_headers(spec.source))
        for batch in newest.combine_chunks().to_batches():
            raws = (framing.records(batch, part) if framing else batch.column(part)).drop_null()
            if len(raws):
                encoding = own.get(topic) or columns
                name = encoding.registry
                schemas = {name: registries.of_ids(name, ids_in(raws))} if name else {}
                yield topic, reporting_decoder(spec, columns, encoding, schemas).decode(raws)


def keyless(pipeline: str) -> ConfigurationError:
    """The error if the key is to be the records' key, and the records have none."""
    return ConfigurationError(
        "the newest records have no key",
        where=f"pipeline {pipeline}",
        remedy="name columns of the value: `changes.key: {columns: […], source: value}`; or leave `source.key` "
        "out and use the mode append",
    )
