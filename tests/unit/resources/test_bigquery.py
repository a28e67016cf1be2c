"""What is asked of BigQuery's client, and what its answers mean."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from google.api_core import exceptions as google
from google.auth.credentials import AnonymousCredentials
from google.cloud import bigquery as client

from resources.bigquery import BigQuery
from resources.bigquery_credentials import credentials_of
from resources.connections import BigQueryConnection
from resources.errors import BatchmergeError, ConfigurationError, TimeLimitReached, TransientError, Unavailable
from tests.kit.service_account import account

CONNECTION = BigQueryConnection(kind="bigquery", project="p", location="EU")


@pytest.fixture
def service() -> BigQuery:
    found = BigQuery("bq", CONNECTION)
    found.__dict__["client"] = Mock(spec=client.Client)
    return found


def test_every_query_is_read_in_utc(service: BigQuery) -> None:
    """Whatever `default_time_zone` the project has."""
    asked: Any = service.client
    asked.query_and_wait.return_value = []
    asked.query.return_value.num_dml_affected_rows = 1
    service.read("SELECT 1", {}, "t")
    service.change("UPDATE", {}, "t")
    service.submit_query("id", "MERGE", {}, {"a": "b"})
    calls = [*asked.query.call_args_list, *asked.query_and_wait.call_args_list]
    configs = [call.kwargs["job_config"] for call in calls]
    assert [(p.key, p.value) for c in configs for p in c.connection_properties] == [("time_zone", "UTC")] * 3
    assert [c.labels for c in configs if c.labels] == [{"a": "b"}]


def test_a_question_of_a_whole_table_gets_its_time(service: BigQuery) -> None:
    asked: Any = service.client
    job = asked.query.return_value
    job.state, job.error_result = "RUNNING", None
    job.reload.side_effect = lambda **_: setattr(job, "state", "DONE")
    assert service.long_arrow("SELECT 1", "t", 3600) is job.result.return_value.to_arrow.return_value
    job.cancel.assert_not_called()
    assert job.result.call_args.kwargs["timeout"] == CONNECTION.timeout_seconds
    job.state, job.error_result = "RUNNING", {"reason": "stopped"}
    job.cancel.side_effect = lambda **_: setattr(job, "state", "DONE")
    with pytest.raises(TransientError, match="cancelled"):
        service.long_arrow("SELECT 1", "t", 0)


@pytest.mark.parametrize("takes", [0.3, 1, 4, 20])
def test_the_end_of_a_job_is_noticed_soon(service: BigQuery, monkeypatch: pytest.MonkeyPatch, takes: float) -> None:
    slept: list[float] = []
    clock = SimpleNamespace(sleep=slept.append, monotonic=lambda: sum(slept))
    monkeypatch.setattr("resources.bigquery.time", clock)
    job: Any = Mock(spec=client.LoadJob, state="RUNNING", error_result=None, job_id="j")
    job.reload.side_effect = lambda **_: setattr(job, "state", "DONE" if sum(slept) >= takes else "RUNNING")
    service.finish(job, 600)
    assert takes <= sum(slept) <= 1.25 * takes
    assert job.reload.call_count < 35


@pytest.mark.parametrize(
    ("reason", "kind"), [("stopped", TimeLimitReached), ("backendError", Unavailable), (None, None)]
)
def test_a_job_that_never_fits_its_time_limit_says_so(
    service: BigQuery, reason: str | None, kind: type[BatchmergeError] | None
) -> None:
    """It is run again only by the next run; or it ended otherwise, just before it was cancelled."""
    job = Mock(state="RUNNING", error_result=None, job_id="j-1")
    ended = {"reason": reason, "message": "no"} if reason else None
    job.cancel.side_effect = lambda **_: job.configure_mock(state="DONE", error_result=ended)
    found = service.wait(job, 0)
    assert (type(found) if found else None) is kind
    if isinstance(found, TimeLimitReached):
        assert found.facts["seconds"] == 0
        assert all(name in found.remedy for name in ("`time_limit_seconds`", "`batch.max_records`"))


def test_dataset_that_exists_is_not_created(service: BigQuery) -> None:
    asked: Any = service.client
    service.create_dataset("d")
    asked.create_dataset.assert_not_called()
    asked.get_dataset.side_effect = google.NotFound("no")
    service.create_dataset("d")
    asked.create_dataset.assert_called_once()


def test_texts_of_a_new_table_are_compared_as_they_are(service: BigQuery) -> None:
    """Whatever collation the dataset gives to new tables."""
    asked: Any = service.client
    service.create_table(client.Table("p.d.t", schema=[client.SchemaField("id", "STRING")]))
    (made,) = asked.create_table.call_args.args
    assert made.to_api_repr()["defaultCollation"] == ""
    assert (str(made.reference), [f.name for f in made.schema]) == ("p.d.t", ["id"])


def test_our_own_tables_lose_their_expiry_in_words_that_bigquery_takes(service: BigQuery) -> None:
    """What a PATCH leaves out stays as it is: expiries have to be null in it."""
    asked: Any = service.client
    table = {"datasetId": "d", "projectId": "p", "tableId": "t"}
    found = {"tableReference": table, "timePartitioning": {"type": "DAY", "expirationMs": "86400000"}}
    asked.get_table.return_value = client.Table.from_api_repr({**found, "expirationTime": "1700000000000"})
    service.create_lasting_table(client.Table("p.d.t"))
    ((changed, fields),) = (call.args for call in asked.update_table.call_args_list)
    assert changed._build_resource(fields) == {
        "expirationTime": None,
        "timePartitioning": {"type": "DAY", "expirationMs": None},
    }
    asked.get_table.return_value = client.Table("p.d.t")
    service.create_lasting_table(client.Table("p.d.t"))
    asked.update_table.assert_called_once()


def test_labels_are_added_beside_those_that_a_table_has(service: BigQuery) -> None:
    asked: Any = service.client
    table = client.Table("p.d.t")
    table.labels = {"team": "air", "batchmerge-deletes": "lost"}
    service.add_labels(table, {"batchmerge-deletes": "kept"})
    ((changed, fields),) = (call.args for call in asked.update_table.call_args_list)
    assert changed._build_resource(fields) == {"labels": {"team": "air", "batchmerge-deletes": "kept"}}


def test_job_that_cannot_be_read_may_be_of_another_account(service: BigQuery) -> None:
    asked: Any = service.client
    asked.get_job.side_effect = google.Forbidden("no", errors=[{"reason": "accessDenied"}])
    with pytest.raises(ConfigurationError, match=r"`bigquery\.jobs\.get`.*another account"):
        service.find_job("j-1")
    asked.query.side_effect = google.Conflict("taken")
    with pytest.raises(ConfigurationError, match=r"`bigquery\.jobs\.get`.*another account"):
        service.submit_query("j-1", "SELECT 1", {}, {})


@pytest.mark.parametrize(("location", "says"), [("eu", None), ("US", "location: US"), (None, None)])
def test_dataset_in_another_place(service: BigQuery, location: str | None, says: str | None) -> None:
    asked: Any = service.client
    asked.get_dataset.side_effect = None if location else google.NotFound("no")
    asked.get_dataset.return_value = SimpleNamespace(location=location)
    if says is None:
        service.check_location("d")
    else:
        with pytest.raises(ConfigurationError, match=says):
            service.check_location("d")


def test_an_endpoint_gets_the_credentials_of_the_connection_if_it_has_some() -> None:
    emulator = {"kind": "bigquery", "project": "p", "endpoint": "http://127.0.0.1:1"}
    none = BigQueryConnection.model_validate(emulator)
    some = BigQueryConnection.model_validate({**emulator, "credentials_json": json.dumps(account("http://t", "k"))})
    assert isinstance(credentials_of(none, "bq"), AnonymousCredentials)
    assert credentials_of(some, "bq").service_account_email == "me@p.iam"


_FEDERATION = {
    "type": "external_account",
    "audience": "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/o",
    "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
    "token_url": "https://sts.googleapis.com/v1/token",
    "credential_source": {"file": "/var/run/token"},
}
_USER = {"type": "authorized_user", "client_id": "c", "client_secret": "hidden", "refresh_token": "hidden"}


@pytest.mark.parametrize("text", [_FEDERATION, _USER, {**account("http://t", "k"), "type": "service_account"}])
def test_credentials_of_every_type(text: dict[str, object], tmp_path: Path) -> None:
    file = tmp_path / "credentials.json"
    file.write_text(json.dumps(text))
    found = [
        credentials_of(BigQueryConnection.model_validate({"kind": "bigquery", "project": "p", **where}), "bq")
        for where in ({"credentials_file": str(file)}, {"credentials_json": json.dumps(text)})
    ]
    assert len({type(one) for one in found}) == 1
    assert text is _USER or found[0].scopes == ["https://www.googleapis.com/auth/bigquery"]


_IMPERSONATED = {"type": "impersonated_service_account", "delegates": ["hidden"]}


@pytest.mark.parametrize(
    "text",
    [
        '{"type": "magic", "key": "hidden"}',
        '["hidden"]',
        "hidden",
        '{"type": "authorized_user"}',
        json.dumps(_IMPERSONATED),
        json.dumps({**_IMPERSONATED, "source_credentials": {"type": "authorized_user", "refresh_token": "hidden"}}),
        json.dumps({**_FEDERATION, "credential_source": "hidden"}),
        json.dumps({**_FEDERATION, "credential_source": ["hidden"]}),
    ],
)
def test_credentials_that_cannot_be_read(text: str) -> None:
    connection = BigQueryConnection.model_validate({"kind": "bigquery", "project": "p", "credentials_json": text})
    with pytest.raises(ConfigurationError, match="workload identity federation") as caught:
        credentials_of(connection, "bq")
    assert "hidden" not in str(caught.value)


def test_jobs_may_run_in_another_project() -> None:
    more = {"endpoint": "http://127.0.0.1:1", "billing_project": "pays"}
    found = BigQuery("bq", BigQueryConnection.model_validate({"kind": "bigquery", "project": "data", **more}))
    assert (found.client.project, found.table_id("d.t")) == ("pays", "data.d.t")
