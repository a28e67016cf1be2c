"""Tokens for Amazon MSK with IAM (`sasl_mechanism: AWS_MSK_IAM`), signed by AWS's own library.

A token is a presigned URL for `kafka-cluster:Connect`, valid for 15 minutes; a broker takes it as OAUTHBEARER. Its keys
come from AWS's usual chain on each machine: the run's, and those of Spark's workers.

librdkafka asks for the first token while a client is made (for which confluent-kafka waits a second at least), and for
the next one after 80 % of a token's life, in a thread of its own: nobody has to poll. It drops what the callback
raises. So a token that is still valid stands in for one that AWS does not give now, and the reason is logged.

Sources: aws-msk-iam-sasl-signer-python 1.0.2; `oauth_cb` in confluent-kafka 2.16 (confluent_kafka.c).
"""

from __future__ import annotations

import logging
import time

from resources.connections import KafkaConnection
from resources.errors import BatchmergeError, ConfigurationError, Unavailable

_LOG = logging.getLogger("batchmerge.kafka")
# Seconds of life below which a token is replaced: more than is left when librdkafka asks for the next one.
_LITTLE = 300.0
_SESSION = "batchmerge"
# botocore's errors of connections.
_PASSING = {"ConnectionError", "HTTPClientError"}


class MskTokens:
    """The tokens of one connection, for all clients of this process."""

    def __init__(self, where: str, connection: KafkaConnection) -> None:
        self._where, self._connection = where, connection
        self._current = ("", 0.0)

    def current(self, _config: str | None = None) -> tuple[str, float]:
        """A token, and when it expires in seconds since 1970: the `oauth_cb` of a client.

        Raises:
            ConfigurationError, Unavailable: there is none.
        """
        _, expires = self._current
        if expires - time.time() < _LITTLE:
            try:
                self._current = self._signed()
            except BatchmergeError as problem:
                if expires <= time.time():
                    raise
                _LOG.warning("%s", problem)
        return self._current

    def _signed(self) -> tuple[str, float]:
        try:
            # Imported late: it takes a second.
            from aws_msk_iam_sasl_signer import MSKAuthTokenProvider as signer
        except ImportError:
            raise ConfigurationError(
                "AWS_MSK_IAM needs a library that is not installed",
                where=self._where,
                remedy="pip install 'batchmerge[msk]', for Spark's workers too",
            ) from None
        # At DEBUG it logs signatures, and the keys of a role.
        logging.getLogger("botocore").setLevel(logging.INFO)
        c = self._connection
        try:
            if c.aws_role_arn:
                signed = signer.generate_auth_token_from_role_arn(c.aws_region, c.aws_role_arn, _SESSION)
            elif c.aws_profile:
                signed = signer.generate_auth_token_from_profile(c.aws_region, c.aws_profile)
            else:
                signed = signer.generate_auth_token(c.aws_region)
        except Exception as problem:
            raise self._failure(problem) from None
        token, milliseconds = signed
        return token, milliseconds / 1000

    def _failure(self, problem: Exception) -> BatchmergeError:
        """By its kind only: a text may repeat what a program or server that gives keys has answered."""
        kinds = {kind.__name__ for kind in type(problem).__mro__}
        if kinds & _PASSING:
            remedy = "nothing to do: it is tried again; if it stays, check the network's way to AWS"
            return Unavailable(f"AWS does not answer: {type(problem).__name__}", where=self._where, remedy=remedy)
        # The library does not check whether there are keys.
        code = getattr(problem, "response", {}).get("Error", {}).get("Code")
        why = "there are no AWS keys" if "AttributeError" in kinds else code or type(problem).__name__
        return ConfigurationError(
            f"AWS gives no token: {why}",
            where=self._where,
            remedy="give this machine, and Spark's workers, an AWS identity (environment, profile or role), or correct "
            "`aws_role_arn` or `aws_profile` of the connection",
        )
