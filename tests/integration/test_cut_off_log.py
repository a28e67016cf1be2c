"""A log that a new leader has cut off and that has outgrown what we have committed: leader epochs show it (KIP-320)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from jobs.connections_file import load_connections
from jobs.offsets import TopicPartition
from jobs.planning.plan import partitions_with_new_leader, refuse_cut_off
from jobs.planning.topic_state import topic_state
from resources.connections import Connections, KafkaConnection
from resources.errors import OffsetsGone, Unavailable
from resources.kafka import KafkaCluster
from resources.local import stack
from tests.kit.batches import committed
from tests.kit.records import Record, bootstrap, forget_producers, produce
from tests.kit.topics import make_topic


def test_cut_off_log_is_distinguished_from_one_that_only_has_another_leader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that starts again leads in a new epoch. The first one ended at offset 10, which is what a leader that
    lacked later records leaves: whoever had read more in it has read what Kafka has lost."""
    monkeypatch.setenv("BATCHMERGE_HOME", str(tmp_path))
    try:
        stack.up(tmp_path, ["kafka"], print)
        connection = load_connections(tmp_path / "connections.yaml").get("kafka", KafkaConnection)
        servers = connection.bootstrap_servers
        make_topic(AdminClient({"bootstrap.servers": servers}), "t")
        produce(servers, "t", [Record(0, n, {"id": n}) for n in range(10)])
        before = topic_state(KafkaCluster("kafka", connection), ["t"])
        forget_producers()
        stack.down(tmp_path, print)
        stack.up(tmp_path, ["kafka"], print)
        cluster = KafkaCluster("kafka", connection)
        produce(servers, "t", [Record(0, n, {"id": n}) for n in range(20)])
        after = topic_state(cluster, ["t"])
        assert (before.stable[P], after.stable[P]) == (10, 30)
        assert after.leader_epochs[P] > before.leader_epochs[P]

        state = replace(committed(2), offsets={P: 10}, topic_ids=before.topic_ids, leader_epochs=before.leader_epochs)
        moved = partitions_with_new_leader(state, after)
        assert moved == {P: (10, before.leader_epochs[P])}
        assert cluster.cut_off(moved) == {}, "nothing was lost"

        lost = replace(state, offsets={P: 20})
        cut = cluster.cut_off(partitions_with_new_leader(lost, after))
        assert cut == {P: 10}
        with pytest.raises(OffsetsGone, match="cut the log off at offset 10"):
            refuse_cut_off(lost, cut)
    finally:
        forget_producers()
        stack.down(tmp_path, print)
    silent = KafkaCluster("kafka", connection.model_copy(update={"timeout_seconds": 1.0}))
    with pytest.raises(Unavailable, match="in time"):
        silent.cut_off({P: (10, 0)})


def test_hundreds_of_partitions_are_asked_in_one_go(connections: Connections, topic: Callable[..., str]) -> None:
    """Each one by itself has an answer within a moment; a second for each few of them was more than the time limit."""
    name = topic(partitions=200)
    known = [TopicPartition(name, n) for n in range(200)]
    produce(bootstrap(connections), name, [Record(p.partition, 1, {"id": 1, "name": "x" * 3000}) for p in known * 3])
    known_by = connections.get("kafka", KafkaConnection).model_copy(update={"timeout_seconds": 60})
    cluster = KafkaCluster("kafka", known_by)
    assert cluster.cut_off(dict.fromkeys(known, (1, 0))) == {}


P = TopicPartition("t", 0)
