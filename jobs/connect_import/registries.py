"""The registries with the schemas of a sink's records, as its converters name them.

Sources: Confluent's documentation, "Using Kafka Connect with Schema Registry"; README of
awslabs/aws-glue-schema-registry.
"""

from __future__ import annotations

from typing import Any

from jobs.connect_import.configuration import USER_INFO, Configuration

# The package of AWS Glue's converters.
GLUE = "com.amazonaws.services.schemaregistry.kafkaconnect."


def name_of(converter: str) -> str:
    """The name of the connection of a converter's registry."""
    return "glue" if converter.startswith(GLUE) else "registry"


def connections(configuration: Configuration) -> dict[str, dict[str, Any]]:
    """The connections of registries, by their names; none if records need none."""
    made: dict[str, dict[str, Any]] = {}
    for side in ("value", "key"):
        name = name_of(configuration.text(f"{side}.converter"))
        url = configuration.text(f"{side}.converter.schema.registry.url")
        if name == "glue":
            made.setdefault(name, _glue(configuration, side))
        elif url:
            made.setdefault(name, _confluent(configuration, side, url))
    return made


def _confluent(configuration: Configuration, side: str, url: str) -> dict[str, Any]:
    found: dict[str, Any] = {"kind": "schema_registry", "url": USER_INFO.sub("", url)}
    named = configuration.text(f"{side}.converter.basic.auth.credentials.source")
    if named or USER_INFO.search(url):
        found |= {"username": "${env:REGISTRY_USERNAME}", "password": "${env:REGISTRY_PASSWORD}"}
    return found


def _glue(configuration: Configuration, side: str) -> dict[str, Any]:
    """AWS's libraries find the identity, as those of the converter do."""
    region = configuration.text(f"{side}.converter.region") or "${env:AWS_REGION}"
    endpoint = configuration.text(f"{side}.converter.endpoint").rstrip("/")
    usual = endpoint in ("", f"https://glue.{region}.amazonaws.com")
    return {"kind": "glue_schema_registry", "region": region, **({} if usual else {"endpoint_url": endpoint})}


def todo(configuration: Configuration, side: str) -> list[str]:
    """What a person has to check of the converter's registry."""
    if not configuration.text(f"{side}.converter").startswith(GLUE):
        return []
    given, found = configuration.below(f"{side}.converter."), []
    if "secondaryDeserializer" in given:
        found.append(f"source.{side}.registry: the sink also reads records in another wire format "
                     "(secondaryDeserializer); here they are dead letters")  # fmt: skip
    if "assumeRoleArn" in given:
        found.append("the connection `glue`: the sink takes a role (assumeRoleArn): name a `profile` that takes it")
    return found
