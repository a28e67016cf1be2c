"""Leases in a KeeperMap table: strict mode, read back after each write, no retries inside the server.

A write whose condition matches nothing succeeds silently, and one whose response is lost may have happened: so each
write of a lease is read back. Rows of topic-partitions are read back only if the response was lost or the write
refused. A successful write skips only rows of a newer owner; reading the lease then shows that owner. A write that the
client has given up may still arrive, after the same owner's next batch: then it has no effect.

With retries inside the server, a write that its client has given up could overwrite a newer one later (tried): so
there are none, and our own retries are conditional writes.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TypeVar

from jobs.batch import Batch
from jobs.destinations.clickhouse.keeper_rows import COLUMNS, NAMED, lease_of, partition_of, partition_states
from jobs.destinations.clickhouse.pages import by_page, from_text, in_pieces, to_text
from jobs.destinations.clickhouse.state import Lease, PartitionRow, PartitionWrite, require_owner
from jobs.destinations.leases import LeaseState
from jobs.groups import groups
from jobs.offsets import TopicPartition
from resources.clickhouse import ClickHouseServer, Row
from resources.clickhouse_errors import retried
from resources.errors import CommitFailed, TerminalError, Unavailable
from sql import render

P = TypeVar("P")
T = TypeVar("T")
# The most characters of names in one statement: ClickHouse accepts a parameter of 128 KB, ZooKeeper a request of 1 MB.
_MOST_NAMES_SIZE = 100_000
# The least that a name counts, so that a statement has at most a thousand rows: with its values, a row in ZooKeeper is
# about 400 bytes longer than one and a half times its name.
_ROW_SIZE = 100
_PARTS_AT_ONCE = 5
# A pipeline of more topic-partitions keeps them in pages: a row of its own takes 0.3 ms of each step.
_MOST_OWN_ROWS = 200
_STRICT = {"keeper_map_strict_mode": 1, "insert_keeper_max_retries": 0, "async_insert": 0}
# Error codes of an unknown table and an unknown database: no run has written here yet.
_NO_STATE_TABLE = (60, 81)


@dataclass(frozen=True)
class KeeperStore:
    """The leases of one table on one endpoint.

    Attributes:
        name: the lease's name: pipeline/table/shard.
        pages: those that are known to exist (`pages.py`). Read the topic-partitions before you write them.
    """

    server: ClickHouseServer
    name: str
    pages: set[str] = field(default_factory=set, compare=False)

    @property
    def table(self) -> tuple[str, str]:
        connection = self.server.connection
        return connection.database, connection.state_table

    def prepare(self) -> None:
        """Creates the KeeperMap table if it is missing."""
        connection = self.server.connection
        path = connection.keeper_path.rstrip("/") + "/state"
        self.server.execute(
            render("clickhouse", "state_table", table=self.table, cluster=connection.cluster, path=path)
        )

    def lease(self) -> Lease | None:
        found = self._rows([self.name])
        return lease_of(found[0]) if found else None

    def other_pipelines(self) -> list[str]:
        """Pipelines that have a lease of the same table."""
        _, table, shard = self.name.split("/")
        sql = render("clickhouse", "state_names", table=self.table)
        found = self._found(lambda: self.server.rows(sql, {"suffix": f"/{table}/{shard}"}))
        return sorted(row["name"].split("/")[0] for row in found if row["name"] != self.name)

    def state(self) -> LeaseState | None:
        """The lease with its topic-partitions, for readers; None before the first run."""
        sql = render("clickhouse", "state_rows", table=self.table, prefix=True)
        rows = self._found(lambda: self.server.rows(sql, {"prefix": self.name}))
        lease = next((row for row in rows if row["name"] == self.name), None)
        if lease is None:
            return None
        below = [row for row in rows if row["name"].startswith(f"{self.name}/")]
        partitions = {(state.topic, state.partition): state for state in partition_states(below)}
        return LeaseState(
            shard=int(self.name.rpartition("/")[2]),
            endpoint=self.server.endpoint,
            owner=lease["owner"],
            run_id=lease["run_id"],
            epoch=lease["epoch"],
            batch=lease["batch"],
            committed=lease_of(lease).committed,
            changed_at=lease["changed_at"],
            partitions=tuple(state for _, state in sorted(partitions.items())),
        )

    def swap(self, seen: Lease | None, new: Lease) -> Lease:
        wanted = replace(new, change=uuid.uuid4().hex)
        values = {column: getattr(wanted, NAMED.get(column, column)) for column in COLUMNS}
        values["endpoints"] = list(wanted.endpoints)
        template = "lease_swap" if seen else "lease_insert"
        sql = render("clickhouse", template, table=self.table, columns=COLUMNS)
        parameters = {"name": self.name, "seen": seen.change if seen else "", **values}

        def is_written() -> bool:
            now = self.lease()
            if now is not None and now.change == wanted.change:
                return True
            if seen and seen.owner and now:
                require_owner(seen, now, self.server.where)
            if (now.change if now else None) != (seen.change if seen else None):
                raise CommitFailed("another run was faster", where=f"{self.server.where}, lease {self.name}")
            return False

        self._write(sql, parameters, is_written)
        return wanted

    def partitions(self, wanted: Sequence[TopicPartition]) -> dict[TopicPartition, PartitionRow]:
        paged, names = by_page(wanted), {self._name(tp): tp for tp in wanted}
        # Few own rows are read with the pages, many only where these lack them.
        with_pages = list(names) if len(wanted) <= _MOST_OWN_ROWS else []
        rows = {row["name"]: row for row in self._rows([*self._page_names(paged), *with_pages])}
        found = dict[TopicPartition, PartitionRow]()
        for page, tps in paged.items():
            if page_row := rows.get(f"{self.name}/{page}"):
                self.pages.add(page)
                there = from_text(page_row["state"])
                found |= {tp: there[tp] for tp in tps if tp in there}
        own = [name for name, tp in names.items() if tp not in found]
        more = (rows[name] for name in own if name in rows) if with_pages else self._rows(own)
        return {**found, **{names[row["name"]]: partition_of(row) for row in more}}

    def write(self, held: Lease, rows: PartitionWrite, known: Collection[TopicPartition]) -> None:
        paged = by_page(rows.spans)
        if len(rows.batch.ranges) <= _MOST_OWN_ROWS:
            paged = {page: tps for page, tps in paged.items() if page in self.pages}
        in_pages = {tp for tps in paged.values() for tp in tps}
        old, new = sorted(set(rows.spans) & set(known) - in_pages), sorted(set(rows.spans) - set(known) - in_pages)
        parts = [
            (template, part)
            for template, wanted in (("partitions_update", old), ("partitions_insert", new))
            for part in groups(wanted, lambda tp: _size(self._name(tp)), _MOST_NAMES_SIZE)
        ]
        if paged:
            self._write_pages(held, rows, paged)
        _side_by_side(lambda one: self._write_rows(one[0], held, rows, one[1]), parts)
        # What confirms is followed by the lease's swap, which shows a newer owner as well.
        if rows.spans and not rows.confirms:
            require_owner(held, self.lease(), self.server.where)

    def forget(self, held: Lease) -> None:
        """Deletes the rows of topic-partitions under a lease, and then the lease itself.

        Raises:
            Interrupted: another run has taken it over.
        """

        def no_partitions() -> bool:
            require_owner(held, self.lease(), self.server.where)
            left = render("clickhouse", "state_rows", table=self.table, prefix=True)
            return not self.server.rows(left, {"prefix": f"{self.name}/"})

        def no_lease() -> bool:
            now = self.lease()
            if now is not None:
                require_owner(held, now, self.server.where)
            return now is None

        for partitions, is_gone in ((True, no_partitions), (False, no_lease)):
            sql = render("clickhouse", "state_forget", table=self.table, partitions=partitions)
            self._write(sql, {"name": self.name, "epoch": held.epoch}, is_gone)

    def _write_rows(self, template: str, held: Lease, rows: PartitionWrite, part: Sequence[TopicPartition]) -> None:
        parameters: dict[str, object] = {
            "names": [self._name(tp) for tp in part],
            "epoch": held.epoch,
            "batch": rows.batch.number,
            "phase": rows.phase.value,
        }
        if not rows.confirms:
            topics = sorted({tp.topic for tp in part})
            parameters |= {
                "firsts": [rows.spans[tp].first for tp in part],
                "lasts": [rows.spans[tp].last for tp in part],
                "topics": topics,
                "ids": [rows.batch.topic_ids.get(topic, "") for topic in topics],
                "owner": held.owner,
                "run_id": held.run_id,
                "commit_id": rows.batch.commit_id,
            }
        wanted = {tp: rows.row(tp) for tp in part}

        def is_written() -> bool:
            return self._has(held, self.partitions(list(wanted)) == wanted)

        sql = render("clickhouse", template, table=self.table, confirms=rows.confirms)
        self._write(sql, parameters, is_written, looks=False)

    def _write_pages(self, held: Lease, rows: PartitionWrite, paged: Mapping[str, Sequence[TopicPartition]]) -> None:
        """Only the lease's owner writes, so what is read here stays until it is written; an older owner is refused."""
        there = self._states(self._page_names(paged))
        texts = dict[str, str]()
        for page, tps in paged.items():
            name = f"{self.name}/{page}"
            before = from_text(there[name]) if name in there else {}
            texts[name] = to_text({**before, **{tp: rows.row(tp) for tp in tps}})
        # What confirms was just written: if it is not there, somebody has forgotten the state since.
        for exist in (True,) if rows.confirms else (True, False):
            names = [name for name in texts if (name in there) is exist]
            for part in groups(names, lambda name: len(texts[name]) + _size(name), _MOST_NAMES_SIZE):
                self._write_page_rows(held, rows.batch, {name: texts[name] for name in part}, exist)
        self.pages.update(paged)

    def _write_page_rows(self, held: Lease, batch: Batch, texts: Mapping[str, str], exist: bool) -> None:
        # A page may be larger than a parameter.
        states = {f"states_{n}": [piece] for n, piece in enumerate(in_pieces(texts.values(), _MOST_NAMES_SIZE))}
        parameters = {
            **states,
            "names": [*texts],
            "epoch": held.epoch,
            "owner": held.owner,
            "run_id": held.run_id,
            "batch": batch.number,
            "commit_id": batch.commit_id,
        }

        def is_written() -> bool:
            return self._has(held, self._states([*texts]) == texts)

        sql = render("clickhouse", "pages_write", table=self.table, exist=exist, pieces=[*states])
        self._write(sql, parameters, is_written, looks=False)

    def _has(self, held: Lease, there: bool) -> bool:
        """Whether an owner's rows are there, by what was read. Raises Interrupted if they are not, and another run has
        taken the lease over."""
        if not there:
            require_owner(held, self.lease(), self.server.where)
        return there

    def _states(self, names: Sequence[str]) -> dict[str, str]:
        """The texts of these pages, as far as they exist."""
        return {row["name"]: row["state"] for row in self._rows(names)}

    def _page_names(self, pages: Iterable[str]) -> list[str]:
        return [f"{self.name}/{page}" for page in pages]

    def _write(
        self, sql: str, parameters: dict[str, object], is_written: Callable[[], bool], looks: bool = True
    ) -> None:
        """Sends a conditional write until reading back shows it, or shows that it can never succeed.

        Args:
            looks: read back also if the server reports success.
        """

        def once() -> None:
            try:
                self.server.execute(sql, parameters, _STRICT)
            except (CommitFailed, Unavailable) as problem:
                # Refused, or the response was lost: only reading the row shows which.
                if not is_written():
                    raise Unavailable(problem.what, where=problem.where, remedy=problem.remedy) from problem
                return
            if looks and not is_written():
                raise Unavailable(
                    "Keeper did not confirm a write: reading back does not show it", where=self.server.where
                )

        retried(once)

    def _rows(self, names: Sequence[str]) -> list[Row]:
        sql = render("clickhouse", "state_rows", table=self.table, prefix=False)

        def of(part: list[str]) -> list[Row]:
            return retried(lambda: self.server.rows(sql, {"names": part}))

        parts = list(groups(names, _size, _MOST_NAMES_SIZE))
        return self._found(lambda: [row for rows in _side_by_side(of, parts) for row in rows])

    def _found(self, read: Callable[[], list[Row]]) -> list[Row]:
        """The rows that `read` returns; none if there is no state table yet."""
        try:
            return read()
        except TerminalError as problem:
            if problem.facts.get("code") in _NO_STATE_TABLE:
                return []
            raise

    def _name(self, tp: TopicPartition) -> str:
        return f"{self.name}/{tp.topic}/{tp.partition}"


def _side_by_side(work: Callable[[P], T], parts: Sequence[P]) -> list[T]:
    """The results for all parts, whose rows are different ones: Keeper is waited for most of the time."""
    with ThreadPoolExecutor(_PARTS_AT_ONCE) as threads:
        return list(threads.map(work, parts))


def _size(name: str) -> int:
    return max(len(name) + 3, _ROW_SIZE)
