"""What a deployment needs, predicted from what was measured: the tables of `docs/scale.md`. Pure.

The model: records cost what landing a million costs without the start of a run, each commit of a table what a merge of
so many changes costs (`_costs`), and metadata, which runs read (`_metadata`), grows with topic-partitions and batches.
How well that holds is shown beside what was measured.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from jobs.batch import Batch, Counts, LandedBatch
from jobs.destinations.bigquery import sent_rows
from jobs.destinations.clickhouse.spec import ClickHouseTable
from jobs.destinations.iceberg import cached_changes, few_changes
from jobs.iceberg.state_file import StateFile, long_parts, shortened, to_puffin
from jobs.landed_properties import landed_to_properties
from jobs.landing import splits
from jobs.offsets import OffsetRange, TopicPartition
from jobs.spec.maintenance import _MOST_BATCHES
from jobs.watermark import Watermark
from tests.benchmarks._costs import APPEND, CLICKHOUSE, UPSERT, Compared, Costs
from tests.benchmarks._metadata import Reading
from tests.benchmarks._report import Results, shown

# Cores that are busy all the time leave nothing to catch up with, nor for maintenance.
_BUSY = 0.6
_DAY = 86_400
# Of Google's page "Quotas and limits": load jobs a day, of a table and of a project.
_LOADS_OF_TABLE, _LOADS_OF_PROJECT = 1_500, 100_000
# What Iceberg itself writes of a snapshot: its ids, counts and times, and its manifest list's path.
_SNAPSHOT = 500
_LOCATION = f"s3://warehouse/{'n' * 20}/{'t' * 20}/metadata/batchmerge-{'0' * 36}.puffin"


@dataclass(frozen=True)
class Deployment:
    """What is asked for.

    Attributes:
        format: as `make bench` names it.
        into: the tables; each record goes into one of them.
        interval: seconds between two commits of a table.
        pipelines: that the topics are divided among, each with a run that is one process.
        kept: how many batches maintenance leaves in each table.
    """

    records: int
    format: str
    topics: int
    partitions: int
    tables: int
    into: str
    interval: int
    pipelines: int
    kept: int


_FEW = 100
DEPLOYMENTS = (
    Deployment(10_000, "JSON", 10, 60, 10, UPSERT, 60, 1, _MOST_BATCHES),
    Deployment(100_000, "Avro, registry", 50, 500, 50, UPSERT, 60, 5, _MOST_BATCHES),
    Deployment(1_000_000, "Avro, registry", 500, 5_000, 500, UPSERT, 60, 10, _FEW),
    Deployment(1_000_000, "Avro, registry", 500, 5_000, 500, APPEND, 60, 10, _FEW),
    Deployment(1_000_000, "Avro, registry", 500, 5_000, 500, CLICKHOUSE, 60, 10, _FEW),
    Deployment(1_000_000, "Debezium, Avro, registry", 500, 5_000, 500, UPSERT, 300, 10, _FEW),
)


@dataclass(frozen=True)
class Need:
    """What it takes.

    Attributes:
        cores: of Spark's executors, `_BUSY` of the time.
        memory: of them, in GB.
        commits: of catalogs, a second: the landed tables' and the tables'.
        metadata: of all landed tables, in bytes, of the snapshots of one day.
        of_run: cores that the process of each run is busy with, beside its tasks: it has one for its Python.
        of_run_elsewhere: the same with a catalog that is not in a database.
        read_elsewhere: bytes of metadata that it then reads a second.
    """

    cores: float
    memory: float
    commits: float
    metadata: float
    of_run: float
    of_run_elsewhere: float
    read_elsewhere: float


def need(wanted: Deployment, results: Results) -> Need:
    """The model."""
    costs = Costs(results)
    of_records = wanted.records / 1e6 * costs.formats[wanted.format]
    changes = wanted.records * wanted.interval / wanted.tables
    of_tables = wanted.tables / wanted.interval * costs.merge(wanted.into, changes)
    cores = (of_records + of_tables) / _BUSY
    snapshot, _ = batch_bytes(1, wanted.partitions // wanted.topics)
    batches = _DAY / wanted.interval * wanted.topics
    topics, tables = wanted.topics // wanted.pipelines, wanted.tables // wanted.pipelines
    reading = Reading(topics, tables, wanted.into != CLICKHOUSE, wanted.interval, wanted.kept, snapshot)
    of_batches = topics * costs.few / wanted.interval
    return Need(
        cores=cores,
        memory=cores * costs.memory,
        commits=(wanted.topics + wanted.tables) / wanted.interval,
        metadata=batches * snapshot,
        of_run=of_batches + reading.cores(remembers=True),
        of_run_elsewhere=of_batches + reading.cores(remembers=False),
        read_elsewhere=reading.bytes(remembers=False),
    )


def batch_bytes(topics: int, partitions: int) -> tuple[int, int]:
    """What one landed batch takes of the table's metadata, and of a file of its own, in bytes: of so many topics, with
    so many partitions each."""
    names = {f"shop.public.table_{n}": f"AAAAAAAAAAAAAAAAAAAA{n:02}" for n in range(topics)}
    # Offsets that have nothing in common, as those of a busy topic: they are stored compressed.
    places = np.random.default_rng(1).integers(0, 10**9, (len(names), partitions)).tolist()
    ranges = {
        TopicPartition(topic, partition): OffsetRange(at, at + 1_000 + at % 499)
        for topic, row in zip(names, places, strict=True)
        for partition, at in enumerate(row)
    }
    batch = Batch("shop", 12_345, "0" * 36, "0" * 36, ranges, names, 1_795_000_000_000, "0" * 16)
    ends = {tp: taken.end for tp, taken in ranges.items()}
    newest = {tp: batch.planned_at - taken.end % 9_973 for tp, taken in ranges.items()}
    watermark = Watermark().advance(ranges, newest, ends, batch.planned_at)
    found = landed_to_properties(LandedBatch(batch, Counts(read=1, landed=1), watermark, 0))
    if not (long := long_parts(found)):
        return _size(found), 0
    file, footer = to_puffin(long)
    registered = StateFile(_LOCATION, len(file), footer).registered(1).statistics.model_dump_json(by_alias=True)
    return _size(shortened(found, _LOCATION)) + len(registered), len(file)


def _size(summary: Mapping[str, str]) -> int:
    return len(json.dumps(dict(summary), separators=(",", ":"))) + _SNAPSHOT


def tables(results: Results) -> str:
    """All tables of the page."""
    return "\n\n".join(
        [
            "### Costs",
            _lines("what | measured", _costs(Costs(results))),
            "### Predicted and measured",
            _lines("what | predicted | measured | predicted / measured", map(_compared, Costs(results).compared())),
            "### What deployments take",
            _lines(
                "records/s | format | topics, partitions | tables | interval | cores | memory | commits/s | "
                "landed metadata a day",
                map(_row, DEPLOYMENTS, (need(one, results) for one in DEPLOYMENTS)),
            ),
            "### What each run takes",
            _lines(
                "topics, pipelines | tables | interval | batches kept | cores of a run, at most | "
                f"with {_MOST_BATCHES:,} batches kept | with a catalog that is not in a database",
                (_run(one, results) for one in DEPLOYMENTS),
            ),
            "### Offsets in a batch",
            _lines(
                "topics of a pipeline | partitions of each | bytes of the metadata | MB for 20,000 batches | "
                "bytes of the statistics file",
                (_offsets(topics, partitions) for topics, partitions in ((1, 12), (1, 1_000), (1, 5_000), (500, 10))),
            ),
            "### Cores that a batch can use",
            _lines(
                "records | cores | landing | upsert into Iceberg, at most | into ClickHouse, `chunk_rows` as it is | "
                "rows sent to BigQuery",
                (_usable(*one) for one in product((100_000, 1_000_000, 10_000_000), (8, 100))),
            ),
            "### More workers",
            _scaling(results),
            "### BigQuery's loads",
            _lines("tables | shortest interval of a flush, by Google's limits", map(_loads, (1, 50, 500, 5_000))),
        ]
    )


def _costs(costs: Costs) -> Iterator[str]:
    yield f"start of a run | {costs.start:.1f} CPU s"
    for name, cpu in costs.formats.items():
        yield f"1,000,000 records, {name}, landed and appended | {cpu:.1f} CPU s"
    yield f"a few records: their landing, and their merge into a table | {costs.few:.2f} CPU s"
    for into in (UPSERT, CLICKHOUSE):
        for changes, cpu in costs.merges(into).items():
            if changes:
                yield f"merge of {changes:,} changes into a table ({into}) | {cpu:.1f} CPU s"
    yield f"memory for each core | {costs.memory:.2f} GB"


def _compared(one: Compared) -> str:
    ratio = one.predicted / one.measured
    return f"{one.what} | {one.predicted:.1f} CPU s | {one.measured:.1f} CPU s | {ratio:.2f}"


def _row(wanted: Deployment, found: Need) -> str:
    return (
        f"{wanted.records:,} | {wanted.format} | {wanted.topics:,}, {wanted.partitions:,} | "
        f"{wanted.tables:,}, {wanted.into} | {wanted.interval} s | {found.cores:.1f} | {found.memory:.1f} GB | "
        f"{found.commits:.1f} | {found.metadata / 1e6:,.0f} MB"
    )


def _run(wanted: Deployment, results: Results) -> str:
    found, usual = need(wanted, results), need(replace(wanted, kept=_MOST_BATCHES), results)
    return (
        f"{wanted.topics:,}, {wanted.pipelines:,} | {wanted.tables:,}, {wanted.into} | {wanted.interval} s | "
        f"{wanted.kept:,} | {found.of_run:.2f} | {usual.of_run:.2f} | "
        f"{found.of_run_elsewhere:.2f}, {found.read_elsewhere / 1e6:,.1f} MB/s"
    )


def _offsets(topics: int, partitions: int) -> str:
    size, file = batch_bytes(topics, partitions)
    return f"{topics:,} | {partitions:,} | {size:,} | {size * 20_000 / 1e6:,.0f} | {file:,}"


def _usable(records: int, cores: int) -> str:
    """Tasks of one batch, in one table, on so many cores: that many of them at most work on it."""
    landing = min(-(-records // splits._WORTH_A_TASK), splits._PIECES * cores)
    chunks = -(-records // int(ClickHouseTable.model_fields["chunk_rows"].default))
    sent = min(cores, landing, 1 + records // sent_rows._WORTH_A_TASK)
    shares = -(-records // few_changes._SHARE_CHANGES)
    merging = cached_changes.writers(cores) if few_changes.are_too_many(shares, lambda: cores) else shares
    return f"{records:,} | {cores} | {landing} | {merging} | {chunks} | {sent}"


def _scaling(results: Results) -> str:
    """What the benchmark `scaling` says."""
    return _lines(
        "what | measured | by Amdahl's law",
        (
            f"{one.what} | {shown(one.turns, one.unit)} | {'; '.join(shown(t, one.unit) for t in one.beside.values())}"
            for one in results.parts["scaling"].measures
            if one.unit == "times"
        ),
    )


def _loads(count: int) -> str:
    return f"{count:,} | {max(_DAY / _LOADS_OF_TABLE, _DAY * count / _LOADS_OF_PROJECT):,.0f} s"


def _lines(head: str, rows: Iterable[str]) -> str:
    return "\n".join([f"| {head} |", f"|{' --- |' * (head.count(' | ') + 1)}", *(f"| {row} |" for row in rows)])
