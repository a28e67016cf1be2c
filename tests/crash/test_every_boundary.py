"""kill -9 of the Dagster run at every boundary of every kind and mode: the next run goes on, and no row is lost or
doubled.

What dies is `batchmerge run`, the process of run and steps on a real Dagster instance. A boundary that a table does not
reach fails its test. The log of a pipeline grows from kill to kill, so that each also meets what the ones before left.
"""

from __future__ import annotations

import json
import random
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache

import pytest

from jobs import failpoints
from jobs.connections_file import load_connections
from jobs.dead_letters.listing import summary
from jobs.destinations.registry import kinds
from jobs.pipeline import Pipeline
from jobs.spec.pipeline import PipelineSpec
from resources.connections import Connections
from resources.kafka_groups import group_offsets
from tests.kit import model
from tests.kit.dead_letters import LARGE, read_all
from tests.kit.events import check_all_published, check_groups, effective, events
from tests.kit.flow import Flow
from tests.kit.kinds import KINDS, runnable
from tests.kit.model import Row
from tests.kit.project import Project
from tests.kit.records import COLUMNS, Record, bootstrap, produce, random_changes
from tests.kit.rest_catalog import rest_connections
from tests.kit.story import COORDINATES, Target, targets
from tests.kit.truncations import CHANGES, VALUE, change, expected, truncation

pytestmark = pytest.mark.crash

RUN = ("run", "--until-caught-up")
# Only a run that finds another's lease reaches it.
TAKEN_OVER = "clickhouse.taken_over"


def merge_points(kind: str) -> Sequence[str]:
    """The boundaries of a merge into a table of this kind."""
    return ("merge.planned", *(kinds()[kind].failpoints or failpoints.MERGE[1:]))


@dataclass
class Log:
    """A pipeline with some tables, whose log grows from kill to kill.

    Attributes:
        parts: of the pipeline file, beside or instead of the usual ones.
        bad: the part of malformed records.
        expected: the rows that are left of records in a mode.
    """

    project: Project
    topic: str
    tables: Sequence[Target]
    parts: dict[str, object] = field(default_factory=dict)
    bad: float = 0.02
    records: list[Record] = field(default_factory=list)
    expected: Callable[[Sequence[Record], str], list[Row]] = model.expected

    def __post_init__(self) -> None:
        self.flow = Flow(self.topic, [], max_records=60)
        self.write()

    @property
    def connections(self) -> Connections:
        return load_connections(self.project.connections)

    @property
    def document(self) -> dict[str, object]:
        tables = [
            {
                **{"kind": target.kind.name, "table": self.table(target), "mode": target.mode},
                **{"metadata_columns": COORDINATES, **target.kind.options},
            }
            for target in self.tables
        ]
        return {**self.flow.spec_document, "control": {"enabled": False}, "tables": tables, **self.parts}

    @property
    def pipeline(self) -> Pipeline:
        return Pipeline(self.flow.name, PipelineSpec.model_validate(self.document), self.connections)

    def table(self, target: Target) -> str:
        return f"tests.{self.flow.name}_{target.kind.name}_{target.mode}"

    def write(self) -> None:
        self.project.write(self.flow.name, self.document)

    def edit(self, **parts: object) -> None:
        """Replaces parts of the pipeline file."""
        self.parts.update(parts)
        self.write()

    def tell(self, records: Sequence[Record]) -> None:
        produce(bootstrap(self.connections), self.topic, records)
        self.records.extend(records)

    def grow(self) -> None:
        self.tell(random_changes(len(self.records), 100, 30, 2, self.bad))

    def kill(self, point: str, turn: int = 1, command: Sequence[str] = RUN) -> None:
        self.project.kill(point, turn, *command, self.flow.name)

    def finish(self, why: object) -> None:
        """Another run, and then every table is as it has to be."""
        code, output = self.project.call(*RUN, self.flow.name)
        assert code == 0, (why, output)
        self.check(why)

    def check(self, why: object) -> None:
        for target in self.tables:
            assert self.rows(target) == self.expected(self.records, target.mode), (why, str(target))

    def rows(self, target: Target) -> list[Row]:
        found = target.kind.rows(self.connections, self.table(target))
        return model.sorted_rows((row["id"], row["name"], row["amount"]) for row in found)


NewLog = Callable[..., Log]


@pytest.fixture(scope="module")
def new_log(project: Project, module_topic: Callable[..., str]) -> NewLog:
    def make(tables: Sequence[Target], **parts: object) -> Log:
        return Log(project, module_topic(partitions=2), tables, parts)

    return make


@pytest.fixture(scope="module")
def logs(new_log: NewLog) -> Callable[[str], Log]:
    """By kind: a pipeline with one table of each of its modes."""
    return cache(lambda kind: new_log([t for t in targets() if t.kind.name == kind]))


