"""Waits until a socket has something to read."""

from __future__ import annotations

import select
import socket


def is_readable(one: socket.socket, seconds: float) -> bool:
    """Whether there is something within this time. `select` would fail in a process with over 1,024 open files."""
    waiting = select.poll()
    waiting.register(one, select.POLLIN)
    return bool(waiting.poll(seconds * 1000))
