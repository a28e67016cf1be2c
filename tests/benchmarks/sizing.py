"""What a deployment needs, predicted from what was measured: the tables of `docs/scale.md`. Pure.

The model is linear: records cost cores by the CPU measured per million, each batch of a table costs what a small merge
costs, and metadata grows with topic-partitions and batches. How well that holds is shown beside what was measured.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from jobs.batch import Batch, Counts, LandedBatch, landed_to_properties
from jobs.destinations.bigquery import sent_rows
from jobs.destinations.clickhouse.spec import ClickHouseTable
from jobs.destinations.iceberg import cached_changes, few_changes
from jobs.iceberg.state_file import StateFile, long_parts, shortened, to_puffin
from jobs.landing import splits
from jobs.offsets import OffsetRange, TopicPartition
from jobs.watermark import Watermark
from tests.benchmarks._report import Results, shown

# Cores that are busy all the time leave nothing to catch up with, nor for maintenance.
_BUSY = 0.6
_DAY = 86_400
# Of Google's page "Quotas and limits": load jobs a day, of a table and of a project.
_LOADS_OF_TABLE, _LOADS_OF_PROJECT = 1_500, 100_000
_FORMAT = "1,000,000 records, {}, "
_MERGE = "10,000 random keys into 1,000,000 rows, CPU"
_MEMORY = "most memory (PSS)"
_LOCATION = f"s3://warehouse/{'n' * 20}/{'t' * 20}/metadata/batchmerge-{'0' * 36}.puffin"


@dataclass(frozen=True)
class Deployment:
    """What is asked for.

    Attributes:
        format: as `make bench` names it.
        interval: seconds between two commits of a table.
    """

    records: int
    format: str
    topics: int
    partitions: int
    tables: int
    interval: int


DEPLOYMENTS = (
    Deployment(10_000, "JSON", 10, 60, 10, 60),
    Deployment(100_000, "Avro, registry", 50, 500, 50, 60),
    Deployment(1_000_000, "Avro, registry", 500, 5_000, 500, 60),
    Deployment(1_000_000, "Debezium, Avro, registry", 500, 5_000, 500, 300),
)


@dataclass(frozen=True)
class Need:
    """What it takes.

    Attributes:
        cores: of Spark's executors, `_BUSY` of the time.
        memory: of them, in GB.
        commits: of catalogs, a second: the landed tables' and the tables'.
        metadata: of all landed tables, in bytes, of the snapshots of one day.
    """

    cores: float
    memory: float
    commits: float
    metadata: float


def need(wanted: Deployment, results: Results) -> Need:
    """The model."""
    of_records = wanted.records / 1e6 * _figure(results, _FORMAT.format(wanted.format) + "CPU")
    of_tables = wanted.tables / wanted.interval * _figure(results, _MERGE)
    cores = (of_records + of_tables) / _BUSY
    per_core = _figure(results, _MEMORY) / 1000 / _cores(results)
    snapshot, _ = batch_bytes(1, wanted.partitions // wanted.topics)
    batches = _DAY / wanted.interval * wanted.topics
    return Need(cores, cores * per_core, (wanted.topics + wanted.tables) / wanted.interval, batches * snapshot)


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
    return sum(len(name) + len(value) for name, value in summary.items())


def tables(results: Results) -> str:
    """All tables of the page."""
    return "\n\n".join(
        [
            "### Predicted and measured",
            _lines("records of a million | CPU s | predicted, all cores busy | measured", _measured(results)),
            "### What deployments take",
            _lines(
                "records/s | format | topics, partitions | tables | interval | cores | memory | commits/s | "
                "landed metadata a day",
                map(_row, DEPLOYMENTS, (need(one, results) for one in DEPLOYMENTS)),
            ),
            "### Offsets in a batch",
            _lines(
                "topics of a pipeline | partitions of each | bytes of the metadata | MB for 20,000 batches | "
                "bytes of the statistics file",
                (_offsets(topics, partitions) for topics, partitions in ((1, 12), (1, 1_000), (1, 5_000), (500, 10))),
            ),
            "### Cores that a batch can use",
            _lines(
                "records | landing | upsert into Iceberg, at most | into ClickHouse, `chunk_rows` as it is | "
                "rows sent to BigQuery",
                map(_usable, (100_000, 1_000_000, 10_000_000)),
            ),
            "### More workers",
            _scaling(results),
            "### BigQuery's loads",
            _lines("tables | shortest interval of a flush, by Google's limits", map(_loads, (1, 50, 500, 5_000))),
        ]
    )


def _measured(results: Results) -> Iterator[str]:
    """The model's rate on the cores that were measured on, beside the rate that was measured there."""
    for one in results.parts["formats"].measures:
        if found := re.fullmatch(r"1,000,000 records, (.*), while it works", one.what):
            cpu = _figure(results, _FORMAT.format(found[1]) + "CPU")
            rate = _cores(results) / cpu * 1e6
            yield f"{found[1]} | {cpu:.1f} | {shown((rate,), 'records/s')} | {shown(one.turns, 'records/s')}"


def _row(wanted: Deployment, found: Need) -> str:
    return (
        f"{wanted.records:,} | {wanted.format} | {wanted.topics:,}, {wanted.partitions:,} | {wanted.tables:,} | "
        f"{wanted.interval} s | {found.cores:.1f} | {found.memory:.1f} GB | {found.commits:.1f} | "
        f"{found.metadata / 1e6:,.0f} MB"
    )


def _offsets(topics: int, partitions: int) -> str:
    size, file = batch_bytes(topics, partitions)
    return f"{topics:,} | {partitions:,} | {size:,} | {size * 20_000 / 1e6:,.0f} | {file:,}"


def _usable(records: int) -> str:
    """Tasks of one batch, in one table: that many cores at most work on it."""
    landing = -(-records // splits._WORTH_A_TASK)
    chunks = -(-records // int(ClickHouseTable.model_fields["chunk_rows"].default))
    sent = min(landing, 1 + records // sent_rows._WORTH_A_TASK)
    shares = -(-records // few_changes._SHARE_CHANGES)
    merging = shares if shares <= few_changes._MOST_SHARES else cached_changes._WRITERS
    return f"{records:,} | {landing} | {merging} | {chunks} | {sent}"


def _scaling(results: Results) -> str:
    """What the benchmark `scaling` says, where it is among the results."""
    if "scaling" not in results.parts:
        return "Not measured yet (`python -m tests.benchmarks scaling`, on an idle machine)."
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


def _figure(results: Results, what: str) -> float:
    """The median of the measure that is called so, or ends so."""
    found = [one for part in results.parts.values() for one in part.measures if one.what.endswith(what)]
    turns = sorted(found[0].turns)
    return turns[len(turns) // 2]


def _cores(results: Results) -> int:
    """That were measured on."""
    return int(results.parts["formats"].machine.split()[0])


def _lines(head: str, rows: Iterable[str]) -> str:
    return "\n".join([f"| {head} |", f"|{' --- |' * (head.count(' | ') + 1)}", *(f"| {row} |" for row in rows)])
