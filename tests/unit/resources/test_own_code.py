"""Which files are our code: others, which a person has beside them, must not keep a run from its workers."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from jobs.spark.sent_task import SentTask
from resources import own_code
from resources.own_code import digest_of, is_other_code


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("jobs/landing/task.py", "resources/kafka.py", "sql/spark/merge.sql.j2", "orchestration/files.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path


@pytest.mark.parametrize(
    "name", ["jobs/landing/task.py", "jobs/new.py", "resources/kafka.py", "sql/spark/merge.sql.j2"]
)
def test_a_changed_file_is_other_code(name: str, root: Path) -> None:
    before = digest_of(root)
    (root / name).write_text("changed")
    assert digest_of(root) != before


@pytest.mark.parametrize(
    "name", ["orchestration/files.py", "sql/mine.sql", "jobs/landing/task.pyc", "jobs/.task.py", "jobs/task.py~"]
)
def test_other_files_are_not(name: str, root: Path) -> None:
    before = digest_of(root)
    (root / name).write_text("changed")
    assert digest_of(root) == before


def test_code_that_cannot_be_read_is_taken_for_ours(tmp_path: Path) -> None:
    assert not is_other_code(digest_of(tmp_path / "batchmerge.zip"))
    assert not is_other_code(own_code.OWN_CODE)
    assert is_other_code("of another version")


def test_workers_of_the_same_code_get_the_task() -> None:
    def twice(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from (batch, batch)

    sent = pickle.loads(pickle.dumps(SentTask(twice)))
    assert len(list(sent([pa.RecordBatch.from_pydict({"id": [1]})]))) == 2
