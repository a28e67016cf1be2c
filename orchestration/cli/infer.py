"""`batchmerge infer`: the columns that a topic's records seem to have, to be approved by a person."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from jobs.connections_file import load_connections
from jobs.infer.propose import propose, sampled
from jobs.landing.framing import NAMES
from orchestration.cli import output
from orchestration.files import pipeline_names, pipeline_spec
from resources.connections import Connections, KafkaConnection, RegistryConnection
from resources.errors import ConfigurationError
from resources.kafka import KafkaCluster
from resources.topic_reading import newest_records

if TYPE_CHECKING:
    from resources.stored_schema import Registry


@click.command()
@click.argument("pipeline_or_topic")
@click.option("--connection", default=None, help="Name of the Kafka connection (default: the pipeline's, or kafka).")
@click.option("--registry", default=None, help="Name of the Schema Registry connection (default: the pipeline's).")
@click.option("--records", default=500, show_default=True, help="How many of the newest records to look at.")
def infer(pipeline_or_topic: str, connection: str | None, registry: str | None, records: int) -> None:
    """Print `source` for a topic, with the columns that its newest records have. Changes nothing.

    Columns come from the registry (Avro, Protobuf and JSON Schema), from the schema in the records (Kafka Connect's
    JSON), or from the values (plain JSON). The command tries its proposal on these records: comments say how many
    records fit, and what you should check.
    """
    connections = load_connections()
    topics, registries = [pipeline_or_topic], [registry] if registry else []
    if pipeline_or_topic in pipeline_names():
        source = pipeline_spec(pipeline_or_topic).source
        connection = connection or source.connection
        topics = KafkaCluster(connection, connections.get(connection, KafkaConnection)).topics(
            source.topics, source.pattern
        )
        registries = registries or source.registries
    cluster = KafkaCluster(connection or "kafka", connections.get(connection or "kafka", KafkaConnection))
    output.result([_show(cluster, topic, _registry(connections, registries), records) for topic in topics])


def _registry(connections: Connections, names: list[str]) -> Registry | None:
    from resources.registries import open_registry  # an HTTP client, which most topics do not need

    return open_registry(names[0], connections.get(names[0], RegistryConnection)) if names else None


def _show(cluster: KafkaCluster, topic: str, registry: Registry | None, count: int) -> dict[str, object]:
    """Prints the proposal for a topic, and returns it for programs."""
    sample = newest_records(cluster, topic, count, frozenset(NAMES.values()))
    output.say(f"# {topic}: {len(sample)} of its newest records\nsource:\n  connection: {cluster.name}")
    output.say(f"  topics: [{topic}]")
    found: dict[str, object] = {"topic": topic, "records": len(sample)}
    for name in NAMES:
        records, named_in_headers = sampled(sample, name)
        try:
            proposal = propose(records, registry, named_in_headers)
        except ConfigurationError as problem:
            if name == "value":
                raise
            found[name] = None
            output.say(f"  # no {name} is proposed: {problem}")
            continue
        found[name] = proposal.document if proposal else None
        if proposal is None:
            output.say(f"  # no record has a {name}")
            continue
        output.say("\n".join(f"  {line}" for line in proposal.yaml(name).splitlines()))
    return found
