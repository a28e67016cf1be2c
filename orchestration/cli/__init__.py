"""The command `batchmerge`.

A command is a click command in some module. It is named in `_COMMANDS`, and imported only when it is called or asked
for help, so that `batchmerge --help` need not import Dagster and Spark.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import logging
import signal
import sys
import threading
import traceback
from collections.abc import Iterable
from errno import EACCES, EDQUOT, EEXIST, EISDIR, ENOSPC, ENOTDIR, EPERM, EROFS
from typing import Any

import click

from orchestration.cli import output
from orchestration.cli.output import with_json
from orchestration.cli.streams import outlive_readers
from resources.errors import BatchmergeError, StorageError, TransientError

# name -> (where it is in this package, the line of `batchmerge --help`)
_COMMANDS: dict[str, tuple[str, str]] = {
    "init": ("init:init", "Make a project for your own pipelines."),
    "up": ("services:up", "Start the local services: Kafka, Spark, and the tables' systems."),
    "down": ("services:down", "Stop the local services. Their data stays."),
    "demo": ("demo:demo", "Write real flights into three tables, and check the tables."),
    "run": ("run:run", "Run a pipeline: land new records, merge them into its tables."),
    "pause": ("pause:pause", "Stop a pipeline, or a table of it, until it is resumed."),
    "resume": ("pause:resume", "Resume a paused pipeline, or a table of it."),
    "restart": ("pause:restart", "End the runs of a pipeline, hanging ones too, and run it."),
    "replay": ("replay:replay", "Merge records again: landed ones, or from Kafka."),
    "maintain": ("maintain:maintain", "Compact, expire and clean up the tables of a pipeline."),
    "plan": ("plan:plan", "Show what the next run of a pipeline would do, without doing it."),
    "verify": ("verify:verify", "Compare the tables of a pipeline with the landed changes."),
    "check": ("check:check", "Check files, and ask whether every system answers."),
    "infer": ("infer:infer", "Show the columns that a topic's records have."),
    "offsets": ("offsets:offsets", "Show the offsets of a pipeline; set or reset them by hand."),
    "dead-letters": ("dead_letters:dead_letters", "List the bad records of a pipeline, and retry them."),
    "import": ("connect_import:import_", "Make a pipeline file from a Kafka Connect sink."),
    "ui": ("ui:ui", "Run Dagster's page and daemon for the pipelines."),
    "metrics": ("metrics:metrics", "Serve metrics for Prometheus and OpenTelemetry."),
    "status": ("status:status", "Show the state of services and pipelines."),
}

# Exit codes: something needs a fix; try again later; a bug of ours; INT or TERM.
TERMINAL = 2
TRANSIENT = 3
BUG = 70
CANCELLED = 130
# What the operating system refuses through a person's mistake. A file that is missing is none: we name those ourselves.
_FULL = (ENOSPC, EDQUOT)
_REFUSED = (*_FULL, EACCES, EPERM, EROFS, ENOTDIR, EISDIR, EEXIST)
# New objects until Python's garbage collector runs first. Imported modules are no garbage, and searching them takes a
# tenth of a short command's time; a long command reaches this number and is collected as usual.
GARBAGE_THRESHOLD = 1_000_000


def failure_code(transient: Iterable[bool]) -> int:
    """The exit code of a command that failed.

    Args:
        transient: of each problem, whether it may pass by itself.
    """
    each = list(transient)
    return TRANSIENT if each and all(each) else TERMINAL


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in _COMMANDS:
            return None
        module, function = _COMMANDS[cmd_name][0].split(":")
        command = getattr(importlib.import_module(f".{module}", __package__), function)
        assert isinstance(command, click.Command)
        return with_json(command)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="batchmerge")
def batchmerge() -> None:
    """Kafka topics into the tables of lakes and warehouses, exactly once.

    The data folder has the data of the local services and connections.yaml: $BATCHMERGE_HOME, or .batchmerge here or in
    the folder of the project.

    Exit codes: 0 done, 1 a table is wrong (demo, verify), 2 you must fix something, 3 try again later,
    70 a bug, 130 cancelled.
    """


def ends_when_asked(handler: Any) -> None:
    """Lets INT and TERM end this process. A script's background job ignores INT, and Dagster then ignores TERM too."""
    if threading.current_thread() is threading.main_thread():
        for one in (signal.SIGINT, signal.SIGTERM):
            signal.signal(one, handler)


def main() -> None:
    """Entry point. Our own errors are one or two lines on stderr; a traceback is a bug of ours."""
    gc.set_threshold(GARBAGE_THRESHOLD)
    # When Python ends it searches all objects for garbage, for up to a second that the caller waits.
    atexit.register(gc.freeze)
    # Only some commands show log lines (`engine_log`). Without a handler Python would print warnings in all of them.
    logging.getLogger("batchmerge").addHandler(logging.NullHandler())
    ends_when_asked(signal.default_int_handler)
    outlive_readers()
    with output.of_command(sys.argv[1:]):
        _run()


def _run() -> None:
    try:
        batchmerge.main(standalone_mode=False)
    except click.ClickException as problem:
        output.usage_error(problem)
        sys.exit(TERMINAL)
    except (click.Abort, KeyboardInterrupt):
        output.cancelled()
        sys.exit(CANCELLED)
    except BatchmergeError as problem:
        output.error(problem)
        sys.exit(failure_code([isinstance(problem, TransientError)]))
    except Exception as problem:
        if refusal := _refusal(problem):
            output.error(refusal)
            sys.exit(TERMINAL)
        traceback.print_exc()
        sys.exit(BUG)


def _refusal(problem: Exception) -> StorageError | None:
    """The error of a file or folder that cannot be read or written; None: a bug of ours."""
    if not isinstance(problem, OSError) or problem.errno not in _REFUSED:
        return None
    if problem.filename is None and problem.errno not in _FULL:
        return None  # a socket's
    remedy = "check its permissions and the free space of its disk; BATCHMERGE_HOME names the data folder"
    return StorageError(str(problem.strerror).lower(), where=str(problem.filename or ""), remedy=remedy)
