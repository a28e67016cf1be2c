"""A Kafka broker of a test's own with SASL and TLS on: the same records by every way in."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from resources.connections import KafkaConnection
from resources.local import processes
from resources.local.jars import classpath, fetch
from resources.local.java import find_java
from resources.local.jvm import jvm
from resources.local.kafka_broker import BROKER
from resources.local.ports import free_port
from resources.local.service import Command
from tests.kit.certificates import Authority, Certificate
from tests.kit.msk_signer import REGION
from tests.kit.processes import until_listens
from tests.kit.records import forget_producers
from tests.kit.tokens import AUDIENCE, Provider, provider

USER, PASSWORD = "batchmerge", "a-password-of-kafka-7731"
# May do only what it is permitted; the others may do everything.
LIMITED, LIMITED_PASSWORD = "limited", "another-password-8813"
KEY_PASSWORD = "key-password-4482"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
_OAUTH = "org.apache.kafka.common.security.oauthbearer"

_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{plain},SASL://127.0.0.1:{sasl},SECURE://127.0.0.1:{secure},TLS://127.0.0.1:{tls},\
CONTROLLER://127.0.0.1:{controller}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT,SECURE:SASL_SSL,TLS:SSL
inter.broker.listener.name=PLAINTEXT
log.dirs={data}
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
group.initial.rebalance.delay.ms=0
log.retention.ms=-1
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER
ssl.keystore.type=PEM
ssl.keystore.location={server}
ssl.truststore.type=PEM
ssl.truststore.location={ca}
listener.name.tls.ssl.client.auth=required
sasl.oauthbearer.jwks.endpoint.url=file://{keys}
sasl.oauthbearer.expected.audience={audience}
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS;User:{user};User:CN=client
"""


@dataclass(frozen=True)
class SecureKafka:
    """The running broker: where it is and what it takes to come in.

    Attributes:
        plain: the listener without security, to fill topics by.
        log: the broker's log.
    """

    plain: str
    sasl: str
    secure: str
    tls: str
    ca: Path
    client: Certificate
    tokens: Provider
    log: Path

    def connection(self, way: str) -> KafkaConnection:
        """One of `PLAIN`, `PLAIN over TLS`, `SCRAM-SHA-256`, `SCRAM-SHA-512`, `OAUTHBEARER`, `AWS_MSK_IAM`, `mTLS`,
        `limited`."""
        if way == "mTLS":
            return KafkaConnection.model_validate(
                {
                    "kind": "kafka",
                    "bootstrap_servers": self.tls,
                    "security_protocol": "SSL",
                    "ca_file": str(self.ca),
                    "certificate_file": str(self.client.certificate),
                    "key_file": str(self.client.key),
                    "key_password": KEY_PASSWORD,
                }
            )
        login = {"kind": "kafka", "username": USER, "password": PASSWORD}
        if way == "limited":
            login |= {"username": LIMITED, "password": LIMITED_PASSWORD}
        if way in ("PLAIN", "limited"):
            given = {"bootstrap_servers": self.sasl, "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}
            return KafkaConnection.model_validate({**login, **given})
        given = {
            "bootstrap_servers": self.secure,
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": way.removesuffix(" over TLS"),
            "ca_file": str(self.ca),
        }
        if way == "OAUTHBEARER":
            given["token_url"] = self.tokens.url
        if way == "AWS_MSK_IAM":
            return KafkaConnection.model_validate({"kind": "kafka", **given, "aws_region": REGION})
        return KafkaConnection.model_validate({**login, **given})


@contextmanager
def secure_kafka(folder: Path) -> Iterator[SecureKafka]:
    """Starts the broker below a folder, and stops it when the block ends."""
    authority = Authority(folder)
    server, client = authority.issue("server"), authority.issue("client", KEY_PASSWORD)
    ports: dict[str, int] = {}
    for name in ("plain", "sasl", "secure", "tls", "controller"):
        ports[name] = free_port(ports.values())
    with provider(folder, USER, PASSWORD) as tokens:
        properties = folder / "server.properties"
        text = _PROPERTIES.format(
            **ports,
            data=folder / "data",
            server=server.both,
            ca=authority.file,
            keys=tokens.keys,
            audience=AUDIENCE,
            user=USER,
        )
        properties.write_text(text + "".join(_logins()))
        java = find_java(print)
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=file://{tokens.keys}"
        run = jvm(java, folder, "512m", classpath(fetch(BROKER, java, print)), [allowed])
        _format(run, properties)
        log = folder / "broker.log"
        started = processes.start(Command([*run, "kafka.Kafka", str(properties)]), log, folder)
        try:
            until_listens(started, ports.values(), log)
            at = {name: f"127.0.0.1:{ports[name]}" for name in ("plain", "sasl", "secure", "tls")}
            yield SecureKafka(**at, ca=authority.file, client=client, tokens=tokens, log=log)
        finally:
            forget_producers()
            processes.stop(started)


def _logins() -> Iterator[str]:
    limited = f'user_{LIMITED}="{LIMITED_PASSWORD}"'
    plain = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}" {limited};'
    for listener in ("sasl", "secure"):
        name = f"listener.name.{listener}"
        yield f"{name}.plain.sasl.jaas.config={plain}\n"
        for mechanism in ("scram-sha-256", "scram-sha-512"):
            yield f"{name}.{mechanism}.sasl.jaas.config={_SCRAM}\n"
        yield f"{name}.oauthbearer.sasl.jaas.config={_OAUTH}.OAuthBearerLoginModule required;\n"
        handler = f"{_OAUTH}.OAuthBearerValidatorCallbackHandler"
        yield f"{name}.oauthbearer.sasl.server.callback.handler.class={handler}\n"


def _format(run: list[str], properties: Path) -> None:
    argv = [*run, "kafka.tools.StorageTool", "format", "--cluster-id", str(uuid.uuid4()), "--config", str(properties)]
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        argv += ["--add-scram", f"{mechanism}=[name={USER},password={PASSWORD}]"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr or done.stdout
