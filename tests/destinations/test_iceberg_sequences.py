"""Some sequences of advance, crash, rollback and replay on real tables end in the model's table.

Thousands of them are played without tables in `tests/unit/test_any_sequence.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from jobs.destinations.iceberg import destination as iceberg
from jobs.iceberg.history import ancestors
from jobs.offsets import TopicPartition
from jobs.replay.from_kafka import from_offsets, replay_from_kafka
from resources.connections import load_connections
from resources.errors import Interrupted
from tests.kit import model
from tests.kit.engine import Engine, catalog
from tests.kit.examples import few
from tests.kit.flow import Flow
from tests.kit.records import Record, bootstrap, produce, random_changes

MODES = ["append", "upsert_delete"]
OPTIONS = {"metadata_columns": ["topic", "partition", "offset"], "on_rollback": "replay"}
STEPS = st.lists(
    st.sampled_from(["advance", "crash", "roll back", "replay batches", "replay from kafka"]), min_size=3, max_size=4
)


@pytest.mark.slow
@few(2)
@given(steps=STEPS, seed=st.integers(0, 99))
def test_any_sequence_ends_in_the_model(
    steps: list[str], seed: int, module_topic: Callable[..., str], stack: Path, spark: SparkSession
) -> None:
    connections = load_connections(stack / "connections.yaml")
    engine = Engine(Flow(module_topic(partitions=2), MODES, table_options=OPTIONS), connections, spark)
    told: list[Record] = []
    for number, step in enumerate(["advance", *steps, "advance"]):
        if step in ("advance", "crash"):
            more = random_changes(seed + number, 30, 8, 2)
            produce(bootstrap(connections), engine.flow.topic, more)
            told += more
        for mode in MODES:
            play(step, engine, mode)
    for mode in MODES:
        assert engine.read(mode) == model.expected(told, mode), (steps, mode)


def play(step: str, engine: Engine, mode: str) -> None:
    if step == "advance":
        engine.land()
        engine.merge(mode)
    elif step == "crash":
        engine.land()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(iceberg, "failpoint", dies)
            with pytest.raises(Interrupted):
                engine.merge(mode)
    elif step == "roll back":
        table = catalog(engine.connections).require(engine.flow.table(mode))
        before = list(ancestors(table.metadata, "main"))[1:]
        if before:
            table.manage_snapshots().set_current_snapshot(before[0].snapshot_id).commit()
    elif step == "replay batches":
        engine.replay(mode, 1, 2)
    else:
        start = {TopicPartition(engine.flow.topic, partition): 3 for partition in (0, 1)}
        replay_from_kafka(engine.pipeline, engine.destination(mode), from_offsets(start))


def dies(name: str) -> None:
    if name == "merge.written":
        raise Interrupted("died here")
