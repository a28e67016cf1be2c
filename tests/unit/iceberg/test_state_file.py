"""States of thousands of topic-partitions, on a real SQLite catalog: what its metadata gets of them, who reads them."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlparse

import pyarrow as pa
import pytest

from jobs.batch import PREFIX, CommittedState, Counts, LandedBatch
from jobs.iceberg.append import Append
from jobs.iceberg.history import PipelineBranch, state_properties
from jobs.iceberg.landed_batches import landed_batches
from jobs.iceberg.schema import iceberg_schema
from jobs.iceberg.state_file import STATE_FILE
from jobs.landed_properties import landed_to_properties
from jobs.offsets import OffsetRange, TopicPartition
from jobs.watermark import Watermark
from resources.errors import StorageError
from resources.iceberg import IcebergCatalog
from tests.benchmarks.sizing import batch_bytes
from tests.kit.batches import batch

NAME = "n.t"
TOPICS, PARTITIONS = 50, 100
EVERY = [TopicPartition(f"shop.{t}", p) for t in range(TOPICS) for p in range(PARTITIONS)]
# Parts of the metadata that grow with each snapshot.
OF_SNAPSHOTS = ("snapshots", "statistics", "snapshot-log")
IDS = {f"shop.{t}": f"{t:022d}" for t in range(TOPICS)}


@pytest.fixture
def catalog(lake: IcebergCatalog) -> IcebergCatalog:
    schema = iceberg_schema(pa.schema([("id", pa.int64())]))
    lake.create(NAME, schema, properties={"format-version": "2"})
    return lake


def landed(count: int, every: Sequence[TopicPartition] = EVERY) -> list[LandedBatch]:
    """Batches that have read some of every partition, one after the other."""
    dice, found, ids = random.Random(7), list[LandedBatch](), {tp.topic: IDS[tp.topic] for tp in every}
    reached = {tp: dice.randrange(10**9) for tp in every}
    for number in range(1, count + 1):
        ranges = {tp: OffsetRange(at, at + dice.randrange(1000)) for tp, at in reached.items()}
        reached = {tp: r.end for tp, r in ranges.items()}
        times = Watermark({tp: 1_700_000_000_000 + dice.randrange(10**6) for tp in every}, 1)
        found.append(LandedBatch(batch(number, ranges, topic_ids=ids), Counts(), times, 0))
    return found


def publish(catalog: IcebergCatalog, before: LandedBatch | None, one: LandedBatch) -> None:
    append = Append(catalog, NAME, "p", CommittedState.after(before) if before else None)
    append.publish_append(landed_to_properties(one), state_properties(CommittedState.after(one), "main"))


def metadata_file(catalog: IcebergCatalog) -> Path:
    return Path(urlparse(catalog.require(NAME).metadata_location).path)


def metadata_size(catalog: IcebergCatalog) -> int:
    return metadata_file(catalog).stat().st_size


@pytest.fixture
def batches(catalog: IcebergCatalog) -> list[LandedBatch]:
    """Five batches that are published."""
    made = landed(5)
    for before, one in zip([None, *made], made, strict=False):
        publish(catalog, before, one)
    return made


def test_metadata_does_not_grow_with_the_partitions(catalog: IcebergCatalog, batches: list[LandedBatch]) -> None:
    before = metadata_size(catalog)
    (more,) = landed(6)[5:]
    publish(catalog, batches[-1], more)
    assert metadata_size(catalog) - before < 3000, "a snapshot with its summary and its statistics"


@pytest.mark.parametrize(("topics", "partitions"), [(1, 12), (TOPICS, PARTITIONS)])
def test_a_batch_takes_what_docs_scale_says(catalog: IcebergCatalog, topics: int, partitions: int) -> None:
    every = [TopicPartition(f"shop.{t}", p) for t in range(topics) for p in range(partitions)]
    sizes = list[int]()
    made = landed(3, every)
    for before, one in zip([None, *made], made, strict=False):
        publish(catalog, before, one)
        metadata = json.loads(metadata_file(catalog).read_text())
        sizes.append(sum(len(json.dumps(metadata.get(name), separators=(",", ":"))) for name in OF_SNAPSHOTS))
    assert sizes[-1] - sizes[-2] == pytest.approx(batch_bytes(topics, partitions)[0], rel=0.2)


def test_states_and_batches_are_what_they_were(catalog: IcebergCatalog, batches: list[LandedBatch]) -> None:
    table = catalog.require(NAME)
    found = landed_batches(table, "p").batches
    assert [one.batch for one in found] == [one.batch for one in batches]
    assert [one.watermark for one in found] == [one.watermark for one in batches]
    assert PipelineBranch("p").history(table).committed == CommittedState.after(batches[-1])
    line = [s.snapshot_id for s in table.metadata.snapshots]
    table.manage_snapshots().set_current_snapshot(snapshot_id=line[1]).commit()
    history = PipelineBranch("p").history(catalog.require(NAME))
    assert (history.committed, history.undone) == tuple(CommittedState.after(batches[n]) for n in (1, 4))


def test_newest_state_needs_no_file_and_an_older_one_says_which_is_gone(
    catalog: IcebergCatalog, batches: list[LandedBatch]
) -> None:
    table = catalog.require(NAME)
    for statistics in table.metadata.statistics:
        Path(urlparse(statistics.statistics_path).path).unlink()
    committed = PipelineBranch("p").history(table).committed
    assert committed == CommittedState.after(batches[-1])
    first = landed_batches(table, "p").batches[0]
    assert (first.number, first.batch.follows(None)) == (1, True), "what is short is in the summary"
    with pytest.raises(StorageError, match=r"batchmerge-.*\.puffin"):
        len(first.batch.ranges)


def test_a_state_has_nothing_of_the_one_before(catalog: IcebergCatalog) -> None:
    first, second = landed(2)
    first = replace(first, batch=replace(first.batch, leader_epochs=dict.fromkeys(EVERY, 3)))
    first = replace(first, watermark=first.watermark.truncated(7))
    publish(catalog, None, first)
    publish(catalog, first, second)
    committed = PipelineBranch("p").history(catalog.require(NAME)).committed
    assert committed == CommittedState.after(second)
    assert (dict(committed.leader_epochs), committed.watermark.truncated_below) == ({}, None)


def test_each_file_is_its_snapshots_own(catalog: IcebergCatalog, batches: list[LandedBatch]) -> None:
    metadata = catalog.require(NAME).metadata
    named = {s.snapshot_id: s.summary.additional_properties[STATE_FILE] for s in metadata.snapshots if s.summary}
    assert {s.snapshot_id: s.statistics_path for s in metadata.statistics} == named
    for statistics in metadata.statistics:
        content = Path(urlparse(statistics.statistics_path).path).read_bytes()
        assert len(content) == statistics.file_size_in_bytes
        assert content[-statistics.file_footer_size_in_bytes :][:4] == content[:4] == content[-4:] == b"PFA1"
    catalog.require(NAME).maintenance.expire_snapshots().by_id(metadata.snapshots[0].snapshot_id).commit()
    assert len(catalog.require(NAME).metadata.statistics) == len(batches) - 1


def test_few_partitions_stay_readable_in_the_summary(catalog: IcebergCatalog) -> None:
    one = LandedBatch(batch(1), Counts(), Watermark(), 0)
    publish(catalog, None, one)
    snapshot = catalog.require(NAME).current_snapshot()
    assert snapshot
    assert snapshot.summary
    assert snapshot.summary.additional_properties[PREFIX + "offsets"] == '{"t":[10,10]}'
    assert catalog.require(NAME).metadata.statistics == []
