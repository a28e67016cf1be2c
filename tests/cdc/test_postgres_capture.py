"""A real capture: what PostgreSQL holds after a load of changes, our table holds too.

PostgreSQL comes from the machine's packages (`apt-get install postgresql`), so these tests have a make target of their
own (`make cdc`) and say so where it is missing.
"""

from __future__ import annotations

import hashlib
import random
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from jobs.dead_letters.open_count import open_count
from resources.connections import Connections
from resources.errors import TopicMissing
from tests.kit.debezium import capturing
from tests.kit.engine import Engine, catalog
from tests.kit.flow import Flow
from tests.kit.postgres import Postgres, binaries, running_postgres
from tests.kit.records import bootstrap

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(binaries() is None, reason="PostgreSQL is not installed (apt-get install postgresql)"),
]

TABLE = """
CREATE TABLE account (
  id bigint PRIMARY KEY, owner text, balance numeric(12,2), rate numeric, opened timestamp(3), seen timestamptz,
  day date, noon time, active boolean, raw bytea, tags text[], extra jsonb, ref uuid, score real
);
ALTER TABLE account REPLICA IDENTITY DEFAULT;
"""
ROW = """(%d, 'owner %d ''é''', %d.25, %d.5, '2020-01-01 00:00:00.125'::timestamp + interval '%d hours',
 '2020-06-01 12:00:00.000001+02'::timestamptz + interval '%d minutes', '1999-12-31'::date + %d, '12:34:56.5', %s,
 '\\\\x00ff', ARRAY['a','%d'], '{"n": %d}', '00112233-4455-6677-8899-%012d', '%s')"""
SCORES = ["1.5", "NaN", "Infinity", "-Infinity"]  # JSON has no such numbers as the last three
COLUMNS = {
    "id": "long not null", "owner": "string", "balance": "decimal(12,2)", "rate": "decimal(20,4)",
    "opened": "timestamp_ntz", "seen": "timestamp", "day": "date", "noon": "string", "active": "boolean",
    "raw": "binary", "tags": "array<string>", "extra": "string", "ref": "string", "score": "float", "_lsn": "long",
}  # fmt: skip
EXPECTED = """SELECT id, owner, balance, trim_scale(rate), (extract(epoch from opened) * 1000000)::bigint,
 (extract(epoch from seen) * 1000000)::bigint, day, active, encode(raw, 'hex'), array_to_string(tags, ','), extra, ref,
 score {more} FROM account ORDER BY id"""


@pytest.fixture
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    with running_postgres(tmp_path_factory.mktemp("postgres")) as server:
        server.sql(TABLE)
        yield server


def inserted(n: int) -> str:
    return f"INSERT INTO account VALUES {ROW % (n, n, n, n, n, n, n, n % 2 == 0, n, n, n, SCORES[n % 4])};"


def load(postgres: Postgres, seed: int, added: str = "") -> None:
    """Inserts, updates, deletes and changes of keys, in transactions of a few; some are rolled back."""
    dice = random.Random(seed)
    known = {int(row[0]) for row in postgres.sql("SELECT id FROM account")}
    new = 1000 * seed
    text = []
    for _ in range(120):
        before = set(known)
        text.append("BEGIN;")
        for _ in range(dice.randint(1, 6)):
            kind = dice.choices(["insert", "update", "delete", "rekey"], [4, 5, 1, 1])[0]
            if kind == "insert" or not known:
                new += 1
                known.add(new)
                text.append(inserted(new).replace(" VALUES", " (id, owner, balance, rate, opened, seen, day, noon,"
                            " active, raw, tags, extra, ref, score) VALUES"))  # fmt: skip
                continue
            old = dice.choice(sorted(known))
            if kind == "update":
                text.append(f"UPDATE account SET balance = balance + 1, owner = NULL {added} WHERE id = {old};")
            elif kind == "delete":
                known.remove(old)
                text.append(f"DELETE FROM account WHERE id = {old};")
            else:
                new += 1
                known = known - {old} | {new}
                text.append(f"UPDATE account SET id = {new} WHERE id = {old};")
        rolled_back = dice.random() < 0.1
        known = before if rolled_back else known
        text.append("ROLLBACK;" if rolled_back else "COMMIT;")
    postgres.sql("\n".join(text))


