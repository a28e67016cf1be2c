"""A quota that is used up never leaves a batch stuck: it stays landed, and goes when there is quota again."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

from jobs import protocol
from jobs.pipeline import Pipeline
from resources.connections import BigQueryConnection, Connections
from resources.errors import Unavailable
from tests.kit import model
from tests.kit.bigquery import bigquery_flow, rows
from tests.kit.network import with_connection, with_quota
from tests.kit.records import bootstrap, produce, random_changes

pytestmark = pytest.mark.usefixtures("bigquery")


def test_batch_waits_for_quota_and_goes_with_the_next(
    connections: Connections, topic: Callable[..., str], spark: SparkSession
) -> None:
    flow = bigquery_flow(topic(partitions=2), ["upsert_delete"])
    first, second = random_changes(1, 60, 20, 2), random_changes(2, 60, 20, 2)
    produce(bootstrap(connections), flow.topic, first)
    known = connections.get("bigquery", BigQueryConnection)
    assert known.endpoint
    with with_quota(known.endpoint) as (quota, endpoint):

        def opened(**more: object) -> Pipeline:
            limited = known.model_copy(update={"endpoint": endpoint, **more})
            return flow.pipeline(with_connection(connections, "bigquery", limited), spark)

        pipeline, hasty = opened(), opened(retry_seconds=10)
        (table,) = pipeline.destinations()
        list(protocol.land(pipeline, 0))
        table.prepare()
        quota.used_up = True
        with pytest.raises(Unavailable, match="a BigQuery limit is reached") as refused:
            protocol.merge(hasty, *hasty.destinations())
        assert "the batches stay landed and the next run merges them together" in str(refused.value)
        assert quota.refused
        assert table.committed() is None

        produce(bootstrap(connections), flow.topic, second)
        list(protocol.land(pipeline, 0))
        quota.used_up = False
        merged = protocol.merge(pipeline, table)
    assert merged
    assert [b.number for b in merged.batches] == [1, 2]
    assert rows(connections, flow.table("upsert_delete")) == model.expected([*first, *second], "upsert_delete")
