"""A PostgreSQL of its own for a test, from the machine's packages; it cannot be had from a package registry."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from resources.local.ports import free_port
from tests.kit.processes import stop
from tests.kit.waiting import until

HOST = "127.0.0.1"


def binaries() -> Path | None:
    """The folder of `initdb` and `postgres`; None where PostgreSQL is not installed."""
    found = shutil.which("initdb")
    folders = [Path(found).resolve().parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    return next((folder for folder in reversed(folders) if (folder / "initdb").exists()), None)


@dataclass(frozen=True)
class Postgres:
    """A running server; user and database are `postgres`, without a password."""

    bin: Path
    port: int
    data: Path

    def sql(self, text: str) -> list[list[str]]:
        """Runs statements, gives the last one's rows as text (NULL: an empty string)."""
        argv = [str(self.bin / "psql"), "-h", HOST, "-p", str(self.port), "-U", "postgres", "-v", "ON_ERROR_STOP=1"]
        done = subprocess.run([*argv, "-qAtF", "\t"], input=text, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return [line.split("\t") for line in done.stdout.splitlines()]


@contextmanager
def running_postgres(folder: Path) -> Iterator[Postgres]:
    """A server with logical replication, which stops afterwards; its log is in the folder."""
    found = binaries()
    assert found, "PostgreSQL is not installed"
    port = free_port(())
    # PostgreSQL does not run as root, and its data has to be where its user may go: not below pytest's folder, which
    # every other session of pytest closes to all but its own user.
    user = "postgres" if os.geteuid() == 0 else None
    place = Path(tempfile.mkdtemp(prefix="batchmerge-postgres-"))
    if user:
        shutil.chown(place, user)
    data = place / "data"
    argv = [str(found / "initdb"), "-D", str(data), "-A", "trust", "-U", "postgres", "--no-sync"]
    subprocess.run(argv, user=user, check=True, capture_output=True)
    settings = {"wal_level": "logical", "listen_addresses": HOST, "port": port, "unix_socket_directories": "",
                "fsync": "off", "max_wal_senders": 4, "timezone": "UTC"}  # fmt: skip
    options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    with (folder / "postgres.log").open("w") as log:
        process = subprocess.Popen(
            [str(found / "postgres"), "-D", str(data), *options], user=user, stdout=log, stderr=subprocess.STDOUT
        )
    try:
        _wait(found, port, process)
        yield Postgres(found, port, data)
    finally:
        process.send_signal(signal.SIGINT)  # TERM alone waits for clients to go
        stop(process)
        shutil.rmtree(place)


def _wait(folder: Path, port: int, process: subprocess.Popen[bytes]) -> None:
    argv = [str(folder / "pg_isready"), "-h", HOST, "-p", str(port), "-t", "1"]

    def answers() -> bool:
        assert process.poll() is None, "PostgreSQL has stopped; see postgres.log"
        return subprocess.run(argv, capture_output=True, check=False).returncode == 0

    until(answers, what="answer of PostgreSQL")
