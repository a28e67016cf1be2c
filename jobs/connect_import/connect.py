"""Kafka Connect's own options, which every sink has, and their translation.

Source: Apache Kafka's documentation, "Sink connector configs"; `org.apache.kafka.connect.runtime.SinkConnectorConfig`.
"""

from __future__ import annotations

import re
from typing import Any, get_args

from jobs.connect_import import msk, registries
from jobs.connect_import.chain import Chain
from jobs.connect_import.configuration import NO_SECRET, SECRET, USER_INFO, Configuration
from jobs.connect_import.options import Options, equivalent, none, not_needed
from jobs.decode.envelope_shape import OPERATION
from jobs.spec.envelope import OP_COLUMN
from resources.connections import SaslMechanism

OPTIONS: Options = {
    "name": equivalent("the pipeline's name"),
    "connector.class": equivalent("the kind of the tables"),
    "connector.plugin.version": not_needed("there are no plugins"),
    "tasks.max": not_needed("Spark reads partitions in parallel as far as it has cores"),
    "tasks.max.enforce": not_needed("there are no tasks"),
    "topics": equivalent("source.topics"),
    "topics.regex": equivalent("source.pattern, with for_each: topic where each topic has a table of its own"),
    "key.converter": equivalent("source.key.format"),
    "value.converter": equivalent("source.value.format"),
    "key.converter.*": equivalent("source.key, and the schema registry's connection"),
    "value.converter.*": equivalent("source.value, and the schema registry's connection"),
    "key.converter.plugin.version": not_needed("there are no plugins"),
    "value.converter.plugin.version": not_needed("there are no plugins"),
    "header.converter": none("headers are not decoded"),
    "header.converter.*": none("headers are not decoded"),
    "config.action.reload": not_needed("secrets are read when a run starts"),
    "transforms": equivalent("source.value.envelope, source.transform and tables[]: see the list of transforms"),
    "transforms.*": equivalent("see the list of transforms"),
    "predicates": equivalent("conditions in source.transform"),
    "predicates.*": equivalent("conditions in source.transform"),
    "errors.tolerance": equivalent("on_bad_record: all is quarantine, none is fail"),
    "errors.deadletterqueue.topic.name": equivalent("dead_letters.topic; dead letters are in a table besides"),
    "errors.deadletterqueue.topic.replication.factor": not_needed("a topic we create has the cluster's default"),
    "errors.deadletterqueue.context.headers.enable": not_needed("the headers are always sent"),
    "errors.log.enable": not_needed("`batchmerge dead-letters list` shows them, and each batch counts them"),
    "errors.log.include.messages": not_needed("values are never logged; `batchmerge dead-letters list --values`"),
    "errors.retry.timeout": equivalent("retry"),
    "errors.retry.delay.max.ms": equivalent("retry.delay_seconds"),
    "consumer.override.auto.offset.reset": equivalent("source.start, for partitions without a committed offset"),
    "consumer.override.isolation.level": not_needed("only committed records are ever read"),
    "consumer.override.max.poll.*": not_needed("batch.max_records bounds a batch, and nothing is polled between them"),
    "consumer.override.fetch.*": not_needed("Spark's tasks read fixed ranges of offsets"),
    "consumer.override.max.partition.fetch.bytes": not_needed("Spark's tasks read fixed ranges of offsets"),
    **dict.fromkeys(
        [
            "consumer.override.session.timeout.ms",
            "consumer.override.heartbeat.interval.ms",
            "consumer.override.partition.assignment.strategy",
            "consumer.override.group.instance.id",
        ],
        not_needed("no group has members"),
    ),
    "consumer.override.group.id": equivalent("the group whose offsets are taken over"),
    "consumer.override.*": equivalent("the Kafka connection: security, `client.id`, `client.rack`"),
    "producer.override.*": not_needed("we write to the control topic with the Kafka connection's settings"),
    "admin.override.*": not_needed("the Kafka connection's settings are used"),
    "confluent.*": not_needed("there is no licence"),
}

