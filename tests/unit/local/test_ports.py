import socket

import pytest

from resources.errors import Unavailable
from resources.local import ports
from resources.local.ports import FIRST, LAST, accepts, free_port, is_free


def test_a_port_with_a_listener_is_not_free_and_accepts() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        assert not is_free(port)
        assert accepts(port)
    assert is_free(port)
    assert not accepts(port)


def test_chosen_ports_are_free_distinct_and_outside_the_range_of_outgoing_connections() -> None:
    chosen: set[int] = set()
    for _ in range(20):
        chosen.add(free_port(chosen))
    assert len(chosen) == 20
    assert all(FIRST <= port < LAST and is_free(port) for port in chosen)


def test_a_full_range_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "LAST", FIRST + 600)
    with pytest.raises(Unavailable, match="no free port"):
        free_port(range(FIRST, FIRST + 600))
