"""What a registry's answers become, asked over HTTP from a server of the test."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import ClassVar

import pytest

from resources.connections import SchemaRegistryConnection
from resources.errors import ConfigurationError, TerminalError, Unavailable
from resources.schema_registry import SchemaRegistry
from tests.kit.web import Handler, serving

SECRET = "hunter2-secret"


class Answers(Handler):
    """Answers by path; everything else is 404."""

    table: ClassVar[dict[str, tuple[int, object]]] = {}
    asked: ClassVar[list[tuple[str, str | None]]] = []

    def do_GET(self) -> None:
        path = self.path.split("?")[0]
        self.asked.append((path, self.headers.get("Authorization")))
        status, content = self.table.get(path, (404, {"error_code": 40403}))
        self.answer(status, content if isinstance(content, bytes) else json.dumps(content).encode())


@pytest.fixture
def server() -> Iterator[str]:
    Answers.table, Answers.asked = {}, []
    with serving(Answers) as address:
        yield address


def registry(url: str, **more: object) -> SchemaRegistry:
    connection = {"kind": "schema_registry", "url": url, "timeout_seconds": 5, **more}
    return SchemaRegistry("reg", SchemaRegistryConnection.model_validate(connection))


def test_references_come_first_and_an_id_is_asked_for_once(server: str) -> None:
    base = {"name": "base.proto", "subject": "base", "version": 1}
    middle = {"name": "middle.proto", "subject": "mid/dle", "version": 2}
    Answers.table = {
        "/schemas/ids/7": (200, {"schema": "top", "schemaType": "PROTOBUF", "references": [middle, base]}),
        "/subjects/mid%2Fdle/versions/2": (200, {"schema": "middle", "references": [base]}),
        "/subjects/base/versions/1": (200, {"schema": "base"}),
    }
    asked = registry(server)
    for _ in range(2):
        found = asked.by_id(7)
        assert found is not None
        assert (found.type, found.texts, found.names) == (
            "PROTOBUF", ("base", "middle", "top"), ("base.proto", "middle.proto", "")
        )  # fmt: skip
    assert len(Answers.asked) == 3
    assert asked.by_id(8) is None


@pytest.mark.parametrize(
    ("status", "content", "error"),
    [
        (500, {}, Unavailable),
        (503, b"busy", Unavailable),
        (429, {}, Unavailable),
        (401, {}, ConfigurationError),
        (403, {}, ConfigurationError),
        (400, {}, TerminalError),
        (200, b"<html>", TerminalError),
        (404, b"<html>", TerminalError),
        (404, {"error_code": 404, "message": "HTTP 404 Not Found"}, TerminalError),
        (404, ["no page"], TerminalError),
    ],
)
def test_answers_that_are_none(server: str, status: int, content: object, error: type[Exception]) -> None:
    Answers.table = {"/schemas/ids/1": (status, content)}
    with pytest.raises(error) as caught:
        registry(server, username="me", password=SECRET).by_id(1)
    assert SECRET not in str(caught.value)
    assert "reg" in str(caught.value)


def test_a_subject_that_is_not_shown_to_us_is_none(server: str) -> None:
    """As Confluent's registry answers whether the subject is there or not."""
    Answers.table = {"/subjects/t-value/versions/latest": (403, {"error_code": 40301}), "/subjects": (403, {})}
    assert registry(server).latest("t-value") is None
    with pytest.raises(ConfigurationError, match="refuses the credentials"):
        registry(server).subjects()
    Answers.table = {"/subjects/t-value/versions/latest": (401, {})}
    with pytest.raises(ConfigurationError, match="refuses the credentials"):
        registry(server).latest("t-value")


GUID = "c8a6f9f0-9c6d-4f0e-8d5f-0d6f0a3b2c1d"


def test_a_guid_is_asked_for_once(server: str) -> None:
    Answers.table = {f"/schemas/guids/{GUID}": (200, {"schema": "top", "schemaType": "JSON", "guid": GUID})}
    asked = registry(server)
    for _ in range(2):
        found = asked.by_id(GUID)
        assert found is not None
        assert (found.id, found.type, found.texts, found.guid) == (GUID, "JSON", ("top",), GUID)
    assert [path for path, _ in Answers.asked] == [f"/schemas/guids/{GUID}"]


NO_PAGE = (404, {"error_code": 404, "message": "HTTP 404 Not Found"})


@pytest.mark.parametrize("answer", [(404, {"error_code": 40403}), NO_PAGE, (404, b"")])
@pytest.mark.parametrize("id_zero", [(404, {"error_code": 40403}), (403, {})])
def test_an_unknown_guid_is_none_also_where_the_registry_has_no_guids(
    server: str, answer: tuple[int, object], id_zero: tuple[int, object]
) -> None:
    Answers.table = {f"/schemas/guids/{GUID}": answer, "/schemas/ids/0": id_zero}
    assert registry(server).by_id(GUID) is None


@pytest.mark.parametrize("answer", [NO_PAGE, (404, b"")])
def test_a_guid_does_not_hide_a_wrong_address(server: str, answer: tuple[int, object]) -> None:
    Answers.table = {f"/schemas/guids/{GUID}": answer, "/schemas/ids/0": answer}
    with pytest.raises(TerminalError, match=r"root of a Confluent-compatible API"):
        registry(server).by_id(GUID)


def test_the_newest_version_says_its_guid(server: str) -> None:
    newest = {"id": 7, "schema": "top", "guid": GUID}
    Answers.table = {"/subjects/t-value/versions/latest": (200, newest)}
    found = registry(server).latest("t-value")
    assert found is not None
    assert (found.id, found.guid) == (7, GUID)


@pytest.mark.parametrize("answer", [(200, {"message": "welcome"}), (404, {"error_code": 40401}), (404, b"")])
def test_what_lists_no_subjects_is_no_registry(server: str, answer: tuple[int, object]) -> None:
    Answers.table = {"/subjects": answer}
    with pytest.raises(TerminalError, match=r"root of a Confluent-compatible API"):
        registry(server).subjects()


def test_the_next_address_is_tried(server: str) -> None:
    Answers.table = {"/subjects": (200, ["a"])}
    assert registry(f"http://127.0.0.1:9, {server}/").subjects() == ["a"]
    with pytest.raises(Unavailable, match="does not answer"):
        registry("http://127.0.0.1:9").subjects()


def test_credentials(server: str) -> None:
    Answers.table = {"/subjects": (200, [])}
    registry(server, username="me", password="pw").subjects()
    registry(server, token="abc").subjects()
    assert [sent for _, sent in Answers.asked] == ["Basic bWU6cHc=", "Bearer abc"]
    with pytest.raises(ConfigurationError, match="on their own"):
        registry(f"http://me:{SECRET}@127.0.0.1:9")
    with pytest.raises(ConfigurationError, match="a TLS file"):
        registry(server, ca_file="/does/not/exist").subjects()
