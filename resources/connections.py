"""Connections: addresses and credentials of outside systems, by name.

Pipeline files name connections; the connections file says where they are (`jobs.connections_file`). A value may be
``${env:NAME}`` or ``${file:/path}``: so are secrets given, and fields that hold one are `SecretStr`, which prints as
stars.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import Field, SecretStr

from resources.config_files.mistakes import Mistake
from resources.config_files.models import Options
from resources.errors import ConfigurationError
from resources.kafka_settings import IDENTITY, is_free, why_not_free
from resources.project import enclosing_project
from resources.spark_address import SparkAddress

_DATA = ".batchmerge"


class Connection(Options):
    """Base of all connections."""


def secret_text(secret: SecretStr | None) -> str:
    """The secret itself; empty where there is none."""
    return secret.get_secret_value() if secret else ""


C = TypeVar("C", bound=Connection)
T = TypeVar("T")


SaslMechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "AWS_MSK_IAM"]


def _pair_mistakes(certificate_file: str | None, key_file: str | None) -> Iterator[Mistake]:
    if bool(certificate_file) != bool(key_file):
        missing = "certificate_file" if key_file else "key_file"
        remedy = "give `certificate_file` and `key_file`, which belong together"
        yield Mistake((missing,), "it is missing", remedy, at_key=True)


class KafkaConnection(Connection):
    """A Kafka cluster."""

    kind: Literal["kafka"]
    bootstrap_servers: str = Field(description="host:port of brokers, with commas between them")
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = Field(
        "PLAINTEXT", description="whether connections are encrypted (SSL), and whether a user is named (SASL)"
    )
    sasl_mechanism: SaslMechanism | None = Field(None, description="how the user is authenticated; SASL needs it")
    username: str | None = Field(None, description="the user of SASL; OAUTHBEARER: the client's id")
    password: SecretStr | None = Field(None, description="the password of SASL; OAUTHBEARER: the client's secret")
    token_url: str | None = Field(None, description="OAUTHBEARER: where tokens come from (OIDC client credentials)")
    token_scope: str | None = Field(None, description="OAUTHBEARER: the scope that is asked for")
    aws_region: str | None = Field(None, description="AWS_MSK_IAM: the region of the cluster", examples=["eu-west-1"])
    aws_role_arn: str | None = Field(
        None, description="AWS_MSK_IAM: a role to assume; none: the identity that AWS's libraries find on each machine"
    )
    aws_profile: str | None = Field(
        None, description="AWS_MSK_IAM: a profile of AWS's own files, which Spark's workers need too"
    )
    ca_file: str | None = Field(
        None, description="PEM file with the certificate authority; Spark's workers read it too"
    )
    certificate_file: str | None = Field(None, description="PEM file with the client certificate (mTLS)")
    key_file: str | None = Field(None, description="PEM file with the client key (mTLS)")
    key_password: SecretStr | None = Field(None, description="password of an encrypted `key_file`")
    settings: dict[str, SecretStr] = Field(
        default_factory=dict,
        description="more settings of librdkafka that have no option here: client.*, socket.*, broker.*, ssl.*, "
        "sasl.oauthbearer.*",
        examples=[{"client.rack": "eu-west-1a"}],
    )
    # 300 s is librdkafka's longest.
    timeout_seconds: float = Field(20, gt=0, le=300, description="time limit of one request")

    def own_mistakes(self) -> Iterator[Mistake]:
        for rule in (self._sasl_mistakes, self._certificate_mistakes, self._setting_mistakes, self._msk_mistakes):
            yield from rule()

    def _sasl_mistakes(self) -> Iterator[Mistake]:
        sasl, oauth = self.security_protocol.startswith("SASL"), self.sasl_mechanism == "OAUTHBEARER"
        # The machine's own identity stands in for a user; librdkafka itself has a way to it for Azure alone.
        identity = self.settings.get(IDENTITY, SecretStr("none")).get_secret_value()
        by_machine = self.sasl_mechanism == "AWS_MSK_IAM" or (oauth and identity != "none")
        if sasl and not self.sasl_mechanism:
            yield Mistake(("sasl_mechanism",), f"{self.security_protocol} needs it", "name one", at_key=True)
        if self.sasl_mechanism and not sasl:
            remedy = "use SASL_SSL or SASL_PLAINTEXT as `security_protocol`"
            yield Mistake(("sasl_mechanism",), f"it does not go with {self.security_protocol}", remedy)
        if sasl and not by_machine and not (self.username and self.password):
            yield Mistake(("security_protocol",), "SASL needs a user", "give `username` and `password`")
        if sasl and oauth and not by_machine and not self.token_url:
            yield Mistake(("token_url",), "OAUTHBEARER needs it", "say where tokens come from", at_key=True)
        if sasl and self.token_url and not oauth:
            yield Mistake(("token_url",), "it goes with OAUTHBEARER only", "leave it out, or change `sasl_mechanism`")
        if identity not in ("none", "azure_imds"):
            remedy = "write azure_imds, or leave it out; Amazon MSK has `sasl_mechanism: AWS_MSK_IAM`"
            yield Mistake(("settings", IDENTITY), "Batchmerge knows the identity of Azure's machines only", remedy)

    def _certificate_mistakes(self) -> Iterator[Mistake]:
        yield from _pair_mistakes(self.certificate_file, self.key_file)
        files = self.ca_file or self.certificate_file or self.key_file
        if files and not self.security_protocol.endswith("SSL"):
            what = f"{self.security_protocol} does not use the certificates"
            yield Mistake(("security_protocol",), what, "use SSL or SASL_SSL")

    def _setting_mistakes(self) -> Iterator[Mistake]:
        for name in self.settings:
            if not is_free(name):
                yield Mistake(("settings", name), *why_not_free(name))

    def _msk_mistakes(self) -> Iterator[Mistake]:
        msk = self.sasl_mechanism == "AWS_MSK_IAM"
        given = {name for name in self.model_fields_set if getattr(self, name)}
        if msk and self.security_protocol == "SASL_PLAINTEXT":
            yield Mistake(("security_protocol",), "AWS_MSK_IAM needs TLS", "use SASL_SSL")
        if msk and not self.aws_region:
            yield Mistake(("aws_region",), "AWS_MSK_IAM needs it", "name the region of the cluster", at_key=True)
        if self.aws_role_arn and self.aws_profile:
            yield Mistake(("aws_profile",), "there is `aws_role_arn` too", "give one of them")
        if msk:
            tokens = [name for name in self.settings if name.startswith("sasl.oauthbearer.") and is_free(name)]
            unused = [(name,) for name in sorted(given & {"username", "password"})]
            for path in [*unused, *(("settings", name) for name in tokens)]:
                yield Mistake(path, "AWS_MSK_IAM does not use it", "leave it out")
        else:
            for name in sorted(given & {"aws_region", "aws_role_arn", "aws_profile"}):
                yield Mistake((name,), "it goes with AWS_MSK_IAM only", "leave it out, or change `sasl_mechanism`")


class SparkConnection(Connection):
    """Where Spark runs: exactly one of `remote` (a Spark Connect server) and `master` (in this process)."""

    kind: Literal["spark"]
    remote: str | None = Field(
        None, repr=False, description="sc://host:port of a Spark Connect server; parameters follow, as in `/;token=…`"
    )
    master: str | None = Field(None, description="local[*] to run Spark inside the process")
    settings: dict[str, str] = Field(default_factory=dict, repr=False, description="spark.* settings of each session")

    def own_mistakes(self) -> Iterator[Mistake]:
        try:
            SparkAddress.parse(self.remote if self.remote is not None else "sc://none")
        except ValueError as problem:
            remedy = "write it like `sc://host:15002` or `sc://host:443/;use_ssl=true;token=${env:SPARK_TOKEN}`"
            yield Mistake(("remote",), str(problem), remedy)


class IcebergConnection(Connection):
    """An Iceberg catalog, reached by Spark (catalog implementation) and by pyiceberg (catalog properties)."""

    kind: Literal["iceberg"]
    type: Literal["sql", "rest", "hive", "glue"] = Field(description="what kind of catalog it is")
    uri: str | None = Field(
        None, repr=False, description="address of the catalog, or of its database (sql) with user and password"
    )
    warehouse: str | None = Field(None, description="folder of the tables (sql, hive, glue), or its name (rest)")
    credential: SecretStr | None = Field(
        None, description="id:secret with which clients of a REST catalog get tokens (OAuth 2)"
    )
    token: SecretStr | None = Field(None, description="bearer token of a REST catalog, instead of `credential`")
    ca_file: str | None = Field(
        None,
        description="PEM file with the certificate authority of a REST catalog; Spark's JVMs use their "
        "truststore instead",
    )
    certificate_file: str | None = Field(None, description="PEM file with the client certificate (mTLS)")
    key_file: str | None = Field(None, description="PEM file with the client key (mTLS)")
    properties: dict[str, str] = Field(
        default_factory=dict, repr=False, description="further pyiceberg catalog properties"
    )
    spark_properties: dict[str, str] = Field(
        default_factory=dict, repr=False, description="further Spark catalog properties"
    )

    def own_mistakes(self) -> Iterator[Mistake]:
        if self.credential and self.token:
            yield Mistake(("token",), "there is `credential` too", "give either `credential` or `token`")
        if self.type == "rest":
            yield from _pair_mistakes(self.certificate_file, self.key_file)
            return
        for name in ("ca_file", "certificate_file", "key_file"):
            if getattr(self, name):
                yield Mistake((name,), "it goes with type rest only", "leave it out")


class ClickHouseConnection(Connection):
    """ClickHouse over HTTP(S). `endpoints` are host:port; more than one means shards, and their order counts."""

    kind: Literal["clickhouse"]
    endpoints: list[str] = Field(min_length=1, description="host:port over HTTP; several are shards, in this order")
    database: str = Field("default", description="database of the state table")
    username: str = Field("default", description="the user who connects")
    password: SecretStr | None = Field(None, description="password of this user")
    secure: bool = Field(False, description="true: HTTPS")
    ca_file: str | None = Field(None, description="PEM file with the certificate authority; Spark's workers need none")
    cluster: str | None = Field(None, description="name for ON CLUSTER")
    keeper_path: str = Field("/batchmerge", description="KeeperMap path below the server's keeper_map_path_prefix")
    state_table: str = Field("batchmerge_state", description="KeeperMap table of the leases, in `database`")
    settings: dict[str, str] = Field(default_factory=dict, description="settings of ClickHouse for each statement")
    timeout_seconds: float = Field(30, gt=0, description="time limit for connecting")
    statement_timeout_seconds: int = Field(300, gt=0, description="time limit of one statement")


class BigQueryConnection(Connection):
    """BigQuery: credentials are application default unless a file or JSON text is given."""

    kind: Literal["bigquery"]
    project: str = Field(description="where datasets are")
    billing_project: str | None = Field(
        None,
        description="project where jobs run and are paid for; none: in `project`. Change it only after a "
        "successful run, because the next run looks for the jobs of a dead run here",
    )
    location: str = Field("US", description="location of datasets and jobs")
    credentials_file: str | None = Field(
        None,
        description="JSON file of a service account key, workload identity federation, impersonation or a user; "
        "Spark's workers read it too",
    )
    credentials_json: SecretStr | None = Field(
        None, description="the text of that JSON file, instead of `credentials_file`"
    )
    endpoint: str | None = Field(
        None, description="http://host:port of an emulator; it gets credentials only if the connection has some"
    )
    reads: list[str] = Field(
        default_factory=lambda: ["gs://"],
        description="prefixes of the paths of landed files that BigQuery can read itself; empty: it reads none",
    )
    staging: str | None = Field(
        None,
        description="gs:// folder to which Spark's workers can write, for copies of landed files that BigQuery does "
        "not read, and for rows that it cannot load from landed files; none: beside the landed files if BigQuery "
        "reads there, else a worker uploads the rows",
        examples=["gs://my-bucket/batchmerge"],
    )
    timeout_seconds: float = Field(60, gt=0, description="time limit of one request")
    retry_seconds: float = Field(120, gt=0, description="how long one call is retried before the run gives up")

    def own_mistakes(self) -> Iterator[Mistake]:
        if self.credentials_file and self.credentials_json:
            remedy = "give either `credentials_file` or `credentials_json`"
            yield Mistake(("credentials_file",), "there is `credentials_json` too", remedy)


# Kinds of the connections of registries of schemas.
REGISTRIES = ("schema_registry", "glue_schema_registry")


class RegistryConnection(Connection):
    """Base of the connections of registries of schemas."""


class SchemaRegistryConnection(RegistryConnection):
    """A Confluent-compatible Schema Registry."""

    kind: Literal["schema_registry"]
    url: str = Field(description="root of its API; several addresses of one registry with commas between them")
    username: str | None = Field(None, description="the user of basic authentication")
    password: SecretStr | None = Field(None, description="password of this user")
    token: SecretStr | None = Field(None, description="bearer token")
    ca_file: str | None = Field(None, description="PEM file with the certificate authority")
    certificate_file: str | None = Field(None, description="PEM file with the client certificate (mTLS)")
    key_file: str | None = Field(None, description="PEM file with the client key (mTLS)")
    key_password: SecretStr | None = Field(None, description="password of an encrypted `key_file`")
    timeout_seconds: float = Field(20, gt=0, description="time limit of one request")


class GlueSchemaRegistryConnection(RegistryConnection):
    """AWS Glue Schema Registry, all registries of an account in one region."""

    kind: Literal["glue_schema_registry"]
    region: str = Field(description="the region of the registries", examples=["eu-west-1"])
    profile: str | None = Field(
        None, description="a profile of AWS's own files; none: the identity that AWS's libraries find"
    )
    access_key_id: str | None = Field(None, description="a key of AWS, with `secret_access_key`")
    secret_access_key: SecretStr | None = Field(None, description="the secret of `access_key_id`")
    session_token: SecretStr | None = Field(None, description="the token of a temporary key")
    endpoint_url: str | None = Field(None, description="another address of the service, such as a VPC endpoint")
    timeout_seconds: float = Field(20, gt=0, description="time limit of one request")

    def own_mistakes(self) -> Iterator[Mistake]:
        if bool(self.access_key_id) != bool(self.secret_access_key):
            missing = "access_key_id" if self.secret_access_key else "secret_access_key"
            remedy = "give `access_key_id` and `secret_access_key`, which belong together"
            yield Mistake((missing,), "it is missing", remedy, at_key=True)
        elif self.session_token and not self.access_key_id:
            yield Mistake(("session_token",), "it goes with `access_key_id` only", "leave it out")
        if self.profile and self.access_key_id:
            yield Mistake(("profile",), "there is `access_key_id` too", "give one of them")


class Connections:
    """All connections of one file, by name."""

    def __init__(self, by_name: dict[str, Connection], origin: str) -> None:
        self._by_name = by_name
        self._opened: dict[tuple[str, Any], Any] = {}
        self.origin = origin

    def get(self, name: str, kind: type[C]) -> C:
        """The connection of that name and kind.

        Raises:
            ConfigurationError: no such name, or it is of another kind.
        """
        found = self._by_name.get(name)
        if found is None:
            known = ", ".join(sorted(self._by_name)) or "none"
            raise ConfigurationError(
                f"there is no connection named {name!r} (known: {known})",
                where=self.origin,
                remedy=f"add {name!r} to this file, or name a known one in the pipeline file",
            )
        if not isinstance(found, kind):
            raise ConfigurationError(
                f"connection {name!r} is a {type(found).__name__}, not a {kind.__name__}",
                where=self.origin,
                remedy="name a connection of the right kind in the pipeline file",
            )
        return found

    def opened(self, name: str, kind: type[C], open_: Callable[[str, C], T]) -> T:
        """What `open_` makes of the connection, made once: the hundreds of topics of a pipeline share it.

        Raises:
            ConfigurationError: no such name, or it is of another kind.
        """
        if (name, open_) not in self._opened:
            self._opened[name, open_] = open_(name, self.get(name, kind))
        found: T = self._opened[name, open_]
        return found

    def names(self) -> list[str]:
        return sorted(self._by_name)

    def kinds(self) -> dict[str, str]:
        """Name to kind (kafka, spark, iceberg and so on), in the order of the names."""
        return {name: str(getattr(self._by_name[name], "kind", "")) for name in self.names()}


def data_folder() -> Path:
    """The folder of local services and their data: ``BATCHMERGE_HOME``, else ``.batchmerge`` here; within a project
    where there is none here, that of the project."""
    if named := os.environ.get("BATCHMERGE_HOME"):
        return Path(named).absolute()
    here = Path(_DATA).absolute()
    project = None if here.exists() else enclosing_project()
    return project / _DATA if project else here
