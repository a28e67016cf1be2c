"""The Python daemon of Spark's executors (`spark.python.daemon.module`): Spark's own, with our modules loaded.

It forks a Python worker for each task slot, and again after one was idle for a minute. Without loaded modules each
worker would load them itself, which takes two seconds of a core.
"""

from __future__ import annotations

import gc
from contextlib import suppress
from importlib import import_module

LOADED = (
    ".spark.sent_task",  # first: it says by which files the others were loaded
    ".landing.task",
    ".landing.read_task",
    ".changes.copy_task",
    ".changes.key_shares_task",
    ".iceberg.folding",
)

# New objects until Python's garbage collector runs within a task.
_GARBAGE_THRESHOLD = 1_000_000


def main() -> None:
    """Serves the executor that has started this process, until it closes the connection."""
    from pyspark import daemon

    for module in LOADED:
        with suppress(Exception):  # a task that needs the module reports why it cannot be loaded
            import_module(module, __package__)
    # Exclude the modules from workers' garbage collection after each task: so their memory pages stay shared.
    gc.freeze()
    # Not within a task of usual size: Kafka's messages are new objects, of which none is garbage that refers to itself.
    gc.set_threshold(_GARBAGE_THRESHOLD)
    daemon.manager()


if __name__ == "__main__":
    main()
