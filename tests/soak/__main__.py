"""`python -m tests.soak --kills N --seed S`: kills everything, again and again, and proves every table right.

Prints what each next run needed to go on. Exit code 1: a table is not right, or a run did not go on; then it prints
the step, and the command that draws the same steps again. Exit code 2: all is right, but too many runs began late.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path

import psutil

from resources.local import stack as local_stack
from tests.kit.project import Project
from tests.soak.services import Services
from tests.soak.soak import SIX, Soak, Table


def soak(kills: int, seed: int, home: Path, folder: Path, tables: Sequence[Table] = SIX) -> Soak | None:
    """So many kills, after each of which every table was right; None where one was not."""
    services = Services(home, folder)
    try:
        services.start()
        file = services.connections_file
        here, elsewhere = (Project(folder / name, home, file) for name in ("here", "elsewhere"))
        one = Soak(services, here, elsewhere, seed, tables, lambda line: print(line, flush=True))
        try:
            one.begin()
            while one.kills < kills:
                one.play()
        except Exception as problem:
            if not isinstance(problem, AssertionError):
                traceback.print_exc()
            print(f"FAILED in step {one.step} of seed {seed}, after {one.kills} kills: {problem}", flush=True)
            print(f"the same again: python -m tests.soak --kills {kills} --seed {seed}", flush=True)
            return None
        finally:
            print("\n".join(one.figures()), flush=True)
    finally:
        services.stop()
    return one


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--home", type=Path, help="data folder of a stack that runs; left out: one of its own")
    given = parser.parse_args()
    # Of a background job, too: it ends its services, and prints the figures so far.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="batchmerge-soak-") as folder:
        home = given.home.absolute() if given.home else Path(folder) / "stack"
        os.environ["BATCHMERGE_HOME"] = str(home)
        try:
            done = soak(given.kills, given.seed, home, Path(folder))
            return 1 if done is None else 0 if done.in_time() else 2
        except KeyboardInterrupt:
            return 130
        finally:
            if not given.home:
                local_stack.down(home, print)
            for left in psutil.Process().children(recursive=True):  # runs of a step that was cut off
                left.kill()


if __name__ == "__main__":
    sys.exit(main())
