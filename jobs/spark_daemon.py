"""The Python daemon of Spark's executors (`spark.python.daemon.module`): Spark's own, with our modules loaded.

It forks a Python worker for each task slot, and again where one was idle for a minute. Each worker of a daemon without
them loads them itself, which is two seconds of a core.
"""

from __future__ import annotations

import gc
from contextlib import suppress
from importlib import import_module

LOADED = (
    ".landing.task",
    ".landing.read_task",
    ".changes.copy_task",
    ".changes.key_shares_task",
    ".iceberg.folding",
)


def main() -> None:
    """Serves the executor that has started this process, until it closes the other end."""
    from pyspark import daemon

    for module in LOADED:
        with suppress(Exception):  # the task that needs it says why it cannot be loaded
            import_module(module, __package__)
    # A worker collects garbage after each task: not in what it has from here, and shares with the others.
    gc.freeze()
    daemon.manager()


if __name__ == "__main__":
    main()
