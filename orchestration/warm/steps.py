"""The steps of a forked run are forked too: from a copy of the warm process that the run makes before it does anything.

Dagster's executor asks Python's fork server for the process of a step. By itself that is a new interpreter with all to
import again; here it is that copy, which has one thread and everything loaded. Nothing in Dagster changes.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
from multiprocessing import connection, forkserver
from typing import Any

_PR_SET_PDEATHSIG = 1
# Loaded before any fork. Only Linux has the call; elsewhere what lives on is found by its session.
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


def die_with(parent: int) -> None:
    """This process is killed when its parent ends, however that ends."""
    if _LIBC:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def serve_steps() -> None:
    """Forks the fork server of this run, which then serves all of its steps."""
    server: Any = forkserver._forkserver
    run = os.getpid()
    with socket.socket(socket.AF_UNIX) as listener:
        address = connection.arbitrary_address("AF_UNIX")  # type: ignore[attr-defined]
        listener.bind(address)
        if isinstance(address, str) and not address.startswith("\0"):
            os.chmod(address, 0o600)
        listener.listen()
        alive_read, alive_write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(alive_write)
            _serve(listener.detach(), alive_read, run)
    os.close(alive_read)
    server._forkserver_address, server._forkserver_alive_fd, server._forkserver_pid = address, alive_write, pid


def _serve(listener: int, alive: int, run: int) -> None:
    """Never returns: ends with the run, or when the run has no further use for it."""
    try:
        die_with(run)
        os.register_at_fork(before=_note_parent, after_in_child=_die_with_noted)
        forkserver.main(listener, alive, [])
    finally:
        os._exit(0)


_noted = 0


def _note_parent() -> None:
    global _noted  # noqa: PLW0603  a fork's two sides know each other by nothing else
    _noted = os.getpid()


def _die_with_noted() -> None:
    die_with(_noted)
