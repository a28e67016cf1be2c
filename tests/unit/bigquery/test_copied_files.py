"""Copies of landed files, which tasks make for a load."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.io.pyarrow import PyArrowFileIO

from jobs.changes.landed_file import LandedFile
from jobs.destinations.bigquery import copied_files
from jobs.destinations.bigquery.copied_files import CopyFilesTask, shared
from jobs.spark.spark_tasks import reports_in
from resources.errors import StorageError
from tests.kit.arrow import copied


def shares_of(tmp_path: Path, *shares: Sequence[str]) -> list[list[tuple[str, str]]]:
    return [[(f"file://{tmp_path}/{name}", f"file://{tmp_path}/copies/{name}") for name in share] for share in shares]


def run(task: CopyFilesTask, *numbers: int) -> list[int]:
    return reports_in(copied(task)([pa.RecordBatch.from_pydict({"id": numbers})]))


def task_of(tmp_path: Path, source: FileIO, *shares: Sequence[str]) -> CopyFilesTask:
    return CopyFilesTask(shares_of(tmp_path, *shares), source, load_file_io({}), "the table")


def test_copies_are_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of empty files, of such as are exactly some pieces, and of others."""
    monkeypatch.setattr(copied_files, "_PIECE_BYTES", 1000)
    sizes = [0, 1, 999, 1000, 1001, 5000, *range(20)]
    contents = {f"{n}.parquet": Random(n).randbytes(size) for n, size in enumerate(sizes)}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    first, *others = contents
    assert run(task_of(tmp_path, load_file_io({}), [first], others), 1) == [len(others)]
    copies = {file.name: file.read_bytes() for file in (tmp_path / "copies").iterdir()}
    assert copies == {name: contents[name] for name in others}, "those of another share are another task's"


class Breaking(PyArrowFileIO):
    """Ends within each file, as where a worker dies."""

    def new_input(self, location: str) -> Any:
        found = super().new_input(location)
        return SimpleNamespace(open=lambda seekable: _Broken(found.open(seekable).read(1000)))


class _Broken(BytesIO):
    def read(self, size: int | None = -1) -> bytes:
        if found := super().read(size):
            return found
        raise RuntimeError("the worker dies")


def test_task_that_is_tried_again_writes_the_same_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copied_files, "_PIECE_BYTES", 1000)
    (tmp_path / "a").write_bytes(content := Random(1).randbytes(3000))
    broken = task_of(tmp_path, Breaking({}), ["a"])
    with pytest.raises(RuntimeError):
        run(broken, 0)
    (copy,) = (tmp_path / "copies").iterdir()
    assert copy.read_bytes() == content[:1000]
    assert run(task_of(tmp_path, load_file_io({}), ["a"]), 0) == [1]
    assert [file.read_bytes() for file in (tmp_path / "copies").iterdir()] == [content]


def test_file_that_is_gone_is_an_error_of_the_storage(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="the table"):
        run(task_of(tmp_path, load_file_io({}), ["gone"]), 0)


def test_a_task_shows_no_secret(tmp_path: Path) -> None:
    secret = load_file_io({"s3.secret-access-key": "hidden", "gcs.oauth2.token": "hidden"})
    assert "hidden" not in repr(CopyFilesTask(shares_of(tmp_path, ["a"]), secret, secret, "t"))


def tasks(*sizes: int, most: int = 8) -> list[list[int]]:
    """The sizes of files in each share."""
    files = [LandedFile(f"landed-{n}", 1, size, (0,), ()) for n, size in enumerate(sizes)]
    shares = shared(files, [f"copy-{n}" for n in range(len(files))], most)
    assert all(copy == landed.replace("landed", "copy") for share in shares for landed, copy in share)
    return [[sizes[int(landed.removeprefix("landed-"))] for landed, _ in share] for share in shares]


def test_tasks_are_as_many_as_are_worth_their_start() -> None:
    large = 20 << 20
    assert tasks(5, 5) == [[5, 5]]
    assert tasks(large) == [[large]]
    assert tasks(large, large, 5, 5, most=2) == [[large, 5], [large, 5]]
    assert len(tasks(*[5] * 200, most=8)) == 5
