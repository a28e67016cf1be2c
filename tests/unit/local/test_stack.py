"""What `down` ends, beside other commands on the same data folder."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from resources.local import processes, stack
from resources.local.locks import exclusive
from resources.local.processes import Running
from resources.local.service import Command
from resources.local.stack_state import add_ui, uis
from tests.kit.waiting import until

_SLEEPER = Command([sys.executable, "-c", "import time; time.sleep(600)"])


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Running]:
    """A process that the data folder `tmp_path` has as its web page."""
    running = processes.start(_SLEEPER, tmp_path / "log", tmp_path)
    add_ui(tmp_path, 3000, running)
    yield running
    processes.stop(running)


def test_two_downs_take_turns(tmp_path: Path, page: Running) -> None:
    messages = list[str]()
    second = Thread(target=lambda: stack.down(tmp_path, messages.append))
    with exclusive(tmp_path / "stack.lock", messages.append):
        second.start()
        until(lambda: messages)
        assert messages[0].startswith("waiting for process ")
        assert processes.is_alive(page)
    second.join()
    assert (messages[1:], uis(tmp_path), processes.is_alive(page)) == (["ui 3000: stopped"], {}, False)


def test_down_makes_no_data_folder(tmp_path: Path) -> None:
    stack.down(tmp_path / "home", print)
    assert not (tmp_path / "home").exists()


def test_down_ends_what_it_knows_beside_a_damaged_file(tmp_path: Path, page: Running) -> None:
    """A power failure may leave the file of a page empty."""
    (tmp_path / "ui" / "3001.json").touch()
    stack.down(tmp_path, print)
    assert (uis(tmp_path), processes.is_alive(page)) == ({}, False)
