"""Names in BigQuery: columns, staging tables, job ids. Pure."""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Sequence
from typing import Literal

from resources.errors import ConfigurationError

_ALLOWED = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,299}")
# Vendor page "Specifying a schema": a column's name may not begin so, in upper or lower case.
_RESERVED = ("_table_", "_file_", "_partition", "_row_timestamp", "__root__", "_colidentifier", "_change_")


def column_name(name: str, sanitize: bool) -> str | None:
    """The name in BigQuery; None where BigQuery does not allow it and `sanitize` is off.

    Sanitised: what is no letter, digit or ``_`` becomes ``_``, and ``_`` goes before a leading digit.
    """
    found = name
    if sanitize:
        found = re.sub(r"[^A-Za-z0-9_]", "_", found)
        found = f"_{found}" if not found or found[0].isdigit() else found
    if found.lower().startswith(_RESERVED):
        if not sanitize:
            return None
        found = f"_{found}"
    return found if _ALLOWED.fullmatch(found) else None


def column_names(
    names: Sequence[str], sanitize: bool, where: str, ours: frozenset[str] = frozenset()
) -> dict[str, str]:
    """Declared name to name in BigQuery, for the columns of a table or the fields of a struct.

    Args:
        ours: names that we made, which nobody can change: sanitised in any case.

    Raises:
        ConfigurationError: a name is not allowed, or two names become one (BigQuery does not tell case apart).
    """
    found: dict[str, str] = {}
    owner: dict[str, str] = {}
    for name in names:
        new = column_name(name, sanitize or name in ours)
        if new is None:
            raise ConfigurationError(
                f"BigQuery does not allow a column named {name!r}",
                where=where,
                remedy="rename it in a transform, or set `sanitize_names: true`",
            )
        if new.lower() in owner:
            raise ConfigurationError(
                f"the columns {owner[new.lower()]!r} and {name!r} both become {new!r} in BigQuery",
                where=where,
                remedy="rename one of them in a transform",
            )
        owner[new.lower()] = name
        found[name] = new
    return found


def staging_prefix(table: str, suffix: str) -> str:
    """``dataset._<dest>_<suffix>_``: begins the names of all tables that we make beside a table."""
    dataset, dest = table.split(".")
    return f"{dataset}._{dest}_{suffix}_"


def staging_name(table: str, suffix: str, pipeline: str, generation: str, epoch_ms: int) -> str:
    """``dataset._<dest>_<suffix>_<pipeline>_<generation>_<epoch>``: a name per generation."""
    return f"{staging_prefix(table, suffix)}{pipeline}_{generation}_{epoch_ms}"


def answer_name(table: str, suffix: str, pipeline: str) -> str:
    """``dataset._<dest>_<suffix>_<pipeline>_verify_<id>``: a copy of the rows for one `verify`."""
    return f"{staging_prefix(table, suffix)}{pipeline}_verify_{uuid.uuid4().hex[:12]}"


def new_job_id(pipeline: str, purpose: str) -> str:
    """The id of a job that is one run's alone."""
    return f"batchmerge-{pipeline}-{purpose}-{uuid.uuid4().hex}"


def state_prefix(table_id: str, incarnation: int) -> str:
    """Prefix of the ids of jobs that create a table's state row, the same for all pipelines; `incarnation` is when the
    state table was created."""
    mark = hashlib.sha256(table_id.encode()).hexdigest()[:12]
    return f"batchmerge-{mark}-state-{incarnation}"


def attempts_prefix(pipeline: str, table: str, generation: str, work: Literal["load", "merge"], batch: int) -> str:
    """Prefix of the ids of attempts at a load, or of all jobs that are applied to one committed state; `batch` is the
    first after it. The generation's random id keeps different tables apart."""
    return f"batchmerge-{pipeline}-{table.replace('.', '-')}-{generation}-{work}-{batch}"
