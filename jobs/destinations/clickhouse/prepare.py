"""Creates a table on one endpoint, or adapts its schema to the pipeline file."""

from __future__ import annotations

import logging

from jobs.batch import CommittedState
from jobs.destinations.clickhouse import present_table, wanted_table
from jobs.destinations.clickhouse.checks import check_endpoints, check_spread, check_takes_rows
from jobs.destinations.clickhouse.present_table import Present
from jobs.destinations.clickhouse.replacing import check_replaces
from jobs.destinations.clickhouse.shard import Shard
from jobs.destinations.clickhouse.state import Lease
from jobs.destinations.clickhouse.window import windows
from jobs.destinations.requirements import require_create
from resources.errors import ConfigurationError

_LOG = logging.getLogger("batchmerge")


def prepare(shard: Shard, dry_run: bool) -> list[str]:
    """Creates or adapts the table; with `dry_run` only returns what it would do.

    Raises:
        ConfigurationError: this pipeline cannot write the table. TableReplaced: it is not the one with our batches.
        SchemaRefused: the table cannot be adapted to the file.
    """
    known = shard.store.lease()
    lease = known or Lease()
    check_endpoints(shard.where, lease, shard.endpoints)
    check_spread(shard.where, lease, shard.spread_by, shard.statements.spread_by_names)
    present = shard.present()
    shard.check_table(lease, present)
    if not lease.state:
        shard.check_only_writer()
    if not dry_run and known is None:
        shard.store.prepare()
    if present:
        check_takes_rows(shard.where, lease, present)
        done = _follow(shard, present, dry_run)
        return [*done, *_add_origin_columns(shard, present, dry_run, lease.committed)]
    require_create(shard.table, shard.where)
    if not dry_run:
        wanted_table.create(shard.server, shard.layout)
        _prepare_side_table(shard)
    return [f"create {shard.where}: {shard.layout.summary}"]


def _prepare_side_table(shard: Shard) -> None:
    if present_table.describe(shard.server, shard.statements.side_table) is None:
        shard.server.execute(shard.statements.create_side_table())


def _follow(shard: Shard, present: Present, dry_run: bool) -> list[str]:
    moving = present.partition_columns - set(shard.layout.keys)
    if shard.layout.versioned and moving:
        raise ConfigurationError(
            f"the table is partitioned by {', '.join(sorted(moving))}, which may change while the key stays",
            where=shard.where,
            remedy="partition by key columns only, or use the mode append",
        )
    check_replaces(shard.layout, present)
    if dry_run:  # a merge looks again, and knows its chunks
        for window in windows(shard.server, shard.layout.path, present):
            window.check(1)
    changes = present_table.plan_changes(shard.server, shard.layout, present)
    if not dry_run:
        present_table.apply_changes(shard.server, shard.layout, present, changes)
        _prepare_side_table(shard)
    return [f"{shard.where}: {change}" for change in changes]


def _add_origin_columns(shard: Shard, present: Present, dry_run: bool, committed: CommittedState | None) -> list[str]:
    """Adds columns for each row's topic id and step to an append table that somebody else made.

    Without them a table works as before: records are identified by their topic's name.
    """
    names = present_table.missing_origin(shard.layout, present)
    if not names or not shard.table.evolve.add_columns:
        return []
    if not dry_run:
        try:
            present_table.add_origin(shard.server, shard.layout, names, committed.topic_ids if committed else {})
        except ConfigurationError as problem:
            _LOG.warning("%s: %s cannot be added: %s", shard.where, ", ".join(names), problem)
            return []
    return [f"{shard.where}: add hidden column {name}" for name in names]
