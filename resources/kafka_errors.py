"""Kafka's errors in our tree: what to try again, what a newer run took over, what a person must mend.

Codes: librdkafka's page "Error codes", those without an underscore Kafka's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaError, KafkaException

from resources.errors import BatchmergeError, ConfigurationError, Interrupted, TopicMissing, Unavailable

# Partitions of a new topic have no leader for a moment, groups of a broker that has just started no coordinator.
UNSETTLED = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
    }
)
# The other ways in which a person is told to change something.
REFUSED = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError._AUTHENTICATION,
        KafkaError._SSL,
    }
)
_FENCED = frozenset({KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED})
_BROKERS = "check the brokers, or `bootstrap_servers` in the connections file"


@contextmanager
def kafka_errors(where: str) -> Iterator[None]:
    """Raises what Kafka raises, and a time that is over, as errors of our tree.

    Raises:
        Interrupted: fenced. ConfigurationError: refused. TopicMissing: gone. Unavailable: everything else.
    """
    try:
        yield
    except KafkaException as problem:
        raise _classified(problem.args[0], where) from None
    except TimeoutError:
        raise Unavailable("Kafka did not answer in time", where=where, remedy=_BROKERS) from None


def _classified(error: KafkaError, where: str) -> BatchmergeError:
    code = error.code()
    if code in _FENCED:
        return Interrupted("a newer run speaks for this one", where=where)
    if code in REFUSED:
        return ConfigurationError(
            f"Kafka refuses access: {error.name()}", where=where, remedy="check credentials and permissions"
        )
    if code == KafkaError.UNKNOWN_TOPIC_OR_PART:
        return TopicMissing("a topic is gone", where=where, remedy="create it again, or mend the pipeline file")
    return Unavailable(
        f"Kafka does not answer as it should: {error.name()}, {error.str()}",
        where=where,
        remedy="raise the topic's `max.message.bytes`" if code == KafkaError.MSG_SIZE_TOO_LARGE else _BROKERS,
    )
