"""The process of a run that no code server has started (`batchmerge run`): its name, and whether it has ended."""

from __future__ import annotations

import socket

import psutil


def own_process() -> str:
    """``host pid start``: the start tells it from a later process with the same id."""
    process = psutil.Process()
    return f"{socket.gethostname()} {process.pid} {process.create_time():.0f}"


def has_ended(described: str) -> bool:
    """Whether the process is surely over; False where it is on another machine, or where that cannot be told."""
    host, pid, start = described.split(" ")
    if host != socket.gethostname():
        return False
    try:
        return f"{psutil.Process(int(pid)).create_time():.0f}" != start
    except psutil.NoSuchProcess:
        return True
    except psutil.AccessDenied:
        return False
