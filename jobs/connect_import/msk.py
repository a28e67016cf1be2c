"""Kafka clients that come into Amazon MSK by IAM: the settings of AWS's library for Java, by `sasl.jaas.config`.

Sources: aws-msk-iam-auth, `MSKCredentialProvider`; "Getting the bootstrap brokers" of Amazon MSK's guide.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

MECHANISM = "AWS_MSK_IAM"
# With the mechanism OAUTHBEARER the library is named as the handler.
_HANDLER = "sasl.login.callback.handler.class"
_LIBRARY = "software.amazon.msk.auth.iam."
_BROKER = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com")
_JAAS = re.compile(r'(\w+)\s*=\s*(?:"([^"]*)"|([^\s;]+))')
_OPTIONS = {"awsRoleArn": "aws_role_arn", "awsProfileName": "aws_profile"}
# Other keys than the machine's, for the role. Further options are about retries, logs and the session's name.
_KEYS = ("awsRoleAccessKeyId", "awsRoleExternalId")


def by_iam(client: Mapping[str, str]) -> bool:
    """Whether a client with these settings comes in by IAM."""
    return client.get("sasl.mechanism") == MECHANISM or client.get(_HANDLER, "").startswith(_LIBRARY)


def connection(client: Mapping[str, str]) -> dict[str, Any]:
    """The options of the Kafka connection."""
    jaas = _jaas(client)
    # The library has the role only where the profile gives no keys.
    taken = {option: jaas[name] for name, option in _OPTIONS.items() if name in jaas}
    if "aws_profile" in taken:
        taken.pop("aws_role_arn", None)
    return {"sasl_mechanism": MECHANISM, "aws_region": _region(client) or "${env:AWS_REGION}", **taken}


def todo(client: Mapping[str, str]) -> list[str]:
    """What a person has to do in the Kafka connection."""
    jaas = _jaas(client)
    found = []
    if not _region(client):
        found.append("connection kafka: write the cluster's region as `aws_region`, or set AWS_REGION")
    if keys := [name for name in _KEYS if name in jaas]:
        with_profile = "put the role into a profile of AWS's own files, and name that as `aws_profile`"
        found.append(f"sasl.jaas.config: a connection has no {', '.join(keys)}: {with_profile}")
    return found


def _region(client: Mapping[str, str]) -> str | None:
    """As the brokers' names have it."""
    found = _BROKER.search(client.get("bootstrap.servers", ""))
    return found[1] if found else None


def _jaas(client: Mapping[str, str]) -> dict[str, str]:
    return {name: quoted or plain for name, quoted, plain in _JAAS.findall(client.get("sasl.jaas.config", ""))}
