"""Connectors under test: configurations with chains of transforms, and the statement that each becomes."""

from __future__ import annotations

JSON = {
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
}
ICEBERG = {
    "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
    "topics": "t",
    "iceberg.tables": "db.t",
    "iceberg.catalog.type": "rest",
    **JSON,
}
COLUMNS = {"id": "long", "name": "string", "price": "string", "at": "string"}
KAFKA = "org.apache.kafka.connect.transforms."
CONVERTER = KAFKA + "TimestampConverter$Value"


def chain(*steps: tuple[str, dict[str, str]]) -> dict[str, str]:
    """A chain of transforms: type and options of each."""
    found = {"transforms": ",".join(f"s{n}" for n in range(len(steps)))}
    for n, (kind, options) in enumerate(steps):
        found |= {f"transforms.s{n}.type": kind, **{f"transforms.s{n}.{k}": v for k, v in options.items()}}
    return found


# Options of the chain, the row that it gives, and the statement; None: records are taken as they are.
CASES: dict[str, tuple[dict[str, str], dict[str, str], str | None]] = {
    "ReplaceField": (
        chain((KAFKA + "ReplaceField$Value", {"exclude": "price", "renames": "name:title"})),
        {"id": "long", "title": "string", "at": "string"},
        "select * except (`name`), `name` as `title` from records",
    ),
    "ReplaceField include": (
        chain((KAFKA + "ReplaceField$Value", {"include": "id,name"})),
        {"id": "long", "name": "string"},
        None,
    ),
    "Cast": (
        chain((KAFKA + "Cast$Value", {"spec": "price:float64"})),
        {"id": "long", "name": "string", "at": "string", "price": "double"},
        "select * except (`price`), cast(`price` as double) as `price` from records",
    ),
    "Cast of a time": (
        chain((CONVERTER, {"field": "at", "target.type": "Timestamp", "format": "dd.MM.yyyy"}),
              (KAFKA + "Cast$Value", {"spec": "at:int64"})),
        {"id": "long", "name": "string", "price": "string", "at": "long"},
        "select * except (`at`), cast(unix_millis(to_timestamp(`at`, 'dd.MM.yyyy')) as long) as `at` from records",
    ),
    "Cast of a time to text": (
        chain((CONVERTER, {"field": "id", "target.type": "Timestamp"}), (KAFKA + "Cast$Value", {"spec": "id:string"})),
        {"name": "string", "price": "string", "at": "string", "id": "string"},
        "select * except (`id`), date_format(timestamp_millis(`id`), case when unix_millis(timestamp_millis(`id`)) % "
        "86400000 = 0 then 'yyyy-MM-dd' else 'yyyy-MM-dd\\'T\\'HH:mm:ss.SSS\\'Z\\'' end) as `id` from records",
    ),
    "TimestampConverter": (
        chain((CONVERTER, {"field": "at", "target.type": "Timestamp", "format": "dd.MM.yyyy"})),
        {"id": "long", "name": "string", "price": "string", "at": "timestamp"},
        "select * except (`at`), to_timestamp(`at`, 'dd.MM.yyyy') as `at` from records",
    ),
    "TimestampConverter of a number": (
        chain((CONVERTER, {"field": "id", "target.type": "Date", "unix.precision": "seconds"})),
        {"id": "date", "name": "string", "price": "string", "at": "string"},
        "select * except (`id`), cast(timestamp_seconds(`id`) as date) as `id` from records",
    ),
    "InsertField": (
        chain((KAFKA + "InsertField$Value",
               {"topic.field": "topic", "offset.field": "o!", "static.field": "region", "static.value": "eu's"})),
        {**COLUMNS, "topic": "string", "o": "long", "region": "string"},
        "select *, _topic as `topic`, _offset as `o`, 'eu\\'s' as `region` from records",
    ),
    "MaskField": (
        chain((KAFKA + "MaskField$Value", {"fields": "name,id"})),
        {"price": "string", "at": "string", "id": "long", "name": "string"},
        "select * except (`id`, `name`), case when `id` is not null then cast('0' as long) end as `id`, "
        "case when `name` is not null then '' end as `name` from records",
    ),
    "TimestampConverter in nanoseconds": (
        chain((CONVERTER, {"field": "id", "target.type": "Timestamp", "unix.precision": "nanoseconds"}),
              (CONVERTER, {"field": "id", "target.type": "unix", "unix.precision": "nanoseconds"})),
        {"name": "string", "price": "string", "at": "string", "id": "long"},
        "select * except (`id`), unix_micros(timestamp_micros(`id` div 1000)) * 1000 as `id` from records",
    ),
    "HoistField": (
        chain((KAFKA + "ReplaceField$Value", {"include": "id"}), (KAFKA + "HoistField$Value", {"field": "line"})),
        {"line": "struct<id: long>"},
        "select named_struct('id', `id`) as `line` from records",
    ),
    "KeyToValue": (
        {
            **chain(("com.clickhouse.kafka.connect.transforms.KeyToValue", {"field": "k"})),
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        },
        {**COLUMNS, "k": "string"},
        "select *, _key.`key` as `k` from records",
    ),
    "KafkaMetadata": (
        chain(("io.tabular.iceberg.connect.transforms.KafkaMetadataTransform", {"field_name": "_m"})),
        {**COLUMNS, "_m_topic": "string", "_m_partition": "int", "_m_offset": "long", "_m_timestamp": "long"},
        "select *, _topic as `_m_topic`, _partition as `_m_partition`, _offset as `_m_offset`, "
        "unix_millis(_timestamp) as `_m_timestamp` from records",
    ),
    "JsonToMap": (
        chain(("io.tabular.iceberg.connect.transforms.JsonToMapTransform", {"json.root": "true"})),
        {"payload": "map<string,string>"},
        "select from_json(`payload`, 'map<string,string>') as `payload` from records",
    ),
    "Filter": (
        {
            **chain((KAFKA + "Filter", {"predicate": "p", "negate": "true"})),
            "predicates": "p",
            "predicates.p.type": KAFKA + "predicates.HasHeaderKey",
            "predicates.p.name": "trace",
        },
        COLUMNS,
        "select * from records where not (not coalesce(exists(_headers, h -> h.key = 'trace'), false))",
    ),
    "under a predicate": (
        {
            **chain((KAFKA + "MaskField$Value", {"fields": "name", "predicate": "p"})),
            "predicates": "p",
            "predicates.p.type": KAFKA + "predicates.TopicNameMatches",
            "predicates.p.pattern": "secret.*",
        },
        {"id": "long", "price": "string", "at": "string", "name": "string"},
        "select * except (`name`), case when (_topic rlike '^(?:secret.*)$') then "
        "case when `name` is not null then '' end else `name` end as `name` from records",
    ),
    "of tombstones": (
        {
            **chain((KAFKA + "Filter", {"predicate": "p"}), (KAFKA + "SetSchemaMetadata$Value", {"schema.name": "x"})),
            "predicates": "p",
            "predicates.p.type": KAFKA + "predicates.RecordIsTombstone",
        },
        COLUMNS,
        None,
    ),
    "one after the other": (
        chain(
            (KAFKA + "ReplaceField$Value", {"renames": "price:cost"}),
            (KAFKA + "Cast$Value", {"spec": "cost:float64"}),
            (KAFKA + "InsertField$Value", {"timestamp.field": "seen"}),
        ),
        {"id": "long", "name": "string", "at": "string", "cost": "double", "seen": "timestamp"},
        "select * except (`price`), cast(`price` as double) as `cost`, _timestamp as `seen` from records",
    ),
}  # fmt: skip
