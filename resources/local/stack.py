"""The services of one data folder: start what is missing, stop all, report how they are.

What is known of a stack is in `stack.json` of its data folder: the ports that its services keep, and the processes
that were started. Two data folders have nothing in common but the downloads.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field

from resources.errors import BatchmergeError, ConfigurationError, Unavailable
from resources.local import processes
from resources.local.bigquery_emulator import BigQueryEmulator
from resources.local.clickhouse import ClickHouse
from resources.local.kafka_broker import KafkaBroker
from resources.local.lake import STORES, store_of
from resources.local.locks import exclusive
from resources.local.ports import free_port, is_free
from resources.local.processes import Running
from resources.local.service import Lake, Say, Service, Site
from resources.local.spark_server import SparkServer
from resources.local.stack_state import StackState, remove_ui, replace_file, uis
from resources.local.zookeeper import ZooKeeper

SERVICES: tuple[Service, ...] = (
    *STORES,
    KafkaBroker(),
    SparkServer(),
    ZooKeeper(),
    ClickHouse(),
    BigQueryEmulator(),
)
_BY_NAME = {service.name: service for service in SERVICES}
_LOOK_EVERY = 0.1
_RESTART = "pipelines need `batchmerge down`, then `batchmerge up`"
# How a connections file begins that `up` may overwrite.
_HEAD = "# Written by `batchmerge up`: changes are lost. Name another file in BATCHMERGE_CONNECTIONS.\n"
_LAKES: dict[Lake, str] = {"file": "a folder of it", "s3": "S3", "gcs": "Google Cloud Storage"}


class ServiceStatus(BaseModel):
    """The state of one service.

    `state`: running (answers), silent (its process lives but does not answer), died (was started, its process is gone),
    stopped, or unavailable (cannot run on this machine; `reason` says why).
    """

    model_config = ConfigDict(frozen=True)
    name: str
    state: Literal["running", "silent", "died", "stopped", "unavailable"]
    pid: int | None = None
    ports: dict[str, int] = Field(default_factory=dict)
    log: str | None = None
    reason: str | None = None


def up(home: Path, only: Iterable[str] | None, say: Say, lake: Lake | None = None) -> Site:
    """Starts the services that are not running yet, waits until they answer, and writes `connections.yaml`.

    Args:
        only: names of services; what they need comes with them. None: all that can run here.
        lake: where the lake's files are; None: as at the first `up`, and then in a folder.

    Raises:
        ConfigurationError: an unknown service, one that cannot run here, a lake that is elsewhere, or a
            `connections.yaml` that somebody else has written.
        Unavailable: a service did not come up; the others stay.
    """
    with exclusive(home / "stack.lock", say):
        _require_own_connections(home)
        state = StackState.read(home)
        _settle_lake(home, state, lake)
        chosen = _choose(only, state.lake, say)
        _settle_ports(state, chosen)
        state.write(home)
        site = Site(home, state.ports, state.lake)
        try:
            _Start(site, state, say).all(chosen)
        finally:
            _write_connections(site, state)
    return site


def down(home: Path, say: Say) -> None:
    """Stops the web pages and all services of the data folder. Their data and ports stay for the next `up`."""
    if not home.exists():
        return
    with exclusive(home / "stack.lock", say):
        for port, page in uis(home).items():
            _stop(f"ui {port}", page, say)
            remove_ui(home, port)
        if not (home / "stack.json").exists():
            return
        state = StackState.read(home)
        needed = {name for service in SERVICES for name in service.needs}
        # Those that others need stop last; the others side by side.
        for round in ([s for s in SERVICES if s.name not in needed], [s for s in SERVICES if s.name in needed]):
            with ThreadPoolExecutor(len(SERVICES)) as pool:
                list(pool.map(lambda service: _stop(service.name, state.processes.get(service.name), say), round))
            for service in round:
                state.processes.pop(service.name, None)
            state.write(home)


def _stop(name: str, running: Running | None, say: Say) -> None:
    if running and processes.is_alive(running):
        processes.stop(running)
        say(f"{name}: stopped")


def status(home: Path) -> list[ServiceStatus]:
    """The state of each service, asked of the service itself."""
    state = StackState.read(home)
    site = Site(home, state.ports, state.lake)
    with ThreadPoolExecutor(len(SERVICES)) as pool:
        return list(pool.map(lambda service: _look(service, site, state), SERVICES))


def _look(service: Service, site: Site, state: StackState) -> ServiceStatus:
    running = state.processes.get(service.name)
    if running is None:
        reason = service.unavailable()
        return ServiceStatus(name=service.name, state="unavailable" if reason else "stopped", reason=reason)
    alive = processes.is_alive(running)
    return ServiceStatus(
        name=service.name,
        state=("running" if service.ready(site) else "silent") if alive else "died",
        pid=running.pid if alive else None,
        ports=dict(site.ports[service.name]),
        log=str(site.log(service.name)),
    )


def _settle_lake(home: Path, state: StackState, lake: Lake | None) -> None:
    """Sets where the lake's files are. That cannot change later: the catalog has the paths of its tables' files."""
    if lake and lake != state.lake and state.ports:
        raise ConfigurationError(
            f"the lake of this data folder is in {_LAKES[state.lake]}",
            where=str(home),
            remedy="name another data folder in BATCHMERGE_HOME for a lake elsewhere",
        )
    state.lake = lake or state.lake


def _choose(only: Iterable[str] | None, lake: Lake, say: Say) -> list[Service]:
    """The services to start, with those that they need, in starting order; the object store only for a lake in it."""
    if only is None:
        unavailable = {service.name: reason for service in SERVICES if (reason := service.unavailable())}
        stores = {store.name for store in STORES}
        wanted = {service.name for service in SERVICES if service.name not in unavailable} - stores
        for name, reason in unavailable.items():
            if name not in stores:
                say(f"{name}: left out, {reason}")
    else:
        wanted = set()
        for name in only:
            wanted |= {name, *_known(name).needs}
    if store := store_of(lake):
        wanted.add(store.name)
    for name in wanted:
        if reason := _known(name).unavailable():
            raise ConfigurationError(reason, where=name, remedy="leave it out with --only, or install what it needs")
    return [service for service in SERVICES if service.name in wanted]


def _known(name: str) -> Service:
    if name not in _BY_NAME:
        raise ConfigurationError(
            f"there is no local service {name!r}", where="--only", remedy=f"name some of {', '.join(_BY_NAME)}"
        )
    return _BY_NAME[name]


def _settle_ports(state: StackState, chosen: Sequence[Service]) -> None:
    """Keeps the ports of last time; takes new ones where there are none, or where another process has one now."""
    taken = {port for ports in state.ports.values() for port in ports.values()}
    for service in chosen:
        running = state.processes.get(service.name)
        if running and processes.is_alive(running):
            continue
        kept = state.ports.setdefault(service.name, {})
        for name in service.port_names:
            if name not in kept or not is_free(kept[name]):
                kept[name] = free_port(taken)
                taken.add(kept[name])


class _Start:
    """One `up` at work: services that do not need each other start side by side."""

    def __init__(self, site: Site, state: StackState, say: Say) -> None:
        self._site, self._state, self._say = site, state, say
        self._given_up = threading.Event()
        self._writing = threading.Lock()

    def all(self, chosen: Sequence[Service]) -> None:
        ready: dict[str, Future[None]] = {}
        with ThreadPoolExecutor(len(SERVICES)) as pool:
            for service in chosen:
                ready[service.name] = pool.submit(self._one, service, [ready[name] for name in service.needs])
            try:
                problems = [problem for future in ready.values() if (problem := future.exception())]
            except KeyboardInterrupt:
                self._given_up.set()
                raise
        for problem in problems[1:]:
            self._say(str(problem))
        if problems:
            raise problems[0]

    def _one(self, service: Service, needed: Sequence[Future[None]]) -> None:
        for future in needed:
            if future.exception():
                raise Unavailable("not started, because what it needs did not come up", where=service.name)
        running = self._state.processes.get(service.name)
        began, log = time.monotonic(), self._site.log(service.name)
        log_end = log.stat().st_size if log.exists() else 0
        if running and processes.is_alive(running):
            if service.ready(self._site):
                outdated = f", of other code: {_RESTART}" if service.is_outdated(self._site) else ""
                self._say(f"{service.name}: running already at {self._address(service)}{outdated}")
                return
        else:
            command = service.prepare(self._site, self._say)
            began = time.monotonic()
            running = processes.start(command, log, self._site.folder(service.name))
            try:
                with self._writing:
                    self._state.processes[service.name] = running
                    self._state.write(self._site.home)
            except BaseException:
                processes.stop(running)  # what is not in the file is never found again
                raise
        self._wait(service, running, log_end)
        self._say(f"{service.name}: ready at {self._address(service)} after {time.monotonic() - began:.1f} s")

    def _wait(self, service: Service, running: Running, log_end: int) -> None:
        """Until the service answers.

        Raises:
            Unavailable: it died, or did not answer in its time (then it is stopped).
        """
        until = time.monotonic() + service.patience
        while not service.ready(self._site):
            if self._given_up.wait(_LOOK_EVERY):
                raise Unavailable("interrupted before it was ready", where=service.name)
            if not processes.is_alive(running):
                raise self._failure(service, "it ended before it was ready", log_end)
            if time.monotonic() > until:
                processes.stop(running)
                raise self._failure(service, f"it did not answer within {service.patience:.0f} s", log_end)

    def _failure(self, service: Service, what: str, log_end: int) -> BatchmergeError:
        log = self._site.log(service.name)
        lines = processes.last_lines(log, log_end) or "(nothing)"
        return Unavailable(
            f"{what}; the last lines of its log were:\n{lines}\n",
            where=service.name,
            remedy=f"read {log}, then run `batchmerge up` again",
        )

    def _address(self, service: Service) -> str:
        return self._site.address(service.name, service.port_names[0])


def _require_own_connections(home: Path) -> None:
    """Raises ConfigurationError if the file is there and was not written by `up`."""
    path = home / "connections.yaml"
    if path.exists() and not path.read_bytes().startswith(_HEAD.encode()):
        raise ConfigurationError(
            "`batchmerge up` would overwrite this file, which it has not written",
            where=str(path),
            remedy="move it elsewhere and name it in BATCHMERGE_CONNECTIONS, "
            "or name another data folder in BATCHMERGE_HOME for the local services",
        )


def _write_connections(site: Site, state: StackState) -> None:
    """Entries of all services that this data folder has started and not stopped."""
    entries: dict[str, dict[str, Any]] = {}
    for service in SERVICES:
        if service.name in state.processes:
            entries |= service.connections(site)
    text = yaml.safe_dump({"connections": entries}, sort_keys=False)
    replace_file(site.home / "connections.yaml", _HEAD + text)
