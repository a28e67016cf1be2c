"""One Apache Kafka broker in KRaft mode, with transactions, from its Maven jars."""

from __future__ import annotations

import logging
import subprocess
import uuid
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from resources.errors import Unavailable
from resources.local.jars import Bundle, classpath, fetch
from resources.local.java import find_java
from resources.local.jvm import jvm
from resources.local.ports import accepts
from resources.local.service import Command, Say, Service, Site

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

BROKER = Bundle(
    "kafka",
    (
        ("org.apache.kafka", "kafka_2.13", "4.1.1"),
        # Without a binding the broker would log nothing.
        ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.24.3"),
    ),
)

_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{broker}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
# Records keep the times of their events, which may be years back: retention by time would delete them at once.
log.retention.ms=-1
"""


class KafkaBroker(Service):
    name: ClassVar[str] = "kafka"
    port_names: ClassVar[tuple[str, ...]] = ("broker", "controller")

    def prepare(self, site: Site, say: Say) -> Command:
        java = find_java(say)
        jars = fetch(BROKER, java, say)
        folder = site.folder(self.name)
        properties = folder / "server.properties"
        properties.write_text(_PROPERTIES.format(**site.ports[self.name], data=folder / "data"))
        run = jvm(java, folder, "512m", classpath(jars))
        if not (folder / "data" / "meta.properties").exists():
            _format(run, properties)
        return Command([*run, "kafka.Kafka", str(properties)])

    def ready(self, site: Site) -> bool:
        """Whether the broker answers a metadata request."""
        if not accepts(site.port(self.name, "broker")):
            return False
        from confluent_kafka import KafkaException

        try:
            return len(_client(site.address(self.name, "broker")).list_topics(timeout=5).brokers) == 1
        except KafkaException:
            return False

    def connections(self, site: Site) -> dict[str, dict[str, Any]]:
        return {"kafka": {"kind": "kafka", "bootstrap_servers": site.address(self.name, "broker")}}


@cache
def _client(address: str) -> AdminClient:
    """Kept while the process lives: librdkafka may crash where a client is dropped right after an answer (2.16)."""
    from confluent_kafka.admin import AdminClient

    quiet = logging.getLogger("batchmerge.local.kafka")
    quiet.setLevel(logging.CRITICAL)
    return AdminClient({"bootstrap.servers": address, "reconnect.backoff.max.ms": 500}, logger=quiet)


def _format(run: list[str], properties: Path) -> None:
    argv = [*run, "kafka.tools.StorageTool", "format", "--ignore-formatted"]
    argv += ["--cluster-id", str(uuid.uuid4()), "--config", str(properties)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Unavailable(
            f"the data folder could not be formatted: {(done.stderr or done.stdout).strip()[-500:]}",
            where="kafka",
            remedy="check space and permissions of the data folder",
        )
