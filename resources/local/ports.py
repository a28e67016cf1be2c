"""Free ports on the loopback interface.

They are taken from below the range that operating systems hand out to outgoing connections, so that a port that a data
folder has kept is still free at the next `up`.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Collection

from resources.errors import Unavailable
from resources.local.service import HOST

# The range to choose from; `LAST` is the first port above it.
FIRST = 20_000
LAST = 32_000


def is_free(port: int) -> bool:
    """Whether a server could listen on this port now."""
    with socket.socket() as probe:
        # As servers do it: connections that linger after a restart are no obstacle, a listener is.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def free_port(taken: Collection[int]) -> int:
    """A free port that is not in `taken`.

    Raises:
        Unavailable: no free port in the range.
    """
    for port in random.sample(range(FIRST, LAST), k=500):
        if port not in taken and is_free(port):
            return port
    raise Unavailable("no free port found", where=f"{HOST}:{FIRST}-{LAST}", remedy="stop services that use these ports")


def accepts(port: int) -> bool:
    """Whether something listens on this port."""
    with socket.socket() as probe:
        probe.settimeout(2)
        return probe.connect_ex((HOST, port)) == 0
