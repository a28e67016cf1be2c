"""One command at a time: a lock file that the operating system frees when its holder dies."""

from __future__ import annotations

import fcntl
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

# Seconds between two tries to take the lock.
_PAUSE = 0.05
# Seconds until the process that holds the lock is named.
_FIRST = 1.0
# Seconds until that is repeated.
_AGAIN = 60.0


@contextmanager
def exclusive(path: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Waits for the lock, and reports who holds it; works between threads and between processes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        _take(file, say)
        _note(file, f"process {os.getpid()} ({_command()}), since {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC")
        try:
            yield
        finally:
            _note(file, "")


@contextmanager
def alone_in(folder: Path) -> Iterator[bool]:
    """Whether no other thread or process of this machine is in the same block. Waits for nobody, and writes nothing.

    Where there is no such folder, or it has no locks, everybody counts as alone.
    """
    try:
        handle = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:
        yield True
        return
    try:
        yield _is_free(handle)
    finally:
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_UN)  # a process that was forked meanwhile has the handle, too
        os.close(handle)


def _is_free(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # some network folders have no locks
        return True
    return True


def _take(file: TextIO, say: Callable[[str], None]) -> None:
    due = time.monotonic() + _FIRST
    while True:
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= due:
                file.seek(0)
                holder = file.read() or "another process"
                say(f"waiting for {holder}, which holds {file.name}; if it hangs, end it and this goes on")
                due += _AGAIN
            time.sleep(_PAUSE)


def _note(file: TextIO, holder: str) -> None:
    file.truncate(0)
    file.write(holder)
    file.flush()


def _command() -> str:
    """The command that runs, without arguments: they may hold anything."""
    return " ".join([Path(sys.argv[0]).name, *[one for one in sys.argv[1:2] if one.isalpha()]])