def engine_of(
    connections: Connections, spark: SparkSession, topic: str, columns: dict[str, str], max_records: int = 200
) -> Engine:
    source = {
        "topics": [topic],
        "key": {"format": "connect_json", "columns": {"id": "long not null"}},
        "value": {
            "format": "connect_json",
            "envelope": {"kind": "debezium", "metadata": {"_lsn": "source.lsn"}},
            "columns": columns,
        },
    }
    overrides: dict[str, object] = {"source": source, "changes": {"key": {"columns": ["id"]}}}
    return Engine(Flow(topic, ["upsert_delete"], max_records=max_records, overrides=overrides), connections, spark)


def ours(engine: Engine, more: list[str]) -> list[list[str]]:
    """The table as PostgreSQL would print it."""
    table = catalog(engine.connections).load(engine.flow.table("upsert_delete"))
    rows = table.scan().to_arrow().sort_by("id").to_pylist() if table else []
    return [[_text(row, name) for name in [*COLUMNS, *more] if name not in ("noon", "_lsn")] for row in rows]


def _text(row: dict[str, Any], name: str) -> str:
    value = row[name]
    if value is None:
        return ""
    if name in ("opened", "seen"):
        return str(round(value.timestamp() * 1e6) if value.tzinfo else _wall_clock(value))
    special: dict[str, Callable[[Any], str]] = {
        "active": lambda v: "ft"[v],
        "raw": bytes.hex,
        "tags": ",".join,
        "rate": lambda v: f"{v.normalize():f}",
        "score": lambda v: str(v).replace("nan", "NaN").replace("inf", "Infinity"),
    }
    return str(special[name](value) if name in special else value)


def _wall_clock(value: Any) -> int:
    from datetime import datetime, timedelta

    return int((value - datetime(1970, 1, 1)) / timedelta(microseconds=1))


def wait_until_equal(engine: Engine, postgres: Postgres, more: list[str]) -> None:
    wanted = postgres.sql(EXPECTED.format(more="".join(f", {name}" for name in more)))
    wait_until(engine, lambda: ours(engine, more), wanted)


def wait_until(engine: Engine, ours: Callable[[], list[list[str]]], wanted: list[list[str]]) -> None:
    end, found = time.monotonic() + 180, None
    while time.monotonic() < end:
        try:
            engine.advance()
        except TopicMissing:
            time.sleep(0.2)  # the connector has not written yet
            continue
        if (found := ours()) == wanted:
            return
    assert found == wanted


def test_table_equals_postgres(
    connections: Connections, spark: SparkSession, postgres: Postgres, tmp_path: Path
) -> None:
    postgres.sql("\n".join(inserted(n) for n in range(1, 50)))  # there before the capture: read as a snapshot
    prefix = f"pg{uuid.uuid4().hex[:8]}"
    engine = engine_of(connections, spark, f"{prefix}.public.account", COLUMNS)
    with capturing(tmp_path, bootstrap(connections), postgres, prefix):
        wait_until_equal(engine, postgres, [])
        load(postgres, seed=1)
        wait_until_equal(engine, postgres, [])
        postgres.sql("ALTER TABLE account ADD COLUMN level int")
        engine = engine.with_value(columns={**COLUMNS, "level": "int"})
        load(postgres, seed=2, added=", level = 7")
        wait_until_equal(engine, postgres, ["level"])
    bad = sum(batch.counts.quarantined for batch in engine.pipeline.intermediate.landed().batches)
    assert bad == 0


# ---- large values (TOAST) -------------------------------------------------------------------------------------------

