"""A stand-in for AWS's library that signs tokens for Amazon MSK: gives those of a test's own broker, notes who asks."""

from __future__ import annotations

import base64
import zipfile
from pathlib import Path
from urllib.parse import urlsplit

NAME = "aws_msk_iam_sasl_signer"
REGION, WRONG_REGION = "eu-west-1", "nowhere-1"
NO_TOKEN = "a-token-of-nobody"

_MODULE = """
import http.client, json, os, time

class MSKAuthTokenProvider:
    @staticmethod
    def generate_auth_token(region):
        with open({asked!r}, "a") as file:
            file.write(f"{{os.getpid()}} {{region}}\\n")
        connection = http.client.HTTPConnection({host!r})
        connection.request("POST", {path!r}, b"grant_type=client_credentials", {{"Authorization": {basic!r}}})
        token = json.load(connection.getresponse())["access_token"]
        return token if region == {region!r} else {wrong!r}, int((time.time() + 900) * 1000)
"""


def packed_signer(file: Path, asked: Path, url: str, user: str, password: str) -> None:
    """Writes the library as a zip file for Python's path.

    Args:
        asked: gets a line for each question: the process's id, and the region.
        url: where a client gets its tokens (`tests.kit.tokens`).
    """
    basic = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
    where = urlsplit(url)
    given = {"asked": str(asked), "host": where.netloc, "path": where.path, "basic": basic}
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(f"{NAME}.py", _MODULE.format(**given, region=REGION, wrong=NO_TOKEN))
