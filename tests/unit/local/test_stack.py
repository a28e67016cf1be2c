"""What `up` leaves behind, and what `down` ends, beside other commands on the same data folder."""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from resources.errors import ConfigurationError
from resources.local import processes, stack
from resources.local.locks import exclusive
from resources.local.processes import Running
from resources.local.service import Command, Say, Service, Site
from resources.local.spark_server import SparkServer
from resources.local.stack_state import StackState, add_ui, uis
from resources.own_code import OWN_CODE, STARTED_BY
from tests.kit.waiting import until

_SLEEPER = Command([sys.executable, "-c", "import time; time.sleep(600)"])


class _Sleeper(Service):
    """A service that is ready at once, and does nothing."""

    name = "sleeper"
    port_names = ("only",)

    def prepare(self, site: Site, say: Say) -> Command:
        del site, say
        return _SLEEPER

    def ready(self, site: Site) -> bool:
        del site
        return True


@pytest.fixture
def sleeper(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Running]]:
    """What `up` starts of the only service there is."""
    started, start = list[Running](), processes.start

    def noted(command: Command, log: Path, cwd: Path) -> Running:
        started.append(start(command, log, cwd))
        return started[-1]

    monkeypatch.setattr(stack, "SERVICES", (_Sleeper(),))
    monkeypatch.setattr(stack, "_BY_NAME", {"sleeper": _Sleeper()})
    monkeypatch.setattr(processes, "start", noted)
    yield started
    for running in started:
        processes.stop(running)


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


def test_up_leaves_no_service_that_stack_json_does_not_know(
    tmp_path: Path, sleeper: list[Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    write = StackState.write

    def on_a_full_disk(state: StackState, home: Path) -> None:
        if state.processes:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(state, home)

    monkeypatch.setattr(StackState, "write", on_a_full_disk)
    with pytest.raises(OSError, match="No space left"):
        stack.up(tmp_path, None, print)
    (running,) = sleeper
    assert not processes.is_alive(running)


def test_up_names_a_service_that_other_code_has_started(
    tmp_path: Path, sleeper: list[Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = list[str]()
    for outdated in (False, False, True):
        monkeypatch.setattr(_Sleeper, "is_outdated", lambda *_, now=outdated: now)
        stack.up(tmp_path, None, shown.append)
    assert len(sleeper) == 1
    assert [text.partition(", ")[2] for text in shown] == [
        "",
        "",
        "of other code: pipelines need `batchmerge down`, then `batchmerge up`",
    ]


def test_spark_is_outdated_where_it_was_started_by_other_code(tmp_path: Path) -> None:
    site = Site(tmp_path, {})
    settings = site.folder("spark") / "spark.properties"
    for text, outdated in (
        (f"spark.x 1\n{STARTED_BY} {OWN_CODE}\n", False),
        (f"{STARTED_BY} {OWN_CODE}1\n", True),
        ("spark.x 1\n", True),  # by a version that did not say so
    ):
        settings.write_text(text)
        assert SparkServer().is_outdated(site) is outdated


def test_up_overwrites_its_own_connections_only(tmp_path: Path, sleeper: list[Running]) -> None:
    file = tmp_path / "connections.yaml"
    file.write_text("# ours, by hand\nconnections: {}\n")
    with pytest.raises(ConfigurationError, match="BATCHMERGE_CONNECTIONS"):
        stack.up(tmp_path, None, print)
    assert (file.read_text(), sleeper) == ("# ours, by hand\nconnections: {}\n", [])
    file.unlink()
    for _ in range(2):
        stack.up(tmp_path, None, print)
    assert file.read_text().startswith("# Written by `batchmerge up`")
