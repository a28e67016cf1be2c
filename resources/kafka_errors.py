"""Kafka's errors in our tree: what to try again, what a newer run took over, what a person must fix.

Codes: librdkafka's page "Error codes", those without an underscore Kafka's own.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException

from resources.errors import BatchmergeError, ConfigurationError, Interrupted, TopicMissing, Unavailable
from resources.kafka_settings import option_of

T = TypeVar("T")

# Partitions of a new topic have no leader for a moment, groups of a broker that has just started no coordinator, and
# while a leader moves, client and broker know different epochs of it.
_UNSETTLED = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
    }
)
UNKNOWN = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)
# The user lacks a right. Like a wrong password, no retry helps until a person changes something.
_NOT_PERMITTED = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
_NOT_KNOWN = frozenset({KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._AUTHENTICATION, KafkaError._SSL})
_FENCED = frozenset({KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED})
_PERMISSIONS = "grant the connection's user what docs/security.md lists"
_CREDENTIALS = (
    "correct `username` and `password` of the connection in the connections file, with OAUTHBEARER also `token_url` "
    "and `token_scope`, or with TLS `certificate_file`, `key_file` and `ca_file`, or with AWS_MSK_IAM `aws_region` and "
    "the AWS identity's policy"
)
# librdkafka's words, and libcurl's, where no answer came from the server that gives tokens.
_NO_TOKEN = re.compile(
    r"Failed to acquire SASL OAUTHBEARER token: "
    r"(Failed to connect|Could not (?:connect|resolve)|.*timed out|Timeout|Empty reply|Recv failure|Send failure)"
)
# A setting in librdkafka's errors of configuration: of one setting, and of several that do not go together.
_SETTING = re.compile(r'(?:property:?|value for) "([\w.]+)"')
_SETTINGS = re.compile(r"\b(?:client|socket|broker|ssl|sasl)(?:\.\w+)+")
_NO_CLIENT = "Failed to create "
_BROKERS = "check the brokers, or `bootstrap_servers` and `security_protocol` in the connections file"


@contextmanager
def kafka_errors(where: str) -> Iterator[None]:
    """Turns Kafka's exceptions, and `TimeoutError`, into our error tree.

    Raises:
        Interrupted: fenced. ConfigurationError: refused. TopicMissing: gone. Unavailable: everything else.
    """
    try:
        yield
    except KafkaException as problem:
        raise _classified(problem.args[0], where) from None
    except TimeoutError:
        raise Unavailable("Kafka did not answer in time", where=where, remedy=_BROKERS) from None


def refuses(error: KafkaError) -> bool:
    """Whether trying again gives the same answer until a person changes something."""
    # A broker that refuses a client's certificate ends the connection with a TLS alert.
    refused = error.code() in _NOT_PERMITTED | _NOT_KNOWN or "tls alert" in error.str()
    return refused and not _NO_TOKEN.match(error.str())


def says_why(error: KafkaError) -> bool:
    """Whether it says more than the request's own error, by which no broker has answered."""
    return refuses(error) or bool(_NO_TOKEN.match(error.str()))


def settled(ask: Callable[[], T], seconds: float, also: Collection[int] = ()) -> T:
    """The answer of `ask`, which is called again while the cluster is still choosing leaders or coordinators.

    Args:
        also: further error codes after which to call it again.

    Raises:
        KafkaException: another error, or still such an error after `seconds`.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            return ask()
        except KafkaException as problem:
            if problem.args[0].code() not in {*_UNSETTLED, *also} or time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def _no_access(error: KafkaError, where: str) -> ConfigurationError | Unavailable:
    if found := _NO_TOKEN.match(error.str()):
        return Unavailable(
            f"the identity provider does not answer: {found[1]}",
            where=where,
            remedy="check it, or `token_url` of the connection in the connections file",
        )
    return ConfigurationError(
        f"Kafka refuses access: {error.name()}",
        where=where,
        remedy=_PERMISSIONS if error.code() in _NOT_PERMITTED else _CREDENTIALS,
    )


def _classified(error: KafkaError, where: str) -> BatchmergeError:
    code = error.code()
    if code in _FENCED:
        return Interrupted("fenced: a newer run has taken over this transactional id", where=where)
    if says_why(error):
        return _no_access(error, where)
    if code in UNKNOWN:
        return TopicMissing(
            "Kafka no longer knows a topic of this request, or a partition of it",
            where=where,
            remedy="create it again, or correct the pipeline file",
        )
    # librdkafka's text may quote the value, which may be a secret.
    if code == KafkaError._INVALID_ARG and (named := _SETTING.search(error.str())):
        return ConfigurationError(
            f"Kafka's client does not take the setting {named[1]}, or its value",
            where=where,
            remedy="correct it in `settings` of the connection",
        )
    if code == KafkaError._INVALID_ARG and _NO_CLIENT in error.str():
        names = ", ".join(dict.fromkeys(map(option_of, _SETTINGS.findall(error.str()))))
        return ConfigurationError(
            f"Kafka's client does not take the connection's settings{names and f' ({names})'}",
            where=where,
            remedy="correct the connections file: something is missing, or not of the right form, or a file cannot be "
            "read",
        )
    return Unavailable(
        f"Kafka does not answer as it should: {error.name()}, {error.str()}",
        where=where,
        remedy="raise the topic's `max.message.bytes`" if code == KafkaError.MSG_SIZE_TOO_LARGE else _BROKERS,
    )
