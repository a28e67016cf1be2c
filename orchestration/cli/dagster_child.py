"""Asks Dagster's instance in a child process: while that imports Dagster, for more than a second, this one imports
what tables need, and asks them.

A question is a line on the child's standard input, an answer a line on its standard output. The child ends when its
standard input does, so with this process, whatever either of them is doing then.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from queue import SimpleQueue
from subprocess import PIPE
from typing import TextIO

from jobs.time_limit import with_timeout
from orchestration.cli import GARBAGE_THRESHOLD
from orchestration.status.dagster_answers import AsksDagster, DagsterState, TableKey, used_home
from resources.errors import TimeLimitReached, Unavailable

# Seconds for an answer, with the child's start, and for each pipeline or table that it is about.
_LIMIT, _FOR_EACH = 60.0, 1.0
_STATE, _STALE_KEYS = "state", "stale keys"
# `-P`: a module in the current folder is not taken for one of ours.
_CHILD = (sys.executable, "-P", "-m", __name__)


class DagsterChild(AsksDagster):
    """Starts the child when it is made, if Dagster was ever used here."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._start_if_used()

    def __enter__(self) -> DagsterChild:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        """The next question starts another child."""
        if self._process:
            self._process.kill()
            self._process.communicate()
        self._process = None

    def state(self, pipelines: Mapping[str, Sequence[TableKey]]) -> DagsterState:
        if not self._start_if_used():
            return DagsterState()
        return DagsterState.model_validate_json(self._answer(_STATE, pipelines))

    def stale_keys(self, tables: Sequence[TableKey]) -> list[int]:
        if not self._start_if_used():
            return [0] * len(tables)
        found: list[int] = json.loads(self._answer(_STALE_KEYS, tables))
        return found

    def _start_if_used(self) -> bool:
        if self._process is None and used_home():
            # In a session of its own: Ctrl-C interrupts this process alone, and then the child ends with it.
            self._process = subprocess.Popen(_CHILD, stdin=PIPE, stdout=PIPE, text=True, start_new_session=True)
        return self._process is not None

    def _answer(self, asked: str, about: Mapping[str, object] | Sequence[object]) -> str:
        """Raises Unavailable: the child has ended, or does not answer in time."""
        process, where = self._process, f"Dagster ({used_home()})"
        assert process
        assert process.stdin
        assert process.stdout
        stdin, stdout = process.stdin, process.stdout

        def ask() -> str:
            try:
                print(json.dumps({asked: about}), file=stdin, flush=True)
            except BrokenPipeError:
                return ""
            return stdout.readline()

        limit = _LIMIT + _FOR_EACH * len(about)
        try:
            if said := with_timeout(limit, where, ask, process.kill):
                return said
            what = f"the process that asks Dagster has ended with exit code {process.wait()}"
        except TimeLimitReached:
            what = f"no answer within {limit:g} s"
        self._end()
        raise Unavailable(what, where=where, remedy="check Dagster's database and the output above, then try again")


def main() -> None:
    """The child: answers questions until there are no more."""
    gc.set_threshold(GARBAGE_THRESHOLD)
    answers, questions = os.fdopen(os.dup(1), "w"), SimpleQueue[str]()
    os.dup2(2, 1)  # nothing else that prints disturbs the answers
    threading.Thread(target=_answer_all, args=(questions, answers), daemon=True).start()
    for line in sys.stdin:
        questions.put(line)
    os._exit(0)  # also where Dagster hangs


def _answer_all(questions: SimpleQueue[str], answers: TextIO) -> None:
    try:
        from orchestration.status.dagster_state import DagsterHere, used_instance

        with used_instance() as instance:
            here = DagsterHere(instance)
            while True:
                ((asked, about),) = json.loads(questions.get()).items()
                found = here.state(about).model_dump_json() if asked == _STATE else json.dumps(here.stale_keys(about))
                print(found, file=answers, flush=True)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


if __name__ == "__main__":
    main()
