"""What processes use while something runs: seconds, CPU, memory, of them and all that they have started."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from resources.local import stack

_LOOK_EVERY = 0.5
_GONE = (psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError)


@dataclass
class Spent:
    """Filled in when the block has ended.

    Attributes:
        roots: the processes that count, with all that they have started; more can be added in the block.
        seconds: on the clock.
        cpu: seconds of all cores, user and system.
        peak: the largest sum of proportional set sizes (memory that is shared counts once), in MB.
    """

    roots: list[psutil.Process]
    seconds: float = 0.0
    cpu: float = 0.0
    peak: float = 0.0


@contextmanager
def spent(*roots: psutil.Process) -> Iterator[Spent]:
    """Of these processes while the block runs."""
    found, ended = Spent([*roots]), threading.Event()

    def look() -> None:
        while not ended.wait(_LOOK_EVERY):
            found.peak = max(found.peak, memory(found.roots))

    watcher, began, before = threading.Thread(target=look), time.monotonic(), cpu_of(roots)
    watcher.start()
    try:
        yield found
        found.seconds, found.cpu = time.monotonic() - began, cpu_of(found.roots) - before
    finally:
        ended.set()
        watcher.join()


def seconds_of(work: Callable[[], object]) -> float:
    """On the clock."""
    began = time.monotonic()
    work()
    return time.monotonic() - began


def spark_server(home: Path) -> psutil.Process:
    """The Spark server of this data folder; the workers of Python are its children."""
    return service(home, "spark")


def service(home: Path, name: str) -> psutil.Process:
    """A running service of this data folder."""
    (pid,) = [one.pid for one in stack.status(home) if one.name == name]
    assert pid
    return psutil.Process(pid)


def memory(roots: Iterable[psutil.Process]) -> float:
    """Sum of the proportional set sizes, in MB."""
    return sum(map(_pss, _family(roots))) / 1000


def _pss(process: psutil.Process) -> int:
    """In kB."""
    with suppress(*_GONE, PermissionError):
        for line in Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    return 0


def cpu_of(roots: Iterable[psutil.Process]) -> float:
    """So far; of those that have ended what was reported to their parents, or to this process."""
    own = psutil.Process().cpu_times()
    total: float = own.children_user + own.children_system
    for process in _family(roots):
        with suppress(*_GONE):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def _family(roots: Iterable[psutil.Process]) -> set[psutil.Process]:
    found = set[psutil.Process]()
    for root in roots:
        with suppress(*_GONE):
            found |= {root, *root.children(recursive=True)}
    return found
