"""One pipeline for many topics (`for_each`), each with its own table, on warm services: how long its definitions take
to load in an imported program, `plan`, and `batchmerge run`. Each topic that has new records has a few of them. A
topic without new records should cost a run nothing.
"""

from __future__ import annotations

import json
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from orchestration.definitions import with_shared
from orchestration.loading import load_folder
from resources.connections import Connections, KafkaConnection
from tests.benchmarks._project import Project
from tests.benchmarks._report import Measure, Sizes, report
from tests.benchmarks._workload import new_name, services
from tests.kit import many_topics, specs


def measure(options: Namespace) -> Iterator[Measure]:
    name, turns = new_name(), range(options.turns)
    topics = many_topics.topics(options.topics, name)
    what = f"{len(topics)} topics, {' and '.join(options.kinds)}"
    with services("kafka", "spark", *set(options.kinds) - {"iceberg"}, home=options.home) as (home, connections):
        project = Project.make(home, connections)
        document = many_topics.document(name, tuple(options.kinds), control={})
        specs.write(project.folder / "pipelines", name, document)
        create(connections, topics)
        fill(connections, topics, options.records)
        plans = [project.command("plan", "--no-sql", name) for _ in turns]
        yield Measure(what=f"`batchmerge plan`, {what}", unit="s", turns=tuple(one.seconds for one in plans))
        yield Measure(what=f"load of the definitions, {what}", unit="s", turns=tuple(load(project) for _ in turns))
        first = project.command("run", name)
        yield Measure(what=f"`batchmerge run`, {what}, all new", unit="s", turns=(first.seconds,))
        yield Measure(what=f"`batchmerge run`, {what}, all new, CPU", unit="CPU s", turns=(first.cpu,))
        for some in (len(topics), options.few, 0):
            runs = []
            for _ in turns:
                fill(connections, topics[:some], options.records)
                runs.append(project.command("run", name))
            measured = f"`batchmerge run`, {what}, {some} with new records"
            yield Measure(what=measured, unit="s", turns=tuple(one.seconds for one in runs))
            yield Measure(what=f"{measured}, CPU", unit="CPU s", turns=tuple(one.cpu for one in runs))


def create(connections: Connections, topics: Sequence[str]) -> None:
    admin = AdminClient({"bootstrap.servers": connections.get("kafka", KafkaConnection).bootstrap_servers})
    for made in admin.create_topics([NewTopic(topic, 1) for topic in topics]).values():
        made.result(timeout=120)


def fill(connections: Connections, topics: Sequence[str], records: int) -> None:
    """The same few keys each time: later ones change rows."""
    producer = Producer({"bootstrap.servers": connections.get("kafka", KafkaConnection).bootstrap_servers})
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    for topic in topics:
        for number in range(records):
            producer.produce(topic, json.dumps({"id": number, "name": f"of {topic}", "at": now}))
    left = producer.flush()
    assert not left, f"{left} records were not sent"


def load(project: Project) -> float:
    """Seconds until Dagster can show it."""
    began = time.monotonic()
    with_shared(load_folder(project.folder / "pipelines")).resolve_asset_graph()
    return time.monotonic() - began


SIZES: Sizes = {
    "topics": (many_topics.MANY, 4),
    "records": (5, 1),
    "few": (3, 1),
    "turns": (3, 1),
    "kinds": (["iceberg"], ["iceberg"]),
}

if __name__ == "__main__":
    report(__doc__, measure, SIZES)
