"""An object store that is busy, slow, or whose answers get lost; behind it the real one.

It is a process of its own: Arrow holds Python's global lock while it asks Google's store (`NativeFile.closed`), so a
store in the same process could not answer.
"""

from __future__ import annotations

import multiprocessing
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from socket import SHUT_RDWR
from threading import Event

from tests.kit.passing_on import PassingOn
from tests.kit.web import serving

_SPAWN = multiprocessing.get_context("spawn")


class Faults:
    """How the store fails; shared with its process.

    Attributes:
        busy: the share of requests that are answered with 503 instead.
        lost: the share of requests that are done, and of which the answer does not arrive.
        delay: seconds before each request is done.
        seen: how often each of the first two happened.
    """

    def __init__(self) -> None:
        self._shares, self._seen = _SPAWN.Array("d", 3), _SPAWN.Array("q", 2)

    def set(self, busy: float = 0.0, lost: float = 0.0, delay: float = 0.0) -> None:
        self._shares[:] = [busy, lost, delay]

    @property
    def delay(self) -> float:
        return float(self._shares[2])

    @property
    def seen(self) -> dict[str, int]:
        return dict(zip(("busy", "lost"), self._seen[:], strict=True))

    def strike(self, dice: random.Random) -> str:
        """The fault of this request: ``busy``, ``lost``, or none."""
        with self._shares, self._seen:
            number, (busy, lost, _) = dice.random(), self._shares[:]
            found = "busy" if number < busy else "lost" if number < busy + lost else ""
            if found:
                self._seen[("busy", "lost").index(found)] += 1
            return found


@contextmanager
def faulty_store(endpoint: str) -> Iterator[tuple[Faults, str]]:
    """A store in front of the one at `endpoint`, and where it is."""
    faults, (here, there) = Faults(), _SPAWN.Pipe()
    server = _SPAWN.Process(target=_serve, args=(endpoint.removeprefix("http://"), faults, there), daemon=True)
    server.start()
    try:
        yield faults, here.recv()
    finally:
        server.terminate()
        server.join()


def _serve(store: str, faults: Faults, started: Connection) -> None:
    dice = random.Random(1)

    class Gate(PassingOn):
        address = store

        def pass_on(self) -> None:
            if self.headers.get("Content-Range", "").startswith("bytes */"):
                # How much of an upload is there? Nothing, of one that was refused. Google's stand-in would end it.
                self.answer(308)
                return
            body, fault = self.body(), faults.strike(dice)
            time.sleep(faults.delay)
            if fault == "busy":
                self.answer(503)
                return
            answer = self.ask(body)
            if fault == "lost":
                self.close_connection = True
                self.connection.shutdown(SHUT_RDWR)
                return
            self.reply(answer)

    with serving(Gate) as own:
        started.send(own)
        Event().wait()
