"""Repairs what a killed BigQuery emulator leaves: jobs that say RUNNING for ever.

BigQuery itself always knows what became of a job. The emulator writes a job's outcome after its data, in another
database file, so after a kill a job may be over in the one and running in the other. Its data is in DuckLake, which
keeps a list of snapshots: a job has taken effect if a snapshot later than its start has changed the job's table.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

_TARGET = re.compile(r"\b(?:MERGE(?:\s+INTO)?|INSERT\s+INTO|UPDATE|DELETE\s+FROM)\s+`([^`]+)`", re.IGNORECASE)


def settle_jobs(data: Path) -> list[str]:
    """Writes the outcome of every job that is not done, while the emulator is not running; returns their ids.

    Args:
        data: the emulator's data folder.
    """
    import duckdb

    if not (data / "emulator.duckdb").exists():
        return []
    with duckdb.connect(str(data / "emulator.duckdb")) as catalog:
        found = catalog.sql("SELECT project_id, job_id, resource FROM jobs WHERE state <> 'DONE'").fetchall()
        for project, job_id, text in found:
            job = json.loads(text)
            job["status"] = {"state": "DONE"}
            if not _took_effect(data / f"{project}.ducklake", job):
                error = {"reason": "stopped", "message": "The emulator was killed before the job took effect"}
                job["status"] |= {"errorResult": error, "errors": [error]}
            catalog.execute(
                "UPDATE jobs SET state = 'DONE', resource = ? WHERE project_id = ? AND job_id = ?",
                [json.dumps(job), project, job_id],
            )
    return [job_id for _, job_id, _ in found]


def _took_effect(lake: Path, job: dict[str, Any]) -> bool:
    import duckdb

    target, started = _target(job), job["statistics"].get("startTime")
    if target is None or started is None or not lake.exists():
        return False
    dataset, table = target
    with duckdb.connect(str(lake)) as metadata:
        changes = metadata.execute(
            "SELECT c.changes_made, t.table_id "
            "FROM ducklake_snapshot s JOIN ducklake_snapshot_changes c USING (snapshot_id), "
            "ducklake_table t JOIN ducklake_schema d USING (schema_id) "
            "WHERE d.schema_name = ? AND t.table_name = ? AND t.end_snapshot IS NULL AND s.snapshot_time >= ?",
            [dataset, table, datetime.fromtimestamp(int(started) / 1000, UTC)],
        ).fetchall()
    return any(
        {f"inserted_into_table:{table_id}", f"deleted_from_table:{table_id}"} & set(made.split(","))
        for made, table_id in changes
    )


def _target(job: dict[str, Any]) -> tuple[str, str] | None:
    """Dataset and table that the job changes."""
    configuration = job["configuration"]
    if load := configuration.get("load"):
        reference = load["destinationTable"]
        return reference["datasetId"], reference["tableId"]
    found = _TARGET.search(configuration.get("query", {}).get("query", ""))
    if found is None:
        return None
    _, dataset, table = found[1].split(".")
    return dataset, table
