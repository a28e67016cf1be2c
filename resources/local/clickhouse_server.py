"""A real ClickHouse server (HTTP and native TCP) out of the wheel `chdb-core`, as a program of its own.

::

    python -m resources.local.clickhouse_server --folder F --http-port N --tcp-port N --zookeeper HOST:PORT \
        --user NAME --password-file FILE

`chdb._chdb.query()` runs ClickHouse's own `clickhouse-local`, which can `SYSTEM START LISTEN` and reads `config.xml`
of the current folder. It is a private entry of the wheel, so the wheel's version is pinned. One process per folder.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import importlib.machinery
import importlib.util
import os
import signal
import sys
import threading
import urllib.request
import uuid
from pathlib import Path
from types import ModuleType
from xml.sax.saxutils import escape

# A server ends the Keeper session of another one with the same UUID, and these have none: so each has its own path.
_CONFIG = """<clickhouse>
  <listen_host>127.0.0.1</listen_host>
  <http_port>{http_port}</http_port>
  <tcp_port>{tcp_port}</tcp_port>
  <zookeeper>
    <node><host>{host}</host><port>{port}</port></node>
    <session_timeout_ms>10000</session_timeout_ms>
    <sessions_path>/clickhouse/sessions/{http_port}</sessions_path>
  </zookeeper>
  <users_config>{folder}/users.xml</users_config>
  <keeper_map_path_prefix>/keeper_map_tables</keeper_map_path_prefix>
  <macros><shard>01</shard><replica>r1</replica></macros>
</clickhouse>
"""

# `clickhouse-local` itself logs in as `default` without a password, so that one stays open on the loopback interface.
_USERS = """<clickhouse>
  <profiles><default/></profiles>
  <quotas><default/></quotas>
  <users>
    <default><password></password>{rights}</default>
    <{user}><password_sha256_hex>{digest}</password_sha256_hex>{rights}</{user}>
  </users>
</clickhouse>
"""
_RIGHTS = (
    "<networks><ip>127.0.0.1</ip><ip>::1</ip></networks><profile>default</profile><quota>default</quota>"
    "<access_management>1</access_management><named_collection_control>1</named_collection_control>"
)


def main() -> None:
    options = _options()
    folder = options.folder.absolute()
    password = options.password_file.read_text().strip()
    (folder / "data").mkdir(parents=True, exist_ok=True)
    host, port = options.zookeeper.rsplit(":", 1)
    (folder / "config.xml").write_text(
        _CONFIG.format(
            http_port=options.http_port, tcp_port=options.tcp_port, host=host, port=port, folder=escape(str(folder))
        )
    )
    digest = hashlib.sha256(password.encode()).hexdigest()
    (folder / "users.xml").write_text(_USERS.format(user=options.user, digest=digest, rights=_RIGHTS))
    os.chdir(folder)
    login = base64.b64encode(f"{options.user}:{password}".encode()).decode()
    _serve(_load_engine(), folder / "data", options.http_port, login)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--http-port", type=int, required=True)
    parser.add_argument("--tcp-port", type=int, required=True)
    parser.add_argument("--zookeeper", required=True)
    parser.add_argument("--user", required=True)
    parser.add_argument("--password-file", type=Path, required=True)
    return parser.parse_args()


def _load_engine() -> ModuleType:
    """The extension itself, not the package `chdb`: that one starts and stops an engine of its own at import, which
    leaves a thread pool shut down."""
    found = importlib.util.find_spec("chdb")
    if found is None or not found.submodule_search_locations:
        sys.exit("chdb-core is not installed")
    library = str(Path(found.submodule_search_locations[0]) / "_chdb.abi3.so")
    sys.setdlopenflags(os.RTLD_NOW | os.RTLD_DEEPBIND)
    loader = importlib.machinery.ExtensionFileLoader("_chdb", library)
    spec = importlib.util.spec_from_file_location("_chdb", library, loader=loader)
    if spec is None:
        sys.exit(f"cannot load {library}")
    engine = importlib.util.module_from_spec(spec)
    loader.exec_module(engine)
    if hasattr(engine, "set_signal_handlers_enabled"):
        engine.set_signal_handlers_enabled(False)
    return engine


def _serve(engine: ModuleType, data: Path, http_port: int, login: str) -> None:
    """Serves until TERM or INT, or until the engine gives up (exit code 1, its message on stderr)."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    # The listeners live as long as this statement: a query that never ends.
    tag = f"keep_{uuid.uuid4().hex}"
    statement = (
        "SYSTEM START LISTEN HTTP; SYSTEM START LISTEN TCP; "
        f"SELECT sleepEachRow(1) AS {tag} FROM system.numbers SETTINGS max_block_size=1, max_threads=1, "
        "function_sleep_max_microseconds_per_block=0, max_execution_time=0 FORMAT Null"
    )
    problem: list[str] = []

    def run() -> None:
        try:
            result = engine.query(statement, "TabSeparated", path=str(data))
            problem.append(result.error_message() if result.has_error() else "")
        except Exception as raised:
            problem.append(str(raised))

    engine_thread = threading.Thread(target=run, daemon=True)
    engine_thread.start()
    while engine_thread.is_alive() and not stop.is_set():
        stop.wait(0.2)
    if engine_thread.is_alive():
        # Ending the statement lets ClickHouse close its tables.
        _post(http_port, login, f"KILL QUERY WHERE query LIKE '%{tag}%' AND query NOT LIKE 'KILL%' SYNC")
        engine_thread.join(20)
    elif problem and problem[0]:
        print(problem[0], file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads of the engine would hold up an ordinary exit.
    os._exit(0 if stop.is_set() else 1)


def _post(http_port: int, login: str, query: str) -> None:
    request = urllib.request.Request(f"http://127.0.0.1:{http_port}/", query.encode())
    request.add_header("Authorization", f"Basic {login}")
    try:
        urllib.request.urlopen(request, timeout=20).read()
    except OSError as problem:
        print(f"not closed cleanly: {problem}", file=sys.stderr)


if __name__ == "__main__":
    main()
