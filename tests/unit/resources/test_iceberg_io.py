"""Clients of files whose credentials end."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO

from resources.errors import BatchmergeError, ConfigurationError, Unavailable
from resources.iceberg_io import RenewedFileIO, ends_at

ENDS = "s3.session-token-expires-at-ms"


def good_for(seconds: float) -> FileIO:
    return PyArrowFileIO({ENDS: str(int((time.time() + seconds) * 1000))})


def written_and_read(io: FileIO, path: Path) -> bytes:
    with io.new_output(str(path)).create(overwrite=True) as file:
        file.write(b"there")
    with io.new_input(str(path)).open() as read:
        found = read.read()
    io.delete(str(path))
    assert not path.exists()
    return found


@pytest.mark.parametrize("seconds", [-5, 0])
def test_others_are_asked_for_before_it_is_used(seconds: float, tmp_path: Path) -> None:
    io = RenewedFileIO(good_for(seconds), partial(good_for, 3600))
    before = io.properties[ENDS]
    assert written_and_read(io, tmp_path / "a") == b"there"
    renewed = io.properties[ENDS]
    assert int(renewed) > int(before)
    assert written_and_read(io, tmp_path / "b") == b"there"
    assert io.properties[ENDS] == renewed, "asked for once"


def test_nothing_is_asked_for_while_they_are_good(tmp_path: Path) -> None:
    def never() -> FileIO:
        raise AssertionError

    assert written_and_read(RenewedFileIO(good_for(3600), never), tmp_path / "a") == b"there"


def test_workers_ask_for_their_own(tmp_path: Path) -> None:
    io = pickle.loads(pickle.dumps(RenewedFileIO(good_for(-5), partial(good_for, 3600))))
    assert written_and_read(io, tmp_path / "a") == b"there"
    assert (ends_at(io) or 0) > time.time() + 3000


def refuse() -> FileIO:
    raise Unavailable("the catalog does not answer")


def test_they_are_used_on_while_the_catalog_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers ask all at once, and a catalog may refuse some of them."""
    asked = list[float]()
    answers: list[Callable[[], FileIO]] = [refuse, refuse, partial(good_for, 3600)]

    def renew() -> FileIO:
        asked.append(time.time())
        return answers.pop(0)()

    io, now = RenewedFileIO(good_for(1000), renew), time.time
    for later in (600, 710, 711, 720, 730):
        monkeypatch.setattr(time, "time", lambda later=later: now() + later)
        assert written_and_read(io, tmp_path / "a") == b"there"
    assert len(asked) == 3, "after a pause"


@pytest.mark.parametrize(
    ("left", "raised"),
    [(10, Unavailable), (200, ConfigurationError)],
    ids=["shortly before their end", "it will not give others"],
)
def test_nothing_is_begun_without_others(
    left: float, raised: type[BatchmergeError], monkeypatch: pytest.MonkeyPatch
) -> None:
    def renew() -> FileIO:
        raise raised("refused")

    io, now = RenewedFileIO(good_for(1000), renew), time.time
    monkeypatch.setattr(time, "time", lambda: now() + 1000 - left)
    with pytest.raises(raised):
        io.new_input("a")


@pytest.mark.parametrize(
    ("properties", "ends"),
    [
        ({}, None),
        ({"s3.session-token": "t"}, None),
        ({ENDS: "5000"}, 5.0),
        ({"gcs.oauth2.token-expires-at": "7000"}, 7.0),
        ({"adls.sas-token-expires-at-ms.one.dfs.core.windows.net": "9000", ENDS: "11000"}, 9.0),
        ({ENDS: "soon"}, None),
    ],
)
def test_when_they_end(properties: dict[str, str], ends: float | None) -> None:
    assert ends_at(PyArrowFileIO(properties)) == ends