@pytest.mark.parametrize(("kind", "point"), [(kind, point) for kind in KINDS for point in merge_points(kind)])
def test_killed_merge(kind: str, point: str, logs: Callable[[str], Log]) -> None:
    """In the merge of each mode's table, the last one first: those before it in a run have nothing left to mend."""
    log = logs(kind)
    turns = list(range(len(log.tables), 0, -1))
    if point == TAKEN_OVER:
        for turn in turns:
            log.grow()
            log.kill("clickhouse.before", turn)
        # Each run also takes over the table of the kill before it.
        turns = [1, *[2] * (len(turns) - 1)]
    for turn in turns:
        log.grow()
        log.kill(point, turn)
    log.finish(point)


@pytest.fixture(scope="module")
def everything(new_log: NewLog, module_topic: Callable[..., str]) -> Log:
    """A table of every kind, with commit events and a topic of dead letters."""
    parts = {
        "control": {"topic": f"control-{uuid.uuid4().hex[:8]}"},
        "dead_letters": {"topic": module_topic("dlq")},
    }
    log = new_log(targets("upsert_delete"), **parts)
    log.bad = 0.05
    return log


@pytest.mark.parametrize("point", [*failpoints.LANDING, *failpoints.EVENTS, *failpoints.DEAD_LETTERS])
def test_killed_run(point: str, everything: Log) -> None:
    log = everything
    log.grow()
    log.kill(point)
    log.finish(point)
    control = str(log.pipeline.spec.control.topic)
    published = events(log.connections, control)
    check_all_published(log.pipeline, published)
    check_groups(log.pipeline)
    assert {e.type for e in published if e not in effective(published)} <= {"commit_request"}
    broken = [r.value.encode() for r in log.records if isinstance(r.value, str)]
    sent = read_all(log.connections, str(log.pipeline.spec.dead_letters.topic), len(broken))
    assert Counter(message.value() for message in sent) == Counter(broken)


@pytest.mark.parametrize("point", failpoints.DEAD_LETTERS)
def test_killed_while_what_tables_refuse_is_sent(point: str, new_log: NewLog, module_topic: Callable[..., str]) -> None:
    """In the sending of each table, which has a position of its own."""
    odd = {f"odd_{k.name}": k.unrepresentable for k in KINDS.values() if k.unrepresentable and runnable(k)}
    tables = [target for target in targets("append") if f"odd_{target.kind.name}" in odd]
    log = new_log(tables, dead_letters={"topic": module_topic("dlq")})
    source = dict(log.flow.spec_document["source"])  # type: ignore[call-overload]
    columns = {**COLUMNS, **{name: kind for name, (kind, _) in odd.items()}}
    log.edit(source={**source, "value": {"format": "json", "columns": columns}})
    fine: dict[str, object] = {name: [] if kind.startswith("array") else None for name, (kind, _) in odd.items()}

    def put(key: int, **values: object) -> Record:
        return Record(0, key, {"id": key, "name": "n", "amount": 1.0, "op": "u", **fine, **values})

    def grow() -> None:
        first = len(log.records)
        log.tell([put(first), *(put(first + n, **{name: bad}) for n, (name, (_, bad)) in enumerate(odd.items(), 1))])

    # The first to be sent is that nothing landed is a dead letter.
    for turn in range(1 + len(tables), 1, -1):
        grow()
        log.kill(point, turn)
    code, output = log.project.call(*RUN, log.flow.name)
    assert code == 0, output
    refused = {name: [r.key for r in log.records if r.value[name] != fine[name]] for name in odd}  # type: ignore[index]
    for target in tables:
        held = [r for r in log.records if r.key not in refused[f"odd_{target.kind.name}"]]
        assert log.rows(target) == model.expected(held, target.mode)
    wanted = Counter(key for keys in refused.values() for key in keys)
    sent = read_all(log.connections, str(log.pipeline.spec.dead_letters.topic), wanted.total())
    assert Counter(json.loads(bytes(message.value() or b""))["id"] for message in sent) == wanted


def test_killed_before_the_group_without_a_control_topic(new_log: NewLog) -> None:
    log = new_log([Target(KINDS["iceberg"], "upsert")])
    log.grow()
    log.kill(failpoints.GROUP)
    log.finish(failpoints.GROUP)
    landed = log.pipeline.intermediate.committed()
    assert landed
    assert group_offsets(log.pipeline.kafka, log.pipeline.group, landed.offsets) == dict(landed.offsets)


# By kind: the boundaries of a replay of landed batches.
REPLAY = {
    "iceberg": ["merge.begun", "merge.written", "merge.published"],
    "clickhouse": ["clickhouse.leased"],
    "bigquery": ["bigquery.replay-loaded", "bigquery.submitted"],
}


