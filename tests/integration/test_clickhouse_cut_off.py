"""Answers of ClickHouse that end too early: the connection is cut off in the middle of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from resources.clickhouse import ClickHouseServer
from resources.connections import ClickHouseConnection, Connections
from resources.errors import Unavailable
from tests.kit.passing_on import Answer, PassingOn
from tests.kit.web import serving

pytestmark = pytest.mark.usefixtures("clickhouse")

ROWS = "SELECT number, randomPrintableASCII(100) AS text FROM numbers(10000)"


@pytest.fixture(params=[False, True], ids=["length", "chunks"])
def cut(request: pytest.FixtureRequest, connections: Connections) -> Iterator[ClickHouseServer]:
    """A server whose long answers break off: before the announced length, or within a chunk."""
    known = connections.get("clickhouse", ClickHouseConnection)

    class Gate(PassingOn):
        address = known.endpoints[0]

        def reply(self, answer: Answer) -> None:
            if len(answer.content) < 100_000:
                super().reply(answer)
                return
            self.send_response(answer.status)
            length = {"Transfer-Encoding": "chunked"} if request.param else {"Content-Length": str(len(answer.content))}
            for name, value in {**answer.headers, **length}.items():
                if not (request.param and name == "Content-Length"):
                    self.send_header(name, value)
            self.end_headers()
            if request.param:
                self.wfile.write(b"%x\r\n" % len(answer.content))
            self.wfile.write(answer.content[: len(answer.content) // 2])
            self.close_connection = True

    with serving(Gate) as address:
        endpoint = address.removeprefix("http://")
        yield ClickHouseServer("clickhouse", known.model_copy(update={"endpoints": [endpoint]}), endpoint)


@pytest.mark.parametrize(
    "ask",
    [
        lambda server: server.rows(ROWS),
        lambda server: server.arrow(ROWS),
        lambda server: list(server.batches(ROWS)),
    ],
    ids=["rows", "arrow", "batches"],
)
def test_answer_that_breaks_off_is_no_answer(ask: Callable[[ClickHouseServer], object], cut: ClickHouseServer) -> None:
    with pytest.raises(Unavailable, match=r"(no answer|its answer broke off).*Fix: "):
        ask(cut)


def test_statement_that_fails_in_the_middle_of_its_answer(connections: Connections) -> None:
    known = connections.get("clickhouse", ClickHouseConnection)
    server = ClickHouseServer("clickhouse", known, known.endpoints[0])
    fails = "SELECT number, randomPrintableASCII(100) AS text, throwIf(number = 900000) AS late FROM numbers(1000000)"
    with pytest.raises(Unavailable, match=r"broke off. Fix: run again; .*`SELECT \* FROM system.errors`"):
        list(server.batches(fails))