# Converters of one number, big-endian, and its type.
_NUMBERS = {
    f"org.apache.kafka.connect.converters.{name}Converter": kind
    for name, kind in {
        "Short": "int",
        "Integer": "int",
        "Long": "long",
        "Float": "float",
        "Double": "double",
        "Boolean": "boolean",
    }.items()
}
# A converter's format, and whether its records name a schema in a registry.
_CONVERTERS = {
    "org.apache.kafka.connect.json.JsonConverter": ("json", False),
    "org.apache.kafka.connect.storage.StringConverter": ("string", False),
    "org.apache.kafka.connect.converters.ByteArrayConverter": ("bytes", False),
    "io.confluent.connect.avro.AvroConverter": ("avro", True),
    "io.confluent.connect.protobuf.ProtobufConverter": ("protobuf", True),
    "io.confluent.connect.json.JsonSchemaConverter": ("json", True),
    f"{registries.GLUE}AWSKafkaAvroConverter": ("avro", True),
    f"{registries.GLUE}jsonschema.JsonSchemaConverter": ("json", True),
    f"{registries.GLUE}protobuf.ProtobufSchemaConverter": ("protobuf", True),
    **dict.fromkeys(_NUMBERS, ("bytes", False)),
}
_TEXT_CONVERTER = ".StringConverter"
# Values of `insertFormat` with which a record's text is not read as JSON.
_TEXTS = ("NONE", "CSV", "TSV")
_ONE_COLUMN = {"string": "string", "bytes": "binary"}
_MECHANISMS = get_args(SaslMechanism)
# Settings of Java's client that librdkafka has too, by the same names.
_SETTINGS = ("client.id", "client.rack")

# Parameters of a URL or a connection string.
_PARAMETER = re.compile(r"((?:^|[?&;])([^=&;?/]*)=)([^&;]*)")


def group(configuration: Configuration) -> str:
    """Connect's consumer group of the connector."""
    named = configuration.text("consumer.override.group.id") or configuration.text("iceberg.connect.group-id")
    return named or f"connect-{configuration.name}"


def source(configuration: Configuration, chain: Chain, key: dict[str, str] | None) -> tuple[dict[str, Any], list[str]]:
    """The `source` part, and what a person has to check.

    Args:
        key: the columns of the record's key, empty if they are left to the records; None: the key is not read.
    """
    found: dict[str, Any] = {"connection": "kafka"}
    topics = configuration.items("topics")
    found |= {"topics": topics} if topics else {"pattern": configuration.text("topics.regex")}
    todo = _of_kafka(configuration)
    if key is not None:
        found["key"], remarks = _format(configuration, "key", key)
        todo += remarks
    found["value"], remarks = _format(configuration, "value", chain.read_columns, chain.value_format)
    exclude, metadata, statement = chain.exclude, chain.read_metadata, chain.statement
    if exclude and found["value"]["format"] not in _ONE_COLUMN:
        found["value"]["exclude"] = exclude
        remarks += [f"source.value.exclude: {field} is read as a path; a field whose name has a dot in it still lands"
                    for field in exclude if "." in field]  # fmt: skip
    if chain.envelope:
        # The operation becomes a column by default.
        metadata = {} if metadata == {OP_COLUMN: OPERATION} else metadata
        found["value"]["envelope"] = {"kind": chain.envelope, **({"metadata": metadata} if metadata else {})}
    if statement:
        found["transform"] = statement
    return found, [*todo, *remarks]


def takes_new_fields(chain: Chain) -> bool:
    """Whether fields without a column of the table pass the chain."""
    return not chain.closed and not (chain.reshaped and chain.statement)


def has_fields(configuration: Configuration, side: str) -> bool:
    """Whether keys or values reach the sink with several fields."""
    converter = configuration.text(f"{side}.converter")
    return _CONVERTERS.get(converter, ("string", False))[0] not in _ONE_COLUMN


def one_value_type(configuration: Configuration, side: str) -> str:
    """The type of keys or values without fields (`has_fields`)."""
    converter = configuration.text(f"{side}.converter")
    return _NUMBERS.get(converter) or _ONE_COLUMN.get(_CONVERTERS.get(converter, ("string", False))[0], "string")


def has_schema(configuration: Configuration) -> bool:
    """Whether values have a schema, in the records or in a registry."""
    name, registered = _format_name(configuration, "value")
    return registered or name == "connect_json"


def is_plain_json(configuration: Configuration) -> bool:
    return _format_name(configuration, "value") == ("json", False)


def _format_name(configuration: Configuration, side: str) -> tuple[str, bool]:
    """The format, and whether its schemas are in a registry."""
    converter = configuration.text(f"{side}.converter")
    # JsonConverter writes the schema into each record unless an option forbids it.
    if converter.endswith(".JsonConverter") and configuration.flag(f"{side}.converter.schemas.enable", True):
        return "connect_json", False
    reads = configuration.text("insertFormat").upper()
    if side == "value" and converter.endswith(_TEXT_CONVERTER) and reads not in ("", *_TEXTS):
        return "json", False  # the sink hands each record's text to its system, which reads it
    return _CONVERTERS.get(converter, ("json", False))


