"""The daemon's side: one warm process per code location, as that was last loaded."""

from __future__ import annotations

import json
import logging
import os
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass, field

import dagster as dg
from dagster._core.origin import RepositoryPythonOrigin
from dagster._serdes import serialize_value

from resources.errors import Unavailable

_LOG = logging.getLogger("batchmerge")
# Seconds to wait for a fork, which takes milliseconds.
_PATIENCE = 20.0
# Without these numpy and pyarrow start threads when they are imported: to multiply matrices, and to free memory in the
# background.
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
# Not by `-m`: each step would look for that main module.
_SERVER = f"from {__package__}.server import main; main()"


class WarmProcess:
    """Starts loading when it is made; `is_ready` says when it can fork."""

    def __init__(self, origin: RepositoryPythonOrigin, instance: dg.DagsterInstance) -> None:
        ours, theirs = socket.socketpair()
        # Not as arguments, which everybody on the machine sees: the instance's settings may hold a password.
        loads = {"origin": serialize_value(origin), "instance": serialize_value(instance.get_ref())}
        with theirs:
            self._process = subprocess.Popen(
                [origin.executable_path or sys.executable, "-c", _SERVER, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.PIPE,
                env=os.environ | _ONE_THREAD,
                cwd=getattr(origin.code_pointer, "working_directory", None) or os.getcwd(),
            )
        assert self._process.stdin
        with suppress(OSError), self._process.stdin as stdin:  # where it has ended already, `_wait` says so
            stdin.write(json.dumps(loads).encode())
        self._socket, self._answers = ours, ours.makefile()
        self._ready = threading.Event()
        threading.Thread(target=self._wait, daemon=True).start()

    @property
    def is_ready(self) -> bool:
        return self._ready.is_set() and self._process.poll() is None

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    @property
    def died_with(self) -> int | None:
        """The exit code, if it was ready and has ended unasked; None: it lives, or still loads."""
        return self._process.poll() if self._ready.is_set() else None

    def start_run(self, run_id: str) -> int | None:
        """The process id of the run; None: it cannot fork now.

        Raises:
            Unavailable: it does not answer any more; the run may be started in another way.
        """
        try:
            self._socket.settimeout(_PATIENCE)
            self._socket.sendall(json.dumps({"run": run_id}).encode() + b"\n")
            answer = json.loads(self._answers.readline())
        except (OSError, ValueError) as problem:
            raise Unavailable(f"the warm process does not answer ({problem})") from None
        if refused := answer.get("problem"):
            _LOG.warning("the warm process cannot fork a run (%s): it starts in its code server", refused)
            return None
        return int(answer["pid"])

    def retire(self) -> None:
        """Asks it to end after the last of its runs."""
        self._ready.clear()
        try:
            self._socket.sendall(b"{}\n")
        except OSError:
            self._process.kill()

    def _wait(self) -> None:
        try:
            ready = "ready" in json.loads(self._answers.readline())
        except (OSError, ValueError):
            ready = False
        if ready:
            self._ready.set()
        else:
            code = self._process.wait()
            _LOG.warning("no warm process (it ended with %d, see above): runs start in their code server", code)


@dataclass
class WarmProcesses:
    """The warm processes by code location. One that does not start is not tried again before the next reload."""

    _known: dict[str, tuple[str, WarmProcess]] = field(default_factory=dict)
    # Those that may still have runs: their sockets stay open, since at the end of its socket each ends its runs.
    _retired: list[WarmProcess] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def start_run(
        self, instance: dg.DagsterInstance, origin: RepositoryPythonOrigin, server_id: str, run_id: str
    ) -> int | None:
        """The process id of the run; None: it has to be started in another way, for now or for good.

        Args:
            server_id: id of the code server, which changes with each reload.
        """
        key = serialize_value(origin)
        with self._lock:
            loaded, warm = self._known.get(key, ("", None))
            if warm and (code := warm.died_with) is not None:
                _LOG.warning("the warm process has ended with %d: another one is started", code)
                warm = None
            if warm is None or loaded != server_id:
                if warm:
                    self._retire(warm)
                self._known[key] = (server_id, WarmProcess(origin, instance))
                return None
            if not warm.is_ready:
                return None
            try:
                return warm.start_run(run_id)
            except Unavailable as problem:
                _LOG.warning("%s", problem)
                self._retire(warm)
                del self._known[key]
                return None

    def _retire(self, warm: WarmProcess) -> None:
        warm.retire()
        self._retired = [*(one for one in self._retired if not one.has_ended), warm]
