"""An object store that is busy, slow, or whose answers get lost; behind it the real one."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from socket import SHUT_RDWR
from threading import Lock

from tests.kit.passing_on import PassingOn
from tests.kit.web import serving


@dataclass
class Faults:
    """How the store fails.

    Attributes:
        busy: the share of requests that are answered with 503 instead.
        lost: the share of requests that are done, and of which the answer does not arrive.
        delay: seconds before each request is done.
        seen: how often each of the first two happened.
    """

    busy: float = 0.0
    lost: float = 0.0
    delay: float = 0.0
    seen: dict[str, int] = field(default_factory=lambda: {"busy": 0, "lost": 0})
    _dice: random.Random = field(default_factory=lambda: random.Random(1))
    _lock: Lock = field(default_factory=Lock)

    def strike(self) -> str:
        """The fault of this request: ``busy``, ``lost``, or none."""
        with self._lock:
            number = self._dice.random()
            found = "busy" if number < self.busy else "lost" if number < self.busy + self.lost else ""
            if found:
                self.seen[found] += 1
            return found


@contextmanager
def faulty_store(endpoint: str) -> Iterator[tuple[Faults, str]]:
    """A store in front of the one at `endpoint`, and where it is."""
    faults = Faults()

    class Gate(PassingOn):
        address = endpoint.removeprefix("http://")

        def pass_on(self) -> None:
            body, fault = self.body(), faults.strike()
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
        yield faults, own
