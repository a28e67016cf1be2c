"""A REST catalog that vends credentials: they reach one table's files, for some seconds. SeaweedFS, in one process."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import SecretStr

from resources.connections import IcebergConnection
from resources.local import processes
from resources.local.ports import free_port
from resources.local.service import HOST, Command
from tests.kit.passing_on import Answer, PassingOn
from tests.kit.waiting import until
from tests.kit.web import serving

_USER, _SECRET, _ROLE = "catalog", "catalog-secret", "arn:aws:iam::role/TableAccess"
_WAREHOUSE, _REGION = "warehouse", "us-east-1"
_TOKEN, _ENDS = "s3.session-token", "s3.session-token-expires-at-ms"
_GIVEN = ("s3.access-key-id", "s3.secret-access-key", _TOKEN, _ENDS)
_AGAIN, _ASKED_AGAIN = "client.refresh-credentials-endpoint", "/credentials"
_EXPIRED = b"<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>"
_DELEGATION = "header.X-Iceberg-Access-Delegation"
_PORTS = ("master", "volume", "filer", "admin", "s3")


def _rights() -> dict[str, object]:
    everything = {"Effect": "Allow", "Action": ["s3:*"], "Resource": ["arn:aws:s3:::*"]}
    trusted = [
        {"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": ["sts:AssumeRole"]},
        {
            "Effect": "Allow",
            "Principal": {"Federated": "iceberg-catalog"},
            "Action": ["sts:AssumeRoleWithCredentials"],
        },
    ]
    key = "dGVzdC1zaWduaW5nLWtleS0zMi1jaGFyYWN0ZXJzLWxvbmc="
    role = {"roleName": "TableAccess", "roleArn": _ROLE, "attachedPolicies": ["TableData"]}
    return {
        "sts": {"tokenDuration": "1h", "maxSessionLength": "12h", "issuer": "seaweedfs-sts", "signingKey": key},
        "policy": {"defaultEffect": "Deny"},
        "roles": [{**role, "trustPolicy": {"Version": "2012-10-17", "Statement": trusted}}],
        "policies": [{"name": "TableData", "document": {"Version": "2012-10-17", "Statement": [everything]}}],
    }


@dataclass
class Vended:
    """The credentials that were given.

    Attributes:
        seconds: how long those that are given now are good for.
        declared: how long they are good for according to the catalog.
        renews: the catalog names an endpoint that gives others to whoever has a table open.
        delay: seconds that the store takes for each request.
        ends: of each token that was given, by this process's clock.
        refused: requests with credentials that had ended.
    """

    seconds: float = 900
    declared: float = 900
    renews: bool = False
    delay: float = 0
    ends: dict[str, float] = field(default_factory=dict)
    refused: int = 0

    def give(self, found: object) -> object:
        """A catalog's answer with the new time of expiry."""
        if isinstance(found, list):
            return [self.give(one) for one in found]
        if not isinstance(found, dict):
            return found
        given = {name: self.give(value) for name, value in found.items()}
        if token := given.get(_TOKEN):
            self.ends[str(token)] = time.monotonic() + self.seconds
            given[_ENDS] = str(int((time.time() + self.declared) * 1000))
        return given

    def allows(self, token: str) -> bool:
        good = time.monotonic() < self.ends.get(token, 0)
        self.refused += not good
        return good


@contextmanager
def vending_catalog(folder: Path) -> Iterator[tuple[Vended, IcebergConnection]]:
    """The connection to one that runs. The server's own credentials end after a quarter of an hour at least, so a gate
    before it refuses them earlier, as S3 would."""
    vended, taken = Vended(), list[int]()
    for _ in range(len(_PORTS) + 1):
        taken.append(free_port(taken))
    *plain, iceberg = taken
    ports = dict(zip(_PORTS, plain, strict=True))

    class Store(PassingOn):
        address = f"{HOST}:{ports['s3']}"

        def pass_on(self) -> None:
            body = self.body()
            time.sleep(vended.delay)
            if vended.allows(self.headers.get("x-amz-security-token", "")):
                self.reply(self.ask(body))
            else:
                self.answer(400, _EXPIRED, {"Content-Type": "application/xml"})

    class Catalog(PassingOn):
        address = f"{HOST}:{iceberg}"

        def pass_on(self) -> None:
            asked_again = self.path.endswith(_ASKED_AGAIN)
            self.path = self.path.removesuffix(_ASKED_AGAIN)
            found = self.ask(self.body())
            if _TOKEN.encode() in found.content:
                answer = vended.give(json.loads(found.content))
                assert isinstance(answer, dict), "a table"
                if asked_again:
                    given = {name: answer["config"][name] for name in _GIVEN}
                    answer = {"storage-credentials": [{"prefix": "s3", "config": given}]}
                elif vended.renews and self.command == "GET":
                    answer["config"][_AGAIN] = self.path.split("?")[0] + _ASKED_AGAIN
                content = json.dumps(answer).encode()
                found = Answer(found.status, {**found.headers, "Content-Length": str(len(content))}, content)
            self.reply(found)

    with serving(Store) as store, serving(Catalog) as catalog, _server(folder, ports, iceberg, store):
        yield vended, _connection(catalog)


@contextmanager
def _server(folder: Path, ports: Mapping[str, int], iceberg: int, store: str) -> Iterator[None]:
    data, rights, log = folder / "data", folder / "iam.json", folder / "server.log"
    data.mkdir(parents=True)
    rights.write_text(json.dumps(_rights()))
    argv = [str(Path(sys.executable).with_name("weed")), "mini", f"-dir={data}", f"-ip={HOST}", f"-ip.bind={HOST}"]
    argv += [f"-{name}.port={port}" for name, port in ports.items()]
    argv += [f"-s3.port.iceberg={iceberg}", "-s3.port.lance=0", "-admin.ui=false", "-webdav=false", "-bucket=lake"]
    argv += [f"-tableBucket={_WAREHOUSE}", f"-s3.externalUrl={store}", f"-s3.iam.config={rights}"]
    argv += [f"-s3.iceberg.credentialRole={_ROLE}"]
    access = {"AWS_ACCESS_KEY_ID": _USER, "AWS_SECRET_ACCESS_KEY": _SECRET}
    running = processes.start(Command(argv, access), log, folder)
    try:
        until(lambda: "ready to use" in log.read_text(), log)
        yield
    finally:
        processes.stop(running)


def _connection(uri: str) -> IcebergConnection:
    tokens = {"oauth2-server-uri": f"{uri}/v1/oauth/tokens"}
    return IcebergConnection(
        kind="iceberg",
        type="rest",
        uri=uri,
        warehouse=f"s3://{_WAREHOUSE}",
        credential=SecretStr(f"{_USER}:{_SECRET}"),
        properties={**tokens, "s3.region": _REGION, "py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO"},
        spark_properties={
            **tokens,
            _DELEGATION: "vended-credentials",
            "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            "client.region": _REGION,
        },
    )
