"""Which rows of tables without a unique key a replay can recognize: by the coordinates of their records.

Without `metadata_columns: [topic, partition, offset]` nothing shows which records a row is from. Where the option was
added later, the rows of before have none: a replay of their batches would write them a second time. Where the table was
merged by key before, its row of a key has the coordinates of one record of many. So the committed state says up to
which batch this is so (`CommittedState.untraced`).
"""

from __future__ import annotations

from jobs.batch import CommittedState
from jobs.destinations.base import Destination
from jobs.destinations.registry import kind_of
from jobs.pipeline import Pipeline
from resources.errors import ConfigurationError

_OPTION = "`metadata_columns: [topic, partition, offset]`"


def check_coordinates(pipeline: Pipeline, destination: Destination) -> None:
    """Requires coordinates in a table without a unique key, since they distinguish its rows.

    Raises:
        ConfigurationError: the table lacks coordinates, or the column that tells which of two topics a row is from.
    """
    table = destination.table
    if not table.has_coordinates:
        raise ConfigurationError(
            f"a table of mode {table.mode} can be replayed only by its rows' coordinates, and the file asks for none",
            where=destination.name,
            remedy=f"add {_OPTION}: what is merged from then on can be replayed. To replay all of it, fill a new table "
            "with this option (another name in `tables`)",
        )
    recreated = pipeline.intermediate.recreated()
    if not table.has_unique_key and recreated and not kind_of(table).capabilities.tells_topics_apart:
        raise ConfigurationError(
            f"{', '.join(sorted(recreated))} was recreated: rows of two topics may have the same offset, and no column "
            "shows which topic a row is from",
            where=destination.name,
            remedy="fill a new table by a pipeline of another name",
        )
    destination.check_replay()


def check_batches(destination: Destination, committed: CommittedState, first: int) -> None:
    """Requires that the table can take batches from `first` on a second time; raises ConfigurationError."""
    if first <= (untraced_to := committed.untraced(destination.table)):
        raise _untraced(destination, untraced_to, f"begin at batch {untraced_to + 1}")


def check_rereading(pipeline: Pipeline, destination: Destination, from_kafka: bool) -> None:
    """Requires that the table can merge records that are read again (a batch that revises others).

    Dead letters are no rows yet, so an append table takes them; but their deletes cannot name rows of a table of mode
    `delete` that have no coordinates.

    Args:
        from_kafka: any records, not only dead letters.

    Raises:
        ConfigurationError: rows would come twice, or would not be deleted.
    """
    check_coordinates(pipeline, destination)
    committed = destination.committed()
    untraced_to = committed.untraced(destination.table) if committed else 0
    if untraced_to and (from_kafka or destination.table.mode == "delete"):
        raise _untraced(destination, untraced_to)


def _untraced(destination: Destination, untraced_to: int, way: str = "") -> ConfigurationError:
    new = f"fill a new table with {_OPTION} (another name in `tables`)"
    return ConfigurationError(
        f"rows of batches up to {untraced_to} were written without coordinates, or one for each key (mode upsert or "
        "upsert_delete): nothing shows which of their records the table has",
        where=destination.name,
        remedy=f"{way}; or {new}" if way else new,
        untraced_to=untraced_to,
    )
