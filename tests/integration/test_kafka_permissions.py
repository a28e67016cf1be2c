"""A Kafka that permits nothing but what docs/security.md lists: all of it is enough, and each part is needed."""

from __future__ import annotations

import logging
import re
import uuid

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from pyspark.sql import SparkSession

from jobs.events.reading import read_events
from resources.connections import Connections
from resources.errors import BatchmergeError, ConfigurationError
from resources.topic_reading import newest_records
from tests.kit.engine import Engine
from tests.kit.events import check_groups
from tests.kit.flow import Flow
from tests.kit.guides import SECURITY
from tests.kit.network import with_connection
from tests.kit.records import Record, produce
from tests.kit.secure_kafka import LIMITED, SecureKafka
from tests.kit.topics import make_topic, until_decided
from tests.kit.waiting import PATIENCE, until

ROW = re.compile(r"^\| (topic|group|transactional id) \| (.+?) \| (.+?) \|", re.MULTILINE)
KINDS = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional id": ResourceType.TRANSACTIONAL_ID,
}
OPERATIONS = {"read": AclOperation.READ, "write": AclOperation.WRITE, "create": AclOperation.CREATE}


def listed(flow: Flow) -> list[AclBinding]:
    """The page's table of permissions, for this pipeline."""
    named = {
        "`source.topics`": flow.topic,
        "`control.topic`": flow.spec.control.topic,
        "`dead_letters.topic`": flow.spec.dead_letters.topic,
        "names that begin with `control.group_prefix` and the pipeline's name": f"analytics.{flow.name}",
    }
    bindings = []
    for kind, names, operations in ROW.findall(SECURITY.read_text()):
        pattern = ResourcePatternType.PREFIXED if "begin" in names else ResourcePatternType.LITERAL
        name = named[names]
        assert name is not None
        for operation in operations.split(", "):
            bindings.append(permit(KINDS[kind], name, pattern, OPERATIONS[operation]))
    return bindings


def permit(kind: ResourceType, name: str, pattern: ResourcePatternType, operation: AclOperation) -> AclBinding:
    return AclBinding(kind, name, pattern, f"User:{LIMITED}", "*", operation, AclPermissionType.ALLOW)


@pytest.fixture
def admin(secure: SecureKafka) -> AdminClient:
    return AdminClient({"bootstrap.servers": secure.plain})


@pytest.fixture
def engine(secure: SecureKafka, admin: AdminClient, connections: Connections, spark: SparkSession) -> Engine:
    """One good and one bad record, as a user who may do nothing yet."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    make_topic(admin, name)
    row: dict[str, object] = {"id": 1, "name": "a", "amount": 1.0, "op": "u"}
    produce(secure.plain, name, [Record(0, 1, row), Record(0, 2, "{bad")])
    options: dict[str, object] = {
        "control": {"topic": f"control-{name}", "time_limit_seconds": 300, "group_prefix": "analytics."},
        "dead_letters": {"topic": f"dlq-{name}", "time_limit_seconds": 300},
    }
    limited = secure.connection("limited").model_copy(update={"timeout_seconds": 10})
    return Engine(Flow(name, ["upsert"], overrides=options), with_connection(connections, "kafka", limited), spark)


def grant(admin: AdminClient, bindings: list[AclBinding]) -> None:
    for future in admin.create_acls(bindings).values():
        future.result(timeout=PATIENCE)
    # The controller has them; the broker, which answers this question, gets them a moment later.
    every = AclBindingFilter(
        ResourceType.ANY,
        None,  # type: ignore[arg-type]
        ResourcePatternType.ANY,
        f"User:{LIMITED}",
        "*",
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    until(lambda: {*bindings} <= {*admin.describe_acls(every).result(PATIENCE)}, what="permissions at the broker")


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == "batchmerge" and r.levelno >= logging.WARNING]


def test_what_the_page_lists_is_enough(
    engine: Engine, secure: SecureKafka, admin: AdminClient, caplog: pytest.LogCaptureFixture
) -> None:
    grant(admin, listed(engine.flow))
    (landed,) = engine.advance()
    assert (landed.counts.landed, landed.counts.quarantined) == (1, 1)
    assert engine.read("upsert") == [(1, "a", 1.0)]
    assert warnings(caplog) == []
    check_groups(engine.pipeline)
    kafka = engine.pipeline.kafka
    until_decided(secure.plain, engine.flow.spec.control.topic)
    published, _ = read_events(kafka, engine.flow.spec.control.topic, None)
    assert len(published) == 5
    assert len(newest_records(kafka, engine.flow.topic, 10)) == 2


def test_the_source_may_not_be_read(engine: Engine, admin: AdminClient) -> None:
    with pytest.raises(ConfigurationError, match=rf"topic {engine.flow.topic}: Kafka refuses access.*security\.md"):
        engine.land()
    describe = permit(ResourceType.TOPIC, engine.flow.topic, ResourcePatternType.LITERAL, AclOperation.DESCRIBE)
    grant(admin, [describe])
    with pytest.raises(BatchmergeError, match=r"security\.md") as caught:
        engine.land()
    assert isinstance(caught.value, ConfigurationError)


@pytest.mark.parametrize("left_out", ["group", "transactional id", "control", "dlq"])
def test_data_does_not_wait_for_what_may_not_be_published(
    left_out: str, engine: Engine, admin: AdminClient, caplog: pytest.LogCaptureFixture
) -> None:
    kind = KINDS.get(left_out)
    bindings = [b for b in listed(engine.flow) if b.restype != kind and not b.name.startswith(f"{left_out}-")]
    grant(admin, bindings)
    (landed,) = engine.advance()
    assert (landed.counts.landed, landed.counts.quarantined) == (1, 1)
    assert engine.read("upsert") == [(1, "a", 1.0)]
    shown = warnings(caplog)
    assert shown
    assert all("docs/security.md" in line or "may not see it" in line for line in shown), shown
    caplog.clear()
    grant(admin, listed(engine.flow))
    engine.advance()
    assert warnings(caplog) == []
    check_groups(engine.pipeline)
