"""Tokens for Amazon MSK with IAM (`sasl_mechanism: AWS_MSK_IAM`), signed by AWS's own library.

A token is a presigned URL for `kafka-cluster:Connect`, valid for 15 minutes; a broker takes it as OAUTHBEARER. Its keys
come from AWS's usual chain on each machine: the run's, and those of Spark's workers.

librdkafka asks for the first token while a client is made (for which confluent-kafka waits a second at least), and for
the next one after 80 % of a token's life, in a thread of its own: nobody has to poll. It drops what the callback
raises. So a token that is still valid stands in for one that AWS does not give now, and the reason is logged.

Each task of Spark's has its own clients, and AWS limits how often it is asked: those of one process share a token.

Sources: aws-msk-iam-sasl-signer-python 1.0.2; `oauth_cb` in confluent-kafka 2.16 (confluent_kafka.c).
"""

from __future__ import annotations

import logging
import time
from functools import partial
from typing import Any

from resources.connections import KafkaConnection
from resources.errors import BatchmergeError, ConfigurationError, Unavailable

_LOG = logging.getLogger("batchmerge.kafka")
# Seconds of life below which a token is replaced: more than is left when librdkafka asks for the next one.
_LITTLE = 300.0
_SESSION = "batchmerge"
# The newest token of each identity (region, role, profile) in this process, and when it expires. No lock: threads that
# sign at the same time do no harm, and none waits for another one whose request hangs.
_CURRENT: dict[tuple[str | None, ...], tuple[str, float]] = {}
# Errors of botocore's: of connections, and of the services on a machine that give keys.
_PASSING = {"ConnectionError", "HTTPClientError", "MetadataRetrievalError", "CredentialRetrievalError"}
# AWS's codes for "later", beside those of limits, which contain "Throttl", and HTTP statuses.
_LATER = {"RequestLimitExceeded", "IDPCommunicationError"}
# What a lack of keys raises: botocore's error, or that of the signer, which does not check whether there are any.
_NO_KEYS = {"NoCredentialsError", "AttributeError"}
# Seconds.
_PAUSE = 1.0


class MskTokens:
    """The tokens of one connection."""

    def __init__(self, where: str, connection: KafkaConnection) -> None:
        self._where = where
        self._identity = connection.aws_region, connection.aws_role_arn, connection.aws_profile

    def current(self, _config: str | None = None) -> tuple[str, float]:
        """A token, and when it expires in seconds since 1970: the `oauth_cb` of a client.

        Raises:
            ConfigurationError, Unavailable: there is none.
        """
        current = _CURRENT.get(self._identity, ("", 0.0))
        if current[1] - time.time() < _LITTLE:
            try:
                current = _CURRENT[self._identity] = self._signed()
            except BatchmergeError as problem:
                if current[1] <= time.time():
                    raise
                _LOG.warning("%s", problem)
        return current

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
        try:
            token, milliseconds = self._sign(signer)
        except Exception as problem:
            raise self._failure(problem) from None
        return token, milliseconds / 1000

    def _sign(self, signer: Any) -> tuple[str, int]:
        region, role, profile = self._identity
        if role:
            ask = partial(signer.generate_auth_token_from_role_arn, region, role, _SESSION)
        elif profile:
            ask = partial(signer.generate_auth_token_from_profile, region, profile)
        else:
            ask = partial(signer.generate_auth_token, region)
        signed: tuple[str, int]
        try:
            signed = ask()
        except Exception as problem:
            if not _kinds(problem) & _NO_KEYS:
                raise
            # botocore asks an instance's metadata service once, for a second: a slow one looks like no keys.
            time.sleep(_PAUSE)
            signed = ask()
        return signed

    def _failure(self, problem: Exception) -> BatchmergeError:
        """By its kind only: a text may repeat what a program or server that gives keys has answered."""
        kinds, answer = _kinds(problem), getattr(problem, "response", None) or {}
        code = str(answer.get("Error", {}).get("Code", ""))
        status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        why = "there are no AWS keys" if kinds & _NO_KEYS else code or type(problem).__name__
        if kinds & _PASSING or code in _LATER or "Throttl" in code or status == 429 or status >= 500:
            return Unavailable(
                f"AWS gives no token now: {why}",
                where=self._where,
                remedy="nothing to do: it is tried again; if it stays, check the network's way to AWS, and what gives "
                "this machine, or Spark's workers, their AWS identity",
            )
        return ConfigurationError(
            f"AWS gives no token: {why}",
            where=self._where,
            remedy="give this machine, and Spark's workers, an AWS identity (environment, profile or role), or correct "
            "`aws_role_arn` or `aws_profile` of the connection",
        )


def _kinds(problem: Exception) -> set[str]:
    return {kind.__name__ for kind in type(problem).__mro__}
