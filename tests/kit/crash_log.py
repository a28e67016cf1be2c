"""A pipeline whose log grows from kill to kill, worked on by the real command: what the crash suite is made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jobs import failpoints
from jobs.connections_file import load_connections
from jobs.destinations.registry import kinds
from jobs.pipeline import Pipeline
from jobs.spec.pipeline import PipelineSpec
from resources.connections import Connections
from tests.kit import model
from tests.kit.flow import Flow
from tests.kit.model import Row
from tests.kit.project import Project
from tests.kit.records import Record, bootstrap, produce, random_changes
from tests.kit.story import COORDINATES, Target

RUN = ("run", "--until-caught-up")


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
        options: of each table, beside those of its kind.
    """

    project: Project
    topic: str
    tables: Sequence[Target]
    parts: dict[str, object] = field(default_factory=dict)
    bad: float = 0.02
    records: list[Record] = field(default_factory=list)
    expected: Callable[[Sequence[Record], str], list[Row]] = model.expected
    options: Mapping[str, object] = field(default_factory=dict)

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
                **{"metadata_columns": COORDINATES, **target.kind.options, **self.options},
            }
            for target in self.tables
        ]
        return {**self.flow.spec_document, "control": {"enabled": False}, "tables": tables, **self.parts}

    @property
    def pipeline(self) -> Pipeline:
        return Pipeline(self.flow.name, PipelineSpec.model_validate(self.document), self.connections)

    def table(self, target: Target) -> str:
        return f"tests.{self.flow.name}_{target.kind.name}_{target.mode}"

    @property
    def source(self) -> dict[str, Any]:
        """The part `source` of the pipeline file, before any edit."""
        found = self.flow.spec_document["source"]
        return dict(found)

    def write(self) -> None:
        self.project.write(self.flow.name, self.document)

    def edit(self, **parts: object) -> None:
        """Replaces parts of the pipeline file."""
        self.parts.update(parts)
        self.write()

    def produce(self, records: Sequence[Record]) -> None:
        produce(bootstrap(self.connections), self.topic, records)
        self.records.extend(records)

    def grow(self) -> None:
        self.produce(random_changes(len(self.records), 100, 30, 2, self.bad))

    def kill(self, point: str, turn: int = 1, command: Sequence[str] = RUN) -> None:
        self.project.kill(point, turn, *command, self.flow.name)

    def do(self, *command: str, why: object = "") -> None:
        """Runs `batchmerge` with these arguments and the pipeline's name; it succeeds."""
        code, output = self.project.call(*command, self.flow.name)
        assert code == 0, (why, command, output)

    def finish(self, why: object) -> None:
        """Runs once more, and checks every table."""
        self.do(*RUN, why=why)
        self.check(why)

    def check(self, why: object) -> None:
        for target in self.tables:
            found, wanted = (Counter(rows) for rows in (self.rows(target), self.expected(self.records, target.mode)))
            assert found == wanted, (why, str(target), f"missing {wanted - found}, too many {found - wanted}")

    def rows(self, target: Target) -> list[Row]:
        found = target.kind.rows(self.connections, self.table(target))
        return model.sorted_rows((row["id"], row["name"], row["amount"]) for row in found)
