"""How Dagster calls the parts of a pipeline: asset keys, op names, pools, tags."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import dagster as dg

    from jobs.spec.pipeline import PipelineSpec
    from jobs.spec.source import Source
    from jobs.spec.tables import Table

# Begins the key, and so the pool, of each landing.
LANDING = "landing"
PIPELINE_TAG = "batchmerge/pipeline"
# When the run was requested; it may start in a later hour.
ASKED_AT_TAG = "batchmerge/asked_at"
# Hash of the pipeline file with which the run was launched.
FILE_TAG = "batchmerge/file"
# Number of the newest landed batch after the run's landing.
LANDED_TAG = "batchmerge/landed"
# Tables that the run leaves out: an earlier run still works on them, or they are paused.
LEFT_OUT_TAG = "batchmerge/left_out"
# A launch by hand that goes on although a person has paused the pipeline.
ALTHOUGH_PAUSED_TAG = "batchmerge/although_paused"
# The process of a run, so that others can see whether it lives.
PROCESS_TAG = "batchmerge/process"
# The process that starts the run. If it ends before the run has a process of its own, the run never begins.
LAUNCHER_TAG = "batchmerge/launcher"
# Dagster's tag: seconds after which the daemon ends the run; 0: no limit.
MAX_RUNTIME_TAG = "dagster/max_runtime"
# Dagster sets it on the runs of a backfill.
BACKFILL_TAG = "dagster/backfill"
# A command's run, which gives signs of life. The value is its id: Dagster copies the tags to a run that retries it.
SIGNS_TAG = "batchmerge/signs_of_life"
# Continuous runs (`interval`).
CONTINUOUS_TAG = "batchmerge/continuous"
# Runs of maintenance: the pipeline's own runs go on beside them, so they do not have its tag.
MAINTENANCE_TAG = "batchmerge/maintenance"
# Runs of verification, likewise.
VERIFY_TAG = "batchmerge/verify"
# While it is `WORK_BEGUN`, the run counts for the limit of runs that work side by side (dagster.yaml).
WORK_TAG, WORK_BEGUN, WORK_ASIDE = "batchmerge/work", "begun", "aside"
# The run of a command on several tables: it waits until it has the pools of all of them.
COMMAND_TAG, COMMAND_WAITS, COMMAND_WORKS = "batchmerge/command", "waits", "works"
# Metadata of a table's materialization: keys of which it has an older row than was sent.
STALE_KEYS = "stale keys"


def file_hash(spec: PipelineSpec) -> str:
    """Changes with the pipeline file."""
    return hashlib.sha256(spec.model_dump_json().encode()).hexdigest()[:16]


def topic_keys(pipeline: str, source: Source) -> list[dg.AssetKey]:
    """``kafka/<topic>`` per topic; for a pattern, and with `for_each`, one asset that stands for all its topics."""
    if source.pattern is not None or source.for_each is not None:
        return [_key([source.connection, f"topics_of_{pipeline}"])]
    return [_key([source.connection, topic]) for topic in source.topics]


def landing_key(pipeline: str) -> dg.AssetKey:
    return _key([LANDING, pipeline])


def table_key(table: Table) -> dg.AssetKey:
    """``<kind>/<database>/<table>``, with the connection in it where it is not the usual one of its kind.

    A template (`for_each`) has a key that stands for all its tables: ``iceberg/shop/each_topic``.
    """
    return _key(table.full_path)


def _key(path: list[str]) -> dg.AssetKey:
    from dagster import AssetKey  # late: `status` needs other names, and no Dagster

    return AssetKey(path)


def op_name(pipeline: str, key: dg.AssetKey) -> str:
    """A name that Dagster allows for an op. A hash keeps tables apart whose names have other characters."""
    plain = re.sub(r"\W", "_", "__".join([pipeline, *key.path]))
    odd = re.search(r"\W", key.path[-1])
    return f"{plain}__h{hashlib.sha256('/'.join(key.path).encode()).hexdigest()[:8]}" if odd else plain


def pool(key: dg.AssetKey) -> str:
    """The pool of everything that writes to this table: runs, backfills, maintenance."""
    return "/".join(key.path)


def table_pool(pipeline: str, spec: PipelineSpec, table: Table) -> str:
    """A pool per table; tables that commit together share one, since one op writes them all and holds but one pool."""
    return f"together/{pipeline}" if spec.commit == "together" else pool(table_key(table))


def all_pools(pipeline: str, spec: PipelineSpec) -> set[str]:
    """The pools of the landing and of all tables."""
    return {pool(landing_key(pipeline)), *(table_pool(pipeline, spec, table) for table in spec.tables)}


def maintenance_job(pipeline: str) -> str:
    return f"{pipeline}_maintenance"


def continuous_job(pipeline: str) -> str:
    return f"{pipeline}_continuous"


def further_jobs(pipeline: str, spec: PipelineSpec) -> list[str]:
    """The names of the pipeline's jobs besides its own."""
    by_hand = [f"{pipeline}_{verb}" for verb in ("plan", "verify", "pause", "resume", "restart")]
    return [*by_hand, maintenance_job(pipeline), *([continuous_job(pipeline)] if spec.interval else [])]


def continuous_tables(spec: PipelineSpec) -> list[Table]:
    """Tables with a step of their own in a continuous run: all, or the first one if tables commit together."""
    return spec.tables[:1] if spec.commit == "together" else list(spec.tables)


def continuous_op(pipeline: str, key: dg.AssetKey) -> str:
    """The op of an asset in the continuous run; another name than that of the asset's own op."""
    return f"{op_name(pipeline, key)}__continuous"
