"""A pipeline of 5,000 topic-partitions: seconds of a plan and of commits, and how the table's metadata grows.

Without Kafka and Spark: what is measured is what grows with the partitions, not with the records.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from jobs.batch import CommittedState, LandedBatch, landed_to_properties
from jobs.iceberg.attempt import Attempt
from jobs.iceberg.history import landed_batches, state_properties
from jobs.iceberg.schema import iceberg_schema
from jobs.lineage import next_batches
from resources.iceberg import IcebergCatalog
from tests.kit.lake import lake as lake_in
from tests.unit.test_many_partitions import landed, log


def commit(lake: IcebergCatalog, committed: CommittedState | None, made: LandedBatch) -> None:
    """What landing does after Spark has written."""
    attempt = Attempt(lake, "b.t", "p", committed)
    attempt.publish_append(landed_to_properties(made), state_properties(CommittedState.after(made), "main"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=50)
    parser.add_argument("--partitions", type=int, default=100)
    parser.add_argument("--batches", type=int, default=50)
    wanted = parser.parse_args()
    state, topics = log(wanted.topics, wanted.partitions)
    print(f"{wanted.topics} topics x {wanted.partitions} partitions")
    began = time.monotonic()
    made = landed(state, topics)
    print(f"plan of a batch: {time.monotonic() - began:.3f} s")
    print(f"summary: {sum(map(len, landed_to_properties(made).values())):,} bytes")
    with tempfile.TemporaryDirectory() as folder:
        lake = lake_in(Path(folder))
        lake.create("b.t", iceberg_schema(pa.schema([pa.field("id", pa.int64())])))
        committed: CommittedState | None = None
        for number in range(1, wanted.batches + 1):
            batch = replace(made.batch, number=number, commit_id=f"c{number}", previous_commit_id=f"c{number - 1}")
            began = time.monotonic()
            commit(lake, committed, replace(made, batch=batch))
            committed = CommittedState.after(replace(made, batch=batch))
            if number in (1, wanted.batches):
                size = len(lake.require("b.t").metadata.model_dump_json())
                print(f"commit {number}: {time.monotonic() - began:.3f} s, metadata {size / 1e6:.1f} MB")
        began = time.monotonic()
        known = landed_batches(lake.require("b.t").metadata, "p").batches
        waiting = next_batches("t", None, known, True)
        print(f"{len(waiting)} landed batches read and checked: {time.monotonic() - began:.3f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
