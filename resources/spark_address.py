"""The address of a Spark Connect server, in the form of Spark's own connection strings."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import quote, unquote

_FORM = re.compile(r"sc://(?P<host>[^\s/:;@?#\[\]]+)(?::(?P<port>[0-9]{1,9}))?(?:/(?:;(?P<parameters>.*))?)?")
# Spark Connect's port if the address names none.
_USUAL_PORT = 15002
_MOST_PORT = 65535


@dataclass(frozen=True)
class SparkAddress:
    """``sc://host:port/;use_ssl=true;token=…``. Parameters may hold secrets."""

    host: str
    port: int = _USUAL_PORT
    parameters: dict[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def parse(cls, text: str) -> SparkAddress:
        """
        Raises:
            ValueError: what is wrong, without the text.
        """
        found = _FORM.fullmatch(text)
        if found is None:
            raise ValueError("it is not an address of Spark Connect")
        port = int(found["port"] or _USUAL_PORT)
        if not 1 <= port <= _MOST_PORT:
            raise ValueError(f"the port is not between 1 and {_MOST_PORT}")
        parameters = [one.partition("=") for one in (found["parameters"] or "").split(";") if one]
        if not all(equals for _, equals, _ in parameters):
            raise ValueError("a parameter has no `=`")
        return cls(found["host"], port, {name: unquote(value) for name, _, value in parameters})

    @property
    def shown(self) -> str:
        return f"{self.host}:{self.port}"

    def of_session(self, user: str, session: str) -> str:
        """The address of one session; its parameters may name another user.

        Values are quoted: Spark's client refuses a `=` in a token, and cuts it at `#`.
        """
        said = {"user_id": user, **self.parameters, "session_id": session}
        return f"sc://{self.shown}/;" + ";".join(f"{name}={quote(value, safe='')}" for name, value in said.items())