# `EXTERNAL`: stored outside of the row, without compression; an update that does not touch them leaves them out.
LARGE = """
CREATE TABLE document (id bigint PRIMARY KEY, body text, raw bytea, tags text[], sizes int[], n int);
ALTER TABLE document ALTER body SET STORAGE EXTERNAL, ALTER raw SET STORAGE EXTERNAL, ALTER tags SET STORAGE EXTERNAL,
  ALTER sizes SET STORAGE EXTERNAL;
"""
VALUES = {
    "body": "repeat('%d ä', 1500)",
    "raw": "decode(repeat('%02x', 4000), 'hex')",
    "tags": "ARRAY['%d', repeat('t', 4000)]",
    "sizes": "(SELECT array_agg(v + %d) FROM generate_series(1, 2000) v)",
}
LARGE_COLUMNS = {
    "id": "long not null", "body": "string", "raw": "binary", "tags": "array<string>", "sizes": "array<int>",
    "n": "int", "_lsn": "long",
}  # fmt: skip
LARGE_EXPECTED = """SELECT id, md5(body), md5(raw), md5(array_to_string(tags, ',')), md5(array_to_string(sizes, ',')), n
 FROM document ORDER BY id"""


def load_large(postgres: Postgres, seed: int) -> None:
    """Most updates touch one column; rows are deleted and inserted again, and get other keys."""
    dice, text = random.Random(seed), []
    for n in range(150):
        key = dice.randint(1, 12)
        kind = dice.choices([*VALUES, "n", "null", "delete", "key"], [1, 1, 1, 1, 8, 1, 2, 3])[0]
        if kind == "delete":
            text.append(f"DELETE FROM document WHERE id = {key};")
        elif kind == "key":
            free = f"NOT EXISTS (SELECT FROM document WHERE id = {n + 100 * seed})"
            text.append(f"UPDATE document SET id = {n + 100 * seed} WHERE id = {key} AND {free};")
        elif kind == "n":
            text.append(f"UPDATE document SET n = {n} WHERE id = {key};")
        elif kind == "null":
            text.append(f"UPDATE document SET {dice.choice(list(VALUES))} = NULL WHERE id = {key};")
        else:
            text.append(f"UPDATE document SET {kind} = {VALUES[kind] % (n % 256)} WHERE id = {key};")
        values = ", ".join(value % (n % 256) for value in VALUES.values())
        text.append(f"INSERT INTO document VALUES ({dice.randint(1, 12)}, {values}, {n}) ON CONFLICT DO NOTHING;")
    postgres.sql("\n".join(text))


def large_ours(engine: Engine) -> list[list[str]]:
    table = catalog(engine.connections).load(engine.flow.table("upsert_delete"))
    rows = table.scan().to_arrow().sort_by("id").to_pylist() if table else []
    found = []
    for row in rows:
        arrays = [None if row[c] is None else ",".join(map(str, row[c])).encode() for c in ("tags", "sizes")]
        body = None if row["body"] is None else row["body"].encode()
        sums = ["" if v is None else hashlib.md5(v).hexdigest() for v in (body, row["raw"], *arrays)]
        found.append([str(row["id"]), *sums, str(row["n"])])
    return found


def test_large_values_that_updates_do_not_touch_stay(
    connections: Connections, spark: SparkSession, postgres: Postgres, tmp_path: Path
) -> None:
    postgres.sql(LARGE)
    load_large(postgres, 0)  # there before the capture
    prefix = f"pg{uuid.uuid4().hex[:8]}"
    engine = engine_of(connections, spark, f"{prefix}.public.document", LARGE_COLUMNS, max_records=40)
    # The two records of a changed key are in different partitions.
    three = {"topic_creation_default_partitions": "3", "topic_creation_default_replication_factor": "1"}
    with capturing(tmp_path, bootstrap(connections), postgres, prefix, **three):
        for seed in (1, 2):
            wait_until(engine, lambda: large_ours(engine), postgres.sql(LARGE_EXPECTED))
            load_large(postgres, seed)
        wait_until(engine, lambda: large_ours(engine), postgres.sql(LARGE_EXPECTED))
    landed = catalog(connections).require(engine.pipeline.intermediate.identifier).scan(selected_fields=("kept",))
    kept = {name for row in landed.to_arrow().to_pylist() for name in row["kept"] or []}
    assert kept == set(VALUES), "Debezium has left out values of every kind"
    assert open_count(engine.pipeline.intermediate) == 0
    recovered = sum(batch.counts.recovered for batch in engine.pipeline.intermediate.landed().batches)
    assert recovered > 10, "rows have got other keys"