def _format(
    configuration: Configuration, side: str, columns: dict[str, str], parsed: str | None = None
) -> tuple[dict[str, Any], list[str]]:
    """
    Args:
        parsed: the format of records that a transform parses.
    """
    converter = configuration.text(f"{side}.converter")
    name, registered = _format_name(configuration, side)
    name = parsed or name
    if name in _ONE_COLUMN and len(columns) != 1:
        columns = {side: _ONE_COLUMN[name] if parsed else one_value_type(configuration, side)}
    found: dict[str, Any] = {"format": name, **({"registry": registries.name_of(converter)} if registered else {})}
    found |= {"columns": columns} if columns else {}
    if converter in _CONVERTERS:
        return found, registries.todo(configuration, side)
    said = f"{converter} is not known" if converter else "the converter is the worker's"
    return found, [f"source.{side}.format: {said}; json stands in its place"]


def errors(configuration: Configuration) -> dict[str, Any]:
    """The error policy: Connect's default is to stop at the first bad record."""
    tolerant = configuration.text("errors.tolerance", "none") == "all"
    queue = configuration.text("errors.deadletterqueue.topic.name")
    return {
        "on_bad_record": "quarantine" if tolerant else "fail",
        **({"dead_letters": {"topic": queue}} if queue and tolerant else {}),
    }


def schedule(milliseconds: int) -> dict[str, str]:
    """When runs start, for a sink that commits, or writes, after so long: under a minute one run goes on for ever."""
    seconds = max(1, milliseconds // 1000)
    if seconds < 60:
        return {"interval": f"{seconds}s"}
    minutes = seconds // 60
    return {"cron": f"*/{minutes} * * * *" if minutes < 60 else "0 * * * *"}


def schedule_todo(milliseconds: int) -> list[str]:
    """What a person has to know of such a schedule."""
    if "interval" not in schedule(milliseconds):
        return []
    return ["interval: one run that never ends, with a process for each table, keeps the snapshots of 2,000 intervals "
            "(maintenance.snapshots, maintenance.landed); where minutes do, write `cron` in its place"]  # fmt: skip


def kafka_connection(configuration: Configuration) -> dict[str, Any]:
    """The Kafka cluster's connection, secrets as references to the environment."""
    given = _client(configuration)
    found: dict[str, Any] = {
        "kind": "kafka",
        "bootstrap_servers": given.get("bootstrap.servers", "${env:KAFKA_BOOTSTRAP_SERVERS}"),
    }
    if "security.protocol" in given:
        found["security_protocol"] = given["security.protocol"]
    if msk.by_iam(given):
        found |= {"security_protocol": "SASL_SSL", **msk.connection(given)}
    elif (mechanism := given.get("sasl.mechanism")) in _MECHANISMS:
        found["sasl_mechanism"] = mechanism
        found |= {"username": "${env:KAFKA_USERNAME}", "password": "${env:KAFKA_PASSWORD}"}
    if "ssl.truststore.location" in given:
        found["ca_file"] = "${env:KAFKA_CA_FILE}"
    if "ssl.keystore.location" in given:
        found |= {"certificate_file": "${env:KAFKA_CERTIFICATE_FILE}", "key_file": "${env:KAFKA_KEY_FILE}"}
    if settings := {name: given[name] for name in _SETTINGS if name in given}:
        found["settings"] = settings
    return found


def _client(configuration: Configuration) -> dict[str, str]:
    """The settings of the sink's own Kafka clients."""
    return {**configuration.below("iceberg.kafka."), **configuration.below("consumer.override.")}


def _of_kafka(configuration: Configuration) -> list[str]:
    """What a person has to do in the Kafka connection."""
    given = _client(configuration)
    if msk.by_iam(given):
        return msk.todo(given)
    mechanism = given.get("sasl.mechanism")
    if mechanism is None or mechanism in _MECHANISMS:
        return []
    return [f"sasl.mechanism {mechanism} is none that Batchmerge has: give the connection `kafka` another "
            f"`sasl_mechanism` ({', '.join(_MECHANISMS)}) or a client certificate"]  # fmt: skip


def environment(name: str) -> str:
    """A reference to the environment variable for this secret option."""
    return "${env:" + "".join(c if c.isalnum() else "_" for c in name).upper() + "}"


def without_secrets(name: str, text: str) -> str:
    """An option's value with references to the environment in place of secrets, also of those within a URL."""
    if is_secret(name):
        return environment(name)
    text = USER_INFO.sub(f"{environment(f'{name}.user.info')}@", text)
    return _PARAMETER.sub(lambda m: m[1] + (environment(f"{name}.{m[2]}") if is_secret(m[2]) else m[3]), text)


def is_secret(name: str) -> bool:
    return SECRET.search(name) is not None and NO_SECRET.search(name) is None