@pytest.mark.parametrize(("kind", "point"), [(kind, point) for kind, points in REPLAY.items() for point in points])
def test_killed_replay(kind: str, point: str, logs: Callable[[str], Log]) -> None:
    """In that of the last table; the next run goes on, and the replay can be repeated."""
    log = logs(kind)
    log.grow()
    log.finish("before the replay")
    command = ("replay", "--batches", "1-3")
    log.kill(point, len(log.tables), command)
    log.grow()
    log.finish(point)
    code, output = log.project.call(*command, log.flow.name)
    assert code == 0, output
    log.check(point)


@pytest.mark.parametrize(
    "point", ["merge.written", "bigquery.submitted", "clickhouse.truncating", "clickhouse.truncated"]
)
def test_killed_truncation(point: str, truncated: Log) -> None:
    """Rows that were there before it go, those of a larger order stay, whatever came in between."""
    log = truncated
    first, dice = len(log.records), random.Random(len(log.records))
    log.tell([change(dice, lsn) for lsn in range(first, first + 40)])
    log.finish("before the truncation")
    log.tell([truncation(0, first + 20), change(dice, first + 41)])
    log.kill(point)
    log.finish(point)


@pytest.fixture(scope="module")
def truncated(new_log: NewLog) -> Log:
    """Of every kind a table whose rows a truncation takes away."""
    log = new_log(targets("upsert_delete"), changes=CHANGES)
    source = dict(log.flow.spec_document["source"])  # type: ignore[call-overload]
    log.expected = expected
    log.edit(source={**source, "value": VALUE})
    return log


def narrow(kind: str) -> dict[str, object]:
    """A source whose `amount` is of this type."""
    columns = {**COLUMNS, "amount": kind}
    return {"value": {"format": "json", "columns": columns}}


def whole(records: Sequence[Record]) -> list[Record]:
    """The records with whole amounts, some of them too large for an `int`."""
    made = []
    for n, record in enumerate(records):
        value = record.value
        if isinstance(value, dict) and "amount" in value:
            value = {**value, "amount": LARGE if n % 7 == 0 else n}
        made.append(Record(record.partition, record.key, value))
    return made


@pytest.mark.parametrize("point", [*failpoints.REVISION, "clickhouse.inserted", "bigquery.loaded"])
def test_killed_retry(point: str, new_log: NewLog) -> None:
    """The next retry goes on: every dead letter that can be read now is in every table, once and in its place."""
    log = new_log(targets())
    source = dict(log.flow.spec_document["source"])  # type: ignore[call-overload]
    log.edit(source={**source, **narrow("int")})
    for seed in (1, 2):
        log.tell(whole(random_changes(seed, 60, 20, 2)))
        code, output = log.project.call(*RUN, log.flow.name)
        assert code == 0, output
    log.edit(source={**source, **narrow("long")})
    log.kill(point, command=("dead-letters", "retry"))
    log.tell(whole(random_changes(3, 30, 20, 2)))
    code, output = log.project.call("dead-letters", "retry", log.flow.name)
    assert code == 0, output
    log.finish(point)
    assert sum(group.records for group in summary(log.pipeline)) == model.bad(log.records)


def test_killed_between_new_columns_and_their_batch(new_log: NewLog) -> None:
    """The tables have the columns and not yet the batch: the next run lands it with the same columns."""
    log = new_log(targets())
    source = dict(log.flow.spec_document["source"])  # type: ignore[call-overload]
    log.edit(source={**source, "value": {**source["value"], "unknown_fields": "add"}})
    for point in (failpoints.NEW_COLUMNS, "land.published"):
        new = {point.replace(".", "_"): 7}
        told = [
            Record(r.partition, r.key, {**r.value, **new} if isinstance(r.value, dict) else r.value)
            for r in random_changes(len(log.records), 50, 20, 2)
        ]
        log.tell(told)
        log.kill(point)
        log.finish(point)
    columns = log.pipeline.spec.source.value.columns
    assert {"land_evolved", "land_published"} <= columns.keys()


@pytest.fixture(scope="module")
def together(
    project: Project, module_topic: Callable[..., str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Log]:
    """Tables that are committed at once, which only a REST catalog can do."""
    folder = tmp_path_factory.mktemp("together")
    with rest_connections(project.connections, folder) as file:
        own = Project(folder, project.home, file)
        tables = [target for target in targets() if target.kind.name == "iceberg"]
        yield Log(own, module_topic(partitions=2), tables, {"commit": "together"})


@pytest.mark.parametrize("point", ["merge.begun", "merge.written", *failpoints.TOGETHER])
def test_killed_common_commit(point: str, together: Log) -> None:
    """All tables have the batch, or none."""
    log = together
    before = [model.expected(log.records, target.mode) for target in log.tables]
    log.grow()
    log.kill(point, turn=2 if point in failpoints.MERGE else 1)
    if before[0]:
        after = [model.expected(log.records, target.mode) for target in log.tables]
        wanted = after if point == "together.published" else before
        assert [log.rows(target) for target in log.tables] == wanted
    log.finish(point)
